//! Control packets, kept whole: there are few of them, and their monitors compare them with each other.

use std::collections::VecDeque;

use metaroce_wire::crc;
use metaroce_wire::metaroce::{Body, Cbh, Lax, Opcode, parse_lax};

/// Control packets kept, at most.
const KEPT: usize = 1024;

/// A control packet that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Frame.
    pub frame: u64,
    /// When, ns.
    pub time: u64,
    /// Whether the judged side sent it; otherwise it was delivered to it, sound.
    pub sent: bool,
    /// Its base header.
    pub cbh: Cbh,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

impl Control {
    /// The packet, as far as it can be read.
    pub fn read(&self) -> Lax<'_> {
        parse_lax(&self.bytes)
    }

    /// Transaction id.
    pub fn transaction(&self) -> u32 {
        self.cbh.psn.value()
    }

    /// Whether another packet has the same body: what stands between base header and trailer.
    pub fn same_body(&self, other: &[u8]) -> bool {
        body_of(&self.bytes) == body_of(other)
    }
}

fn body_of(bytes: &[u8]) -> &[u8] {
    let end = bytes.len().saturating_sub(crc::LEN);
    bytes.get(Cbh::LEN..end).unwrap_or(&[])
}

/// The control packets of a trace, probes and their answers left out; the oldest are forgotten when there are too many.
#[derive(Debug, Clone, Default)]
pub struct ControlLog {
    kept: VecDeque<Control>,
    forgotten: u64,
}

impl ControlLog {
    pub(super) fn push(&mut self, control: Control) {
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
            self.forgotten += 1;
        }
        self.kept.push_back(control);
    }

    /// Whether something may be missing here that was on the wire.
    pub fn is_partial(&self) -> bool {
        self.forgotten > 0
    }

    /// All of them, the latest first.
    pub fn latest(&self) -> impl Iterator<Item = &Control> {
        self.kept.iter().rev()
    }

    /// All of them in order.
    pub fn all(&self) -> impl Iterator<Item = &Control> {
        self.kept.iter()
    }

    /// The latest packets of one kind and direction.
    pub fn of(&self, sent: bool, opcode: Opcode) -> impl Iterator<Item = &Control> {
        self.latest()
            .filter(move |control| control.sent == sent && control.cbh.opcode == opcode)
    }

    /// The latest packet of one kind and direction under a transaction id.
    pub fn find(&self, sent: bool, opcode: Opcode, transaction: u32) -> Option<&Control> {
        self.of(sent, opcode)
            .find(|control| control.transaction() == transaction)
    }
}

/// Whether a control packet asks for an answer.
pub fn is_request(opcode: Opcode, body: Option<&Body<'_>>) -> bool {
    match opcode {
        Opcode::OPEN
        | Opcode::CONFIRM
        | Opcode::CLOSE
        | Opcode::PATH_PROBE
        | Opcode::PATH_RETIRE
        | Opcode::STREAM_OPEN
        | Opcode::STREAM_RESET => true,
        Opcode::RQ_CREDIT => matches!(body, Some(Body::RqCredit(credit)) if credit.kind == 0),
        _ => false,
    }
}
