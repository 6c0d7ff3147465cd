//! Tests on this machine's file systems, and with the image store of a real containerd; see `cri-proto/tests/support`.

#![allow(clippy::unwrap_used, reason = "a test, also outside #[test]")]

use super::*;
use crate::support::Containerd;

#[test]
fn only_an_overlay_tells_of_what_is_below_it() {
    let tmp = std::env::temp_dir();
    assert!(free_at(&tmp).is_some_and(|bytes| bytes > 0));
    assert_eq!(free_at(Path::new("/none")), None);
    assert_eq!((free_below(Path::new("/proc")), free_below(Path::new("/none"))), (None, None));
}

#[tokio::test]
async fn what_is_free_for_images_is_seen_where_it_is_mounted() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let free = async |host_root: &str, root: &str| {
        Disk { host_root: host_root.into(), root: root.into() }.free(&runtime).await
    };
    assert!(free("/", "/none").await.unwrap() > 1 << 20);
    assert_eq!(free("/none", "/proc").await, None);
    containerd.kill();
    assert_eq!(free("/", "/none").await, None, "nobody says where");
}
