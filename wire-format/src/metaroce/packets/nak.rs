//! NAK: the refusal of a packet, with the reason.

use super::{check_unpadded, fixed_body};
use crate::metaroce::field::{Field, Visitor, Writer, header};
use crate::serial::{Msn, Psn};

/// Why a packet was refused. Unknown code points stay representable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NakCode(pub u8);

impl NakCode {
    /// The PSN lies outside the window.
    pub const PSN_OOW: Self = Self(0x01);
    /// No receive is posted although one was promised.
    pub const RNR: Self = Self(0x02);
    /// A limit of the receiver is reached.
    pub const NO_RESOURCE: Self = Self(0x03);
    /// The request is not valid.
    pub const REM_INV_REQ: Self = Self(0x10);
    /// The key, the bounds or the permission do not allow the access.
    pub const REM_ACCESS: Self = Self(0x11);
    /// The request failed at the receiver.
    pub const REM_OP: Self = Self(0x12);
    /// The message is longer than its receive.
    pub const LENGTH: Self = Self(0x13);
    /// The version is not supported.
    pub const VERSION: Self = Self(0x20);
    /// The connection id is not known.
    pub const UNKNOWN_CID: Self = Self(0x21);
    /// The connection is closing.
    pub const CLOSING: Self = Self(0x22);
    /// The epoch of the path is over.
    pub const BAD_EPOCH: Self = Self(0x23);
}

/// What a refusal concerns. Unknown code points stay representable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NakScope(pub u8);

impl NakScope {
    /// The packet alone.
    pub const PACKET: Self = Self(0);
    /// Its stream.
    pub const STREAM: Self = Self(1);
    /// Its path.
    pub const PATH: Self = Self(2);
    /// The connection.
    pub const CONNECTION: Self = Self(3);
}

macro_rules! code_field {
    ($type:ty) => {
        impl Field for $type {
            const LEN: usize = 1;
            fn load(bytes: &[u8]) -> Self {
                Self(u8::load(bytes))
            }
            fn put(&self, out: &mut Writer<'_>) {
                out.put(&[self.0]);
            }
            fn visit(&self, layer: &'static str, name: &'static str, f: &mut Visitor<'_>) {
                Field::visit(&self.0, layer, name, f);
            }
            fn excess(&self) -> u64 {
                u64::from(self.0)
            }
        }
    };
}
code_field!(NakCode);
code_field!(NakScope);

header! {
    /// A NAK packet.
    pub struct Nak, "NAK" {
        /// Why.
        code: NakCode,
        /// What it concerns.
        scope: NakScope,
        /// Stream of the packet refused.
        stream: u16,
        /// Message of the packet refused.
        msn: Msn,
        /// Reserved.
        rsvd: u8 = 0,
        /// PSN of the packet refused.
        offending_psn: Psn,
        /// Depends on the code; 0 where nothing is said.
        detail: u32,
    }
}

fixed_body!(Nak, |body, cbh| {
    check_unpadded(cbh)?;
});
