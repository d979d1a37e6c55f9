//! The acceptor's side of the set-up before there is a connection: everything it needs comes back in the cookie.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::IpAddr;

use metaroce_wire::metaroce::{Features, Params, Planes, U24, Value};
use metaroce_wire::serial::Psn;
use siphasher::sip::SipHasher24;

use super::config::{Config, Service};

/// How long a cookie is good for, ns.
const COOKIE_LIFE: u64 = 10_000_000_000;

/// The secret of an endpoint.
pub(super) struct Secret {
    keys: [u64; 2],
}

/// The cookies that have set up a connection and would still hold: none does so twice (SEC-008).
#[derive(Default)]
pub(super) struct Spent {
    cookies: VecDeque<[u8; 32]>,
}

impl Spent {
    /// Whether a cookie has set up a connection before.
    pub(super) fn has(&mut self, now: u64, cookie: &[u8; 32]) -> bool {
        self.cookies.retain(|spent| Secret::is_fresh(now, spent));
        self.cookies.contains(cookie)
    }

    pub(super) fn add(&mut self, cookie: [u8; 32]) {
        self.cookies.push_back(cookie);
    }
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
        config: &Config,
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
            ack_delay: config.ack_delay_us,
            hint_interval: config.declared_hint_interval(),
            hint_support: u8::from(config.capacity_mbps.is_some()),
            // Planes join addresses of one family, and there are never more than the peer has named.
            extra_planes: offered.extra_planes.min(service.extra_planes),
            read_depth: service.read_depth,
            atomic_depth: service.atomic_depth,
            features: Features(offered.features.0 & service.features.0),
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

    /// Whether `cookie` was made for these addresses and parameters, however long ago.
    pub(super) fn is_mine(
        &self,
        from: IpAddr,
        offered: &[u8],
        accepted: &[u8],
        cookie: &[u8; 32],
    ) -> bool {
        let expected = self.cookie(made_at(cookie), from, offered, accepted);
        // No early end: how much of a guess was right must not show in the time this takes.
        let difference = cookie
            .iter()
            .zip(expected)
            .fold(0, |all, (a, b)| all | (a ^ b));
        difference == 0
    }

    /// Whether a cookie is recent enough to begin a connection with.
    pub(super) fn is_fresh(now: u64, cookie: &[u8; 32]) -> bool {
        now.checked_sub(made_at(cookie))
            .is_some_and(|age| age <= COOKIE_LIFE)
    }
}

fn made_at(cookie: &[u8; 32]) -> u64 {
    let mut time = [0; 8];
    time.copy_from_slice(&cookie[..8]);
    u64::from_be_bytes(time)
}

/// Whether offered parameters lie within the limits of the table PARAMS.
pub(super) fn is_acceptable(params: &Params) -> bool {
    params.ver_min >= 1
        && (1..=256).contains(&params.paths)
        && params.streams >= 1
        && (1..=32767).contains(&params.msg_window)
        && (256..=8192).contains(&params.payload_size)
        && params.payload_size.is_power_of_two()
        && params.vector_width == 256
        && (1..=1000).contains(&params.ts_unit)
        && params.ack_delay <= 50_000
        && match params.hint_support {
            0 => params.hint_interval == 0,
            1 => (10..=10_000).contains(&params.hint_interval),
            _ => false,
        }
        && params.extra_planes <= 7
        && params.scid.value() != 0
}

/// Every value of the parameters and the planes, for the cookie to vouch for.
pub(super) fn bytes_of(params: &Params, planes: &Planes<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 * Params::LEN + Planes::LEN);
    bytes.extend_from_slice(planes.0);
    params.visit(&mut |_, _, value| match value {
        Value::Int(number) => bytes.extend_from_slice(&number.to_be_bytes()),
        Value::Bytes(raw) => bytes.extend_from_slice(raw),
    });
    bytes
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
        assert!(secret.is_mine(from, b"offered", b"accepted", &cookie));
        assert!(!secret.is_mine([192, 0, 2, 2].into(), b"offered", b"accepted", &cookie));
        assert!(!secret.is_mine(from, b"Offered", b"accepted", &cookie));
        assert!(!secret.is_mine(from, b"offered", b"Accepted", &cookie));
        assert!(!Secret::new([1, 3]).is_mine(from, b"offered", b"accepted", &cookie));
        assert!(Secret::is_fresh(5, &cookie) && Secret::is_fresh(5 + COOKIE_LIFE, &cookie));
        assert!(!Secret::is_fresh(4, &cookie) && !Secret::is_fresh(6 + COOKIE_LIFE, &cookie));
        for i in 0..32 {
            let mut other = cookie;
            other[i] ^= 1;
            assert!(
                !secret.is_mine(from, b"offered", b"accepted", &other),
                "byte {i}"
            );
        }
    }
}
