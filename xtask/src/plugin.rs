//! `cargo xtask plugin`: `kubectl-pitstop` for users, under `target/plugin`: an archive with a static program for
//! each processor, and krew's manifest.
//!
//! The same sources give the same bytes, as for the images.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::image::{AMD64, ARM64, Entry, Target, compressed, program, sha256};
use crate::progress::{Step, note};
use crate::workspace::{self, Files, VERSION, shown};

/// The program and its package.
pub(crate) const NAME: &str = "kubectl-pitstop";
/// Maximum size of the program in bytes: users download it.
const AT_MOST: usize = 12_000_000;
/// File that krew requires beside the program.
const LICENSE: &str = "LICENSE";
const MANIFEST: &str = "pitstop.yaml";

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder on the web in which the archives will lie: `https://…`. With it, krew's manifest is written, too.
    #[arg(long, value_parser = web_folder)]
    url: Option<String>,
}

pub(crate) fn web_folder(text: &str) -> Result<String> {
    let folder = text.trim_end_matches('/');
    match folder.strip_prefix("https://") {
        Some(rest) if !rest.is_empty() => Ok(folder.to_owned()),
        _ => bail!("krew fetches by https alone: https://HOST/FOLDER"),
    }
}

/// An archive that was written.
struct Built {
    architecture: &'static str,
    file: String,
    sha256: String,
}

/// The command.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let folder = root.join("target/plugin");
    workspace::write(&folder, &files(root, args.url.as_deref())?)?;
    note(format!("they lie in {}", shown(root, &folder)));
    Ok(())
}

/// The archives by file name, and the manifest if `url` is given.
pub(crate) fn files(root: &Path, url: Option<&str>) -> Result<Files> {
    let mut files = Files::new();
    let license = fs::read(root.join(LICENSE)).context("cannot read LICENSE")?;
    let mut built = Vec::new();
    for target in [&AMD64, &ARM64] {
        let step = Step::begin(format!("building {NAME} for {}", target.architecture));
        let program = program(root, target, NAME)?;
        require_small(program.len())?;
        let bytes = archive(&program, &license)?;
        let one = Built::of(target, &bytes);
        note(format!("{} sha256:{} (program of {} bytes)", one.file, one.sha256, program.len()));
        files.insert(one.file.clone(), bytes);
        built.push(one);
        step.done();
    }
    if let Some(url) = url {
        let manifest = serde_saphyr::to_string(&manifest(url, &built)).context("krew's manifest")?;
        files.insert(MANIFEST.to_owned(), manifest.into_bytes());
    }
    Ok(files)
}

fn require_small(bytes: usize) -> Result<()> {
    if bytes > AT_MOST {
        bail!("{NAME} has {bytes} bytes; it may have {AT_MOST}");
    }
    Ok(())
}

/// The compressed archive that krew unpacks, with nothing of the clock or of the machine.
fn archive(program: &[u8], license: &[u8]) -> Result<Vec<u8>> {
    let files = [Entry::executable(NAME, program), Entry::file(LICENSE, license)];
    compressed(files.into_iter())
}

impl Built {
    fn of(target: &Target, archive: &[u8]) -> Self {
        let architecture = target.architecture;
        let file = format!("{NAME}-{VERSION}-linux-{architecture}.tar.gz");
        Self { architecture, file, sha256: sha256(archive) }
    }

    fn platform(&self, url: &str) -> Value {
        json!({
            "selector": { "matchLabels": { "os": "linux", "arch": self.architecture } },
            "uri": format!("{url}/{}", self.file),
            "sha256": self.sha256,
            "bin": NAME,
            "files": [{ "from": NAME, "to": "." }, { "from": LICENSE, "to": "." }],
        })
    }
}

/// Krew's manifest, as described in <https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/>.
fn manifest(url: &str, built: &[Built]) -> Value {
    json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": { "name": "pitstop" },
        "spec": {
            "version": format!("v{VERSION}"),
            "shortDescription": "Restart, resize and update Pods in their place",
            "description": "Restarts chosen containers of running Pods, changes their CPU, memory and images where they \
                            are, does so for whole workloads, and shows what is waited for.\n",
            "caveats": "The cluster needs pitstop's controller and its daemon on each node: `kubectl pitstop doctor` \
                        says what is missing.\n",
            "platforms": built.iter().map(|one| one.platform(url)).collect::<Vec<_>>(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn an_archive_has_the_program_and_the_license_and_is_the_same_every_time() {
        let bytes = archive(b"program", b"terms").unwrap();
        assert_eq!(bytes, archive(b"program", b"terms").unwrap());
        let mut unpacked = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let found: Vec<_> = unpacked
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut content = String::new();
                entry.read_to_string(&mut content).unwrap();
                let name = entry.path().unwrap().to_str().unwrap().to_owned();
                (name, entry.header().mode().unwrap(), content)
            })
            .collect();
        let expected = [(NAME, 0o755, "program"), (LICENSE, 0o644, "terms")];
        assert_eq!(found, expected.map(|(name, mode, content)| (name.to_owned(), mode, content.to_owned())));
    }

    #[test]
    fn the_manifest_names_each_archive_and_what_it_must_have() {
        let built = [Built::of(&AMD64, b"one"), Built::of(&ARM64, b"other")];
        let manifest = manifest("https://example.com/v1", &built);
        let platforms = manifest["spec"]["platforms"].as_array().unwrap();
        let of = |platform: &Value| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (
                text(&platform["selector"]["matchLabels"]["arch"]),
                text(&platform["uri"]),
                text(&platform["sha256"]),
            )
        };
        let uri = |arch| format!("https://example.com/v1/kubectl-pitstop-{VERSION}-linux-{arch}.tar.gz");
        // As sha256sum says.
        let sums = [
            "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
            "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa",
        ];
        assert_eq!(of(&platforms[0]), ("amd64".to_owned(), uri("amd64"), sums[0].to_owned()));
        assert_eq!(of(&platforms[1]), ("arm64".to_owned(), uri("arm64"), sums[1].to_owned()));
        // Krew's name has no `kubectl-`, but the program's name has.
        assert_eq!((&manifest["metadata"]["name"], &platforms[0]["bin"]), (&json!("pitstop"), &json!(NAME)));
    }

    #[test]
    fn a_large_program_is_refused() {
        require_small(AT_MOST).unwrap();
        let error = require_small(AT_MOST + 1).unwrap_err().to_string();
        assert_eq!(error, "kubectl-pitstop has 12000001 bytes; it may have 12000000");
    }

    #[test]
    fn only_a_folder_on_the_web_is_taken() {
        assert_eq!(web_folder("https://example.com/v1/").unwrap(), "https://example.com/v1");
        for wrong in ["http://example.com", "https://", "dist"] {
            web_folder(wrong).unwrap_err();
        }
    }
}
