//! Scenarios, run and judged as `metaroce run` does it: link, trace, monitors, verdicts, each from the files of the one
//! before.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use metaroce_conformance::run::{Plan, run};
use metaroce_conformance::scenario::{Loaded, Scenario};
use metaroce_reports::{Conduct, Finding, TestResult, Verdict};

use crate::draw;

/// Scenarios of one run: their seeds divided by this are the seed of the run. What a test does depends on its scenario and
/// on that seed alone, so that each can be run by itself.
pub const BATCH: u64 = 16;

/// Runs the scenarios of some seeds of one batch, with the reference on both sides, or with a mutant of it on either in
/// turn, and judges what is under test. With `SIM_KEEP` the evidence stays in that folder.
pub fn play(seeds: Range<u64>, mutant: Option<&str>) -> Vec<TestResult> {
    let batch = seeds.start / BATCH;
    assert!(
        seeds.end <= (batch + 1) * BATCH,
        "{seeds:?} is more than a batch"
    );
    let texts = seeds.clone().map(draw::scenario).collect();
    match std::env::var_os("SIM_KEEP") {
        Some(keep) => {
            let folder = Path::new(&keep).join(seeds.start.to_string());
            judged(texts, batch, mutant, &folder)
        }
        None => judged(texts, batch, mutant, tempfile::tempdir().unwrap().path()),
    }
}

/// Runs scenarios under a seed and judges them.
pub fn judged(
    texts: Vec<String>,
    seed: u64,
    mutant: Option<&str>,
    folder: &Path,
) -> Vec<TestResult> {
    static REFERENCE: OnceLock<Plan> = OnceLock::new();
    let load = |text: String| {
        let scenario = Scenario::parse("drawn", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        Loaded { scenario, text }
    };
    let reference = REFERENCE.get_or_init(|| Plan {
        scenarios: Vec::new(),
        ..Plan::reference().unwrap()
    });
    let plan = Plan {
        seed,
        mutant: mutant.map(str::to_owned),
        scenarios: texts.into_iter().map(load).collect(),
        ..reference.clone()
    };
    run(&plan, folder, &mut |_, _, _| {}).unwrap().tests
}

/// The seed in the name of a test.
pub fn seed_of(test: &TestResult) -> u64 {
    let name = test.id.strip_prefix("random-").unwrap();
    let digits = name.split('.').next().unwrap();
    digits.parse().unwrap()
}

/// The seeds, batch by batch.
pub fn batches(seeds: Range<u64>) -> Vec<Range<u64>> {
    let whole = |batch: u64| batch * BATCH..(batch + 1) * BATCH;
    let clip = |batch: Range<u64>| batch.start.max(seeds.start)..batch.end.min(seeds.end);
    (seeds.start / BATCH..seeds.end.div_ceil(BATCH))
        .map(|batch| clip(whole(batch)))
        .collect()
}

/// Calls `work` for each item, on `SIM_THREADS` threads (2 by default), and `take` for each result in no order.
pub fn each<I: Sync, T: Send>(items: &[I], work: impl Fn(&I) -> T + Sync, mut take: impl FnMut(T)) {
    let threads = std::env::var("SIM_THREADS").map_or(2, |n| n.parse().unwrap());
    let next = AtomicU64::new(0);
    let (sender, results) = channel();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(item) = items.get(n) else { return };
                    if sender.send(work(item)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        results.into_iter().for_each(&mut take);
    });
}

/// The seeds of `SIM_SEEDS`, such as `0..100000`; `otherwise` without it.
pub fn seeds(otherwise: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("SIM_SEEDS") else {
        return otherwise;
    };
    let (first, end) = text.split_once("..").expect("SIM_SEEDS is from..to");
    first.parse().unwrap()..end.parse().unwrap()
}

/// The findings that are failures.
pub fn failures(test: &TestResult) -> impl Iterator<Item = &Finding> {
    let failed = |finding: &&Finding| finding.verdict == Verdict::Fail;
    test.findings.iter().filter(failed)
}

/// What is wrong with a run of sound parties; nothing when it is sound and no clause was violated.
pub fn wrong(test: &TestResult) -> Option<String> {
    let mut text = String::new();
    for finding in failures(test) {
        for violation in finding.violations.iter().take(3) {
            text += &format!(
                "  {} fails: {} expected, {} seen, frames {:?}\n",
                finding.clause, violation.expected, violation.seen, violation.frames
            );
        }
    }
    if test.conduct != Conduct::Sound {
        let reason = test.reason.as_deref().unwrap_or("no reason");
        text += &format!("  the run is {:?}: {reason}\n", test.conduct);
    }
    (!text.is_empty()).then_some(text)
}
