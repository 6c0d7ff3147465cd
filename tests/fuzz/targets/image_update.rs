//! `cargo xtask fuzz image_update`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pitstop_fuzz::image_update(input));
