//! `cargo xtask fuzz prestop_handler`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pitstop_fuzz::prestop_handler(input));
