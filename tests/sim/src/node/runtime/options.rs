//! The runtimes that are modelled.

/// A runtime and its line of versions, where they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavor {
    /// containerd 1.6: a stop of an unknown container or sandbox is `NotFound`.
    Containerd16,
    /// containerd 2: such a stop is a success, as in 1.7. A second container or sandbox of the same name is
    /// `FailedPrecondition`.
    Containerd2,
    /// CRI-O.
    Crio,
}

/// How a runtime behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The runtime.
    pub flavor: Flavor,
    /// From a call to its reply, besides the call's own duration; at least 1 ms.
    pub call_ms: u64,
    /// Duration of `CreateContainer`.
    pub create_ms: u64,
    /// Duration of `RunPodSandbox`.
    pub sandbox_ms: u64,
    /// From SIGKILL to the end of the process.
    pub kill_ms: u64,
}

impl Flavor {
    /// The flavor of this containerd version.
    pub fn of_containerd(version: &str) -> Self {
        if version.trim_start_matches('v').starts_with("1.6.") {
            Self::Containerd16
        } else {
            Self::Containerd2
        }
    }
}

impl Options {
    /// A runtime that is not under load.
    pub fn of(flavor: Flavor) -> Self {
        Self { flavor, call_ms: 2, create_ms: 10, sandbox_ms: 60, kill_ms: 5 }
    }

    /// Name and version that `Version` answers.
    pub(super) fn version(&self) -> (&'static str, &'static str) {
        match self.flavor {
            Flavor::Containerd16 => ("containerd", "1.6.20"),
            Flavor::Containerd2 => ("containerd", "2.4.2"),
            Flavor::Crio => ("cri-o", "1.33.0"),
        }
    }

    /// The prefix of container IDs in a Pod's status.
    pub fn name(&self) -> &'static str {
        self.version().0
    }
}
