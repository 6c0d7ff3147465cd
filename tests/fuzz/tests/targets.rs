//! Names of targets and corpora. `cargo xtask fuzz` builds the targets along with this test. The test uses nothing of
//! the crate, because instrumented code can only be linked with libFuzzer.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_target_has_its_program_and_its_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let named = manifest.split("[[bin]]\nname = \"").skip(1);
    let programs: BTreeSet<_> = named.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect();
    let corpora = fs::read_dir(folder.join("corpus")).unwrap();
    let corpora: BTreeSet<_> =
        corpora.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(corpora, programs);
}
