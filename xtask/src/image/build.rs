//! Builds the programs that go into images: static, and equal in every checkout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{Artifact, Message};

use crate::debian;
use crate::sh::{Cmd, is_installed};

/// A build target: Linux, without the machine's C library.
pub(crate) struct Target {
    /// Target triple, as Rust names it.
    pub(crate) triple: &'static str,
    /// The processor, as Go names it.
    pub(crate) architecture: &'static str,
    /// The processor's number in ELF.
    pub(crate) machine: u16,
    /// C compiler: ring is partly written in C.
    compiler: &'static str,
    /// Debian packages of the compiler.
    packages: &'static [&'static str],
    /// Linker options.
    link: &'static [&'static str],
    /// Whether the compiler is for another processor. If so, cargo must be told its name, and its headers are a
    /// separate package.
    cross: bool,
}

/// Default target of the images.
pub(crate) const AMD64: Target = Target {
    triple: "x86_64-unknown-linux-musl",
    architecture: "amd64",
    machine: 62,
    compiler: "musl-gcc",
    packages: &["musl-tools"],
    // A program reads all its relocations at its start, and keeps their pages: packed, they take a twentieth. musl reads
    // them since 1.2.4.
    link: &["-Wl,-z,pack-relative-relocs"],
    cross: false,
};
/// Target that is built on another processor.
pub(crate) const ARM64: Target = Target {
    triple: "aarch64-unknown-linux-musl",
    architecture: "arm64",
    machine: 183,
    // The compiler has the headers of glibc; ring needs none that differs from musl's. The linked C library is Rust's
    // own musl.
    compiler: "aarch64-linux-gnu-gcc",
    packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
    // GNU ld packs relocations of this processor only since 2.43.
    link: &[],
    cross: true,
};

impl Target {
    /// Environment variables that name the C compiler and the linker of a cross build.
    fn variables(&self) -> Vec<(String, &'static str)> {
        let names = [
            format!("CC_{}", self.triple.replace('-', "_")),
            format!("CARGO_TARGET_{}_LINKER", self.triple.replace('-', "_").to_uppercase()),
        ];
        names.into_iter().filter(|_| self.cross).map(|name| (name, self.compiler)).collect()
    }

    /// Options of the linker, as flags of the Rust compiler.
    fn flags(&self) -> impl Iterator<Item = String> + use<> {
        self.link.iter().map(|option| format!("-Clink-arg={option}"))
    }
}

/// Cargo's settings for programs that are built faster, in the checkout.
const DEV: &str = "xtask/src/image/dev.toml";

/// Builds programs and returns the path of each by its name.
///
/// `beside`: packages whose features also count, as if they were built. With the packages of the images, another
/// program shares their compiled dependencies.
pub(crate) fn programs(
    root: &Path,
    target: &Target,
    packages: &[&str],
    beside: &[&str],
    dev: bool,
) -> Result<BTreeMap<String, PathBuf>> {
    let sysroot = PathBuf::from(Cmd::new("rustc").args(["--print", "sysroot"]).dir(root).read()?.trim_end());
    require_tools(root, target, &sysroot)?;
    let home = cargo_home().context("neither CARGO_HOME nor HOME is set")?;
    let profile = if dev { ["--config", DEV] } else { ["--profile", "release"] };
    let moves = [(home.as_path(), "/cargo"), (sysroot.as_path(), "/rust"), (root, "/pitstop")];
    let remapped = remapping("--remap-path-prefix", &moves).into_iter();
    // In the profile, it would also be for macros.
    let stripped = dev.then(|| "-Cstrip=symbols".to_owned());
    let flags: Vec<_> = remapped.chain(target.flags()).chain(stripped).collect();
    let flags_of_c = format!("CFLAGS_{}", target.triple.replace('-', "_"));
    let cargo = target.variables().iter().fold(Cmd::cargo(), |cargo, (name, value)| cargo.env(name, value));
    let messages = cargo
        .args(["build", "--locked", "--target", target.triple])
        .args(profile)
        .args(packages.iter().chain(beside).flat_map(|package| ["-p", package]))
        .args(packages.iter().flat_map(|package| ["--bin", package]))
        .arg("--message-format=json-render-diagnostics")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env(&flags_of_c, remapping("-ffile-prefix-map", &moves).join(" "))
        .dir(root)
        .read_loud()?;
    let programs = executables(&messages)?;
    match packages.iter().find(|package| !programs.contains_key(**package)) {
        Some(missing) => bail!("cargo built no program named {missing}"),
        None => Ok(programs),
    }
}

fn require_tools(root: &Path, target: &Target, sysroot: &Path) -> Result<()> {
    let triple = target.triple;
    let library = sysroot.join("lib/rustlib").join(triple).join("lib");
    // rustup installs the targets of `rust-toolchain.toml` only together with the toolchain.
    if !library.is_dir() && is_installed("rustup") {
        Cmd::new("rustup").args(["target", "add", triple]).dir(root).run()?;
    }
    if !library.is_dir() {
        bail!("Rust's target {triple} is not installed; run\n    rustup target add {triple}");
    }
    let compiler = target.compiler;
    if target.cross || !is_installed(compiler) {
        debian::ensure(target.packages, "building static programs")?;
    }
    if !is_installed(compiler) {
        let packages = target.packages.join(" ");
        bail!(
            "{compiler} is not installed; on Debian and Ubuntu run\n    sudo apt-get install -y {packages}"
        );
    }
    Ok(())
}

fn cargo_home() -> Option<PathBuf> {
    let set = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    set.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// Arguments that hide paths of this machine from the output. If two folders hold a file, the compilers take the last
/// match, so outer folders come first.
fn remapping(flag: &str, moves: &[(&Path, &str)]) -> Vec<String> {
    let mut moves = moves.to_vec();
    moves.sort_by_key(|(from, _)| from.as_os_str().len());
    moves.iter().map(|(from, to)| format!("{flag}={}={to}", from.display())).collect()
}

/// Programs in cargo's messages, by name.
pub(crate) fn executables(messages: &str) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for message in Message::parse_stream(messages.as_bytes()) {
        if let Message::CompilerArtifact(Artifact { target, executable: Some(path), .. }) = message? {
            found.insert(target.name, path.into());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn folders_within_folders_come_last() {
        let moves = [(Path::new("/src/pitstop/.cargo"), "/cargo"), (Path::new("/src/pitstop"), "/pitstop")];
        assert_eq!(
            remapping("--to", &moves),
            ["--to=/src/pitstop=/pitstop", "--to=/src/pitstop/.cargo=/cargo"]
        );
    }

    #[test]
    fn only_programs_are_taken_from_cargos_messages() {
        let artifact = |name: &str, executable: Option<&str>| {
            json!({
                "reason": "compiler-artifact", "package_id": name, "features": [], "filenames": [], "fresh": false,
                "target": {"name": name, "kind": ["bin"], "src_path": "/main.rs"}, "executable": executable,
                "profile": {"opt_level": "0", "debug_assertions": true, "overflow_checks": true, "test": false},
            })
        };
        let messages = [
            artifact("serde", None),
            json!({"reason": "build-script-executed", "package_id": "x"}),
            artifact("pitstop-daemon", Some("/t/pitstop-daemon")),
            json!({"reason": "build-finished", "success": true}),
        ];
        let messages = messages.map(|message| message.to_string()).join("\n");
        let expected = BTreeMap::from([("pitstop-daemon".to_owned(), PathBuf::from("/t/pitstop-daemon"))]);
        assert_eq!(executables(&messages).unwrap(), expected);
    }
}
