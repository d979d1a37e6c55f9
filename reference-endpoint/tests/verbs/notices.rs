//! Notifications of completion queues, and what happens when one overruns.

use metaroce_endpoint::verbs::{
    AsyncEvent, Error, Modify, QpInit, QpState, SendFlags, SendWr, Sge, WcStatus, WrOpcode, service,
};

use crate::link::Link;

fn notified(link: &mut Link, end: usize) -> usize {
    let mut count = 0;
    while let Some(cq) = link.devices[end].next_notification() {
        assert_eq!(cq, link.cq[end]);
        count += 1;
    }
    count
}

#[test]
fn one_notification_comes_for_each_time_it_is_asked_for() {
    let (mut link, a, _) = Link::plain(1, 0);
    let to = link.region(1, &[0; 8]);
    let cq = link.cq[0];
    let work = |link: &mut Link| {
        let wr = SendWr::inline(1, WrOpcode::RdmaWrite(to.remote(0)), b"x");
        let now = link.now;
        link.devices[0]
            .post_send(now, a, &[wr.clone(), wr])
            .unwrap();
        link.completions(0, 2);
    };
    work(&mut link);
    assert_eq!(notified(&mut link, 0), 0, "nobody has asked");
    link.devices[0].req_notify(cq, false).unwrap();
    assert_eq!(notified(&mut link, 0), 0, "what came before does not count");
    work(&mut link);
    assert_eq!(notified(&mut link, 0), 1);
    work(&mut link);
    assert_eq!(notified(&mut link, 0), 0);
}

#[test]
fn a_solicited_notification_waits_for_a_solicited_message_or_an_error() {
    for loss in [0, 100] {
        let (mut link, a, b) = Link::plain(2, loss);
        let to = link.region(1, &[0; 8]);
        let cq = link.cq[1];
        for n in 0..5 {
            link.recv(1, b, n, Sge::default());
        }
        link.devices[1].req_notify(cq, true).unwrap();
        let solicited = SendFlags::SIGNALED | SendFlags::SOLICITED;
        let imm = WrOpcode::RdmaWriteWithImm(to.remote(0), 1);
        let send = |link: &mut Link, opcode, flags| {
            let now = link.now;
            let wr = SendWr::new(1, opcode, Sge::default()).with(flags);
            link.devices[0].post_send(now, a, &[wr]).unwrap();
            link.completions(1, 1);
        };
        send(&mut link, WrOpcode::Send, SendFlags::SIGNALED);
        send(&mut link, imm, SendFlags::SIGNALED);
        assert_eq!(notified(&mut link, 1), 0);
        // VERB-010.
        send(&mut link, WrOpcode::SendWithImm(1), solicited);
        assert_eq!(notified(&mut link, 1), 1);
        link.devices[1].req_notify(cq, true).unwrap();
        send(&mut link, imm, solicited);
        assert_eq!(notified(&mut link, 1), 1);
        link.devices[1].req_notify(cq, true).unwrap();
        let now = link.now;
        let beyond = SendWr::inline(2, WrOpcode::RdmaWrite(to.remote(8)), b"x");
        link.devices[0].post_send(now, a, &[beyond]).unwrap();
        assert_eq!(link.completions(1, 1)[0].status, WcStatus::WrFlushErr);
        assert_eq!(notified(&mut link, 1), 1);
    }
}

#[test]
fn whoever_waits_for_any_completion_is_not_put_off() {
    let (mut link, a, b) = Link::plain(3, 0);
    let cq = link.cq[1];
    link.recv(1, b, 1, Sge::default());
    link.devices[1].req_notify(cq, false).unwrap();
    link.devices[1].req_notify(cq, true).unwrap();
    link.send(0, a, 1, WrOpcode::Send, Sge::default());
    link.completions(1, 1);
    assert_eq!(notified(&mut link, 1), 1);
}

#[test]
fn a_queue_that_overruns_says_so_and_stops_its_queue_pairs() {
    let mut link = Link::new(4, 0);
    link.listen(service(1));
    let small = link.devices[0].create_cq(2).unwrap();
    let mut init = link.init(0);
    init.send_cq = small;
    let (a, b) = link.pair_of(init, service(1));
    let (other, _) = link.pair(service(1));
    link.recv(0, a, 7, Sge::default());
    let to = link.region(1, &[0; 8]);
    let wr = |wr_id| SendWr::inline(wr_id, WrOpcode::RdmaWrite(to.remote(0)), b"x");
    let now = link.now;
    let list: Vec<_> = (0..5).map(wr).collect();
    link.devices[0].post_send(now, a, &list).unwrap();
    let event = AsyncEvent::CqError { cq: small };
    link.run(|link| link.events[0].contains(&event));
    let state = |link: &Link, qp| link.devices[0].query_qp(qp).unwrap().state;
    assert_eq!(state(&link, a), QpState::Err);
    assert_eq!(state(&link, other), QpState::Rts);
    let status = WcStatus::WrFlushErr;
    assert!(link.events[0].contains(&AsyncEvent::Disconnected { qp: a, status }));
    // What came before the loss is there, and the other queue is whole.
    let first: Vec<_> = link
        .completions_of(0, small, 2)
        .iter()
        .map(|wc| wc.wr_id)
        .collect();
    assert_eq!(first, [0, 1]);
    assert_eq!(
        link.devices[0].poll_cq(small, 1),
        Err(Error::Overrun(small.number()))
    );
    let flushed = link.polled(0);
    assert_eq!(
        (flushed[0].wr_id, flushed[0].status, flushed.len()),
        (7, status, 1)
    );
    link.run(|link| link.events[1].contains(&AsyncEvent::Disconnected { qp: b, status }));
}

/// VERB-006: a queue that has overrun would swallow every completion, so nothing begins there any more.
#[test]
fn nothing_begins_on_a_queue_that_has_overrun() {
    let mut link = Link::new(5, 0);
    link.listen(service(1));
    let small = link.devices[0].create_cq(1).unwrap();
    let mut init = link.init(0);
    init.send_cq = small;
    let (a, _) = link.pair_of(init, service(1));
    let idle = link.devices[0].create_qp(init).unwrap();
    let to = link.region(1, &[0; 8]);
    let wr = SendWr::inline(1, WrOpcode::RdmaWrite(to.remote(0)), b"x");
    let now = link.now;
    link.devices[0]
        .post_send(now, a, &[wr.clone(), wr])
        .unwrap();
    let event = AsyncEvent::CqError { cq: small };
    link.run(|link| link.events[0].contains(&event));
    let overrun = Err(Error::Overrun(small.number()));
    assert_eq!(link.devices[0].req_notify(small, false), overrun);
    assert_eq!(
        link.devices[0].create_qp(init).map(|_| ()),
        overrun,
        "for work"
    );
    let receives = QpInit {
        send_cq: link.cq[0],
        recv_cq: small,
        ..init
    };
    assert_eq!(
        link.devices[0].create_qp(receives).map(|_| ()),
        overrun,
        "for receives"
    );
    assert_eq!(link.devices[0].listen(init, service(2)), overrun);
    // The one that was there goes to RESET, and no further; nor does one that has never left it.
    let (now, peer) = (link.now, link.addresses[1]);
    link.devices[0].modify_qp(now, a, Modify::Reset).unwrap();
    for qp in [a, idle] {
        assert_eq!(link.devices[0].connect(now, qp, peer, service(1)), overrun);
        assert_eq!(link.devices[0].modify_qp(now, qp, Modify::Init), overrun);
        assert_eq!(link.devices[0].query_qp(qp).unwrap().state, QpState::Reset);
        link.devices[0].destroy_qp(now, qp).unwrap();
    }
    link.devices[0].destroy_cq(small).unwrap();
}

#[test]
fn a_listener_whose_queue_has_overrun_accepts_nothing() {
    let mut link = Link::new(6, 0);
    let small = link.devices[1].create_cq(1).unwrap();
    let mut template = link.init(1);
    template.recv_cq = small;
    link.devices[1].listen(template, service(1)).unwrap();
    let (_, b) = link.pair(service(1));
    let now = link.now;
    for wr_id in 0..2 {
        link.recv(1, b, wr_id, Sge::default());
    }
    link.devices[1].modify_qp(now, b, Modify::Err).unwrap();
    link.drain();
    assert!(link.events[1].contains(&AsyncEvent::CqError { cq: small }));
    let init = link.init(0);
    let qp = link.devices[0].create_qp(init).unwrap();
    let (now, peer) = (link.now, link.addresses[1]);
    link.devices[0].connect(now, qp, peer, service(1)).unwrap();
    let gone = |e: &AsyncEvent| matches!(e, AsyncEvent::Disconnected { qp: of, .. } if *of == qp);
    link.run(|link| link.events[0].iter().any(gone));
    assert_eq!(link.accepted(1), [b]);
}
