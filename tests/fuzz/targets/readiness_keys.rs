//! `cargo xtask fuzz readiness_keys`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pitstop_fuzz::readiness_keys(input));
