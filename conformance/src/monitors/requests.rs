//! Chapter 3, connections: requests and their repetition, the end, and strangers.

use std::collections::BTreeMap;

use metaroce_wire::metaroce::{Body, Opcode, StreamOpenAck};

use super::check::{Found, data, rules, sent};
use super::conventions::{PATIENCE, Silence};
use super::due::{Due, Dues};
use super::panel::{Make, Monitor, Tally};
use crate::model::{Control, Model, Sighting, SuspectClass, is_request};

/// First pause before a request is repeated, ns.
const FIRST_PAUSE: u64 = 50_000_000;
/// Repetitions of a request, at most.
const REPETITIONS: u64 = 7;
/// Time for which a closed connection answers CLOSE, ns: three times the largest retransmission timeout there can be.
const LINGER: u64 = 3 * 2_000_000_000;

rules! { "requests.rs":
    "CONN-014" "a new request has a new transaction id" => Make::Monitor(|| Box::<Transactions>::default());
    "CONN-022" "a repeated request is the same" => Make::Rule(|s, model| repetition(s, model, |first| {
        if first.same_body(s.payload) {
            Found::Held
        } else {
            Found::BrokenWith(vec![first.frame], "the bytes of the first request".into(), "others".into())
        }
    }));
    "CONN-023" "repetitions back off from 50 ms" => Make::Monitor(|| Box::<Pauses>::default());
    "CONN-024" "at most seven repetitions" => Make::Monitor(|| Box::<Repetitions>::default());
    "CONN-025" "a repeated request gets the first answer again" => Make::Rule(|s, model| sent(s, |cbh| {
        if !matches!(cbh.opcode, Opcode::CONFIRM_ACK | Opcode::CLOSE_ACK | Opcode::STREAM_OPEN_ACK) { return Found::Skip; }
        let earlier = model.control.of(true, cbh.opcode).filter(|control| {
            control.frame < s.frame && control.transaction() == cbh.psn.value() && control.cbh.dcid == cbh.dcid
        });
        match earlier.last() {
            Some(first) if is_same_answer(first, s) => Found::Held,
            Some(first) => Found::BrokenWith(vec![first.frame], "the bytes of the first answer".into(), "others".into()),
            None => Found::Skip,
        }
    }));
    "CONN-026" "CLOSE is answered with its transaction id and reason" => Make::Monitor(|| Box::new(ClosesAnswered { repeated: false, dues: Dues::default() }));
    "CONN-027" "no message begins after CLOSE" => Make::Monitor(|| Box::new(NothingBegins { after_ack: false, ..NothingBegins::default() }));
    "CONN-028" "no message begins after CLOSE_ACK" => Make::Monitor(|| Box::new(NothingBegins { after_ack: true, ..NothingBegins::default() }));
    "CONN-029" "a repeated CLOSE is answered again while the connection lingers" => Make::Monitor(|| Box::new(ClosesAnswered { repeated: true, dues: Dues::default() }));
    "CONN-030" "data with an unknown DCID is not acknowledged" => Make::Monitor(|| Box::new(Silence::unacknowledged(SuspectClass::UnknownConnection)));
    "CONN-031" "a stranger gets no more bytes than it brought" => Make::Rule(|s, model| sent(s, |cbh| amplification(s, cbh.opcode, cbh.psn.value(), model)));
    "CONN-032" "data from another address is not acknowledged" => Make::Monitor(|| Box::new(Silence::unacknowledged(SuspectClass::OtherAddress)));
}

/// Whether an answer is the one that was given before. The credit of a stream may have risen since.
fn is_same_answer(first: &Control, s: &Sighting<'_>) -> bool {
    match (first.read().body, s.body) {
        (Some(Body::StreamOpenAck(old)), Some(Body::StreamOpenAck(new))) => {
            let rq_limit = new.rq_limit;
            new == StreamOpenAck { rq_limit, ..old }
        }
        _ => first.same_body(s.payload),
    }
}

/// What a request is about: stream, or path, or nothing.
fn subject(body: Option<&Body<'_>>, path: u8) -> u32 {
    match body {
        Some(Body::StreamOpen(open)) => u32::from(open.stream),
        Some(Body::RqCredit(credit)) => u32::from(credit.stream),
        Some(Body::StreamReset(reset)) => u32::from(reset.stream),
        Some(Body::PathProbe(_) | Body::PathRetire(_)) => u32::from(path),
        _ => 0,
    }
}

/// The requests of the judged side that have a transaction timer: all but probes.
fn is_timed(s: &Sighting<'_>) -> bool {
    s.sent
        && s.cbh.is_some_and(|cbh| {
            cbh.opcode != Opcode::PATH_PROBE && is_request(cbh.opcode, s.body.as_ref())
        })
}

/// Whether the answer to a request has been delivered.
fn is_answered(model: &Model, opcode: Opcode, transaction: u32) -> bool {
    let answers: &[Opcode] = match opcode {
        Opcode::OPEN => &[Opcode::ACCEPT, Opcode::REJECT],
        Opcode::CONFIRM => &[Opcode::CONFIRM_ACK, Opcode::REJECT],
        Opcode::CLOSE => &[Opcode::CLOSE_ACK],
        Opcode::STREAM_OPEN => &[Opcode::STREAM_OPEN_ACK],
        Opcode::STREAM_RESET => &[Opcode::STREAM_RESET_ACK],
        Opcode::PATH_RETIRE => &[Opcode::PATH_RETIRED],
        Opcode::RQ_CREDIT => &[Opcode::RQ_CREDIT],
        _ => &[],
    };
    let mut delivered = answers
        .iter()
        .filter_map(|answer| model.control.find(false, *answer, transaction));
    delivered.next().is_some()
}

/// A rule for a request that was sent before, under the same transaction id and about the same thing, unanswered.
fn repetition(s: &Sighting<'_>, model: &Model, rule: impl FnOnce(&Control) -> Found) -> Found {
    let (true, Some(cbh)) = (is_timed(s), s.cbh) else {
        return Found::Skip;
    };
    let transaction = cbh.psn.value();
    let about = subject(s.body.as_ref(), 0);
    let same = |control: &&Control| {
        control.frame < s.frame
            && control.transaction() == transaction
            && subject(control.read().body.as_ref(), 0) == about
    };
    let first = model.control.of(true, cbh.opcode).filter(same).last();
    match first {
        Some(first) if !is_answered(model, cbh.opcode, transaction) => rule(first),
        _ => Found::Skip,
    }
}

/// Transaction ids of the requests of the judged side: each belongs to one kind of request and one subject.
#[derive(Default)]
struct Transactions {
    /// Connection id, transaction, kind, subject, frame.
    used: BTreeMap<(u32, u32), (u8, u32, u64)>,
}

impl Monitor for Transactions {
    fn sighting(&mut self, s: &Sighting<'_>, _: &Model, tally: &mut Tally) {
        let Some(cbh) = s.cbh.filter(|_| s.sent) else {
            return;
        };
        if !is_request(cbh.opcode, s.body.as_ref()) {
            return;
        }
        if self.used.len() >= 1 << 16 {
            tally.unsure(|| "more transactions than are tracked".into());
            return;
        }
        let about = subject(s.body.as_ref(), cbh.path);
        let key = (cbh.dcid.value(), cbh.psn.value());
        let probe = cbh.opcode == Opcode::PATH_PROBE;
        match self.used.get(&key) {
            None => {
                self.used.insert(key, (cbh.opcode.0, about, s.frame));
                tally.held();
            }
            Some((kind, subject, _)) if *kind == cbh.opcode.0 && *subject == about && !probe => {}
            Some((_, _, frame)) => {
                let expected = "a transaction id not used before on the connection";
                let seen = format!("transaction {} again", cbh.psn);
                tally.broken(vec![*frame, s.frame], expected, seen);
            }
        }
    }
}

/// A request: its opcode, connection id, transaction and subject.
type RequestKey = (u8, u32, u32, u32);

/// The pauses between repetitions.
#[derive(Default)]
struct Pauses {
    /// When each request was last sent, in which frame, the pause before, and the shortest that the next may be.
    last: BTreeMap<RequestKey, (u64, u64, Option<u64>, u64)>,
}

impl Monitor for Pauses {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let (true, Some(cbh)) = (is_timed(s), s.cbh) else {
            return;
        };
        let about = subject(s.body.as_ref(), 0);
        let key = (cbh.opcode.0, cbh.dcid.value(), cbh.psn.value(), about);
        if self.last.len() >= 1 << 14 && !self.last.contains_key(&key) {
            tally.unsure(|| "more requests than are tracked".into());
            return;
        }
        let slack = model.slack_ns();
        let first = (s.time, s.frame, None, FIRST_PAUSE);
        let Some((then, frame, before, floor)) = self.last.insert(key, first) else {
            return;
        };
        let pause = s.time - then;
        if let Some(entry) = self.last.get_mut(&key) {
            entry.2 = Some(pause);
            entry.3 = floor.saturating_mul(2);
        }
        // The pause before is uncertain too, and counts twice: a party that waited for its turn made it longer.
        let doubled = before.map_or(0, |before| {
            (2 * before).saturating_sub(2 * model.context.allowance_ns + 3 * slack)
        });
        let least = floor.saturating_sub(slack).max(doubled);
        if let Some(why) = model.too_coarse(FIRST_PAUSE) {
            tally.unsure(|| why);
        }
        let short = least.saturating_sub(pause);
        if short == 0 {
            tally.held();
        } else if short <= model.context.allowance_ns {
            // A party that waits for its turn between reading its clock and sending makes the next pause shorter.
            tally.unsure(|| {
                format!("a pause is shorter than {least} ns by {short} ns, no more than the machine may delay")
            });
        } else {
            let expected = format!("a pause of at least {least} ns");
            tally.broken(vec![frame, s.frame], expected, format!("{pause} ns"));
        }
    }
}

/// How often each request is repeated.
#[derive(Default)]
struct Repetitions {
    sent: BTreeMap<RequestKey, (u64, u64)>,
}

impl Monitor for Repetitions {
    fn sighting(&mut self, s: &Sighting<'_>, _: &Model, tally: &mut Tally) {
        let (true, Some(cbh)) = (is_timed(s), s.cbh) else {
            return;
        };
        let about = subject(s.body.as_ref(), 0);
        let key = (cbh.opcode.0, cbh.dcid.value(), cbh.psn.value(), about);
        if self.sent.len() >= 1 << 14 && !self.sent.contains_key(&key) {
            tally.unsure(|| "more requests than are tracked".into());
            return;
        }
        let (count, first) = self.sent.entry(key).or_insert((0, s.frame));
        *count += 1;
        if *count > 1 + REPETITIONS {
            let seen = format!("repetition {}", *count - 1);
            tally.broken(vec![*first, s.frame], "at most 7 repetitions", seen);
        }
    }

    fn finish(&mut self, _: &Model, tally: &mut Tally) {
        // The limit is met only by a request that was repeated as often as it may be.
        let exhausted = self
            .sent
            .values()
            .filter(|(count, _)| *count == 1 + REPETITIONS);
        exhausted.for_each(|_| tally.held());
    }
}

/// CLOSEs that must be answered: the first ones, or those that come again.
struct ClosesAnswered {
    repeated: bool,
    dues: Dues<(u32, u16)>,
}

impl Monitor for ClosesAnswered {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let Some(cbh) = s.cbh else { return };
        let transaction = cbh.psn.value();
        match s.body {
            Some(Body::Close(close)) if !s.sent && s.is_sound() => {
                let answer = model.control.find(true, Opcode::CLOSE_ACK, transaction);
                let first = model
                    .control
                    .of(true, Opcode::CLOSE_ACK)
                    .last()
                    .map(|answer| answer.time);
                let lingers = first.is_none_or(|first| {
                    s.time + model.context.allowance_ns < first.saturating_add(LINGER)
                });
                let known = model
                    .connection(s)
                    .is_some_and(|connection| connection.established.is_some());
                if known && lingers && answer.is_some() == self.repeated {
                    self.dues.add(Due {
                        key: (transaction, close.reason),
                        since: s.time,
                        sure: s.time + 4 * PATIENCE + model.context.allowance_ns,
                        deadline: s.time + 4 * PATIENCE + model.context.allowance_ns,
                        frames: vec![s.frame],
                        expected: format!(
                            "CLOSE_ACK with transaction {transaction} and reason {}",
                            close.reason
                        ),
                    });
                }
            }
            Some(Body::CloseAck(answer)) if s.sent => {
                for due in self.dues.met(|waiting| waiting.0 == transaction) {
                    if due.key.1 == answer.reason {
                        tally.held();
                    } else {
                        let frames = due.frames.into_iter().chain([s.frame]).collect();
                        tally.broken(frames, due.expected, format!("reason {}", answer.reason));
                    }
                }
            }
            _ => {}
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        self.dues.expire(model.now, tally, |_| true);
    }
}

/// No message begins once CLOSE, or CLOSE_ACK, has been sent.
#[derive(Default)]
struct NothingBegins {
    after_ack: bool,
    closed: bool,
}

impl Monitor for NothingBegins {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let Some(connection) = model.connection(s) else {
            return;
        };
        let closing = &connection.closing;
        let since = if self.after_ack {
            closing.close_ack_sent
        } else {
            closing.close_sent.map(|(moment, _)| moment)
        };
        let Some((frame, _)) = since else { return };
        self.closed |= connection.established.is_some();
        let found = data(s, |_, sent| match &sent.message {
            Some(message) if message.begins => {
                let end = if self.after_ack { "CLOSE_ACK" } else { "CLOSE" };
                Found::BrokenWith(
                    vec![frame],
                    format!("no new message after {end}"),
                    format!("message {} begins", message.index),
                )
            }
            _ => Found::Skip,
        });
        super::check::note(tally, s.frame, found);
    }

    fn finish(&mut self, _: &Model, tally: &mut Tally) {
        if self.closed {
            tally.held();
        }
    }
}

/// Bytes under one transaction id before there is a connection: what went back against what had come.
fn amplification(s: &Sighting<'_>, opcode: Opcode, transaction: u32, model: &Model) -> Found {
    if opcode == Opcode::NAK {
        let Some(Body::Nak(nak)) = s.body else {
            return Found::Skip;
        };
        let stranger = model.suspects.iter().find(|suspect| {
            suspect.class == SuspectClass::UnknownConnection && suspect.cbh.psn == nak.offending_psn
        });
        return match stranger {
            Some(suspect) if s.payload.len() > suspect.len => Found::BrokenWith(
                vec![suspect.frame],
                format!("at most {} bytes", suspect.len),
                format!("{} bytes", s.payload.len()),
            ),
            Some(_) => Found::Held,
            None => Found::Skip,
        };
    }
    if !matches!(opcode, Opcode::ACCEPT | Opcode::REJECT) {
        return Found::Skip;
    }
    let asked: Vec<&Control> = model
        .control
        .all()
        .filter(|control| {
            let question = matches!(control.cbh.opcode, Opcode::OPEN | Opcode::CONFIRM);
            !control.sent && question && control.transaction() == transaction
        })
        .collect();
    let brought: usize = asked.iter().map(|control| control.bytes.len()).sum();
    let before: usize = model
        .control
        .all()
        .filter(|control| {
            let answer = matches!(control.cbh.opcode, Opcode::ACCEPT | Opcode::REJECT);
            control.sent
                && answer
                && control.frame < s.frame
                && control.transaction() == transaction
        })
        .map(|control| control.bytes.len())
        .sum();
    if asked.is_empty() {
        return Found::Skip;
    }
    if before + s.payload.len() <= brought {
        Found::Held
    } else {
        Found::BrokenWith(
            asked.iter().take(4).map(|control| control.frame).collect(),
            format!("at most {brought} bytes in all"),
            format!("{} bytes in all", before + s.payload.len()),
        )
    }
}
