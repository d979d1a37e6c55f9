//! Which connection a queue pair is on, and both sides opening.

use std::collections::BTreeSet;

use metaroce_endpoint::core::{Config, Features};
use metaroce_endpoint::verbs::{
    AsyncEvent, Device, Error, Limits, Modify, Qp, QpState, SendWr, Sge, WcStatus, WrOpcode,
    service,
};

use crate::link::{Link, bytes};

fn conn(device: &Device, qp: Qp) -> u32 {
    device.place_of(qp).unwrap().unwrap().conn
}

fn is_up(link: &Link, end: usize, qp: Qp) -> bool {
    link.devices[end].query_qp(qp).unwrap().state == QpState::Rts
}

#[test]
fn queue_pairs_share_connections_as_far_as_their_streams_go() {
    for loss in [0, 100] {
        let mut four = service(1);
        four.streams = 4;
        let mut link = Link::new(1, loss);
        link.listen(four);
        let init = link.init(0);
        let qps: Vec<Qp> = (0..10)
            .map(|_| link.devices[0].create_qp(init).unwrap())
            .collect();
        let peer = link.addresses[1];
        for qp in &qps {
            link.devices[0].connect(1000, *qp, peer, four).unwrap();
        }
        link.run(|link| qps.iter().all(|qp| is_up(link, 0, *qp)));
        let conns: Vec<u32> = qps.iter().map(|qp| conn(&link.devices[0], *qp)).collect();
        assert_eq!(conns, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
        // One more fills up the last one.
        let (more, _) = link.pair(four);
        assert_eq!(conn(&link.devices[0], more), 2);
        // Another service is another connection, though this one is not offered.
        let qp = link.devices[0].create_qp(init).unwrap();
        let now = link.now;
        link.devices[0].connect(now, qp, peer, service(2)).unwrap();
        let status = WcStatus::RetryExcErr;
        link.run(|link| link.events[0].contains(&AsyncEvent::Disconnected { qp, status }));
    }
}

#[test]
fn the_peer_agrees_to_fewer_streams() {
    let mut two = service(1);
    two.streams = 2;
    let mut link = Link::new(2, 50);
    link.listen(two);
    let init = link.init(0);
    let qps: Vec<Qp> = (0..5)
        .map(|_| link.devices[0].create_qp(init).unwrap())
        .collect();
    let peer = link.addresses[1];
    for qp in &qps {
        link.devices[0]
            .connect(1000, *qp, peer, service(1))
            .unwrap();
    }
    link.run(|link| qps.iter().all(|qp| is_up(link, 0, *qp)));
    let conns: BTreeSet<u32> = qps.iter().map(|qp| conn(&link.devices[0], *qp)).collect();
    assert_eq!(conns.len(), 3);
}

#[test]
fn many_queue_pairs_move_their_own_bytes_over_one_connection() {
    let mut link = Link::new(3, 30);
    link.listen(service(1));
    let data = bytes(3, 200 * 1000);
    let from = link.region(0, &data);
    let to = link.region(1, &vec![0; 200 * 1000]);
    let init = link.init(0);
    let qps: Vec<Qp> = (0..200)
        .map(|_| link.devices[0].create_qp(init).unwrap())
        .collect();
    let peer = link.addresses[1];
    for (n, qp) in (0..).zip(&qps) {
        link.devices[0]
            .connect(1000, *qp, peer, service(1))
            .unwrap();
        let write = WrOpcode::RdmaWrite(to.remote(n * 1000));
        link.send(0, *qp, n, write, from.sge(n * 1000, 1000));
    }
    let done = link.completions(0, 200);
    assert!(done.iter().all(|wc| wc.status == WcStatus::Success));
    assert!(done.iter().all(|wc| wc.qp == qps[wc.wr_id as usize]));
    assert!(link.bytes(1, to) == data);
    assert!(qps.iter().all(|qp| conn(&link.devices[0], *qp) == 0));
}

#[test]
fn both_sides_open_streams_of_the_same_connection() {
    for seed in 0..10 {
        let mut link = Link::new(seed, seed as u32 * 15);
        for end in 0..2 {
            let template = link.init(end);
            link.devices[end].listen(template, service(1)).unwrap();
        }
        let (first, _) = link.pair(service(1));
        let mut opened = Vec::new();
        for n in 0..8 {
            let end = n % 2;
            let init = link.init(end);
            let qp = link.devices[end].create_qp(init).unwrap();
            let (now, peer) = (link.now, link.addresses[1 - end]);
            link.devices[end]
                .connect(now, qp, peer, service(1))
                .unwrap();
            opened.push((end, qp));
        }
        link.run(|link| opened.iter().all(|(end, qp)| is_up(link, *end, *qp)));
        link.run(|link| link.accepted(0).len() == 4 && link.accepted(1).len() == 5);
        for (end, qp) in &opened {
            assert_eq!(
                conn(&link.devices[*end], *qp),
                conn(&link.devices[0], first)
            );
        }
        // The accepted ones work in both directions.
        let b = link.accepted(0)[0];
        let place = link.devices[0].place_of(b).unwrap().unwrap();
        let of = |(end, qp): &&(usize, Qp)| {
            *end == 1 && link.devices[1].place_of(*qp).unwrap().unwrap().stream == place.stream
        };
        let a = opened.iter().find(of).unwrap().1;
        let to = link.region(0, &[0; 4]);
        link.recv(0, b, 7, to.sge(0, 4));
        let now = link.now;
        let wr = SendWr::inline(1, WrOpcode::Send, b"back");
        link.devices[1].post_send(now, a, &[wr]).unwrap();
        assert_eq!(link.completions(0, 1)[0].wr_id, 7);
        assert_eq!(link.bytes(0, to), b"back");
    }
}

#[test]
fn both_sides_take_the_last_stream_and_one_finds_another_connection() {
    let mut two = service(1);
    two.streams = 2;
    let mut link = Link::new(4, 0);
    for end in 0..2 {
        let template = link.init(end);
        link.devices[end].listen(template, two).unwrap();
    }
    link.pair(two);
    let qps = [0, 1].map(|end: usize| {
        let init = link.init(end);
        let qp = link.devices[end].create_qp(init).unwrap();
        let (now, peer) = (link.now, link.addresses[1 - end]);
        link.devices[end].connect(now, qp, peer, two).unwrap();
        qp
    });
    link.run(|link| (0..2).all(|end| is_up(link, end, qps[end])));
    let conns = [0, 1].map(|end| conn(&link.devices[end], qps[end]));
    assert_ne!(
        conns[0] == 0,
        conns[1] == 0,
        "one of them has it: {conns:?}"
    );
    let lost = |e: &AsyncEvent| matches!(e, AsyncEvent::Disconnected { .. });
    assert!(!link.events.iter().flatten().any(lost));
}

#[test]
fn a_stream_that_nobody_has_offered_ends() {
    let mut link = Link::new(5, 0);
    link.listen(service(1));
    link.pair(service(1));
    // Device 0 offers nothing.
    let init = link.init(1);
    let qp = link.devices[1].create_qp(init).unwrap();
    let (now, peer) = (link.now, link.addresses[0]);
    link.devices[1].connect(now, qp, peer, service(1)).unwrap();
    let gone = |e: &AsyncEvent| matches!(e, AsyncEvent::Disconnected { .. });
    link.run(|link| link.events[1].iter().any(gone));
    assert_eq!(link.devices[1].query_qp(qp).unwrap().state, QpState::Err);
    assert!(!link.events[0].iter().any(gone), "the others live");
    // What it offers later it gets.
    let template = link.init(0);
    link.devices[0].listen(template, service(1)).unwrap();
    let now = link.now;
    link.devices[1].modify_qp(now, qp, Modify::Reset).unwrap();
    link.devices[1].connect(now, qp, peer, service(1)).unwrap();
    link.run(|link| is_up(link, 1, qp));
    let accepted = link.accepted(0)[0];
    let to = link.region(0, &[0; 2]);
    let wr = SendWr::inline(1, WrOpcode::RdmaWrite(to.remote(0)), b"ok");
    let now = link.now;
    link.devices[1].post_send(now, qp, &[wr]).unwrap();
    // The protection domain of the template counts, though the connection is older.
    assert_eq!(link.completions(1, 1)[0].status, WcStatus::Success);
    assert_eq!(link.bytes(0, to), b"ok");
    assert_eq!(conn(&link.devices[0], accepted), 0);
}

#[test]
fn queue_pairs_beyond_the_limit_are_not_accepted() {
    let limits = Limits {
        max_qp: 3,
        ..Limits::default()
    };
    let mut link = Link::with(6, 0, limits, |config| config);
    link.listen(service(1));
    for _ in 0..2 {
        link.pair(service(1));
    }
    let init = link.init(1);
    link.devices[1].create_qp(init).unwrap();
    let init = link.init(0);
    let qp = link.devices[0].create_qp(init).unwrap();
    let (now, peer) = (link.now, link.addresses[1]);
    link.devices[0].connect(now, qp, peer, service(1)).unwrap();
    let gone = |e: &AsyncEvent| matches!(e, AsyncEvent::Disconnected { qp: of, .. } if *of == qp);
    link.run(|link| link.events[0].iter().any(gone));
}

#[test]
fn the_last_queue_pair_closes_its_connection() {
    for loss in [0, 80] {
        let (mut link, a, b) = Link::plain(7, loss);
        let (other, _) = link.pair(service(1));
        let conns = [conn(&link.devices[0], a), conn(&link.devices[1], b)];
        let state = |link: &Link, end: usize| {
            let stats = link.devices[end].query_connection(conns[end]);
            stats.map_or("gone", |stats| stats.state)
        };
        let now = link.now;
        link.devices[0].destroy_qp(now, a).unwrap();
        link.pass(1_000_000_000);
        assert_eq!([state(&link, 0), state(&link, 1)], ["established"; 2]);
        let now = link.now;
        link.devices[0].destroy_qp(now, other).unwrap();
        link.pass(3_000_000_000);
        assert_eq!([state(&link, 0), state(&link, 1)], ["closed"; 2]);
        link.pass(20_000_000_000);
        assert_eq!([state(&link, 0), state(&link, 1)], ["gone"; 2]);
        // The next one has a new connection.
        let (next, _) = link.pair(service(1));
        assert_ne!(conn(&link.devices[0], next), conns[0]);
    }
}

#[test]
fn a_queue_pair_whose_connection_closes_under_it_finds_another() {
    let mut link = Link::new(8, 0);
    for end in 0..2 {
        let template = link.init(end);
        link.devices[end].listen(template, service(1)).unwrap();
    }
    let (a, _) = link.pair(service(1));
    // Device 0 lets go while device 1 is opening.
    let init = link.init(1);
    let qp = link.devices[1].create_qp(init).unwrap();
    let (now, peer) = (link.now, link.addresses[0]);
    link.devices[0].destroy_qp(now, a).unwrap();
    link.pass(100_000);
    let now = link.now;
    link.devices[1].connect(now, qp, peer, service(1)).unwrap();
    let to = link.region(0, &[0; 2]);
    let wr = SendWr::inline(1, WrOpcode::RdmaWrite(to.remote(0)), b"ok");
    link.devices[1].post_send(now, qp, &[wr]).unwrap();
    assert_eq!(link.completions(1, 1)[0].status, WcStatus::Success);
    assert_eq!(link.bytes(0, to), b"ok");
}

#[test]
fn a_connection_is_closed_when_its_work_is_done() {
    let (mut link, a, b) = Link::plain(10, 50);
    let data = bytes(10, 100_000);
    let from = link.region(0, &data);
    let to = link.region(1, &vec![0; 100_000]);
    link.send(
        0,
        a,
        1,
        WrOpcode::RdmaWrite(to.remote(0)),
        from.sge(0, 100_000),
    );
    link.recv(0, a, 2, Sge::default());
    let now = link.now;
    let conn = conn(&link.devices[0], a);
    link.devices[0].close_connection(now, conn).unwrap();
    let done: Vec<_> = link.completions(0, 2).iter().map(|wc| wc.status).collect();
    assert_eq!(done, [WcStatus::Success, WcStatus::WrFlushErr]);
    assert!(link.bytes(1, to) == data);
    link.run(|link| {
        [(0, a), (1, b)]
            .iter()
            .all(|(end, qp)| link.devices[*end].query_qp(*qp).unwrap().state == QpState::Err)
    });
    let missing = link.devices[0].close_connection(now, 99);
    assert!(matches!(missing, Err(Error::NotFound { .. })));
}

#[test]
fn a_connection_can_be_ended_at_once() {
    let (mut link, a, _) = Link::plain(11, 0);
    let (other, _) = link.pair(service(1));
    link.send(0, a, 1, WrOpcode::Send, Sge::default());
    link.recv(0, other, 2, Sge::default());
    let now = link.now;
    let conn = conn(&link.devices[0], a);
    link.devices[0].abort_connection(now, conn).unwrap();
    let done: Vec<_> = link
        .polled(0)
        .iter()
        .map(|wc| (wc.wr_id, wc.status))
        .collect();
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(done, [(1, flushed), (2, flushed)]);
    let gone = |e: &AsyncEvent| matches!(e, AsyncEvent::Disconnected { .. });
    link.run(|link| link.events[1].iter().filter(|e| gone(e)).count() == 2);
}

#[test]
fn without_resets_a_queue_pair_that_goes_takes_the_connection_along() {
    let mut plain = service(1);
    plain.features = Features(plain.features.0 & !Features::RESET.0);
    let (mut link, a, _) = Link::over(12, 0, plain);
    let (other, _) = link.pair(plain);
    let now = link.now;
    link.devices[0].destroy_qp(now, a).unwrap();
    assert_eq!(link.devices[0].query_qp(other).unwrap().state, QpState::Err);
}

#[test]
fn a_connect_that_is_refused_changes_nothing() {
    let one = |config: Config| Config {
        max_connections: 1,
        ..config
    };
    let mut link = Link::with(21, 0, Limits::default(), one);
    link.listen(service(1));
    link.pair(service(1));
    let init = link.init(0);
    let qp = link.devices[0].create_qp(init).unwrap();
    let (now, peer) = (link.now, link.addresses[1]);
    let other = "192.0.2.3:49200".parse().unwrap();
    for prepared in [false, true] {
        let before = if prepared {
            link.devices[0].modify_qp(now, qp, Modify::Init).unwrap();
            link.recv(0, qp, 5, Sge::default());
            QpState::Init
        } else {
            QpState::Reset
        };
        let refused = link.devices[0].connect(now, qp, other, service(1));
        assert!(matches!(refused, Err(Error::Core(_))), "{refused:?}");
        let attr = link.devices[0].query_qp(qp).unwrap();
        assert_eq!((attr.state, attr.recv_posted), (before, prepared.into()));
        assert_eq!(link.devices[0].poll_event(), None);
    }
    link.devices[0].connect(now, qp, peer, service(1)).unwrap();
    link.run(|link| is_up(link, 0, qp));
}

/// Whether its CLOSE or the STREAM_OPEN of the queue pair arrives first.
#[test]
fn a_connection_that_the_program_closes_is_not_replaced_by_another() {
    let mut opened = 0;
    for seed in 0..40 {
        let (mut link, ..) = Link::plain(seed, 0);
        let init = link.init(0);
        let qp = link.devices[0].create_qp(init).unwrap();
        let (now, peer) = (link.now, link.addresses[1]);
        link.devices[0].connect(now, qp, peer, service(1)).unwrap();
        assert_eq!(link.devices[0].query_qp(qp).unwrap().state, QpState::Rtr);
        let conn = conn(&link.devices[0], qp);
        link.devices[0].close_connection(now, conn).unwrap();
        link.loss = 500;
        let gone =
            |e: &AsyncEvent| matches!(e, AsyncEvent::Disconnected { qp: of, .. } if *of == qp);
        link.run(|link| link.events[0].iter().any(gone));
        link.loss = 0;
        link.pass(1_000_000_000);
        let state = link.devices[0].query_qp(qp).unwrap().state;
        assert_eq!(state, QpState::Err, "seed {seed}");
        let another = link.devices[0].query_connection(conn + 1);
        assert!(another.is_err(), "seed {seed}: {another:?}");
        assert_eq!(link.devices[0].connections_up(), 0, "seed {seed}");
        let up = AsyncEvent::Established { qp };
        opened += usize::from(link.events[0].contains(&up));
    }
    assert!(opened > 0 && opened < 40, "both orders: {opened}");
}
