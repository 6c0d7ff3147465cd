//! The simulator's model of a runtime against the real containerd: the same scripts must give the same results, line by
//! line. `pitstop_sim::conform::runtime` has the scripts and their findings.
//!
//! The requirements are those of `containerd.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test; clippy.toml excepts only functions marked as tests, not their helpers"
)]

mod real;
#[allow(dead_code, unused_imports, reason = "the other tests need more of it")]
mod support;

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use pitstop_cri::keys;
use pitstop_sim::conform::runtime::{Model, Script, run, scripts};
use pitstop_sim::node::keys as model_keys;
use pitstop_sim::node::runtime::Flavor;
use real::Real;
use support::Containerd;
use tokio::runtime::Runtime;

/// Scripts that run side by side: they mostly wait.
const WORKERS: usize = 4;

#[test]
fn the_model_is_as_containerd() {
    let tokio = Runtime::new().unwrap();
    let Some(containerd) = tokio.block_on(Containerd::start()) else { return };
    let version = tokio.block_on(async { containerd.client().version().await }).unwrap();
    let flavor = Flavor::of_containerd(&version.runtime_version);
    let all: Vec<(usize, Script)> = scripts().into_iter().enumerate().collect();
    let (alone, together): (Vec<_>, Vec<_>) = all.iter().partition(|(_, script)| script.alone);

    let differs = |script: &Script, uid: &str| {
        let real = run(script, uid, &mut Real::new(&containerd, tokio.handle().clone()));
        let model = run(script, uid, &mut Model::new(flavor, 1));
        (real != model).then(|| difference(script, &real, &model))
    };
    let differed = Mutex::new(Vec::new());
    let compare = |one: &(usize, Script)| {
        if differs(&one.1, &format!("uid-{}", one.0)).is_some() {
            differed.lock().unwrap().push(one.clone());
        }
    };
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(one) = together.get(next.fetch_add(1, Ordering::Relaxed)) {
                    compare(one);
                }
            });
        }
    });
    alone.into_iter().for_each(compare);

    // On a busy machine, a call may come later than the pauses of a script allow for; a wrong model differs again.
    let differed = differed.into_inner().unwrap();
    let again = differed.iter().filter_map(|(at, script)| differs(script, &format!("uid-{at}-again")));
    let differences: Vec<_> = again.collect();
    println!("{} scripts, {} differed, {} differ again", all.len(), differed.len(), differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_model_has_the_same_keys() {
    let pairs = [
        (keys::POD_NAME, model_keys::POD_NAME),
        (keys::POD_NAMESPACE, model_keys::POD_NAMESPACE),
        (keys::POD_UID, model_keys::POD_UID),
        (keys::CONTAINER_NAME, model_keys::CONTAINER_NAME),
        (keys::RESTART_COUNT, model_keys::RESTART_COUNT),
        (keys::HASH, model_keys::HASH),
        (keys::PRE_STOP_HANDLER, model_keys::PRE_STOP_HANDLER),
        (keys::PORTS, model_keys::PORTS),
        (keys::TERMINATION_GRACE_PERIOD, model_keys::TERMINATION_GRACE_PERIOD),
    ];
    for (real, model) in pairs {
        assert_eq!(real, model);
    }
}

fn difference(script: &Script, real: &[String], model: &[String]) -> String {
    let mut text = format!("=== {}\n", script.name);
    for (real, model) in real.iter().zip(model) {
        let _ = if real == model {
            writeln!(text, "    {real}")
        } else {
            writeln!(text, "  real:  {real}\n  model: {model}")
        };
    }
    text
}
