//! Images for the tests: one layer with the machine's static busybox, as an archive in the format of
//! `docker save`, which `ctr images import` reads. No registry and no network are involved.

use std::{fmt::Write as _, fs, io, path::Path};

use sha2::{Digest, Sha256};

/// What the containers run.
pub(crate) const APP_IMAGE: &str = "pitstop.test/busybox:1";
/// What containerd runs to hold a Pod's namespaces.
pub(crate) const PAUSE_IMAGE: &str = "pitstop.test/pause:1";

/// Path of busybox in Debian's package busybox-static.
pub(crate) const BUSYBOX: &str = "/bin/busybox";

/// The pause program: ends at SIGTERM, waits otherwise.
const PAUSE: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done";

/// Writes an archive with both images.
pub(crate) fn write_archive(path: &Path) -> io::Result<()> {
    let layer = layer()?;
    let pause = config(&layer, r#""Entrypoint":["/bin/sh","-c",PAUSE]"#);
    let app = config(&layer, r#""Cmd":["/bin/sh"]"#);
    let manifest = format!(
        r#"[{{"Config":"pause.json","RepoTags":["{PAUSE_IMAGE}"],"Layers":["layer.tar"]}},
            {{"Config":"app.json","RepoTags":["{APP_IMAGE}"],"Layers":["layer.tar"]}}]"#
    );
    let mut archive = tar::Builder::new(fs::File::create(path)?);
    add(&mut archive, "layer.tar", 0o644, &layer)?;
    add(&mut archive, "pause.json", 0o644, pause.as_bytes())?;
    add(&mut archive, "app.json", 0o644, app.as_bytes())?;
    add(&mut archive, "manifest.json", 0o644, manifest.as_bytes())?;
    archive.into_inner()?.sync_all()
}

/// The only layer: busybox under the names of the programs that the tests use.
pub(super) fn layer() -> io::Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    for folder in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        layer.append_data(&mut header, folder, io::empty())?;
    }
    add(&mut layer, "bin/busybox", 0o755, &fs::read(BUSYBOX)?)?;
    for name in ["cat", "dd", "sh", "sleep"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        layer.append_link(&mut header, format!("bin/{name}"), "busybox")?;
    }
    layer.into_inner()
}

fn add<W: io::Write>(archive: &mut tar::Builder<W>, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(data.len() as u64);
    archive.append_data(&mut header, name, data)
}

/// An image's configuration; `PAUSE` in `run` stands for that program.
pub(super) fn config(layer: &[u8], run: &str) -> String {
    let run = run.replace("PAUSE", &format!("\"{PAUSE}\""));
    format!(
        r#"{{"architecture":"{}","os":"linux","config":{{{run}}},"rootfs":{{"type":"layers","diff_ids":["sha256:{}"]}}}}"#,
        if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        sha256(layer),
    )
}

pub(super) fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
