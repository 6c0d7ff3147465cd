//! Replays every input of the corpora.
#![allow(clippy::unwrap_used, reason = "a test program")]

use std::fs;
use std::path::{Path, PathBuf};

use pitstop_fuzz::TARGETS;

/// Bound: inputs of one target.
const MOST_FILES: usize = 64;
/// Bound: bytes of all corpora.
const MOST_BYTES: u64 = 220_000;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

fn inputs(target: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(corpus(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Replays a corpus. A panic names the property; the line before it names the input.
fn replay(name: &str) {
    let (_, target) = TARGETS.into_iter().find(|(known, _)| *known == name).unwrap();
    let inputs = inputs(name);
    assert!(!inputs.is_empty(), "there is no corpus of {name}");
    target(b"");
    for input in inputs {
        println!("{}", input.display());
        target(&fs::read(&input).unwrap());
    }
}

macro_rules! replayed {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_replayed() {
            let names = [$(stringify!($name)),*];
            assert_eq!(TARGETS.map(|(name, _)| name).as_slice(), names.as_slice());
        }
    };
}

replayed! {
    admission_review annotations cri_answers image_update nodework_spec nodework_status prestop_handler readiness_keys
    recreate_request rollout
}

#[test]
fn the_corpora_are_small() {
    let mut bytes = 0;
    for (name, _) in TARGETS {
        let inputs = inputs(name);
        assert!(inputs.len() <= MOST_FILES, "{name} has {} inputs: minimise them", inputs.len());
        bytes += inputs.iter().map(|input| fs::metadata(input).unwrap().len()).sum::<u64>();
    }
    assert!(bytes <= MOST_BYTES, "the corpora have {bytes} bytes");
}
