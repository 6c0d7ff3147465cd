//! `cargo xtask test`: every test, those on a real cluster included. The last line counts them.

mod e2e;
mod emulated;
mod tally;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};

use self::e2e::Part;
pub(crate) use self::emulated::Driver;
pub(crate) use self::tally::Tally;
use self::tally::{CargoCount, Count, GoCount};
use crate::cluster::Cluster;
use crate::image::Built;
use crate::kubernetes::{Kubernetes, Platform};
use crate::progress::{Step, note};
use crate::sh::Cmd;
use crate::workspace::is_ci;
use crate::{
    attacks, cgroup2, chaos, cluster, containerd, debian, fuzz, helm, image, lab, machine, priority,
    promtool, sim,
};

/// Options of `cargo xtask chaos` in every test run.
const CHAOS_MINUTES: u64 = 3;
const CHAOS_SEED: u64 = 6;

/// The tests use images that are built faster: the same sources, and two minutes less for two processors. The demo
/// and `cargo xtask platforms` run the images that users get.
const DEV: bool = true;

/// Niceness of builds ahead of time: lower priority than the tests of the crates.
const AHEAD: u8 = 5;
/// Niceness of computing suites: lower priority than the clusters, whose tests take longest.
const COMPUTING: u8 = 15;

/// The command. All suites that can run do, even after failures. The last line is the count.
pub(crate) fn run(root: &Path) -> ExitCode {
    let mut total = Tally::default();
    // Tests of the crates use the container runtime too. Suites report missing requirements themselves. Installs now,
    // since no two suites may install at the same time.
    let all = [
        cluster::install_packages(),
        fuzz::require(),
        machine::require(root),
        promtool::require(root),
        helm::build(root),
    ];
    for installed in all {
        if let Err(error) = installed {
            note(format!("{error:#}"));
        }
    }
    // Linking, builds of single crates, and tests that wait leave a processor idle. Computing suites use what is left.
    std::thread::scope(|scope| {
        let computing = scope.spawn(|| computing(root));
        std::thread::scope(|scope| {
            scope.spawn(|| ahead(root));
            suite(&mut total, "tests of the crates", || crates(root));
        });
        on_clusters(root, &mut total);
        match computing.join() {
            Ok(tally) => total.add(tally),
            Err(_) => total.broke("computing suites"),
        }
    });
    for failure in &total.failures {
        note(format!("failed: {failure}"));
    }
    println!("{total}");
    if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds what the first cluster needs. Its suite reports what does not build.
fn ahead(root: &Path) {
    if lab::require().is_ok() {
        priority::stand_back(AHEAD);
        let built = build(root, Kubernetes::default()).and_then(|()| image::build(root, DEV));
        if let Err(error) = built {
            note(format!("{error:#}"));
        }
    }
}

/// Builds what a cluster of the tests needs.
fn build(root: &Path, kubernetes: &Kubernetes) -> Result<()> {
    cluster::build(root, kubernetes, kubernetes.runtime())
}

fn computing(root: &Path) -> Tally {
    priority::stand_back(COMPUTING);
    let mut total = Tally::default();
    suite(&mut total, "campaign of the simulator and of the models", || campaign(root));
    // Builds the programs of the last suites on clusters in time. Not sooner: only one build runs at a time, and the
    // first clusters would wait for this low priority.
    if lab::require().is_ok() {
        let program = |name| lab::program(root, name).map(drop);
        let built = build(root, Kubernetes::without_resize())
            .and_then(|()| program(attacks::PROGRAM))
            .and_then(|()| program(chaos::PROGRAM));
        if let Err(error) = built {
            note(format!("{error:#}"));
        }
    }
    // The emulated machine often waits, so the other suites run beside it.
    std::thread::scope(|scope| {
        let emulated = scope.spawn(|| {
            let mut total = Tally::default();
            suite(&mut total, "a real cgroup v2", || in_machine(root));
            suite(&mut total, "a real systemd", || with_systemd(root));
            total
        });
        suite(&mut total, "planted bugs", || planted(root));
        suite(&mut total, "fuzz targets", || fuzzed(root));
        match emulated.join() {
            Ok(tally) => total.add(tally),
            Err(_) => total.broke("what runs in an emulated machine"),
        }
    });
    total
}

fn on_clusters(root: &Path, total: &mut Tally) {
    suite(total, "tests of the cluster's own code", || module(root));
    suite(total, "tests of the crates that use a container runtime, with containerd 2", || {
        on_containerd_2(root)
    });
    let mut images = Vec::new();
    suite(total, "what the clusters need", || {
        if let Some(skipped) = skipped(lab::require())? {
            return Ok(skipped);
        }
        // Tests run commands of the documentation that need jq.
        debian::ensure(&["jq"], "the tests on a cluster")?;
        images = image::build(root, DEV)?;
        Ok(Tally::default())
    });
    if images.is_empty() {
        return;
    }
    let with_resize = e2e::with_resize(Kubernetes::default().into());
    let without = e2e::without_resize(Kubernetes::without_resize().into());
    let images = &images;
    let rest: [OnCluster<'_>; 3] = [
        (without.name, Box::new(|cluster| without.run(cluster, images))),
        (
            "kills during a stream of requests",
            Box::new(|cluster| one_test(chaos::on_cluster(cluster, images, CHAOS_MINUTES, CHAOS_SEED))),
        ),
        ("attacks on a real cluster", Box::new(|cluster| one_test(attacks::on_cluster(cluster, images)))),
    ];
    // The longest first.
    side_by_side(root, total, runs(&with_resize, images).chain(rest));
}

/// Name of a suite, and its run on a cluster.
type OnCluster<'a> = (&'a str, Box<dyn FnOnce(Cluster<'_>) -> Result<Tally> + Send + 'a>);

/// Runs suites on several clusters, each as soon as a cluster is free. Most tests on a cluster wait, and many need it
/// for themselves.
fn side_by_side<'a>(root: &Path, total: &mut Tally, suites: impl IntoIterator<Item = OnCluster<'a>>) {
    let queue = Mutex::new(suites.into_iter().collect::<VecDeque<_>>());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let run = |cluster: Cluster<'_>| {
        let mut total = Tally::default();
        while let Some((name, run)) = next() {
            suite(&mut total, name, || run(cluster));
        }
        total
    };
    std::thread::scope(|scope| {
        let running = Cluster::side_by_side(root).map(|cluster| scope.spawn(move || run(cluster)));
        for one in running {
            match one.join() {
                Ok(tally) => total.add(tally),
                Err(_) => total.broke("what runs on one of the clusters"),
            }
        }
    });
}

/// The tests of `tests/e2e` for a platform, on its clusters.
pub(crate) fn on_platform(root: &Path, platform: Platform, images: &[Built]) -> Tally {
    let mut total = Tally::default();
    if !platform.kubernetes.resizes() {
        let part = e2e::without_resize(platform);
        suite(&mut total, part.name, || part.run(Cluster::of(root), images));
        return total;
    }
    // Many other tests need `MutatingAdmissionPolicy`.
    if !platform.kubernetes.mutates() {
        return a_few(root, platform, images);
    }
    side_by_side(root, &mut total, runs(&e2e::with_resize(platform), images));
    total
}

/// The suites of those parts.
fn runs<'a>(parts: &'a [Part], images: &'a [Built]) -> impl Iterator<Item = OnCluster<'a>> {
    parts.iter().map(|part| -> OnCluster<'_> { (part.name, Box::new(|cluster| part.run(cluster, images))) })
}

/// One test of `tests/e2e` for each way in which pitstop changes a container.
pub(crate) fn a_few(root: &Path, platform: Platform, images: &[Built]) -> Tally {
    let mut total = Tally::default();
    let part = e2e::a_few(platform);
    suite(&mut total, part.name, || part.run(Cluster::of(root), images));
    total
}

/// A downgrade to the older version of that checkout, and the upgrade back. `images` includes its images.
pub(crate) fn downgraded(root: &Path, platform: Platform, checkout: PathBuf, images: &[Built]) -> Tally {
    let mut total = Tally::default();
    let part = e2e::older(platform, checkout);
    suite(&mut total, part.name, || part.run(Cluster::of(root), images));
    total
}

/// The commands of the first pages, on the running cluster.
pub(crate) fn newcomer(root: &Path, platform: Platform) -> Tally {
    let mut total = Tally::default();
    let part = e2e::newcomer(platform);
    suite(&mut total, part.name, || part.go(Cluster::of(root)));
    total
}

/// A few tests of `tests/e2e` on a cluster with cgroup v2, in an emulated machine: twenty times as slow as this one.
pub(crate) fn on_cgroup2(root: &Path, platform: Platform, driver: Driver, images: &[Built]) -> Result<Tally> {
    if driver == Driver::Systemd {
        debian::ensure(&["systemd"], "a node whose control groups systemd makes")?;
    }
    build(root, platform.kubernetes)?;
    emulated::on_a_cluster(root, platform, driver, images)
}

/// The daemon's own tests of resizes, with cgroups that systemd makes.
pub(crate) fn with_systemd(root: &Path) -> Result<Tally> {
    if let Some(skipped) = skipped(machine::require(root))? {
        return Ok(skipped);
    }
    debian::ensure(&["containerd", "runc", "systemd", "util-linux"], "the daemon's tests beside systemd")?;
    emulated::with_systemd(root)
}

/// Runs one suite. A suite that cannot run is one failure with its name.
fn suite(total: &mut Tally, name: &str, run: impl FnOnce() -> Result<Tally>) {
    let step = Step::begin(name);
    match run() {
        Ok(mut tally) => {
            note(tally.to_string());
            if tally.failed > 0 && tally.failures.is_empty() {
                tally.failures.push(format!("{} of {name}", tally.failed));
            }
            total.add(tally);
        }
        Err(error) => {
            note(format!("{name}: {error:#}"));
            total.broke(name);
        }
    }
    step.done();
}

/// Arguments for every test of the crates.
const CRATES: [&str; 6] = ["test", "--locked", "--no-fail-fast", "--workspace", "--exclude", "pitstop-e2e"];

fn crates(root: &Path) -> Result<Tally> {
    counted(cargo_test(root).args(CRATES), CargoCount::default())
}

/// Runs some of them: `tests` are arguments of `cargo test`, `env` environment variables.
pub(crate) fn some_of_crates(root: &Path, tests: &[&str], env: &[(&str, &OsStr)]) -> Result<Tally> {
    let command = cargo_test(root).args(CRATES).args(tests);
    counted(
        env.iter().fold(command, |command, (name, value)| command.env(name, value)),
        CargoCount::default(),
    )
}

/// Tests of the crates that start a container runtime, to run again. They take it from the `PATH`, which usually has
/// Debian's.
const ON_A_RUNTIME: [&[&str]; 2] = [
    &["--test", "containerd", "--test", "conformance", "--test", "program"],
    &["--lib", "--", "containerd_tests", "disk::tests", "search"],
];

fn on_containerd_2(root: &Path) -> Result<Tally> {
    if let Some(skipped) = skipped(lab::require())? {
        return Ok(skipped);
    }
    let path = containerd::TWO.on_path(root)?;
    let mut total = Tally::default();
    for tests in ON_A_RUNTIME {
        total.add(some_of_crates(root, tests, &[("PATH", &path)])?);
    }
    Ok(total)
}

/// The long runs of the simulator and of the models.
fn campaign(root: &Path) -> Result<Tally> {
    counted(sim::campaign(root)?.env("CARGO_TERM_COLOR", "never"), CargoCount::default())
}

/// Each planted bug is a test: does the simulator find it?
fn planted(root: &Path) -> Result<Tally> {
    let sim::Count { found, missed } = sim::look_for_planted(root)?;
    let mut tally = Tally { passed: found, ..Tally::default() };
    for bug in missed {
        tally.broke(bug);
    }
    Ok(tally)
}

/// Each fuzz target is a test: does it run for its time without a crash?
fn fuzzed(root: &Path) -> Result<Tally> {
    if let Some(skipped) = skipped(fuzz::require())? {
        return Ok(skipped);
    }
    let count = fuzz::look_for_crashes(root)?;
    let passed = count.targets.saturating_sub(count.crashes);
    Ok(Tally { passed, failed: count.crashes, ..Tally::default() })
}

/// Each check in the machine with cgroup v2 is a test.
fn in_machine(root: &Path) -> Result<Tally> {
    if let Some(skipped) = skipped(machine::require(root))? {
        return Ok(skipped);
    }
    let cgroup2::Count { passed, failed } = cgroup2::check(root)?;
    Ok(Tally { passed, failed, ..Tally::default() })
}

fn module(root: &Path) -> Result<Tally> {
    if let Some(skipped) = skipped(cluster::require_go())? {
        return Ok(skipped);
    }
    // Without vet, which `cargo xtask check` runs: for tests, it would read all of Kubernetes again.
    let tests = Kubernetes::default().go(root, "test").args(["-vet=off", "-v", "./..."]);
    counted(tests, GoCount::default())
}

/// A run with one result is one test.
fn one_test(good: Result<bool>) -> Result<Tally> {
    let good = good?;
    Ok(Tally { passed: u64::from(good), failed: u64::from(!good), ..Tally::default() })
}

/// If a requirement is missing: one skipped test, but an error in continuous integration.
fn skipped(requirement: Result<()>) -> Result<Option<Tally>> {
    match requirement {
        Ok(()) => Ok(None),
        Err(error) if is_ci() => Err(error),
        Err(error) => {
            note(format!("skipped: {error:#}"));
            Ok(Some(Tally { skipped: 1, ..Tally::default() }))
        }
    }
}

/// Cargo, with output without colors.
fn cargo_test(root: &Path) -> Cmd {
    Cmd::cargo().dir(root).env("CARGO_TERM_COLOR", "never")
}

/// Runs a test runner, passes its lines through and counts.
fn counted(command: Cmd, mut count: impl Count) -> Result<Tally> {
    // Locked for a line at a time: another suite may run beside this one.
    let stdout = std::io::stdout();
    let mut written = Ok(());
    let status = command.each_line(|line| {
        let Some(line) = line else { return };
        count.line(String::from_utf8_lossy(line).trim_end());
        if written.is_ok() {
            let mut stdout = stdout.lock();
            written = stdout.write_all(line).and_then(|()| stdout.flush());
        }
    })?;
    written.context("cannot write to standard output")?;
    Ok(count.end(status.success()))
}
