//! `cargo xtask platforms`: runs the tests on every platform of users that is available here, with the images that
//! users get. For releases: it takes hours. `docs/support.json` keeps the results; `docs/support.md` is generated
//! from it.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::containerd::{self, Containerd};
use crate::image::{self, Built};
use crate::kubernetes::{Kubernetes, Platform};
use crate::older::{self, Older};
use crate::progress::{Step, note};
use crate::sh::Cmd;
use crate::support::{self, Record};
use crate::test::{Driver, Tally, a_few, downgraded, newcomer, on_cgroup2, on_platform, with_systemd};
use crate::{arm64, cgroup2, debian, demo, helm, lab, machine};

/// Kubernetes and the runtimes of the nodes.
const CLUSTERS: [(&str, &Containerd); 6] = [
    ("1.36", &containerd::TWO),
    ("1.36", &containerd::ONE),
    ("1.36-as-1.34", &containerd::ONE),
    ("1.37", &containerd::TWO),
    ("1.35", &containerd::TWO),
    ("1.34", &containerd::ONE),
];
/// Clusters in a machine with cgroup v2, each with its default runtime.
const CLUSTERS_ON_CGROUP2: [(&str, Driver); 3] =
    [("1.36", Driver::Cgroupfs), ("1.36", Driver::Systemd), ("1.36-as-1.34", Driver::Systemd)];
/// The daemon alone in such a machine.
const CGROUP2: &str = "cgroup2";
/// The demo, and the first pages that README names.
const DEMO: &str = "demo";
/// The programs for arm64, which are emulated.
const ARM64: &str = "arm64";
/// The daemon and a container runtime in such a machine with systemd.
const SYSTEMD: &str = "cgroup2+systemd";
/// Tests of platforms that cannot run all tests: with and without the resize API.
const A_FEW: &str = "tests/e2e, one of each mechanism";
const A_FEW_WITHOUT_RESIZE: &str = "tests/e2e, a restart and a resize by the daemon";

/// The machine with cgroup v2.
const MACHINE: &str = "Debian's kernel in qemu";

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only write docs/support.md from what is recorded.
    #[arg(long, conflicts_with = "platforms")]
    page: bool,
    /// Only these platforms, such as `1.36+containerd-2`.
    #[arg(value_name = "PLATFORM")]
    platforms: Vec<String>,
}

/// A platform, and what runs on it.
#[derive(Clone, Copy, Debug)]
enum Setup {
    Cluster(Platform),
    /// The default cluster, with two versions of pitstop side by side.
    Beside(Older),
    /// The same, one after the other.
    Downgrade,
    /// The cluster of `make demo`.
    Demo,
    ClusterOnCgroup2(Platform, Driver),
    Cgroup2,
    Systemd,
    Arm64,
}

/// The command. The last line counts the platforms on which all tests passed.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    if args.page {
        support::generate(root, false)?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = chosen(&args.platforms)?;
    let commit = commit(root)?;
    let images = if chosen.iter().any(|setup| setup.has_cluster()) { prepared(root)? } else { Vec::new() };
    let mut good = 0;
    for setup in &chosen {
        let step = Step::begin(format!("the tests on {}", setup.name()));
        // A platform that cannot run does not keep others from running.
        let tally = setup.test(root, &images).unwrap_or_else(|error| {
            note(format!("{error:#}"));
            Tally { failed: 1, ..Tally::default() }
        });
        step.done();
        note(format!("{}: {tally}", setup.name()));
        good += usize::from(tally.failed == 0);
        match &commit {
            Some(commit) => {
                if let Err(error) = setup.record(root, &tally, commit).and_then(|r| support::add(root, r)) {
                    note(format!("not recorded: {error:#}"));
                }
            }
            None => note("not recorded: the checkout has changes that are not committed"),
        }
    }
    println!("platforms={} good={good}", chosen.len());
    Ok(if good == chosen.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prepares for tests on a cluster, and builds the images.
fn prepared(root: &Path) -> Result<Vec<Built>> {
    lab::require()?;
    debian::ensure(&["jq"], "the tests on a cluster")?;
    helm::build(root)?;
    image::build(root, false)
}

/// The cluster that commands start by default.
fn usual() -> Setup {
    Setup::Cluster(Kubernetes::default().into())
}

fn all() -> Result<Vec<Setup>> {
    let named =
        |release| Kubernetes::named(release).with_context(|| format!("there is no Kubernetes {release}"));
    let cluster = |(release, runtime)| Ok(Setup::Cluster(Platform { kubernetes: named(release)?, runtime }));
    let on_cgroup2 = |(release, driver)| Ok(Setup::ClusterOnCgroup2(named(release)?.into(), driver));
    CLUSTERS
        .into_iter()
        .map(cluster)
        .chain([Older::Controller, Older::Daemon].map(|older| Ok(Setup::Beside(older))))
        .chain([Ok(Setup::Downgrade), Ok(Setup::Demo)])
        .chain(CLUSTERS_ON_CGROUP2.map(on_cgroup2))
        .chain([Ok(Setup::Cgroup2), Ok(Setup::Systemd), Ok(Setup::Arm64)])
        .collect()
}

fn chosen(asked: &[String]) -> Result<Vec<Setup>> {
    let all = all()?;
    if let Some(unknown) = asked.iter().find(|name| all.iter().all(|setup| setup.name() != **name)) {
        let known = all.iter().map(|setup| setup.name()).collect::<Vec<_>>().join(", ");
        bail!("there is no platform {unknown:?}; there are {known}");
    }
    Ok(all.into_iter().filter(|setup| asked.is_empty() || asked.contains(&setup.name())).collect())
}

/// The tested commit. None if files other than the record have uncommitted changes.
fn commit(root: &Path) -> Result<Option<String>> {
    let git = |args: &[&str]| Cmd::new("git").args(args).dir(root).read();
    let changes = git(&["status", "--porcelain", "--", ":!docs/support.json", ":!docs/support.md"])?;
    if !changes.trim().is_empty() {
        return Ok(None);
    }
    Ok(Some(git(&["rev-parse", "--short=8", "HEAD"])?.trim().to_owned()))
}

impl Setup {
    fn has_cluster(self) -> bool {
        match self {
            Self::Cluster(_)
            | Self::Beside(_)
            | Self::Downgrade
            | Self::Demo
            | Self::ClusterOnCgroup2(..) => true,
            Self::Cgroup2 | Self::Systemd | Self::Arm64 => false,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Cluster(platform) => platform.name(),
            Self::Beside(older) => format!("{}+older-{}", usual().name(), older.name()),
            Self::Downgrade => format!("{}+downgrade", usual().name()),
            Self::Demo => DEMO.to_owned(),
            Self::ClusterOnCgroup2(platform, Driver::Cgroupfs) => format!("{}+{CGROUP2}", platform.name()),
            Self::ClusterOnCgroup2(platform, Driver::Systemd) => format!("{}+{SYSTEMD}", platform.name()),
            Self::Cgroup2 => CGROUP2.to_owned(),
            Self::Systemd => SYSTEMD.to_owned(),
            Self::Arm64 => ARM64.to_owned(),
        }
    }

    fn test(self, root: &Path, images: &[Built]) -> Result<Tally> {
        if matches!(self, Self::ClusterOnCgroup2(..) | Self::Cgroup2 | Self::Systemd) {
            machine::require(root)?;
        }
        match self {
            Self::Cluster(platform) => Ok(on_platform(root, platform, images)),
            Self::Beside(older) => {
                let both = older.among(root, images)?;
                image::name_in_deploy(root, &both)?;
                let tally = a_few(root, Kubernetes::default().into(), &both);
                image::name_in_deploy(root, images)?;
                Ok(tally)
            }
            Self::Downgrade => {
                let checkout = older::checkout(root)?;
                let both = [images, &older::built(&checkout, images)?].concat();
                Ok(downgraded(root, Kubernetes::default().into(), checkout, &both))
            }
            Self::Demo => demonstrated(root),
            Self::ClusterOnCgroup2(platform, driver) => on_cgroup2(root, platform, driver, images),
            Self::Cgroup2 => cgroup2::check(root).map(tally),
            Self::Systemd => with_systemd(root),
            Self::Arm64 => arm64::check(root).map(tally),
        }
    }

    /// The record of a run.
    fn record(self, root: &Path, tally: &Tally, commit: &str) -> Result<Record> {
        Ok(Record {
            platform: self.name(),
            versions: self.versions(root)?,
            tests: self.tests().to_owned(),
            passed: tally.passed,
            failed: tally.failed,
            date: Cmd::new("date").arg("+%F").read()?.trim().to_owned(),
            commit: commit.to_owned(),
        })
    }

    /// Description of its tests.
    fn tests(self) -> &'static str {
        match self {
            Self::Cluster(Platform { kubernetes, .. }) => {
                match (kubernetes.resizes(), kubernetes.mutates()) {
                    (true, true) => "tests/e2e, all but `cri`",
                    (true, false) => A_FEW,
                    (false, _) => "tests/e2e, `cri`",
                }
            }
            Self::ClusterOnCgroup2(Platform { kubernetes, .. }, _) if !kubernetes.resizes() => {
                A_FEW_WITHOUT_RESIZE
            }
            Self::Beside(_) | Self::ClusterOnCgroup2(..) => A_FEW,
            Self::Downgrade => "tests/e2e, `older`: this version, the older one, this one",
            Self::Demo => "`make demo`, then the first pages of the documentation on its cluster",
            Self::Cgroup2 => "reads and writes of the daemon",
            Self::Systemd => "the daemon with a container runtime: resizes",
            Self::Arm64 => "the three programs, the daemon with a container runtime",
        }
    }

    /// Versions of its parts.
    fn versions(self, root: &Path) -> Result<String> {
        let usual = Kubernetes::default().into();
        let runtime = || anyhow::Ok(format!("containerd {}, {}", containerd::ONE.version(root)?, runc()?));
        Ok(match self {
            Self::Cluster(platform) => versions(root, platform)?,
            Self::Beside(older) => {
                format!("{}, the {} of commit {}", versions(root, usual)?, older.name(), older::COMMIT)
            }
            Self::Downgrade => {
                format!("{}, both programs of commit {}", versions(root, usual)?, older::COMMIT)
            }
            Self::Demo => versions(root, usual)?,
            Self::ClusterOnCgroup2(platform, Driver::Cgroupfs) => {
                format!("{}, {MACHINE}", versions(root, platform)?)
            }
            Self::ClusterOnCgroup2(platform, Driver::Systemd) => {
                format!("{}, {MACHINE}, {}", versions(root, platform)?, systemd()?)
            }
            Self::Cgroup2 => format!("{MACHINE}, no kubelet"),
            Self::Systemd => format!("{MACHINE}, {}, {}", systemd()?, runtime()?),
            Self::Arm64 => format!("Linux on amd64 with qemu-user, {}", runtime()?),
        })
    }
}

/// Steps of a new user: the demo, and the commands of the first pages on its cluster.
fn demonstrated(root: &Path) -> Result<Tally> {
    // Start fresh: the demo would use a running cluster.
    demo::down(root)?;
    let result = demo::run(root).map(|()| newcomer(root, Kubernetes::default().into()));
    demo::down(root)?;
    result
}

fn tally(cgroup2::Count { passed, failed }: cgroup2::Count) -> Tally {
    Tally { passed, failed, ..Tally::default() }
}

/// Versions of a cluster's parts.
fn versions(root: &Path, Platform { kubernetes, runtime }: Platform) -> Result<String> {
    Ok(format!(
        "Kubernetes {}, containerd {}, {}",
        kubernetes.version(root)?,
        runtime.version(root)?,
        runc()?
    ))
}

/// `runc 1.1.5+ds1`
fn runc() -> Result<String> {
    let text = Cmd::new("runc").arg("--version").read()?;
    let first = text.lines().next().context("runc says no version")?;
    Ok(first.replace(" version ", " "))
}

/// `systemd 252`
fn systemd() -> Result<String> {
    let text = Cmd::new("systemctl").arg("--version").read()?;
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    Ok(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(asked: &[&str]) -> Result<Vec<String>> {
        let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
        Ok(chosen(&asked)?.into_iter().map(Setup::name).collect())
    }

    #[test]
    fn platforms_are_chosen_by_their_names() {
        assert_eq!(names(&[]).unwrap().len(), CLUSTERS.len() + CLUSTERS_ON_CGROUP2.len() + 7);
        assert_eq!(names(&["cgroup2", "1.34+containerd-1"]).unwrap(), ["1.34+containerd-1", "cgroup2"]);
        let error = names(&["1.2"]).unwrap_err().to_string();
        assert!(error.starts_with("there is no platform \"1.2\"; there are 1.36+containerd-2, "), "{error}");
    }

    #[test]
    fn every_release_and_every_runtime_is_a_platform() {
        for kubernetes in &crate::kubernetes::ALL {
            let release = kubernetes.release();
            let usual =
                CLUSTERS.iter().any(|(name, runtime)| *name == release && *runtime == kubernetes.runtime());
            assert!(usual, "{release} with {}", kubernetes.runtime().name());
        }
    }
}
