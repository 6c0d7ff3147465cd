//! Virtual machines whose kernel, Debian's, has cgroup v2 alone.
//!
//! All of a machine is emulated, so that it is the same where there is no KVM, or one that does not work because the machine
//! is a virtual one itself. The kernel is not installed: its package is unpacked under `target`.

pub(crate) mod cpio;
pub(crate) mod shared;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::debian;
use crate::progress::Step;
use crate::sh::{Cmd, is_installed};

/// The first process's tools there.
pub(crate) const BUSYBOX: &str = "/bin/busybox";
/// The package that stands for the kernel.
const KERNEL: &str = "linux-image-cloud-amd64";
/// Only what ends the kernel is printed beside the program's lines.
pub(crate) const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 loglevel=1";

/// A kernel that was unpacked.
pub(crate) struct Kernel {
    /// What qemu starts.
    pub(crate) image: PathBuf,
    /// The folder of its modules; it is called as the kernel calls its release.
    pub(crate) modules: PathBuf,
}

/// The folder of the machines' files.
pub(crate) fn folder(root: &Path) -> PathBuf {
    root.join("target/cgroup2")
}

/// Makes sure that there are an emulator and a kernel.
pub(crate) fn require(root: &Path) -> Result<()> {
    let purpose = "a machine with cgroup v2";
    debian::ensure(&["busybox-static", "e2fsprogs", "qemu-system-x86"], purpose)?;
    if let Some(missing) =
        ["apt-get", "dpkg-deb", "qemu-system-x86_64"].iter().find(|tool| !is_installed(tool))
    {
        bail!("{purpose} needs Debian's packages, and {missing} is not installed");
    }
    kernel(root).map(drop)
}

/// The kernel; its package is fetched once.
pub(crate) fn kernel(root: &Path) -> Result<Kernel> {
    let folder = folder(root);
    let unpacked = folder.join("kernel");
    if !unpacked.is_dir() {
        let step = Step::begin("fetching a kernel");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let scratch = tempfile::tempdir_in(&folder).context("no folder to unpack in")?;
        let (package, files) = (scratch.path().join("package"), scratch.path().join("files"));
        fs::create_dir(&package).with_context(|| format!("cannot make {}", package.display()))?;
        let package = debian::download_of(KERNEL, "linux-image-", &package)?;
        Cmd::new("dpkg-deb").arg("-x").arg(&package).arg(&files).run_quiet()?;
        let modules = only(&files.join("lib/modules"), "")?;
        let release = modules.file_name().context("modules of no release")?;
        // Which module needs which others.
        Cmd::new(BUSYBOX).args(["depmod", "-b"]).arg(&files).arg(release).run_quiet()?;
        fs::rename(&files, &unpacked).with_context(|| format!("cannot write {}", unpacked.display()))?;
        step.done();
    }
    Ok(Kernel {
        image: only(&unpacked.join("boot"), "vmlinuz-")?,
        modules: only(&unpacked.join("lib/modules"), "")?,
    })
}

/// The one entry of a folder that begins so.
fn only(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut entries = entries.filter_map(Result::ok);
    let found = entries.find(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    Ok(found.with_context(|| format!("nothing like {prefix}... in {}", folder.display()))?.path())
}
