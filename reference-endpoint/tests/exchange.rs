//! Two endpoints over a simulated link with seeded loss, duplication, marks and jitter between paths; memory is
//! compared byte for byte.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::BTreeMap;
use std::net::SocketAddr;

use metaroce_endpoint::core::{
    Access, Buffer, Config, Ecn, Endpoint, Event, Service, Status, WorkKind,
};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

const DELAY: u64 = 500_000;

/// Packets under way by time of arrival and order of sending: to whom, from where, mark and bytes.
type Flight = BTreeMap<(u64, u64), (usize, SocketAddr, Ecn, Vec<u8>)>;

struct Link {
    now: u64,
    ends: [Endpoint; 2],
    addresses: [SocketAddr; 2],
    flight: Flight,
    sequence: u64,
    random: ChaCha8Rng,
    /// Chance in 1000 that a packet is lost.
    loss: u32,
    /// Chance in 1000 that it comes twice, and that it is marked.
    twice: u32,
    marked: u32,
    /// Arrival of the latest packet by direction and source port: a path is first-in first-out.
    latest: BTreeMap<(usize, u16), u64>,
    events: [Vec<Event>; 2],
    sent: Vec<Vec<u8>>,
}

impl Link {
    fn new(seed: u64, loss: u32) -> Self {
        let addresses: [SocketAddr; 2] = [
            "192.0.2.1:49200".parse().unwrap(),
            "192.0.2.2:49200".parse().unwrap(),
        ];
        let ends = [0, 1].map(|i: usize| {
            Endpoint::new(Config {
                local: addresses[i],
                seed: seed * 2 + i as u64,
                source_ports: 50000..50256,
                ack_delay_us: 200,
                max_connections: 4,
                max_regions: 4096,
            })
            .unwrap()
        });
        Self {
            now: 1_000,
            ends,
            addresses,
            flight: BTreeMap::new(),
            sequence: 0,
            random: ChaCha8Rng::seed_from_u64(seed ^ 0xabcd),
            loss,
            twice: 0,
            marked: 0,
            latest: BTreeMap::new(),
            events: [Vec::new(), Vec::new()],
            sent: Vec::new(),
        }
    }

    fn chance(&mut self, in_thousand: u32) -> bool {
        self.random.next_u32() % 1000 < in_thousand
    }

    fn drain(&mut self) {
        let mut out = Vec::new();
        for from in 0..2 {
            while let Some(transmit) = self.ends[from].poll_transmit(self.now, &mut out) {
                self.sent.push(out.clone());
                let copies = if self.chance(self.loss) {
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
                    let jitter = u64::from(self.random.next_u32() % 300_000);
                    let latest = self.latest.entry((from, transmit.src_port)).or_default();
                    let at = (self.now + DELAY + jitter).max(*latest);
                    *latest = at;
                    let source = SocketAddr::new(self.addresses[from].ip(), transmit.src_port);
                    assert_eq!(transmit.dst, self.addresses[1 - from]);
                    self.sequence += 1;
                    self.flight
                        .insert((at, self.sequence), (1 - from, source, ecn, out.clone()));
                }
            }
            while let Some(event) = self.ends[from].poll_event() {
                self.events[from].push(event);
            }
        }
    }

    /// One step of time; false when nothing is left to happen.
    fn step(&mut self) -> bool {
        self.drain();
        let timer = self
            .ends
            .iter()
            .filter_map(Endpoint::poll_timeout)
            .min()
            .map(|t| t.max(self.now + 1));
        let packet = self.flight.keys().next().map(|(at, _)| *at);
        let Some(next) = timer.into_iter().chain(packet).min() else {
            return false;
        };
        self.now = next.max(self.now);
        if packet == Some(next) {
            if let Some((_, (to, source, ecn, bytes))) = self.flight.pop_first() {
                self.ends[to].handle_datagram(self.now, source, ecn, &bytes);
            }
        } else {
            self.ends
                .iter_mut()
                .for_each(|end| end.handle_timeout(self.now));
        }
        self.drain();
        true
    }

    fn run(&mut self, until: impl Fn(&Self) -> bool) {
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

    fn establish(&mut self, paths: u16, streams: u16, initial_psn: Option<u32>) {
        let service = Service {
            service_id: 1,
            paths,
            streams,
            payload_size: 1024,
            msg_window: 64,
            initial_psn,
        };
        self.ends[1].listen(service).unwrap();
        self.ends[0]
            .connect(self.now, self.addresses[1], service)
            .unwrap();
        let is_up = |e: &Event| matches!(e, Event::Established { .. });
        self.run(|link| link.events.iter().all(|events| events.iter().any(is_up)));
    }

    fn completions(&self, side: usize) -> Vec<(u16, u64, WorkKind, Status)> {
        let completion = |event: &Event| match event {
            Event::Completion {
                stream,
                wr_id,
                kind,
                status,
                ..
            } => Some((*stream, *wr_id, *kind, *status)),
            _ => None,
        };
        self.events[side].iter().filter_map(completion).collect()
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut out = vec![0; len];
    random.fill_bytes(&mut out);
    out
}

/// Mixed Writes and Sends in both directions; returns every byte sent.
fn exchange(seed: u64, loss: u32, paths: u16, initial_psn: Option<u32>) -> Vec<Vec<u8>> {
    let mut link = Link::new(seed, loss);
    (link.twice, link.marked) = (20, 30);
    link.establish(paths, 2, initial_psn);
    let lengths = [0usize, 1, 1023, 1024, 1025, 20_000, 3, 70_001];
    let mut expected = Vec::new();
    for from in 0..2 {
        for (n, &len) in lengths.iter().enumerate() {
            let (wr_id, stream, to) = (n as u64, (n % 2) as u16 * 2, 1 - from);
            let data = bytes(seed ^ wr_id ^ (from as u64) << 32, len);
            let source = link.ends[from].register(len, Access::default()).unwrap();
            link.ends[from]
                .memory_mut(source.mr)
                .unwrap()
                .copy_from_slice(&data);
            let target = link.ends[to]
                .register(len + 20, Access { remote_write: true })
                .unwrap();
            link.ends[to].memory_mut(target.mr).unwrap().fill(0xee);
            let buffer = Buffer {
                mr: source.mr,
                offset: 0,
                len,
            };
            let now = link.now;
            if n % 3 == 0 {
                let receive = Buffer {
                    mr: target.mr,
                    offset: 10,
                    len,
                };
                link.ends[to]
                    .post_recv(now, 0, stream, 100 + wr_id, receive)
                    .unwrap();
                link.ends[from]
                    .post_send(now, 0, stream, wr_id, buffer)
                    .unwrap();
            } else {
                let va = target.va + 10;
                link.ends[from]
                    .post_write(now, 0, stream, wr_id, buffer, va, target.rkey)
                    .unwrap();
            }
            expected.push((
                to,
                target.mr,
                [&[0xee; 10][..], &data, &[0xee; 10]].concat(),
            ));
        }
    }
    link.run(|link| (0..2).all(|side| link.completions(side).len() == 8 + 3));
    for (to, mr, data) in expected {
        assert!(
            link.ends[to].memory(mr) == Some(&data),
            "seed {seed}, side {to}, region {mr}"
        );
    }
    for side in 0..2 {
        let all = link.completions(side);
        assert!(
            all.iter().all(|(.., status)| *status == Status::Success),
            "{all:?}"
        );
        for stream in [0, 2] {
            for receive in [false, true] {
                let of = all
                    .iter()
                    .filter(|c| c.0 == stream && (c.2 == WorkKind::Recv) == receive);
                assert!(of.clone().is_sorted_by_key(|c| c.1), "seed {seed}: {all:?}");
            }
        }
    }
    let now = link.now;
    link.ends[0].close(now, 0).unwrap();
    let closed = |e: &Event| matches!(e, Event::Closed { reason: 0, .. });
    link.run(|link| link.events.iter().all(|events| events.iter().any(closed)));
    link.sent
}

#[test]
fn without_loss() {
    exchange(1, 0, 4, None);
}

#[test]
fn under_loss_over_many_seeds() {
    for seed in 0..60 {
        let paths = [1, 2, 4, 8][seed as usize % 4];
        exchange(seed, 20 + (seed as u32 % 5) * 20, paths, Some(0xffff_fff0));
    }
}

#[test]
fn over_256_paths() {
    exchange(5, 20, 256, None);
}

#[test]
fn same_seed_same_bytes() {
    assert!(exchange(9, 50, 4, None) == exchange(9, 50, 4, None));
    assert!(exchange(9, 50, 4, None) != exchange(10, 50, 4, None));
}

#[test]
fn a_wrong_key_fails_its_work_and_flushes_the_rest_in_order() {
    let mut link = Link::new(3, 0);
    link.establish(2, 1, None);
    let source = link.ends[0].register(5000, Access::default()).unwrap();
    let target = link.ends[1]
        .register(5000, Access { remote_write: true })
        .unwrap();
    let buffer = Buffer {
        mr: source.mr,
        offset: 0,
        len: 5000,
    };
    for wr_id in 0..3 {
        let rkey = if wr_id == 1 {
            target.rkey ^ 1
        } else {
            target.rkey
        };
        link.ends[0]
            .post_write(link.now, 0, 0, wr_id, buffer, target.va, rkey)
            .unwrap();
    }
    link.run(|link| link.completions(0).len() == 3);
    let all = link.completions(0);
    let statuses: Vec<Status> = all.iter().map(|c| c.3).collect();
    assert!(all.is_sorted_by_key(|c| c.1));
    assert_eq!(statuses[1], Status::RemAccessErr);
    assert_eq!(statuses[2], Status::WrFlushErr);
}

#[test]
fn a_silent_peer_ends_the_work_with_retry_exceeded() {
    let mut link = Link::new(4, 0);
    link.establish(2, 1, None);
    link.loss = 1000;
    let source = link.ends[0].register(100, Access::default()).unwrap();
    let buffer = Buffer {
        mr: source.mr,
        offset: 0,
        len: 100,
    };
    for wr_id in 0..2 {
        link.ends[0]
            .post_write(link.now, 0, 0, wr_id, buffer, 0x1000_0000, 1)
            .unwrap();
    }
    link.run(|link| link.completions(0).len() == 2);
    let statuses: Vec<Status> = link.completions(0).iter().map(|c| c.3).collect();
    assert_eq!(statuses, [Status::RetryExcErr, Status::WrFlushErr]);
}

#[test]
fn garbage_changes_nothing() {
    let mut link = Link::new(6, 0);
    link.establish(1, 1, None);
    let before = link.ends[1].counters(0).unwrap();
    let from = SocketAddr::new(link.addresses[0].ip(), 50000);
    for len in 0..200 {
        let garbage = bytes(len as u64, len);
        link.ends[1].handle_datagram(link.now, from, Ecn::Ect0, &garbage);
    }
    let after = link.ends[1].counters(0).unwrap();
    assert_eq!(
        after.crc_errors + after.malformed,
        before.crc_errors + before.malformed + 200
    );
    let mut out = Vec::new();
    assert!(link.ends[1].poll_transmit(link.now, &mut out).is_none());
}
