//! `cargo xtask fuzz recreate_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pitstop_fuzz::recreate_request(input));
