//! NAK: the refusal of a packet, with the reason.

use super::{check_unpadded, fixed_body, rule};
use crate::metaroce::field::{code_space, header};
use crate::metaroce::headers::Cbh;
use crate::serial::{Msn, Psn};

code_space! {
    /// Why a packet was refused. Unknown code points stay representable.
    pub struct NakCode(u8) {
        /// The PSN lies outside the window.
        PSN_OOW = 0x01,
        /// No receive is posted although one was promised.
        RNR = 0x02,
        /// A limit of the receiver is reached.
        NO_RESOURCE = 0x03,
        /// The request is not valid.
        REM_INV_REQ = 0x10,
        /// The key, the bounds or the permission do not allow the access.
        REM_ACCESS = 0x11,
        /// The request failed at the receiver.
        REM_OP = 0x12,
        /// The message is longer than its receive.
        LENGTH = 0x13,
        /// The version is not supported.
        VERSION = 0x20,
        /// The connection id is not known.
        UNKNOWN_CID = 0x21,
        /// The connection is closing.
        CLOSING = 0x22,
        /// The epoch of the path is over.
        BAD_EPOCH = 0x23,
    }
}

code_space! {
    /// What a refusal concerns. Unknown code points stay representable.
    pub struct NakScope(u8) {
        /// The packet alone.
        PACKET = 0,
        /// Its stream.
        STREAM = 1,
        /// Its path.
        PATH = 2,
        /// The connection.
        CONNECTION = 3,
    }
}

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
    let dcid = u64::from(cbh.dcid.value());
    let stranger = body.code == NakCode::UNKNOWN_CID;
    rule(
        dcid == 0 || !stranger,
        Cbh::LAYER,
        "dcid",
        dcid,
        "who sends OPEN or NAK UNKNOWN_CID knows no connection id",
    )?;
    rule(
        dcid != 0 || stranger,
        Cbh::LAYER,
        "dcid",
        dcid,
        "only a NAK UNKNOWN_CID names no connection",
    )?;
});
