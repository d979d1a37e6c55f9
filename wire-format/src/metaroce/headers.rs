//! The headers that packets are made of.

use super::field::{Field, U24, Value, Visitor, Writer, header, split};
use crate::Error;
use crate::metaroce::Opcode;
use crate::serial::{Msn, Psn, Rqsn};

/// Flags of the base header. Unknown bits are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// An acknowledgment is asked for.
    pub const AR: Self = Self(0x80);
    /// A retransmission.
    pub const RTX: Self = Self(0x40);
    /// A solicited event is asked for at the receiver.
    pub const SE: Self = Self(0x20);
    /// On an acknowledgment: what triggered it was a retransmission.
    pub const RTXE: Self = Self(0x10);
    /// Bits that are zero in this version.
    pub const RESERVED: Self = Self(0x0f);

    /// Whether any bit of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These flags and those of `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags less those of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// Flags of the message header. Unknown bits are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct MFlags(pub u8);

impl MFlags {
    /// First packet of the message.
    pub const SOM: Self = Self(0x80);
    /// Last packet of the message.
    pub const EOM: Self = Self(0x40);
    /// Immediate data follows.
    pub const IMM: Self = Self(0x20);
    /// A key to invalidate follows.
    pub const INV: Self = Self(0x10);
    /// A response.
    pub const RESP: Self = Self(0x04);
    /// Bits that are zero in this version.
    pub const RESERVED: Self = Self(0x0b);

    /// Whether any bit of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These flags and those of `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

macro_rules! flag_field {
    ($type:ty) => {
        impl Field for $type {
            const LEN: usize = 1;
            #[inline]
            fn load(bytes: &[u8]) -> Self {
                Self(u8::load(bytes))
            }
            fn put(&self, out: &mut Writer<'_>) {
                out.put(&[self.0]);
            }
            fn visit(&self, layer: &'static str, name: &'static str, f: &mut Visitor<'_>) {
                f(layer, name, Value::Int(u64::from(self.0)));
            }
            fn excess(&self) -> u64 {
                u64::from(self.0)
            }
        }
    };
}
flag_field!(MFlags);

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
    /// Path the packet belongs to; on an acknowledgment the path acknowledged; on control 0, probes excepted.
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
        /// Immediate data, or 0.
        imm: u32,
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

header! {
    /// The parameters of one side, exchanged at connection set-up.
    pub struct Params, "PARAMS" {
        /// Lowest version offered.
        ver_min: u8,
        /// Highest version offered.
        ver_max: u8,
        /// Paths in each direction, 1 to 256.
        paths: u16,
        /// Reserved.
        rsvd_a: u8 = 0,
        /// Connection id under which the sender of the parameters receives.
        scid: U24,
        /// Random number of the set-up.
        nonce: u64,
        /// First packet sequence number of every path in the direction this side sends.
        isn: Psn,
        /// Service asked for.
        service_id: u32,
        /// Streams that may be open at a time.
        streams: u16,
        /// Messages in flight per stream, 1 to 32767.
        msg_window: u16,
        /// Payload bytes per packet, a power of two from 256 to 8192.
        payload_size: u16,
        /// Bits of the acknowledgment vector, 256.
        vector_width: u16,
        /// Unit of timestamps, ns.
        ts_unit: u16,
        /// Longest time this side delays an acknowledgment, us.
        ack_delay: u16,
        /// Interval of rate hints, us.
        hint_interval: u16,
        /// 1 when this side sends rate hints.
        hint_support: u8,
        /// Planes besides the address pair of the set-up.
        extra_planes: u8,
        /// Read requests that this side queues.
        read_depth: u8,
        /// Atomic requests that this side queues.
        atomic_depth: u8,
        /// Reserved.
        rsvd_b: u16 = 0,
    }
}

/// Parameters stand inside OPEN, ACCEPT and CONFIRM; there the field's name serves as the header's.
impl Field for Params {
    const LEN: usize = Self::LEN;
    fn load(bytes: &[u8]) -> Self {
        Self::load_all(bytes)
    }
    fn put(&self, out: &mut Writer<'_>) {
        self.put(out);
    }
    fn visit(&self, _: &'static str, name: &'static str, f: &mut Visitor<'_>) {
        self.visit_as(name, f);
    }
    fn excess(&self) -> u64 {
        0
    }
}
