//! Limits, things that are in use, and things that are not there.

use metaroce_endpoint::core::{Config, Misuse};
use metaroce_endpoint::verbs::{
    AccessFlags, AsyncEvent, Device, Error, Limits, Modify, PostError, RecvWr, SendWr, Sge,
    WrOpcode, service,
};

use crate::link::Link;

fn few() -> Limits {
    Limits {
        max_qp: 2,
        max_pd: 2,
        max_cq: 2,
        max_cqe: 16,
        max_srq: 1,
        max_srq_wr: 3,
        max_qp_wr: 4,
        max_sge: 2,
        max_inline_data: 64,
    }
}

fn device() -> Device {
    let config = Config {
        max_regions: 2,
        ..Config::new("192.0.2.1:4791".parse().unwrap())
    };
    Device::with_limits(config, few()).unwrap()
}

fn limited<T: std::fmt::Debug>(result: Result<T, Error>, expected: usize) {
    match result {
        Err(Error::Limit { limit, .. } | Error::Core(Misuse::Limit { limit, .. })) => {
            assert_eq!(limit, expected);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_limit_is_told_and_kept() {
    let mut device = device();
    let attr = device.query();
    assert_eq!((attr.limits, attr.max_mr, attr.max_recv_sge), (few(), 2, 1));
    let pd = device.alloc_pd().unwrap();
    device.alloc_pd().unwrap();
    limited(device.alloc_pd(), 2);
    limited(device.create_cq(17), 16);
    assert!(matches!(device.create_cq(0), Err(Error::Invalid(_))));
    let cq = device.create_cq(16).unwrap();
    device.create_cq(1).unwrap();
    limited(device.create_cq(1), 2);
    for _ in 0..2 {
        device.reg_mr(pd, 8, AccessFlags::NONE).unwrap();
    }
    limited(device.reg_mr(pd, 8, AccessFlags::NONE), 2);
    limited(device.create_srq(pd, 4), 3);
    let srq = device.create_srq(pd, 3).unwrap();
    limited(device.create_srq(pd, 1), 1);
    let receive = RecvWr {
        wr_id: 1,
        sg_list: vec![],
    };
    let posted = device.post_srq_recv(0, srq, &vec![receive; 4]);
    let PostError { index, error } = posted.unwrap_err();
    assert_eq!(index, 3);
    limited::<()>(Err(error), 3);
    let mut init = metaroce_endpoint::verbs::QpInit::new(pd, cq);
    limited(device.create_qp(init), 4);
    (init.cap.max_send_wr, init.cap.max_recv_wr) = (4, 4);
    limited(device.create_qp(init), 2);
    init.cap.max_send_sge = 2;
    limited(device.create_qp(init), 64);
    init.cap.max_inline_data = 64;
    device.create_qp(init).unwrap();
    device.create_qp(init).unwrap();
    limited(device.create_qp(init), 2);
}

#[test]
fn what_is_gone_gives_its_place_free() {
    let mut device = device();
    for _ in 0..5 {
        let pds = [0; 2].map(|_| device.alloc_pd().unwrap());
        let cqs = [0; 2].map(|_| device.create_cq(1).unwrap());
        let mr = device.reg_mr(pds[0], 1, AccessFlags::NONE).unwrap();
        let srq = device.create_srq(pds[0], 3).unwrap();
        device.destroy_srq(srq).unwrap();
        device.dereg_mr(mr).unwrap();
        pds.iter().for_each(|pd| device.dealloc_pd(*pd).unwrap());
        cqs.iter().for_each(|cq| device.destroy_cq(*cq).unwrap());
        let missing = |result| assert!(matches!(result, Err(Error::NotFound { .. })), "{result:?}");
        missing(device.destroy_srq(srq));
        missing(device.dereg_mr(mr));
        missing(device.dealloc_pd(pds[0]));
        missing(device.destroy_cq(cqs[0]));
        missing(device.bytes(mr).map(|_| ()));
        missing(device.bytes_mut(mr).map(|_| ()));
        missing(device.poll_cq(cqs[0], 1).map(|_| ()));
        missing(device.req_notify(cqs[0], false));
        missing(device.reg_mr(pds[0], 1, AccessFlags::NONE).map(|_| ()));
        missing(device.create_srq(pds[0], 1).map(|_| ()));
        let init = metaroce_endpoint::verbs::QpInit::new(pds[0], cqs[0]);
        missing(device.create_qp(init).map(|_| ()));
        missing(device.listen(init, service(1)));
    }
}

#[test]
fn what_is_in_use_stays() {
    let busy = |result: Result<(), Error>| assert!(matches!(result, Err(Error::InUse { .. })));
    let mut device = Device::new(Config::new("192.0.2.1:4791".parse().unwrap())).unwrap();
    let pd = device.alloc_pd().unwrap();
    let (cq, other) = (device.create_cq(4).unwrap(), device.create_cq(4).unwrap());
    let mr = device.reg_mr(pd, 8, AccessFlags::NONE).unwrap();
    busy(device.dealloc_pd(pd));
    device.dereg_mr(mr).unwrap();
    let srq = device.create_srq(pd, 4).unwrap();
    busy(device.dealloc_pd(pd));
    let mut init = metaroce_endpoint::verbs::QpInit::new(pd, cq);
    (init.recv_cq, init.srq) = (other, Some(srq));
    let qp = device.create_qp(init).unwrap();
    let all = |device: &mut Device| {
        busy(device.dealloc_pd(pd));
        busy(device.destroy_cq(cq));
        busy(device.destroy_cq(other));
        busy(device.destroy_srq(srq));
    };
    all(&mut device);
    device.destroy_qp(0, qp).unwrap();
    assert!(matches!(device.query_qp(qp), Err(Error::NotFound { .. })));
    device.listen(init, service(1)).unwrap();
    busy(device.listen(init, service(2)));
    all(&mut device);
    device.stop_listening();
    device.destroy_cq(cq).unwrap();
    device.destroy_cq(other).unwrap();
    device.destroy_srq(srq).unwrap();
    device.dealloc_pd(pd).unwrap();
}

#[test]
fn a_queue_pair_takes_as_much_as_it_was_made_for() {
    let mut link = Link::new(1, 0);
    link.listen(service(1));
    let mut init = link.init(0);
    (init.cap.max_send_wr, init.cap.max_recv_wr) = (3, 2);
    let (a, _) = link.pair_of(init, service(1));
    let send = |wr_id| SendWr::inline(wr_id, WrOpcode::Send, b"");
    let now = link.now;
    let list: Vec<_> = (0..4).map(send).collect();
    let PostError { index, error } = link.devices[0].post_send(now, a, &list).unwrap_err();
    assert_eq!(index, 3);
    limited::<()>(Err(error), 3);
    let list: Vec<_> = (0..3)
        .map(|wr_id| RecvWr {
            wr_id,
            sg_list: vec![],
        })
        .collect();
    let PostError { index, error } = link.devices[0].post_recv(now, a, &list).unwrap_err();
    assert_eq!(index, 2);
    limited::<()>(Err(error), 2);
    // The same before it has a stream.
    let qp = link.devices[0].create_qp(init).unwrap();
    link.devices[0].modify_qp(now, qp, Modify::Init).unwrap();
    let PostError { index, .. } = link.devices[0].post_recv(now, qp, &list).unwrap_err();
    assert_eq!(index, 2);
}

#[test]
fn a_region_that_others_change_has_to_be_writable() {
    let mut device = device();
    let pd = device.alloc_pd().unwrap();
    for access in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC] {
        assert!(matches!(
            device.reg_mr(pd, 8, access),
            Err(Error::Invalid(_))
        ));
        let both = access | AccessFlags::LOCAL_WRITE;
        assert!(device.reg_mr(pd, 8, both).is_ok());
    }
}

#[test]
fn a_destroyed_queue_pair_has_flushed_its_work_and_takes_none() {
    let (mut link, a, b) = Link::plain(2, 0);
    link.send(0, a, 1, WrOpcode::Send, Sge::default());
    link.recv(0, a, 2, Sge::default());
    let now = link.now;
    link.devices[0].destroy_qp(now, a).unwrap();
    let seen: Vec<_> = link.polled(0).iter().map(|wc| wc.wr_id).collect();
    assert_eq!(seen, [1, 2]);
    let wr = SendWr::inline(1, WrOpcode::Send, b"");
    let error = link.devices[0].post_send(now, a, &[wr]).unwrap_err().error;
    assert!(matches!(error, Error::NotFound { .. }));
    let gone = |e: &AsyncEvent| matches!(e, AsyncEvent::Disconnected { qp, .. } if *qp == b);
    link.run(|link| link.events[1].iter().any(gone));
}
