//! `cargo xtask fuzz admission_review`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pitstop_fuzz::admission_review(input));
