//! Every completion status of the mapping, and that what comes after an error is flushed.

use metaroce_endpoint::core::{Features, Misuse, Remote, Service};
use metaroce_endpoint::verbs::{
    AccessFlags, AsyncEvent, Error, Modify, Qp, QpState, RecvWr, SendWr, Sge, Wc, WcOpcode,
    WcStatus, WrOpcode, service,
};

use crate::link::{Link, bytes};

fn statuses(done: &[Wc]) -> Vec<(u64, WcStatus)> {
    done.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

/// Posts a Write that succeeds, `bad`, and two Writes behind it; returns how all of them ended.
fn around(link: &mut Link, a: Qp, bad: SendWr) -> Vec<(u64, WcStatus)> {
    let to = link.region(1, &[0; 8]);
    let good = |wr_id| SendWr::inline(wr_id, WrOpcode::RdmaWrite(to.remote(0)), b"good");
    let now = link.now;
    link.devices[0].post_send(now, a, &[good(1)]).unwrap();
    let mut done = statuses(&link.completions(0, 1));
    let now = link.now;
    link.devices[0]
        .post_send(now, a, &[bad, good(3), good(4)])
        .unwrap();
    done.extend(statuses(&link.completions(0, 3)));
    // VERB-005: nothing completes twice, whatever comes later.
    link.pass(3_000_000_000);
    assert_eq!(link.polled(0), []);
    done
}

fn ends_with(status: WcStatus) -> [(u64, WcStatus); 4] {
    let flushed = WcStatus::WrFlushErr;
    [
        (1, WcStatus::Success),
        (2, status),
        (3, flushed),
        (4, flushed),
    ]
}

#[test]
fn a_bad_key_an_overrun_of_a_region_and_a_foreign_domain_are_remote_access_errors() {
    for (seed, loss) in (0..12).map(|seed| (seed, seed as u32 * 20)) {
        let (mut link, a, b) = Link::plain(seed, loss);
        let near = link.region(0, &[0; 16]);
        let far = link.region(1, &[7; 16]);
        let other = link.devices[1].alloc_pd().unwrap();
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let foreign = link.devices[1].reg_mr(other, 16, access).unwrap();
        let pd = link.pd[1];
        let shut = link.devices[1]
            .reg_mr(pd, 16, AccessFlags::LOCAL_WRITE)
            .unwrap();
        let wrong = Remote {
            rkey: far.rkey ^ 1,
            ..far.remote(0)
        };
        let opcode = [
            WrOpcode::RdmaWrite(wrong),
            WrOpcode::RdmaWrite(far.remote(1)),
            WrOpcode::RdmaRead(far.remote(1)),
            WrOpcode::RdmaWrite(foreign.remote(0)),
            WrOpcode::RdmaWrite(shut.remote(0)),
            WrOpcode::RdmaRead(shut.remote(0)),
        ][seed as usize % 6];
        let bad = SendWr::new(2, opcode, near.sge(0, 16));
        assert_eq!(
            around(&mut link, a, bad),
            ends_with(WcStatus::RemAccessErr),
            "seed {seed}"
        );
        assert_eq!(link.bytes(1, far), [7; 16]);
        assert_eq!(link.devices[0].query_qp(a).unwrap().state, QpState::Err);
        assert_eq!(link.devices[1].query_qp(b).unwrap().state, QpState::Err);
        let status = WcStatus::WrFlushErr;
        assert!(link.events[1].contains(&AsyncEvent::Disconnected { qp: b, status }));
    }
}

#[test]
fn a_message_longer_than_its_receive_is_a_length_error_on_both_sides() {
    let (mut link, a, b) = Link::plain(1, 100);
    let to = link.region(1, &[9; 100]);
    link.recv(1, b, 11, to.sge(0, 3));
    link.recv(1, b, 12, to.sge(10, 20));
    link.recv(1, b, 13, to.sge(30, 20));
    let bad = SendWr::inline(2, WrOpcode::Send, b"long");
    // VERB-001.
    assert_eq!(around(&mut link, a, bad), ends_with(WcStatus::RemInvReqErr));
    // VERB-003, VERB-004.
    let flushed = WcStatus::WrFlushErr;
    let expected = [(11, WcStatus::LocLenErr), (12, flushed), (13, flushed)];
    assert_eq!(statuses(&link.polled(1)), expected);
    assert_eq!(link.bytes(1, to), [9; 100]);
}

#[test]
fn memory_that_the_own_side_does_not_know_is_a_protection_error() {
    for case in 0..8 {
        let (mut link, a, b) = Link::plain(case, 30);
        let near = link.region(0, &[0; 16]);
        let far = link.region(1, &[7; 16]);
        link.recv(1, b, 1, far.sge(0, 16));
        let other = link.devices[0].alloc_pd().unwrap();
        let foreign = link.devices[0]
            .reg_mr(other, 16, AccessFlags::NONE)
            .unwrap();
        let pd = link.pd[0];
        let fixed = link.devices[0].reg_mr(pd, 16, AccessFlags::NONE).unwrap();
        let gone = link.region(0, &[0; 16]);
        link.devices[0].dereg_mr(gone).unwrap();
        let write = WrOpcode::RdmaWrite(far.remote(0));
        let read = WrOpcode::RdmaRead(far.remote(0));
        let add = WrOpcode::AtomicFetchAndAdd {
            remote: far.remote(0),
            add: 1,
        };
        let bad = match case {
            0 => SendWr::new(2, write, near.sge(1, 16)),
            1 => SendWr::new(2, write, foreign.sge(0, 16)),
            2 => SendWr::new(2, WrOpcode::Send, gone.sge(0, 16)),
            3 => SendWr::new(2, read, fixed.sge(0, 16)),
            4 => SendWr::new(2, add, fixed.sge(0, 8)),
            5 => SendWr::new(
                2,
                write,
                Sge {
                    addr: near.addr - 1,
                    ..near.sge(0, 2)
                },
            ),
            6 => SendWr::new(
                2,
                write,
                Sge {
                    lkey: 4711,
                    ..near.sge(0, 2)
                },
            ),
            _ => SendWr {
                data: metaroce_endpoint::verbs::SendData::Sges(vec![
                    near.sge(0, 1),
                    gone.sge(0, 1),
                ]),
                ..SendWr::new(2, write, Sge::default())
            },
        };
        assert_eq!(
            around(&mut link, a, bad),
            ends_with(WcStatus::LocProtErr),
            "case {case}"
        );
        assert_eq!(link.bytes(1, far), [7; 16]);
    }
}

#[test]
fn a_region_that_goes_while_it_is_sent_is_a_protection_error() {
    for seed in 0..30 {
        let (mut link, a, b) = Link::plain(seed, 100);
        let data = bytes(seed, 400_000);
        let near = link.region(0, &data);
        let far = link.region(1, &vec![0; 400_000]);
        link.recv(1, b, 5, far.sge(0, 400_000));
        link.send(0, a, 1, WrOpcode::Send, near.sge(0, 400_000));
        for _ in 0..seed * 8 {
            link.step();
        }
        if link.devices[0].query_qp(a).unwrap().send_posted == 0 {
            continue;
        }
        link.devices[0].dereg_mr(near).unwrap();
        let done = link.completions(0, 1);
        assert_eq!(statuses(&done), [(1, WcStatus::LocProtErr)], "seed {seed}");
        let got = link.completions(1, 1)[0];
        // What the peer has been told is complete is the program's data, and not what stood in for it.
        let whole = got.status == WcStatus::Success && link.bytes(1, far) == data;
        assert!(
            whole || got.status == WcStatus::WrFlushErr,
            "seed {seed}: {got:?}"
        );
    }
}

#[test]
fn memory_of_an_answer_that_goes_is_a_protection_error() {
    let (mut link, a, _) = Link::plain(3, 0);
    let near = link.region(0, &[0; 16]);
    let far = link.region(1, &[7; 16]);
    link.send(0, a, 1, WrOpcode::RdmaRead(far.remote(0)), near.sge(0, 16));
    link.step();
    link.devices[0].dereg_mr(near).unwrap();
    assert_eq!(
        statuses(&link.completions(0, 1)),
        [(1, WcStatus::LocProtErr)]
    );
}

#[test]
fn a_receive_without_memory_is_a_protection_error_behind_those_before_it() {
    for open in [true, false] {
        let (mut link, _, open_qp) = Link::plain(4, 0);
        let to = link.region(1, &[0; 8]);
        let qp = if open {
            open_qp
        } else {
            let init = link.init(1);
            let qp = link.devices[1].create_qp(init).unwrap();
            link.devices[1].modify_qp(1000, qp, Modify::Init).unwrap();
            qp
        };
        let bad = Sge {
            length: 9,
            ..to.sge(0, 0)
        };
        link.recv(1, qp, 1, to.sge(0, 8));
        link.recv(1, qp, 2, bad);
        link.recv(1, qp, 3, to.sge(0, 8));
        let flushed = WcStatus::WrFlushErr;
        let expected = [(1, flushed), (2, WcStatus::LocProtErr), (3, flushed)];
        assert_eq!(statuses(&link.polled(1)), expected);
        assert_eq!(link.devices[1].query_qp(qp).unwrap().state, QpState::Err);
    }
    let mut link = Link::new(5, 0);
    let pd = link.pd[1];
    let srq = link.devices[1].create_srq(pd, 4).unwrap();
    let wr = RecvWr::new(
        1,
        Sge {
            length: 1,
            ..Sge::default()
        },
    );
    let error = link.devices[1].post_srq_recv(1000, srq, &[wr]).unwrap_err();
    assert!(matches!(error.error, Error::Invalid(_)));
}

#[test]
fn a_receive_whose_region_goes_refuses_the_message() {
    let (mut link, a, b) = Link::plain(6, 50);
    let to = link.region(1, &[0; 8]);
    link.recv(1, b, 11, to.sge(0, 8));
    link.devices[1].dereg_mr(to).unwrap();
    // VERB-002.
    let bad = SendWr::inline(2, WrOpcode::Send, b"x");
    assert_eq!(around(&mut link, a, bad), ends_with(WcStatus::RemOpErr));
    assert_eq!(statuses(&link.polled(1)), [(11, WcStatus::WrFlushErr)]);
}

#[test]
fn an_atomic_operation_off_its_place_fails_here() {
    for (offset, length) in [(1, 8), (4, 8), (0, 7), (0, 0)] {
        let (mut link, a, _) = Link::plain(7, 0);
        let near = link.region(0, &[0; 16]);
        let far = link.region(1, &[0; 16]);
        let add = WrOpcode::AtomicFetchAndAdd {
            remote: far.remote(offset),
            add: 1,
        };
        let bad = SendWr::new(2, add, near.sge(0, length));
        assert_eq!(around(&mut link, a, bad), ends_with(WcStatus::LocQpOpErr));
    }
}

#[test]
fn what_fails_here_waits_for_the_work_before_it_and_is_the_only_cause() {
    for seed in 0..10 {
        let (mut link, a, _) = Link::plain(seed, 100);
        let near = link.region(0, &vec![1; 50_000]);
        let far = link.region(1, &vec![0; 50_000]);
        let write = WrOpcode::RdmaWrite(far.remote(0));
        let good = |wr_id| SendWr::new(wr_id, write, near.sge(0, 50_000));
        let bad = SendWr::new(2, write, near.sge(1, 50_000));
        let now = link.now;
        let list = [good(1), bad, good(3), good(4)];
        link.devices[0].post_send(now, a, &list).unwrap();
        let done = statuses(&link.completions(0, 4));
        assert_eq!(done, ends_with(WcStatus::LocProtErr), "seed {seed}");
    }
}

#[test]
fn a_peer_without_receive_is_an_error_when_the_retries_are_used_up() {
    for loss in [0, 50] {
        let mut few = service(1);
        few.rnr_retries = 2;
        let (mut link, a, _) = Link::over(8, loss, few);
        let bad = SendWr::inline(2, WrOpcode::Send, b"x");
        assert_eq!(
            around(&mut link, a, bad),
            ends_with(WcStatus::RnrRetryExcErr)
        );
    }
}

#[test]
fn a_peer_without_receive_is_waited_for_without_limit() {
    let (mut link, a, b) = Link::plain(9, 50);
    link.send(0, a, 1, WrOpcode::Send, Sge::default());
    link.pass(5_000_000_000);
    assert_eq!(link.polled(0), []);
    link.recv(1, b, 1, Sge::default());
    assert_eq!(link.completions(0, 1)[0].status, WcStatus::Success);
}

/// Cuts the link under work of two queue pairs.
fn cut(asked: Service) -> (Link, [Qp; 2]) {
    let mut link = Link::new(10, 0);
    link.listen(asked);
    let (a, _) = link.pair(asked);
    let (other, _) = link.pair(asked);
    link.cut = true;
    let to = link.region(1, &[0; 8]);
    for (wr_id, qp) in [(1, other), (2, a), (3, other), (4, a)] {
        link.recv(0, qp, 10 + wr_id, Sge::default());
        let wr = SendWr::inline(wr_id, WrOpcode::RdmaWrite(to.remote(0)), b"x");
        let now = link.now;
        link.devices[0].post_send(now, qp, &[wr]).unwrap();
    }
    (link, [a, other])
}

#[test]
fn a_connection_that_fails_fails_its_oldest_work_and_flushes_the_rest() {
    let (mut link, qps) = cut(service(1));
    let done = link.completions(0, 8);
    let flushed = WcStatus::WrFlushErr;
    let mut expected = vec![(1, WcStatus::RetryExcErr)];
    expected.extend([2, 3, 4, 11, 12, 13, 14].map(|wr_id| (wr_id, flushed)));
    assert_eq!(statuses(&done), expected);
    for qp in qps {
        assert_eq!(link.devices[0].query_qp(qp).unwrap().state, QpState::Err);
        let status = WcStatus::RetryExcErr;
        let event = AsyncEvent::Disconnected { qp, status };
        assert_eq!(link.events[0].iter().filter(|e| **e == event).count(), 1);
    }
}

#[test]
fn a_peer_that_does_not_answer_fails_the_oldest_work_that_waits_for_it() {
    let mut link = Link::new(11, 0);
    let init = link.init(0);
    let qps = [0, 1].map(|_: u32| link.devices[0].create_qp(init).unwrap());
    let peer = link.addresses[1];
    for qp in qps {
        link.devices[0].connect(1000, qp, peer, service(1)).unwrap();
        link.recv(0, qp, 9, Sge::default());
        for wr_id in [1, 2] {
            link.send(0, qp, wr_id, WrOpcode::Send, Sge::default());
        }
    }
    let done = link.completions(0, 6);
    let flushed = WcStatus::WrFlushErr;
    let expected = [(1, WcStatus::RetryExcErr), (2, flushed), (9, flushed)];
    assert_eq!(statuses(&done[..3]), expected);
    assert_eq!(
        statuses(&done[3..]),
        [(1, flushed), (2, flushed), (9, flushed)]
    );
    assert_eq!(done[2].opcode, WcOpcode::Recv);
    let status = WcStatus::RetryExcErr;
    let gone = qps.map(|qp| AsyncEvent::Disconnected { qp, status });
    assert_eq!(link.events[0], gone);
}

#[test]
fn without_resets_an_error_ends_all_queue_pairs_of_the_connection() {
    let mut plain = service(1);
    plain.features = Features(plain.features.0 & !Features::RESET.0);
    let mut link = Link::new(12, 0);
    link.listen(plain);
    let (a, _) = link.pair(plain);
    let (other, _) = link.pair(plain);
    link.recv(0, other, 5, Sge::default());
    let bad = SendWr::inline(1, WrOpcode::RdmaWrite(Remote { va: 1, rkey: 1 }), b"x");
    let now = link.now;
    link.devices[0].post_send(now, a, &[bad]).unwrap();
    let done = link.completions(0, 2);
    assert_eq!(
        statuses(&done),
        [(1, WcStatus::RemAccessErr), (5, WcStatus::WrFlushErr)]
    );
    for qp in [a, other] {
        assert_eq!(link.devices[0].query_qp(qp).unwrap().state, QpState::Err);
    }
}

#[test]
fn an_error_of_one_queue_pair_leaves_the_others() {
    for seed in 0..10 {
        let (mut link, a, b) = Link::plain(seed, 80);
        let pairs: Vec<_> = (0..8).map(|_| link.pair(service(1))).collect();
        let to = link.region(1, &vec![0; 80_000]);
        let data = bytes(seed, 80_000);
        let from = link.region(0, &data);
        link.recv(1, b, 99, Sge::default());
        for (n, (qp, _)) in pairs.iter().enumerate() {
            let (offset, wr_id) = (n as u64 * 10_000, n as u64);
            let write = WrOpcode::RdmaWrite(to.remote(offset));
            link.send(0, *qp, wr_id, write, from.sge(offset, 10_000));
        }
        link.send(
            0,
            a,
            100,
            WrOpcode::RdmaWrite(to.remote(79_999)),
            from.sge(0, 2),
        );
        let mut done = statuses(&link.completions(0, 9));
        done.sort_unstable_by_key(|(wr_id, _)| *wr_id);
        let mut expected: Vec<_> = (0..8).map(|wr_id| (wr_id, WcStatus::Success)).collect();
        expected.push((100, WcStatus::RemAccessErr));
        assert_eq!(done, expected);
        assert!(link.bytes(1, to) == data);
        assert_eq!(
            statuses(&link.completions(1, 1)),
            [(99, WcStatus::WrFlushErr)]
        );
        for (qp, _) in pairs {
            assert_eq!(link.devices[0].query_qp(qp).unwrap().state, QpState::Rts);
        }
    }
}

#[test]
fn work_that_reaches_past_all_addresses_is_refused_whether_or_not_the_stream_is_open() {
    for open in [false, true] {
        let mut link = Link::new(13, 0);
        link.listen(service(1));
        let near = link.region(0, &[0; 8]);
        let to = link.region(1, &[0; 8]);
        let init = link.init(0);
        let qp = link.devices[0].create_qp(init).unwrap();
        let peer = link.addresses[1];
        link.devices[0].connect(1000, qp, peer, service(1)).unwrap();
        if open {
            link.run(|link| link.devices[0].query_qp(qp).unwrap().state == QpState::Rts);
        }
        let remote = |va| Remote { va, rkey: to.rkey };
        let atomic = WrOpcode::AtomicFetchAndAdd {
            remote: remote(u64::MAX - 7),
            add: 1,
        };
        let bad = [
            SendWr::inline(9, WrOpcode::RdmaWrite(remote(u64::MAX)), b"xy"),
            SendWr::inline(9, WrOpcode::RdmaWriteWithImm(remote(u64::MAX), 1), b"xy"),
            SendWr::new(9, WrOpcode::RdmaRead(remote(u64::MAX)), near.sge(0, 2)),
            SendWr::new(9, atomic, near.sge(0, 8)),
        ];
        let good = |wr_id| SendWr::inline(wr_id, WrOpcode::RdmaWrite(to.remote(0)), b"good");
        let now = link.now;
        for (wr_id, bad) in (0..).zip(bad) {
            let list = [good(wr_id), bad];
            let error = link.devices[0].post_send(now, qp, &list).unwrap_err();
            assert_eq!(error.index, 1);
            assert!(matches!(error.error, Error::Invalid(_)), "{error}");
        }
        // VERB-008: nothing has failed, and the queue pair goes on.
        let done = statuses(&link.completions(0, 4));
        assert_eq!(done, [0, 1, 2, 3].map(|wr_id| (wr_id, WcStatus::Success)));
        assert_eq!(link.devices[0].query_qp(qp).unwrap().state, QpState::Rts);
    }
}

/// VERB-008, STRM-028: what waits here while its connection is closed is flushed behind what is under way.
#[test]
fn work_that_waits_while_its_connection_is_closed_is_flushed_behind_what_is_under_way() {
    for (seed, peer_closes) in (0..10).flat_map(|seed| [(seed, false), (seed, true)]) {
        let (mut link, a, b) = Link::plain(seed, 50);
        let data = bytes(seed, 100_000);
        let from = link.region(0, &data);
        let to = link.region(1, &vec![0; 100_000]);
        let write = WrOpcode::RdmaWrite(to.remote(0));
        link.recv(0, a, 9, Sge::default());
        link.send(0, a, 1, write, from.sge(0, 100_000));
        let (now, place) = (link.now, link.devices[0].place_of(a).unwrap().unwrap());
        link.devices[0].modify_qp(now, a, Modify::Sqd).unwrap();
        link.send(0, a, 2, write, from.sge(0, 1));
        link.devices[0].close_connection(now, place.conn).unwrap();
        link.devices[0].modify_qp(now, a, Modify::Rts).unwrap();
        assert_eq!(link.polled(0), []);
        if peer_closes {
            let there = link.devices[1].place_of(b).unwrap().unwrap().conn;
            link.devices[1].close_connection(now, there).unwrap();
            // Its CLOSE is here, the acknowledgment of the first work not yet.
            link.pass(350_000);
            assert_eq!(link.polled(0), []);
        }
        link.send(0, a, 3, write, from.sge(0, 1));
        let flushed = WcStatus::WrFlushErr;
        let expected = [
            (1, WcStatus::Success),
            (2, flushed),
            (3, flushed),
            (9, flushed),
        ];
        assert_eq!(statuses(&link.completions(0, 4)), expected, "seed {seed}");
        assert!(link.bytes(1, to) == data);
        assert_eq!(link.devices[0].query_qp(a).unwrap().state, QpState::Err);
    }
}

#[test]
fn a_connection_that_is_being_closed_takes_no_work() {
    let (mut link, a, _) = Link::plain(14, 0);
    let to = link.region(1, &[0; 8]);
    let wr = |wr_id| SendWr::inline(wr_id, WrOpcode::RdmaWrite(to.remote(0)), b"x");
    let (now, place) = (link.now, link.devices[0].place_of(a).unwrap().unwrap());
    link.devices[0].post_send(now, a, &[wr(1)]).unwrap();
    link.devices[0].close_connection(now, place.conn).unwrap();
    let error = link.devices[0].post_send(now, a, &[wr(2)]).unwrap_err();
    assert_eq!(error.error, Error::Core(Misuse::Closing));
    let done = statuses(&link.completions(0, 1));
    assert_eq!(done, [(1, WcStatus::Success)]);
}
