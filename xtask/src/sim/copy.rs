//! The copy of the sources with the planted bugs: a workspace of its own under `target/planted`, with the same
//! versions of all dependencies. Unchanged files are not touched, so that little is built again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::bugs::Bug;
use super::schemata::{plant, switches};

/// The crates that are copied.
const CRATES: [&str; 5] = ["api", "controller/core", "daemon/core", "tests/sim", "tests/models"];
/// The simulator in the copy. It has its own name, since both are built into one folder.
pub(super) const PROGRAM: &str = "pitstop-sim-planted";
const SIMULATOR: &str = "tests/sim/Cargo.toml";
/// Crate whose tests run in the copy, but not its program.
const MODELS: &str = "tests/models/Cargo.toml";
/// File of the switches, and the file and line that add it to its crate.
const SWITCHES: &str = "api/src/planted.rs";
const SWITCHES_HOME: &str = "api/src/lib.rs";
const SWITCHES_MODULE: &str = "pub mod planted;";

/// Writes the copy into `out`.
pub(super) fn write(root: &Path, out: &Path, bugs: &[Bug]) -> Result<()> {
    let mut files = BTreeMap::new();
    for folder in CRATES {
        for path in files_below(root, &root.join(folder))? {
            let name = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
            files.insert(name, fs::read(&path).with_context(|| cannot_read(&path))?);
        }
    }
    for (file, text) in planted(root, bugs)? {
        files.insert(file.into(), text.into_bytes());
    }
    for name in ["Cargo.toml", "Cargo.lock"] {
        let path = root.join(name);
        let text = fs::read_to_string(&path).with_context(|| cannot_read(&path))?;
        let text = if name == "Cargo.toml" { manifest(&text)? } else { text };
        files.insert(name.into(), text.into_bytes());
    }
    for (name, program) in [(SIMULATOR, Some(PROGRAM)), (MODELS, None)] {
        if let Some(manifest) = files.get_mut(Path::new(name)) {
            *manifest = renamed(&String::from_utf8_lossy(manifest), program).into_bytes();
        }
    }
    for folder in CRATES {
        let folder = out.join(folder);
        if !folder.exists() {
            continue;
        }
        for path in files_below(out, &folder)? {
            if !files.contains_key(path.strip_prefix(out).unwrap_or(&path)) {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
    }
    for (name, content) in files {
        put(&out.join(name), &content)?;
    }
    Ok(())
}

/// The sources that differ from the checkout.
pub(super) fn planted(root: &Path, bugs: &[Bug]) -> Result<BTreeMap<String, String>> {
    let mut sources = plant(bugs, |file| {
        let served =
            CRATES.iter().any(|of| file.strip_prefix(of).is_some_and(|rest| rest.starts_with("/src/")));
        if !served {
            bail!("a bug can be planted in the sources of {}, not in {file}", CRATES.join(", "));
        }
        let path = root.join(file);
        fs::read_to_string(&path).with_context(|| cannot_read(&path))
    })?;
    let home = if let Some(text) = sources.remove(SWITCHES_HOME) {
        text
    } else {
        let path = root.join(SWITCHES_HOME);
        fs::read_to_string(&path).with_context(|| cannot_read(&path))?
    };
    sources.insert(SWITCHES_HOME.to_owned(), format!("{home}\n{SWITCHES_MODULE}\n"));
    sources.insert(SWITCHES.to_owned(), switches(bugs));
    Ok(sources)
}

/// The workspace's manifest for the copied crates, without the checkout's lints.
fn manifest(text: &str) -> Result<String> {
    let members = CRATES.map(|of| format!("{of:?}")).join(", ");
    let (mut kept, mut named, mut lints) = (Vec::new(), false, false);
    for line in text.lines() {
        if line.starts_with('[') {
            lints = line.starts_with("[workspace.lints");
        }
        if line.starts_with("members = [") && line.ends_with(']') {
            kept.push(format!("members = [{members}]"));
            named = true;
        } else if !lints {
            kept.push(line.to_owned());
        }
    }
    if !named {
        bail!("Cargo.toml has no line `members = [...]`");
    }
    kept.push("[workspace.lints.rust]\nwarnings = \"allow\"\n".to_owned());
    Ok(kept.join("\n"))
}

/// A crate's manifest with its program under another name, or without one.
fn renamed(manifest: &str, program: Option<&str>) -> String {
    let package = manifest.replacen("[package]\n", "[package]\nautobins = false\n", 1);
    let program = program.map(|name| format!("\n[[bin]]\nname = {name:?}\npath = \"src/main.rs\"\n"));
    package + &program.unwrap_or_default()
}

/// Writes a file unless it already has this content.
fn put(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Every file below a folder.
fn files_below(root: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| cannot_read(&folder))? {
            let entry = entry.with_context(|| cannot_read(&folder))?;
            let kind = entry.file_type().with_context(|| cannot_read(&folder))?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    if files.is_empty() {
        bail!("{} has no files", folder.strip_prefix(root).unwrap_or(folder).display());
    }
    Ok(files)
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_the_profile_and_no_lints() {
        let text = fs::read_to_string(crate::workspace::root().unwrap().join("Cargo.toml")).unwrap();
        let copy = manifest(&text).unwrap();
        assert!(copy.contains("[profile.sim]"), "{copy}");
        assert!(!copy.contains("clippy") && copy.contains("warnings = \"allow\""), "{copy}");
        assert!(manifest("[workspace]\n").is_err());
    }

    #[test]
    fn the_copys_simulator_has_its_own_name() {
        let manifest = "[package]\nname = \"pitstop-sim\"\n[dependencies]\n";
        let own = renamed(manifest, Some(PROGRAM));
        assert!(own.starts_with("[package]\nautobins = false\nname"), "{own}");
        assert!(own.ends_with("[[bin]]\nname = \"pitstop-sim-planted\"\npath = \"src/main.rs\"\n"), "{own}");
        assert!(!renamed(manifest, None).contains("[[bin]]"));
    }

    #[test]
    fn what_stays_the_same_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        put(&path, b"1").unwrap();
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        put(&path, b"1").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
        put(&path, b"2").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2");
    }
}
