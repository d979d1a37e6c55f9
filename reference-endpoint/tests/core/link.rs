//! A simulated link between two endpoints: seeded loss, duplication, marks, and jitter between paths.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use metaroce_endpoint::core::{
    Access, Buffer, Config, Counters, Ecn, Endpoint, Event, Features, Region, Service, Status,
    WorkKind,
};
use metaroce_wire::metaroce::{Packet, parse_unsealed};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::watch::Watch;

/// What is further away than this belongs to an idle connection, ns.
const IDLE: u64 = 20_000_000_000;

/// Shortest time on the way, ns.
pub const DELAY: u64 = 500_000;

/// A packet under way: to whom, from where, mark and bytes.
type Flying = (usize, SocketAddr, Ecn, Vec<u8>);
/// Decides whether a packet that leaves an end is dropped.
type Drop = Box<dyn FnMut(usize, &Packet<'_>) -> bool>;

pub struct Link {
    pub now: u64,
    pub ends: [Endpoint; 2],
    pub addresses: [SocketAddr; 2],
    /// By time of arrival and order of sending.
    flight: BTreeMap<(u64, u64), Flying>,
    sequence: u64,
    random: ChaCha8Rng,
    /// Chance in 1000 that a packet is lost.
    pub loss: u32,
    /// Chance in 1000 that it comes twice, and that it is marked.
    pub twice: u32,
    pub marked: u32,
    /// Most that the delay varies, ns.
    pub jitter: u32,
    pub drop: Option<Drop>,
    /// Arrival of the latest packet by direction and source port: a path is first-in first-out.
    latest: BTreeMap<(usize, u16), u64>,
    seed: u64,
    pub events: [Vec<Event>; 2],
    /// Every packet sent: when, by whom, and its bytes.
    pub sent: Vec<(u64, usize, Vec<u8>)>,
    pub watch: Watch,
}

impl Link {
    pub fn new(seed: u64, loss: u32) -> Self {
        let addresses: [SocketAddr; 2] = [
            "192.0.2.1:49200".parse().unwrap(),
            "192.0.2.2:49200".parse().unwrap(),
        ];
        let ends = [0, 1].map(|i: usize| {
            Endpoint::new(Config {
                seed: seed * 2 + i as u64,
                max_connections: 4,
                max_regions: 4096,
                ..Config::new(addresses[i])
            })
            .unwrap()
        });
        Self {
            seed,
            now: 1_000,
            ends,
            addresses,
            flight: BTreeMap::new(),
            sequence: 0,
            random: ChaCha8Rng::seed_from_u64(seed ^ 0xabcd),
            loss,
            twice: 0,
            marked: 0,
            jitter: 300_000,
            drop: None,
            latest: BTreeMap::new(),
            events: [Vec::new(), Vec::new()],
            sent: Vec::new(),
            watch: Watch::new(),
        }
    }

    /// Drops what `rule` says, besides what chance takes.
    pub fn drop_when(&mut self, rule: impl FnMut(usize, &Packet<'_>) -> bool + 'static) {
        self.drop = Some(Box::new(rule));
    }

    fn chance(&mut self, in_thousand: u32) -> bool {
        self.random.next_u32() % 1000 < in_thousand
    }

    pub fn drain(&mut self) {
        let mut out = Vec::new();
        for from in 0..2 {
            while let Some(transmit) = self.ends[from].poll_transmit(self.now, &mut out) {
                assert_eq!(transmit.dst, self.addresses[1 - from]);
                self.watch.sent(self.now, from, &transmit, &out);
                self.sent.push((self.now, from, out.clone()));
                let packet = parse_unsealed(&out).unwrap();
                let dropped = self.drop.as_mut().is_some_and(|drop| drop(from, &packet));
                let copies = if self.chance(self.loss) || dropped {
                    0
                } else {
                    1 + usize::from(self.chance(self.twice))
                };
                let ecn = if transmit.ecn == Ecn::Ect0 && self.chance(self.marked) {
                    Ecn::Ce
                } else {
                    transmit.ecn
                };
                for _ in 0..copies {
                    let jitter = u64::from(self.random.next_u32() % self.jitter.max(1));
                    let latest = self.latest.entry((from, transmit.src_port)).or_default();
                    let at = (self.now + DELAY + jitter).max(*latest);
                    *latest = at;
                    let source = SocketAddr::new(self.addresses[from].ip(), transmit.src_port);
                    self.sequence += 1;
                    self.flight
                        .insert((at, self.sequence), (1 - from, source, ecn, out.clone()));
                }
            }
            self.watch.drained(self.now, from);
            while let Some(event) = self.ends[from].poll_event() {
                self.events[from].push(event);
            }
        }
    }

    /// One step of time; false when nothing is left to happen.
    pub fn step(&mut self) -> bool {
        self.drain();
        let timer = self.ends.iter().filter_map(Endpoint::poll_timeout).min();
        // What is due now has just been done: a deadline that stays in the past would spin.
        assert!(
            timer.is_none_or(|timer| timer > self.now) || self.timers_settle(),
            "a deadline stays in the past"
        );
        let timer = self.ends.iter().filter_map(Endpoint::poll_timeout).min();
        let packet = self.flight.keys().next().map(|(at, _)| *at);
        let Some(next) = timer.into_iter().chain(packet).min() else {
            return false;
        };
        self.now = next.max(self.now);
        if packet == Some(next) {
            if let Some((_, (to, source, ecn, bytes))) = self.flight.pop_first() {
                self.watch.delivered(self.now, to, ecn, &bytes);
                self.ends[to].handle_datagram(self.now, source, ecn, &bytes);
            }
        } else {
            self.timers();
        }
        self.drain();
        true
    }

    fn timers(&mut self) {
        self.ends
            .iter_mut()
            .for_each(|end| end.handle_timeout(self.now));
    }

    /// Whether handling what is due moves every deadline into the future.
    fn timers_settle(&mut self) -> bool {
        self.timers();
        self.drain();
        let timer = self.ends.iter().filter_map(Endpoint::poll_timeout).min();
        timer.is_none_or(|timer| timer > self.now)
    }

    pub fn run(&mut self, until: impl Fn(&Self) -> bool) {
        for _ in 0..3_000_000 {
            if until(self) {
                return;
            }
            assert!(
                self.step(),
                "nothing left to happen at {} ns: {:?}",
                self.now,
                self.events
            );
        }
        panic!("not over after 3 million steps");
    }

    /// Lets `pause` ns pass.
    pub fn pass(&mut self, pause: u64) {
        let until = self.now + pause;
        loop {
            self.drain();
            let timer = self.ends.iter().filter_map(Endpoint::poll_timeout).min();
            let packet = self.flight.keys().next().map(|(at, _)| *at);
            let next = timer.into_iter().chain(packet).min();
            if next.is_none_or(|next| next > until) || !self.step() {
                break;
            }
        }
        self.now = self.now.max(until);
    }

    /// Runs until nothing happens any more but that an idle connection is asked now and then.
    pub fn run_until_idle(&mut self) {
        loop {
            self.drain();
            let timer = self.ends.iter().filter_map(Endpoint::poll_timeout).min();
            let far = timer.is_none_or(|timer| timer > self.now + IDLE);
            if far && self.flight.is_empty() || !self.step() {
                return;
            }
        }
    }

    pub fn service(paths: u16, streams: u16, initial_psn: Option<u32>) -> Service {
        Service {
            service_id: 1,
            paths,
            streams,
            first_streams: streams,
            payload_size: 1024,
            msg_window: 64,
            initial_psn,
            features: Features(0),
            ..Service::default()
        }
    }

    pub fn establish(&mut self, paths: u16, streams: u16, initial_psn: Option<u32>) {
        self.establish_with(Self::service(paths, streams, initial_psn));
    }

    /// Gives both ends just as many source ports as there are paths, so that no path changes its port. To be called
    /// before anything else.
    fn fix_ports(&mut self, paths: u16) {
        for (i, end) in self.ends.iter_mut().enumerate() {
            *end = Endpoint::new(Config {
                seed: self.seed * 2 + i as u64,
                max_connections: 4,
                max_regions: 4096,
                source_ports: 50000..50000 + paths,
                ..Config::new(self.addresses[i])
            })
            .unwrap();
        }
    }

    pub fn establish_with(&mut self, service: Service) {
        if self.events.iter().all(Vec::is_empty) && self.sent.is_empty() {
            self.fix_ports(service.paths);
        }
        self.ends[1].listen(service).unwrap();
        self.ends[0]
            .connect(self.now, self.addresses[1], service)
            .unwrap();
        let is_up = |e: &Event| matches!(e, Event::Established { .. });
        self.run(|link| link.events.iter().all(|events| events.iter().any(is_up)));
    }

    /// Registers `data` at `end`; returns the buffer that holds it.
    pub fn source(&mut self, end: usize, data: &[u8]) -> Buffer {
        let region = self.ends[end]
            .register(data.len(), Access::default())
            .unwrap();
        let memory = self.ends[end].memory_mut(region.mr).unwrap();
        memory.copy_from_slice(data);
        Buffer {
            mr: region.mr,
            offset: 0,
            len: data.len(),
        }
    }

    /// Registers `len` bytes at `end` for the peer to write to.
    pub fn target(&mut self, end: usize, len: usize) -> Region {
        self.ends[end]
            .register(
                len,
                Access {
                    remote_write: true,
                    ..Access::default()
                },
            )
            .unwrap()
    }

    pub fn write(&mut self, from: usize, wr_id: u64, buffer: Buffer, to: Region) {
        self.ends[from]
            .post_write(self.now, 0, 0, wr_id, buffer, to.va, to.rkey)
            .unwrap();
    }

    /// Writes `len` bytes from `from`, waits for the completion, and compares.
    pub fn write_and_check(&mut self, from: usize, wr_id: u64, len: usize) {
        let data = bytes(wr_id, len);
        let buffer = self.source(from, &data);
        let target = self.target(1 - from, len);
        self.write(from, wr_id, buffer, target);
        let done = move |c: &(u16, u64, WorkKind, Status)| c.1 == wr_id;
        self.run(|link| link.completions(from).iter().any(done));
        assert_eq!(self.ends[1 - from].memory(target.mr), Some(&data[..]));
    }

    pub fn counters(&self, end: usize) -> Counters {
        self.ends[end].counters(0).unwrap()
    }

    pub fn completions(&self, side: usize) -> Vec<(u16, u64, WorkKind, Status)> {
        let completion = |event: &Event| match event {
            Event::Completion(done) => Some((done.stream, done.wr_id, done.kind, done.status)),
            _ => None,
        };
        self.events[side].iter().filter_map(completion).collect()
    }

    pub fn statuses(&self, side: usize) -> Vec<Status> {
        self.completions(side).iter().map(|c| c.3).collect()
    }
}

pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut out = vec![0; len];
    random.fill_bytes(&mut out);
    out
}
