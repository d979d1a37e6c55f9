//! Every operation, with what it completes at both sides.

use metaroce_endpoint::core::Features;
use metaroce_endpoint::verbs::{
    AccessFlags, Error, RecvWr, SendData, SendFlags, SendWr, Sge, WcOpcode, WcStatus, WrOpcode,
    service,
};

use crate::link::{Link, bytes};

#[test]
fn sends_in_all_kinds_fill_receives_in_order() {
    for (seed, loss) in [(1, 0), (2, 50), (3, 150)] {
        let (mut link, a, b) = Link::plain(seed, loss);
        let data = bytes(seed, 30_000);
        let from = link.region(0, &data);
        let to = link.region(1, &vec![0; 90_010]);
        let key = link.region(1, &[0; 8]);
        for n in 0..3 {
            link.recv(1, b, 10 + n, to.sge(n * 30_000, 30_010));
        }
        link.send(0, a, 1, WrOpcode::Send, from.sge(0, 30_000));
        link.send(0, a, 2, WrOpcode::SendWithImm(0xfeed), from.sge(5, 100));
        link.send(0, a, 3, WrOpcode::SendWithInv(key.rkey), from.sge(0, 0));
        let sent = link.completions(0, 3);
        let seen: Vec<_> = sent
            .iter()
            .map(|wc| (wc.wr_id, wc.status, wc.opcode))
            .collect();
        let done = |wr_id| (wr_id, WcStatus::Success, WcOpcode::Send);
        assert_eq!(seen, [done(1), done(2), done(3)]);
        assert!(sent.iter().all(|wc| wc.qp == a));
        let got = link.completions(1, 3);
        let seen: Vec<_> = got
            .iter()
            .map(|wc| (wc.wr_id, wc.byte_len, wc.imm_data, wc.invalidated_rkey))
            .collect();
        let inv = (12, 0, None, Some(key.rkey));
        assert_eq!(
            seen,
            [(10, 30_000, None, None), (11, 100, Some(0xfeed), None), inv]
        );
        assert!(
            got.iter()
                .all(|wc| wc.opcode == WcOpcode::Recv && wc.qp == b)
        );
        assert!(link.bytes(1, to)[..30_000] == data);
        assert_eq!(link.bytes(1, to)[30_000..30_100], data[5..105]);
        // The key opens nothing any more.
        link.send(0, a, 4, WrOpcode::RdmaWrite(key.remote(0)), from.sge(0, 8));
        assert_eq!(link.completions(0, 1)[0].status, WcStatus::RemAccessErr);
        assert_eq!(link.bytes(1, key), [0; 8]);
    }
}

#[test]
fn writes_and_reads_move_exactly_their_bytes() {
    for (seed, loss) in [(4, 0), (5, 100)] {
        let (mut link, a, b) = Link::plain(seed, loss);
        let data = bytes(seed, 70_001);
        let from = link.region(0, &data);
        let to = link.region(1, &vec![0xee; 70_021]);
        let back = link.region(0, &vec![0xdd; 70_021]);
        link.recv(1, b, 20, Sge::default());
        let write = WrOpcode::RdmaWrite(to.remote(10));
        link.send(0, a, 1, write, from.sge(0, 70_001));
        let imm = WrOpcode::RdmaWriteWithImm(to.remote(20), 7);
        link.send(0, a, 2, imm, from.sge(0, 1));
        link.send(
            0,
            a,
            3,
            WrOpcode::RdmaRead(to.remote(10)),
            back.sge(10, 70_001),
        );
        let opcodes: Vec<_> = link
            .completions(0, 3)
            .iter()
            .map(|wc| (wc.opcode, wc.status))
            .collect();
        let ok = WcStatus::Success;
        let expected = [WcOpcode::RdmaWrite, WcOpcode::RdmaWrite, WcOpcode::RdmaRead];
        assert_eq!(opcodes, expected.map(|opcode| (opcode, ok)));
        let got = link.completions(1, 1)[0];
        // VERB-009.
        assert_eq!(got.opcode, WcOpcode::RecvRdmaWithImm);
        assert_eq!((got.wr_id, got.imm_data, got.byte_len), (20, Some(7), 1));
        let mut changed = data.clone();
        changed[10] = data[0];
        let framed = |fill| [&[fill; 10][..], &changed, &[fill; 10]].concat();
        assert!(link.bytes(1, to) == framed(0xee));
        assert!(link.bytes(0, back) == framed(0xdd));
        // A Write alone shows nothing at the other side.
        assert_eq!(link.polled(1), []);
    }
}

#[test]
fn atomic_operations_run_once_and_return_what_was_there() {
    let (mut link, a, _) = Link::plain(6, 200);
    let cell = link.region(1, &[5u64.to_ne_bytes(), [0; 8]].concat());
    let answers = link.region(0, &[0; 24]);
    let remote = cell.remote(0);
    let add = WrOpcode::AtomicFetchAndAdd { remote, add: 3 };
    let swap = |compare, swap| WrOpcode::AtomicCmpAndSwp {
        remote,
        compare,
        swap,
    };
    link.send(0, a, 1, add, answers.sge(0, 8));
    link.send(0, a, 2, swap(8, 100), answers.sge(8, 8));
    link.send(0, a, 3, swap(8, 200), answers.sge(16, 8));
    let done = link.completions(0, 3);
    let opcodes: Vec<_> = done.iter().map(|wc| wc.opcode).collect();
    assert_eq!(
        opcodes,
        [WcOpcode::FetchAdd, WcOpcode::CompSwap, WcOpcode::CompSwap]
    );
    let expected = [5u64, 8, 100].map(u64::to_ne_bytes).concat();
    assert_eq!(link.bytes(0, answers), expected);
    assert_eq!(link.bytes(1, cell)[..8], 100u64.to_ne_bytes());
}

#[test]
fn several_entries_are_put_together_when_they_are_posted() {
    let (mut link, a, b) = Link::plain(7, 0);
    let from = link.region(0, b"abcdefghij");
    let to = link.region(1, &[0; 10]);
    link.recv(1, b, 1, to.sge(0, 10));
    let wr = SendWr {
        data: SendData::Sges(vec![from.sge(8, 2), from.sge(0, 0), from.sge(1, 3)]),
        ..SendWr::new(1, WrOpcode::Send, Sge::default())
    };
    let now = link.now;
    link.devices[0]
        .post_send(now, a, std::slice::from_ref(&wr))
        .unwrap();
    link.devices[0].bytes_mut(from).unwrap().fill(0);
    assert_eq!(link.completions(1, 1)[0].byte_len, 5);
    assert_eq!(link.bytes(1, to)[..5], *b"ijbcd");
    // Too many, and more than one where an answer or a message is placed.
    let refused = |link: &mut Link, wr: SendWr| {
        let error = link.devices[0].post_send(now, a, &[wr]).unwrap_err();
        assert!(matches!(error.error, Error::Invalid(_)), "{error}");
    };
    let many = SendData::Sges(vec![from.sge(0, 1); 5]);
    refused(
        &mut link,
        SendWr {
            data: many,
            ..wr.clone()
        },
    );
    let read = WrOpcode::RdmaRead(to.remote(0));
    refused(&mut link, SendWr { opcode: read, ..wr });
    let two = RecvWr {
        wr_id: 1,
        sg_list: vec![to.sge(0, 1), to.sge(1, 1)],
    };
    let error = link.devices[1].post_recv(now, b, &[two]).unwrap_err();
    assert!(matches!(error.error, Error::Invalid(_)));
}

#[test]
fn inline_bytes_are_taken_when_they_are_posted() {
    let (mut link, a, b) = Link::plain(8, 0);
    let from = link.region(0, b"from a region");
    let to = link.region(1, &[0; 40]);
    link.recv(1, b, 1, to.sge(0, 20));
    link.recv(1, b, 2, to.sge(20, 20));
    let now = link.now;
    let inline = SendFlags::INLINE | SendFlags::SIGNALED;
    let list = [
        SendWr::inline(1, WrOpcode::Send, b"without region"),
        SendWr::new(2, WrOpcode::Send, from.sge(0, 13)).with(inline),
    ];
    link.devices[0].post_send(now, a, &list).unwrap();
    link.devices[0].dereg_mr(from).unwrap();
    assert!(
        link.completions(0, 2)
            .iter()
            .all(|wc| wc.status == WcStatus::Success)
    );
    link.completions(1, 2);
    assert_eq!(link.bytes(1, to)[..14], *b"without region");
    assert_eq!(link.bytes(1, to)[20..33], *b"from a region");
    let answers = link.region(0, &[0; 300]);
    for wr in [
        SendWr::inline(3, WrOpcode::Send, &[0; 257]),
        SendWr::new(3, WrOpcode::Send, answers.sge(0, 257)).with(inline),
        SendWr::new(3, WrOpcode::RdmaRead(to.remote(0)), answers.sge(0, 8)).with(inline),
    ] {
        let now = link.now;
        let list = [
            SendWr::inline(9, WrOpcode::RdmaWrite(to.remote(0)), b"x"),
            wr,
        ];
        let error = link.devices[0].post_send(now, a, &list).unwrap_err();
        assert_eq!(error.index, 1, "what stands before it is posted");
        assert!(matches!(error.error, Error::Invalid(_)), "{error}");
        assert_eq!(link.completions(0, 1)[0].wr_id, 9);
    }
}

#[test]
fn unsignalled_work_is_silent_when_it_succeeds() {
    let (mut link, a, _) = Link::plain(9, 50);
    let from = link.region(0, &[1; 8]);
    let to = link.region(1, &[0; 8]);
    let write = WrOpcode::RdmaWrite(to.remote(0));
    let quiet = |wr_id| SendWr::new(wr_id, write, from.sge(0, 8)).with(SendFlags::NONE);
    let now = link.now;
    let list = [
        quiet(1),
        quiet(2),
        SendWr::new(3, write, from.sge(0, 8)),
        quiet(4),
    ];
    link.devices[0].post_send(now, a, &list).unwrap();
    link.run(|link| link.devices[0].query_qp(a).unwrap().send_posted == 0);
    let seen: Vec<u64> = link.polled(0).iter().map(|wc| wc.wr_id).collect();
    assert_eq!(seen, [3]);
    // VERB-006: a failure is told all the same.
    let beyond = WrOpcode::RdmaWrite(to.remote(1));
    let now = link.now;
    let bad = SendWr::new(5, beyond, from.sge(0, 8)).with(SendFlags::NONE);
    link.devices[0].post_send(now, a, &[bad, quiet(6)]).unwrap();
    let seen: Vec<_> = link
        .completions(0, 2)
        .iter()
        .map(|wc| (wc.wr_id, wc.status))
        .collect();
    assert_eq!(
        seen,
        [(5, WcStatus::RemAccessErr), (6, WcStatus::WrFlushErr)]
    );
}

#[test]
fn all_work_of_a_queue_pair_can_be_signalled() {
    let mut link = Link::new(10, 0);
    link.listen(service(1));
    let mut init = link.init(0);
    init.sq_sig_all = true;
    let (a, _) = link.pair_of(init, service(1));
    let to = link.region(1, &[0; 8]);
    let write = WrOpcode::RdmaWrite(to.remote(0));
    let wr = SendWr::inline(1, write, b"x").with(SendFlags::NONE);
    let now = link.now;
    link.devices[0].post_send(now, a, &[wr]).unwrap();
    assert_eq!(link.completions(0, 1)[0].wr_id, 1);
}

#[test]
fn a_fence_waits_for_the_reads_before_it() {
    for seed in 0..20 {
        let (mut link, a, b) = Link::plain(seed, 100);
        let data = bytes(seed, 50_000);
        let far = link.region(1, &data);
        let near = link.region(0, &vec![0; 50_000]);
        let sink = link.region(1, &vec![0; 50_000]);
        link.recv(1, b, 9, sink.sge(0, 50_000));
        let read = SendWr::new(1, WrOpcode::RdmaRead(far.remote(0)), near.sge(0, 50_000));
        let flags = SendFlags::SIGNALED | SendFlags::FENCE;
        let send = SendWr::new(2, WrOpcode::Send, near.sge(0, 50_000)).with(flags);
        let now = link.now;
        link.devices[0].post_send(now, a, &[read, send]).unwrap();
        link.completions(1, 1);
        assert!(
            link.bytes(1, sink) == data,
            "seed {seed}: it was sent before it was read"
        );
    }
}

#[test]
fn reads_under_way_are_bounded_per_queue_pair() {
    let mut link = Link::new(11, 0);
    link.listen(service(1));
    let mut init = link.init(0);
    init.max_rd_atomic = 1;
    let (a, _) = link.pair_of(init, service(1));
    let far = link.region(1, &bytes(1, 8));
    let near = link.region(0, &[0; 32]);
    let began = link.now;
    for n in 0..4 {
        link.send(
            0,
            a,
            n,
            WrOpcode::RdmaRead(far.remote(0)),
            near.sge(n * 8, 8),
        );
    }
    link.completions(0, 4);
    // One at a time: four round trips.
    assert!(link.now - began >= 4 * 2 * 200_000);
    assert_eq!(link.bytes(0, near), link.bytes(1, far).repeat(4));
    let mut init = link.init(0);
    init.max_rd_atomic = 0;
    let (none, _) = link.pair_of(init, service(1));
    link.send(
        0,
        none,
        1,
        WrOpcode::RdmaRead(far.remote(0)),
        near.sge(0, 8),
    );
    assert_eq!(link.completions(0, 1)[0].status, WcStatus::LocQpOpErr);
}

#[test]
fn operations_that_were_not_agreed_fail_here() {
    let mut poor = service(1);
    (poor.read_depth, poor.atomic_depth) = (0, 0);
    poor.features = Features::RESET;
    let remote_of = |link: &mut Link| link.region(1, &[0; 8]).remote(0);
    let opcodes: [fn(metaroce_endpoint::core::Remote) -> WrOpcode; 6] = [
        |_| WrOpcode::SendWithImm(1),
        |remote| WrOpcode::SendWithInv(remote.rkey),
        |remote| WrOpcode::RdmaWriteWithImm(remote, 1),
        WrOpcode::RdmaRead,
        |remote| WrOpcode::AtomicFetchAndAdd { remote, add: 1 },
        |remote| WrOpcode::AtomicCmpAndSwp {
            remote,
            compare: 0,
            swap: 1,
        },
    ];
    let mut link = Link::new(12, 0);
    link.listen(poor);
    let near = link.region(0, &[0; 8]);
    for opcode in opcodes {
        let (a, _) = link.pair(poor);
        let remote = remote_of(&mut link);
        link.send(0, a, 1, opcode(remote), near.sge(0, 8));
        link.send(0, a, 2, WrOpcode::RdmaWrite(remote), near.sge(0, 8));
        let done = link.completions(0, 2);
        let statuses = [done[0].status, done[1].status];
        assert_eq!(
            statuses,
            [WcStatus::LocQpOpErr, WcStatus::WrFlushErr],
            "{opcode:?}"
        );
    }
}

/// `IBV_SEND_INLINE`: programs leave the key of such an entry as it is.
#[test]
fn no_key_of_inline_bytes_is_looked_at() {
    let (mut link, a, b) = Link::plain(13, 0);
    let to = link.region(1, &[0; 40]);
    let gone = link.region(0, b"before");
    let from = link.region(0, b"from a region");
    let other = link.devices[0].alloc_pd().unwrap();
    let foreign = link.devices[0].reg_mr(other, 7, AccessFlags::NONE).unwrap();
    let bytes = link.devices[0].bytes_mut(foreign).unwrap();
    bytes.copy_from_slice(b"foreign");
    link.devices[0].dereg_mr(gone).unwrap();
    let inline = SendFlags::INLINE | SendFlags::SIGNALED;
    let key = |sge: Sge, lkey| Sge { lkey, ..sge };
    for (n, lkey) in [0, u32::MAX, gone.lkey, foreign.lkey]
        .into_iter()
        .enumerate()
    {
        link.recv(1, b, 1, to.sge(0, 40));
        let entries = vec![
            key(from.sge(5, 8), lkey),
            key(from.sge(0, 0), lkey),
            key(foreign.sge(0, 7), from.lkey),
        ];
        let wr = SendWr {
            data: SendData::Sges(entries),
            ..SendWr::new(1, WrOpcode::Send, Sge::default())
        };
        let now = link.now;
        link.devices[0]
            .post_send(now, a, &[wr.with(inline)])
            .unwrap();
        let got = link.completions(1, 1)[0];
        assert_eq!((got.status, got.byte_len), (WcStatus::Success, 15), "{n}");
        assert_eq!(link.bytes(1, to)[..15], *b"a regionforeign");
    }
    // Where there is no memory at all, there are no bytes to take.
    for (n, sge) in [
        from.sge(5, 9),
        gone.sge(0, 1),
        Sge {
            addr: 1,
            ..from.sge(0, 1)
        },
    ]
    .into_iter()
    .enumerate()
    {
        let (a, _) = link.pair(service(1));
        let now = link.now;
        let wr = SendWr::new(2, WrOpcode::Send, sge).with(inline);
        link.devices[0].post_send(now, a, &[wr]).unwrap();
        let done = link.polled(0);
        let last = done.last().unwrap();
        assert_eq!((last.wr_id, last.status), (2, WcStatus::LocProtErr), "{n}");
    }
}
