//! ACK: what has arrived on a path, when nothing is missing before the highest arrival.

use super::{PacketBody, check_unpadded, end, rule};
use crate::Error;
use crate::metaroce::field::{Visitor, Writer, flag_set};
use crate::metaroce::headers::{AckHeader, Cbh};

flag_set! {
    /// Flags of an acknowledgment. Unknown bits are kept.
    pub struct AckFlags(u16) reserved 0x1fff {
        /// The timestamp echo holds a sample.
        ECHO_VALID = 0x8000,
        /// A duplicate has arrived since the last acknowledgment.
        DUPLICATE_SEEN = 0x4000,
        /// A packet outside the window has arrived since the last acknowledgment.
        OUT_OF_WINDOW_SEEN = 0x2000,
    }
}

/// An ACK packet. The base header's PSN is the highest with none missing up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Counters, echo, hint and credit.
    pub header: AckHeader,
}

pub(super) fn check(cbh: &Cbh, header: &AckHeader) -> Result<(), Error> {
    check_unpadded(cbh)?;
    let reserved = AckFlags(header.ack_flags).has(AckFlags::RESERVED);
    rule(
        !reserved,
        AckHeader::LAYER,
        "ack_flags",
        u64::from(header.ack_flags),
        "reserved flags are zero",
    )
}

impl<'a> PacketBody<'a> for Ack {
    fn read_body(input: &'a [u8], _: &Cbh) -> Result<Self, Error> {
        let (header, rest) = AckHeader::read(input, Cbh::LEN)?;
        end(rest, AckHeader::LAYER, Cbh::LEN + AckHeader::LEN)?;
        Ok(Self { header })
    }
    fn check(&self, cbh: &Cbh) -> Result<(), Error> {
        check(cbh, &self.header)
    }
    fn put_body(&self, out: &mut Writer<'_>) {
        self.header.put(out);
    }
    fn visit_body(&self, f: &mut Visitor<'_>) {
        self.header.visit(f);
    }
    fn body_len(&self) -> usize {
        AckHeader::LEN
    }
}
