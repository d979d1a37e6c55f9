//! The simulated link: events in order of time, no clock, no threads; the same seed gives the same bytes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use metaroce_wire::crc::{self, PseudoHeader};
use metaroce_wire::frame::{Ecn, Frame};

use crate::inject::{Delivery, Injector, stranger};
use crate::trace::{Observation, Side};

/// Datagrams that a party may send at one instant before it counts as run away.
const MOST_AT_ONCE: u32 = 100_000;
/// Steps that may pass within one microsecond before the parties count as run away. All windows of all paths, 65,536
/// packets, may arrive at one instant.
const MOST_STEPS: u32 = 1_000_000;
/// Times in a row that a party may be told that its time has come and still ask for a time that is over.
const MOST_STALLS: u32 = 1_000;
/// Turns of the timers at one instant before time goes on by a tick.
const MOST_TURNS: u32 = 4;
/// TTL in the IP headers that the simulator makes up.
const TTL: u8 = 64;

/// How a datagram leaves a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// UDP source port.
    pub src_port: u16,
    /// Where to.
    pub dst: SocketAddr,
    /// Congestion mark.
    pub ecn: Ecn,
}

/// A party on the simulated link: it takes datagrams and times, and has no clock of its own. Times are ns.
pub trait Node {
    /// Own address and service port, once it has one.
    fn address(&self) -> Option<SocketAddr>;
    /// Takes one UDP payload.
    fn handle_datagram(&mut self, now: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]);
    /// Does what is due.
    fn handle_timeout(&mut self, now: u64);
    /// Fills `out` with the next datagram to send.
    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Outgoing>;
    /// When [`Self::handle_timeout`] is next wanted.
    fn poll_timeout(&self) -> Option<u64>;
}

/// Why the simulation cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// A party sends without end at one instant.
    #[error("the party at {0} sends without end at one instant")]
    RunAway(Side),
    /// Packets go back and forth without time passing.
    #[error("the parties answer each other without end at {0} ns")]
    Livelock(u64),
    /// A party asks again and again for a time that is over.
    #[error("the party at {0} does not do what is due")]
    Stalled(Side),
    /// The capture cannot be written.
    #[error("{0}")]
    Capture(String),
}

/// Where observations go.
pub type Sink = Box<dyn FnMut(&Observation) -> Result<(), String>>;

/// The simulated link.
pub struct SimLink {
    now: u64,
    delay_ns: u64,
    injector: Injector,
    sink: Sink,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    sequence: u64,
    /// Microsecond of the last step, and the steps in it.
    steps: (u64, u32),
    stalls: [u32; 2],
    /// Turns of the timers at this instant. Packets do not count: however many arrive, what is due then is not late.
    turns: u32,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    at: u64,
    sequence: u64,
    from: Side,
    src: SocketAddr,
    dst: SocketAddr,
    ecn: u8,
    bytes: Vec<u8>,
}

impl SimLink {
    /// A link at time 0 that takes `delay_ns` each way.
    pub fn new(delay_ns: u64, injector: Injector, sink: Sink) -> Self {
        Self {
            now: 0,
            delay_ns,
            injector,
            sink,
            under_way: BinaryHeap::new(),
            sequence: 0,
            steps: (0, 0),
            stalls: [0; 2],
            turns: 0,
        }
    }

    /// The time, ns.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The injector, to be asked for its counts.
    pub fn injector(&self) -> &Injector {
        &self.injector
    }

    /// Packets still inside, from A and from B.
    pub fn held(&self) -> [u64; 2] {
        let waiting = self.injector.held();
        Side::BOTH.map(|side| {
            let under_way = self
                .under_way
                .iter()
                .filter(|Reverse(packet)| packet.from == side)
                .count();
            waiting[side.index()] + under_way as u64
        })
    }

    /// Lets things happen until `until` ns, or until `stop` holds after a step.
    ///
    /// # Errors
    /// [`SimError`].
    pub fn run(
        &mut self,
        nodes: &mut [&mut dyn Node; 2],
        until: u64,
        mut stop: impl FnMut(&[&mut dyn Node; 2]) -> bool,
    ) -> Result<(), SimError> {
        self.drain(nodes)?;
        while !stop(nodes) {
            let timer = nodes
                .iter()
                .filter_map(|node| node.poll_timeout())
                .chain(self.injector.deadline())
                .min();
            let packet = self.under_way.peek().map(|Reverse(packet)| packet.at);
            let Some(next) = timer
                .into_iter()
                .chain(packet)
                .min()
                .filter(|&next| next <= until)
            else {
                self.now = self.now.max(until);
                return Ok(());
            };
            // A due time in the past is due now. A few turns of the timers may be needed before nothing more is due; after
            // those time goes on by a tick, so that it always gets somewhere.
            let of_timers = packet.is_none_or(|at| at > next);
            let tick = u64::from(of_timers && self.turns >= MOST_TURNS);
            let before = self.now;
            self.now = next.max(self.now + tick);
            if self.now != before {
                self.turns = 0;
            }
            self.turns += u32::from(of_timers);
            if self.now > until {
                self.now = until;
                return Ok(());
            }
            self.check_pace()?;
            if let Some(Reverse(packet)) = self.next_arrival() {
                self.arrive(nodes, &packet)?;
                self.drain(nodes)?;
            } else {
                for delivery in self.injector.expired(self.now) {
                    self.carry(delivery);
                }
                nodes
                    .iter_mut()
                    .for_each(|node| node.handle_timeout(self.now));
                self.drain(nodes)?;
                self.check_stalls(nodes)?;
            }
        }
        Ok(())
    }

    fn check_pace(&mut self) -> Result<(), SimError> {
        let microsecond = self.now / 1_000;
        if self.steps.0 != microsecond {
            self.steps = (microsecond, 0);
        }
        self.steps.1 += 1;
        if self.steps.1 > MOST_STEPS {
            return Err(SimError::Livelock(self.now));
        }
        Ok(())
    }

    fn check_stalls(&mut self, nodes: &[&mut dyn Node; 2]) -> Result<(), SimError> {
        for side in Side::BOTH {
            let timeout = nodes[side.index()].poll_timeout();
            let stalls = &mut self.stalls[side.index()];
            *stalls = if timeout.is_some_and(|at| at <= self.now) {
                *stalls + 1
            } else {
                0
            };
            if *stalls > MOST_STALLS {
                return Err(SimError::Stalled(side));
            }
        }
        Ok(())
    }

    fn next_arrival(&mut self) -> Option<Reverse<UnderWay>> {
        let due = self
            .under_way
            .peek()
            .is_some_and(|Reverse(packet)| packet.at <= self.now);
        if due { self.under_way.pop() } else { None }
    }

    fn arrive(
        &mut self,
        nodes: &mut [&mut dyn Node; 2],
        packet: &UnderWay,
    ) -> Result<(), SimError> {
        let to = packet.from.other();
        let ecn = Ecn::from_bits(packet.ecn);
        let frame = Frame {
            src: packet.src,
            dst: packet.dst,
            ecn,
            ttl: TTL,
            payload: &packet.bytes,
        };
        self.observe(to, packet.from, &frame, Vec::new())?;
        // What was sent elsewhere, or to nobody yet, has left the link all the same: as lost as on any wire.
        if nodes[to.index()].address() == Some(packet.dst) {
            nodes[to.index()].handle_datagram(self.now, packet.src, ecn, &packet.bytes);
        }
        Ok(())
    }

    fn drain(&mut self, nodes: &mut [&mut dyn Node; 2]) -> Result<(), SimError> {
        let mut out = Vec::new();
        for side in Side::BOTH {
            let mut count = 0;
            while let Some(outgoing) = nodes[side.index()].poll_transmit(self.now, &mut out) {
                count += 1;
                if count > MOST_AT_ONCE {
                    return Err(SimError::RunAway(side));
                }
                let Some(local) = nodes[side.index()].address() else {
                    continue;
                };
                let src = SocketAddr::new(local.ip(), outgoing.src_port);
                let frame = Frame {
                    src,
                    dst: outgoing.dst,
                    ecn: outgoing.ecn,
                    ttl: TTL,
                    payload: &out,
                };
                let decision = self.injector.decide(self.now, side, &frame);
                self.observe(side, side, &frame, decision.notes)?;
                for delivery in decision.deliveries {
                    self.carry(delivery);
                }
            }
        }
        Ok(())
    }

    fn carry(&mut self, mut delivery: Delivery) {
        self.sequence += 1;
        if delivery.stranger {
            let before = PseudoHeader::new(delivery.src.ip(), delivery.dst);
            delivery.src.set_ip(stranger(delivery.src.ip()));
            let after = PseudoHeader::new(delivery.src.ip(), delivery.dst);
            // Too short for a trailer: there is nothing to carry over.
            let _too_short = crc::translate(&before, &after, &mut delivery.bytes);
        }
        self.under_way.push(Reverse(UnderWay {
            at: self.now + self.delay_ns + delivery.delay_ns,
            sequence: self.sequence,
            from: delivery.from,
            src: delivery.src,
            dst: delivery.dst,
            ecn: delivery.ecn.bits(),
            bytes: delivery.bytes,
        }));
    }

    fn observe(
        &mut self,
        tap: Side,
        from: Side,
        frame: &Frame<'_>,
        notes: Vec<crate::trace::Note>,
    ) -> Result<(), SimError> {
        let mut bytes = vec![0; frame.ip_len()];
        frame
            .emit(&mut bytes)
            .map_err(|e| SimError::Capture(e.to_string()))?;
        let observation = Observation {
            time_ns: self.now,
            tap,
            from,
            frame: bytes,
            notes,
        };
        (self.sink)(&observation).map_err(SimError::Capture)
    }
}
