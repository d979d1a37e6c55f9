//! Any bytes, read in every way.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../src/body.rs"]
mod body;

fuzz_target!(|data: &[u8]| body::run(data));
