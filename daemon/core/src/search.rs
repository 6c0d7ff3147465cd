//! Which socket belongs to the container runtime.
//!
//! The daemon keeps to a runtime that has answered. While its socket is there, and for [`PATIENCE`] after it vanished
//! or fell silent, the daemon asks no other. Another runtime on the node knows nothing of the kubelet's containers.
//! While the right one restarts, it would report every container as missing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pitstop_api::logic::backoff::Backoff;
use pitstop_api::logic::time::Mono;

/// Where container runtimes listen, below the root of the node's files. The most specific come first: a node that has
/// one runs it for Kubernetes, while the usual containerd comes with Docker, too.
///
/// Sources: k3s and RKE2 `pkg/agent/config/config.go` of k3s (`/run/k3s` for both); k0s `docs/runtime.md`; `MicroK8s`
/// `microk8s-resources/default-args/containerd`; cri-dockerd `packaging/systemd/cri-docker.socket`; CRI-O
/// `crio.conf(5)`, `listen`; containerd `containerd-config.toml(5)`, `address`.
pub const SOCKETS: [&str; 6] = [
    "run/k3s/containerd/containerd.sock",
    "run/k0s/containerd.sock",
    "var/snap/microk8s/common/run/containerd.sock",
    "run/cri-dockerd.sock",
    "run/crio/crio.sock",
    "run/containerd/containerd.sock",
];

/// How long a runtime that has answered may be away before others are asked.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// Time between looks at the socket while the runtime answers.
const LOOK: Duration = Duration::from_secs(10);
/// Longest time between looks while no runtime answers.
const LOST_LOOK: Duration = Duration::from_secs(10);

/// One socket file: a restarted runtime creates another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketId {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// `st_ctime`, in seconds and nanoseconds: file systems reuse inodes.
    pub changed: (i64, i64),
}

/// The search for the runtime, and what it has found.
#[derive(Clone, Debug)]
pub struct Search {
    candidates: Vec<PathBuf>,
    /// The candidate that answered last.
    home: Option<usize>,
    /// Its socket; absent while it does not answer.
    socket: Option<SocketId>,
    /// Whether to ask it again although its socket is the same.
    doubted: bool,
    lost_since: Option<Mono>,
    backoff: Backoff,
}

impl Search {
    /// A search without a result. The only candidate is `explicit`, if given; otherwise [`SOCKETS`] below `root`.
    pub fn new(root: &Path, explicit: Option<PathBuf>) -> Self {
        let candidates = match explicit {
            Some(path) => vec![path],
            None => SOCKETS.iter().map(|path| root.join(path)).collect(),
        };
        Self {
            candidates,
            home: None,
            socket: None,
            doubted: false,
            lost_since: None,
            backoff: Backoff::default(),
        }
    }

    /// Where to look.
    pub fn candidates(&self) -> &[PathBuf] {
        &self.candidates
    }

    /// Whether a runtime is known to answer.
    pub fn found(&self) -> bool {
        self.socket.is_some()
    }

    /// A call failed in a way that may mean that the runtime is gone.
    pub fn doubt(&mut self) {
        self.doubted = true;
    }

    /// Which candidates to ask now, in this sequence, until one answers. `seen`: the present socket of each candidate.
    /// An empty list with [`found`](Self::found) means that nothing has changed.
    pub fn look(&mut self, now: Mono, seen: &[Option<SocketId>]) -> Vec<(usize, SocketId)> {
        let at = |i: usize| seen.get(i).copied().flatten().map(|socket| (i, socket));
        let home = self.home.and_then(at);
        if self.socket.is_some() && self.socket == home.map(|(_, socket)| socket) && !self.doubted {
            return Vec::new();
        }
        self.doubted = false;
        self.socket = None;
        let patient = self.home.is_some() && {
            let since = *self.lost_since.get_or_insert(now);
            since.after(PATIENCE) > now
        };
        let others = (0..seen.len()).filter(|i| !patient && Some(*i) != self.home).filter_map(at);
        home.into_iter().chain(others).collect()
    }

    /// Takes the result of a look: the candidate that answered, if any.
    pub fn answered(&mut self, now: Mono, answered: Option<(usize, SocketId)>) {
        if let Some((home, socket)) = answered {
            self.home = Some(home);
            self.socket = Some(socket);
            self.lost_since = None;
            self.backoff.succeeded();
        } else {
            self.socket = None;
            self.backoff.failed(now);
        }
    }

    /// How long to wait for the next look, unless a call fails before.
    pub fn wait(&self, now: Mono) -> Duration {
        if self.found() {
            return LOOK;
        }
        self.backoff.waits_until(now).map_or(Duration::ZERO, |at| at.since(now)).min(LOST_LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K3S: usize = 0;
    const CRIO: usize = 4;
    const CONTAINERD: usize = 5;

    fn socket(inode: u64) -> SocketId {
        SocketId { inode, ..SocketId::default() }
    }

    /// A node with only these sockets.
    fn seen(sockets: &[(usize, u64)]) -> Vec<Option<SocketId>> {
        let mut seen = vec![None; SOCKETS.len()];
        for (at, inode) in sockets {
            seen[*at] = Some(socket(*inode));
        }
        seen
    }

    fn search() -> Search {
        Search::new(Path::new("/"), None)
    }

    /// A search that found this socket.
    fn found(at: usize, inode: u64) -> Search {
        let mut search = search();
        assert_eq!(search.look(Mono(0), &seen(&[(at, inode)])), [(at, socket(inode))]);
        search.answered(Mono(0), Some((at, socket(inode))));
        assert!(search.found());
        search
    }

    #[test]
    fn d29_every_usual_place_is_looked_at_and_the_particular_ones_first() {
        let paths: Vec<_> = search().candidates().iter().map(|p| p.to_str().unwrap().to_owned()).collect();
        assert_eq!(
            paths,
            [
                "/run/k3s/containerd/containerd.sock",
                "/run/k0s/containerd.sock",
                "/var/snap/microk8s/common/run/containerd.sock",
                "/run/cri-dockerd.sock",
                "/run/crio/crio.sock",
                "/run/containerd/containerd.sock",
            ]
        );
        let below = Search::new(Path::new("/host"), None);
        assert_eq!(below.candidates()[K3S], Path::new("/host/run/k3s/containerd/containerd.sock"));
        let asked = search().look(Mono(0), &seen(&[(CONTAINERD, 1), (K3S, 2), (CRIO, 3)]));
        assert_eq!(asked, [(K3S, socket(2)), (CRIO, socket(3)), (CONTAINERD, socket(1))]);
    }

    #[test]
    fn a_socket_that_is_named_is_the_only_one() {
        let mut search = Search::new(Path::new("/host"), Some("/x.sock".into()));
        assert_eq!(search.candidates(), [PathBuf::from("/x.sock")]);
        assert_eq!(search.look(Mono(0), &[Some(socket(1))]), [(0, socket(1))]);
    }

    #[test]
    fn d29_a_runtime_that_is_missing_is_looked_for_ever_more_rarely_and_found_when_it_appears() {
        let mut search = search();
        let mut now = Mono(0);
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert_eq!(search.look(now, &seen(&[])), []);
            search.answered(now, None);
            assert!(!search.found());
            waits.push(search.wait(now).as_millis());
            now = now.after(search.wait(now));
        }
        assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000]);
        assert_eq!(search.look(now, &seen(&[(CRIO, 1)])), [(CRIO, socket(1))]);
        search.answered(now, Some((CRIO, socket(1))));
        assert!(search.found());
        assert_eq!(search.wait(now), LOOK);
    }

    #[test]
    fn while_all_is_well_nothing_is_asked() {
        let mut search = found(CONTAINERD, 1);
        assert_eq!(search.look(Mono(10_000), &seen(&[(CONTAINERD, 1), (K3S, 2)])), []);
        assert!(search.found(), "another socket that appears changes nothing");
    }

    #[test]
    fn a_runtime_that_started_anew_is_asked_again() {
        let mut search = found(CONTAINERD, 1);
        assert_eq!(search.look(Mono(10_000), &seen(&[(CONTAINERD, 7)])), [(CONTAINERD, socket(7))]);
        assert!(!search.found(), "until it answers");
        search.answered(Mono(10_000), Some((CONTAINERD, socket(7))));
        assert_eq!(search.look(Mono(20_000), &seen(&[(CONTAINERD, 7)])), []);
    }

    #[test]
    fn a_doubt_is_settled_by_asking() {
        let mut search = found(CONTAINERD, 1);
        search.doubt();
        assert_eq!(search.look(Mono(1_000), &seen(&[(CONTAINERD, 1)])), [(CONTAINERD, socket(1))]);
        search.answered(Mono(1_000), None);
        assert!(!search.found());
        assert_eq!(search.wait(Mono(1_000)), Duration::from_millis(500));
        // The socket is still there: the search asks until the runtime answers.
        assert_eq!(search.look(Mono(1_500), &seen(&[(CONTAINERD, 1)])), [(CONTAINERD, socket(1))]);
        search.answered(Mono(1_500), Some((CONTAINERD, socket(1))));
        assert_eq!(search.look(Mono(2_000), &seen(&[(CONTAINERD, 1)])), []);
    }

    #[test]
    fn another_runtime_is_not_taken_for_one_that_starts_anew() {
        for gone in [seen(&[(CRIO, 2)]), seen(&[(CRIO, 2), (CONTAINERD, 1)])] {
            let mut search = found(CONTAINERD, 1);
            search.doubt();
            let home = gone[CONTAINERD].map(|socket| (CONTAINERD, socket));
            for ms in [1_000, 30_000, 60_999] {
                assert_eq!(search.look(Mono(ms), &gone), home.into_iter().collect::<Vec<_>>());
                search.answered(Mono(ms), None);
            }
            let asked = search.look(Mono(61_000), &gone);
            assert_eq!(asked.last(), Some(&(CRIO, socket(2))), "after a minute it is");
            search.answered(Mono(61_000), Some((CRIO, socket(2))));
            assert_eq!(search.look(Mono(71_000), &gone), []);
        }
    }
}
