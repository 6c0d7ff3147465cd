//! Reads the cgroups of containers and Pods, as far as they are mounted. [`files`] has the writes.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pitstop_api::nodework::CgroupReading;
use pitstop_cri::{ContainerId, Runtime};
use pitstop_daemon_core::CallFailure;
use pitstop_daemon_core::cgroup::{self, Controller, Paths, Version};
use pitstop_kit::describe;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::runtime;

pub(crate) mod files;

/// Where a node has its cgroups.
const ROOT: &str = "sys/fs/cgroup";
/// Largest file that is read, in bytes; the cgroup files read here have some lines.
const MAX_FILE: u64 = 4096;
/// Largest `memory.stat` that is read, in bytes; it has some dozens of lines.
const MAX_STAT: u64 = 32 * 1024;
/// How many reads go on at once: each may hold a verbose answer of the runtime (at most 2 MiB), twice.
const AT_ONCE: usize = 4;

/// The cgroups of a node. Clones share the bound on reads.
#[derive(Clone, Debug)]
pub struct Cgroups {
    root: PathBuf,
    /// The file that lists the node's swap.
    swaps: PathBuf,
    turns: Arc<Semaphore>,
}

impl Cgroups {
    /// The cgroups of the node whose file system is below `host_root`.
    pub fn new(host_root: &Path) -> Self {
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        // Every process sees the node's swap, wherever its own root is.
        Self { root: host_root.join(ROOT), swaps: PathBuf::from("/proc/swaps"), turns }
    }

    /// Values of the cgroups of a container and its Pod. Only a failure of the runtime may be worth a retry.
    pub(crate) async fn read(
        &self,
        runtime: &Runtime,
        container_id: &ContainerId,
        pod_uid: &str,
    ) -> Result<Box<CgroupReading>, CallFailure> {
        let _turn = self.turn().await;
        let path = runtime::cgroups_path(runtime, container_id).await?;
        let read = cgroup::resolve(&path, container_id, pod_uid).and_then(|paths| self.observe(&paths));
        read.map(Box::new).map_err(|message| CallFailure { retry: false, message })
    }

    /// Waits for a free slot to read.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.turns.acquire().await.ok()
    }

    /// Values of two cgroups. The kernel generates these files when they are read, so no read waits.
    pub fn observe(&self, paths: &Paths) -> Result<CgroupReading, String> {
        let version = self.version();
        let one = |group: &str| {
            cgroup::read(version, |controller, file| self.file(version, controller, group, file))
        };
        Ok(CgroupReading { container: one(&paths.container)?, pod: one(&paths.pod)? })
    }

    /// Only the root of a v2 hierarchy has this file; a hybrid one is mounted in a subfolder.
    pub fn version(&self) -> Version {
        match text(&self.root.join("cgroup.controllers"), MAX_FILE) {
            Ok(_) => Version::V2,
            Err(_) => Version::V1,
        }
    }

    fn file(
        &self,
        version: Version,
        controller: Controller,
        group: &str,
        file: &str,
    ) -> Result<String, String> {
        let mut failure = String::new();
        for path in self.candidates(version, controller, group, file) {
            match text(&path, if file == "memory.stat" { MAX_STAT } else { MAX_FILE }) {
                Ok(text) => return Ok(text),
                Err(error) if failure.is_empty() || error.kind() != ErrorKind::NotFound => {
                    failure = format!("cannot read {}: {}", path.display(), describe(&error));
                }
                Err(_) => {}
            }
        }
        Err(failure)
    }

    /// Possible paths of a cgroup file.
    fn candidates(&self, version: Version, controller: Controller, group: &str, file: &str) -> Vec<PathBuf> {
        let folders: &[&str] = match (version, controller) {
            (Version::V2, _) => &["."],
            // Usually mounted together with cpuacct, mostly with a link of the short name.
            (Version::V1, Controller::Cpu) => &["cpu", "cpu,cpuacct"],
            (Version::V1, Controller::Memory) => &["memory"],
            (Version::V1, Controller::Cpuset) => &["cpuset"],
        };
        folders
            .iter()
            .map(|folder| self.root.join(folder).join(group).join(file).components().collect())
            .collect()
    }
}

fn text(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("more than {most} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod containerd_tests;
#[cfg(test)]
mod recorded_tests;

#[cfg(test)]
mod tests {
    use std::fs;

    use pitstop_api::nodework::Cgroup;
    use tempfile::TempDir;

    use super::recorded_tests::Recorded;
    use super::*;

    const UID: &str = "0eb8c2ee-2805-4222-b6b3-e8134389e5f1";
    const ID: &str = "b7a04dfe7903adf2a6bea06ebdfe81fc59c2b443d9d9330a63ef21ac8e7defde";

    /// A node with these files in `/sys/fs/cgroup`.
    pub(super) fn node(files: &[(String, &str)]) -> (TempDir, Cgroups) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(ROOT).join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let cgroups = Cgroups::new(root.path());
        (root, cgroups)
    }

    fn observe(cgroups: &Cgroups, path: &str) -> Result<CgroupReading, String> {
        cgroups.observe(&cgroup::resolve(path, &ContainerId::parse(ID).unwrap(), UID)?)
    }

    /// Files of pitstop's daemon on a node of this project's own cluster, by hierarchy. It has v1, and a v2 hierarchy
    /// without controllers.
    fn v1(cpu: &str) -> Vec<(String, &'static str)> {
        let pod = format!("pitstop-lab/node1/kubepods/burstable/pod{UID}");
        let container = format!("{pod}/{ID}");
        let events = "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n";
        let mut files = vec![("unified/cgroup.controllers".to_owned(), "\n")];
        for (group, shares, usage) in [(&pod, "10\n", "5332992\n"), (&container, "10\n", "1433600\n")] {
            files.extend([
                (format!("unified/{group}/cgroup.controllers"), "\n"),
                (format!("{cpu}/{group}/cpu.shares"), shares),
                (format!("{cpu}/{group}/cpu.cfs_quota_us"), "-1\n"),
                (format!("{cpu}/{group}/cpu.cfs_period_us"), "100000\n"),
                (format!("memory/{group}/memory.limit_in_bytes"), "50331648\n"),
                (format!("memory/{group}/memory.usage_in_bytes"), usage),
                (format!("memory/{group}/memory.oom_control"), events),
            ]);
        }
        files
    }

    #[test]
    fn cgroups_of_v1_are_read_wherever_cpu_is_mounted() {
        let path = format!("/pitstop-lab/node1/kubepods/burstable/pod{UID}/{ID}");
        for cpu in ["cpu", "cpu,cpuacct"] {
            let (_root, cgroups) = node(&v1(cpu));
            let container = Cgroup {
                cpu_period: Some(100_000),
                cpu_shares: Some(10),
                memory_limit: Some(50_331_648),
                memory_usage: Some(1_433_600),
                oom_kills: Some(0),
                ..Cgroup::default()
            };
            let pod = Cgroup { memory_usage: Some(5_332_992), ..container };
            assert_eq!(observe(&cgroups, &path), Ok(CgroupReading { container, pod }), "{cpu}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_path() {
        let path = format!("/kubepods/pod{UID}/{ID}");
        // Nothing is mounted: the error names the first path.
        let (root, cgroups) = node(&[]);
        let failure = observe(&cgroups, &path).unwrap_err();
        let file = root.path().join(format!("{ROOT}/cpu{path}/cpu.cfs_quota_us"));
        assert!(failure.starts_with(&format!("cannot read {}: No such file", file.display())), "{failure}");

        let recorded = Recorded::new();
        let state = &recorded.states["cgroupfs, no limits"];
        let paths = recorded.paths(state);
        let (file, huge) = (format!("{}/memory.max", paths.container), "1".repeat(5000));
        for (text, why) in [(None, "No such file"), (Some(huge.as_str()), "more than 4096 bytes")] {
            let others = state.files.iter().filter(|(path, _)| **path != file);
            let mut files: Vec<_> = others.map(|(path, text)| (path.clone(), text.as_str())).collect();
            files.extend(text.map(|text| (file.clone(), text)));
            let (_root, cgroups) = node(&files);
            let failure = cgroups.observe(&paths).unwrap_err();
            assert!(failure.contains(&format!("{file}: {why}")), "{failure}");
        }
    }
}
