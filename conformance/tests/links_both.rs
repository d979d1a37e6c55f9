//! The self-test of the injector, for every link: what the rules ask for is what happens, as counted at both taps, and
//! the same rules, seed and traffic have the same outcome on the simulated link and on the relay.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod links;

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};

use links::traffic::{Maker, Sent};
use links::{Party, isolated_relay, read_capture, rules};
use metaroce_conformance::evidence::RuleCount;
use metaroce_conformance::inject::Injector;
use metaroce_conformance::link::sim::{Node, Outgoing, SimLink};
use metaroce_conformance::trace::pcapng::TraceWriter;
use metaroce_conformance::trace::{Observation, Side};
use metaroce_wire::crc;
use metaroce_wire::frame::{Ecn, parse_ip};
use metaroce_wire::metaroce::{Opcode, parse_lax};

/// One way, ns.
const DELAY: u64 = 500_000;
/// Data packets of each side.
const DATA: u32 = 480;
const SEED: u64 = 7;

/// Every action, some of them together on one packet, none of them on the set-up. Waits end by packets of the same
/// direction, not by time.
const RULES: &str = "
- {id: lose, match: {class: data, path: 1, psn: '3..5'}, at_least: 6, action: drop}
- {id: lose-some, match: {class: [data, ack]}, chance: 5%, at_least: 10, action: drop}
- {id: late, match: {class: data, path: 2, psn: '10..12'}, at_least: 4, action: {delay: 3ms}}
- {id: twice, match: {class: data, path: 0, psn: '5..20'}, at_least: 20, action: {duplicate: {after: 1ms}}}
- {id: twice-again, match: {from: a, path: 0, psn: '18..20'}, action: {duplicate: {after: 2ms}}}
- {id: back, match: {class: data, path: 3, psn: '0..60'}, chance: 20%, at_least: 8, action: {reorder: {behind: 2, at_most: 5s}}}
- {id: wait, match: {from: a, class: data, path: 1, psn: 30},
   action: {hold_until: {packet: {from: a, class: data, path: 1, psn: 33}, at_most: 5s}}}
- {id: mark, match: {psn: '15..40'}, at_least: 100, action: mark_ce}
- {id: bleach, match: {path: 2, psn: '35..50'}, at_least: 20, action: clear_ecn}
- {id: flip, match: {from: b, psn: '50..52'}, at_least: 8, action: {corrupt: {byte: 60, bit: 3}}}
- {id: forge, match: {from: a, psn: '50..52'}, at_least: 8, action: {corrupt: {byte: 60, bit: 3, reseal: true}}}
- {id: cut, match: {psn: 70}, at_least: 4, action: {truncate: 48B}}
- {id: move, match: {path: 0, psn: [80, '85..90']}, at_least: 8, action: {source_port: 50009}}
- {id: strange, match: {path: 2, psn: '60..63'}, at_least: 4, action: stranger}
";

/// The rules, each bounded to first transmissions as they must be to be survived: here every packet is sent once.
fn all_rules() -> Vec<metaroce_conformance::inject::Rule> {
    let once = RULES.replace("match: {", "match: {transmission: 1, ");
    rules(&once)
}

/// What a run has left behind.
struct Outcome {
    seen: Vec<Observation>,
    counts: Vec<RuleCount>,
    held: [u64; 2],
}

/// The traffic of a party: what it sends once it has received so many datagrams.
fn script(maker: &Maker) -> Vec<(usize, Vec<Sent>)> {
    let mut bulk = maker.bulk(DATA);
    match maker.side {
        Side::A => {
            bulk.insert(0, maker.stream_open());
            vec![(0, vec![maker.open()]), (1, bulk)]
        }
        Side::B => vec![(1, vec![maker.accept()]), (2, bulk)],
    }
}

struct Player {
    local: SocketAddr,
    script: VecDeque<(usize, Vec<Sent>)>,
    ready: VecDeque<Sent>,
    received: usize,
}

impl Player {
    fn new(maker: &Maker) -> Self {
        let mut player = Self {
            local: maker.local,
            script: script(maker).into(),
            ready: VecDeque::new(),
            received: 0,
        };
        player.advance();
        player
    }

    fn advance(&mut self) {
        while let Some((_, batch)) = self.script.pop_front_if(|(at, _)| *at <= self.received) {
            self.ready.extend(batch);
        }
    }
}

impl Node for Player {
    fn address(&self) -> Option<SocketAddr> {
        Some(self.local)
    }
    fn handle_datagram(&mut self, _: u64, _: SocketAddr, _: Ecn, _: &[u8]) {
        self.received += 1;
        self.advance();
    }
    fn handle_timeout(&mut self, _: u64) {}
    fn poll_transmit(&mut self, _: u64, out: &mut Vec<u8>) -> Option<Outgoing> {
        let sent = self.ready.pop_front()?;
        out.clear();
        out.extend_from_slice(&sent.bytes);
        Some(Outgoing {
            src_port: sent.src.port(),
            dst: sent.dst,
            ecn: sent.ecn,
        })
    }
    fn poll_timeout(&self) -> Option<u64> {
        None
    }
}

fn simulated() -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcapng");
    let writer = TraceWriter::create(&path, "made by the simulator").unwrap();
    let writer = std::rc::Rc::new(std::cell::RefCell::new(Some(writer)));
    let sink = std::rc::Rc::clone(&writer);
    let write = move |observation: &Observation| {
        let mut writer = sink.borrow_mut();
        let written = writer.as_mut().unwrap().write(observation);
        written.map_err(|e| e.to_string())
    };
    let mut link = SimLink::new(DELAY, Injector::new(all_rules(), SEED), Box::new(write));
    let [maker_a, maker_b] = Maker::pair();
    let (mut a, mut b) = (Player::new(&maker_a), Player::new(&maker_b));
    link.run(&mut [&mut a, &mut b], 10_000_000_000, |_| false)
        .unwrap();
    writer.take().unwrap().finish().unwrap();
    Outcome {
        seen: read_capture(&std::fs::read(&path).unwrap()),
        counts: link.injector().counts(),
        held: link.held(),
    }
}

/// `expected`: datagrams that must arrive at A and at B, so that the end is an event.
fn relayed(expected: [usize; 2]) -> Outcome {
    let relay = isolated_relay(1, all_rules(), DELAY);
    let addresses = relay.addresses;
    let makers = [
        Maker::new(Side::A, addresses.a, addresses.near),
        Maker::new(Side::B, addresses.b, addresses.far),
    ];
    let parties = makers.map(|maker| {
        let mut party = Party::bind(maker.local);
        let ports = (50_000..50_004).map(|port| {
            let socket = UdpSocket::bind((maker.local.ip(), port)).unwrap();
            (port, Party::from_socket(socket))
        });
        let ports: BTreeMap<u16, Party> = ports.collect();
        let wanted = expected[maker.side.index()];
        std::thread::spawn(move || {
            let mut received = 0;
            for (at, batch) in script(&maker) {
                while received < at {
                    party.receive();
                    received += 1;
                }
                for sent in batch {
                    ports[&sent.src.port()].send(sent.dst, sent.ecn, &sent.bytes);
                }
            }
            while received < wanted {
                party.receive();
                received += 1;
            }
        })
    });
    for party in parties {
        party.join().unwrap();
    }
    let (report, capture) = relay.finish();
    Outcome {
        seen: read_capture(&capture),
        counts: report.rules,
        held: report.held,
    }
}

/// A packet at a tap, without what differs between links: addresses, the trailer that covers them, and the time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Plain {
    from: Side,
    /// Whether it comes from an address that no party has: theirs end in a small number.
    stranger: bool,
    src_port: u16,
    ecn: u8,
    sound: bool,
    bytes: Vec<u8>,
}

fn plain(observation: &Observation) -> Plain {
    let frame = parse_ip(&observation.frame).unwrap();
    let (bytes, _trailer) = frame.payload.split_last_chunk::<4>().unwrap();
    Plain {
        from: observation.from,
        stranger: matches!(frame.src.ip(), std::net::IpAddr::V4(ip) if ip.octets()[3] > 100),
        src_port: frame.src.port(),
        ecn: frame.ecn.bits(),
        sound: crc::verify(&frame.pseudo_header(), frame.payload).is_ok(),
        bytes: bytes.to_vec(),
    }
}

impl Outcome {
    fn entered(&self) -> impl Iterator<Item = &Observation> {
        self.seen.iter().filter(|o| o.tap == o.from)
    }

    fn left(&self) -> impl Iterator<Item = &Observation> {
        self.seen.iter().filter(|o| o.tap != o.from)
    }

    fn arrived(&self, at: Side) -> usize {
        self.left().filter(|o| o.tap == at).count()
    }

    /// Who sent which packet in which order, and what the rules did to it.
    fn decisions(&self, side: Side) -> Vec<(u8, u8, u32, Vec<String>)> {
        let of_side = self.entered().filter(|o| o.from == side);
        of_side
            .map(|observation| {
                let frame = parse_ip(&observation.frame).unwrap();
                let cbh = parse_lax(frame.payload).cbh.unwrap();
                let names = observation.notes.iter();
                let names = names.map(|note| format!("{} {}", note.rule, note.action));
                (cbh.opcode.0, cbh.path, cbh.psn.value(), names.collect())
            })
            .collect()
    }

    fn check(&self) {
        // The taps balance.
        for side in Side::BOTH {
            let of_side = |o: &&Observation| o.from == side;
            let acted = |action: &str| {
                let notes = self.entered().filter(of_side).flat_map(|o| &o.notes);
                notes.filter(|note| note.action == action).count()
            };
            let entered = self.entered().filter(of_side).count();
            let left = self.left().filter(of_side).count();
            let held = self.held[side.index()] as usize;
            assert_eq!(entered + acted("duplicate"), left + acted("drop") + held);
            let set_up = if side == Side::A { 2 } else { 1 };
            assert_eq!(entered, set_up + (DATA + DATA / 4) as usize);
        }
        assert_eq!(self.held, [0, 0]);
        // Every rule has acted as often as the capture says, and often enough.
        for count in &self.counts {
            let notes = self.entered().flat_map(|o| &o.notes);
            let noted = notes.filter(|note| note.rule == count.rule).count() as u64;
            assert_eq!(noted, count.fired, "{}", count.rule);
            assert!(
                count.at_least >= 1 && count.fired >= count.at_least,
                "{count:?}"
            );
        }
        // What leaves the link is what the notes make of what has entered it.
        let mut expected: Vec<Plain> = self.entered().flat_map(consequence).collect();
        let mut left: Vec<Plain> = self.left().map(plain).collect();
        expected.sort();
        left.sort();
        assert!(expected == left);
        self.check_times();
        self.check_order();
    }

    /// No packet is early.
    fn check_times(&self) {
        let mut arrivals = BTreeMap::new();
        for observation in self.left() {
            let plain = plain(observation);
            let key = (plain.from, plain.bytes[..16].to_vec());
            arrivals
                .entry(key)
                .or_insert(Vec::new())
                .push(observation.time_ns);
        }
        for observation in self.entered() {
            let plain = plain(observation);
            let acted = |rule: &str| observation.notes.iter().any(|note| note.rule == rule);
            let wait = DELAY + if acted("late") { 3_000_000 } else { 0 };
            let key = (plain.from, plain.bytes[..16].to_vec());
            let Some(times) = arrivals.get(&key) else {
                continue;
            };
            let early = times.iter().find(|at| **at < observation.time_ns + wait);
            assert_eq!(early, None, "sent at {}", observation.time_ns);
            if acted("twice") && times.len() > 1 {
                assert!(times[1] >= observation.time_ns + wait + 1_000_000);
            }
        }
    }

    /// A packet that a rule sends back comes after the two that follow it undisturbed on its path.
    fn check_order(&self) {
        for side in Side::BOTH {
            let numbers = |observations: Vec<&Observation>| -> Vec<u32> {
                let of_path = observations.iter().filter(|o| o.from == side).map(|o| {
                    let frame = parse_ip(&o.frame).unwrap();
                    parse_lax(frame.payload).cbh.unwrap()
                });
                of_path
                    .filter(|cbh| cbh.opcode == Opcode::WRITE && cbh.path == 3)
                    .map(|cbh| {
                        cbh.psn
                            .value()
                            .wrapping_sub(links::traffic::ISN[side.index()])
                    })
                    .collect()
            };
            let left = numbers(self.left().collect());
            let by = |wanted: &str| {
                let of_rule = |o: &&Observation| o.notes.iter().any(|note| note.rule == wanted);
                numbers(self.entered().filter(of_rule).collect())
            };
            let (back, lost) = (by("back"), by("lose-some"));
            let mut order: Vec<u32> = Vec::new();
            let mut waiting: Vec<(u32, u32)> = Vec::new();
            for number in 0..DATA / 4 {
                if lost.contains(&number) {
                    continue;
                }
                if back.contains(&number) {
                    waiting.push((number, 2));
                    continue;
                }
                order.push(number);
                for (held, behind) in &mut waiting {
                    *behind -= 1;
                    if *behind == 0 {
                        order.push(*held);
                    }
                }
                waiting.retain(|(_, behind)| *behind > 0);
            }
            assert!(!back.is_empty());
            assert_eq!(left, order);
        }
    }
}

/// What must leave the link for a packet that has entered it with these notes.
fn consequence(entered: &Observation) -> Vec<Plain> {
    let mut packet = plain(entered);
    let mut copies = 1;
    for note in &entered.notes {
        match note.rule.as_str() {
            "lose" | "lose-some" => copies = 0,
            "twice" | "twice-again" => copies += 1,
            "mark" => packet.ecn = Ecn::Ce.bits(),
            "bleach" => packet.ecn = Ecn::NotEct.bits(),
            "flip" => {
                packet.bytes[60] ^= 8;
                packet.sound = false;
            }
            "forge" => packet.bytes[60] ^= 8,
            "cut" => {
                packet.bytes.truncate(48 - 4);
                packet.sound = false;
            }
            "move" => packet.src_port = 50_009,
            "strange" => packet.stranger = true,
            "late" | "back" | "wait" => {}
            other => panic!("{other} is not among the rules"),
        }
    }
    vec![packet; copies]
}

#[test]
fn the_injector_does_the_same_on_every_link() {
    let simulated = simulated();
    simulated.check();
    let relayed = relayed(Side::BOTH.map(|side| simulated.arrived(side)));
    relayed.check();
    assert_eq!(simulated.counts, relayed.counts);
    for side in Side::BOTH {
        assert_eq!(simulated.decisions(side), relayed.decisions(side));
    }
    let sorted = |outcome: &Outcome| {
        let mut left: Vec<Plain> = outcome.left().map(plain).collect();
        left.sort();
        left
    };
    assert!(sorted(&simulated) == sorted(&relayed));
}

/// Spoils an outcome.
type Doctor = Box<dyn Fn(&mut Outcome)>;

#[test]
fn the_self_test_can_fail() {
    let sound = simulated();
    let position =
        |holds: &dyn Fn(&Observation) -> bool| sound.seen.iter().position(holds).unwrap();
    let left = |o: &Observation| o.tap != o.from;
    let noted = |o: &Observation, rule: &str| o.notes.iter().any(|note| note.rule == rule);
    let doctored: [(&str, Doctor); 7] = [
        ("an arrival is missing", {
            let at = position(&left);
            Box::new(move |o| drop(o.seen.remove(at)))
        }),
        ("an arrival is there twice", {
            let at = position(&left);
            Box::new(move |o| o.seen.insert(at, o.seen[at].clone()))
        }),
        ("a mark is missing", {
            let at = position(&|o| left(o) && plain(o).ecn == Ecn::Ce.bits());
            Box::new(move |o| o.seen[at].frame[1] = 2)
        }),
        ("a packet is early", {
            let at = position(&left);
            Box::new(move |o| o.seen[at].time_ns = 0)
        }),
        ("a note is missing", {
            let at = position(&|o| noted(o, "late"));
            Box::new(move |o| o.seen[at].notes.clear())
        }),
        ("a note is false", {
            let at = position(&|o| noted(o, "bleach") && o.notes.len() == 1);
            Box::new(move |o| o.seen[at].notes[0].rule = "mark".into())
        }),
        ("a packet was not held back", {
            let of_path = |o: &Observation| left(o) && plain(o).bytes[3] == 3;
            let mut on_path = (0..sound.seen.len()).filter(|at| {
                let o = &sound.seen[*at];
                of_path(o) && o.from == Side::A && plain(o).bytes[1] == Opcode::WRITE.0
            });
            let (first, second) = (on_path.next().unwrap(), on_path.next().unwrap());
            Box::new(move |o| {
                let (early, late) = (o.seen[first].frame.clone(), o.seen[second].frame.clone());
                (o.seen[first].frame, o.seen[second].frame) = (late, early);
            })
        }),
    ];
    for (what, doctor) in doctored {
        let mut outcome = Outcome {
            seen: sound.seen.clone(),
            counts: sound.counts.clone(),
            held: sound.held,
        };
        doctor(&mut outcome);
        let checked = std::panic::catch_unwind(|| outcome.check());
        assert!(checked.is_err(), "{what}");
    }
}
