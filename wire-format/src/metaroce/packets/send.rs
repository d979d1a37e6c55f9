//! SEND: a piece of a two-sided message. Its place is (connection, stream, RQSN) and the offset in that receive.

use super::PacketBody;
use crate::Error;
use crate::metaroce::field::{Value, Visitor, Writer};
use crate::metaroce::headers::{Cbh, Msgh};
use crate::metaroce::parse::{check_message, payload_of};

/// A SEND packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Send<'a> {
    /// Message header.
    pub msgh: Msgh,
    /// The bytes of the message at `msgh.offset`.
    pub payload: &'a [u8],
}

impl Send<'_> {
    /// Bytes of headers behind the base header.
    pub const HEADERS: usize = Msgh::LEN;
}

impl<'a> PacketBody<'a> for Send<'a> {
    #[inline]
    fn read_body(input: &'a [u8], cbh: &Cbh) -> Result<Self, Error> {
        let (msgh, rest) = Msgh::read(input, Cbh::LEN)?;
        let payload = payload_of(rest, cbh, Cbh::LEN + Self::HEADERS)?;
        Ok(Self { msgh, payload })
    }
    #[inline]
    fn check(&self, cbh: &Cbh) -> Result<(), Error> {
        check_message(cbh, &self.msgh, self.payload)
    }
    fn put_body(&self, out: &mut Writer<'_>) {
        self.msgh.put(out);
        out.put(self.payload);
    }
    fn visit_body(&self, f: &mut Visitor<'_>) {
        self.msgh.visit(f);
        f("payload", "payload", Value::Bytes(self.payload));
    }
    fn payload(&self) -> Option<&'a [u8]> {
        Some(self.payload)
    }
    fn body_len(&self) -> usize {
        Self::HEADERS + self.payload.len()
    }
}
