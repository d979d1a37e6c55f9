//! The judge is not blind under random schedules: mutants of the reference run over the same scenarios, and most are noticed
//! by the clause that they break.

use std::collections::BTreeSet;
use std::ops::Range;

use metaroce_endpoint::mutants::{self, MutantInfo};

use crate::run::{each, failures, play, seed_of};

/// Mutants that break their rule only towards packets that no honest peer sends, or that no link makes of them: a
/// scripted tester is needed for those.
const UNSEEN: &[&str] = &[
    "answers-unknown",
    "believes-anything",
    "believes-bit-zero",
    "believes-other-epoch",
    "duplicate-placed",
    "failed-path-flushed",
    "nak-with-psn",
    "reject-wrong-nonce",
    "silent-on-excess",
    "silent-on-refusal",
    "takes-other-connection",
    "takes-other-epoch",
    "takes-other-version",
    "takes-reserved-bits",
    "wrong-excess",
    "wrong-flush",
    "wrong-refusal",
];

/// Seeds under which a mutant runs until it is noticed: most are by the first few.
const SEEDS: [Range<u64>; 6] = [0..2, 2..5, 5..16, 16..32, 32..48, 48..64];

/// What the runs of one mutant have shown.
struct Noticed {
    id: &'static str,
    /// The first seed under which its own clause failed.
    by: Option<u64>,
    /// Clauses that failed besides and that nobody had declared.
    besides: BTreeSet<String>,
}

fn hunt(info: &MutantInfo) -> Noticed {
    let mut noticed = Noticed {
        id: info.id,
        by: None,
        besides: BTreeSet::new(),
    };
    for seeds in SEEDS {
        for test in play(seeds, Some(info.id)) {
            for finding in failures(&test) {
                let clause = finding.clause.as_str();
                if clause == info.clause {
                    noticed.by.get_or_insert(seed_of(&test));
                } else if !info.declared.contains(&clause) {
                    noticed.besides.insert(clause.to_owned());
                }
            }
        }
        if noticed.by.is_some() {
            break;
        }
    }
    noticed
}

#[test]
fn mutants_are_noticed_under_random_schedules() {
    let with_unseen = std::env::var_os("SIM_UNSEEN").is_some();
    let all: Vec<_> = mutants::all()
        .filter(|info| with_unseen || !UNSEEN.contains(&info.id))
        .collect();
    let mut noticed = Vec::new();
    each(&all, |info| hunt(info), |one| noticed.push(one));
    noticed.sort_by_key(|one| (one.by, one.id));
    let missed = noticed.iter().filter(|one| one.by.is_none());
    let missed: Vec<&str> = missed.map(|one| one.id).collect();
    println!(
        "{} of {} mutants are noticed",
        all.len() - missed.len(),
        mutants::all().count()
    );
    for one in &noticed {
        println!(
            "{:24} by seed {:?}, besides {:?}",
            one.id, one.by, one.besides
        );
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
    for id in UNSEEN {
        assert!(mutants::by_id(id).is_some(), "there is no mutant {id}");
    }
}
