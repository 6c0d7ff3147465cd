//! `cargo xtask fuzz nodework_spec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pitstop_fuzz::nodework_spec(input));
