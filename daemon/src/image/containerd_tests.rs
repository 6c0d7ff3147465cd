//! Images of a real containerd, private to the test; see `cri-proto/tests/support`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test, also outside #[test]"
)]

use std::path::Path;
use std::process::Command;

use super::*;
use crate::support::{APP_IMAGE, Containerd, NewContainer, Pod, Registry};

const POD_UID: &str = "uid-of-one";

/// A container as the kubelet creates it: by image ID.
fn app(image: &str, attempt: u32) -> NewContainer<'_> {
    NewContainer { name: "app", script: "sleep 1000", attempt, image: Some(image), ..Default::default() }
}

fn forget(containerd: &Containerd, image: &str) {
    let output = Command::new("ctr")
        .arg("--address")
        .arg(containerd.socket())
        .args(["--namespace", "k8s.io", "images", "rm", "--sync", image])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn what_the_node_has_and_what_runs_is_seen() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let registry = Registry::start();
    let mut pod = Pod::run(&containerd, "one").await;
    let app_id = find(&runtime, APP_IMAGE).await.unwrap().unwrap().id;
    let first = pod.start(app(&app_id, 0)).await;
    let good = registry.reference("good:1");
    let disk = Disk::new(Path::new("/"));
    let see = async |disk| look(&runtime, &first, POD_UID, "app", &good, disk).await.unwrap();

    let seen = see(Some(&disk)).await;
    let named = seen.named.unwrap();
    assert_eq!((named.facts.pod_uid.as_str(), named.facts.container.as_str()), (POD_UID, "app"));
    assert!(named.references.iter().any(|name| name == APP_IMAGE), "{named:?}");
    assert_eq!(seen.image, None);
    assert!(seen.free.unwrap() > 1 << 20);
    let newest = seen.newest.unwrap();
    assert_eq!((&newest.id, &newest.image_id, newest.runs), (&first, &app_id, true));
    assert_eq!(see(None).await.free, None, "not asked");

    pull(&runtime, &good, Duration::from_mins(1)).await.unwrap();
    assert!(size(&runtime, &good).await > 1 << 20);
    let image = see(None).await.image.unwrap();
    assert_eq!(image.id, registry.image_id);
    assert_eq!(image.digests, [format!("{}@{}", registry.reference("good"), registry.digest)]);

    // The update: the old container ends, and stays known for a while.
    runtime.stop_container(&first, Duration::ZERO).await.unwrap();
    assert!(!see(None).await.newest.unwrap().runs);
    let second = pod.start(app(&image.id, 1)).await;
    let newest = see(None).await.newest.unwrap();
    assert_eq!((&newest.id, &newest.image_id, newest.runs), (&second, &image.id, true));
    assert_eq!(newest.digests, image.digests);

    // The image is removed by hand: the running container is still known.
    forget(&containerd, &good);
    let gone = async || see(None).await.image.is_none().then_some(());
    crate::support::eventually("the image to be gone", gone).await;
    let seen = see(None).await;
    assert_eq!((seen.newest.unwrap().image_id, seen.heir), (image.id, None));

    // The kubelet has removed the old container: the heir is reported instead.
    pod.remove(&first).await;
    let seen = see(None).await;
    assert_eq!(seen.named, None);
    let heir = seen.heir.unwrap();
    assert_eq!((heir.facts.pod_uid.as_str(), heir.facts.container.as_str()), (POD_UID, "app"));
}

#[tokio::test]
async fn why_a_pull_fails_is_told() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let registry = Registry::start();
    let fails = async |image: &str| {
        let failure = pull(&runtime, image, Duration::from_mins(1)).await.unwrap_err();
        println!("{failure:?}");
        (failure.missing, failure.message)
    };
    let (missing, text) = fails(&registry.reference("none:1")).await;
    assert!(missing && text.ends_with("none:1: not found"), "{text}");
    let (missing, text) = fails(&registry.reference("private:1")).await;
    assert!(!missing && text.contains("401 Unauthorized"), "{text}");
    let (missing, text) = fails("127.0.0.1:1/nobody-listens:1").await;
    assert!(!missing && text.contains("connection refused"), "{text}");
}
