//! Completions, against what was reported and what has arrived.

use std::collections::BTreeMap;

use metaroce_wire::metaroce::{Body, NakCode, NakScope};
use metaroce_wire::serial::Msn;

use super::check::rules;
use super::panel::{Make, Monitor, Tally};
use crate::evidence::{Event, What, WorkKind};
use crate::model::{AckFault, InMessage, Model, Relation, Sighting, Stream};

/// Status of work that went well.
pub(super) const SUCCESS: &str = "IBV_WC_SUCCESS";
const FLUSHED: &str = "IBV_WC_WR_FLUSH_ERR";

rules! { "completions.rs":
    "STRM-024" "receives complete in the order of the MSNs" => Make::Monitor(|| Box::new(InOrder { receives: true, last: BTreeMap::new() }));
    "STRM-025" "a receive completes after all messages up to it have arrived" => Make::Monitor(|| Box::new(AfterArrival));
    "STRM-026" "a receive completes with the length of its Send" => Make::Monitor(|| Box::new(ReceiveLength));
    "STRM-027" "work succeeds after every packet was reported" => Make::Monitor(|| Box::new(AfterReports));
    "STRM-028" "work completes in the order in which it was posted" => Make::Monitor(|| Box::new(InOrder { receives: false, last: BTreeMap::new() }));
    "STRM-036" "the work that REM_ACCESS names fails with IBV_WC_REM_ACCESS_ERR" => Make::Monitor(|| Box::new(NamedWork::new(NakCode::REM_ACCESS, "IBV_WC_REM_ACCESS_ERR")));
    "STRM-037" "other unfinished work is flushed in order" => Make::Monitor(|| Box::<Flushed>::default());
    "STRM-038" "the work that LENGTH names fails with IBV_WC_REM_INV_REQ_ERR" => Make::Monitor(|| Box::new(NamedWork::new(NakCode::LENGTH, "IBV_WC_REM_INV_REQ_ERR")));
    "PATH-011" "when a path has failed the oldest work completes with IBV_WC_RETRY_EXC_ERR" => Make::Monitor(|| Box::<RetriesExceeded>::default());
    "REL-044" "reports of what was never sent complete nothing" => Make::Monitor(|| Box::new(Ignored::new(AckFault::NeverSent)));
    "REL-045" "reports with bit 0 complete nothing" => Make::Monitor(|| Box::new(Ignored::new(AckFault::BitZero)));
    "REL-046" "reports of no path complete nothing" => Make::Monitor(|| Box::new(Ignored::new(AckFault::NoPath)));
}

/// A completion of the judged side: stream, position among its work or receives, work id, status, length.
struct Completion<'e> {
    receive: bool,
    stream: u16,
    index: u64,
    wr_id: u64,
    status: &'e str,
    byte_len: u32,
}

fn completion<'e>(event: &'e Event, model: &Model) -> Option<Completion<'e>> {
    let What::Completed {
        wr_id,
        kind,
        status,
        byte_len,
        ..
    } = &event.what
    else {
        return None;
    };
    if event.side != model.side() {
        return None;
    }
    let receive = *kind == WorkKind::Recv;
    let (stream, index) = model.context.facts.place(event.side, receive, *wr_id)?;
    Some(Completion {
        receive,
        stream,
        index: index as u64,
        wr_id: *wr_id,
        status,
        byte_len: *byte_len,
    })
}

fn stream_of(model: &Model, id: u16) -> Option<&Stream> {
    model.established()?.streams.get(&id)
}

/// Completions of a stream come in the order of their work.
struct InOrder {
    receives: bool,
    last: BTreeMap<u16, (u64, u64)>,
}

impl Monitor for InOrder {
    fn event(&mut self, event: &Event, model: &Model, tally: &mut Tally) {
        let Some(done) = completion(event, model).filter(|done| done.receive == self.receives)
        else {
            return;
        };
        match self.last.insert(done.stream, (done.index, done.wr_id)) {
            Some((index, _)) if done.index == index + 1 => tally.held(),
            Some((index, wr_id)) => {
                let expected = format!("the work after {wr_id} on stream {}", done.stream);
                let seen = format!(
                    "work {}, {} places after it",
                    done.wr_id,
                    done.index as i64 - index as i64
                );
                tally.broken(Vec::new(), expected, seen);
            }
            None if done.index == 0 => {}
            None => {
                let expected = format!("the first work of stream {}", done.stream);
                let seen = format!("work {} at place {}", done.wr_id, done.index);
                tally.broken(Vec::new(), expected, seen);
            }
        }
    }
}

/// The message of the peer that a receive was for, with its position.
fn received(stream: &Stream, index: u64) -> Option<(u64, &InMessage)> {
    let wanted = stream.first_rqsn.add(index as u16);
    stream
        .inward
        .iter()
        .find(|(_, message)| message.send && message.msgh.rqsn == wanted)
        .map(|(index, message)| (*index, message))
}

struct AfterArrival;

impl Monitor for AfterArrival {
    fn event(&mut self, event: &Event, model: &Model, tally: &mut Tally) {
        let Some(done) = completion(event, model).filter(|done| done.receive) else {
            return;
        };
        let Some(stream) = stream_of(model, done.stream).filter(|_| done.status == SUCCESS) else {
            return;
        };
        let expected = format!("work {} after all messages up to its own", done.wr_id);
        match received(stream, done.index) {
            Some((place, _)) if place < stream.complete_below => tally.held(),
            Some((place, message)) => {
                let seen = format!(
                    "message {place}: {} of {} packets, all complete below message {}",
                    message.arrived.len(),
                    message.packets,
                    stream.complete_below
                );
                tally.broken(Vec::new(), expected, seen);
            }
            None => tally.broken(Vec::new(), expected, "no packet of its message"),
        }
    }
}

struct ReceiveLength;

impl Monitor for ReceiveLength {
    fn event(&mut self, event: &Event, model: &Model, tally: &mut Tally) {
        let Some(done) = completion(event, model).filter(|done| done.receive) else {
            return;
        };
        let Some(stream) = stream_of(model, done.stream).filter(|_| done.status == SUCCESS) else {
            return;
        };
        let Some((_, message)) = received(stream, done.index) else {
            return;
        };
        let len = message.msgh.len;
        if done.byte_len == len {
            tally.held();
        } else {
            let expected = format!("{len} bytes for work {}", done.wr_id);
            tally.broken(Vec::new(), expected, format!("{} bytes", done.byte_len));
        }
    }
}

/// Packets of a message of the judged side that no sound report covers, and why a false one claims them.
fn unreported(model: &Model, id: u16, index: u64) -> (u64, Vec<AckFault>) {
    let mut faults = Vec::new();
    let mut count = 0;
    let paths = model.established().into_iter().flat_map(|c| c.out.values());
    for packet in paths.flat_map(|path| path.unreported()) {
        if packet.stream == id && packet.message == index {
            count += 1;
            faults.extend(packet.claimed);
        }
    }
    (count, faults)
}

struct AfterReports;

impl Monitor for AfterReports {
    fn event(&mut self, event: &Event, model: &Model, tally: &mut Tally) {
        let Some(done) = completion(event, model).filter(|done| !done.receive) else {
            return;
        };
        let Some(stream) = stream_of(model, done.stream).filter(|_| done.status == SUCCESS) else {
            return;
        };
        let reported = match stream.out.get(&done.index) {
            Some(message) => message.is_acknowledged(),
            None => done.index < stream.lowest_open,
        };
        // What a report claims that had to be ignored is the affair of the clauses about such reports.
        if reported {
            tally.held();
        } else if unreported(model, done.stream, done.index).1.is_empty() {
            let message = stream.out.get(&done.index);
            let seen = match message {
                Some(message) => {
                    format!(
                        "{} of {} packets reported",
                        message.acknowledged, message.packets
                    )
                }
                None => "nothing sent".into(),
            };
            let frames = message.map(|message| message.frame).into_iter().collect();
            let expected = format!("every packet of work {} reported", done.wr_id);
            tally.broken(frames, expected, seen);
        }
    }
}

/// Reports that must be ignored, while work is unfinished: none of it succeeds by them.
struct Ignored {
    fault: AckFault,
    /// Frame and time of each.
    seen: Vec<(u64, u64)>,
    broken: bool,
}

impl Ignored {
    fn new(fault: AckFault) -> Self {
        Self {
            fault,
            seen: Vec::new(),
            broken: false,
        }
    }
}

impl Monitor for Ignored {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, _: &mut Tally) {
        let Relation::AckArrived(ack) = &s.relation else {
            return;
        };
        let unfinished = model
            .connection(s)
            .is_some_and(|connection| connection.out.values().any(|path| path.outstanding > 0));
        if ack.fault == Some(self.fault) && unfinished && self.seen.len() < 4096 {
            self.seen.push((s.frame, s.time));
        }
    }

    fn event(&mut self, event: &Event, model: &Model, tally: &mut Tally) {
        let Some(done) = completion(event, model).filter(|done| !done.receive) else {
            return;
        };
        if done.status != SUCCESS || self.seen.is_empty() {
            return;
        }
        let (count, faults) = unreported(model, done.stream, done.index);
        if count > 0 && faults.contains(&self.fault) {
            self.broken = true;
            let frames = self.seen.iter().take(4).map(|(frame, _)| *frame).collect();
            let expected = format!("work {} unfinished", done.wr_id);
            tally.broken(
                frames,
                expected,
                format!("success, {count} packets unreported"),
            );
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        let patience = super::conventions::PATIENCE + model.context.allowance_ns;
        let settled = self
            .seen
            .iter()
            .filter(|(_, at)| at + patience <= model.now);
        if !self.broken {
            settled.for_each(|_| tally.held());
        }
    }
}

/// The work that a NAK names.
struct NamedWork {
    code: NakCode,
    status: &'static str,
    named: Option<(u64, u64, u16, Msn)>,
    settled: bool,
}

impl NamedWork {
    fn new(code: NakCode, status: &'static str) -> Self {
        Self {
            code,
            status,
            named: None,
            settled: false,
        }
    }
}

/// A NAK delivered to the judged side that ends the connection: frame, time, stream, MSN.
fn fatal_nak(s: &Sighting<'_>) -> Option<(u64, u64, u16, Msn, NakCode)> {
    match s.body {
        Some(Body::Nak(nak)) if !s.sent && s.is_sound() && nak.scope == NakScope::CONNECTION => {
            Some((s.frame, s.time, nak.stream, nak.msn, nak.code))
        }
        _ => None,
    }
}

impl Monitor for NamedWork {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, _: &mut Tally) {
        if let Some((frame, time, stream, msn, code)) = fatal_nak(s)
            && code == self.code
            && self.named.is_none()
            // Only a NAK of the connection that says something about work under way.
            && stream_of(model, stream).is_some()
        {
            self.named = Some((frame, time, stream, msn));
        }
    }

    fn event(&mut self, event: &Event, model: &Model, tally: &mut Tally) {
        let (Some((frame, _, id, msn)), Some(done)) = (self.named, completion(event, model)) else {
            return;
        };
        let Some(stream) = stream_of(model, id) else {
            return;
        };
        if done.receive || done.stream != id || done.index != stream.index(msn) {
            return;
        }
        self.settled = true;
        if done.status == self.status {
            tally.held();
        } else {
            let expected = format!("{} for work {}", self.status, done.wr_id);
            tally.broken(vec![frame], expected, done.status.to_owned());
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        let Some((frame, time, id, msn)) = self.named.filter(|_| !self.settled) else {
            return;
        };
        let work = model.context.facts.work(model.side(), id);
        let index = stream_of(model, id).map(|stream| stream.index(msn));
        let posted = index
            .and_then(|index| usize::try_from(index).ok())
            .and_then(|index| work.get(index));
        let patience = 20 * super::conventions::PATIENCE + model.context.allowance_ns;
        if let Some(posted) = posted
            && time + patience < model.now
        {
            let expected = format!("{} for work {}", self.status, posted.wr_id);
            tally.broken(vec![frame], expected, "no completion");
        }
    }
}

/// After the NAK that ends a connection, work fails: the named one with its own status, the rest flushed in order.
#[derive(Default)]
struct Flushed {
    nak: Option<(u64, u64, u16, Msn)>,
    last: BTreeMap<(u16, bool), u64>,
}

impl Monitor for Flushed {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, _: &mut Tally) {
        if let Some((frame, time, stream, msn, _)) = fatal_nak(s)
            && self.nak.is_none()
            && stream_of(model, stream).is_some()
        {
            self.nak = Some((frame, time, stream, msn));
        }
    }

    fn event(&mut self, event: &Event, model: &Model, tally: &mut Tally) {
        let Some(done) = completion(event, model).filter(|done| !done.receive) else {
            return;
        };
        let before = self.last.insert((done.stream, done.receive), done.index);
        let Some((frame, time, id, msn)) = self.nak.filter(|nak| nak.1 <= event.t_ns) else {
            return;
        };
        let Some(stream) = stream_of(model, done.stream) else {
            return;
        };
        let named = done.stream == id && done.index == stream.index(msn);
        let finished = stream
            .out
            .get(&done.index)
            .map_or(done.index < stream.lowest_open, |message| {
                message.is_acknowledged()
            });
        if named || (finished && done.status == SUCCESS) || time == 0 {
            return;
        }
        let in_order = before.is_none_or(|before| before < done.index);
        if done.status == FLUSHED && in_order {
            tally.held();
        } else {
            let expected = format!("{FLUSHED} for work {}, in order", done.wr_id);
            let seen = format!("{} at place {}", done.status, done.index);
            tally.broken(vec![frame], expected, seen);
        }
    }
}

/// The first work that fails without a NAK or a CLOSE of the peer: a path has failed.
#[derive(Default)]
struct RetriesExceeded {
    done: BTreeMap<u16, u64>,
    settled: bool,
}

impl Monitor for RetriesExceeded {
    fn event(&mut self, event: &Event, model: &Model, tally: &mut Tally) {
        let Some(done) = completion(event, model).filter(|done| !done.receive) else {
            return;
        };
        if done.status == SUCCESS {
            self.done.insert(done.stream, done.index + 1);
            return;
        }
        let ended = model.established().is_none_or(|connection| {
            let closing = &connection.closing;
            closing.nak_arrived.is_some() || closing.close_arrived.is_some()
        });
        let retried = model.established().is_some_and(|connection| {
            let mut packets = connection.out.values().flat_map(|path| path.unreported());
            packets.any(|packet| packet.transmissions > 1)
        });
        if self.settled || ended || !retried {
            return;
        }
        self.settled = true;
        // Of all streams, the work that was posted first and has not completed.
        let facts = &model.context.facts;
        let open = facts.streams(event.side).filter_map(|(id, work)| {
            let next = self.done.get(&id).copied().unwrap_or(0);
            work.get(usize::try_from(next).ok()?)
        });
        let oldest = open.min_by_key(|posted| (posted.t_ns, posted.wr_id));
        let expected = oldest.map_or(done.wr_id, |posted| posted.wr_id);
        if done.status == "IBV_WC_RETRY_EXC_ERR" && done.wr_id == expected {
            tally.held();
        } else {
            let wanted = format!("IBV_WC_RETRY_EXC_ERR for work {expected}");
            tally.broken(
                Vec::new(),
                wanted,
                format!("{} for work {}", done.status, done.wr_id),
            );
        }
    }
}
