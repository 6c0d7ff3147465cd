//! `cargo xtask release`: writes the files of a release into one folder under `target/dist`. Nothing is uploaded.
//!
//! The same commit and options give the same bytes, except for a signature. The version is the workspace's.

mod bill;
mod chart;
mod schemas;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::image::{self, AMD64, ARM64, Built, sha256};
use crate::progress::{Step, note};
use crate::sh::Cmd;
use crate::workspace::{self, Files, VERSION, shown};
use crate::{debian, helm, plugin};

/// The sums of all other files, as `sha256sum --check` reads them.
const SUMS: &str = "SHA256SUMS";
/// Namespace of the signature, which `ssh-keygen -Y verify -n` names: a signature for another purpose does not pass.
const NAMESPACE: &str = "pitstop-release";
const CHANGELOG: &str = "CHANGELOG.md";

/// Files `install-*.yaml`, each with its values.
const INSTALLATIONS: [(&str, &[&str]); 3] = [
    ("install-1.36.yaml", &["gate.mode=policy"]),
    ("install-1.34.yaml", &["gate.mode=webhook"]),
    ("install-1.34-resize-cri.yaml", &["gate.mode=webhook", "features.resizeCri=true"]),
];

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Registry and path where the images will be pushed, such as registry.example.com/pitstop. Chart and manifests name it.
    #[arg(long, value_parser = image::registry)]
    registry: String,
    /// The folder on the web in which the files will lie: `https://…`. With it, krew's manifest is written, too.
    #[arg(long, value_parser = plugin::web_folder)]
    url: Option<String>,
    /// Sign the sums with this private key of SSH.
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    /// For a try: take a version that CHANGELOG.md does not have.
    #[arg(long)]
    draft: bool,
}

/// The command. The last line is the folder.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let changes = changes(root, args.draft)?;
    if let Some(key) = &args.sign {
        debian::ensure(&["openssh-client"], "the signature")?;
        if !key.is_file() {
            bail!("--sign: there is no file {}", key.display());
        }
    }
    let dist = root.join("target/dist");
    fs::create_dir_all(&dist).with_context(|| format!("cannot make {}", dist.display()))?;
    let scratch = tempfile::tempdir_in(&dist).context("no folder for the files")?;
    let sources = scratch.path().join("sources");
    workspace::sources(root, "HEAD", &sources)?;
    let mut files = Files::from([("CHANGES.md".to_owned(), changes.into_bytes())]);
    files.extend(plugin::files(root, args.url.as_deref())?);
    let images = image::build_for(root, &[&AMD64, &ARM64], false)?;
    for built in &images {
        let image = fs::read(&built.path).with_context(|| format!("cannot read {}", built.path.display()))?;
        files.insert(format!("pitstop-{}-{VERSION}.tar", built.name()), image);
    }
    files.extend(installations(root, &sources, &args.registry, &images)?);
    files.insert(format!("pitstop-{VERSION}-schemas.tar.gz"), schemas::archive()?);
    files.extend(bill::of_materials(root, &sources)?);
    let sums = sums(&files);
    files.insert(SUMS.to_owned(), sums.into_bytes());

    let folder = dist.join(format!("pitstop-{VERSION}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    workspace::write(&folder, &files)?;
    if let Some(key) = &args.sign {
        sign(&folder, key)?;
    }
    for built in &images {
        note(format!("push as {}", pushed(&args.registry, built)));
    }
    println!("{}", shown(root, &folder));
    Ok(())
}

/// Changes of this version, from the changelog. Fails if the checkout has uncommitted changes.
fn changes(root: &Path, draft: bool) -> Result<String> {
    let text = fs::read_to_string(root.join(CHANGELOG)).context("cannot read CHANGELOG.md")?;
    let changed = Cmd::new("git").args(["status", "--porcelain"]).dir(root).read()?;
    if !changed.trim().is_empty() {
        bail!("the checkout has changes that are not committed:\n{changed}commit them first");
    }
    if draft {
        let found = section(&text, VERSION).or_else(|| section(&text, "Unreleased"));
        return found.with_context(|| format!("{CHANGELOG} has neither {VERSION} nor Unreleased"));
    }
    section(&text, VERSION).with_context(|| {
        format!(
            "{CHANGELOG} has no section `## {VERSION}`: name the changes of this version, or try with --draft"
        )
    })
}

/// The section of a version, heading included: `## 1.2.3`, `## [1.2.3]`, with a date or without.
fn section(changelog: &str, version: &str) -> Option<String> {
    let is_heading = |line: &&str| line.starts_with("## ");
    let mut lines = changelog.lines().skip_while(|line| {
        let named = line.strip_prefix("## ").and_then(|rest| rest.split_whitespace().next());
        named.is_none_or(|name| name.trim_matches(['[', ']']) != version)
    });
    let heading = lines.next()?;
    let rest: Vec<&str> = lines.take_while(|line| !is_heading(line)).collect();
    Some(format!("{heading}\n{}\n", rest.join("\n").trim_end()))
}

/// The chart of these sources, and the manifests that `helm template` makes of it. Leaves the archive in `sources`.
fn installations(root: &Path, sources: &Path, registry: &str, images: &[Built]) -> Result<Files> {
    let step = Step::begin("rendering the chart");
    helm::build(root)?;
    let name = format!("pitstop-{VERSION}.tgz");
    let archive = chart::archive(sources, registry, images)?;
    let path = sources.join(&name);
    fs::write(&path, &archive).with_context(|| format!("cannot write {}", path.display()))?;
    helm::command(root).args(["lint", "--strict"]).arg(&path).read()?;
    let mut files = Files::from([(name, archive)]);
    for (name, values) in INSTALLATIONS {
        let rendered = helm::command(root)
            .args(["template", "pitstop"])
            .arg(&path)
            .args(["--namespace", "pitstop-system", "--set", "namespace.create=true"])
            .args(values.iter().flat_map(|value| ["--set", value]))
            .read()?;
        files.insert(name.to_owned(), rendered.into_bytes());
    }
    step.done();
    Ok(files)
}

/// The name of an image in its registry. The tag is for people; the digest decides.
fn pushed(registry: &str, image: &Built) -> String {
    format!("{registry}/{}:{} ({})", image.name(), image.tag, image.digest)
}

fn sums(files: &Files) -> String {
    files.iter().fold(String::new(), |mut text, (name, content)| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}  {name}", sha256(content));
        text
    })
}

/// Writes `SHA256SUMS.sig`.
fn sign(folder: &Path, key: &Path) -> Result<()> {
    Cmd::new("ssh-keygen")
        .args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"])
        .arg(key)
        .arg(folder.join(SUMS))
        .read()
        .map(drop)
        .context("the sums could not be signed")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: &str =
        "# Changelog\n\n## Unreleased\n\n## [0.2.0] - 2026-12-01\n\n- Second.\n\n## 0.1.0\n\n- First.\n";

    #[test]
    fn the_changes_of_a_version_are_its_section() {
        assert_eq!(section(CHANGES, "0.2.0").unwrap(), "## [0.2.0] - 2026-12-01\n\n- Second.\n");
        assert_eq!(section(CHANGES, "0.1.0").unwrap(), "## 0.1.0\n\n- First.\n");
        assert_eq!(section(CHANGES, "Unreleased").unwrap(), "## Unreleased\n\n");
        assert_eq!(section(CHANGES, "0.2"), None);
    }

    /// A checkout with this changelog, committed.
    fn checkout(changelog: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(CHANGELOG), changelog).unwrap();
        for args in [
            &["init", "--quiet"][..],
            &["add", "."],
            &["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "a"],
        ] {
            Cmd::new("git").args(args).dir(root.path()).read().unwrap();
        }
        root
    }

    #[test]
    fn a_version_without_changes_is_not_released() {
        let root = checkout("## Unreleased\n\n- Something.\n");
        let error = changes(root.path(), false).unwrap_err().to_string();
        let expected = format!(
            "CHANGELOG.md has no section `## {VERSION}`: name the changes of this version, or try with --draft"
        );
        assert_eq!(error, expected);
        assert_eq!(changes(root.path(), true).unwrap(), "## Unreleased\n\n- Something.\n");
    }

    #[test]
    fn what_no_commit_has_is_not_released() {
        let root = checkout(&format!("## {VERSION}\n\n- All.\n"));
        assert_eq!(changes(root.path(), false).unwrap(), format!("## {VERSION}\n\n- All.\n"));
        fs::write(root.path().join("new"), "").unwrap();
        let error = changes(root.path(), false).unwrap_err().to_string();
        assert_eq!(error, "the checkout has changes that are not committed:\n?? new\ncommit them first");
        changes(root.path(), true).unwrap_err();
    }

    #[test]
    fn the_sums_are_as_sha256sum_checks_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::from([("a".to_owned(), b"one".to_vec()), ("b".to_owned(), b"other".to_vec())]);
        files.insert(SUMS.to_owned(), sums(&files).into_bytes());
        let folder = folder.path().join("pitstop");
        workspace::write(&folder, &files).unwrap();
        let check = || Cmd::new("sha256sum").args(["--check", "--strict", SUMS]).dir(&folder).read();
        assert_eq!(check().unwrap(), "a: OK\nb: OK\n");
        fs::write(folder.join("a"), "another").unwrap();
        check().unwrap_err();
    }
}
