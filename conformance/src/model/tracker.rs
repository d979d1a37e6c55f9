//! From observations to sightings.

use std::collections::VecDeque;
use std::net::SocketAddr;

use metaroce_wire::crc;
use metaroce_wire::frame::{Frame, FrameError, parse_ip};
use metaroce_wire::metaroce::{Cbh, Features, Opcode, Params, parse_lax};
use metaroce_wire::serial::{Msn, Rqsn};

use super::connection::{Connection, Stream};
use super::control::{Control, ControlLog};
use super::facts::Facts;
use super::sighting::{Relation, Sighting};
use super::suspect::Suspect;
use crate::evidence::{Event, What};
use crate::trace::{Observation, Side};

/// Connections tracked at a tap, at most.
const CONNECTIONS: usize = 64;
/// Suspects remembered, at most.
pub(super) const SUSPECTS: usize = 512;
/// Streams of a connection that are tracked, at most.
const STREAMS: usize = 4096;

/// What a process may lose between reading its clock and sending, ns.
const SCHEDULING: u64 = 5_000_000;

/// What is known of a test besides its trace.
#[derive(Debug, Clone)]
pub struct Context {
    /// The judged side.
    pub side: Side,
    /// Its address and service port.
    pub local: SocketAddr,
    /// The address and service port under which it knows its peer.
    pub peer: SocketAddr,
    /// How much later than it should something may be seen without being late, ns.
    pub allowance_ns: u64,
    /// Largest lateness of the harness that was measured, ns.
    pub jitter_ns: u64,
    /// What the parties were asked to do.
    pub facts: Facts,
}

/// What is known at the tap of one side, up to the latest sighting.
#[derive(Debug, Clone)]
pub struct Model {
    /// What does not change during the test.
    pub context: Context,
    /// Time of the latest observation or event at any tap, ns.
    pub now: u64,
    /// Time of the latest packet at the tap, ns.
    pub seen_at: u64,
    /// Time of the latest packet delivered to the judged side, ns.
    pub delivered_at: u64,
    /// Connections.
    pub connections: Vec<Connection>,
    /// Control packets.
    pub control: ControlLog,
    /// Delivered packets that do not arrive, the oldest first.
    pub suspects: VecDeque<Suspect>,
    /// Packets that the judged side has sent.
    pub packets_sent: u64,
    /// Why something in the trace is not tracked.
    pub untracked: Option<String>,
}

impl Model {
    /// A model that has seen nothing.
    pub fn new(context: Context) -> Self {
        Self {
            context,
            now: 0,
            seen_at: 0,
            delivered_at: 0,
            connections: Vec::new(),
            control: ControlLog::default(),
            suspects: VecDeque::new(),
            packets_sent: 0,
            untracked: None,
        }
    }

    /// The judged side.
    pub fn side(&self) -> Side {
        self.context.side
    }

    /// Whether something that the judged side does at `now` can only be done in knowledge of what came at `then`.
    pub fn knows(&self, then: u64, now: u64) -> bool {
        then.saturating_add(self.context.allowance_ns) < now
    }

    /// By how much a pause can look shorter at the tap than it was, ns: nothing in simulated time, and on a real link what
    /// the harness was late, and what a process loses between reading its clock and sending.
    pub fn slack_ns(&self) -> u64 {
        match self.context.allowance_ns {
            0 => 0,
            _ => self.context.jitter_ns + SCHEDULING,
        }
    }

    /// Why a bound of `bound_ns` cannot be told from the lateness of the harness, where that is so.
    pub fn too_coarse(&self, bound_ns: u64) -> Option<String> {
        let jitter = self.context.jitter_ns;
        (jitter > bound_ns)
            .then(|| format!("the measured jitter of {jitter} ns is not finer than {bound_ns} ns"))
    }

    /// The longest time for which the judged side says that it delays an acknowledgment, ns; 0 without a connection.
    pub fn ack_delay_ns(&self) -> u64 {
        self.established()
            .map_or(0, |connection| u64::from(connection.own.ack_delay) * 1000)
    }

    /// The latest established connection.
    pub fn established(&self) -> Option<&Connection> {
        self.connections
            .iter()
            .rev()
            .find(|connection| connection.established.is_some())
    }

    /// The connection of a sighting.
    pub fn connection(&self, sighting: &Sighting<'_>) -> Option<&Connection> {
        self.connections.get(sighting.connection?)
    }

    /// Notes that time has come so far.
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// Takes what a party said.
    pub fn take_event(&mut self, event: &Event) {
        if matches!(event.what, What::Closed { .. } | What::Failed { .. }) {
            for connection in &mut self.connections {
                if connection.established.is_some() && connection.closing.over.is_none() {
                    connection.closing.over = Some(event.t_ns);
                }
            }
        }
    }

    /// Takes an observation at the judged side's tap.
    ///
    /// # Errors
    /// [`FrameError`] when it is no UDP datagram.
    pub fn take<'a>(
        &mut self,
        frame: u64,
        observation: &'a Observation,
    ) -> Result<Sighting<'a>, FrameError> {
        let ip = parse_ip(&observation.frame)?;
        let lax = parse_lax(ip.payload);
        let sent = observation.from == self.context.side;
        // The order of the capture counts: a time that goes back is taken for the one before.
        self.seen_at = self.seen_at.max(observation.time_ns);
        let mut sighting = Sighting {
            frame,
            time: self.seen_at,
            sent,
            src: ip.src,
            dst: ip.dst,
            ecn: ip.ecn,
            payload: ip.payload,
            cbh: lax.cbh,
            body: lax.body,
            error: lax.error,
            crc_ok: crc_ok(&ip),
            notes: if sent { &observation.notes } else { &[] },
            connection: None,
            relation: Relation::Nothing,
            suspect: None,
            answers: Vec::new(),
        };
        self.advance(observation.time_ns);
        if sent {
            self.packets_sent += 1;
            self.take_sent(&mut sighting);
        } else {
            self.delivered_at = self.seen_at;
            self.take_delivered(&mut sighting);
        }
        Ok(sighting)
    }

    pub(super) fn not_tracked(&mut self, why: &str) {
        self.untracked.get_or_insert_with(|| why.to_owned());
    }

    pub(super) fn find(&self, fits: impl Fn(&Connection) -> bool) -> Option<usize> {
        let best = |established: bool| {
            self.connections.iter().rposition(|connection| {
                fits(connection) && connection.established.is_some() == established
            })
        };
        best(true).or_else(|| best(false))
    }

    pub(super) fn candidate(&mut self, initiator: bool, own: Params, peer: Params, agreed: Params) {
        let same = self.connections.iter().position(|connection| {
            (connection.own.scid, connection.peer.scid) == (own.scid, peer.scid)
        });
        // What features change of the rules is not in the monitors so far.
        if agreed.features != Features::default() || agreed.extra_planes > 0 {
            self.not_tracked("features were agreed that no monitor follows yet");
        }
        let fresh = Connection::new(initiator, own, peer, agreed);
        if let Some(index) = same {
            if self.connections[index].established.is_none() {
                self.connections[index] = fresh;
            }
        } else if self.connections.len() < CONNECTIONS {
            self.connections.push(fresh);
        } else {
            self.not_tracked("more connections were tried than are tracked");
        }
    }

    pub(super) fn check_streams(&mut self, connection: Option<usize>) {
        let many = connection
            .and_then(|index| self.connections.get(index))
            .is_some_and(|connection| connection.streams.len() > STREAMS);
        if many {
            self.not_tracked("more streams were opened than are tracked");
        }
    }

    pub(super) fn log(&mut self, s: &Sighting<'_>, cbh: &Cbh) {
        self.control.push(Control {
            frame: s.frame,
            time: s.time,
            sent: s.sent,
            cbh: *cbh,
            bytes: s.payload.to_vec(),
        });
    }
}

pub(super) fn is_probe(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::PATH_PROBE | Opcode::PATH_PROBE_ACK)
}

fn crc_ok(frame: &Frame<'_>) -> bool {
    crc::verify(&frame.pseudo_header(), frame.payload).is_ok()
}

/// The stream of that id, made new with these first numbers where there is none.
pub(super) fn stream(
    connection: &mut Connection,
    id: u16,
    first_msn: Msn,
    first_rqsn: Rqsn,
) -> &mut Stream {
    connection
        .streams
        .entry(id)
        .or_insert_with(|| Stream::new(first_msn, first_rqsn))
}
