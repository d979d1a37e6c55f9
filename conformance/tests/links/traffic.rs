//! Made-up traffic: a set-up, then data and acknowledgments, every packet sound.

use std::net::SocketAddr;

use metaroce_conformance::trace::Side;
use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::frame::{Ecn, Frame};
use metaroce_wire::metaroce::{
    Accept, Ack, AckHeader, Body, Cbh, Flags, MFlags, Msgh, Opcode, Open, Packet, Params, Planes,
    StreamOpen, Tagh, U24, Write,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};

pub const STREAM: u16 = 2;
pub const FIRST_MSN: u32 = 0xff_fffe;
/// First PSNs near the wrap.
pub const ISN: [u32; 2] = [0xffff_fffd, 77];

/// One packet and how it leaves its sender.
#[derive(Debug, Clone)]
pub struct Sent {
    pub src: SocketAddr,
    pub dst: SocketAddr,
    pub ecn: Ecn,
    pub bytes: Vec<u8>,
}

impl Sent {
    pub fn frame(&self) -> Frame<'_> {
        Frame {
            src: self.src,
            dst: self.dst,
            ecn: self.ecn,
            ttl: 64,
            payload: &self.bytes,
        }
    }
}

/// Makes the packets of one side.
#[derive(Debug, Clone, Copy)]
pub struct Maker {
    pub side: Side,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub isn: u32,
}

impl Maker {
    pub fn new(side: Side, local: SocketAddr, peer: SocketAddr) -> Self {
        let isn = ISN[side.index()];
        Self {
            side,
            local,
            peer,
            isn,
        }
    }

    /// Both sides in simulated time.
    pub fn pair() -> [Self; 2] {
        let [a, b] = ["192.0.2.1:49200", "192.0.2.2:49200"].map(|text| text.parse().unwrap());
        [Self::new(Side::A, a, b), Self::new(Side::B, b, a)]
    }

    fn seal(&self, cbh: Cbh, body: Body<'_>, port: u16, ecn: Ecn) -> Sent {
        let src = SocketAddr::new(self.local.ip(), port);
        let packet = Packet { cbh, body };
        let mut bytes = vec![0; packet.wire_len()];
        let pseudo = PseudoHeader::new(src.ip(), self.peer);
        packet.emit(&mut bytes, &pseudo).unwrap();
        Sent {
            src,
            dst: self.peer,
            ecn,
            bytes,
        }
    }

    fn control(&self, opcode: Opcode, transaction: u32, body: Body<'_>) -> Sent {
        let dcid = if opcode == Opcode::OPEN { 0 } else { 5 };
        let mut cbh = Cbh::new(opcode, U24::new(dcid));
        cbh.psn = Psn::new(transaction);
        self.seal(cbh, body, 50_000, Ecn::NotEct)
    }

    fn params(&self) -> Params {
        let mut params = None;
        let mut bytes = [0; Cbh::LEN + Open::LEN + 4];
        bytes[1] = Opcode::OPEN.0;
        if let Some(Body::Open(open)) = metaroce_wire::metaroce::parse_lax(&bytes).body {
            params = Some(open.params);
        }
        Params {
            ver_min: 1,
            ver_max: 1,
            paths: 4,
            isn: Psn::new(self.isn),
            payload_size: 1024,
            vector_width: 256,
            ..params.unwrap()
        }
    }

    pub fn open(&self) -> Sent {
        let params = self.params();
        let open = Open {
            params,
            planes: Planes::NONE,
            padding: [0; 32],
        };
        self.control(Opcode::OPEN, 9, Body::Open(open))
    }

    pub fn accept(&self) -> Sent {
        let accept = Accept {
            params: self.params(),
            planes: Planes::NONE,
            cookie: [7; 32],
        };
        self.control(Opcode::ACCEPT, 9, Body::Accept(accept))
    }

    pub fn stream_open(&self) -> Sent {
        let open = StreamOpen {
            stream: STREAM,
            status: 0,
            rsvd_a: 0,
            first_msn: Msn::new(FIRST_MSN),
            first_rqsn: Rqsn::new(0),
            rq_limit: Rqsn::new(0),
            rsvd_b: 0,
            src_qpn: U24::new(1),
            rsvd_c: 0,
            dst_qpn: U24::new(0),
        };
        self.control(Opcode::STREAM_OPEN, 10, Body::StreamOpen(open))
    }

    /// Packet `n` of `path`: message `n / 4`, offset `n % 4` KiB, 256 bytes that depend on all of it.
    pub fn write(&self, path: u8, n: u32, rtx: bool) -> Sent {
        let mut cbh = Cbh::new(Opcode::WRITE, U24::new(5));
        cbh.psn = Psn::new(self.isn).add(n);
        cbh.path = path;
        if rtx {
            cbh.flags = Flags::RTX;
        }
        let payload: Vec<u8> = (0..=255u8)
            .map(|i| i.wrapping_mul(7).wrapping_add(path).wrapping_add(n as u8))
            .collect();
        let offset = n % 4 * 1024;
        let write = Write {
            msgh: Msgh {
                stream: STREAM,
                rqsn: Rqsn::new(0),
                mflags: MFlags(if offset == 0 { 0x80 } else { 0 }),
                msn: Msn::new(FIRST_MSN).add(n / 4),
                offset,
                len: 8192,
            },
            tagh: Tagh {
                va: 0x1000,
                rkey: 3,
                imm: 0,
            },
            payload: &payload,
        };
        self.seal(cbh, Body::Write(write), 50_000 + u16::from(path), Ecn::Ect0)
    }

    /// Acknowledges the peer's first `n` packets of `path`.
    pub fn ack(&self, path: u8, n: u32) -> Sent {
        let mut cbh = Cbh::new(Opcode::ACK, U24::new(5));
        cbh.psn = Psn::new(ISN[self.side.other().index()]).add(n).sub(1);
        cbh.path = path;
        let header = AckHeader {
            timestamp_echo: 0,
            ack_delay: 0,
            ack_flags: 0x8000,
            ce_count: 0,
            ect_count: n,
            hint_epoch: 0,
            rate_hint: U24::new(0xff_ffff),
            stream: STREAM,
            rq_limit: Rqsn::new(0),
        };
        self.seal(cbh, Body::Ack(Ack { header }), 50_000, Ecn::NotEct)
    }

    /// A row of data over four paths, each fourth packet followed by an acknowledgment.
    pub fn bulk(&self, packets: u32) -> Vec<Sent> {
        let mut row = Vec::new();
        for n in 0..packets {
            row.push(self.write((n % 4) as u8, n / 4, false));
            if n % 4 == 3 {
                row.push(self.ack((n / 4 % 4) as u8, n / 4 + 1));
            }
        }
        row
    }
}
