//! `cargo xtask fuzz container_ids`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pitstop_fuzz::container_ids(input));
