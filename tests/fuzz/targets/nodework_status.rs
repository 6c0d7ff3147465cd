//! `cargo xtask fuzz nodework_status`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pitstop_fuzz::nodework_status(input));
