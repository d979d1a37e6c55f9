//! The integrity trailer: CRC-32C over a pseudo-header and the transport bytes.
//!
//! It covers what must not change in flight and leaves out what routers change or a socket cannot see; the UDP source
//! port is left out because it is entropy only.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::Error;

/// Bytes of the trailer.
pub const LEN: usize = 4;

/// The addresses and port that the trailer covers besides the transport bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PseudoHeader {
    /// Source address; IPv4 as `::ffff:a.b.c.d`.
    pub src: Ipv6Addr,
    /// Destination address; IPv4 as `::ffff:a.b.c.d`.
    pub dst: Ipv6Addr,
    /// UDP destination port.
    pub dst_port: u16,
}

impl PseudoHeader {
    /// The pseudo-header of a packet from `src` to `dst`.
    pub fn new(src: IpAddr, dst: SocketAddr) -> Self {
        Self {
            src: mapped(src),
            dst: mapped(dst.ip()),
            dst_port: dst.port(),
        }
    }

    fn bytes(&self, udp_payload_len: usize) -> [u8; 40] {
        let mut head = [0u8; 40];
        head[..16].copy_from_slice(&self.src.octets());
        head[16..32].copy_from_slice(&self.dst.octets());
        head[32..34].copy_from_slice(&self.dst_port.to_be_bytes());
        // The UDP length field: payload and the eight bytes of its header. A UDP payload is below 64 KiB, so that
        // the cast loses nothing on any packet that exists.
        head[36..40].copy_from_slice(&((udp_payload_len + 8) as u32).to_be_bytes());
        head
    }
}

/// The CRC-32C that the trailer of a packet must hold. `body` is the UDP payload without its last four bytes.
pub fn compute(pseudo: &PseudoHeader, body: &[u8]) -> u32 {
    crc_32c(&[&pseudo.bytes(body.len() + LEN), body])
}

#[cfg(feature = "fast-crc")]
fn crc_32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    // A 32-bit algorithm leaves the upper half zero.
    digest.finalize() as u32
}

#[cfg(not(feature = "fast-crc"))]
fn crc_32c(parts: &[&[u8]]) -> u32 {
    table_crc_32c(parts)
}

#[cfg(any(test, not(feature = "fast-crc")))]
fn table_crc_32c(parts: &[&[u8]]) -> u32 {
    const TABLE: ::crc::Crc<u32> = ::crc::Crc::<u32>::new(&::crc::CRC_32_ISCSI);
    let mut digest = TABLE.digest();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

/// Checks the trailer of a whole UDP payload.
///
/// # Errors
/// [`Error::Short`] below four bytes, [`Error::Crc`] when the trailer does not match.
pub fn verify(pseudo: &PseudoHeader, udp_payload: &[u8]) -> Result<(), Error> {
    let (body, trailer) = split(udp_payload)?;
    let found = u32::from_be_bytes(trailer);
    let computed = compute(pseudo, body);
    if found == computed {
        Ok(())
    } else {
        Err(Error::Crc { found, computed })
    }
}

/// Writes the right trailer into the last four bytes of `udp_payload`.
///
/// # Errors
/// [`Error::Short`] below four bytes.
pub fn seal(pseudo: &PseudoHeader, udp_payload: &mut [u8]) -> Result<(), Error> {
    let (body, _) = split(udp_payload)?;
    let crc = compute(pseudo, body);
    put_trailer(udp_payload, crc);
    Ok(())
}

/// Carries the trailer over from one address pair to another, as an address translator must: a right one stays right
/// and a wrong one stays wrong, because the CRC is linear and both change by the same difference.
///
/// # Errors
/// [`Error::Short`] below four bytes.
pub fn translate(
    from: &PseudoHeader,
    to: &PseudoHeader,
    udp_payload: &mut [u8],
) -> Result<(), Error> {
    let (body, trailer) = split(udp_payload)?;
    let difference = compute(from, body) ^ compute(to, body);
    put_trailer(udp_payload, u32::from_be_bytes(trailer) ^ difference);
    Ok(())
}

fn put_trailer(udp_payload: &mut [u8], crc: u32) {
    if let Some(trailer) = udp_payload.last_chunk_mut::<LEN>() {
        *trailer = crc.to_be_bytes();
    }
}

fn split(udp_payload: &[u8]) -> Result<(&[u8], [u8; LEN]), Error> {
    udp_payload
        .split_last_chunk::<LEN>()
        .map(|(body, trailer)| (body, *trailer))
        .ok_or(Error::Short {
            layer: "CRC",
            offset: 0,
            needed: LEN,
            available: udp_payload.len(),
        })
}

fn mapped(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn pseudo(last: u8) -> PseudoHeader {
        PseudoHeader::new(
            "192.0.2.1".parse().unwrap(),
            SocketAddr::new([192, 0, 2, last].into(), 49200),
        )
    }

    #[test]
    fn algorithm_is_crc_32c() {
        assert_eq!(crc_32c(&[b"1234", b"56789"]), 0xe306_9283);
        assert_eq!(table_crc_32c(&[b"1234", b"56789"]), 0xe306_9283);
    }

    #[test]
    fn translation_keeps_right_right_and_wrong_wrong() {
        let mut bytes: Vec<u8> = (0..40).collect();
        seal(&pseudo(2), &mut bytes).unwrap();
        translate(&pseudo(2), &pseudo(3), &mut bytes).unwrap();
        assert_eq!(verify(&pseudo(3), &bytes), Ok(()));
        assert!(verify(&pseudo(2), &bytes).is_err());
        bytes[39] ^= 1;
        translate(&pseudo(3), &pseudo(2), &mut bytes).unwrap();
        assert!(verify(&pseudo(2), &bytes).is_err());
        bytes[39] ^= 1;
        assert_eq!(verify(&pseudo(2), &bytes), Ok(()));
    }

    #[test]
    fn too_short_is_an_error_not_a_panic() {
        for len in 0..LEN {
            let mut bytes = std::vec![0; len];
            assert!(verify(&pseudo(2), &bytes).is_err());
            assert!(seal(&pseudo(2), &mut bytes).is_err());
            assert!(translate(&pseudo(2), &pseudo(3), &mut bytes).is_err());
        }
    }
}
