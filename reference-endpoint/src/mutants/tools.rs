//! What several mutants are made of.

use metaroce_wire::metaroce::{AckFlags, Cbh, Flags, Sack};

use super::edge::{Edge, Edit, Received, Sent};
use crate::core::{Counters, Event};

/// Offsets of fields in a UDP payload.
pub(super) mod at {
    pub(in super::super) const OPCODE: usize = 1;
    pub(in super::super) const FLAGS: usize = 2;
    pub(in super::super) const PATH: usize = 3;
    pub(in super::super) const PAD: usize = 4;
    pub(in super::super) const DCID_LOW: usize = 7;
    pub(in super::super) const PSN: usize = 8;
    pub(in super::super) const TIMESTAMP: usize = 12;
    pub(in super::super) const MFLAGS: usize = 20;
    pub(in super::super) const WRITE_IMM: usize = 44;
    pub(in super::super) const ECHO: usize = 16;
    pub(in super::super) const ACK_DELAY: usize = 20;
    pub(in super::super) const ACK_FLAGS: usize = 22;
    pub(in super::super) const CE_COUNT: usize = 24;
    pub(in super::super) const ECT_COUNT: usize = 28;
    pub(in super::super) const RATE_HINT: usize = 33;
    pub(in super::super) const ACK_STREAM: usize = 36;
    pub(in super::super) const RQ_LIMIT: usize = 38;
    pub(in super::super) const SACK: usize = 40;
}

/// Whether data is sent again.
pub(super) fn is_rtx(cbh: &Cbh) -> bool {
    cbh.opcode.is_data() && cbh.flags.has(Flags::RTX)
}

/// Whether data is sent for the first time.
pub(super) fn is_new(cbh: &Cbh) -> bool {
    cbh.opcode.is_data() && !cbh.flags.has(Flags::RTX)
}

/// Overwrites bytes, as far as they are there.
pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// Changes one byte, if it is there.
pub(super) fn change(bytes: &mut [u8], at: usize, to: impl FnOnce(u8) -> u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = to(*byte);
    }
}

/// A number of 16 bits, 0 when it is not there.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let raw = bytes.get(at..).and_then(|rest| rest.first_chunk::<2>());
    raw.map_or(0, |raw| u16::from_be_bytes(*raw))
}

/// A number of 32 bits, 0 when it is not there.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let raw = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    raw.map_or(0, |raw| u32::from_be_bytes(*raw))
}

/// The vector of an ACK_SACK or, from `at` on, of another packet.
pub(super) fn sack_at(bytes: &[u8], at: usize) -> Option<Sack> {
    bytes.get(at..)?.first_chunk::<32>().map(|raw| Sack(*raw))
}

/// Whether an acknowledgment says that a duplicate was seen.
pub(super) fn tells_duplicate(bytes: &[u8]) -> bool {
    AckFlags(u16_at(bytes, at::ACK_FLAGS)).has(AckFlags::DUPLICATE_SEEN)
}

/// Makes an ACK an ACK_SACK with an empty vector, or leaves an ACK_SACK as it is.
pub(super) fn widen(bytes: &mut Vec<u8>) {
    if bytes.get(1) == Some(&0x40) && bytes.len() >= at::SACK {
        change(bytes, 1, |_| 0x41);
        bytes.splice(at::SACK..at::SACK, [0; 32]);
    }
}

/// Makes an ACK_SACK an ACK without vector, or leaves an ACK as it is.
pub(super) fn narrow(bytes: &mut Vec<u8>) {
    if bytes.get(1) == Some(&0x41) && bytes.len() >= at::SACK + 32 {
        change(bytes, 1, |_| 0x40);
        bytes.drain(at::SACK..at::SACK + 32);
    }
}

/// A mutant that edits what goes out.
pub(super) struct Sending<F>(F);

/// Makes one; what has no base header passes.
pub(super) fn sending<F: FnMut(&mut Edge, &Cbh, Sent) + Send>(edit: F) -> Sending<F> {
    Sending(edit)
}

impl<F: FnMut(&mut Edge, &Cbh, Sent) + Send> Edit for Sending<F> {
    fn outgoing(&mut self, edge: &mut Edge, sent: Sent) {
        match Cbh::read(&sent.bytes) {
            Ok((cbh, _)) => (self.0)(edge, &cbh, sent),
            Err(_) => edge.send(sent),
        }
    }
}

/// A mutant that edits each packet that goes out where it is.
pub(super) fn each(mut edit: impl FnMut(&Cbh, &mut Sent) + Send) -> impl Edit {
    sending(move |edge, cbh, mut sent| {
        edit(cbh, &mut sent);
        edge.send(sent);
    })
}

/// A mutant that does not send what `drops` picks.
pub(super) fn dropping(mut drops: impl FnMut(&Cbh, &Sent) -> bool + Send) -> impl Edit {
    sending(move |edge, cbh, sent| {
        if !drops(cbh, &sent) {
            edge.send(sent);
        }
    })
}

/// A mutant that spoils one in eight first transmissions of data; their repair is sound, so that the exchange comes to
/// its end.
pub(super) fn some_data(mut edit: impl FnMut(&Cbh, &mut Sent) -> bool + Send) -> impl Edit {
    let mut count = 7u32;
    each(move |cbh, sent| {
        if !is_new(cbh) {
            return;
        }
        count += 1;
        // One that cannot be spoiled hands its turn to the next.
        if count >= 8 && edit(cbh, sent) {
            count = 0;
        }
    })
}

/// A mutant that repeats one in four acknowledgments with a change; the sound one goes out before. Those with a flag
/// that speaks of the time since the last one are not repeated: that would be false by itself.
pub(super) fn ack_copies(mut edit: impl FnMut(&Cbh, &mut Sent) -> bool + Send) -> impl Edit {
    let mut count = 3u32;
    sending(move |edge, cbh, sent| {
        let seen = AckFlags::DUPLICATE_SEEN.0 | AckFlags::OUT_OF_WINDOW_SEEN.0;
        let plain = cbh.opcode.is_ack() && u16_at(&sent.bytes, at::ACK_FLAGS) & seen == 0;
        let mut copy = sent.clone();
        edge.send(sent);
        if !plain {
            return;
        }
        count += 1;
        if count >= 4 && edit(cbh, &mut copy) {
            count = 0;
            edge.send(copy);
        }
    })
}

/// A mutant that edits what comes in.
pub(super) struct Receiving<F>(F);

/// Makes one; an edit that returns true has the trailer made right.
pub(super) fn receiving<F: FnMut(&Cbh, &mut Received) -> bool + Send>(edit: F) -> Receiving<F> {
    Receiving(edit)
}

impl<F: FnMut(&Cbh, &mut Received) -> bool + Send> Edit for Receiving<F> {
    fn incoming(&mut self, edge: &mut Edge, mut received: Received) {
        if let Ok((cbh, _)) = Cbh::read(&received.bytes) {
            received.reseal = (self.0)(&cbh, &mut received);
        }
        edge.deliver(received);
    }
}

/// A mutant that does not hear what `picks` picks.
pub(super) struct Deaf(pub(super) fn(&Cbh) -> bool);

impl Edit for Deaf {
    fn incoming(&mut self, edge: &mut Edge, received: Received) {
        let deaf = Cbh::read(&received.bytes).is_ok_and(|(cbh, _)| (self.0)(&cbh));
        if !deaf {
            edge.deliver(received);
        }
    }
}

/// A mutant that edits what is reported.
pub(super) struct Reporting<F>(F);

/// Makes one.
pub(super) fn reporting<F: FnMut(&mut Event) + Send>(edit: F) -> Reporting<F> {
    Reporting(edit)
}

impl<F: FnMut(&mut Event) + Send> Edit for Reporting<F> {
    fn event(&mut self, edge: &mut Edge, mut event: Event) {
        (self.0)(&mut event);
        edge.report(event);
    }
}

/// A mutant that edits its counters.
pub(super) struct Counting(pub(super) fn(&mut Counters));

impl Edit for Counting {
    fn counters(&self, counters: &mut Counters) {
        (self.0)(counters);
    }
}
