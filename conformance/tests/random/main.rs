//! Random scenarios in simulated time, judged by all monitors: the reference on both sides, drawn from seeds as paths,
//! streams, windows, work, times, and what the link does.
//!
//! `cargo test -p metaroce-conformance --test random` runs a fixed set of seeds. For long hunts:
//!
//! - `SIM_SEEDS=from..to` runs these seeds instead: `SIM_SEEDS=0..100000 cargo test --release -p metaroce-conformance --test random seeds`
//! - `SIM_THREADS=n` runs on `n` threads, 2 by default
//! - `SIM_KEEP=folder` keeps the evidence of each seed there, as `metaroce analyze` reads it
//!
//! A failure shows the seed, the scenario as YAML, and what was violated. What was found stands in `regressions.rs`.

#![cfg(feature = "reference")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step is a failed test"
)]

mod chance;
mod draw;
mod faults;
mod mutants;
mod regressions;
mod run;
mod sums;

use std::ops::Range;

use run::{batches, each, play, seed_of, seeds, wrong};
use sums::Sums;

/// Seeds of the test without `SIM_SEEDS`.
const SEEDS: Range<u64> = 0..320;

/// Clauses that have to pass in some run of those seeds: all that have a monitor, but for some that need a tester or luck.
const EXERCISED: usize = 134;

#[test]
fn seeds_pass_every_monitor() {
    let seeds = seeds(SEEDS);
    assert!(!seeds.is_empty(), "SIM_SEEDS names no seed");
    let mut sums = Sums::new();
    let mut bad = Vec::new();
    each(
        &batches(seeds.clone()),
        |batch| play(batch.clone(), None),
        |tests| {
            for test in &tests {
                sums.add(test);
                if let Some(what) = wrong(test) {
                    println!("seed {}:\n{what}", seed_of(test));
                    bad.push(seed_of(test));
                }
            }
        },
    );
    println!("{}", sums.summary());
    if let Some(seed) = bad.iter().min() {
        panic!(
            "{} of {seeds:?} are bad: {bad:?}\nrun one alone: SIM_SEEDS={seed}..{}\n{}",
            bad.len(),
            seed + 1,
            draw::scenario(*seed)
        );
    }
    let exercised = sums.exercised();
    assert!(
        seeds != SEEDS || exercised >= EXERCISED,
        "{exercised} clauses are exercised"
    );
}

/// The digest of a declaration covers those of the capture and of the events.
#[test]
fn the_same_seed_gives_the_same_bytes() {
    let digests = |seeds: Range<u64>| {
        let digest = |test: &metaroce_reports::TestResult| test.declaration_sha256.clone().unwrap();
        play(seeds, None).iter().map(digest).collect::<Vec<_>>()
    };
    let together = digests(16..20);
    let alone: Vec<String> = (16..20).flat_map(|seed| digests(seed..seed + 1)).collect();
    assert_eq!(together, alone);
    let all: std::collections::BTreeSet<&String> = together.iter().collect();
    assert_eq!(all.len(), together.len(), "seeds differ");
}
