//! The core in simulated time: thousands of seeded runs with random operations over links that do everything a network
//! does, against an oracle that knows every byte.
//!
//! `cargo test -p metaroce-endpoint --test sim` runs a fixed set of seeds. For long hunts:
//!
//! - `SIM_SEEDS=from..to` runs these seeds instead: `SIM_SEEDS=0..100000 cargo test -p metaroce-endpoint --test sim seeds`
//! - `SIM_THREADS=n` runs on `n` threads, 2 by default
//! - `SIM_TRACE=1` shows all that happens, which is for a single seed
//!
//! A failure shows the seed, what was planned and the latest that has happened.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step is a failed test"
)]

mod app;
mod chance;
mod draw;
mod ending;
mod every;
mod mutants;
mod net;
mod oracle;
mod plan;
mod receives;
mod regressions;
mod run;
mod shadow;
mod tables;
mod watch;
mod words;
mod work;
mod world;
