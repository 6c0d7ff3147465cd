//! The releases of Kubernetes that `tests/cluster` is built with: the same sources, one Go module file each. A release can
//! also act as an older one, which costs no compiling: only the linker runs again.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cluster;
use crate::containerd::{self, Containerd};
use crate::options;
use crate::sh::Cmd;

/// The variable of the cluster's program that names the release to act as.
const EMULATED: &str = "pitstop.dev/tests/pitstop-cluster/lab/release.emulated";

/// A release of Kubernetes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kubernetes {
    release: &'static str,
    /// The module file, in the folder of the cluster.
    manifest: &'static str,
    /// The program, in the checkout. It has a folder of its own, since its kubectl and pause lie beside it.
    program: &'static str,
    /// The older release whose APIs and feature gates its parts have. `None`: their own.
    emulates: Option<&'static str>,
    /// Default runtime of its nodes. The clusters of a test run cover both runtimes.
    runtime: &'static Containerd,
}

/// What a cluster runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    pub(crate) kubernetes: &'static Kubernetes,
    /// Runtime of its nodes.
    pub(crate) runtime: &'static Containerd,
}

impl Platform {
    /// Its name: `1.36+containerd-2`.
    pub(crate) fn name(self) -> String {
        format!("{}+{}", self.kubernetes.release, self.runtime.name())
    }
}

/// With the release's default runtime.
impl From<&'static Kubernetes> for Platform {
    fn from(kubernetes: &'static Kubernetes) -> Self {
        Self { kubernetes, runtime: kubernetes.runtime }
    }
}

/// All releases. The first is the default.
pub(crate) const ALL: [Kubernetes; 5] = [
    Kubernetes {
        release: "1.36",
        manifest: "go.mod",
        program: "target/cluster/bin/pitstop-cluster",
        emulates: None,
        runtime: &containerd::TWO,
    },
    Kubernetes {
        release: "1.36-as-1.34",
        manifest: "go.mod",
        program: "target/cluster/bin/1.36-as-1.34/pitstop-cluster",
        emulates: Some("1.34"),
        runtime: &containerd::ONE,
    },
    Kubernetes {
        release: "1.37",
        manifest: "go-1.37.mod",
        program: "target/cluster/bin/1.37/pitstop-cluster",
        emulates: None,
        runtime: &containerd::TWO,
    },
    Kubernetes {
        release: "1.35",
        manifest: "go-1.35.mod",
        program: "target/cluster/bin/1.35/pitstop-cluster",
        emulates: None,
        runtime: &containerd::TWO,
    },
    Kubernetes {
        release: "1.34",
        manifest: "go-1.34.mod",
        program: "target/cluster/bin/1.34/pitstop-cluster",
        emulates: None,
        runtime: &containerd::ONE,
    },
];

impl Kubernetes {
    /// The default release, which the checks and tests of every run use.
    pub(crate) fn default() -> &'static Self {
        let [default, ..] = &ALL;
        default
    }

    /// The release without the resize API for the tests of every run. It acts as the older release, whose own sources
    /// take as long to compile as the default's.
    pub(crate) fn without_resize() -> &'static Self {
        let [_, emulating, ..] = &ALL;
        emulating
    }

    /// Takes `--kubernetes RELEASE` out of the arguments of `up`. Returns the release and the other arguments.
    pub(crate) fn chosen(args: &[String]) -> Result<(&'static Self, Vec<&str>)> {
        const FLAG: &str = "--kubernetes";
        let (asked, rest) = options::taken(&args.iter().map(String::as_str).collect::<Vec<_>>(), FLAG);
        let Some(release) = asked else { return Ok((Self::default(), rest)) };
        let releases = ALL.map(|one| one.release).join(", ");
        let chosen = Self::named(release)
            .with_context(|| format!("{FLAG} {release}: there is no such release here, only {releases}"))?;
        Ok((chosen, rest))
    }

    /// The release of that name.
    pub(crate) fn named(release: &str) -> Option<&'static Self> {
        const { &ALL }.iter().find(|one| one.release == release)
    }

    /// Whether its clusters serve the resize API.
    pub(crate) fn resizes(&self) -> bool {
        // The settings of a release are in `lab/release` of the cluster's program.
        self.emulates.unwrap_or(self.release) != "1.34"
    }

    /// Whether its clusters serve `MutatingAdmissionPolicy`.
    pub(crate) fn mutates(&self) -> bool {
        !["1.34", "1.35"].contains(&self.emulates.unwrap_or(self.release))
    }

    /// Its name: `1.36`.
    pub(crate) fn release(&self) -> &'static str {
        self.release
    }

    /// Default runtime of its nodes.
    pub(crate) fn runtime(&self) -> &'static Containerd {
        self.runtime
    }

    /// The cluster's program, built or not.
    pub(crate) fn program(&self, root: &Path) -> PathBuf {
        root.join(self.program)
    }

    /// Go with a subcommand, in the cluster's module with this Kubernetes.
    pub(crate) fn go(&self, root: &Path, subcommand: &str) -> Cmd {
        cluster::go_compiling(&cluster::module(root), subcommand).args(["-modfile", self.manifest])
    }

    /// Builds the cluster's program and what lies beside it; takes seconds if nothing changed.
    pub(crate) fn build(&self, root: &Path) -> Result<()> {
        let version = self.version(root)?;
        self.go(root, "build")
            .args(["-v", "-ldflags", &link_flags(&version, self.emulates)])
            // The cluster's program, kubectl, and the program that becomes the pause image.
            .args([
                OsString::from("-o"),
                self.program(root).with_file_name("").into(),
                ".".into(),
                "./kubectl".into(),
                "./pause".into(),
            ])
            .run_quiet()
            .with_context(|| format!("cannot build tests/cluster with {}", self.manifest))
    }

    /// The version in full, with its `v`.
    pub(crate) fn version(&self, root: &Path) -> Result<String> {
        let manifest = cluster::module(root).join(self.manifest);
        let text =
            fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
        let version = required_version(&text);
        version
            .map(str::to_owned)
            .with_context(|| format!("{} names no k8s.io/kubernetes", manifest.display()))
    }
}

/// The version of Kubernetes that a module file requires, with its `v`.
fn required_version(manifest: &str) -> Option<&str> {
    let required =
        |line: &'_ str| line.trim_start_matches("require ").trim().starts_with("k8s.io/kubernetes v");
    let line = manifest.lines().find(|line| required(line))?;
    line.split_whitespace().find(|word| word.starts_with('v') && word.contains('.'))
}

/// Linker flags: no symbols, the version, which the parts of Kubernetes would otherwise not report, and the release
/// to act as.
fn link_flags(version: &str, emulates: Option<&str>) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let values =
        [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor), ("gitTreeState", "clean")];
    let flags = values.iter().fold("-s -w".to_owned(), |flags, (name, value)| {
        format!("{flags} -X k8s.io/component-base/version.{name}={value}")
    });
    let acts_as = emulates.map(|older| format!(" -X {EMULATED}={older}"));
    flags + &acts_as.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::workspace;

    fn chosen(line: &str) -> Result<(&'static str, String)> {
        let args = line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        Kubernetes::chosen(&args).map(|(kubernetes, rest)| (kubernetes.release, rest.join(" ")))
    }

    #[test]
    fn a_release_is_chosen_and_the_rest_is_handed_on() {
        assert_eq!(chosen("").unwrap(), ("1.36", String::new()));
        assert_eq!(chosen("--nodes 2").unwrap(), ("1.36", "--nodes 2".to_owned()));
        assert_eq!(chosen("--kubernetes 1.34 --nodes 2").unwrap(), ("1.34", "--nodes 2".to_owned()));
        assert_eq!(chosen("--nodes 2 --kubernetes=1.34").unwrap(), ("1.34", "--nodes 2".to_owned()));
        assert_eq!(chosen("--kubernetes-like 1").unwrap(), ("1.36", "--kubernetes-like 1".to_owned()));
    }

    #[test]
    fn a_release_that_is_not_there_is_refused_with_those_that_are() {
        for (line, named) in
            [("--kubernetes 1.32", "1.32"), ("--kubernetes=v1.34.4", "v1.34.4"), ("--kubernetes", "")]
        {
            let error = chosen(line).unwrap_err().to_string();
            let releases = "1.36, 1.36-as-1.34, 1.37, 1.35, 1.34";
            assert_eq!(
                error,
                format!("--kubernetes {named}: there is no such release here, only {releases}")
            );
        }
    }

    #[test]
    fn module_files_hold_what_their_release_says() {
        for kubernetes in &ALL {
            let version = kubernetes.version(&workspace::root().unwrap()).unwrap();
            let (built, emulated) = match kubernetes.release.split_once("-as-") {
                Some((built, older)) => (built, Some(older)),
                None => (kubernetes.release, None),
            };
            assert!(version.starts_with(&format!("v{built}.")), "{kubernetes:?}: {version}");
            assert_eq!(kubernetes.emulates, emulated);
        }
    }

    #[test]
    fn the_clusters_of_a_test_run_cover_both_runtimes() {
        let run = [Kubernetes::default(), Kubernetes::without_resize()];
        assert_eq!(run.map(Kubernetes::runtime), [&containerd::TWO, &containerd::ONE]);
    }

    #[test]
    fn programs_lie_apart() {
        let folders: BTreeSet<_> = ALL.iter().map(|one| Path::new(one.program).parent()).collect();
        assert_eq!(folders.len(), ALL.len());
    }

    #[test]
    fn kubernetes_says_which_version_it_is() {
        let manifest = "require (\n\tk8s.io/kubectl v0.36.3\n\tk8s.io/kubernetes v1.36.3\n)\n";
        let version = required_version(manifest).unwrap();
        let flags = link_flags(version, None);
        assert_eq!(
            flags,
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
             -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 \
             -X k8s.io/component-base/version.gitTreeState=clean"
        );
        assert_eq!(link_flags(version, Some("1.34")), format!("{flags} -X {EMULATED}=1.34"));
        assert_eq!(required_version("require k8s.io/kubernetes v1.34.4\n"), Some("v1.34.4"));
        assert_eq!(required_version("require k8s.io/api v0.36.3\n"), None);
    }
}
