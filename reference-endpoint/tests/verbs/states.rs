//! States of queue pairs: the steps there are, the others that are refused, and what a state does with work.

use metaroce_endpoint::verbs::{
    AsyncEvent, Destination, Error, Modify, Qp, QpState, RecvWr, STEPS, SendWr, Sge, Wc, WcStatus,
    WrOpcode, service,
};

use crate::link::Link;

const ALL: [QpState; 6] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Err,
];

fn step(link: &mut Link, qp: Qp, to: QpState) -> Result<(), Error> {
    let (peer, service) = (link.addresses[1], service(1));
    let to = match to {
        QpState::Reset => Modify::Reset,
        QpState::Init => Modify::Init,
        QpState::Rtr => Modify::Rtr(Destination::Connect { peer, service }),
        QpState::Rts => Modify::Rts,
        QpState::Sqd => Modify::Sqd,
        QpState::Err => Modify::Err,
    };
    let now = link.now;
    link.devices[0].modify_qp(now, qp, to)
}

fn state(link: &Link, qp: Qp) -> QpState {
    link.devices[0].query_qp(qp).unwrap().state
}

/// A queue pair in a state, with its stream open where there is one.
fn in_state(link: &mut Link, state: QpState) -> Qp {
    let init = link.init(0);
    let qp = link.devices[0].create_qp(init).unwrap();
    let way: &[QpState] = match state {
        QpState::Reset => &[],
        QpState::Init => &[QpState::Init],
        QpState::Rtr => &[QpState::Init, QpState::Rtr],
        QpState::Rts => &[QpState::Init, QpState::Rtr, QpState::Rts],
        QpState::Sqd => &[QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd],
        QpState::Err => &[QpState::Init, QpState::Err],
    };
    for to in way {
        step(link, qp, *to).unwrap();
    }
    if matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd) {
        let up = AsyncEvent::Established { qp };
        link.run(|link| link.events[0].contains(&up));
    }
    qp
}

#[test]
fn only_the_steps_of_the_verbs_are_taken() {
    let allowed = |from, to| match (from, to) {
        (QpState::Reset, QpState::Reset | QpState::Init) => true,
        (QpState::Reset, _) => false,
        (_, QpState::Reset | QpState::Err) => true,
        (QpState::Init, QpState::Init | QpState::Rtr) => true,
        (QpState::Rtr, QpState::Rts) => true,
        (QpState::Rts | QpState::Sqd, QpState::Rts | QpState::Sqd) => true,
        _ => false,
    };
    let mut link = Link::new(1, 0);
    link.listen(service(1));
    for from in ALL {
        for to in ALL {
            assert_eq!(
                STEPS.contains(&(from, to)),
                allowed(from, to),
                "{from} to {to}"
            );
            let qp = in_state(&mut link, from);
            assert_eq!(state(&link, qp), from);
            let result = step(&mut link, qp, to);
            if allowed(from, to) {
                assert_eq!((result, state(&link, qp)), (Ok(()), to), "from {from}");
            } else {
                assert_eq!(result, Err(Error::Transition { from, to }));
                assert_eq!(state(&link, qp), from);
            }
        }
    }
}

#[test]
fn a_queue_pair_stays_in_rtr_until_its_stream_is_open() {
    let mut link = Link::new(2, 0);
    link.listen(service(1));
    let init = link.init(0);
    let qp = link.devices[0].create_qp(init).unwrap();
    let (now, peer) = (link.now, link.addresses[1]);
    link.devices[0].connect(now, qp, peer, service(1)).unwrap();
    assert_eq!(state(&link, qp), QpState::Rtr);
    let to = link.region(1, &[0; 4]);
    let wr = SendWr::inline(1, WrOpcode::RdmaWrite(to.remote(0)), b"late");
    link.devices[0].post_send(now, qp, &[wr]).unwrap();
    assert_eq!(link.devices[0].query_qp(qp).unwrap().send_posted, 1);
    assert_eq!(link.completions(0, 1)[0].status, WcStatus::Success);
    assert_eq!(state(&link, qp), QpState::Rts);
    assert_eq!(link.bytes(1, to), b"late");
}

#[test]
fn work_and_receives_are_refused_where_a_state_takes_none() {
    let mut link = Link::new(3, 0);
    link.listen(service(1));
    for state in ALL {
        let qp = in_state(&mut link, state);
        let now = link.now;
        let send = SendWr::inline(1, WrOpcode::RdmaWrite(Default::default()), b"");
        let sent = link.devices[0].post_send(now, qp, &[send]);
        let takes = matches!(state, QpState::Rts | QpState::Sqd | QpState::Err);
        assert_eq!(sent.is_ok(), takes, "{state}");
        if let Err(error) = sent {
            let what = "work";
            assert_eq!(error.error, Error::WrongState { state, what });
        }
        let receive = RecvWr {
            wr_id: 2,
            sg_list: vec![],
        };
        let posted = link.devices[0].post_recv(now, qp, &[receive]);
        assert_eq!(posted.is_ok(), state != QpState::Reset, "{state}");
    }
}

#[test]
fn receives_posted_before_the_stream_is_there_are_used() {
    let mut link = Link::new(4, 100);
    link.listen(service(1));
    let init = link.init(1);
    let b = link.devices[1].create_qp(init).unwrap();
    link.devices[1].modify_qp(1000, b, Modify::Init).unwrap();
    let to = link.region(1, &[0; 9]);
    for n in 0..3 {
        link.recv(1, b, n, to.sge(n * 3, 3));
    }
    let accept = Modify::Rtr(Destination::Accept);
    link.devices[1].modify_qp(1000, b, accept).unwrap();
    link.devices[1].modify_qp(1000, b, Modify::Rts).unwrap();
    let (a, accepted) = link.pair(service(1));
    assert_eq!(accepted, b);
    for text in [b"one", b"two", b"six"] {
        let now = link.now;
        let wr = SendWr::inline(1, WrOpcode::Send, text);
        link.devices[0].post_send(now, a, &[wr]).unwrap();
    }
    link.completions(1, 3);
    assert_eq!(link.bytes(1, to), b"onetwosix");
    // The next one is made by the template.
    let (_, other) = link.pair(service(1));
    assert_ne!(other, b);
}

#[test]
fn a_queue_pair_that_cannot_accept_is_refused() {
    let mut link = Link::new(5, 0);
    let init = link.init(1);
    let accept = Modify::Rtr(Destination::Accept);
    let attempt = |link: &mut Link, init| {
        let qp = link.devices[1].create_qp(init).unwrap();
        link.devices[1].modify_qp(1000, qp, Modify::Init).unwrap();
        link.devices[1].modify_qp(1000, qp, accept)
    };
    assert!(
        matches!(attempt(&mut link, init), Err(Error::Invalid(_))),
        "nothing is offered"
    );
    link.listen(service(1));
    assert_eq!(attempt(&mut link, init), Ok(()));
    let mut other = init;
    other.pd = link.devices[1].alloc_pd().unwrap();
    assert!(matches!(attempt(&mut link, other), Err(Error::Invalid(_))));
    // The one that waits is let go with the offer.
    link.devices[1].stop_listening();
    link.drain();
    assert!(matches!(
        link.events[1][..],
        [AsyncEvent::Disconnected { .. }]
    ));
}

fn ids(done: &[Wc]) -> Vec<(u64, WcStatus)> {
    done.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

#[test]
fn err_flushes_work_then_receives_in_order_and_what_is_posted_from_then_on() {
    for reset in [false, true] {
        let (mut link, a, b) = Link::plain(6, 0);
        link.recv(0, a, 11, Sge::default());
        for wr_id in 1..4 {
            link.send(0, a, wr_id, WrOpcode::Send, Sge::default());
        }
        link.recv(0, a, 12, Sge::default());
        let now = link.now;
        let to = if reset { Modify::Reset } else { Modify::Err };
        link.devices[0].modify_qp(now, a, to).unwrap();
        let flushed = |ids: &[u64]| -> Vec<_> {
            ids.iter()
                .map(|wr_id| (*wr_id, WcStatus::WrFlushErr))
                .collect()
        };
        assert_eq!(ids(&link.polled(0)), flushed(&[1, 2, 3, 11, 12]));
        if !reset {
            // VERB-007.
            link.send(0, a, 4, WrOpcode::Send, Sge::default());
            link.recv(0, a, 13, Sge::default());
            assert_eq!(ids(&link.polled(0)), flushed(&[4, 13]));
        }
        // The program knows of it; its peer is told.
        let gone = |e: &AsyncEvent| matches!(e, AsyncEvent::Disconnected { .. });
        link.run(|link| link.events[1].iter().any(gone));
        assert!(!link.events[0].iter().any(gone));
        assert_eq!(link.devices[1].query_qp(b).unwrap().state, QpState::Err);
        link.pass(3_000_000_000);
        assert_eq!(link.polled(0), []);
    }
}

#[test]
fn a_queue_pair_is_used_again_after_reset() {
    let (mut link, a, _) = Link::plain(7, 30);
    let to = link.region(1, &[0; 4]);
    for round in 0..5 {
        let now = link.now;
        link.devices[0].modify_qp(now, a, Modify::Err).unwrap();
        link.devices[0].modify_qp(now, a, Modify::Reset).unwrap();
        let peer = link.addresses[1];
        link.devices[0].connect(now, a, peer, service(1)).unwrap();
        let wr = SendWr::inline(round, WrOpcode::RdmaWrite(to.remote(0)), b"data");
        link.devices[0].post_send(now, a, &[wr]).unwrap();
        assert_eq!(ids(&link.completions(0, 1)), [(round, WcStatus::Success)]);
    }
}

#[test]
fn work_posted_in_sqd_waits_and_the_end_of_what_is_under_way_is_told() {
    let (mut link, a, _) = Link::plain(8, 50);
    let to = link.region(1, &[0; 8]);
    let write = |text| SendWr::inline(1, WrOpcode::RdmaWrite(to.remote(0)), text);
    let now = link.now;
    link.devices[0]
        .post_send(now, a, &[write(b"first")])
        .unwrap();
    link.devices[0].modify_qp(now, a, Modify::Sqd).unwrap();
    link.devices[0]
        .post_send(now, a, &[write(b"later")])
        .unwrap();
    let drained = AsyncEvent::SqDrained { qp: a };
    link.run(|link| link.events[0].contains(&drained));
    assert_eq!(link.polled(0).len(), 1);
    link.pass(1_000_000_000);
    assert_eq!(link.bytes(1, to)[..5], *b"first");
    assert_eq!(link.devices[0].query_qp(a).unwrap().send_posted, 1);
    let now = link.now;
    link.devices[0].modify_qp(now, a, Modify::Rts).unwrap();
    link.completions(0, 1);
    assert_eq!(link.bytes(1, to)[..5], *b"later");
    assert_eq!(link.events[0].iter().filter(|e| **e == drained).count(), 1);
    // Without work it is drained at once.
    let now = link.now;
    link.devices[0].modify_qp(now, a, Modify::Sqd).unwrap();
    assert_eq!(link.devices[0].poll_event(), Some(drained));
}

#[test]
fn what_waits_in_sqd_is_flushed_before_the_receives() {
    for by_peer in [false, true] {
        let (mut link, a, b) = Link::plain(9, 0);
        link.recv(0, a, 11, Sge::default());
        link.send(0, a, 1, WrOpcode::Send, Sge::default());
        let now = link.now;
        link.devices[0].modify_qp(now, a, Modify::Sqd).unwrap();
        link.send(0, a, 2, WrOpcode::Send, Sge::default());
        if by_peer {
            link.devices[1].modify_qp(now, b, Modify::Err).unwrap();
        } else {
            link.devices[0].modify_qp(now, a, Modify::Err).unwrap();
        }
        let expected = [1, 2, 11].map(|wr_id| (wr_id, WcStatus::WrFlushErr));
        assert_eq!(ids(&link.completions(0, 3)), expected);
    }
}
