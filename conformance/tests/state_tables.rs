//! The state tables of the specification against the steps that the reference endpoint can take.

#![cfg(feature = "reference")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::BTreeSet;

use metaroce_conformance::pics::{Pics, REFERENCE};
use metaroce_endpoint::core::steps;
use metaroce_spec::{StateTable, states};

/// A step: table, state before, event, state after.
type Step = (String, String, String, String);

/// The steps of the specification that an endpoint with these features has to have, and those that it may have.
fn specified(tables: &[StateTable], features: &[String]) -> (BTreeSet<Step>, BTreeSet<Step>) {
    let (mut owed, mut allowed) = (BTreeSet::new(), BTreeSet::new());
    for table in tables {
        for step in &table.transitions {
            let name = |text: &String| text.clone();
            let it = (
                name(&table.name),
                name(&step.from),
                name(&step.on),
                name(&step.to),
            );
            if step.requires.iter().all(|f| features.contains(f)) {
                owed.insert(it.clone());
            }
            allowed.insert(it);
        }
    }
    (owed, allowed)
}

/// What the endpoint lacks, and what it has beyond the specification.
fn differences(tables: &[StateTable], features: &[String]) -> (Vec<Step>, Vec<Step>) {
    let own = |text: &str| text.to_owned();
    let taken: BTreeSet<Step> = steps()
        .into_iter()
        .map(|s| (own(s.table), own(s.from), own(s.on), own(s.to)))
        .collect();
    let (owed, allowed) = specified(tables, features);
    (
        owed.difference(&taken).cloned().collect(),
        taken.difference(&allowed).cloned().collect(),
    )
}

fn offered() -> Vec<String> {
    Pics::parse("pics/reference.yaml", REFERENCE)
        .unwrap()
        .features
}

#[test]
fn the_reference_takes_the_steps_of_the_specification_and_no_others() {
    let (missing, foreign) = differences(&states().unwrap(), &offered());
    assert_eq!((missing, foreign), (vec![], vec![]));
}

#[test]
fn a_step_that_one_side_lacks_is_noticed() {
    for table in 0..3 {
        let mut fewer = states().unwrap();
        let always = |s: &metaroce_spec::Transition| s.requires.is_empty();
        let at = fewer[table].transitions.iter().position(always).unwrap();
        let gone = fewer[table].transitions.remove(at);
        let (missing, foreign) = differences(&fewer, &offered());
        assert!(missing.is_empty() && foreign.len() == 1, "{foreign:?}");
        assert_eq!(foreign[0].2, gone.on);

        let mut other = states().unwrap();
        other[table].transitions[at].on = "miracle".to_owned();
        let (missing, foreign) = differences(&other, &offered());
        assert_eq!((missing.len(), foreign.len()), (1, 1));
    }
    // A feature that is offered makes its steps owed: without them they would be missed.
    for (feature, table) in [("retire", "path"), ("reset", "stream")] {
        let (with, _) = specified(&states().unwrap(), &[feature.to_owned()]);
        let (without, _) = specified(&states().unwrap(), &[]);
        let by = |steps: &BTreeSet<Step>| steps.iter().filter(|step| step.0 == table).count();
        assert!(by(&with) > by(&without), "{feature}");
    }
    // The reference takes them all, whatever a run claims.
    let all = ["retire", "reset"].map(str::to_owned);
    assert_eq!(differences(&states().unwrap(), &all), (vec![], vec![]));
}
