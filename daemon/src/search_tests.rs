//! The search on a real containerd, private to the test; see `cri-proto/tests/support`.

use std::os::unix::net::UnixListener;

use pitstop_kit::{Metrics, Readiness};
use tokio::task::JoinHandle;

use super::*;
use crate::support::{Containerd, eventually};

struct Scene {
    link: Link,
    readiness: Readiness,
    inbox: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

fn start(search: Search) -> Scene {
    let (finder, link) = link();
    let (events, inbox) = mpsc::channel(64);
    let readiness = Readiness::new();
    let ready = readiness.condition("container runtime reachable");
    let metrics = DaemonMetrics::register(&mut Metrics::new("pitstop_daemon", "0"));
    let task = tokio::spawn(run(search, finder, ready, metrics, events));
    Scene { link, readiness, inbox, task }
}

impl Scene {
    async fn reports(&self, text: &str) {
        eventually(text, || async {
            self.readiness.missing().iter().any(|m| m.contains(text)).then_some(())
        })
        .await;
        assert!(self.link.runtime().is_err());
        assert!(!self.task.is_finished(), "it never gives up");
    }

    async fn found(&mut self) -> RuntimeInfo {
        let Some(Event::Runtime(info)) = self.inbox.recv().await else { panic!("the search ended") };
        eventually("readiness", || async { self.readiness.is_ready().then_some(()) }).await;
        info
    }
}

#[tokio::test]
async fn d29_a_runtime_that_appears_later_and_one_that_starts_anew_are_found() {
    let Some(containerd) = Containerd::boxed() else { return };
    let mut scene = start(Search::new(Path::new("/"), Some(containerd.socket())));
    scene.reports("there is no socket at ").await;
    containerd.switch_on();
    let info = scene.found().await;
    assert_eq!(info.name, "containerd");
    scene.link.runtime().unwrap().version().await.unwrap();

    // Killed: its socket remains, but nothing answers. A failed call reveals that.
    containerd.kill();
    assert!(scene.link.runtime().unwrap().version().await.is_err());
    scene.link.doubt();
    scene.reports("cannot be reached").await;
    containerd.switch_on();
    assert_eq!(scene.found().await, info);
    scene.link.runtime().unwrap().version().await.unwrap();

    // A doubt without a cause changes nothing.
    scene.link.doubt();
    scene.link.doubt();
    scene.link.runtime().unwrap().version().await.unwrap();
    assert!(scene.inbox.try_recv().is_err() && scene.readiness.is_ready());
}

#[tokio::test]
async fn what_is_at_a_usual_place_is_asked_and_the_next_one_after_it() {
    let Some(containerd) = Containerd::boxed() else { return };
    let root = tempfile::tempdir().unwrap();
    for folder in ["run/crio", "run/containerd", "run/k3s/containerd"] {
        std::fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    // Neither a socket whose owner is gone nor a file is a runtime.
    drop(UnixListener::bind(root.path().join("run/k3s/containerd/containerd.sock")).unwrap());
    std::fs::write(root.path().join("run/crio/crio.sock"), "").unwrap();
    let mut scene = start(Search::new(root.path(), None));
    scene.reports("crio.sock is no socket; Version on ").await;
    // The real runtime appears at the usual path.
    let usual = root.path().join("run/containerd/containerd.sock");
    std::os::unix::fs::symlink(containerd.socket(), usual).unwrap();
    containerd.switch_on();
    assert_eq!(scene.found().await.name, "containerd");
}
