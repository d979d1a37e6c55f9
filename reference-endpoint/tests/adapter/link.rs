//! Two sessions over a simulated link, driven by lines as a harness would.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use metaroce_endpoint::adapter::Session;
use metaroce_endpoint::core::Ecn;
use metaroce_endpoint::mutants;
use metaroce_wire::crc::{self, PseudoHeader};
use metaroce_wire::metaroce::{Cbh, Opcode};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};

const DELAY: u64 = 500_000;

/// What the link does to packets.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    /// Chances in 1000: lost, doubled, marked, mark erased.
    pub loss: u32,
    pub twice: u32,
    pub marked: u32,
    pub erased: u32,
    /// Chance in 1000 that a packet is spoiled in one of the ways of [`Link::spoil`].
    pub spoiled: u32,
    /// The first so many packets of each opcode are lost.
    pub first: &'static [(Opcode, u32)],
    /// All data and all probes on this path are lost.
    pub dead_path: Option<u8>,
}

/// Packets under way by time of arrival and order of sending: to whom and to which address, from where, mark and bytes.
type Flight = BTreeMap<(u64, u64), (usize, IpAddr, SocketAddr, Ecn, Vec<u8>)>;

pub struct Link {
    pub now: u64,
    pub sessions: [Session; 2],
    addresses: [SocketAddr; 2],
    flight: Flight,
    latest: BTreeMap<(usize, u16), u64>,
    sequence: u64,
    random: ChaCha8Rng,
    weather: Weather,
    /// Whatever comes from there or goes there is lost.
    pub dark: Option<IpAddr>,
    counted: BTreeMap<u8, u32>,
    /// Everything that went out and everything that was answered.
    pub transcript: Vec<Vec<u8>>,
    /// Lines in both directions.
    pub lines: Vec<(String, String)>,
    next_id: u64,
}

impl Link {
    pub fn new(seed: u64, mutant: [Option<&str>; 2], weather: Weather) -> Self {
        let addresses = [
            "192.0.2.1:49200".parse().unwrap(),
            "192.0.2.2:49200".parse().unwrap(),
        ];
        Self {
            now: 1000,
            sessions: mutant.map(|id| Session::new(seed, id.map(|id| mutants::by_id(id).unwrap()))),
            addresses,
            flight: BTreeMap::new(),
            latest: BTreeMap::new(),
            sequence: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
            weather,
            dark: None,
            counted: BTreeMap::new(),
            transcript: Vec::new(),
            lines: Vec::new(),
            next_id: 0,
        }
    }

    /// Sends a request; returns the answer's `ok`, or its error under `error`.
    pub fn call(&mut self, side: usize, op: &str, mut body: Value) -> Value {
        self.next_id += 1;
        body["id"] = json!(self.next_id);
        body["op"] = json!(op);
        let line = body.to_string();
        let answer = self.sessions[side].handle_line(self.now, &line);
        self.transcript.push(answer.clone().into_bytes());
        self.lines.push((line, answer.clone()));
        self.drain();
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["id"], json!(self.next_id));
        match answer.get("ok") {
            Some(ok) => ok.clone(),
            None => answer.take(),
        }
    }

    pub fn open(&mut self, side: usize, change: Value) -> Value {
        let mut body = json!({
            "role": if side == 0 { "initiator" } else { "acceptor" },
            "local": self.addresses[side], "peer": self.addresses[1 - side],
            "service_id": 7, "paths": 4, "streams": 2, "payload_size": 256, "msg_window": 16,
            "source_port_base": 50000, "seed": 11 + side, "ack_delay_us": 200,
        });
        for (name, value) in change.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        self.call(side, "open", body)
    }

    /// Reports since the last call.
    pub fn events(&mut self, side: usize) -> Vec<Value> {
        let events = self.call(side, "poll", json!({"timeout_ms": 0}));
        events["events"].as_array().cloned().unwrap_or_default()
    }

    pub fn run(&mut self, time_ns: u64) {
        let end = self.now + time_ns;
        while self.step(end) {}
    }

    fn chance(&mut self, in_thousand: u32) -> bool {
        self.random.next_u32() % 1000 < in_thousand
    }

    fn drain(&mut self) {
        for from in 0..2 {
            let mut out = Vec::new();
            while let Some(transmit) = self.sessions[from].poll_transmit(self.now, &mut out) {
                let mut record = vec![from as u8, transmit.ecn as u8];
                record.extend(transmit.src_port.to_be_bytes());
                record.extend(transmit.dst.port().to_be_bytes());
                record.extend_from_slice(&out);
                self.transcript.push(record);
                let there = self.sessions[1 - from].locals().contains(&transmit.dst);
                if !there && transmit.dst != self.addresses[1 - from] {
                    continue;
                }
                let ends = [transmit.src_ip, transmit.dst.ip()];
                self.carry(from, ends, transmit.src_port, transmit.ecn, &out);
            }
        }
    }

    fn carry(
        &mut self,
        from: usize,
        [src, to]: [IpAddr; 2],
        port: u16,
        mut ecn: Ecn,
        bytes: &[u8],
    ) {
        let cbh = Cbh::read(bytes).unwrap().0;
        let count = self.counted.entry(cbh.opcode.0).or_default();
        *count += 1;
        let first = self
            .weather
            .first
            .iter()
            .any(|(opcode, n)| *opcode == cbh.opcode && *count <= *n);
        let of_path = cbh.opcode.is_data() || cbh.opcode == Opcode::PATH_PROBE;
        let dead = of_path && self.weather.dead_path == Some(cbh.path);
        let Weather {
            loss,
            twice,
            marked,
            erased,
            spoiled,
            ..
        } = self.weather;
        let dark = self.dark.is_some_and(|dark| dark == src || dark == to);
        if self.chance(loss) || first || dead || dark {
            return;
        }
        if ecn == Ecn::Ect0 && self.chance(marked) {
            ecn = Ecn::Ce;
        } else if self.chance(erased) {
            ecn = Ecn::NotEct;
        }
        let mut source = SocketAddr::new(src, port);
        let mut bytes = bytes.to_vec();
        if self.chance(spoiled) {
            self.spoil(from, &cbh, &mut source, &mut bytes);
        }
        let copies = 1 + u32::from(self.chance(twice));
        for _ in 0..copies {
            let jitter = u64::from(self.random.next_u32() % 200_000);
            let latest = self.latest.entry((from, port)).or_default();
            let at = (self.now + DELAY + jitter).max(*latest);
            *latest = at;
            self.sequence += 1;
            self.flight.insert(
                (at, self.sequence),
                (1 - from, to, source, ecn, bytes.clone()),
            );
        }
    }

    /// Makes something of a packet that a sound endpoint refuses.
    fn spoil(&mut self, from: usize, cbh: &Cbh, source: &mut SocketAddr, bytes: &mut [u8]) {
        let (data, ack) = (cbh.opcode.is_data(), cbh.opcode.is_ack());
        let mut reseal = true;
        match self.random.next_u32() % 8 {
            0 if data => {
                let last = bytes.len() - 5;
                bytes[last] ^= 1;
                reseal = false;
            }
            1 if data => bytes[0] ^= 0x30,
            2 if data => bytes[2] |= 1,
            3 if data => bytes[1] = 0x3f,
            4 if data => bytes[7] ^= 1,
            5 if data => *source = SocketAddr::new([192, 0, 2, 9].into(), source.port()),
            6 if data || ack => bytes[0] |= 1,
            7 if cbh.opcode == Opcode::ACK_SACK => bytes[40] |= 0x80,
            4 if ack => bytes[8] ^= 0x10,
            _ => reseal = false,
        }
        if reseal {
            crc::seal(
                &PseudoHeader::new(source.ip(), self.addresses[1 - from]),
                bytes,
            )
            .unwrap();
        }
    }

    fn step(&mut self, end: u64) -> bool {
        self.drain();
        let timer = self.sessions.iter().filter_map(Session::poll_timeout).min();
        let timer = timer.map(|due| due.max(self.now + 1));
        let packet = self.flight.keys().next().map(|(at, _)| *at);
        let next = timer.into_iter().chain(packet).min();
        let Some(next) = next.filter(|next| *next <= end) else {
            self.now = end;
            return false;
        };
        self.now = next.max(self.now);
        if packet == Some(next)
            && let Some((_, (side, to, source, ecn, bytes))) = self.flight.pop_first()
        {
            self.sessions[side].handle_datagram_at(self.now, to, source, ecn, &bytes);
        } else {
            self.sessions
                .iter_mut()
                .for_each(|session| session.handle_timeout(self.now));
        }
        self.drain();
        true
    }
}
