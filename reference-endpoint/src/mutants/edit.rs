//! Editing datagrams at the edge.

use std::net::SocketAddr;

use metaroce_wire::crc::{self, PseudoHeader};
use metaroce_wire::metaroce::{Body, Cbh, Opcode, parse_lax};

use super::{Edge, Out};
use crate::core::Ecn;

/// What becomes of a datagram after an edit.
pub(super) enum Then {
    /// It goes out with a right trailer.
    Send,
    /// It goes out with the trailer it has.
    SendAsIs,
    /// It does not go out.
    Drop,
    /// It goes out later by this many ns.
    Later(u64),
    /// It goes out, and these bytes after it.
    AndAlso(Vec<u8>),
}

/// A mutant that edits what goes out.
pub(super) struct Outgoing<F>(F);

/// Makes one of its edit.
pub(super) fn outgoing<F: FnMut(&Cbh, &mut Out) -> Then + Send>(edit: F) -> Outgoing<F> {
    Outgoing(edit)
}

impl<F: FnMut(&Cbh, &mut Out) -> Then + Send> Edge for Outgoing<F> {
    fn outgoing(
        &mut self,
        now: u64,
        local: SocketAddr,
        mut datagram: Out,
        out: &mut Vec<(u64, Out)>,
    ) {
        let Some(cbh) = parse_lax(&datagram.1).cbh else {
            out.push((now, datagram));
            return;
        };
        let then = (self.0)(&cbh, &mut datagram);
        let pseudo = PseudoHeader::new(local.ip(), datagram.0.dst);
        if !matches!(then, Then::SendAsIs) {
            // Every datagram of the model is longer than its trailer.
            let _too_short = crc::seal(&pseudo, &mut datagram.1);
        }
        match then {
            Then::Drop => {}
            Then::Later(by) => out.push((now + by, datagram)),
            Then::AndAlso(mut bytes) => {
                let _too_short = crc::seal(&pseudo, &mut bytes);
                let transmit = datagram.0;
                out.push((now, datagram));
                out.push((now, (transmit, bytes)));
            }
            Then::Send | Then::SendAsIs => out.push((now, datagram)),
        }
    }
}

/// A mutant that edits what comes in; the trailer is then made right.
pub(super) struct Incoming<F>(F);

/// Makes one of its edit.
pub(super) fn incoming<F: FnMut(&mut Vec<u8>) + Send>(edit: F) -> Incoming<F> {
    Incoming(edit)
}

impl<F: FnMut(&mut Vec<u8>) + Send> Edge for Incoming<F> {
    fn incoming(
        &mut self,
        _now: u64,
        (from, local): (SocketAddr, SocketAddr),
        datagrams: &mut Vec<(Ecn, Vec<u8>)>,
    ) {
        for (_, bytes) in datagrams {
            (self.0)(bytes);
            let _too_short = crc::seal(&PseudoHeader::new(from.ip(), local), bytes);
        }
    }
}

/// Whether a packet is data that goes out for the first time, and one of those few that a mutant spoils: the rest
/// goes on sound, so that the exchange comes to its end.
pub(super) fn is_victim(cbh: &Cbh) -> bool {
    cbh.opcode.is_data() && !is_rtx(cbh) && cbh.psn.value() % 8 == 3
}

pub(super) fn is_rtx(cbh: &Cbh) -> bool {
    cbh.flags.has(metaroce_wire::metaroce::Flags::RTX)
}

/// Whether the acknowledgment in `bytes` carries a vector with a gap.
pub(super) fn is_sack(cbh: &Cbh) -> bool {
    cbh.opcode == Opcode::ACK_SACK
}

/// Whether `bytes` are data with a payload that does not start its message.
pub(super) fn is_inner_piece(bytes: &[u8]) -> bool {
    match parse_lax(bytes).body {
        Some(Body::Write(write)) => write.msgh.offset > 0,
        Some(Body::Send(send)) => send.msgh.offset > 0,
        _ => false,
    }
}
