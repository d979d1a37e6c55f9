//! Every pattern of losses and delays of the first packets of a short exchange.

use crate::net::Chosen;
use crate::plan::{MS, Plan};
use crate::run::play;
use crate::world::take_notes;

/// Packets of which every subset is tried.
const WIDE: u64 = 9;

/// Tries all subsets of `wide` packets from the `first`-th on.
fn every_subset(first: u64, wide: u64, held: u64) {
    for bits in 0..1 << wide {
        let mut plan = Plan::short();
        plan.link.chosen = Some(Chosen { first, bits, held });
        if let Err(what) = play(plan, None) {
            take_notes().iter().for_each(|line| println!("{line}"));
            panic!("packets {bits:#b} from {first} on, held {held}: {what}");
        }
    }
}

#[test]
fn any_packets_of_the_set_up_are_lost() {
    // With one more all eight attempts at a request could be gone.
    every_subset(0, 7, 0);
    every_subset(3, 7, 0);
}

#[test]
fn any_packets_of_the_exchange_are_lost() {
    every_subset(6, WIDE, 0);
    every_subset(6 + WIDE, WIDE, 0);
    every_subset(6 + 2 * WIDE, WIDE, 0);
}

#[test]
fn any_packets_come_late() {
    for first in [0, 6, 6 + WIDE, 6 + 2 * WIDE] {
        every_subset(first, WIDE, 3 * MS);
        every_subset(first, WIDE, 200 * MS);
    }
}
