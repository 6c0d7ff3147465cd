//! The pages that the program writes are those of the documentation. For this test cargo builds the program itself,
//! which the tests on a cluster use as well.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_pages_of_the_documentation_are_current() {
    let written = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_kubectl-pitstop");
    assert!(Command::new(program).arg("manual").arg(written.path()).status().unwrap().success());
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/kubectl-pitstop");
    let (written, stored) = (pages(written.path()), pages(&stored));
    let write = "write it anew: cargo run -p kubectl-pitstop -- manual docs/reference/kubectl-pitstop";
    for (file, text) in &written {
        assert!(stored.get(file) == Some(text), "{file} is not current; {write}");
    }
    assert!(stored.keys().eq(written.keys()), "a page is about no command: {:?}", stored.keys());
}

/// The pages of a folder by their names.
fn pages(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let page = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
    };
    entries.map(page).collect()
}
