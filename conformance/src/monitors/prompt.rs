//! Chapters 6 and 7: when the receiver must acknowledge.

use super::check::rules;
use super::due::{Due, Dues};
use super::panel::{Make, Monitor, Tally};
use crate::model::{Arrival, Model, Relation, Sighting};

/// Data packets after which an acknowledgment is due.
const PACKETS: u32 = 8;
/// Payload bytes after which one is due.
const BYTES: u64 = 16384;

rules! { "prompt.rs":
    "REL-014" "AR is acknowledged at once" => Make::Monitor(|| at_once("AR", |arrival| arrival.ar, true));
    "REL-015" "EOM is acknowledged at once" => Make::Monitor(|| at_once("EOM", |arrival| arrival.eom, true));
    "REL-016" "eight packets are acknowledged at once" => Make::Monitor(|| at_once("the eighth packet", |arrival| arrival.since_ack >= PACKETS && !arrival.duplicate, false));
    "REL-017" "a gap is acknowledged at once" => Make::Monitor(|| at_once("a gap", |arrival| arrival.opens_gap, true));
    "REL-018" "a duplicate is acknowledged at once" => Make::Monitor(|| at_once("a duplicate", |arrival| arrival.duplicate, true));
    "REL-019" "nothing waits longer than AckDelay" => Make::Monitor(|| Box::<WithinDelay>::default());
    "REL-047" "16384 bytes are acknowledged at once" => Make::Monitor(|| at_once("16384 bytes", |arrival| arrival.bytes_since_ack >= BYTES && !arrival.duplicate, false));
    "ECN-009" "a change of CE is acknowledged at once" => Make::Monitor(|| at_once("a change of CE", |arrival| arrival.mark_changed, true));
}

/// Arrivals that must be acknowledged at once.
struct AtOnce {
    name: &'static str,
    asks: fn(&Arrival) -> bool,
    /// Whether the acknowledgment must be one that knows of the arrival; otherwise any after it will do.
    covering: bool,
    /// Path and number of the arrival.
    dues: Dues<(u8, u64)>,
}

fn at_once(name: &'static str, asks: fn(&Arrival) -> bool, covering: bool) -> Box<dyn Monitor> {
    Box::new(AtOnce {
        name,
        asks,
        covering,
        dues: Dues::default(),
    })
}

/// Whether an arrival asks for anything: those in doubt do not, nor those at the end of a connection.
fn counts(arrival: &Arrival) -> bool {
    !arrival.doubtful && !arrival.ending
}

/// Whether the judged side must still acknowledge.
fn must_acknowledge(model: &Model) -> bool {
    model
        .established()
        .is_some_and(|connection| !connection.closing.has_begun())
}

impl Monitor for AtOnce {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        match &s.relation {
            Relation::DataArrived(arrival) if (self.asks)(arrival) && counts(arrival) => {
                let allowance = model.context.allowance_ns;
                // Whoever does not acknowledge at once does so after AckDelay.
                if let Some(why) = model.too_coarse(model.ack_delay_ns()) {
                    tally.unsure(|| why);
                }
                self.dues.add(Due {
                    key: (arrival.path, arrival.seq),
                    since: s.time,
                    sure: s.time + model.slack_ns(),
                    deadline: s.time + allowance,
                    frames: vec![s.frame],
                    expected: format!(
                        "an acknowledgment for path {} at once after {}",
                        arrival.path, self.name
                    ),
                });
            }
            Relation::AckSent(ack) => {
                // One that is late by now has to be counted before it is met.
                self.dues.expire(s.time, tally, |_| must_acknowledge(model));
                let covering = self.covering;
                self.dues.settle(s.time, s.frame, tally, |(path, seq)| {
                    *path == ack.path && (!covering || ack.may_cover(*seq))
                });
            }
            _ => {}
        }
        self.dues.expire(s.time, tally, |_| must_acknowledge(model));
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        self.dues
            .expire(model.now, tally, |_| must_acknowledge(model));
    }
}

/// Arrivals that nothing asks to acknowledge at once: the timer does.
#[derive(Default)]
struct WithinDelay {
    dues: Dues<(u8, u64)>,
}

impl Monitor for WithinDelay {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        self.dues.expire(s.time, tally, |_| must_acknowledge(model));
        match &s.relation {
            Relation::DataArrived(arrival) if counts(arrival) && !arrival.duplicate => {
                let path = arrival.path;
                let hurried = arrival.ar
                    || arrival.eom
                    || arrival.opens_gap
                    || arrival.mark_changed
                    || arrival.since_ack >= PACKETS
                    || arrival.bytes_since_ack >= BYTES;
                if hurried || self.dues.any(|(other, _)| *other == path) {
                    return;
                }
                let delay = model.ack_delay_ns();
                if let Some(why) = model.too_coarse(delay) {
                    tally.unsure(|| why);
                }
                self.dues.add(Due {
                    key: (path, arrival.seq),
                    since: s.time,
                    sure: s.time + delay + model.slack_ns(),
                    deadline: s.time + delay + model.context.allowance_ns,
                    frames: vec![s.frame],
                    expected: format!("an acknowledgment for path {path} within {delay} ns"),
                });
            }
            Relation::AckSent(ack) => self.dues.settle(s.time, s.frame, tally, |(path, seq)| {
                *path == ack.path && ack.may_cover(*seq)
            }),
            _ => {}
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        self.dues
            .expire(model.now, tally, |_| must_acknowledge(model));
    }
}
