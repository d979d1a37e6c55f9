//! What the monitors share: packets decoded, and what one judged side has sent and been sent so far.

mod view;

use std::net::SocketAddr;

use metaroce_wire::crc;
use metaroce_wire::frame::{Ecn, parse_ip};
use metaroce_wire::metaroce::{Body, Cbh, Lax, Msgh, Opcode, parse_lax};

use crate::trace::{Note, Observation, Side};

pub use view::{
    Arrival, Arrived, Bad, Control, MessageView, RxView, StreamView, TxPacket, TxView, View,
};
pub(crate) use view::{control_image, data_image, head, is_request};

/// A packet at the tap of the judged side, decoded.
#[derive(Debug, Clone, Copy)]
pub struct Sighting<'o> {
    /// Number in the capture, from 1.
    pub frame: u64,
    /// Time, ns.
    pub time: u64,
    /// Whether the judged side sent it; otherwise it was delivered to that side.
    pub sent: bool,
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
    /// Congestion mark.
    pub ecn: Ecn,
    /// UDP payload.
    pub bytes: &'o [u8],
    /// What could be read of it.
    pub lax: Lax<'o>,
    /// Whether the trailer is right.
    pub crc_ok: bool,
    /// What the injector does to it.
    pub notes: &'o [Note],
}

impl<'o> Sighting<'o> {
    /// Decodes an observation at the tap of `judged`; nothing for one at the other tap.
    ///
    /// # Errors
    /// When it is no UDP datagram, which no tap of this suite records.
    pub fn decode(
        judged: Side,
        frame: u64,
        observation: &'o Observation,
    ) -> Result<Option<Self>, String> {
        if observation.tap != judged {
            return Ok(None);
        }
        let net = parse_ip(&observation.frame).map_err(|e| format!("frame {frame}: {e}"))?;
        Ok(Some(Self {
            frame,
            time: observation.time_ns,
            sent: observation.from == judged,
            src: net.src,
            dst: net.dst,
            ecn: net.ecn,
            bytes: net.payload,
            lax: parse_lax(net.payload),
            crc_ok: crc::verify(&net.pseudo_header(), net.payload).is_ok(),
            notes: &observation.notes,
        }))
    }

    /// The base header, when it is there.
    pub fn cbh(&self) -> Option<&Cbh> {
        self.lax.cbh.as_ref()
    }

    /// The opcode, when it is there.
    pub fn opcode(&self) -> Option<Opcode> {
        self.lax.cbh.map(|cbh| cbh.opcode)
    }

    /// Whether the packet is whole: right trailer, nothing malformed, a known opcode.
    pub fn is_sound(&self) -> bool {
        let known = !matches!(self.lax.body, None | Some(Body::Unknown(_)));
        self.crc_ok && self.lax.error.is_none() && known
    }

    /// Message header and payload, on a data packet.
    pub fn data(&self) -> Option<(Msgh, &'o [u8])> {
        match self.lax.body {
            Some(Body::Send(send)) => Some((send.msgh, send.payload)),
            Some(Body::Write(write)) => Some((write.msgh, write.payload)),
            _ => None,
        }
    }
}
