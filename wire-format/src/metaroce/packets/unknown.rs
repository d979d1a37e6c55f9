//! A packet whose code point this version does not know: kept as it is.

use super::PacketBody;
use crate::Error;
use crate::metaroce::field::{Value, Visitor, Writer};
use crate::metaroce::headers::Cbh;

/// The body of a packet of unknown kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// Everything between base header and trailer.
    pub bytes: &'a [u8],
}

impl<'a> PacketBody<'a> for Unknown<'a> {
    fn read_body(input: &'a [u8], _: &Cbh) -> Result<Self, Error> {
        Ok(Self { bytes: input })
    }
    fn check(&self, _: &Cbh) -> Result<(), Error> {
        Ok(())
    }
    fn put_body(&self, out: &mut Writer<'_>) {
        out.put(self.bytes);
    }
    fn visit_body(&self, f: &mut Visitor<'_>) {
        f("UNKNOWN", "bytes", Value::Bytes(self.bytes));
    }
    fn body_len(&self) -> usize {
        self.bytes.len()
    }
}
