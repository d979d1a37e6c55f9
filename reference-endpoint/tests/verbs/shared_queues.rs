//! Shared receive queues.

use metaroce_endpoint::verbs::{
    AsyncEvent, Error, Modify, Qp, RecvWr, SendWr, Sge, Srq, Wc, WcStatus, WrOpcode, service,
};

use crate::link::{Link, bytes};

/// Device 1 offers a service whose queue pairs share a queue.
fn shared(seed: u64, loss: u32, pairs: usize) -> (Link, Srq, Vec<(Qp, Qp)>) {
    let mut link = Link::new(seed, loss);
    let pd = link.pd[1];
    let srq = link.devices[1].create_srq(pd, 1000).unwrap();
    let mut template = link.init(1);
    template.srq = Some(srq);
    link.devices[1].listen(template, service(1)).unwrap();
    let pairs = (0..pairs).map(|_| link.pair(service(1))).collect();
    (link, srq, pairs)
}

fn post(link: &mut Link, srq: Srq, wr_id: u64, sge: Sge) {
    let now = link.now;
    link.devices[1]
        .post_srq_recv(now, srq, &[RecvWr::new(wr_id, sge)])
        .unwrap();
}

#[test]
fn queue_pairs_share_the_receives_and_each_message_has_one() {
    for seed in 0..8 {
        let (mut link, srq, pairs) = shared(seed, seed as u32 * 20, 4);
        let to = link.region(1, &vec![0; 40 * 3000]);
        let data = bytes(seed, 40 * 3000);
        let from = link.region(0, &data);
        for n in 0..40 {
            post(&mut link, srq, n, to.sge(n * 3000, 3000));
        }
        for n in 0..40 {
            let (a, _) = pairs[n as usize % 4];
            link.send(
                0,
                a,
                n,
                WrOpcode::SendWithImm(n as u32),
                from.sge(n * 3000, 3000),
            );
        }
        let mut got: Vec<Wc> = link.completions(1, 40);
        for wc in &got {
            let n = wc.imm_data.unwrap() as usize;
            assert_eq!((wc.status, wc.qp), (WcStatus::Success, pairs[n % 4].1));
            let place = wc.wr_id as usize * 3000;
            assert!(link.bytes(1, to)[place..place + 3000] == data[n * 3000..n * 3000 + 3000]);
        }
        for (_, b) in &pairs {
            let of: Vec<_> = got
                .iter()
                .filter(|wc| wc.qp == *b)
                .map(|wc| wc.imm_data)
                .collect();
            assert!(of.is_sorted(), "in the order of their stream");
        }
        got.sort_by_key(|wc| wc.wr_id);
        assert!(got.iter().map(|wc| wc.wr_id).eq(0..40), "each receive once");
    }
}

#[test]
fn an_error_of_one_gives_the_receives_to_the_others() {
    let (mut link, srq, pairs) = shared(1, 50, 2);
    for wr_id in 0..2 {
        post(&mut link, srq, wr_id, Sge::default());
    }
    let now = link.now;
    link.devices[1]
        .modify_qp(now, pairs[0].1, Modify::Err)
        .unwrap();
    assert_eq!(
        link.polled(1),
        [],
        "receives that no message has are not flushed"
    );
    for wr_id in 0..2 {
        link.send(0, pairs[1].0, wr_id, WrOpcode::Send, Sge::default());
    }
    let got = link.completions(1, 2);
    assert!(
        got.iter()
            .all(|wc| wc.status == WcStatus::Success && wc.qp == pairs[1].1)
    );
}

#[test]
fn a_message_too_long_fails_the_receive_that_it_took() {
    let (mut link, srq, pairs) = shared(2, 0, 1);
    let to = link.region(1, &[0; 8]);
    post(&mut link, srq, 1, to.sge(0, 2));
    post(&mut link, srq, 2, to.sge(2, 2));
    let wr = SendWr::inline(1, WrOpcode::Send, b"long");
    let now = link.now;
    link.devices[0].post_send(now, pairs[0].0, &[wr]).unwrap();
    let got = link.completions(1, 1)[0];
    assert_eq!((got.wr_id, got.status), (1, WcStatus::LocLenErr));
    assert_eq!(link.completions(0, 1)[0].status, WcStatus::RemInvReqErr);
    assert_eq!(link.polled(1), []);
}

#[test]
fn the_own_queue_of_such_a_queue_pair_takes_nothing() {
    let (mut link, _, pairs) = shared(3, 0, 1);
    let now = link.now;
    let wr = RecvWr::new(1, Sge::default());
    let error = link.devices[1]
        .post_recv(now, pairs[0].1, &[wr])
        .unwrap_err();
    assert!(matches!(error.error, Error::Invalid(_)));
}

#[test]
fn a_queue_that_runs_low_is_told_of_once() {
    let (mut link, srq, pairs) = shared(4, 0, 1);
    for wr_id in 0..4 {
        post(&mut link, srq, wr_id, Sge::default());
    }
    link.devices[1].set_srq_limit(srq, 3).unwrap();
    let event = AsyncEvent::SrqLimitReached { srq };
    for (n, count) in [(0, 0), (1, 1), (2, 1)] {
        link.send(0, pairs[0].0, n, WrOpcode::Send, Sge::default());
        link.completions(1, 1);
        link.drain();
        assert_eq!(
            link.events[1].iter().filter(|e| **e == event).count(),
            count
        );
    }
}

#[test]
fn a_queue_goes_when_its_queue_pairs_have_gone() {
    let (mut link, srq, pairs) = shared(5, 0, 2);
    post(&mut link, srq, 1, Sge::default());
    link.devices[1].stop_listening();
    for (_, b) in pairs {
        assert!(matches!(
            link.devices[1].destroy_srq(srq),
            Err(Error::InUse { .. })
        ));
        let now = link.now;
        link.devices[1].destroy_qp(now, b).unwrap();
    }
    link.devices[1].destroy_srq(srq).unwrap();
}

#[test]
fn a_limit_above_what_is_there_is_told_at_once() {
    let (mut link, srq, _) = shared(6, 0, 1);
    let event = Some(AsyncEvent::SrqLimitReached { srq });
    for wr_id in 0..3 {
        post(&mut link, srq, wr_id, Sge::default());
    }
    for (limit, told) in [(3, None), (0, None), (4, event), (9, event)] {
        link.devices[1].set_srq_limit(srq, limit).unwrap();
        assert_eq!(link.devices[1].poll_event(), told, "{limit}");
        assert_eq!(link.devices[1].poll_event(), None, "once");
    }
}

/// A program that takes a queue pair off a shared queue has to know when it takes no receive any more.
#[test]
fn a_queue_pair_in_err_says_that_it_leaves_the_shared_queue_alone() {
    let last = |link: &mut Link, of: Qp| {
        link.drain();
        let event = AsyncEvent::LastWqeReached { qp: of };
        link.events[1].iter().filter(|e| **e == event).count()
    };
    // By the program, by the peer, with the connection; and not where it goes to RESET or has a queue of its own.
    let (mut link, srq, pairs) = shared(7, 0, 5);
    post(&mut link, srq, 1, Sge::default());
    let [(_, b0), (a1, b1), (_, b2), (_, b3), (_, b4)] = pairs[..] else {
        panic!("five pairs");
    };
    let now = link.now;
    link.devices[1].modify_qp(now, b0, Modify::Err).unwrap();
    assert_eq!(last(&mut link, b0), 1);
    link.devices[1].modify_qp(now, b0, Modify::Err).unwrap();
    assert_eq!(last(&mut link, b0), 1, "once");
    link.devices[0].modify_qp(now, a1, Modify::Err).unwrap();
    link.run(|link| last(link, b1) == 1);
    link.devices[1].modify_qp(now, b2, Modify::Reset).unwrap();
    link.devices[1].destroy_qp(now, b3).unwrap();
    let conn = link.devices[1].place_of(b4).unwrap().unwrap().conn;
    link.devices[1].abort_connection(now, conn).unwrap();
    assert_eq!(last(&mut link, b4), 1);
    assert_eq!([last(&mut link, b2), last(&mut link, b3)], [0, 0]);
    assert_eq!(link.polled(1), [], "the receive is still the queue's");
    let (mut link, _, b) = Link::plain(8, 0);
    let now = link.now;
    link.devices[1].modify_qp(now, b, Modify::Err).unwrap();
    assert_eq!(last(&mut link, b), 0);
}
