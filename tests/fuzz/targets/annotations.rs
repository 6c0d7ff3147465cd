//! `cargo xtask fuzz annotations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pitstop_fuzz::annotations(input));
