//! Free space in the runtime's image store.

use std::path::{Path, PathBuf};

use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use pitstop_cri::{Runtime, v1};

/// Where the daemon looks for it.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// Folder with the node's file system, as far as it is mounted.
    host_root: PathBuf,
    /// This process's own root.
    root: PathBuf,
}

impl Disk {
    /// The disk of the node whose file system is below `host_root`.
    pub(crate) fn new(host_root: &Path) -> Self {
        Self { host_root: host_root.to_owned(), root: PathBuf::from("/") }
    }

    /// Free bytes for images; `None` if the daemon cannot see them.
    ///
    /// The runtime says where it keeps images (`ImageFsInfo`). If that is not mounted, the daemon looks at its own
    /// root, which is an overlay of its image. For an overlay, the kernel reports the file system below it
    /// (`ovl_statfs` in `fs/overlayfs/super.c`). This does not work if the runtime keeps containers elsewhere.
    pub(crate) async fn free(&self, runtime: &Runtime) -> Option<u64> {
        let info = runtime.image_fs_info().await.ok()?;
        let folders = |systems: Vec<v1::FilesystemUsage>| -> Vec<String> {
            systems.into_iter().filter_map(|system| Some(system.fs_id?.mountpoint)).collect()
        };
        let (images, containers) = (folders(info.image_filesystems), folders(info.container_filesystems));
        let seen = images.iter().filter_map(|folder| {
            let folder = Path::new(folder).strip_prefix("/").ok()?;
            free_at(&self.host_root.join(folder))
        });
        let together = containers.iter().all(|folder| images.contains(folder));
        seen.min().or_else(|| free_below(&self.root).filter(|_| together))
    }
}

fn free_at(path: &Path) -> Option<u64> {
    let stats = statvfs(path).ok()?;
    Some(stats.blocks_available().saturating_mul(stats.fragment_size()))
}

/// Free bytes, if an overlay is mounted there.
fn free_below(root: &Path) -> Option<u64> {
    let is_overlay = statfs(root).is_ok_and(|stats| stats.filesystem_type() == OVERLAYFS_SUPER_MAGIC);
    free_at(root).filter(|_| is_overlay)
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
