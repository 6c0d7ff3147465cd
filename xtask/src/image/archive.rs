//! Writes an image as one archive that every loader takes: an OCI image layout that also carries the `manifest.json`
//! of `docker save`.
//!
//! An image for several platforms is an OCI image index under one name, from which a node takes the matching image.
//! Its archive has no `manifest.json`, which has no platforms: a loader that reads only this file would take a
//! program for the wrong processor.
//!
//! The same input gives the same bytes: the archive has a fixed order, and nothing of the clock, the machine or the
//! user.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, Result, bail};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
// Not compressed: another compressor would give other bytes, and static binaries shrink to a third at best.
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";

/// Contents of an image: files on an empty root for each platform, and the program to start.
pub(crate) struct ImageSpec<'a> {
    /// Name without tag, such as `pitstop.dev/daemon`.
    pub(crate) repository: &'a str,
    /// Start of the tag, such as `0.1.0`.
    pub(crate) version: &'a str,
    /// User and group, as `65532:65532`.
    pub(crate) user: &'a str,
    /// Path of the program to run, in the image.
    pub(crate) entrypoint: &'a str,
    /// Keys of the OCI's `org.opencontainers.image` family.
    pub(crate) labels: BTreeMap<&'a str, &'a str>,
    /// At least one platform, each for another processor.
    pub(crate) platforms: Vec<Platform<'a>>,
}

/// Contents of an image for one processor.
pub(crate) struct Platform<'a> {
    /// Processor, as Go names it.
    pub(crate) architecture: &'a str,
    /// Executables by their path from the root, without the leading slash.
    pub(crate) executables: BTreeMap<&'a str, &'a [u8]>,
}

/// An image in one file.
pub(crate) struct Archive {
    /// The file.
    pub(crate) bytes: Vec<u8>,
    /// The tag: the version, and [`DIGITS`] digits of the digest of the image's manifest or index, so that changed
    /// content has a new name. With the same name, nodes would keep the old image, and `kubectl apply` would roll
    /// nothing.
    pub(crate) tag: String,
    /// The whole digest: `sha256:…`.
    pub(crate) digest: String,
}

/// Digits of the digest that a tag ends with.
const DIGITS: usize = 12;

/// The archive of an image. Fails without a platform, or if a file does not fit into a tar file.
pub(crate) fn archive(spec: &ImageSpec<'_>) -> Result<Archive> {
    let images =
        spec.platforms.iter().map(|platform| Image::of(spec, platform)).collect::<Result<Vec<_>>>()?;
    let several = index(&images)?;
    let (top, mut named) = match (&several, images.as_slice()) {
        (Some(index), _) => (index, index.descriptor(INDEX_TYPE)),
        (None, [image]) => (&image.manifest, image.descriptor()),
        (None, _) => bail!("{} has no platform", spec.repository),
    };
    let tag = format!("{}-{}", spec.version, top.hex.get(..DIGITS).context("a digest is longer")?);
    let reference = format!("{}:{tag}", spec.repository);
    put(&mut named, "annotations", names(&reference, &tag));
    let layout = text(&json!({ "imageLayoutVersion": "1.0.0" }))?;
    let index = text(&json!({ "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [named] }))?;
    let docker = match images.as_slice() {
        [image] => Some(text(&image.docker(&reference))?),
        _ => None,
    };

    let blobs =
        images.iter().flat_map(|image| [&image.layer, &image.config, &image.manifest]).chain(&several);
    let blobs: BTreeMap<String, &Blob> = blobs.map(|blob| (blob.path(), blob)).collect();
    let entries = [Entry::folder("blobs/"), Entry::folder("blobs/sha256/")]
        .into_iter()
        .chain(blobs.iter().map(|(path, blob)| Entry::file(path, &blob.content)))
        .chain([Entry::file("index.json", &index)])
        .chain(docker.iter().map(|docker| Entry::file("manifest.json", docker)))
        .chain([Entry::file("oci-layout", &layout)]);
    Ok(Archive { bytes: tar(entries)?, tag, digest: top.digest() })
}

/// The index of an image for several platforms. None for a single platform.
fn index(images: &[Image<'_>]) -> Result<Option<Blob>> {
    if images.len() < 2 {
        return Ok(None);
    }
    let manifests: Vec<Value> = images.iter().map(Image::descriptor).collect();
    Blob::json(&json!({ "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests })).map(Some)
}

/// The annotations that name an image in an archive. containerd takes the whole name from its own annotation. Other
/// loaders append the OCI's annotation to their own name, so it holds only the tag.
fn names(reference: &str, tag: &str) -> Value {
    json!({ "io.containerd.image.name": reference, "org.opencontainers.image.ref.name": tag })
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}

/// An image for one platform.
struct Image<'a> {
    architecture: &'a str,
    layer: Blob,
    config: Blob,
    manifest: Blob,
}

impl<'a> Image<'a> {
    fn of(spec: &ImageSpec<'_>, platform: &Platform<'a>) -> Result<Self> {
        let executables = platform.executables.iter().map(|(path, content)| Entry::executable(path, content));
        let layer = Blob::new(tar(executables)?);
        let config = Blob::json(&json!({
            "architecture": platform.architecture,
            "os": "linux",
            "config": {
                "User": spec.user,
                "Entrypoint": [spec.entrypoint],
                "WorkingDir": "/",
                "Labels": spec.labels,
            },
            "rootfs": { "type": "layers", "diff_ids": [layer.digest()] },
        }))?;
        let manifest = Blob::json(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": config.descriptor(CONFIG_TYPE),
            "layers": [layer.descriptor(LAYER_TYPE)],
        }))?;
        Ok(Self { architecture: platform.architecture, layer, config, manifest })
    }

    /// Its entry in an index.
    fn descriptor(&self) -> Value {
        let mut descriptor = self.manifest.descriptor(MANIFEST_TYPE);
        put(&mut descriptor, "platform", json!({ "architecture": self.architecture, "os": "linux" }));
        descriptor
    }

    /// Its `manifest.json` of `docker save`.
    fn docker(&self, reference: &str) -> Value {
        json!([{ "Config": self.config.path(), "RepoTags": [reference], "Layers": [self.layer.path()] }])
    }
}

/// The SHA-256 of bytes, in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    let digits = digits.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// Content with its digest.
struct Blob {
    content: Vec<u8>,
    hex: String,
}

impl Blob {
    fn new(content: Vec<u8>) -> Self {
        let hex = sha256(&content);
        Self { content, hex }
    }

    fn json(value: &Value) -> Result<Self> {
        text(value).map(Self::new)
    }

    fn digest(&self) -> String {
        format!("sha256:{}", self.hex)
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.hex)
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest(), "size": self.content.len() })
    }
}

fn text(value: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec(value).context("JSON of an image cannot be written")
}

/// One entry of a tar file.
pub(crate) struct Entry<'a> {
    path: &'a str,
    kind: tar::EntryType,
    mode: u32,
    content: &'a [u8],
}

impl<'a> Entry<'a> {
    pub(crate) fn file(path: &'a str, content: &'a [u8]) -> Self {
        Self { path, kind: tar::EntryType::Regular, mode: 0o644, content }
    }

    pub(crate) fn executable(path: &'a str, content: &'a [u8]) -> Self {
        Self { mode: 0o755, ..Self::file(path, content) }
    }

    fn folder(path: &'a str) -> Self {
        Self { path, kind: tar::EntryType::Directory, mode: 0o755, content: &[] }
    }
}

/// A tar file whose entries belong to root and have time 0.
fn tar<'a>(entries: impl Iterator<Item = Entry<'a>>) -> Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(u64::try_from(entry.content.len()).context("a file too large for a tar file")?);
        builder
            .append_data(&mut header, entry.path, entry.content)
            .with_context(|| format!("{} does not fit into a tar file", entry.path))?;
    }
    builder.into_inner().context("a tar file cannot be ended")
}

/// Such a tar file, compressed: the same entries give the same bytes.
pub(crate) fn compressed<'a>(entries: impl Iterator<Item = Entry<'a>>) -> Result<Vec<u8>> {
    let mut file = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    file.write_all(&tar(entries)?).context("a tar file cannot be compressed")?;
    file.finish().context("a tar file cannot be compressed")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn archive_for(programs: &[(&'static str, &'static [u8])]) -> Result<Archive> {
        let platform = |(architecture, program): &(&'static str, &'static [u8])| Platform {
            architecture,
            executables: BTreeMap::from([("pitstop-daemon", *program)]),
        };
        archive(&ImageSpec {
            repository: "pitstop.dev/daemon",
            version: "0.1.0",
            user: "65532:0",
            entrypoint: "/pitstop-daemon",
            labels: BTreeMap::from([("org.opencontainers.image.version", "0.1.0")]),
            platforms: programs.iter().map(platform).collect(),
        })
    }

    fn archive_of(program: &'static [u8]) -> Archive {
        archive_for(&[("amd64", program)]).unwrap()
    }

    fn for_both() -> Archive {
        archive_for(&[("amd64", b"program"), ("arm64", b"other")]).unwrap()
    }

    fn sample() -> Vec<u8> {
        archive_of(b"program").bytes
    }

    fn tag() -> String {
        archive_of(b"program").tag
    }

    /// Path, mode and content of every entry. Checks the fixed owner and time.
    fn entries(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(bytes);
        let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(
                (header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()),
                (0, 0, 0),
                "a fixed owner and time"
            );
            let (path, mode) = (entry.path().unwrap().display().to_string(), header.mode().unwrap());
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (path, mode, content)
        };
        archive.entries().unwrap().map(read).collect()
    }

    fn file(entries: &[(String, u32, Vec<u8>)], path: &str) -> Vec<u8> {
        entries.iter().find(|(found, ..)| found == path).unwrap_or_else(|| panic!("no {path}")).2.clone()
    }

    fn json_of(entries: &[(String, u32, Vec<u8>)], path: &str) -> Value {
        serde_json::from_slice(&file(entries, path)).unwrap()
    }

    /// The content that a descriptor names. Checks its size.
    fn described(entries: &[(String, u32, Vec<u8>)], descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap();
        let content = file(entries, &digest.replace("sha256:", "blobs/sha256/"));
        assert_eq!(descriptor["size"].as_u64().unwrap(), content.len() as u64);
        content
    }

    #[test]
    fn the_same_input_gives_the_same_bytes() {
        assert_eq!(sample(), sample());
    }

    #[test]
    fn the_tag_is_the_version_and_the_content() {
        let manifest = &json_of(&entries(&sample()), "index.json")["manifests"][0]["digest"];
        let digits = &manifest.as_str().unwrap().strip_prefix("sha256:").unwrap()[..12];
        assert_eq!(tag(), format!("0.1.0-{digits}"), "as the image's ID in a Pod's status begins");
        assert_ne!(archive_of(b"program of a later build").tag, tag());
    }

    #[test]
    fn every_blob_is_named_by_its_digest() {
        let entries = entries(&sample());
        let blobs: Vec<_> = entries.iter().filter(|(path, ..)| path.len() > "blobs/sha256/".len()).collect();
        assert_eq!(blobs.len(), 3, "layer, config and manifest");
        for (path, _, content) in blobs {
            assert_eq!(*path, Blob::new(content.clone()).path());
        }
    }

    #[test]
    fn a_digest_is_the_sha256_that_everyone_knows() {
        let digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Blob::new(b"abc".to_vec()).digest(), digest);
    }

    #[test]
    fn the_index_leads_to_the_program() {
        let entries = entries(&sample());
        assert_eq!(json_of(&entries, "oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }));
        let index = json_of(&entries, "index.json");
        let image = &index["manifests"][0];
        assert_eq!(image["annotations"]["io.containerd.image.name"], format!("pitstop.dev/daemon:{}", tag()));
        assert_eq!(image["annotations"]["org.opencontainers.image.ref.name"], tag());
        let manifest: Value = serde_json::from_slice(&described(&entries, image)).unwrap();
        let config: Value = serde_json::from_slice(&described(&entries, &manifest["config"])).unwrap();
        assert_eq!(config["config"]["User"], "65532:0");
        assert_eq!(config["config"]["Entrypoint"], json!(["/pitstop-daemon"]));
        assert_eq!((&config["os"], &config["architecture"]), (&json!("linux"), &json!("amd64")));
        let layer = &manifest["layers"][0];
        assert_eq!(config["rootfs"]["diff_ids"][0], layer["digest"], "the layer is not compressed");
        let files = self::entries(&described(&entries, layer));
        assert_eq!(files, [("pitstop-daemon".to_owned(), 0o755, b"program".to_vec())]);
    }

    #[test]
    fn docker_finds_the_same_config_and_layer() {
        let entries = entries(&sample());
        let docker = json_of(&entries, "manifest.json");
        assert_eq!(docker[0]["RepoTags"], json!([format!("pitstop.dev/daemon:{}", tag())]));
        let index = json_of(&entries, "index.json");
        let manifest: Value = serde_json::from_slice(&described(&entries, &index["manifests"][0])).unwrap();
        let path =
            |descriptor: &Value| descriptor["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
        assert_eq!(docker[0]["Config"].as_str().unwrap(), path(&manifest["config"]));
        assert_eq!(docker[0]["Layers"][0].as_str().unwrap(), path(&manifest["layers"][0]));
    }

    #[test]
    fn several_platforms_are_one_image_under_one_name() {
        let archive = for_both();
        let entries = entries(&archive.bytes);
        let named = json_of(&entries, "index.json")["manifests"].clone();
        assert_eq!(named.as_array().unwrap().len(), 1, "loaders give a name to one thing");
        assert_eq!(
            named[0]["annotations"]["io.containerd.image.name"],
            format!("pitstop.dev/daemon:{}", archive.tag)
        );
        assert_eq!(named[0]["mediaType"], INDEX_TYPE);
        let digits = &named[0]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap()[..12];
        assert_eq!(archive.tag, format!("0.1.0-{digits}"));

        let index: Value = serde_json::from_slice(&described(&entries, &named[0])).unwrap();
        let expected = [("amd64", &b"program"[..]), ("arm64", b"other")];
        assert_eq!(index["manifests"].as_array().unwrap().len(), expected.len());
        for (image, (architecture, program)) in index["manifests"].as_array().unwrap().iter().zip(expected) {
            assert_eq!(image["platform"], json!({ "architecture": architecture, "os": "linux" }));
            let manifest: Value = serde_json::from_slice(&described(&entries, image)).unwrap();
            let config: Value = serde_json::from_slice(&described(&entries, &manifest["config"])).unwrap();
            assert_eq!(config["architecture"], architecture);
            let layer = self::entries(&described(&entries, &manifest["layers"][0]));
            assert_eq!(layer, [("pitstop-daemon".to_owned(), 0o755, program.to_vec())]);
        }
        assert!(!entries.iter().any(|(path, ..)| path == "manifest.json"), "it would name one processor");
    }

    #[test]
    fn a_platform_has_the_same_image_alone_and_beside_another() {
        let alone = entries(&sample());
        let both = entries(&for_both().bytes);
        let blobs =
            alone.iter().filter(|(path, ..)| path.len() > "blobs/sha256/".len() && path.starts_with("blobs"));
        for blob in blobs {
            assert!(both.contains(blob), "{}", blob.0);
        }
        assert!(archive_for(&[]).is_err());
    }
}
