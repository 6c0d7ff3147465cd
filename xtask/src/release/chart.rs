//! The chart as an archive: `deploy/chart` with the images of the release as its defaults.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::image::{Built, Entry, compressed};

const CHART: &str = "deploy/chart";
/// The folder in the archive, which has the chart's name.
const NAME: &str = "pitstop";
const VALUES: &str = "values.yaml";

/// The archive for `helm install`. Unlike that of `helm package`, it has nothing of the clock or of the machine.
pub(super) fn archive(root: &Path, registry: &str, images: &[Built]) -> Result<Vec<u8>> {
    let mut files = Vec::new();
    collect(&root.join(CHART), NAME, &mut files)?;
    for (path, content) in &mut files {
        if path == &format!("{NAME}/{VALUES}") {
            let text = std::str::from_utf8(content).context("values.yaml is no text")?;
            *content = set(text, &defaults(registry, images))?.into_bytes();
        }
    }
    compressed(files.iter().map(|(path, content)| Entry::file(path, content)))
}

/// Collects the files of a folder, sorted by name. Follows links.
fn collect(folder: &Path, name: &str, files: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let cannot = || format!("cannot read {}", folder.display());
    let entries = fs::read_dir(folder).with_context(cannot)?;
    let mut paths =
        entries.map(|entry| Ok(entry.with_context(cannot)?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let own = path.file_name().and_then(|own| own.to_str()).with_context(cannot)?;
        let name = format!("{name}/{own}");
        if path.is_dir() {
            collect(&path, &name, files)?;
        } else {
            let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.push((name, content));
        }
    }
    Ok(())
}

/// Values of the release by their paths.
fn defaults(registry: &str, images: &[Built]) -> Vec<(String, String)> {
    let quoted = |text: &str| format!("\"{text}\"");
    let image = |built: &Built| {
        let path = format!("image.{}", built.name());
        [(format!("{path}.tag"), quoted(&built.tag)), (format!("{path}.digest"), quoted(&built.digest))]
    };
    let both = [
        ("image.registry".to_owned(), quoted(registry)),
        ("image.architectures".to_owned(), "[amd64, arm64]".to_owned()),
    ];
    both.into_iter().chain(images.iter().flat_map(image)).collect()
}

/// The text with new values and the same comments. Fails unless each value has exactly one line.
fn set(text: &str, values: &[(String, String)]) -> Result<String> {
    let mut above: Vec<(usize, &str)> = Vec::new();
    let mut done = Vec::new();
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            let content = line.trim_start();
            let Some((key, _)) = content.split_once(':').filter(|_| !content.starts_with('#')) else {
                return line.to_owned();
            };
            let indent = line.len() - content.len();
            above.retain(|(other, _)| *other < indent);
            above.push((indent, key));
            let path = above.iter().map(|(_, key)| *key).collect::<Vec<_>>().join(".");
            let Some((path, value)) = values.iter().find(|(wanted, _)| *wanted == path) else {
                return line.to_owned();
            };
            done.push(path);
            format!("{}{key}: {value}", " ".repeat(indent))
        })
        .collect();
    match values.iter().find(|(path, _)| done.iter().filter(|one| **one == path).count() != 1) {
        Some((path, _)) => bail!("{CHART}/{VALUES} does not have {path} once"),
        None => Ok(lines.join("\n") + "\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::path::PathBuf;

    use serde_json::{Value, json};

    use super::*;
    use crate::workspace;

    const DIGEST: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn built() -> [Built; 2] {
        ["pitstop.dev/controller", "pitstop.dev/daemon"].map(|repository| Built {
            path: PathBuf::new(),
            repository,
            tag: "0.1.0-ba7816bf8f01".to_owned(),
            digest: DIGEST.to_owned(),
        })
    }

    fn content(archive: &[u8], path: &str) -> String {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
        let mut entry = archive
            .entries()
            .unwrap()
            .map(Result::unwrap)
            .find(|one| one.path().unwrap() == Path::new(path))
            .unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn the_defaults_are_the_images_of_the_release_and_all_else_stays() {
        let root = workspace::root().unwrap();
        let bytes = archive(&root, "registry.example.com/pitstop", &built()).unwrap();
        let was = fs::read_to_string(root.join(CHART).join(VALUES)).unwrap();
        let text = content(&bytes, "pitstop/values.yaml");
        assert_eq!(text.lines().count(), was.lines().count(), "with its comments");
        let mut expected: Value = serde_saphyr::from_str(&was).unwrap();
        expected["image"]["registry"] = json!("registry.example.com/pitstop");
        expected["image"]["architectures"] = json!(["amd64", "arm64"]);
        for name in ["controller", "daemon"] {
            expected["image"][name] =
                json!({ "repository": name, "tag": "0.1.0-ba7816bf8f01", "digest": DIGEST });
        }
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), expected);
    }

    #[test]
    fn the_archive_has_what_the_links_lead_to_and_is_the_same_every_time() {
        let root = workspace::root().unwrap();
        let archive = || archive(&root, "registry.example.com", &built()).unwrap();
        let namespace = fs::read_to_string(root.join("deploy/base/namespace.yaml")).unwrap();
        assert_eq!(content(&archive(), "pitstop/files/base/namespace.yaml"), namespace);
        assert_eq!(archive(), archive());
    }

    #[test]
    fn a_value_that_is_not_there_is_named() {
        let set = |path: &str| set("image:\n  registry: \"\"\n", &[(path.to_owned(), "x".to_owned())]);
        assert_eq!(set("image.registry").unwrap(), "image:\n  registry: x\n");
        let error = set("registry").unwrap_err().to_string();
        assert_eq!(error, "deploy/chart/values.yaml does not have registry once");
    }
}
