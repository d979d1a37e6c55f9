//! WRITE: a piece of a one-sided message. Byte `i` of the payload goes to `va + offset + i`.

use super::{PacketBody, rule};
use crate::Error;
use crate::metaroce::field::{Value, Visitor, Writer};
use crate::metaroce::headers::{Cbh, Msgh, Tagh};
use crate::metaroce::parse::{check_message, payload_of};

/// A WRITE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// Message header; its RQSN is 0.
    pub msgh: Msgh,
    /// Where the message goes; its immediate data is 0.
    pub tagh: Tagh,
    /// The bytes of the message at `msgh.offset`.
    pub payload: &'a [u8],
}

impl Write<'_> {
    /// Bytes of headers behind the base header.
    pub const HEADERS: usize = Msgh::LEN + Tagh::LEN;
}

impl<'a> PacketBody<'a> for Write<'a> {
    #[inline]
    fn read_body(input: &'a [u8], cbh: &Cbh) -> Result<Self, Error> {
        let (msgh, rest) = Msgh::read(input, Cbh::LEN)?;
        let (tagh, rest) = Tagh::read(rest, Cbh::LEN + Msgh::LEN)?;
        let payload = payload_of(rest, cbh, Cbh::LEN + Self::HEADERS)?;
        Ok(Self {
            msgh,
            tagh,
            payload,
        })
    }
    #[inline]
    fn check(&self, cbh: &Cbh) -> Result<(), Error> {
        check_message(cbh, &self.msgh, self.payload)?;
        let rqsn = u64::from(self.msgh.rqsn.value());
        rule(
            rqsn == 0,
            Msgh::LAYER,
            "rqsn",
            rqsn,
            "a Write consumes no receive",
        )?;
        rule(
            self.tagh.imm == 0,
            Tagh::LAYER,
            "imm",
            u64::from(self.tagh.imm),
            "a Write has no immediate data",
        )?;
        let end = self.tagh.va.checked_add(u64::from(self.msgh.len));
        rule(
            end.is_some(),
            Tagh::LAYER,
            "va",
            self.tagh.va,
            "address and length do not wrap",
        )
    }
    fn put_body(&self, out: &mut Writer<'_>) {
        self.msgh.put(out);
        self.tagh.put(out);
        out.put(self.payload);
    }
    fn visit_body(&self, f: &mut Visitor<'_>) {
        self.msgh.visit(f);
        self.tagh.visit(f);
        f("payload", "payload", Value::Bytes(self.payload));
    }
    fn payload(&self) -> Option<&'a [u8]> {
        Some(self.payload)
    }
    fn body_len(&self) -> usize {
        Self::HEADERS + self.payload.len()
    }
}
