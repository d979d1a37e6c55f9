//! The headers that packets are made of.

use super::field::{Field, U24, Value, Visitor, Writer, flag_set, header, split};
use crate::Error;
use crate::metaroce::Opcode;
use crate::serial::{Msn, Psn, Rqsn};

flag_set! {
    /// Flags of the base header. Unknown bits are kept.
    pub struct Flags(u8) reserved 0x0f {
        /// An acknowledgment is asked for.
        AR = 0x80,
        /// A retransmission.
        RTX = 0x40,
        /// A solicited event is asked for at the receiver.
        SE = 0x20,
        /// On an acknowledgment: what triggered it was a retransmission.
        RTXE = 0x10,
    }
}

flag_set! {
    /// Flags of the message header. Unknown bits are kept.
    pub struct MFlags(u8) reserved 0x0b {
        /// First packet of the message.
        SOM = 0x80,
        /// Last packet of the message.
        EOM = 0x40,
        /// The message has immediate data.
        IMM = 0x20,
        /// The message invalidates a key.
        INV = 0x10,
        /// A response.
        RESP = 0x04,
    }
}

/// The common base header of every packet, 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cbh {
    /// Version of the wire format, 4 bits; [`VERSION`](super::VERSION) here.
    pub version: u8,
    /// Epoch of the path, 4 bits.
    pub epoch: u8,
    /// Kind of packet.
    pub opcode: Opcode,
    /// Flags.
    pub flags: Flags,
    /// Path the packet belongs to; on an acknowledgment the path acknowledged; on control 0 unless it is about
    /// a path.
    pub path: u8,
    /// Zero bytes between payload and trailer, 0 to 3.
    pub pad: u8,
    /// Reserved, 6 bits, zero.
    pub rsvd: u8,
    /// Connection id chosen by the receiver of the packet.
    pub dcid: U24,
    /// Packet sequence number; on an acknowledgment the cumulative one; on control the transaction id.
    pub psn: Psn,
    /// Sender's clock, in the unit agreed at OPEN, 1 ns by default.
    pub timestamp: u32,
}

impl Cbh {
    /// Bytes on the wire.
    pub const LEN: usize = 16;
    /// Name of the header in the wire tables.
    pub const LAYER: &'static str = "CBH";

    /// A header of this version with everything else zero.
    pub const fn new(opcode: Opcode, dcid: U24) -> Self {
        Self {
            version: super::VERSION,
            epoch: 0,
            opcode,
            flags: Flags(0),
            path: 0,
            pad: 0,
            rsvd: 0,
            dcid,
            psn: Psn::new(0),
            timestamp: 0,
        }
    }

    /// Reads the header from the front of a UDP payload.
    ///
    /// # Errors
    /// [`Error::Short`] below 16 bytes.
    #[inline]
    pub fn read(input: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (head, rest) = split::<{ Self::LEN }>(input, Self::LAYER, 0)?;
        let cbh = Self {
            version: head[0] >> 4,
            epoch: head[0] & 0x0f,
            opcode: Opcode(head[1]),
            flags: Flags(head[2]),
            path: head[3],
            pad: head[4] >> 6,
            rsvd: head[4] & 0x3f,
            dcid: U24::load(&head[5..8]),
            psn: Psn::load(&head[8..12]),
            timestamp: u32::load(&head[12..16]),
        };
        Ok((cbh, rest))
    }

    pub(crate) fn put(&self, out: &mut Writer<'_>) {
        out.put(&[
            self.version << 4 | self.epoch & 0x0f,
            self.opcode.0,
            self.flags.0,
            self.path,
            self.pad << 6 | self.rsvd & 0x3f,
        ]);
        self.dcid.put(out);
        self.psn.put(out);
        self.timestamp.put(out);
    }

    /// Shows every field in wire order.
    pub fn visit(&self, f: &mut Visitor<'_>) {
        let mut number = |name, value: u64| f(Self::LAYER, name, Value::Int(value));
        number("version", u64::from(self.version));
        number("epoch", u64::from(self.epoch));
        number("opcode", u64::from(self.opcode.0));
        number("flags", u64::from(self.flags.0));
        number("path", u64::from(self.path));
        number("pad", u64::from(self.pad));
        number("rsvd", u64::from(self.rsvd));
        number("dcid", u64::from(self.dcid.value()));
        number("psn", u64::from(self.psn.value()));
        number("timestamp", u64::from(self.timestamp));
    }
}

header! {
    /// The message header of every data packet.
    pub struct Msgh, "MSGH" {
        /// Stream of the message; one queue pair is one stream.
        stream: u16,
        /// Receive that the message consumes; 0 where it consumes none.
        rqsn: Rqsn,
        /// Flags.
        mflags: MFlags,
        /// Number of the message within its stream and direction.
        msn: Msn,
        /// Offset of the payload in the message, bytes.
        offset: u32,
        /// Length of the whole message, bytes, at most 2^31.
        len: u32,
    }
}

header! {
    /// The tagged placement header.
    pub struct Tagh, "TAGH" {
        /// Remote address of the start of the message.
        va: u64,
        /// Key of the remote memory region.
        rkey: u32,
        /// Immediate data of a Write that has some, or 0.
        imm: u32,
    }
}

header! {
    /// The operands of an atomic request.
    pub struct Atomic, "ATOMIC" {
        /// The new value of a compare-and-swap, the summand of a fetch-and-add.
        swap_or_add: u64,
        /// The value that a compare-and-swap expects; 0 on a fetch-and-add.
        compare: u64,
    }
}

header! {
    /// The fields that both kinds of acknowledgment share.
    pub struct AckHeader, "ACK" {
        /// Timestamp of the latest arrival on the path.
        timestamp_echo: u32,
        /// Time from that arrival to this acknowledgment, in 64 ns; 0xffff means no sample.
        ack_delay: u16,
        /// Flags, see [`AckFlags`](super::AckFlags).
        ack_flags: u16,
        /// CE-marked packets of this path, duplicates left out.
        ce_count: u32,
        /// ECT(0) and ECT(1) packets of this path, duplicates left out.
        ect_count: u32,
        /// Epoch of the rate hint.
        hint_epoch: u8,
        /// Rate allotted to the connection, Mb/s; 0 pauses, 0xffffff sets no limit.
        rate_hint: U24,
        /// Stream of the packet that triggered the acknowledgment.
        stream: u16,
        /// First receive of that stream that is not yet posted.
        rq_limit: Rqsn,
    }
}
