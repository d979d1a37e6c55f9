//! Packets to bytes.

use std::net::{IpAddr, SocketAddr};

use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::metaroce::{Body, Cbh, Packet};

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
