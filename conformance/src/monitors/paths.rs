//! Chapter 5, paths and spraying.

use std::collections::BTreeMap;

use metaroce_wire::metaroce::Body;

use super::check::{Found, data, holds, new_data, note, rules};
use super::conventions::Silence;
use super::panel::{Make, Monitor, Tally};
use crate::model::{Connection, Model, Relation, Sighting, SuspectClass};

/// New packets in a row on one path, and new packets before its first acknowledgment.
const FIRST_WINDOW: u64 = 16;
/// Time for which a path must have been silent to count as such, ns.
const SILENCE: u64 = 50_000_000;
/// Time within which something new must be sent on another path, ns.
const MOVING: u64 = 50_000_000;

rules! { "paths.rs":
    "PATH-001" "data is sent on paths that exist, at epoch 0" => Make::Rule(|s, model| data(s, |cbh, _| match model.connection(s) {
        Some(connection) => holds(
            u16::from(cbh.path) < connection.agreed.paths && cbh.epoch == 0,
            format!("a path below {}, epoch 0", connection.agreed.paths),
            || format!("path {}, epoch {}", cbh.path, cbh.epoch),
        ),
        None => Found::Skip,
    }));
    "PATH-002" "no two paths share a source port" => Make::Rule(|s, model| data(s, |cbh, _| {
        let Some(connection) = model.connection(s) else { return Found::Skip };
        let mut others = connection.out.iter().filter(|(path, _)| **path != cbh.path).peekable();
        if others.peek().is_none() { return Found::Skip; }
        let port = s.src.port();
        match others.find(|(_, other)| other.port == Some(port)) {
            None => Found::Held,
            Some((path, other)) => {
                let frames = other.last_stamp.map(|(_, frame, _)| frame).into_iter().collect();
                Found::BrokenWith(frames, format!("another source port than path {path}"), format!("port {port} on path {}", cbh.path))
            }
        }
    }));
    "PATH-003" "a retransmission leaves from the path's port" => Make::Monitor(|| Box::<RepairPort>::default());
    "PATH-004" "a probe leaves from the port of its path's data" => Make::Monitor(|| Box::<ProbePorts>::default());
    "PATH-005" "every path is used" => Make::Rule(|s, model| new_data(s, |_, _| {
        let Some(connection) = model.connection(s) else { return Found::Skip };
        let paths = u64::from(connection.agreed.paths);
        if paths < 2 || connection.new_packets != FIRST_WINDOW * paths { return Found::Skip; }
        let used = connection.out.values().filter(|path| path.new_packets > 0).count() as u64;
        holds(used == paths, format!("{paths} paths used after {} new packets", FIRST_WINDOW * paths), || format!("{used} paths"))
    }));
    "PATH-006" "no long run on one path while others have room" => Make::Monitor(|| Box::<Runs>::default());
    "PATH-007" "the source port of data does not matter" => Make::Monitor(|| Box::<AnyPort>::default());
    "PATH-008" "data on no path is not acknowledged" => Make::Monitor(|| Box::new(Silence::unacknowledged(SuspectClass::NoPath)));
    "PATH-009" "a silent path does not stop the others" => Make::Monitor(|| Box::<GoesOn>::default());
    "PATH-010" "at most 16 new packets before the first acknowledgment" => Make::Rule(|s, _| new_data(s, |cbh, data| {
        if data.heard || data.new_packets < FIRST_WINDOW { return Found::Skip; }
        holds(data.new_packets <= FIRST_WINDOW, "at most 16 new packets", || format!("number {} on path {}", data.new_packets, cbh.path))
    }));
}

/// Probes from another port than that of the data before them: the next data packet of the path tells whether the path has
/// changed its port.
#[derive(Default)]
struct ProbePorts {
    /// By connection and path: frame and port of the probe.
    odd: BTreeMap<(u32, u8), (u64, u16)>,
}

impl Monitor for ProbePorts {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let (true, Some(cbh)) = (s.sent, s.cbh) else {
            return;
        };
        let key = (cbh.dcid.value(), cbh.path);
        let here = s.src.port();
        if let Some(Body::PathProbe(_)) = s.body {
            let path = model.connection(s).and_then(|c| c.out.get(&cbh.path));
            match path.and_then(|path| path.port) {
                Some(port) if port == here => tally.held(),
                Some(_) => {
                    self.odd.entry(key).or_insert((s.frame, here));
                }
                None => {}
            }
        } else if cbh.opcode.is_data()
            && let Some((frame, port)) = self.odd.remove(&key)
        {
            if port == here {
                tally.held();
            } else {
                let expected = format!("a probe from port {here}, as the data after it");
                tally.broken(vec![frame, s.frame], expected, format!("port {port}"));
            }
        }
    }
}

/// Retransmissions from another port than the latest new packet's, until it shows whether the path has moved.
#[derive(Default)]
struct RepairPort {
    /// By path: the port that the path had, the one seen, and the frame.
    open: BTreeMap<u8, (u16, u16, u64)>,
}

impl Monitor for RepairPort {
    fn sighting(&mut self, s: &Sighting<'_>, _: &Model, tally: &mut Tally) {
        let Relation::DataSent(data) = &s.relation else {
            return;
        };
        let port = s.src.port();
        // A path that goes on from its old port had not changed it.
        if let Some((old, odd, frame)) = self.open.remove(&data.path) {
            if port == old {
                let expected = format!("source port {old}");
                tally.broken(vec![frame, s.frame], expected, format!("port {odd}"));
            } else {
                tally.held();
            }
        }
        if data.before.is_none() {
            return;
        }
        match data.port_of_new {
            Some(new) if new == port => tally.held(),
            Some(new) => {
                self.open.insert(data.path, (new, port, s.frame));
            }
            None => {}
        }
    }
}

/// New packets in a row on one path of several.
#[derive(Default)]
struct Runs {
    path: Option<u8>,
    length: u64,
    first: u64,
}

impl Monitor for Runs {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let found = new_data(s, |cbh, _| {
            let Some(connection) = model.connection(s).filter(|c| c.agreed.paths > 1) else {
                return Found::Skip;
            };
            if self.path != Some(cbh.path) {
                let ended = self.path.is_some();
                (self.path, self.length, self.first) = (Some(cbh.path), 1, s.frame);
                return if ended { Found::Held } else { Found::Skip };
            }
            self.length += 1;
            if self.length <= FIRST_WINDOW {
                return Found::Skip;
            }
            let idle = (0..connection.agreed.paths)
                .filter_map(|path| u8::try_from(path).ok())
                .filter(|path| *path != cbh.path)
                .find(|path| has_room(connection, *path, model, s.time));
            match idle {
                Some(path) => Found::BrokenWith(
                    vec![self.first],
                    "at most 16 new packets in a row".into(),
                    format!(
                        "{} on path {}, path {path} has nothing under way",
                        self.length, cbh.path
                    ),
                ),
                None => Found::Skip,
            }
        });
        note(tally, s.frame, found);
    }
}

/// Whether a path has surely room in its window: nothing is under way on it, and the sender knows. A window that was cut
/// may be below one packet, so that the next one has to wait, and a path with marks is the last to be chosen.
fn has_room(connection: &Connection, path: u8, model: &Model, now: u64) -> bool {
    connection.out.get(&path).is_none_or(|path| {
        let known = path.heard.is_none_or(|heard| model.knows(heard, now));
        path.outstanding == 0 && !path.cut && known
    })
}

/// Data that arrives from another port than the one with which its path began.
#[derive(Default)]
struct AnyPort {
    open: Vec<(u8, u64, u64)>,
}

impl Monitor for AnyPort {
    fn sighting(&mut self, s: &Sighting<'_>, _: &Model, tally: &mut Tally) {
        match &s.relation {
            Relation::DataArrived(arrival)
                if arrival.other_port
                    && !arrival.duplicate
                    && !arrival.doubtful
                    && !arrival.ending
                    && self.open.len() < 4096 =>
            {
                self.open.push((arrival.path, arrival.seq, s.frame));
            }
            Relation::AckSent(ack) => {
                let omitted = &ack.omitted;
                let mut open = std::mem::take(&mut self.open);
                open.retain(|(path, seq, frame)| {
                    if *path != ack.path || !ack.covers(*seq) {
                        return true;
                    }
                    if omitted.is_empty() {
                        tally.held();
                    } else {
                        let seen = format!("PSN {} is missing", omitted[0]);
                        let expected = "data from another source port reported";
                        tally.broken(vec![*frame, s.frame], expected, seen);
                    }
                    false
                });
                self.open = open;
            }
            _ => {}
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        let ended = model
            .established()
            .is_none_or(|connection| connection.closing.has_begun());
        // Without any acknowledgment after it, it was not accepted.
        if !ended && model.now > 0 {
            for (path, _, frame) in self.open.iter().take(4) {
                let seen = format!("no acknowledgment for path {path}");
                tally.broken(vec![*frame], "data from another source port reported", seen);
            }
        }
    }
}

/// With one path silent and another free, new packets go on.
#[derive(Default)]
struct GoesOn {
    /// Since when the judged side could send and has not, with the frame of the oldest packet of the silent path.
    idle: Option<(u64, u64)>,
    told: bool,
}

impl GoesOn {
    /// The frame of the oldest packet on a silent path while another one is free and work waits.
    fn stalled(model: &Model, now: u64) -> Option<u64> {
        let connection = model.established()?;
        if connection.closing.has_begun() || connection.agreed.paths < 2 {
            return None;
        }
        let silent = connection.out.values().find_map(|path| {
            let oldest = path.unreported().next()?;
            let quiet = now.saturating_sub(path.heard.unwrap_or(0)) > SILENCE;
            let old = now.saturating_sub(oldest.last_time) > SILENCE / 2;
            (quiet && (old || oldest.transmissions > 1)).then_some(oldest.first_frame)
        })?;
        let paths = || connection.out.values();
        let free = paths().any(|path| path.outstanding == 0 && path.heard.is_some() && !path.cut);
        // The window of the connection is no smaller than those of its paths that were never cut.
        let cut = paths().filter(|path| path.cut).count() as u64;
        let window = FIRST_WINDOW * u64::from(connection.agreed.paths).saturating_sub(cut);
        let under_way: u64 = paths().map(|path| u64::from(path.outstanding)).sum();
        let lets = free && under_way < window;
        (lets && has_work(model, connection)).then_some(silent)
    }
}

/// Whether the judged side has posted work that it could begin or go on with.
fn has_work(model: &Model, connection: &Connection) -> bool {
    let window = u64::from(connection.agreed.msg_window);
    model.context.facts.streams(model.side()).any(|(id, work)| {
        let Some(stream) = connection.streams.get(&id).filter(|s| s.open.is_some()) else {
            return false;
        };
        if let Some(last) = stream.last_begun
            && let Some(message) = stream.out.get(&last)
            && message.sent.len() < message.packets
        {
            return true;
        }
        let next = stream.last_begun.map_or(0, |last| last + 1);
        let posted = usize::try_from(next).ok().and_then(|next| work.get(next));
        posted.is_some_and(|posted| {
            let write = posted.kind == crate::evidence::WorkKind::Write;
            write && posted.t_ns <= model.now && next < stream.lowest_open + window
        })
    })
}

impl Monitor for GoesOn {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let patience = MOVING + model.context.allowance_ns;
        let new = matches!(&s.relation, Relation::DataSent(data) if data.before.is_none());
        if let Some((since, frame)) = self.idle
            && !self.told
            && s.time.saturating_sub(since) > patience
        {
            self.told = true;
            let seen = format!("nothing new in {} ns", s.time - since);
            let expected = "new packets on the paths that are acknowledged";
            tally.broken(vec![frame, s.frame], expected, seen);
        }
        if new {
            // A new packet while a path is silent shows that the others go on.
            if self.idle.take().is_some() || Self::silent(model, s.time) {
                tally.held();
            }
            self.told = false;
        }
        match (Self::stalled(model, s.time), self.idle) {
            (None, _) => (self.idle, self.told) = (None, false),
            (Some(frame), None) => self.idle = Some((s.time, frame)),
            _ => {}
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        let patience = MOVING + model.context.allowance_ns;
        if let Some((since, frame)) = self.idle
            && !self.told
            && model.now.saturating_sub(since) > patience
            && Self::stalled(model, model.now).is_some()
        {
            let expected = "new packets on the paths that are acknowledged";
            tally.broken(
                vec![frame],
                expected,
                format!("nothing new in {} ns", model.now - since),
            );
        }
    }
}

impl GoesOn {
    /// Whether a path is silent while others may be used.
    fn silent(model: &Model, now: u64) -> bool {
        model.established().is_some_and(|connection| {
            connection.agreed.paths > 1
                && connection.out.values().any(|path| {
                    let oldest = path.unreported().next();
                    oldest.is_some_and(|oldest| now.saturating_sub(oldest.last_time) > SILENCE / 2)
                })
        })
    }
}
