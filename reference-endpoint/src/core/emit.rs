//! Packets to bytes.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use metaroce_wire::crc::{self, PseudoHeader};
use metaroce_wire::metaroce::{Body, Cbh, Packet};

/// Where the timestamp lies in the base header.
const TIMESTAMP: Range<usize> = 12..16;

/// Adds a packet from `local` to `peer` to the end of `out`.
pub(super) fn append(out: &mut Vec<u8>, cbh: Cbh, body: Body<'_>, local: IpAddr, peer: SocketAddr) {
    let packet = Packet { cbh, body };
    let pseudo = PseudoHeader::new(local, peer);
    let start = out.len();
    out.resize(start + packet.wire_len(), 0);
    // The buffer has the packet's length, and no payload exceeds 8192 bytes: it always fits.
    let written = packet.emit(&mut out[start..], &pseudo);
    debug_assert!(written.is_ok(), "{written:?}");
}

/// [`append`] to a buffer of its own.
pub(super) fn emit(cbh: Cbh, body: Body<'_>, local: IpAddr, peer: SocketAddr) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out, cbh, body, local, peer);
    out
}

/// A packet that is sent once more, at `now` (the timestamp of the base header is the time of sending).
pub(super) fn sent_at(now: u64, mut bytes: Vec<u8>, local: IpAddr, peer: SocketAddr) -> Vec<u8> {
    if let Some(stamp) = bytes.get_mut(TIMESTAMP) {
        stamp.copy_from_slice(&(now as u32).to_be_bytes());
        let sealed = crc::seal(&PseudoHeader::new(local, peer), &mut bytes);
        debug_assert!(sealed.is_ok(), "it has a trailer");
    }
    bytes
}
