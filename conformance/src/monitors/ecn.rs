//! Chapter 7, ECN echo.
//!
//! A wrong count is charged to one clause: that of the packets which explain the difference, or else to that of the count.

use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::Opcode;
use metaroce_wire::serial::Psn;

use super::acks::known;
use super::check::{Found, ack, holds, rules, sent};
use super::panel::Make;
use crate::model::{AckSent, Arrival, Counts, Sighting};

rules! { "ecn.rs":
    "ECN-001" "data is sent as ECT(0)" => Make::Rule(|s, _| sent(s, |cbh| {
        if !cbh.opcode.is_data() { return Found::Skip; }
        holds(s.ecn == Ecn::Ect0, "ECT(0)", || format!("{:?}", s.ecn))
    }));
    "ECN-002" "acknowledgments, NAKs and control are sent as Not-ECT" => Make::Rule(|s, _| sent(s, |cbh| {
        let concerned = cbh.opcode.is_ack() || cbh.opcode == Opcode::NAK || cbh.opcode.is_control();
        if !concerned { return Found::Skip; }
        holds(s.ecn == Ecn::NotEct, "Not-ECT", || format!("{:?}", s.ecn))
    }));
    "ECN-003" "CE_Count counts first arrivals marked CE" => Make::Rule(|s, _| counted(s, Blame::Ce, |counts| counts.ce > 0));
    "ECN-004" "ECT_Count counts first arrivals marked ECT" => Make::Rule(|s, _| counted(s, Blame::Ect, |counts| counts.ect > 0));
    "ECN-005" "duplicates are not counted" => Make::Rule(|s, _| counted(s, Blame::Duplicates, |counts| counts.duplicate_ce + counts.duplicate_ect > 0));
    "ECN-006" "first arrivals with RTX are counted" => Make::Rule(|s, _| counted(s, Blame::Repairs, |counts| counts.rtx_ce + counts.rtx_ect > 0));
    "ECN-007" "Not-ECT is not counted" => Make::Rule(|s, _| counted(s, Blame::NotEct, |counts| counts.not_ect > 0));
    "ECN-008" "counts do not go back" => Make::Rule(|s, _| ack(s, |_, ack| match ack.previous {
        Some(previous) => {
            let falls = |new: u32, old: u32| Psn::new(new).precedes(Psn::new(old));
            let header = &ack.header;
            if falls(header.ce_count, previous.ce) || falls(header.ect_count, previous.ect) {
                Found::BrokenWith(
                    vec![previous.frame],
                    format!("at least {} CE and {} ECT", previous.ce, previous.ect),
                    format!("{} CE and {} ECT", header.ce_count, header.ect_count),
                )
            } else {
                Found::Held
            }
        }
        None => Found::Skip,
    }));
}

/// What a wrong count comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blame {
    Ce,
    Ect,
    Duplicates,
    Repairs,
    NotEct,
}

/// The counts that an acknowledgment can have: those at any arrival that can be its trigger.
fn counted(s: &Sighting<'_>, blame: Blame, exercised: impl Fn(&Counts) -> bool) -> Found {
    ack(s, |_, ack| {
        let Some(arrival) = known(ack) else {
            return Found::Skip;
        };
        let possible = |arrival: &Arrival| {
            (arrival.counts.ce, arrival.counts.ect) == (ack.header.ce_count, ack.header.ect_count)
        };
        if arrival.counts.unsure || ack.triggers.is_empty() {
            return Found::Skip;
        }
        if ack.triggers.iter().any(possible) {
            return if exercised(&arrival.counts) {
                Found::Held
            } else {
                Found::Skip
            };
        }
        if !blames(ack, &arrival.counts).contains(&blame) {
            return Found::Skip;
        }
        let counts = arrival.counts;
        Found::BrokenWith(
            vec![arrival.frame],
            format!("{} CE and {} ECT", counts.ce, counts.ect),
            format!(
                "{} CE and {} ECT",
                ack.header.ce_count, ack.header.ect_count
            ),
        )
    })
}

/// The clauses that a wrong count is charged to.
fn blames(ack: &AckSent, counts: &Counts) -> Vec<Blame> {
    let ce = i64::from(ack.header.ce_count) - i64::from(counts.ce);
    let ect = i64::from(ack.header.ect_count) - i64::from(counts.ect);
    // Whoever counts a kind of packets counts all of them.
    let off = |ce_by: u32, ect_by: u32, sign: i64| {
        (ce_by, ect_by) != (0, 0)
            && (ce, ect) == (sign * i64::from(ce_by), sign * i64::from(ect_by))
    };
    let with_duplicates = off(counts.duplicate_ce, counts.duplicate_ect, 1);
    let without_repairs = off(counts.rtx_ce, counts.rtx_ect, -1);
    let with_not_ect = off(0, counts.not_ect, 1);
    let falls = ack.previous.is_some_and(|previous| {
        Psn::new(ack.header.ce_count).precedes(Psn::new(previous.ce))
            || Psn::new(ack.header.ect_count).precedes(Psn::new(previous.ect))
    });
    // A count of nothing at all leaves out more than retransmissions.
    let nothing = (ce != 0 && ack.header.ce_count == 0) || (ect != 0 && ack.header.ect_count == 0);
    if with_duplicates {
        vec![Blame::Duplicates]
    } else if without_repairs && !falls && !nothing {
        vec![Blame::Repairs]
    } else if with_not_ect {
        vec![Blame::NotEct]
    } else {
        let mut blames = Vec::new();
        if ce != 0 {
            blames.push(Blame::Ce);
        }
        if ect != 0 {
            blames.push(Blame::Ect);
        }
        blames
    }
}
