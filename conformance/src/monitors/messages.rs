//! Chapter 4, streams: how messages are numbered and cut into packets.

use metaroce_wire::metaroce::{MAX_MSG_LEN, MFlags, Msgh, Opcode, Tagh};

use super::check::{Found, equal, holds, message, rules, sent};
use super::panel::{Make, Monitor, Tally};
use crate::evidence::{Event, What, WorkKind};
use crate::model::{Model, Sighting};

rules! { "messages.rs":
    "STRM-005" "the first message has the agreed first MSN" => Make::Rule(|s, model| message(s, |_, _, message| {
        if !message.begins || message.last_begun.is_some() { return Found::Skip; }
        first_number(s, model, |msgh, stream| equal("MSN", stream.first_msn.value(), msgh.msn.value()))
    }));
    "STRM-006" "messages are numbered one by one" => Make::Rule(|s, _| message(s, |_, _, message| match message.last_begun {
        Some(last) if message.begins => {
            let next = (last + 1) % (1 << 24);
            equal("place in the stream", next, message.index)
        }
        _ => Found::Skip,
    }));
    "STRM-007" "Sends are numbered one by one by RQSN" => Make::Rule(|s, model| message(s, |cbh, _, message| {
        if !message.begins || !cbh.opcode.consumes_receive() { return Found::Skip; }
        match message.last_rqsn {
            Some(last) => first_number(s, model, |msgh, _| equal("RQSN", last.wrapping_add(1), msgh.rqsn.value())),
            None => first_number(s, model, |msgh, stream| equal("RQSN", stream.first_rqsn.value(), msgh.rqsn.value())),
        }
    }));
    "STRM-008" "a WRITE has RQSN 0" => Make::Rule(|s, _| piece(s, |msgh, _| match s.opcode() {
        Some(Opcode::WRITE) => equal("RQSN", 0, msgh.rqsn.value()),
        _ => Found::Skip,
    }));
    "STRM-009" "all packets of a message agree" => Make::Rule(|s, _| message(s, |cbh, data, message| {
        let Some((msgh, tagh)) = s.headers() else { return Found::Skip };
        let (opcode, first, first_tagh, frame) = message.first;
        // The first packet agrees with itself, and what is sent again is another clause's affair.
        if message.begins || data.before.is_some() { return Found::Skip; }
        let header = |opcode: Opcode, msgh: &Msgh, tagh: Option<&Tagh>| {
            let target = tagh.map_or(String::new(), |tagh| format!(", VA {:x}, RKey {:08x}", tagh.va, tagh.rkey));
            format!("{}, RQSN {}, MsgLen {}{target}", opcode.name().unwrap_or("?"), msgh.rqsn, msgh.len)
        };
        let expected = header(opcode, &first, first_tagh.as_ref());
        let seen = header(cbh.opcode, &msgh, tagh.as_ref());
        if expected == seen { Found::Held } else { Found::BrokenWith(vec![frame], expected, seen) }
    }));
    "STRM-011" "messages under way stay within the window" => Make::Rule(|s, model| message(s, |_, _, message| {
        let Some(connection) = model.connection(s) else { return Found::Skip };
        let window = u64::from(connection.agreed.msg_window);
        let ahead = message.index.saturating_sub(message.lowest_open);
        // Only a message at the edge could be one too many.
        if !message.begins || ahead + 1 < window { return Found::Skip; }
        holds(ahead < window, format!("fewer than {window} past the lowest open message"), || format!("{ahead} past message {}", message.lowest_open))
    }));
    "STRM-012" "a message has at most 2^31 bytes" => Make::Rule(|s, _| piece(s, |msgh, _| {
        holds(msgh.len <= MAX_MSG_LEN, "a MsgLen of at most 2^31", || format!("MsgLen {}", msgh.len))
    }));
    "STRM-013" "offsets are multiples of P" => Make::Rule(|s, model| piece(s, |msgh, _| match payload_size(s, model) {
        Some(size) => holds(msgh.offset.is_multiple_of(size), format!("a multiple of {size}"), || format!("MsgOffset {}", msgh.offset)),
        None => Found::Skip,
    }));
    "STRM-014" "all packets but the last carry P bytes" => Make::Rule(|s, model| piece(s, |msgh, payload| match payload_size(s, model) {
        Some(size) => {
            let left = msgh.len.saturating_sub(msgh.offset);
            let last = left <= size;
            // Padding that is off by a few bytes is another clause's affair.
            let right = if last { payload.len() <= size as usize } else { payload.len() == size as usize };
            holds(right, format!("{} payload bytes", left.min(size)), || format!("{} at offset {} of {}", payload.len(), msgh.offset, msgh.len))
        }
        None => Found::Skip,
    }));
    "STRM-015" "SOM at offset 0 alone" => Make::Rule(|s, _| piece(s, |msgh, _| {
        let (due, set) = (msgh.offset == 0, msgh.mflags.has(MFlags::SOM));
        holds(due == set, if due { "SOM" } else { "no SOM" }, || format!("message flags {:#04x} at offset {}", msgh.mflags.0, msgh.offset))
    }));
    "STRM-016" "EOM at the end alone" => Make::Rule(|s, model| piece(s, |msgh, _| match payload_size(s, model) {
        Some(size) => {
            let due = msgh.len.saturating_sub(msgh.offset) <= size;
            holds(due == msgh.mflags.has(MFlags::EOM), if due { "EOM" } else { "no EOM" }, || {
                format!("message flags {:#04x} at offset {} of {}", msgh.mflags.0, msgh.offset, msgh.len)
            })
        }
        None => Found::Skip,
    }));
    "STRM-017" "a completed message was sent in whole" => Make::Monitor(|| Box::new(SentInWhole));
    "STRM-018" "an empty message is one packet with SOM and EOM" => Make::Rule(|s, _| piece(s, |msgh, payload| {
        if msgh.len != 0 { return Found::Skip; }
        let both = msgh.mflags.has(MFlags::SOM) && msgh.mflags.has(MFlags::EOM);
        holds(both && payload.is_empty() && msgh.offset == 0, "SOM, EOM, offset 0 and no payload", || {
            format!("message flags {:#04x}, offset {}, {} bytes", msgh.mflags.0, msgh.offset, payload.len())
        })
    }));
}

/// A rule for the message header and payload of data that the judged side sends.
fn piece(s: &Sighting<'_>, rule: impl FnOnce(&Msgh, &[u8]) -> Found) -> Found {
    sent(s, |_| match s.message() {
        Some((msgh, _, payload)) => rule(&msgh, payload),
        None => Found::Skip,
    })
}

fn payload_size(s: &Sighting<'_>, model: &Model) -> Option<u32> {
    let size = model.connection(s)?.payload_size();
    (size > 0).then_some(size)
}

fn first_number(
    s: &Sighting<'_>,
    model: &Model,
    rule: impl FnOnce(&Msgh, &crate::model::Stream) -> Found,
) -> Found {
    let (Some((msgh, _)), Some(connection)) = (s.headers(), model.connection(s)) else {
        return Found::Skip;
    };
    match connection.streams.get(&msgh.stream) {
        Some(stream) => rule(&msgh, stream),
        None => Found::Skip,
    }
}

/// Work that completes with success was sent piece by piece.
struct SentInWhole;

impl Monitor for SentInWhole {
    fn event(&mut self, event: &Event, model: &Model, tally: &mut Tally) {
        let What::Completed {
            wr_id,
            kind: WorkKind::Send | WorkKind::Write,
            status,
            ..
        } = &event.what
        else {
            return;
        };
        if event.side != model.side() || status != super::completions::SUCCESS {
            return;
        }
        let Some((id, index)) = model.context.facts.place(event.side, false, *wr_id) else {
            return;
        };
        let Some(stream) = model.established().and_then(|c| c.streams.get(&id)) else {
            return;
        };
        match stream.out.get(&(index as u64)) {
            Some(message) if message.sent.len() >= message.packets => tally.held(),
            Some(message) => {
                let expected = format!("{} packets sent before completion", message.packets);
                let seen = format!("{} packets of work {wr_id}", message.sent.len());
                tally.broken(vec![message.frame], expected, seen);
            }
            // Forgotten after it was wholly acknowledged, or never sent at all.
            None if (index as u64) < stream.lowest_open => tally.held(),
            None => {
                let seen = format!("no packet of work {wr_id}");
                tally.broken(Vec::new(), "every packet sent before completion", seen);
            }
        }
    }
}
