//! The headers around a packet: Ethernet with VLAN tags, IPv4 or IPv6, and UDP, through etherparse.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::{
    EtherType, Ethernet2Slice, IpDscp, IpEcn, IpNumber, Ipv4Header, Ipv4Slice, Ipv6FlowLabel,
    Ipv6Header, Ipv6Slice, SingleVlanSlice, UdpHeader, UdpSlice,
};

use crate::EmitError;
use crate::crc::PseudoHeader;

/// Explicit congestion notification, RFC 3168.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// The sender does not take part.
    #[default]
    NotEct,
    /// ECN-capable; reserved for L4S.
    Ect1,
    /// ECN-capable.
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// From the two low bits of the traffic class; higher bits are ignored.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits of the traffic class.
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }
}

/// One UDP datagram as it stands in its IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Source address and UDP source port.
    pub src: SocketAddr,
    /// Destination address and UDP destination port.
    pub dst: SocketAddr,
    /// Congestion mark.
    pub ecn: Ecn,
    /// Hops that are left.
    pub ttl: u8,
    /// The UDP payload.
    pub payload: &'a [u8],
}

impl Frame<'_> {
    /// What the integrity trailer covers besides the payload.
    pub fn pseudo_header(&self) -> PseudoHeader {
        PseudoHeader::new(self.src.ip(), self.dst)
    }
}

/// Why a frame holds no UDP datagram that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Another protocol.
    #[error("{layer} carries protocol {number:#06x}")]
    Foreign {
        /// The layer that names the protocol.
        layer: &'static str,
        /// Its code point there.
        number: u16,
    },
    /// A fragment, first or later.
    #[error("ip packet is a fragment")]
    Fragment,
    /// The layer's lengths do not fit the bytes that are there.
    #[error("{layer} header or length is malformed")]
    Malformed {
        /// The layer.
        layer: &'static str,
    },
}

/// Reads a frame that starts with an Ethernet header, with up to two VLAN tags.
///
/// # Errors
/// [`FrameError`], naming the first layer that is foreign or malformed.
pub fn parse_ethernet(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let ethernet = Ethernet2Slice::from_slice_without_fcs(bytes)
        .map_err(|_| FrameError::Malformed { layer: "ethernet" })?;
    let (mut ether_type, mut rest) = (ethernet.ether_type(), ethernet.payload_slice());
    for _ in 0..2 {
        if !is_vlan(ether_type) {
            break;
        }
        let tag = SingleVlanSlice::from_slice(rest)
            .map_err(|_| FrameError::Malformed { layer: "vlan" })?;
        (ether_type, rest) = (tag.ether_type(), tag.payload_slice());
    }
    match ether_type {
        EtherType::IPV4 => parse_ipv4(rest),
        EtherType::IPV6 => parse_ipv6(rest),
        other => Err(FrameError::Foreign {
            layer: "ethernet",
            number: other.0,
        }),
    }
}

/// Reads a frame that starts with an IP header, version 4 or 6.
///
/// # Errors
/// [`FrameError`], naming the first layer that is foreign or malformed.
pub fn parse_ip(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => parse_ipv4(bytes),
        Some(6) => parse_ipv6(bytes),
        _ => Err(FrameError::Malformed { layer: "ip" }),
    }
}

fn is_vlan(ether_type: EtherType) -> bool {
    matches!(ether_type.0, 0x8100 | 0x88a8 | 0x9100)
}

fn parse_ipv4(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let ip = Ipv4Slice::from_slice(bytes).map_err(|_| FrameError::Malformed { layer: "ipv4" })?;
    let header = ip.header();
    let payload = ip.payload();
    if payload.fragmented {
        return Err(FrameError::Fragment);
    }
    let (src, dst) = (
        header.source_addr().into(),
        header.destination_addr().into(),
    );
    parse_udp(
        payload.ip_number,
        payload.payload,
        (src, dst),
        header.ecn(),
        header.ttl(),
        "ipv4",
    )
}

fn parse_ipv6(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let ip = Ipv6Slice::from_slice(bytes).map_err(|_| FrameError::Malformed { layer: "ipv6" })?;
    let header = ip.header();
    let payload = ip.payload();
    if payload.fragmented {
        return Err(FrameError::Fragment);
    }
    let (src, dst) = (
        header.source_addr().into(),
        header.destination_addr().into(),
    );
    parse_udp(
        payload.ip_number,
        payload.payload,
        (src, dst),
        header.ecn(),
        header.hop_limit(),
        "ipv6",
    )
}

fn parse_udp<'a>(
    protocol: IpNumber,
    bytes: &'a [u8],
    (src, dst): (IpAddr, IpAddr),
    ecn: IpEcn,
    ttl: u8,
    layer: &'static str,
) -> Result<Frame<'a>, FrameError> {
    if protocol != IpNumber::UDP {
        return Err(FrameError::Foreign {
            layer,
            number: u16::from(protocol.0),
        });
    }
    let udp = UdpSlice::from_slice(bytes).map_err(|_| FrameError::Malformed { layer: "udp" })?;
    Ok(Frame {
        src: SocketAddr::new(src, udp.source_port()),
        dst: SocketAddr::new(dst, udp.destination_port()),
        ecn: Ecn::from_bits(ecn.value()),
        ttl,
        payload: udp.payload(),
    })
}

impl Frame<'_> {
    /// Bytes of the IP packet that [`Self::emit`] writes.
    pub fn ip_len(&self) -> usize {
        let ip = if self.src.is_ipv4() {
            Ipv4Header::MIN_LEN
        } else {
            Ipv6Header::LEN
        };
        ip + UdpHeader::LEN + self.payload.len()
    }

    /// Writes the IP packet, both checksums right, to the front of `out`; returns its length. Don't Fragment is set,
    /// the identification, the flow label and the DSCP are 0.
    ///
    /// # Errors
    /// [`EmitError::NoRoom`] when `out` is too small, [`EmitError::TooLong`] when no IP packet could carry it or the
    /// two addresses are of different families.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let len = self.ip_len();
        let available = out.len();
        let out = out.get_mut(..len).ok_or(EmitError::NoRoom {
            needed: len,
            available,
        })?;
        let too_long = EmitError::TooLong {
            len: self.payload.len(),
        };
        let (src_port, dst_port) = (self.src.port(), self.dst.port());
        let ecn = IpEcn::try_new(self.ecn.bits()).unwrap_or(IpEcn::ZERO);
        let ip_header_len = match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = ipv4_header(src, dst, ecn, self.ttl, len).ok_or(too_long)?;
                let udp = UdpHeader::with_ipv4_checksum(src_port, dst_port, &header, self.payload);
                put(out, &header.to_bytes(), udp.map_err(|_| too_long)?)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = ipv6_header(src, dst, ecn, self.ttl, len).ok_or(too_long)?;
                let udp = UdpHeader::with_ipv6_checksum(src_port, dst_port, &header, self.payload);
                put(out, &header.to_bytes(), udp.map_err(|_| too_long)?)
            }
            _ => return Err(too_long),
        };
        out[ip_header_len + UdpHeader::LEN..].copy_from_slice(self.payload);
        Ok(len)
    }
}

fn ipv4_header(
    src: Ipv4Addr,
    dst: Ipv4Addr,
    ecn: IpEcn,
    ttl: u8,
    len: usize,
) -> Option<Ipv4Header> {
    let mut header = Ipv4Header {
        dscp: IpDscp::ZERO,
        ecn,
        total_len: u16::try_from(len).ok()?,
        dont_fragment: true,
        time_to_live: ttl,
        protocol: IpNumber::UDP,
        source: src.octets(),
        destination: dst.octets(),
        ..Ipv4Header::default()
    };
    header.header_checksum = header.calc_header_checksum();
    Some(header)
}

fn ipv6_header(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    ecn: IpEcn,
    ttl: u8,
    len: usize,
) -> Option<Ipv6Header> {
    Some(Ipv6Header {
        traffic_class: ecn.value(),
        flow_label: Ipv6FlowLabel::ZERO,
        payload_length: u16::try_from(len - Ipv6Header::LEN).ok()?,
        next_header: IpNumber::UDP,
        hop_limit: ttl,
        source: src.octets(),
        destination: dst.octets(),
    })
}

fn put(out: &mut [u8], ip: &[u8], udp: UdpHeader) -> usize {
    out[..ip.len()].copy_from_slice(ip);
    out[ip.len()..ip.len() + UdpHeader::LEN].copy_from_slice(&udp.to_bytes());
    ip.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn frame(src: &str, dst: &str, payload: &'static [u8]) -> Frame<'static> {
        Frame {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            ecn: Ecn::Ce,
            ttl: 64,
            payload,
        }
    }

    #[test]
    fn comes_back_as_written_on_a_dirty_buffer() {
        for frame in [
            frame("192.0.2.1:50000", "192.0.2.2:49200", b"hello"),
            frame("[2001:db8::1]:50000", "[2001:db8::2]:49200", b"hello"),
        ] {
            let mut out = vec![0xa5; 100];
            let len = frame.emit(&mut out).unwrap();
            assert_eq!(parse_ip(&out[..len]), Ok(frame));
            assert_eq!(
                frame.emit(&mut out[..len - 1]),
                Err(EmitError::NoRoom {
                    needed: len,
                    available: len - 1
                })
            );
        }
    }

    #[test]
    fn ethernet_with_tags() {
        let frame = frame("192.0.2.1:50000", "192.0.2.2:49200", b"hello");
        let mut ip = vec![0; frame.ip_len()];
        frame.emit(&mut ip).unwrap();
        for tags in [
            &[][..],
            &[0x81, 0, 0, 1],
            &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2],
        ] {
            let bytes: Vec<u8> = [&[0; 12][..], tags, &[8, 0], &ip].concat();
            assert_eq!(parse_ethernet(&bytes), Ok(frame));
        }
    }

    #[test]
    fn every_truncation_is_an_error() {
        let frame = frame("192.0.2.1:50000", "192.0.2.2:49200", b"hello");
        let mut ip = vec![0; frame.ip_len()];
        frame.emit(&mut ip).unwrap();
        let bytes: Vec<u8> = [&[0; 12][..], &[8, 0], &ip].concat();
        for len in 0..bytes.len() {
            assert!(parse_ethernet(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn mixed_families_are_refused() {
        let frame = frame("192.0.2.1:50000", "[2001:db8::2]:49200", b"hello");
        assert_eq!(
            frame.emit(&mut [0; 200]),
            Err(EmitError::TooLong { len: 5 })
        );
    }
}
