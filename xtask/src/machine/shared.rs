//! A machine that has this machine's files: they are read from here, and what it writes is its own and lost at its end. What runs
//! here runs there, with cgroup v2.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::{BUSYBOX, KERNEL_ARGUMENTS, cpio, folder, kernel};
use crate::sh::Cmd;

/// Shares files with a machine; it comes with Debian's qemu.
const VIRTIOFSD: &str = "/usr/lib/qemu/virtiofsd";
/// What the kernel needs to get at the files.
const MODULES: [&str; 3] = ["virtio_pci", "virtiofs", "overlay"];
/// Memory, and of it what is written to files outside of `/state`.
const MEMORY: &str = "5G";
/// Bytes of the disk at [`STATE`].
const DISK: u64 = 12 << 30;
/// The folder on a disk of its own: containerd's layers cannot lie on layers.
pub(crate) const STATE: &str = "/state";
/// The last line: all that was to be run came to its end.
const END: &str = "the machine is done";

/// What the machine is, but for its files.
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

/// The first process. Mounts this machine's files below a layer of its own, and goes on there with the script.
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

/// What goes on there, as the shell says it.
const SCRIPT: &str =
    "busybox ip link set lo up; hostname machine; sh 'SCRIPT'; sync; echo; echo 'END'; busybox poweroff -f";

/// What follows where a shell is the first process then.
const SHELL: &str = r#"exec $b switch_root /new /bin/sh -c "GOES_ON"
"#;

/// What follows where systemd is: it starts one service, and nothing of this machine's.
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

/// Its first process, once it has its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Shell,
    /// Debian's.
    Systemd,
}

/// Runs a script of the shell there, and gives each line that it prints. Fails where the machine ends before the script does.
/// `limit`: how long it may run.
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

/// What the kernel unpacks as its first files.
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

/// The first process: it loads the modules that are called so, and runs the script.
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

/// The files of modules and of what they need, in the order in which they are loaded. `listed` is a `modules.dep`: of each module,
/// by its path, the paths of those that it needs.
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
        // The last of its line is needed by the others.
        let all = needs.get(path).into_iter().flatten().rev().copied().chain([path]);
        for one in all {
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    Ok(found)
}

/// An empty disk.
fn disk(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("state.raw");
    let made = File::create(&path).and_then(|file| file.set_len(DISK));
    made.with_context(|| format!("cannot write {}", path.display()))?;
    Cmd::new("mkfs.ext4").args(["-q", "-F"]).arg(&path).run_quiet()?;
    Ok(path)
}

/// This machine's files, as long as they are shared.
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
            // In a root of its own it would have to leave this one, which nobody can.
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
        // It ends by itself with the machine.
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
