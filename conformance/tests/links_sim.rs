//! The simulated link.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod links;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use links::rules;
use links::traffic::{Maker, Sent};
use metaroce_conformance::inject::Injector;
use metaroce_conformance::link::sim::{Node, Outgoing, SimError, SimLink};
use metaroce_conformance::trace::{Observation, Side};
use metaroce_wire::frame::{Ecn, parse_ip};
use metaroce_wire::metaroce::parse;

/// Sends what it is given when its time has come, and keeps what it receives.
struct Player {
    address: Option<SocketAddr>,
    row: VecDeque<(u64, Sent)>,
    received: Vec<(u64, SocketAddr, Ecn, Vec<u8>)>,
    /// Sends the same again for every datagram received.
    echo: Option<Sent>,
    /// Never does what is due.
    lazy: bool,
    clock: u64,
}

impl Player {
    fn new(maker: &Maker, row: impl IntoIterator<Item = (u64, Sent)>) -> Self {
        Self {
            address: Some(maker.local),
            row: row.into_iter().collect(),
            received: Vec::new(),
            echo: None,
            lazy: false,
            clock: 0,
        }
    }
}

impl Node for Player {
    fn address(&self) -> Option<SocketAddr> {
        self.address
    }
    fn handle_datagram(&mut self, now: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        self.received.push((now, from, ecn, bytes.to_vec()));
        if let Some(echo) = &self.echo {
            self.row.push_back((0, echo.clone()));
        }
    }
    fn handle_timeout(&mut self, now: u64) {
        if !self.lazy {
            self.clock = now;
        }
    }
    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Outgoing> {
        let (_, sent) = self.row.pop_front_if(|(at, _)| *at <= now && !self.lazy)?;
        out.clear();
        out.extend_from_slice(&sent.bytes);
        Some(Outgoing {
            src_port: sent.src.port(),
            dst: sent.dst,
            ecn: sent.ecn,
        })
    }
    fn poll_timeout(&self) -> Option<u64> {
        self.row.front().map(|(at, _)| *at)
    }
}

type Seen = Rc<RefCell<Vec<Observation>>>;

fn link(delay_ns: u64, text: &str, seed: u64) -> (SimLink, Seen) {
    let seen = Seen::default();
    let sink = Rc::clone(&seen);
    let keep = move |observation: &Observation| {
        sink.borrow_mut().push(observation.clone());
        Ok(())
    };
    let injector = Injector::new(rules(text), seed);
    (SimLink::new(delay_ns, injector, Box::new(keep)), seen)
}

fn run(link: &mut SimLink, a: &mut Player, b: &mut Player, until: u64) -> Result<(), SimError> {
    link.run(&mut [a, b], until, |_| false)
}

const MS: u64 = 1_000_000;

#[test]
fn a_packet_is_seen_when_sent_and_when_it_arrives() {
    let [maker_a, maker_b] = Maker::pair();
    let (mut link, seen) = link(MS, "[]", 1);
    let sent = maker_a.write(1, 0, false);
    let mut a = Player::new(&maker_a, [(5 * MS, sent.clone())]);
    let mut b = Player::new(&maker_b, []);
    run(&mut link, &mut a, &mut b, 100 * MS).unwrap();
    assert_eq!(link.now(), 100 * MS);
    let seen: Vec<_> = seen
        .borrow()
        .iter()
        .map(|o| (o.time_ns, o.tap, o.from))
        .collect();
    assert_eq!(
        seen,
        [(5 * MS, Side::A, Side::A), (6 * MS, Side::B, Side::A)]
    );
    let expected = (6 * MS, sent.src, Ecn::Ect0, sent.bytes);
    assert_eq!(b.received, [expected]);
}

#[test]
fn time_does_not_pass_a_packet_that_is_under_way() {
    let [maker_a, maker_b] = Maker::pair();
    let (mut link, _) = link(MS, "[]", 1);
    let mut a = Player::new(&maker_a, [(0, maker_a.open())]);
    let mut b = Player::new(&maker_b, []);
    run(&mut link, &mut a, &mut b, MS - 1).unwrap();
    assert_eq!((link.held(), b.received.len()), ([1, 0], 0));
    run(&mut link, &mut a, &mut b, MS).unwrap();
    assert_eq!((link.held(), b.received.len()), ([0, 0], 1));
    // A time that is over does not turn it back.
    run(&mut link, &mut a, &mut b, 5).unwrap();
    assert_eq!(link.now(), MS);
}

#[test]
fn stop_ends_a_run_after_the_step_that_it_waits_for() {
    let [maker_a, maker_b] = Maker::pair();
    let (mut link, seen) = link(MS, "[]", 1);
    let row = (0..10).map(|n| (u64::from(n) * MS, maker_a.write(0, n, false)));
    let mut a = Player::new(&maker_a, row);
    let mut b = Player::new(&maker_b, []);
    let watched = Rc::clone(&seen);
    link.run(&mut [&mut a, &mut b], 100 * MS, |_| {
        let arrived = watched.borrow();
        arrived.iter().filter(|o| o.tap == Side::B).count() == 3
    })
    .unwrap();
    assert_eq!(b.received.len(), 3);
}

#[test]
fn packets_of_a_path_keep_their_order_unless_a_rule_says_otherwise() {
    let orders = |text: &str| {
        let [maker_a, maker_b] = Maker::pair();
        let (mut link, _) = link(MS, text, 1);
        let set_up = [(0, maker_a.open())];
        let row = (0..100).map(|n| (1, maker_a.write((n % 4) as u8, n / 4, false)));
        let mut a = Player::new(&maker_a, set_up.into_iter().chain(row));
        let mut b = Player::new(&maker_b, []);
        run(&mut link, &mut a, &mut b, 500 * MS).unwrap();
        let mut orders = vec![Vec::new(); 4];
        for (_, _, _, bytes) in b.received.iter().skip(1) {
            let pseudo = maker_a.open().frame().pseudo_header();
            let cbh = parse(bytes, &pseudo).unwrap().cbh;
            let number = cbh.psn.value().wrapping_sub(maker_a.isn);
            orders[usize::from(cbh.path)].push(number);
        }
        orders
    };
    let straight: Vec<u32> = (0..25).collect();
    assert_eq!(orders("[]"), vec![straight.clone(); 4]);
    let text = "[{id: x, match: {path: 2, psn: 3}, action: {reorder: {behind: 2}}},
                 {id: y, match: {path: 3, psn: 0}, action: {delay: 9ms}}]";
    let reordered = orders(text);
    assert_eq!(reordered[..2], [straight.clone(), straight]);
    assert_eq!(reordered[2][..6], [0, 1, 2, 4, 5, 3]);
    assert_eq!((reordered[3][0], reordered[3][24]), (1, 0));
}

#[test]
fn what_is_addressed_to_somebody_else_is_seen_and_lost() {
    let [maker_a, maker_b] = Maker::pair();
    let (mut link, seen) = link(MS, "[]", 1);
    let mut elsewhere = maker_a;
    elsewhere.peer.set_port(50_000);
    let row = [(0, elsewhere.ack(0, 1)), (0, maker_a.ack(0, 1))];
    let mut a = Player::new(&maker_a, row);
    let mut b = Player::new(&maker_b, []);
    run(&mut link, &mut a, &mut b, 10 * MS).unwrap();
    let at_b: Vec<u16> = seen
        .borrow()
        .iter()
        .filter(|o| o.tap == Side::B)
        .map(|o| parse_ip(&o.frame).unwrap().dst.port())
        .collect();
    assert_eq!((at_b, b.received.len()), (vec![50_000, 49_200], 1));
    assert_eq!(link.held(), [0, 0]);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |seed| {
        let text = "[{id: lose, match: {class: data}, chance: 10%, action: drop},
                     {id: late, match: {class: ack}, chance: 10%, action: {delay: 3ms}},
                     {id: back, match: {class: data}, chance: 5%, action: {reorder: {behind: 2}}}]";
        let makers = Maker::pair();
        let (mut link, seen) = link(MS, text, seed);
        let rows = makers.map(|maker| maker.bulk(400).into_iter().map(|sent| (MS, sent)));
        let [row_a, row_b] = rows;
        let mut a = Player::new(&makers[0], [(0, makers[0].open())].into_iter().chain(row_a));
        let mut b = Player::new(
            &makers[1],
            [(0, makers[1].accept())].into_iter().chain(row_b),
        );
        run(&mut link, &mut a, &mut b, 1000 * MS).unwrap();
        seen.take()
    };
    let (one, same, other) = (trace(1), trace(1), trace(2));
    assert!(one.len() > 1800);
    assert!(one == same);
    assert!(one != other);
}

#[test]
fn parties_that_run_away_are_stopped() {
    let [maker_a, maker_b] = Maker::pair();
    // One sends without end at one instant.
    let (mut endless, _) = link(MS, "[]", 1);
    let row = std::iter::repeat_n((0, maker_b.ack(0, 1)), 100_001);
    let (mut a, mut b) = (Player::new(&maker_a, []), Player::new(&maker_b, row));
    let stopped = run(&mut endless, &mut a, &mut b, 10 * MS);
    assert_eq!(stopped, Err(SimError::RunAway(Side::B)));
    // Two answer each other while no time passes.
    let (mut instant, _) = link(0, "[]", 1);
    let mut a = Player::new(&maker_a, [(0, maker_a.ack(0, 1))]);
    let mut b = Player::new(&maker_b, []);
    a.echo = Some(maker_a.ack(0, 1));
    b.echo = Some(maker_b.ack(0, 1));
    let stopped = run(&mut instant, &mut a, &mut b, 10 * MS);
    assert_eq!(stopped, Err(SimError::Livelock(0)));
    // One asks for a time that is over.
    let (mut stalled, _) = link(MS, "[]", 1);
    let mut a = Player::new(&maker_a, [(5, maker_a.ack(0, 1))]);
    a.lazy = true;
    let mut b = Player::new(&maker_b, []);
    let stopped = run(&mut stalled, &mut a, &mut b, u64::MAX);
    assert_eq!(stopped, Err(SimError::Stalled(Side::A)));
}

#[test]
fn a_capture_that_fails_ends_the_run() {
    let [maker_a, maker_b] = Maker::pair();
    let full = |_: &Observation| Err("disk full".to_owned());
    let mut link = SimLink::new(0, Injector::new(Vec::new(), 1), Box::new(full));
    let mut a = Player::new(&maker_a, [(0, maker_a.open())]);
    let mut b = Player::new(&maker_b, []);
    let stopped = run(&mut link, &mut a, &mut b, MS);
    assert_eq!(stopped, Err(SimError::Capture("disk full".into())));
}
