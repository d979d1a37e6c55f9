//! What can be asked about a connection, a path and a stream.

use metaroce_wire::metaroce::Features;

use super::connection::Connection;

/// Totals of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub messages_sent: u64,
    pub messages_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// A connection, see [`super::Endpoint::connection_stats`].
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionStats {
    /// State, by its name in the specification.
    pub state: &'static str,
    /// Address of the peer in plane 0, and its service port.
    pub peer: std::net::SocketAddr,
    /// Paths agreed, in each direction.
    pub paths: u16,
    /// Planes agreed.
    pub planes: u8,
    /// Streams agreed, those of both sides together.
    pub streams: u16,
    /// Streams that are open.
    pub streams_open: u16,
    /// Features agreed.
    pub features: Features,
    /// Payload bytes per packet.
    pub payload_size: u16,
    /// Reads that the peer takes at a time.
    pub read_depth: u8,
    /// Atomic requests that the peer takes at a time.
    pub atomic_depth: u8,
    /// Packets in flight.
    pub in_flight: u32,
    /// Congestion window of the connection, packets.
    pub window: f64,
    /// Hint of the peer in force, Mb/s; none without a limit.
    pub hint_mbps: Option<u32>,
    /// Messages of this side that have succeeded, since the connection began.
    pub messages_sent: u64,
    /// Messages of the peer that have completed a receive, since the connection began.
    pub messages_received: u64,
    /// Payload bytes of Sends and Writes that have succeeded and of answers to Reads that are wholly acknowledged; each
    /// counts once, however often it was sent.
    pub bytes_sent: u64,
    /// Payload bytes placed, those of answers included; each counts once, however often it came.
    pub bytes_received: u64,
}

/// A path of the sending direction, see [`super::Endpoint::path_stats`] (VERB-011).
#[derive(Debug, Clone, PartialEq)]
pub struct PathStats {
    /// UDP source port.
    pub src_port: u16,
    /// Plane.
    pub plane: u8,
    /// Epoch, 0 to 15.
    pub epoch: u8,
    /// State, by its name in the specification.
    pub state: &'static str,
    /// Congestion window, packets.
    pub window: f64,
    /// Smoothed part of the packets that are marked, 0 to 1.
    pub alpha: f64,
    /// Smoothed round-trip time, ns; none before the first sample.
    pub srtt_ns: Option<u64>,
    /// Its variation, ns.
    pub rttvar_ns: u64,
    /// Packets in flight.
    pub in_flight: u32,
    /// Part of the window that is in use: packets in flight by window. Above 1 when the window has shrunk since they were
    /// sent.
    pub utilisation: f64,
    /// Marks are erased on the path.
    pub ecn_off: bool,
    /// Packets that arrived with a CE mark.
    pub marks: u64,
    /// Losses that were shown.
    pub losses: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Probes sent.
    pub probes: u64,
    /// Data packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Bytes of UDP payload of them.
    pub bytes_sent: u64,
}

/// A plane, see [`super::Endpoint::plane_stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneStats {
    /// Own address.
    pub local: std::net::IpAddr,
    /// Address of the peer.
    pub peer: std::net::IpAddr,
    /// The application has not said that it is down.
    pub up: bool,
    /// A probe has come back through it; plane 0 is that of the handshake.
    pub proven: bool,
    /// Paths of the sending direction that go through it and carry data.
    pub paths: u16,
}

/// A stream, see [`super::Endpoint::stream_stats`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStats {
    /// State, by its name in the specification.
    pub state: &'static str,
    /// Work that is not complete.
    pub work: usize,
    /// Receives that are posted and not consumed.
    pub receives: usize,
    /// Number of the first receive that the peer has not got, modulo 2^16.
    pub credit: u16,
    /// Packets that bear its number and are unacknowledged.
    pub in_flight: u32,
    /// Messages of this side that have succeeded since the stream was opened, modulo 2^32.
    pub messages_sent: u32,
    /// Messages of the peer that have consumed a receive since the stream was opened, modulo 2^32.
    pub messages_received: u32,
    /// As [`ConnectionStats::bytes_sent`], since the stream was opened.
    pub bytes_sent: u64,
    /// As [`ConnectionStats::bytes_received`], since the stream was opened.
    pub bytes_received: u64,
}

impl Connection {
    pub(super) fn stats(&self) -> ConnectionStats {
        let agreed = self.agreed();
        let rate = self.hint.rate();
        ConnectionStats {
            state: self.state.name(),
            peer: self.peer,
            paths: agreed.paths,
            planes: self.planes.len() as u8,
            streams: agreed.streams,
            streams_open: self.streams.iter().filter(|s| s.is_open()).count() as u16,
            features: agreed.features,
            payload_size: agreed.payload_size,
            read_depth: self.theirs.read_depth,
            atomic_depth: self.theirs.atomic_depth,
            in_flight: self.in_flight,
            window: self.congestion.connection_window(),
            hint_mbps: (rate != super::hint::NO_LIMIT).then_some(rate),
            messages_sent: self.tally.messages_sent,
            messages_received: self.tally.messages_received,
            bytes_sent: self.tally.bytes_sent,
            bytes_received: self.tally.bytes_received,
        }
    }

    pub(super) fn path_stats(&self, path: u16) -> Option<PathStats> {
        let at = usize::from(path);
        let tx = self.tx.get(at)?;
        let (in_flight, window) = (tx.in_flight(), self.congestion.window(at));
        Some(PathStats {
            src_port: tx.port,
            plane: tx.plane,
            epoch: tx.epoch,
            state: tx.state.name(),
            window,
            alpha: self.congestion.alpha(at),
            srtt_ns: tx.rtt.smoothed(),
            rttvar_ns: tx.rtt.variation(),
            in_flight,
            utilisation: f64::from(in_flight) / window,
            ecn_off: tx.ecn.is_off(),
            marks: tx.ecn.marks(),
            losses: tx.totals.losses,
            retransmissions: tx.totals.retransmissions,
            timeouts: tx.totals.timeouts.into(),
            probes: tx.totals.probes.into(),
            packets_sent: tx.totals.packets,
            bytes_sent: tx.totals.bytes,
        })
    }

    pub(super) fn plane_stats(&self, number: u8) -> Option<PlaneStats> {
        let plane = self.planes.get(usize::from(number))?;
        let through = |tx: &&super::tx_path::TxPath| tx.plane == number && tx.state.is_alive();
        Some(PlaneStats {
            local: plane.local,
            peer: plane.peer,
            up: plane.up,
            proven: plane.proven,
            paths: self.tx.iter().filter(through).count() as u16,
        })
    }

    pub(super) fn stream_stats(&self, id: u16) -> Option<StreamStats> {
        let stream = self.streams.get(id)?;
        Some(StreamStats {
            state: stream.state.name(),
            work: stream.tx.len(),
            receives: stream.rx.posted(),
            credit: stream.tx.credit().value(),
            in_flight: stream.psns,
            messages_sent: stream.succeeded,
            messages_received: stream.rx.consumed(),
            bytes_sent: stream.bytes_sent,
            bytes_received: stream.bytes_received,
        })
    }
}
