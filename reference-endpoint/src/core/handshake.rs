//! The acceptor's side of the set-up before there is a connection: everything it needs comes back in the cookie.

use std::hash::Hasher;
use std::net::IpAddr;

use metaroce_wire::metaroce::{Params, U24};
use metaroce_wire::serial::Psn;
use siphasher::sip::SipHasher24;

use super::config::Service;

/// How long a cookie is good for, ns.
const COOKIE_LIFE: u64 = 10_000_000_000;

/// The secret of an endpoint.
pub(super) struct Secret {
    keys: [u64; 2],
}

impl Secret {
    pub(super) fn new(keys: [u64; 2]) -> Self {
        Self { keys }
    }

    fn hash(&self, purpose: u8, parts: &[&[u8]]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.keys[0], self.keys[1]);
        hasher.write_u8(purpose);
        for part in parts {
            hasher.write(part);
        }
        hasher.finish()
    }

    /// The parameters that an OPEN is answered with: a function of the OPEN, so that nothing need be kept.
    pub(super) fn accept(
        &self,
        from: IpAddr,
        offered: &Params,
        service: &Service,
        ack_delay_us: u16,
    ) -> Params {
        let peer = address(from);
        let nonce = offered.nonce.to_be_bytes();
        let scid = (self.hash(1, &[&peer, &nonce]) as u32 & 0x00ff_ffff).max(1);
        let isn = service
            .initial_psn
            .unwrap_or(self.hash(2, &[&peer, &nonce]) as u32);
        Params {
            ver_min: metaroce_wire::metaroce::VERSION,
            ver_max: metaroce_wire::metaroce::VERSION,
            paths: offered.paths.min(service.paths),
            scid: U24::new(scid),
            nonce: self.hash(3, &[&peer, &nonce]),
            isn: Psn::new(isn),
            service_id: offered.service_id,
            streams: offered.streams.min(service.streams),
            msg_window: offered.msg_window.min(service.msg_window),
            payload_size: offered.payload_size.min(service.payload_size),
            ack_delay: ack_delay_us,
            ..super::connection::blank_params()
        }
    }

    /// Makes the cookie for an answer given at `now`.
    pub(super) fn cookie(
        &self,
        now: u64,
        from: IpAddr,
        offered: &[u8],
        accepted: &[u8],
    ) -> [u8; 32] {
        let time = now.to_be_bytes();
        let peer = address(from);
        let mut cookie = [0; 32];
        cookie[..8].copy_from_slice(&time);
        for (purpose, place) in (4u8..).zip(cookie[8..].chunks_exact_mut(8)) {
            let mac = self.hash(purpose, &[&peer, &time, offered, accepted]);
            place.copy_from_slice(&mac.to_be_bytes());
        }
        cookie
    }

    /// Whether `cookie` was made for these addresses and parameters, and not too long ago.
    pub(super) fn is_mine(
        &self,
        now: u64,
        from: IpAddr,
        offered: &[u8],
        accepted: &[u8],
        cookie: &[u8; 32],
    ) -> bool {
        let mut time = [0; 8];
        time.copy_from_slice(&cookie[..8]);
        let made = u64::from_be_bytes(time);
        let age_ok = now.checked_sub(made).is_some_and(|age| age <= COOKIE_LIFE);
        let expected = self.cookie(made, from, offered, accepted);
        // No early end: how much of a guess was right must not show in the time this takes.
        let difference = cookie
            .iter()
            .zip(expected)
            .fold(0, |all, (a, b)| all | (a ^ b));
        age_ok && difference == 0
    }
}

fn address(from: IpAddr) -> [u8; 16] {
    match from {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_fits_its_addresses_parameters_and_time_only() {
        let secret = Secret::new([1, 2]);
        let from: IpAddr = [192, 0, 2, 1].into();
        let cookie = secret.cookie(5, from, b"offered", b"accepted");
        assert!(secret.is_mine(6, from, b"offered", b"accepted", &cookie));
        assert!(!secret.is_mine(4, from, b"offered", b"accepted", &cookie));
        assert!(!secret.is_mine(6 + COOKIE_LIFE, from, b"offered", b"accepted", &cookie));
        assert!(!secret.is_mine(6, [192, 0, 2, 2].into(), b"offered", b"accepted", &cookie));
        assert!(!secret.is_mine(6, from, b"Offered", b"accepted", &cookie));
        assert!(!secret.is_mine(6, from, b"offered", b"Accepted", &cookie));
        assert!(!Secret::new([1, 3]).is_mine(6, from, b"offered", b"accepted", &cookie));
        for i in 0..32 {
            let mut other = cookie;
            other[i] ^= 1;
            assert!(
                !secret.is_mine(6, from, b"offered", b"accepted", &other),
                "byte {i}"
            );
        }
    }
}
