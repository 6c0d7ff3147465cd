//! `cargo xtask fuzz rollout`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pitstop_fuzz::rollout(input));
