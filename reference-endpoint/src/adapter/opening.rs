//! What an `open` asks for, as settings of an endpoint and a service.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::answers::{Code, Failure, bits};
use super::messages::{Open, Role, body, present, take};
use crate::core::{Config, Features, Service, StreamConfig};

/// Regions of a session, at most.
const MOST_REGIONS: usize = 65_536;
/// Connections of a session: one, until it is reset.
const MOST_CONNECTIONS: usize = 1;
/// Planes besides the first, at most.
pub(super) const MOST_EXTRA_PLANES: u8 = 7;
/// Highest rate that a hint can name, Mb/s.
pub(super) const MOST_MBPS: u32 = 0x00ff_fffe;

/// A feature that can be agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Feature {
    /// Immediate data.
    Imm,
    /// Invalidation of keys.
    Inv,
    /// Resets of streams.
    Reset,
    /// Retirement of paths.
    Retire,
    /// Notices of new routes.
    Change,
}

impl Feature {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [
        Self::Imm,
        Self::Inv,
        Self::Reset,
        Self::Retire,
        Self::Change,
    ];
}

/// The fields of `open` that a harness can do without. With one of them it hears of everything that happens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OpenMore {
    /// Features offered.
    pub features: Vec<Feature>,
    /// Reads that it takes at a time.
    pub read_depth: u8,
    /// Atomic operations that it takes at a time.
    pub atomic_depth: u8,
    /// Own addresses in the planes from 1 on.
    pub planes: Vec<IpAddr>,
    /// Streams opened at once; all when missing.
    #[serde(deserialize_with = "present")]
    pub first_streams: Option<u16>,
    /// Source ports from `source_port_base` on; one for each path when missing.
    #[serde(deserialize_with = "present")]
    pub source_ports: Option<u16>,
    /// Inbound capacity, Mb/s; no hints when missing.
    #[serde(deserialize_with = "present")]
    pub capacity_mbps: Option<u32>,
    /// Pause between two renewals of the hints, us.
    #[serde(deserialize_with = "present")]
    pub hint_interval_us: Option<u16>,
    /// Times that a message without a receive is tried again; 7 is without limit.
    #[serde(deserialize_with = "present")]
    pub rnr_retries: Option<u8>,
    /// Whether the streams take their receives from a shared queue.
    pub srq: bool,
    /// New packets in a row on one path.
    #[serde(deserialize_with = "present")]
    pub spray_run: Option<u8>,
    /// Protection domain of the streams.
    pub domain: u32,
}

impl OpenMore {
    /// Their names.
    const NAMES: [&str; 12] = [
        "features",
        "read_depth",
        "atomic_depth",
        "planes",
        "first_streams",
        "source_ports",
        "capacity_mbps",
        "hint_interval_us",
        "rnr_retries",
        "srq",
        "spray_run",
        "domain",
    ];
}

/// Reads the body of an `open`.
pub(super) fn read(mut fields: Map<String, Value>) -> Result<Open, Failure> {
    let more = take(&mut fields, &OpenMore::NAMES);
    let open: Open = body(fields)?;
    let more = match more.is_empty() {
        true => None,
        false => Some(body(more)?),
    };
    Ok(Open { more, ..open })
}

/// The settings of the endpoint. `seed` is the session's.
pub(super) fn config(seed: u64, open: &Open, more: &OpenMore) -> Result<Config, Failure> {
    if open.local.is_ipv4() != open.peer.is_ipv4() {
        return bad("local and peer are not of one address family");
    }
    if open.local.ip().is_unspecified() || open.local.port() == 0 || open.peer.port() == 0 {
        return bad("local and peer name an address and a port each");
    }
    if open.role == Role::Acceptor && open.local.port() != open.peer.port() {
        return bad("an acceptor answers to its own service port, so the peer must use the same");
    }
    let ports = more.source_ports.unwrap_or(open.paths);
    let Some(end) = open.source_port_base.checked_add(ports) else {
        return bad("there are not so many source ports from source_port_base on");
    };
    if open.source_port_base == 0 {
        return bad("source_port_base is 0");
    }
    if more.planes.len() > usize::from(MOST_EXTRA_PLANES) {
        return bad("there are at most 7 planes besides the first");
    }
    let own: BTreeSet<IpAddr> = more
        .planes
        .iter()
        .copied()
        .chain([open.local.ip()])
        .collect();
    if own.len() <= more.planes.len() || more.planes.iter().any(IpAddr::is_unspecified) {
        return bad("planes names other addresses than local, each once");
    }
    capacity(more.capacity_mbps)?;
    let base = Config::new(open.local);
    Ok(Config {
        planes: more.planes.clone(),
        // Rotated, so that equal seeds do not cancel out.
        seed: seed.rotate_left(32) ^ open.seed,
        source_ports: open.source_port_base..end,
        ack_delay_us: open.ack_delay_us,
        max_connections: MOST_CONNECTIONS,
        max_regions: MOST_REGIONS,
        capacity_mbps: more.capacity_mbps,
        hint_interval_us: more.hint_interval_us.unwrap_or(base.hint_interval_us),
        spray_run: more.spray_run.unwrap_or(base.spray_run),
        ..base
    })
}

/// The service that is offered or asked for. `srq` is the shared queue of its streams.
pub(super) fn service(open: &Open, more: &OpenMore, srq: Option<u32>) -> Result<Service, Failure> {
    let first_streams = more.first_streams.unwrap_or(open.streams);
    if first_streams > open.streams {
        return bad("first_streams is more than streams");
    }
    let base = Service::default();
    Ok(Service {
        service_id: open.service_id,
        paths: open.paths,
        streams: open.streams,
        first_streams,
        payload_size: open.payload_size,
        msg_window: open.msg_window,
        initial_psn: open.initial_psn,
        features: features(&more.features)?,
        read_depth: more.read_depth,
        atomic_depth: more.atomic_depth,
        // At most seven, see above.
        extra_planes: more.planes.len() as u8,
        rnr_retries: more.rnr_retries.unwrap_or(base.rnr_retries),
        stream: StreamConfig {
            domain: more.domain,
            srq,
            ..StreamConfig::default()
        },
    })
}

fn features(named: &[Feature]) -> Result<Features, Failure> {
    let twice = |at: usize| {
        named
            .iter()
            .take(at)
            .any(|other| Some(other) == named.get(at))
    };
    if (0..named.len()).any(twice) {
        return bad("a feature is named twice");
    }
    Ok(bits(named))
}

/// Refuses a capacity that is none, and one beyond the rates of hints.
pub(super) fn capacity(mbps: Option<u32>) -> Result<(), Failure> {
    if mbps.is_some_and(|mbps| !(1..=MOST_MBPS).contains(&mbps)) {
        return bad("a capacity is 1 to 16777214 Mb/s");
    }
    Ok(())
}

fn bad<T>(message: &str) -> Result<T, Failure> {
    Err(Failure::new(Code::BadRequest, message))
}
