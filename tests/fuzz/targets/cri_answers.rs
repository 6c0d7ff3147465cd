//! `cargo xtask fuzz cri_answers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pitstop_fuzz::cri_answers(input));
