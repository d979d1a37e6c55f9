//! Chapter 6, reliability: probes and timeouts of the sender.

use std::collections::BTreeMap;

use metaroce_wire::metaroce::Body;

use super::check::{Found, rules};
use super::panel::{Make, Monitor, Tally};
use super::repair::{LEAST_RTO, again, by_timeout, is_reaction};
use crate::model::{Model, Relation, Sighting};

/// Largest retransmission timeout, ns.
const MOST_RTO: u64 = 2_000_000_000;
/// First retransmission timeout, ns: a probe is due after half of it before the first sample.
const FIRST_RTO: u64 = 100_000_000;
/// Shortest wait for a probe, ns.
const LEAST_PROBE: u64 = 2_000_000;
/// By how much a sender's timer may be ahead of its clock, ns: packets of one instant bear timestamps of their own, each one
/// nanosecond after the other.
const AHEAD: u64 = 1_000;
/// Retransmissions that follow one another by less belong to one timeout, ns.
const BURST: u64 = 1_000_000;

rules! { "timeouts.rs":
    "REL-035" "a probe comes before a timeout" => Make::Rule(|s, _| again(s, |_, before, data| {
        if before.reported.is_some() || !by_timeout(data) || data.proof.idle_ns < LEAST_RTO { return Found::Skip; }
        if data.proof.probed { return Found::Held; }
        Found::BrokenWith(
            vec![before.last_frame],
            format!("a PATH_PROBE on path {} before it", data.path),
            format!("PSN {} again after a timeout without", data.psn),
        )
    }));
    "REL-041" "no timeout within 10 ms" => Make::Rule(|s, model| again(s, |_, before, data| {
        // What follows on an arrival, or a transmission, is no timeout.
        if before.reported.is_some() || !by_timeout(data) || is_reaction(s, model, data) { return Found::Skip; }
        // A minimum is strict, but for how exactly the tap can measure it.
        if model.slack_ns() >= LEAST_RTO { return Found::Skip; }
        if data.proof.idle_ns + model.slack_ns() >= LEAST_RTO { return Found::Held; }
        Found::BrokenWith(
            vec![before.last_frame],
            format!("nothing again on path {} within {LEAST_RTO} ns", data.path),
            format!("PSN {} again after {} ns", data.psn, data.proof.idle_ns),
        )
    }));
    "REL-042" "what stays unacknowledged is sent again" => Make::Monitor(|| Box::<Timeouts>::default());
    "REL-043" "timeouts in a row back off" => Make::Monitor(|| Box::<BackOff>::default());
    "REL-048" "a probe comes in time" => Make::Monitor(|| Box::<ProbeInTime>::default());
}

/// Paths that wait for a timeout.
#[derive(Default)]
struct Timeouts {
    /// Paths for which the lack has been told.
    told: BTreeMap<u8, u64>,
}

impl Timeouts {
    fn look(&mut self, model: &Model, now: u64, tally: &mut Tally) {
        let Some(connection) = model.established() else {
            return;
        };
        if connection.closing.has_begun() {
            return;
        }
        for (id, path) in &connection.out {
            let since = path.active_at(false);
            if path.outstanding == 0 || now <= since + MOST_RTO + model.context.allowance_ns {
                continue;
            }
            if self.told.insert(*id, since) != Some(since) {
                let frame = path
                    .unreported()
                    .next()
                    .map_or(0, |packet| packet.last_frame);
                let expected = format!("a retransmission on path {id} within {MOST_RTO} ns");
                tally.broken(
                    vec![frame],
                    expected,
                    format!("nothing in {} ns", now - since),
                );
            }
        }
    }
}

impl Monitor for Timeouts {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        if let Relation::DataSent(data) = &s.relation
            && let Some(before) = &data.before
            && before.reported.is_none()
            && by_timeout(data)
            && data.proof.idle_ns >= LEAST_RTO
        {
            let waited = data.proof.idle_ns;
            if waited <= MOST_RTO + model.slack_ns() {
                tally.held();
            } else if waited <= MOST_RTO + model.context.allowance_ns {
                tally.met();
                tally.unsure(|| {
                    format!("a timeout came after {waited} ns instead of {MOST_RTO}, and the machine may have held it up")
                });
            }
        }
        self.look(model, s.time, tally);
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        self.look(model, model.now, tally);
    }
}

/// The pauses between timeouts in a row, by path.
#[derive(Default)]
struct BackOff {
    /// When the latest timeout came, in which frame, and the pause before it.
    last: BTreeMap<u8, (u64, u64, Option<u64>)>,
}

impl Monitor for BackOff {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        match &s.relation {
            Relation::AckArrived(ack) if ack.fault.is_none() => {
                self.last.remove(&ack.path);
            }
            Relation::DataSent(data) if data.before.is_some() => {
                let slack = model.slack_ns();
                let last = self.last.get(&data.path).copied();
                if last.is_some_and(|(then, ..)| s.time - then <= BURST + slack) {
                    return;
                }
                if !by_timeout(data) || is_reaction(s, model, data) {
                    // It may have been a timeout or not: the pauses before and after it cannot be told.
                    self.last.remove(&data.path);
                    return;
                }
                let Some((then, frame, pause)) = last else {
                    self.last.insert(data.path, (s.time, s.frame, None));
                    return;
                };
                let waited = s.time - then;
                self.last.insert(data.path, (s.time, s.frame, Some(waited)));
                // The first pause in a row cannot be told from the time before it: two in a row are compared.
                let Some(pause) = pause else { return };
                // A party that waited for its turn made the one before longer.
                let uncertain = 2 * model.context.allowance_ns + 3 * slack;
                let least = (2 * pause).min(MOST_RTO).saturating_sub(uncertain);
                if waited >= least {
                    tally.held();
                } else {
                    let expected = format!(
                        "at least {least} ns before the next timeout on path {}",
                        data.path
                    );
                    tally.broken(vec![frame, s.frame], expected, format!("{waited} ns"));
                }
            }
            _ => {}
        }
    }
}

/// Paths with packets under way that must ask in time.
#[derive(Default)]
struct ProbeInTime {
    /// By path: the longest round trip seen, ns.
    trips: BTreeMap<u8, u64>,
    told: BTreeMap<u8, u64>,
}

impl ProbeInTime {
    /// An upper bound of the time until a probe is due: the smoothed round trip is no longer than the longest one.
    fn wait(&self, model: &Model, path: u8) -> u64 {
        let peer = model
            .established()
            .map_or(0, |connection| u64::from(connection.peer.ack_delay) * 1000);
        match self.trips.get(&path) {
            Some(trip) => (2 * trip + peer).max(LEAST_PROBE),
            None => FIRST_RTO / 2,
        }
    }

    fn look(&mut self, model: &Model, now: u64, tally: &mut Tally) {
        let Some(connection) = model.established() else {
            return;
        };
        if connection.closing.has_begun() {
            return;
        }
        for (id, path) in &connection.out {
            // A timeout backs the probe off; only the first wait is judged.
            let since = path.active_at(false);
            let asked = path.probed_at.is_some_and(|at| at >= since);
            let wait = self.wait(model, *id) + AHEAD + model.context.allowance_ns;
            if path.outstanding == 0 || path.timeouts > 0 || asked || now <= since + wait {
                continue;
            }
            if self.told.insert(*id, since) != Some(since) {
                let frame = path
                    .unreported()
                    .next()
                    .map_or(0, |packet| packet.last_frame);
                let expected = format!("a PATH_PROBE on path {id} within {wait} ns");
                tally.broken(vec![frame], expected, format!("none in {} ns", now - since));
            }
        }
    }
}

impl Monitor for ProbeInTime {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        match (&s.relation, s.body, s.cbh) {
            (Relation::AckArrived(ack), ..) if ack.fault.is_none() => {
                let path = model.connection(s).and_then(|c| c.out.get(&ack.path));
                let sent = ack.newly.iter().filter_map(|psn| path?.packet(*psn));
                // From the last transmission of the latest packet: the sender may take any that is newly reported. An
                // acknowledgment that comes late echoes an earlier transmission.
                let trips = sent.map(|packet| s.time - packet.last_time);
                if let Some(trip) = trips.chain(ack.trip_ns).max() {
                    let longest = self.trips.entry(ack.path).or_default();
                    *longest = trip.max(*longest);
                }
            }
            (_, Some(Body::PathProbe(_)), Some(cbh)) if s.sent => {
                let path = model.connection(s).and_then(|c| c.out.get(&cbh.path));
                if let Some(path) = path.filter(|path| path.outstanding > 0 && path.timeouts == 0) {
                    let since = path.active_at(false);
                    let wait = self.wait(model, cbh.path) + AHEAD;
                    if s.time <= since + wait + model.slack_ns() {
                        tally.held();
                    } else if s.time <= since + wait + model.context.allowance_ns {
                        tally.met();
                        tally.unsure(|| {
                            let waited = s.time - since;
                            format!("a PATH_PROBE came after {waited} ns instead of {wait}, and the machine may have held it up")
                        });
                    }
                }
            }
            _ => {}
        }
        self.look(model, s.time, tally);
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        self.look(model, model.now, tally);
    }
}
