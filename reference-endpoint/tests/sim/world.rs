//! Endpoints, network and programs in one queue of events.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use metaroce_wire::metaroce::Opcode;

use crate::chance::mix;
use crate::mutants::Mutation;
use crate::net::{LinkPlan, Net, Sent};
use crate::oracle::Oracle;
use crate::plan::{Plan, Planned, S, US};
use crate::watch::Watch;
use metaroce_endpoint::core::{Config, Ecn, Endpoint, Event, Transmit};

pub const PORT: u16 = 49_200;

pub enum What {
    Arrives {
        to: usize,
        plane: u8,
        from: SocketAddr,
        ecn: Ecn,
        bytes: Vec<u8>,
    },
    Acts(Planned),
    /// The driver takes more of what an endpoint has to send.
    Polls(usize),
}

struct Entry {
    at: u64,
    order: u64,
    what: What,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A connection as the programs at its two sides see it.
#[derive(Debug)]
pub struct Conn {
    pub ends: [usize; 2],
    pub handles: [Option<u32>; 2],
    pub up: [bool; 2],
    pub over: [bool; 2],
    /// A program has asked for the end.
    pub closing: bool,
    /// Streams in the order in which they were opened.
    pub streams: Vec<u16>,
    /// Streams asked for without an answer.
    pub opening: BTreeSet<u16>,
    pub srqs: [Option<u32>; 2],
}

pub struct World {
    pub plan: Plan,
    pub now: u64,
    pub ends: Vec<Endpoint>,
    pub net: Net,
    queue: BinaryHeap<Reverse<Entry>>,
    order: u64,
    pub conns: Vec<Conn>,
    pub oracle: Oracle,
    pub watch: Watch,
    pub mutation: Option<Mutation>,
    pub steps: u64,
    pub sent: u64,
    spins: (u64, u32),
    pub next_wr_id: u64,
    /// Ends of which the driver cannot take more at the moment.
    blocked: BTreeSet<usize>,
    /// A region that goes once the work that names it is posted.
    pub going: Option<(usize, u32)>,
    /// Connections of which the actions are under way.
    pub scheduled: usize,
    /// The region that is being filled, by end and what the peer may do with it.
    pub arenas: BTreeMap<(usize, bool, bool), u32>,
}

thread_local! {
    /// The latest that has happened, to be shown with a failure.
    static LATEST: RefCell<VecDeque<String>> = const { RefCell::new(VecDeque::new()) };
    static TRACE: bool = std::env::var_os("SIM_TRACE").is_some();
}

/// Notes what happens.
pub fn note(line: impl FnOnce() -> String) {
    if TRACE.with(|trace| *trace) {
        eprintln!("{}", line());
        return;
    }
    LATEST.with_borrow_mut(|latest| {
        if latest.len() == 40 {
            latest.pop_front();
        }
        latest.push_back(line());
    });
}

pub fn take_notes() -> Vec<String> {
    LATEST.with_borrow_mut(|latest| latest.drain(..).collect())
}

pub fn address(end: usize, plane: u8, ipv6: bool) -> IpAddr {
    let (end, plane) = (end as u8 + 1, plane + 2);
    if ipv6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, u16::from(plane), u16::from(end)).into()
    } else {
        Ipv4Addr::new(192, 0, plane, end).into()
    }
}

fn place(ip: IpAddr) -> (usize, u8) {
    match ip {
        IpAddr::V4(ip) => (usize::from(ip.octets()[3]) - 1, ip.octets()[2] - 2),
        IpAddr::V6(ip) => {
            let ip = ip.octets();
            (usize::from(ip[15]) - 1, ip[13] - 2)
        }
    }
}

/// An endpoint of the plan, in its so many-th life.
pub fn endpoint(plan: &Plan, end: usize, life: u64) -> Endpoint {
    let of = |plane| address(end, plane, plan.ipv6);
    Endpoint::new(Config {
        seed: plan.seed * 4 + end as u64 + (life << 40),
        planes: (1..=plan.planes).map(of).collect(),
        ack_delay_us: plan.ack_delay_us,
        capacity_mbps: plan.capacity_mbps,
        spray_run: plan.spray_run,
        ..Config::new(SocketAddr::new(of(0), PORT))
    })
    .unwrap()
}

impl World {
    pub fn new(plan: Plan, mutation: Option<Mutation>) -> Self {
        take_notes();
        let ends = (0..plan.ends).map(|end| endpoint(&plan, end, 0));
        Self {
            now: 1_000,
            ends: ends.collect(),
            net: Net::new(
                LinkPlan {
                    outages: Vec::new(),
                    ..plan.link.clone()
                },
                plan.seed,
            ),
            queue: BinaryHeap::new(),
            order: 0,
            conns: Vec::new(),
            oracle: Oracle::new(plan.seed, plan.scrub),
            watch: Watch::new(&plan),
            mutation,
            steps: 0,
            sent: 0,
            spins: (0, 0),
            next_wr_id: 1,
            blocked: BTreeSet::new(),
            going: None,
            scheduled: 0,
            arenas: BTreeMap::new(),
            plan,
        }
    }

    pub fn at(&mut self, at: u64, what: What) {
        self.order += 1;
        self.queue.push(Reverse(Entry {
            at,
            order: self.order,
            what,
        }));
    }

    /// Takes from an end all that it has to say.
    pub fn drain(&mut self, end: usize) {
        let mut out = Vec::new();
        let mut packets = 0;
        while let Some(transmit) = self.poll(end, packets, &mut out) {
            packets += 1;
            assert!(packets < 100_000, "an endpoint sends without end");
            self.sent += 1;
            let ((from, plane), (to, other)) = (place(transmit.src_ip), place(transmit.dst.ip()));
            assert_eq!(from, end, "a foreign source address");
            assert_eq!(plane, other, "PLN-002");
            let now = self.now;
            let sent = Sent {
                from,
                to,
                plane,
                port: transmit.src_port,
                ecn: transmit.ecn,
                bytes: &out,
            };
            let flights = self.net.carry(now, &sent);
            note(|| {
                format!(
                    "{now:>12} {from}>{to}.{plane} :{} {}{}",
                    transmit.src_port,
                    show(&out),
                    if flights.is_empty() { " LOST" } else { "" }
                )
            });
            self.watch.sent(now, &sent);
            let source = SocketAddr::new(transmit.src_ip, transmit.src_port);
            for (at, ecn, bytes) in flights {
                self.at(
                    at,
                    What::Arrives {
                        to,
                        plane,
                        from: source,
                        ecn,
                        bytes,
                    },
                );
            }
        }
        self.watch.drained(self.now, end);
        let mut events = Vec::new();
        while let Some(event) = self.ends[end].poll_event() {
            events.push(event);
        }
        if let Some(mut mutation) = self.mutation.take() {
            mutation.on_events(end, &mut events, &mut self.ends);
            self.mutation = Some(mutation);
        }
        for event in events {
            self.happened(end, &event);
        }
    }

    fn poll(&mut self, end: usize, taken: u32, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.plan.per_poll > 0 && taken >= self.plan.per_poll {
            self.blocked.insert(end);
            self.at(self.now + 20 * US, What::Polls(end));
            return None;
        }
        self.ends[end].poll_transmit(self.now, out)
    }

    /// When the driver runs the timers of an endpoint.
    fn timer(&self, end: usize) -> Option<u64> {
        if self.blocked.contains(&end) {
            return None;
        }
        let at = self.ends[end].poll_timeout()?;
        Some(at.saturating_add(mix(at) % (self.plan.late_timers + 1)))
    }

    fn timer_first(&self) -> Option<u64> {
        (0..self.ends.len()).filter_map(|end| self.timer(end)).min()
    }

    fn happened(&mut self, end: usize, event: &Event) {
        let now = self.now;
        note(|| format!("{now:>12} end {end}: {event:?}"));
        let handle = match event {
            Event::Established { conn, .. }
            | Event::StreamOpened { conn, .. }
            | Event::StreamEnded { conn, .. }
            | Event::PathAlive { conn, .. }
            | Event::Closed { conn, .. }
            | Event::Failed { conn, .. } => *conn,
            Event::Completion(done) => done.conn,
        };
        let (conn, side) = self.side_of(end, handle, event);
        self.oracle
            .event(conn, side, event, &mut self.ends)
            .unwrap_or_else(|e| panic!("connection {conn}, side {side}: {e}"));
        self.program(conn, side, event);
    }

    fn side_of(&mut self, end: usize, handle: u32, event: &Event) -> (usize, usize) {
        for (n, conn) in self.conns.iter().enumerate() {
            for side in 0..2 {
                if conn.ends[side] == end && conn.handles[side] == Some(handle) {
                    return (n, side);
                }
            }
        }
        // Connections are set up one after the other: a handle that is new belongs to the latest.
        let n = self.conns.len() - 1;
        let conn = &mut self.conns[n];
        assert!(
            conn.ends[1] == end && conn.handles[1].is_none(),
            "an event of a connection that there is not: {event:?}"
        );
        conn.handles[1] = Some(handle);
        (n, 1)
    }

    pub fn next_time(&self) -> Option<u64> {
        let timer = (0..self.ends.len()).filter_map(|end| self.timer(end)).min();
        let entry = self.queue.peek().map(|e| e.0.at);
        timer.into_iter().chain(entry).min()
    }

    /// One step; false when nothing is left to happen.
    pub fn step(&mut self) -> bool {
        self.steps += 1;
        assert!(self.steps < 3_000_000, "no end of steps: {}", self.left());
        let entry = self.queue.peek().map(|e| e.0.at);
        let Some(next) = self.next_time() else {
            return false;
        };
        self.now = self.now.max(next);
        if entry == Some(next) {
            let Some(Reverse(entry)) = self.queue.pop() else {
                return false;
            };
            match entry.what {
                What::Arrives {
                    to,
                    plane,
                    from,
                    ecn,
                    mut bytes,
                } => {
                    if self.mutation.is_some() && self.watch.is_new(to, &bytes) {
                        let at = SocketAddr::new(address(to, plane, self.plan.ipv6), PORT);
                        self.mutation
                            .iter_mut()
                            .for_each(|m| m.on_packet(from, at, &mut bytes));
                    }
                    let now = self.now;
                    note(|| {
                        format!(
                            "{now:>12} at {to}.{plane} from :{} {}",
                            from.port(),
                            show(&bytes)
                        )
                    });
                    self.watch.delivered(to, plane, from, &bytes);
                    self.ends[to].handle_datagram_at(
                        self.now,
                        address(to, plane, self.plan.ipv6),
                        from,
                        ecn,
                        &bytes,
                    );
                    self.drain(to);
                }
                What::Polls(end) => {
                    self.blocked.remove(&end);
                    self.drain(end);
                }
                What::Acts(planned) => {
                    let now = self.now;
                    note(|| format!("{now:>12} {planned:?}"));
                    self.act(&planned);
                    for end in 0..self.ends.len() {
                        self.drain(end);
                    }
                }
            }
            return true;
        }
        self.spins = if self.spins.0 == self.now {
            (self.now, self.spins.1 + 1)
        } else {
            (self.now, 0)
        };
        let of = || (0..self.ends.len()).find(|&end| self.timer(end) == self.timer_first());
        assert!(
            self.spins.1 < 20,
            "a deadline of end {:?} stays in the past: {}",
            of(),
            self.left()
        );
        for end in 0..self.ends.len() {
            if self.timer(end).is_some_and(|at| at <= self.now) {
                self.ends[end].handle_timeout(self.now);
                self.drain(end);
            }
        }
        true
    }

    pub fn run(&mut self, most: u64, what: &str, until: impl Fn(&Self) -> bool) {
        let limit = self.now + most;
        while !until(self) {
            let over = self.next_time().is_none_or(|at| at > limit);
            assert!(
                !over,
                "{what} within {} s at {}: {}",
                most / S,
                self.now,
                self.left()
            );
            self.step();
        }
    }

    pub fn pass(&mut self, time: u64) -> u64 {
        let (until, before) = (self.now + time, self.steps);
        while self.next_time().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = self.now.max(until);
        self.steps - before
    }

    /// What has not come to its end.
    pub fn left(&self) -> String {
        let mut left = Vec::new();
        for (id, half) in &self.oracle.halves {
            let work = half.outstanding();
            if work > 0 || half.rx.iter().any(|r| !r.over) {
                let waiting = half.rx.iter().filter(|r| !r.over).count();
                let oldest = half.tx.get(half.done).map(|m| (m.wr_id, m.kind, m.len));
                left.push(format!(
                    "{id:?}: {work} works from {oldest:?} on, {waiting} receives"
                ));
            }
        }
        for (n, conn) in self.conns.iter().enumerate() {
            for (side, &end) in conn.ends.iter().enumerate() {
                let stats = conn.handles[side].and_then(|h| self.ends[end].connection_stats(h));
                note(|| format!("connection {n}, side {side}: {stats:?}"));
                let paths = stats.map_or(0, |stats| stats.paths);
                for path in 0..paths {
                    let stats = conn.handles[side].and_then(|h| self.ends[end].path_stats(h, path));
                    note(|| format!("  path {path}: {stats:?}"));
                }
            }
        }
        left.join("; ")
    }
}

/// A packet in one line.
fn show(bytes: &[u8]) -> String {
    if bytes.len() < 16 {
        return String::from("a stump");
    }
    let opcode = Opcode(bytes[1]);
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    };
    let name = opcode.name().unwrap_or("?");
    let msg = if opcode.is_data() {
        format!(
            " stream {} msn {:#x} offset {} of {}",
            word(16) >> 16,
            word(20) & 0xff_ffff,
            word(24),
            word(28)
        )
    } else {
        String::new()
    };
    format!(
        "{name} path {}.{} psn {:#x} flags {:02x}{msg} len {}",
        bytes[3],
        bytes[0] & 15,
        word(8),
        bytes[2],
        bytes.len()
    )
}
