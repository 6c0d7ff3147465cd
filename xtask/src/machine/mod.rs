//! Virtual machines with Debian's kernel, which has only cgroup v2.
//!
//! A machine is fully emulated, so that it is the same without KVM, and if KVM does not work because the host is
//! itself virtual. The kernel is not installed: its package is unpacked under `target`.

pub(crate) mod cpio;
pub(crate) mod shared;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::debian;
use crate::progress::Step;
use crate::sh::{Cmd, is_installed};

/// Tools of a machine's first process.
pub(crate) const BUSYBOX: &str = "/bin/busybox";
/// Metapackage of the kernel.
const KERNEL: &str = "linux-image-cloud-amd64";
/// Kernel arguments. Besides the program's lines, only errors that end the kernel are printed.
pub(crate) const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 loglevel=1";

/// An unpacked kernel.
pub(crate) struct Kernel {
    /// Image that qemu starts.
    pub(crate) image: PathBuf,
    /// Folder of its modules, named after the kernel's release.
    pub(crate) modules: PathBuf,
}

/// The folder of the machines' files.
pub(crate) fn folder(root: &Path) -> PathBuf {
    root.join("target/cgroup2")
}

/// Makes sure that an emulator and a kernel are available.
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
        // Writes which modules each module needs.
        Cmd::new(BUSYBOX).args(["depmod", "-b"]).arg(&files).arg(release).run_quiet()?;
        fs::rename(&files, &unpacked).with_context(|| format!("cannot write {}", unpacked.display()))?;
        step.done();
    }
    Ok(Kernel {
        image: only(&unpacked.join("boot"), "vmlinuz-")?,
        modules: only(&unpacked.join("lib/modules"), "")?,
    })
}

/// The entry of a folder whose name begins with `prefix`.
fn only(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut entries = entries.filter_map(Result::ok);
    let found = entries.find(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    Ok(found.with_context(|| format!("nothing like {prefix}... in {}", folder.display()))?.path())
}
