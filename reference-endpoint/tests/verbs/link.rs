//! Two devices and a simulated link between them: seeded loss, and delays that differ from path to path.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use metaroce_endpoint::core::{Config, Ecn, Service};
use metaroce_endpoint::verbs::{
    AccessFlags, AsyncEvent, Cq, Device, Limits, Mr, Pd, Qp, QpInit, SendWr, Sge, Wc, WrOpcode,
    service,
};
use metaroce_wire::metaroce::Opcode;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// Shortest time on the way, and most that it varies, ns.
const DELAY: u64 = 200_000;
const JITTER: u64 = 100_000;
/// Steps until something is taken never to happen.
const PATIENCE: usize = 400_000;

type Flying = (usize, IpAddr, SocketAddr, Ecn, Vec<u8>);

pub struct Link {
    pub now: u64,
    pub devices: [Device; 2],
    pub addresses: [SocketAddr; 2],
    pub pd: [Pd; 2],
    pub cq: [Cq; 2],
    pub events: [Vec<AsyncEvent>; 2],
    /// Chance in 1000 that a packet is lost.
    pub loss: u32,
    /// Nothing arrives any more.
    pub cut: bool,
    pub sent: u64,
    /// NAKs that were sent, and where to.
    pub naks: Vec<(usize, IpAddr)>,
    flight: BTreeMap<(u64, u64), Flying>,
    latest: BTreeMap<(usize, u16), u64>,
    random: ChaCha8Rng,
}

impl Link {
    pub fn new(seed: u64, loss: u32) -> Self {
        Self::with(seed, loss, Limits::default(), |config| config)
    }

    pub fn with(seed: u64, loss: u32, limits: Limits, change: impl Fn(Config) -> Config) -> Self {
        let addresses: [SocketAddr; 2] = [
            "192.0.2.1:49200".parse().unwrap(),
            "192.0.2.2:49200".parse().unwrap(),
        ];
        let mut devices = addresses.map(|address| {
            let config = Config {
                seed: seed ^ u64::from(address.ip() == addresses[0].ip()),
                ..Config::new(address)
            };
            Device::with_limits(change(config), limits).unwrap()
        });
        let pd = [0, 1].map(|i: usize| devices[i].alloc_pd().unwrap());
        let cq = [0, 1].map(|i: usize| devices[i].create_cq(4096.min(limits.max_cqe)).unwrap());
        Self {
            now: 1000,
            devices,
            addresses,
            pd,
            cq,
            events: [Vec::new(), Vec::new()],
            loss,
            cut: false,
            sent: 0,
            naks: Vec::new(),
            flight: BTreeMap::new(),
            latest: BTreeMap::new(),
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    pub fn drain(&mut self) {
        let mut packet = Vec::new();
        for from in 0..2 {
            while let Some(transmit) = self.devices[from].poll_transmit(self.now, &mut packet) {
                self.sent += 1;
                if packet[1] == Opcode::NAK.0 {
                    self.naks.push((from, transmit.dst.ip()));
                }
                if self.cut || self.random.next_u32() % 1000 < self.loss {
                    continue;
                }
                let jitter = u64::from(self.random.next_u32()) % JITTER;
                let latest = self.latest.entry((from, transmit.src_port)).or_default();
                let at = (self.now + DELAY + jitter).max(*latest);
                *latest = at;
                let source = SocketAddr::new(transmit.src_ip, transmit.src_port);
                let to = 1 - from;
                self.flight.insert(
                    (at, self.sent),
                    (to, transmit.dst.ip(), source, transmit.ecn, packet.clone()),
                );
            }
            while let Some(event) = self.devices[from].poll_event() {
                self.events[from].push(event);
            }
        }
    }

    /// One step of time; false when nothing is left to happen.
    pub fn step(&mut self) -> bool {
        self.drain();
        let timers = self.devices.iter().filter_map(Device::poll_timeout);
        let packet = self.flight.keys().next().map(|(at, _)| *at);
        let Some(next) = timers.chain(packet).min() else {
            return false;
        };
        self.now = self.now.max(next);
        if packet.is_some_and(|at| at <= self.now) {
            if let Some((_, (to, ip, source, ecn, bytes))) = self.flight.pop_first() {
                let now = self.now;
                self.devices[to].handle_datagram_at(now, ip, source, ecn, &bytes);
            }
        } else {
            for device in &mut self.devices {
                device.handle_timeout(self.now);
            }
        }
        self.drain();
        true
    }

    /// Runs until `until` holds.
    pub fn run(&mut self, mut until: impl FnMut(&mut Self) -> bool) {
        for _ in 0..PATIENCE {
            if until(self) {
                return;
            }
            assert!(self.step(), "nothing is left to happen: {:?}", self.events);
        }
        panic!("not over after {PATIENCE} steps: {:?}", self.events);
    }

    /// Lets `ns` pass.
    pub fn pass(&mut self, ns: u64) {
        let until = self.now + ns;
        for _ in 0..PATIENCE {
            self.drain();
            let timers = self.devices.iter().filter_map(Device::poll_timeout);
            let packets = self.flight.keys().next().map(|(at, _)| *at);
            if timers.chain(packets).min().is_none_or(|next| next > until) {
                break;
            }
            self.step();
        }
        self.now = until;
    }

    // ---- the usual set-up ---------------------------------------------------------------------------------------

    pub fn init(&self, end: usize) -> QpInit {
        QpInit::new(self.pd[end], self.cq[end])
    }

    /// Device 1 offers `service`.
    pub fn listen(&mut self, service: Service) {
        let template = self.init(1);
        self.devices[1].listen(template, service).unwrap();
    }

    /// Connects a queue pair of device 0; returns it and its counterpart.
    pub fn pair(&mut self, service: Service) -> (Qp, Qp) {
        let init = self.init(0);
        self.pair_of(init, service)
    }

    pub fn pair_of(&mut self, init: QpInit, service: Service) -> (Qp, Qp) {
        let qp = self.devices[0].create_qp(init).unwrap();
        let (now, peer) = (self.now, self.addresses[1]);
        self.devices[0].connect(now, qp, peer, service).unwrap();
        let before = self.accepted(1).len();
        let up = AsyncEvent::Established { qp };
        self.run(|link| link.events[0].contains(&up) && link.accepted(1).len() > before);
        (qp, self.accepted(1)[before])
    }

    /// One pair over the plain service.
    pub fn plain(seed: u64, loss: u32) -> (Self, Qp, Qp) {
        Self::over(seed, loss, service(1))
    }

    pub fn over(seed: u64, loss: u32, service: Service) -> (Self, Qp, Qp) {
        let mut link = Self::new(seed, loss);
        link.listen(service);
        let (a, b) = link.pair(service);
        (link, a, b)
    }

    pub fn accepted(&self, end: usize) -> Vec<Qp> {
        let accepted = |event: &AsyncEvent| match event {
            AsyncEvent::Accepted { qp } => Some(*qp),
            _ => None,
        };
        self.events[end].iter().filter_map(accepted).collect()
    }

    /// Registers `data` at `end` for everything.
    pub fn region(&mut self, end: usize, data: &[u8]) -> Mr {
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC
            | AccessFlags::REMOTE_INVALIDATE;
        let pd = self.pd[end];
        let mr = self.devices[end].reg_mr(pd, data.len(), access).unwrap();
        self.devices[end]
            .bytes_mut(mr)
            .unwrap()
            .copy_from_slice(data);
        mr
    }

    pub fn bytes(&self, end: usize, mr: Mr) -> &[u8] {
        self.devices[end].bytes(mr).unwrap()
    }

    pub fn send(&mut self, end: usize, qp: Qp, wr_id: u64, opcode: WrOpcode, sge: Sge) {
        let now = self.now;
        let wr = SendWr::new(wr_id, opcode, sge);
        self.devices[end].post_send(now, qp, &[wr]).unwrap();
    }

    pub fn recv(&mut self, end: usize, qp: Qp, wr_id: u64, sge: Sge) {
        let now = self.now;
        let wr = metaroce_endpoint::verbs::RecvWr::new(wr_id, sge);
        self.devices[end].post_recv(now, qp, &[wr]).unwrap();
    }

    /// Runs until `count` completions have come at `end`.
    pub fn completions(&mut self, end: usize, count: usize) -> Vec<Wc> {
        let cq = self.cq[end];
        self.completions_of(end, cq, count)
    }

    pub fn completions_of(&mut self, end: usize, cq: Cq, count: usize) -> Vec<Wc> {
        let mut all = Vec::new();
        self.run(|link| {
            let left = count - all.len();
            all.extend(link.devices[end].poll_cq(cq, left).unwrap());
            all.len() == count
        });
        all
    }

    /// What has completed at `end` until now.
    pub fn polled(&mut self, end: usize) -> Vec<Wc> {
        let cq = self.cq[end];
        self.devices[end].poll_cq(cq, usize::MAX).unwrap()
    }
}

pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut out = vec![0; len];
    random.fill_bytes(&mut out);
    out
}
