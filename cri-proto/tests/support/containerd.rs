//! A private containerd in a box: own mounts, own process IDs, own /run, own folder, own cgroups.
//!
//! ```text
//! test ── setpriv + unshare ── sh (process 1 of the box): starts containerd again and again
//!                                ├── containerd
//!                                └── shims and containers, also after containerd was killed
//! ```
//!
//! With `PITSTOP_TEST_CGROUPS=systemd`, runc has systemd make the cgroups. systemd knows processes by the machine's
//! IDs, so the box has no PID namespace then. Its processes end with the machine. `cargo xtask platforms
//! cgroup2+systemd` sets it.
//!
//! The box ends with `unshare`, which ends with the test's thread, however that ends. The kernel then kills every
//! process in the box and drops its mounts. `Drop` removes the cgroups and the folder. The network is the machine's;
//! only containerd's stream server listens there, on a loopback port.

use std::{
    env, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, id},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use pitstop_cri::{Deadlines, Runtime, connect, v1};

use super::{
    eventually,
    images::{self, APP_IMAGE, BUSYBOX, PAUSE_IMAGE},
};

/// How to install what the tests need.
const CURE: &str = "apt-get install -y containerd runc busybox-static util-linux";

/// Process 1 of the box. $1 is its folder. containerd runs while the file `on` is there.
const INIT: &str = r#"
if [ -n "$PITSTOP_TEST_CGROUPS" ]; then mkdir "$1/systemd" && mount --bind /run/systemd "$1/systemd" || exit 1; fi
mount -t tmpfs tmpfs /run || exit 1
if [ -n "$PITSTOP_TEST_CGROUPS" ]; then mkdir /run/systemd && mount --bind "$1/systemd" /run/systemd || exit 1; fi
while :; do
  if [ -e "$1/on" ]; then containerd --config "$1/config.toml" >>"$1/log" 2>&1; else sleep 0.02; fi
done"#;

/// Whether systemd makes the cgroups of containers.
pub(crate) fn through_systemd() -> bool {
    match env::var("PITSTOP_TEST_CGROUPS").as_deref() {
        Ok("systemd") => true,
        Ok(other) => panic!("PITSTOP_TEST_CGROUPS={other}: it may be systemd"),
        Err(_) => false,
    }
}

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A running box. Dropping it removes everything.
pub(crate) struct Containerd {
    folder: tempfile::TempDir,
    /// `unshare`: killing it kills the box.
    unshare: Child,
    /// Name of the group, in every cgroup hierarchy, that holds the containers.
    cgroup: String,
}

impl Containerd {
    /// A box whose containerd runs and has the images; if that is impossible, prints why and returns `None`.
    ///
    /// # Panics
    /// In CI (`CI=true`), where the tests may not be skipped.
    pub(crate) async fn start() -> Option<Self> {
        let containerd = Self::boxed()?;
        containerd.switch_on();
        containerd.wait_until_serving().await;
        containerd.import_images().await;
        Some(containerd)
    }

    /// A box whose containerd is switched off. See [`start`](Self::start).
    pub(crate) fn boxed() -> Option<Self> {
        if let Some(missing) = missing() {
            assert!(env::var("CI").as_deref() != Ok("true"), "these tests need {missing}");
            println!("SKIPPED: these tests need {missing}");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("pitstop-cri-").tempdir().unwrap();
        fs::write(folder.path().join("config.toml"), config(folder.path())).unwrap();
        // The kernel sends pdeathsig when the thread that spawned the box ends: a test's own thread.
        let unshare = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "slave"])
            .args(if through_systemd() {
                &[][..]
            } else {
                &["--pid", "--fork", "--kill-child", "--mount-proc"]
            })
            .args(["sh", "-c", INIT, "init"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let cgroup = format!("pitstop-cri-test-{}-{}", id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Some(Self { folder, unshare, cgroup })
    }

    /// A new client.
    pub(crate) fn client(&self) -> Runtime {
        connect(&self.socket(), Deadlines::default()).unwrap()
    }

    /// Where containerd listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("containerd.sock")
    }

    /// The cgroup of a Pod, by the name that the kubelet gives it.
    pub(crate) fn cgroup_of(&self, pod_uid: &str) -> String {
        if through_systemd() {
            return format!("{}-pod{}.slice", self.cgroup, pod_uid.replace('-', "_"));
        }
        format!("/{}/pod{pod_uid}", self.cgroup)
    }

    /// A file of a cgroup v1, for example `("memory", "/a/b", "memory.limit_in_bytes")`; `None` on a machine with
    /// cgroup v2.
    pub(crate) fn cgroup_file(hierarchy: &str, cgroup: &str, file: &str) -> Option<String> {
        let path = format!("/sys/fs/cgroup/{hierarchy}{cgroup}/{file}");
        fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    }

    /// Lets containerd run from now on, also after it died.
    pub(crate) fn switch_on(&self) {
        fs::write(self.folder.path().join("on"), "").unwrap();
    }

    /// Kills containerd with SIGKILL. It stays dead until [`switch_on`](Self::switch_on); containers live on.
    pub(crate) fn kill(&self) {
        fs::remove_file(self.folder.path().join("on")).unwrap();
        let outside = self.unshare.id();
        let inside = || children(outside).first().copied().expect("the box has a process 1");
        let init = if through_systemd() { outside } else { inside() };
        let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let containerd = children(init).into_iter().find(|pid| name(pid).trim() == "containerd");
        let pid = containerd.expect("containerd runs").to_string();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        while Path::new("/proc").join(&pid).exists() {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until calls are answered.
    pub(crate) async fn wait_until_serving(&self) {
        let client = self.client();
        eventually("containerd answers", || async { client.version().await.ok() }).await;
    }

    async fn import_images(&self) {
        let archive = self.folder.path().join("images.tar");
        images::write_archive(&archive).unwrap();
        let output = Command::new("ctr")
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace", "k8s.io", "images", "import", "--snapshotter", "native"])
            .arg(archive)
            .output()
            .unwrap();
        assert!(output.status.success(), "ctr: {}", String::from_utf8_lossy(&output.stderr));
        // containerd tells its CRI part of new images a moment later.
        let client = self.client();
        for name in [APP_IMAGE, PAUSE_IMAGE] {
            let image = v1::ImageSpec { image: name.to_owned(), ..Default::default() };
            eventually(name, || async { client.image_status(image.clone()).await.ok().flatten() }).await;
        }
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let from = log.lines().count().saturating_sub(30);
            let end: Vec<_> = log.lines().skip(from).collect();
            println!("the end of containerd's log:\n{}", end.join("\n"));
        }
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        // The kernel ends the box's processes in its own time; until then their cgroups are busy.
        for _ in 0..100 {
            if remove_cgroups(&self.cgroup) {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What is missing for the tests, if anything.
fn missing() -> Option<String> {
    const PROGRAMS: [&str; 6] = ["containerd", "ctr", "runc", "setpriv", "unshare", "kill"];
    let path = env::var_os("PATH").unwrap_or_default();
    // sbin is not on every user's path.
    let folders: Vec<_> = env::split_paths(&path).chain(["/usr/sbin".into()]).collect();
    let found = |name: &str| folders.iter().any(|folder| folder.join(name).exists());
    let root = fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0\t")));
    if !root {
        return Some("the rights of root".to_owned());
    }
    if !Path::new(BUSYBOX).exists() {
        return Some(format!("busybox: {CURE}"));
    }
    PROGRAMS.into_iter().find(|name| !found(name)).map(|name| format!("{name}: {CURE}"))
}

/// containerd's configuration, with a reason beside each difference from the default.
fn config(folder: &Path) -> String {
    let folder = folder.display();
    let systemd = through_systemd();
    let arch = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!(
        r#"
version = 2
root = "{folder}/root"
state = "{folder}/state"
# They look for file systems and devices that are not needed here.
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
# Without CAP_SYS_RESOURCE runc may not lower oom_score_adj, and no container starts.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
# Works on any file system, overlays included.
snapshotter = "native"
# containerd 2 reads the snapshotter of this old format only beside a runtime.
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = {systemd}
# containerd 2 unpacks what it imports and pulls with this; 1.6 has no such plugin.
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
platform = "linux/{arch}"
snapshotter = "native"
"#
    )
}

/// Direct children of a process.
fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Removes the group in every hierarchy; returns whether none is left.
fn remove_cgroups(name: &str) -> bool {
    let root = Path::new("/sys/fs/cgroup");
    // cgroup v2 has the group at the root, v1 in a folder for each hierarchy.
    let hierarchies = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let left = hierarchies.chain([root.to_owned()]).filter(|folder| !remove_tree(&folder.join(name))).count();
    left == 0
}

/// rmdir, depth first: the files of a cgroup go with it.
fn remove_tree(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    match fs::remove_dir(group) {
        Ok(()) => true,
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}
