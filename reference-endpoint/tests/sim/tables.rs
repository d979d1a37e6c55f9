//! The state tables of the core, walked through as a whole.

use std::collections::{BTreeMap, BTreeSet};

use metaroce_endpoint::core::{Step, steps};

/// Where each machine starts, and the states in which it can be left for good.
const MACHINES: [(&str, &str, &[&str]); 3] = [
    ("connection", "none", &["none"]),
    ("path", "open", &["open", "failed", "resting"]),
    ("stream", "none", &["none", "ended", "void"]),
];

fn of(table: &str) -> Vec<Step> {
    steps()
        .into_iter()
        .filter(|step| step.table == table)
        .collect()
}

/// All that can be reached from `start`.
fn reached<'a>(steps: &'a [Step], start: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::from([start]);
    let mut todo = vec![start];
    while let Some(state) = todo.pop() {
        for step in steps.iter().filter(|step| step.from == state) {
            if seen.insert(step.to) {
                todo.push(step.to);
            }
        }
    }
    seen
}

#[test]
fn every_state_is_reached_and_none_is_a_trap() {
    let named: BTreeSet<&str> = steps().iter().map(|step| step.table).collect();
    assert_eq!(named, MACHINES.iter().map(|m| m.0).collect());
    for (table, start, ends) in MACHINES {
        let steps = of(table);
        let states: BTreeSet<&str> = steps.iter().flat_map(|step| [step.from, step.to]).collect();
        assert_eq!(
            reached(&steps, start),
            states,
            "{table}: a state that is never reached"
        );
        for state in &states {
            let end = reached(&steps, state)
                .iter()
                .any(|state| ends.contains(state));
            assert!(end, "{table}: no end is reached from {state}");
            let leaves = steps.iter().any(|step| step.from == *state);
            assert!(
                leaves || ends.contains(state),
                "{table}: {state} is a dead end"
            );
        }
    }
}

/// A path that is exhausted is retired or fails, by what else there is; nothing else depends on a condition.
#[test]
fn an_event_leads_from_a_state_to_one_other() {
    let mut next = BTreeMap::<_, Vec<_>>::new();
    for step in steps() {
        let to = next.entry((step.table, step.from, step.on)).or_default();
        to.push(step.to);
    }
    let several: Vec<_> = next.iter().filter(|(_, to)| to.len() > 1).collect();
    assert_eq!(
        several,
        [
            (&("path", "open", "exhausted"), &vec!["failed", "retiring"]),
            (
                &("path", "probing", "exhausted"),
                &vec!["failed", "retiring"]
            ),
        ]
    );
}

/// Whatever the order of the events, a machine that is over stays over.
#[test]
fn what_is_over_stays_over() {
    let connection = of("connection");
    for over in ["closed", "failed"] {
        let from: Vec<&str> = connection
            .iter()
            .filter(|s| s.from == over)
            .map(|s| s.to)
            .collect();
        assert_eq!(from, ["none"], "a connection that is {over}");
    }
    for (table, over) in [("stream", "ended"), ("stream", "void"), ("path", "failed")] {
        assert!(
            of(table).iter().all(|step| step.from != over),
            "{table} {over}"
        );
    }
}
