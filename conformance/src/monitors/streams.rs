//! Streams: numbering and cutting of messages.

use metaroce_wire::metaroce::{Body, MFlags, Msgh, Opcode};

use super::check::{Check, Outcome, equal, holds};
use super::packets::data;
use super::{Context, entries};
use crate::model::{Sighting, StreamView};

entries! { "streams":
    "STRM-003" => Check(|s, c| data(s, |_| match s.data() {
        Some((msgh, _)) => {
            let open = c.view.streams.get(&msgh.stream).is_some_and(|stream| stream.open);
            holds(open, "an open stream", || format!("stream {}", msgh.stream))
        }
        None => Outcome::Skip,
    })),
    "STRM-005" => Check(|s, c| first_packet(s, c, |msgh, stream| {
        if !stream.messages.is_empty() { return Outcome::Skip; }
        equal("MSN", stream.first.0.value(), msgh.msn.value())
    })),
    "STRM-006" => Check(|s, c| first_packet(s, c, |msgh, stream| equal("MSN", stream.next.0.value(), msgh.msn.value()))),
    "STRM-007" => Check(|s, c| first_packet(s, c, |msgh, stream| {
        if s.opcode() != Some(Opcode::SEND) { return Outcome::Skip; }
        equal("RQSN", stream.next.1.value(), msgh.rqsn.value())
    })),
    "STRM-008" => Check(|s, _| data(s, |_| match s.lax.body {
        Some(Body::Write(write)) => equal("RQSN", 0, write.msgh.rqsn.value()),
        _ => Outcome::Skip,
    })),
    "STRM-009" => Check(|s, c| new_packet(s, c, |msgh, stream| {
        match stream.messages.get(&msgh.msn.distance_from(stream.first.0)) {
            Some(message) => equal("opcode, RQSN, length, address and key", message.head, crate::model::head(s, msgh)),
            None => Outcome::Skip,
        }
    })),
    "STRM-010" => Check(|s, c| new_packet(s, c, |msgh, stream| {
        if s.opcode() != Some(Opcode::SEND) { return Outcome::Skip; }
        holds(msgh.rqsn.precedes(stream.credit), &format!("an RQSN before {}", stream.credit), || format!("{}", msgh.rqsn))
    })),
    "STRM-011" => Check(|s, c| new_packet(s, c, |msgh, stream| {
        let Some(agreed) = c.view.agreed() else { return Outcome::Skip };
        let ahead = msgh.msn.distance_from(stream.first.0).saturating_sub(stream.lowest);
        holds(ahead < u32::from(agreed.msg_window), &format!("less than {} messages ahead", agreed.msg_window), || format!("{ahead}"))
    })),
    "STRM-013" => Check(|s, c| cut(s, c, |msgh, _, size| {
        holds(msgh.offset.is_multiple_of(size), &format!("an offset that is a multiple of {size}"), || format!("{}", msgh.offset))
    })),
    "STRM-014" => Check(|s, c| cut(s, c, |msgh, payload, size| {
        let last = u64::from(msgh.offset) + payload as u64 >= u64::from(msgh.len);
        if last { return Outcome::Skip; }
        equal("payload bytes", size as usize, payload)
    })),
    "STRM-015" => Check(|s, c| cut(s, c, |msgh, _, _| equal("SOM", msgh.offset == 0, msgh.mflags.has(MFlags::SOM)))),
    "STRM-016" => Check(|s, c| cut(s, c, |msgh, payload, _| {
        let last = u64::from(msgh.offset) + payload as u64 == u64::from(msgh.len);
        equal("EOM", last, msgh.mflags.has(MFlags::EOM))
    })),
    "STRM-018" => Check(|s, c| cut(s, c, |msgh, payload, _| {
        if msgh.len != 0 { return Outcome::Skip; }
        let flags = msgh.mflags.has(MFlags::SOM) && msgh.mflags.has(MFlags::EOM);
        holds(flags && payload == 0 && msgh.offset == 0, "one packet with SOM and EOM and no payload", || format!("{msgh:?}"))
    })),
}

/// A rule for the first transmission of a data packet.
fn new_packet(
    s: &Sighting<'_>,
    c: &Context<'_>,
    rule: impl FnOnce(&Msgh, &StreamView) -> Outcome,
) -> Outcome {
    data(s, |cbh| match s.data() {
        Some((msgh, _)) if c.view.earlier(cbh).is_none() => {
            match c.view.streams.get(&msgh.stream) {
                Some(stream) => rule(&msgh, stream),
                None => Outcome::Skip,
            }
        }
        _ => Outcome::Skip,
    })
}

/// A rule for the first packet of a message.
fn first_packet(
    s: &Sighting<'_>,
    c: &Context<'_>,
    rule: impl FnOnce(&Msgh, &StreamView) -> Outcome,
) -> Outcome {
    new_packet(s, c, |msgh, stream| {
        let known = stream
            .messages
            .contains_key(&msgh.msn.distance_from(stream.first.0));
        if known {
            Outcome::Skip
        } else {
            rule(msgh, stream)
        }
    })
}

/// A rule for how a message is cut: header, payload bytes, payload size.
fn cut(
    s: &Sighting<'_>,
    c: &Context<'_>,
    rule: impl FnOnce(&Msgh, usize, u32) -> Outcome,
) -> Outcome {
    data(s, |_| match (s.data(), c.view.agreed()) {
        (Some((msgh, payload)), Some(agreed)) => {
            rule(&msgh, payload.len(), u32::from(agreed.payload_size).max(1))
        }
        _ => Outcome::Skip,
    })
}
