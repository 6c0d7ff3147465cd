//! A virtual machine that reads the host's files. Its own writes are lost when it ends. The host's programs run
//! there, with cgroup v2.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::{BUSYBOX, KERNEL_ARGUMENTS, cpio, folder, kernel};
use crate::sh::Cmd;

/// Program that shares files with a machine; part of Debian's qemu.
const VIRTIOFSD: &str = "/usr/lib/qemu/virtiofsd";
/// Kernel modules for access to the files.
const MODULES: [&str; 3] = ["virtio_pci", "virtiofs", "overlay"];
/// Memory, which also holds files written outside of `/state`.
const MEMORY: &str = "5G";
/// Bytes of the disk at [`STATE`].
const DISK: u64 = 12 << 30;
/// Folder on a disk of its own: containerd's overlays cannot lie on an overlay.
pub(crate) const STATE: &str = "/state";
/// Last line, after the script has ended.
const END: &str = "the machine is done";

/// Arguments of qemu, except those for files.
const MACHINE: [&str; 15] = [
    "-accel",
    "tcg,thread=multi,tb-size=1024",
    "-cpu",
    "max",
    "-smp",
    "2",
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
    "-nic",
    "none",
    "-display",
    "none",
    "-serial",
    "stdio",
];

/// Script of the first process. Mounts the host's files below a writable layer, and continues there.
const INIT: &str = r#"#!/busybox sh
set -e
b=/busybox
$b mkdir -p /proc /dev /lower /own /new
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for module in MODULES; do $b insmod "/$module"; done
$b mount -t virtiofs -o ro files /lower
$b mount -t tmpfs own /own
$b mkdir /own/files /own/work
$b mount -t overlay files -o lowerdir=/lower,upperdir=/own/files,workdir=/own/work /new
cd /new
$b mkdir -p proc sys dev run tmp state lib/modules
$b mount -t proc proc proc
$b mount -t sysfs sysfs sys
$b mount -t devtmpfs dev dev
$b mkdir -p dev/pts dev/shm dev/mqueue
$b mount -t devpts devpts dev/pts
$b mount -t tmpfs shm dev/shm
$b mount -t mqueue mqueue dev/mqueue
$b ln -sfn /proc/self/fd dev/fd
$b mount -t tmpfs run run
$b mount -t tmpfs tmp tmp
$b mount -t ext4 /dev/nvme0n1 state
$b mount -t cgroup2 cgroup2 sys/fs/cgroup
echo +cpu +cpuset +io +memory +pids +hugetlb > sys/fs/cgroup/cgroup.subtree_control
$b mkdir "lib/modules/RELEASE"
$b mount --bind "/new/KERNEL" "lib/modules/RELEASE"
# The kernel asks for modules by this name.
$b rm -f sbin/modprobe
$b ln -s /bin/busybox sbin/modprobe
"#;

/// Shell command that runs there.
const SCRIPT: &str =
    "busybox ip link set lo up; hostname machine; sh 'SCRIPT'; sync; echo; echo 'END'; busybox poweroff -f";

/// End of the first script if a shell is the next first process.
const SHELL: &str = r#"exec $b switch_root /new /bin/sh -c "GOES_ON"
"#;

/// The same for systemd, which starts one service, and none of the host's.
const SYSTEMD: &str = r#"$b mkdir -p run/systemd/system
$b cat > run/systemd/system/script.service <<'UNIT'
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
TimeoutStartSec=infinity
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
Delegate=yes
ExecStart=/bin/sh -c "GOES_ON"
UNIT
exec $b switch_root /new /lib/systemd/systemd --unit=script.service --show-status=no --log-target=null
"#;

/// First process of a machine, after the files are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Shell,
    /// Debian's systemd.
    Systemd,
}

/// Runs a shell script in a machine, and passes each line of its output to `line`. Fails if the machine ends before
/// the script. `limit`: how long the machine may run.
pub(crate) fn run(
    root: &Path,
    first: First,
    script: &str,
    limit: Duration,
    mut line: impl FnMut(&str),
) -> Result<()> {
    let (kernel, folder) = (kernel(root)?, folder(root));
    let path = folder.join("script.sh");
    fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    fs::write(folder.join("initramfs-shared"), start(&kernel.modules, first, &path)?)
        .context("cannot write initramfs-shared")?;
    let disk = disk(&folder)?;
    let files = Files::share(&folder)?;
    let qemu = Cmd::new("qemu-system-x86_64")
        .args(MACHINE)
        .args(["-m", MEMORY, "-object", &format!("memory-backend-memfd,id=memory,size={MEMORY},share=on")])
        .args(["-numa", "node,memdev=memory", "-device", "vhost-user-fs-pci,chardev=files,tag=files"])
        .args(["-chardev", &format!("socket,id=files,path={}", files.socket.display())])
        .args(["-blockdev", &format!("driver=file,node-name=state,filename={}", disk.display())])
        .args(["-device", "nvme,serial=state,drive=state", "-append", KERNEL_ARGUMENTS])
        .arg("-kernel")
        .arg(kernel.image)
        .args(["-initrd", "initramfs-shared"])
        .dir(&folder)
        .within(limit);
    let mut done = false;
    let status = qemu.each_line(|bytes| {
        let Some(bytes) = bytes else { return };
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end();
        done |= text == END;
        line(text);
    })?;
    if !status.success() || !done {
        bail!("the machine ended before its script did: {status}");
    }
    Ok(())
}

/// Archive that the kernel unpacks as its first files.
fn start(modules: &Path, first: First, script: &Path) -> Result<Vec<u8>> {
    let listed = fs::read_to_string(modules.join("modules.dep")).context("modules.dep")?;
    let needed = in_order(&listed, &MODULES)?;
    let names: Vec<&str> = needed.iter().filter_map(|path| path.rsplit('/').next()).collect();
    let init = init(modules, &names, first, script)?;
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let mut files = vec![("init", init.into_bytes()), ("busybox", read(Path::new(BUSYBOX))?)];
    for (name, path) in names.iter().zip(&needed) {
        files.push((*name, read(&modules.join(path))?));
    }
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    cpio::archive(&files)
}

/// Script of the first process: it loads the modules of these names and runs `script`.
fn init(modules: &Path, names: &[&str], first: First, script: &Path) -> Result<String> {
    let release = modules.file_name().and_then(|name| name.to_str()).context("modules of no release")?;
    let text = |path: &Path| path.to_str().map(str::to_owned).with_context(|| path.display().to_string());
    let then = match first {
        First::Shell => SHELL,
        First::Systemd => SYSTEMD,
    };
    Ok((INIT.to_owned() + then)
        .replace("GOES_ON", SCRIPT)
        .replace("MODULES", &names.join(" "))
        .replace("KERNEL", text(modules)?.trim_start_matches('/'))
        .replace("RELEASE", release)
        .replace("SCRIPT", &text(script)?)
        .replace("END", END))
}

/// Files of modules and of those that they need, in loading order. `listed`: a `modules.dep`, which maps the path of
/// each module to the paths of those that it needs.
fn in_order<'a>(listed: &'a str, wanted: &[&str]) -> Result<Vec<&'a str>> {
    let lines = listed.lines().filter_map(|line| line.split_once(':'));
    let needs: BTreeMap<&str, Vec<&str>> =
        lines.map(|(module, others)| (module, others.split_whitespace().collect())).collect();
    let name = |path: &str| {
        path.rsplit('/').next().and_then(|file| file.split('.').next()).map(|n| n.replace('-', "_"))
    };
    let mut found = Vec::new();
    for module in wanted {
        let path = needs.keys().find(|path| name(path).as_deref() == Some(*module));
        let path = *path.with_context(|| format!("the kernel has no module {module}"))?;
        // Reversed: the others of a line need its last module.
        let all = needs.get(path).into_iter().flatten().rev().copied().chain([path]);
        for one in all {
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    Ok(found)
}

/// Creates an empty disk.
fn disk(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("state.raw");
    let made = File::create(&path).and_then(|file| file.set_len(DISK));
    made.with_context(|| format!("cannot write {}", path.display()))?;
    Cmd::new("mkfs.ext4").args(["-q", "-F"]).arg(&path).run_quiet()?;
    Ok(path)
}

/// The host's files, shared until this value is dropped.
struct Files {
    socket: PathBuf,
    server: Child,
}

impl Files {
    fn share(folder: &Path) -> Result<Self> {
        let socket = folder.join("files.sock");
        if socket.exists() {
            fs::remove_file(&socket).with_context(|| format!("cannot remove {}", socket.display()))?;
        }
        let server = Command::new(VIRTIOFSD)
            .arg(format!("--socket-path={}", socket.display()))
            // For a root of its own it would have to leave this root, which is not possible.
            .args(["-o", "source=/", "-o", "sandbox=chroot", "-o", "cache=always"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {VIRTIOFSD}"))?;
        let files = Self { socket, server };
        for _ in 0..100 {
            if files.socket.exists() {
                return Ok(files);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("{VIRTIOFSD} made no socket")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The server ends by itself with the machine.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_after_those_that_they_need() {
        let listed = "a/virtiofs.ko: b/fuse.ko c/virtio.ko c/virtio-ring.ko\nb/fuse.ko:\nc/virtio.ko: c/virtio-ring.ko\n\
                      c/virtio-ring.ko:\nd/virtio_pci.ko: c/virtio.ko c/virtio-ring.ko\n";
        let found = in_order(listed, &["virtio_pci", "virtiofs"]).unwrap();
        assert_eq!(
            found,
            ["c/virtio-ring.ko", "c/virtio.ko", "d/virtio_pci.ko", "b/fuse.ko", "a/virtiofs.ko"]
        );
        let error = in_order(listed, &["overlay"]).unwrap_err().to_string();
        assert_eq!(error, "the kernel has no module overlay");
    }

    #[test]
    fn nothing_of_the_first_process_is_left_open() {
        let (modules, script) = (Path::new("/x/lib/modules/6.1.0"), Path::new("/x/script.sh"));
        for first in [First::Shell, First::Systemd] {
            let text = init(modules, &["virtio.ko"], first, script).unwrap();
            for open in ["GOES_ON", "MODULES", "KERNEL", "RELEASE", "SCRIPT", "END"] {
                assert!(!text.contains(open), "{open}");
            }
            assert!(text.contains("sh '/x/script.sh';"), "{text}");
        }
        let text = init(modules, &["virtio.ko", "overlay.ko"], First::Shell, script).unwrap();
        assert!(text.contains("mount --bind \"/new/x/lib/modules/6.1.0\" \"lib/modules/6.1.0\""), "{text}");
        assert!(text.contains("for module in virtio.ko overlay.ko; do"));
    }
}
