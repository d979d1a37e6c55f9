//! Chapter 4, streams: opening them, credit, and what is refused.

use metaroce_wire::metaroce::{Body, Cbh, Features, NakCode, NakScope, Opcode};
use metaroce_wire::serial::{Psn, Rqsn};

use super::check::{Found, ack, holds, message, rules, sent};
use super::conventions::{PATIENCE, Silence};
use super::due::{Due, Dues};
use super::panel::{Make, Monitor, Tally};
use crate::model::{Model, Relation, Sighting, Suspect, SuspectClass};

/// Time within which a sender that lacks credit must have asked for some, besides the allowance, ns.
const ASKING_TIME: u64 = 1_000_000_000;

rules! { "streams.rs":
    "STRM-001" "the initiator opens even streams, the acceptor odd ones" => Make::Rule(|s, model| sent(s, |_| match (s.body, model.connection(s)) {
        (Some(Body::StreamOpen(open)), Some(connection)) => {
            let (rest, name) = if connection.initiator { (0, "an even") } else { (1, "an odd") };
            holds(open.stream % 2 == rest, format!("{name} stream id"), || format!("stream {}", open.stream))
        }
        _ => Found::Skip,
    }));
    "STRM-002" "STREAM_OPEN_ACK echoes transaction id, stream and first numbers" => Make::Rule(|s, model| sent(s, |cbh| stream_echo(s, cbh, model)));
    "STRM-003" "no data before its stream is open" => Make::Rule(|s, model| {
        let Relation::DataSent(data) = &s.relation else { return Found::Skip };
        let (Some((msgh, _)), Some(connection)) = (s.headers(), model.connection(s)) else { return Found::Skip };
        if data.message.is_some_and(|message| !message.begins) || data.before.is_some() { return Found::Skip; }
        let open = connection.streams.get(&msgh.stream).is_some_and(|stream| stream.open.is_some());
        holds(open, "STREAM_OPEN_ACK with status 0 before it", || format!("data on stream {} without", msgh.stream))
    });
    "STRM-004" "data of a stream that is not open is not acknowledged" => Make::Monitor(|| Box::new(Silence::unacknowledged(SuspectClass::NoStream)));
    "STRM-010" "no Send without credit" => Make::Rule(|s, _| message(s, |cbh, data, message| {
        let Some((msgh, ..)) = s.message().filter(|_| cbh.opcode.consumes_receive() && data.before.is_none()) else { return Found::Skip };
        match message.limit {
            Some(limit) => holds(msgh.rqsn.precedes(Rqsn::new(limit)), format!("an RQSN before the RqLimit {limit}"), || format!("RQSN {}", msgh.rqsn)),
            None => Found::Broken("a reported RqLimit".into(), "none".into()),
        }
    }));
    "STRM-029" "a question for credit is answered" => Make::Monitor(|| Box::<CreditTold>::default());
    "STRM-030" "a sender without credit asks for it" => Make::Monitor(|| Box::<CreditAsked>::default());
    "STRM-031" "RqLimit does not go back" => Make::Monitor(|| Box::<Limits>::default());
    "STRM-033" "what is refused is not reported as arrived" => Make::Monitor(|| Box::<RefusedUnreported>::default());
    "STRM-034" "an access that is not allowed draws REM_ACCESS" => Make::Monitor(|| Box::new(Refusals::new(SuspectClass::AccessDenied, NakCode::REM_ACCESS, "REM_ACCESS")));
    "STRM-035" "a Send that is too long draws LENGTH" => Make::Monitor(|| Box::new(Refusals::new(SuspectClass::TooLong, NakCode::LENGTH, "LENGTH")));
}

fn stream_echo(s: &Sighting<'_>, cbh: &Cbh, model: &Model) -> Found {
    let Some(Body::StreamOpenAck(answer)) = s.body else {
        return Found::Skip;
    };
    let transaction = cbh.psn.value();
    let asked = model
        .control
        .find(false, Opcode::STREAM_OPEN, transaction)
        .and_then(|control| control.read().body);
    match asked {
        Some(Body::StreamOpen(open)) => {
            let expected = (open.stream, open.first_msn, open.first_rqsn);
            let seen = (answer.stream, answer.first_msn, answer.first_rqsn);
            let words = |(stream, msn, rqsn): (u16, _, _)| {
                format!("stream {stream}, first MSN {msn}, first RQSN {rqsn}")
            };
            holds(expected == seen, words(expected), || words(seen))
        }
        _ if model.control.is_partial() => Found::Skip,
        _ => Found::Broken(
            "the transaction id of a STREAM_OPEN".into(),
            format!("transaction {transaction}"),
        ),
    }
}

/// Questions for credit that wait for their answer.
#[derive(Default)]
struct CreditTold {
    dues: Dues<(u32, u16)>,
}

impl Monitor for CreditTold {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let (Some(cbh), Some(Body::RqCredit(credit))) = (s.cbh, s.body) else {
            return;
        };
        let key = (cbh.psn.value(), credit.stream);
        if s.sent {
            if credit.kind == 1 {
                self.dues
                    .settle(s.time, s.frame, tally, |waiting| *waiting == key);
            }
            return;
        }
        let open = model.connection(s).is_some_and(|connection| {
            let stream = connection.streams.get(&credit.stream);
            !connection.closing.has_begun() && stream.is_some_and(|stream| stream.open.is_some())
        });
        if s.is_sound() && credit.kind == 0 && open {
            self.dues.add(Due {
                key,
                since: s.time,
                sure: s.time + 4 * PATIENCE + model.context.allowance_ns,
                deadline: s.time + 4 * PATIENCE + model.context.allowance_ns,
                frames: vec![s.frame],
                expected: format!(
                    "RQ_CREDIT that tells, transaction {}, stream {}",
                    key.0, key.1
                ),
            });
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        self.dues.expire(model.now, tally, |_| true);
    }
}

/// Streams whose next message is a Send that the peer has no receive for.
#[derive(Default)]
struct CreditAsked {
    /// Since when each stream has lacked credit, and whether it has asked.
    short: std::collections::BTreeMap<u16, (u64, bool)>,
}

impl CreditAsked {
    /// The streams on which the judged side has posted a Send that is to be sent now, as all before it has gone out and the
    /// message window is open, and that it has no credit for.
    fn lacking(model: &Model, now: u64) -> Vec<u16> {
        let Some(connection) = model.established() else {
            return Vec::new();
        };
        if connection.closing.has_begun() {
            return Vec::new();
        }
        let facts = &model.context.facts;
        let window = u64::from(connection.agreed.msg_window);
        let lacks = |(id, work): (u16, &[crate::model::Posted])| {
            let stream = connection.streams.get(&id)?;
            let next = stream.last_begun.map_or(0, |index| index + 1);
            let posted = work.get(usize::try_from(next).ok()?)?;
            let rqsn = match stream.last_rqsn {
                Some(last) => Rqsn::new(last).add(1),
                None => stream.first_rqsn,
            };
            let short = stream.limit.is_none_or(|limit| !rqsn.precedes(limit));
            let waiting = posted.kind == crate::evidence::WorkKind::Send && posted.t_ns <= now;
            let before = stream.last_begun.and_then(|last| stream.out.get(&last));
            let gone = before.is_none_or(|message| message.sent.len() >= message.packets);
            let begins = gone && next < stream.lowest_open + window;
            (stream.open.is_some() && waiting && short && begins).then_some(id)
        };
        facts.streams(model.side()).filter_map(lacks).collect()
    }

    fn settle(&mut self, model: &Model, now: u64, tally: &mut Tally) {
        let patience = ASKING_TIME + model.context.allowance_ns;
        for (stream, (since, asked)) in &mut self.short {
            if !*asked && now.saturating_sub(*since) > patience {
                *asked = true;
                let seen = format!("no question on stream {stream} in {} ns", now - *since);
                tally.broken(Vec::new(), "RQ_CREDIT that asks", seen);
            }
        }
    }
}

impl Monitor for CreditAsked {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        self.settle(model, s.time, tally);
        if let (true, Some(Body::RqCredit(credit))) = (s.sent, s.body)
            && credit.kind == 0
            && let Some((_, asked)) = self.short.get_mut(&credit.stream)
            && !*asked
        {
            *asked = true;
            tally.held();
        }
        let relevant = s.opcode().is_some_and(|opcode| !opcode.is_data()) || s.sent;
        if relevant && model.context.facts.streams(model.side()).next().is_some() {
            let lacking = Self::lacking(model, s.time);
            self.short.retain(|stream, _| lacking.contains(stream));
            for stream in lacking {
                self.short.entry(stream).or_insert((s.time, false));
            }
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        self.settle(model, model.now, tally);
    }
}

/// The receives that the judged side has told to be posted.
#[derive(Default)]
struct Limits {
    told: std::collections::BTreeMap<(usize, u16), (Rqsn, u64)>,
}

impl Monitor for Limits {
    fn sighting(&mut self, s: &Sighting<'_>, _: &Model, tally: &mut Tally) {
        let (true, Some(index)) = (s.sent, s.connection) else {
            return;
        };
        let (stream, limit) = match s.body {
            Some(Body::Ack(ack)) => (ack.header.stream, ack.header.rq_limit),
            Some(Body::AckSack(ack)) => (ack.header.stream, ack.header.rq_limit),
            Some(Body::StreamOpen(open)) => (open.stream, open.rq_limit),
            Some(Body::StreamOpenAck(answer)) if answer.status == 0 => {
                (answer.stream, answer.rq_limit)
            }
            Some(Body::RqCredit(credit)) if credit.kind == 1 => (credit.stream, credit.rq_limit),
            _ => return,
        };
        match self.told.get(&(index, stream)) {
            Some((before, frame)) if limit.precedes(*before) => {
                let expected = format!("RqLimit {before} or later on stream {stream}");
                tally.broken(vec![*frame, s.frame], expected, format!("RqLimit {limit}"));
                return;
            }
            Some(_) => tally.held(),
            None => {}
        }
        self.told.insert((index, stream), (limit, s.frame));
    }
}

/// Packets that are refused for what they mean: by what the events tell, or by the judged side's own NAK.
#[derive(Default)]
struct RefusedUnreported {
    refused: Vec<Suspect>,
    broken: Vec<u64>,
    /// Frame of the latest packet that the judged side has surely taken in.
    taken: u64,
    naked: Vec<(u64, u8, Psn, u64)>,
}

impl Monitor for RefusedUnreported {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        if let Some(suspect) = s.suspect
            && matches!(
                suspect.class,
                SuspectClass::AccessDenied | SuspectClass::TooLong
            )
            && self.refused.len() < 4096
        {
            self.refused.push(suspect);
        }
        if let Relation::AckSent(ack) = &s.relation
            && let Some(trigger) = ack.triggers.last()
        {
            self.taken = self.taken.max(trigger.frame);
        }
        for suspect in s.answers.iter().map(|answer| answer.suspect) {
            let refused = self
                .refused
                .iter()
                .any(|known| known.frame == suspect.frame);
            let reported = s.opcode() != Some(Opcode::NAK);
            if refused && reported {
                self.broken.push(suspect.frame);
                let seen = format!("PSN {} reported as arrived", suspect.cbh.psn);
                tally.broken(vec![suspect.frame, s.frame], "no report of it", seen);
            }
        }
        match (s.body, s.cbh) {
            // A packet in doubt that the judged side refuses itself.
            (Some(Body::Nak(nak)), Some(cbh))
                if s.sent && matches!(nak.code, NakCode::REM_ACCESS | NakCode::LENGTH) =>
            {
                let known = self
                    .refused
                    .iter()
                    .any(|suspect| suspect.cbh.psn == nak.offending_psn);
                if !known && self.naked.len() < 256 {
                    self.naked
                        .push((s.frame, cbh.path, nak.offending_psn, s.time));
                }
            }
            _ => {}
        }
        let found = ack(s, |cbh, ack| {
            let reported = |psn| {
                let at = crate::model::position(ack.isn, psn);
                let bit = u32::try_from(at - ack.cumulative - 1).ok();
                at <= ack.cumulative
                    || bit.is_some_and(|bit| ack.sack.is_some_and(|sack| sack.bit(bit)))
            };
            let refused = self.naked.iter().find(|(_, path, psn, at)| {
                *path == cbh.path && model.knows(*at, s.time) && reported(*psn)
            });
            match refused {
                Some((frame, _, psn, _)) => Found::BrokenWith(
                    vec![*frame],
                    "no report of what was refused".into(),
                    format!("PSN {psn} reported as arrived"),
                ),
                None => Found::Skip,
            }
        });
        super::check::note(tally, s.frame, found);
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        let patience = PATIENCE + model.ack_delay_ns() + model.context.allowance_ns;
        for suspect in &self.refused {
            let settled = suspect.time + patience <= model.now || suspect.frame < self.taken;
            if !self.broken.contains(&suspect.frame) && settled {
                tally.held();
            }
        }
        if tally.violations.is_empty() {
            self.naked.iter().for_each(|_| tally.held());
        }
    }
}

/// Packets that must be refused with a NAK.
struct Refusals {
    class: SuspectClass,
    code: NakCode,
    name: &'static str,
    dues: Dues<(u8, Psn)>,
    /// Packets that may have to be refused, with their frames.
    doubtful: Vec<(u8, Psn, u64)>,
}

impl Refusals {
    fn new(class: SuspectClass, code: NakCode, name: &'static str) -> Self {
        Self {
            class,
            code,
            name,
            dues: Dues::default(),
            doubtful: Vec::new(),
        }
    }
}

impl Monitor for Refusals {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let Some(cbh) = s.cbh else { return };
        let alone = model
            .connection(s)
            .is_some_and(|connection| connection.agreed.features.has(Features::RESET));
        let scope = if alone {
            (NakScope::STREAM, "stream")
        } else {
            (NakScope::CONNECTION, "connection")
        };
        if let Some(suspect) = &s.suspect
            && suspect.class == self.class
        {
            let ended = model
                .connection(s)
                .is_some_and(|connection| connection.closing.has_begun());
            if !ended {
                self.dues.add(Due {
                    key: (cbh.path, cbh.psn),
                    since: s.time,
                    sure: s.time + 4 * PATIENCE + model.context.allowance_ns,
                    deadline: s.time + 4 * PATIENCE + model.context.allowance_ns,
                    frames: vec![s.frame],
                    expected: format!("NAK {} with scope {}", self.name, scope.1),
                });
            }
        }
        if let Relation::DataArrived(arrival) = &s.relation
            && arrival.doubtful
            && s.headers().is_some_and(|(_, tagh)| tagh.is_some())
                == (self.class == SuspectClass::AccessDenied)
            && self.doubtful.len() < 4096
        {
            self.doubtful.push((arrival.path, arrival.psn, s.frame));
        }
        let (true, Some(Body::Nak(nak))) = (s.sent, s.body) else {
            return;
        };
        let key = (cbh.path, nak.offending_psn);
        // What is refused although nothing is known against it was a matter of access or length all the same.
        let semantic = matches!(nak.code, NakCode::REM_ACCESS | NakCode::LENGTH);
        let doubtful = self
            .doubtful
            .iter()
            .find(|(path, psn, _)| (*path, *psn) == key);
        if let Some((_, _, frame)) = doubtful.copied().filter(|_| semantic) {
            self.dues.add(Due {
                key,
                since: s.time,
                sure: s.time,
                deadline: s.time,
                frames: vec![frame],
                expected: format!("NAK {} with scope {}", self.name, scope.1),
            });
        }
        let right = nak.code == self.code && nak.scope == scope.0;
        for due in self.dues.met(|waiting| *waiting == key) {
            if right {
                tally.held();
            } else {
                let seen = format!("NAK {:#04x} with scope {}", nak.code.0, nak.scope.0);
                let frames = vec![due.frames.first().copied().unwrap_or(0), s.frame];
                tally.broken(frames, due.expected, seen);
            }
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        // Only the first refusal ends the connection; what came with it needs none of its own.
        let answered = tally.exercised > 0;
        if answered {
            self.dues.clear();
        }
        self.dues.expire(model.now, tally, |_| true);
    }
}
