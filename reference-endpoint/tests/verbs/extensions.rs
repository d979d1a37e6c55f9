//! The extensions: what is told of connections, paths, planes and streams, and what can be asked for.

use metaroce_endpoint::core::{Config, Misuse};
use metaroce_endpoint::verbs::{
    AsyncEvent, Error, Limits, Qp, SendWr, Sge, WcStatus, WrOpcode, service,
};

use crate::link::{Link, bytes};

fn write(link: &mut Link, a: Qp, len: usize) {
    let data = bytes(link.now, len);
    let from = link.region(0, &data);
    let to = link.region(1, &vec![0; len]);
    let write = WrOpcode::RdmaWrite(to.remote(0));
    link.send(0, a, 1, write, from.sge(0, len as u32));
    assert_eq!(link.completions(0, 1)[0].status, WcStatus::Success);
    assert!(link.bytes(1, to) == data);
}

#[test]
fn connections_paths_and_streams_tell_what_they_are_like() {
    let (mut link, a, _) = Link::plain(1, 100);
    assert_eq!(link.devices[0].query_stream(a).unwrap().work, 0);
    write(&mut link, a, 400_000);
    let place = link.devices[0].place_of(a).unwrap().unwrap();
    let device = &link.devices[0];
    let stats = device.query_connection(place.conn).unwrap();
    assert_eq!(
        (stats.state, stats.paths, stats.planes),
        ("established", 8, 1)
    );
    assert_eq!(
        (stats.streams, stats.streams_open, stats.payload_size),
        (256, 1, 4096)
    );
    assert_eq!((stats.peer, stats.messages_sent), (link.addresses[1], 1));
    let paths: Vec<_> = (0..8)
        .map(|p| device.query_path(place.conn, p).unwrap())
        .collect();
    // VERB-011.
    assert!(
        paths
            .iter()
            .all(|path| path.window >= 1.0 && !path.ecn_off && path.alpha <= 1.0)
    );
    assert!(
        paths
            .iter()
            .all(|path| path.srtt_ns.is_some_and(|srtt| srtt >= 400_000))
    );
    assert!(paths.iter().map(|path| path.losses).sum::<u64>() > 0);
    assert!(paths.iter().map(|path| path.retransmissions).sum::<u64>() > 0);
    assert!(paths.iter().map(|path| path.packets_sent).sum::<u64>() >= 98);
    assert!(device.query_counters(place.conn).unwrap().packets_sent > 98);
    assert_eq!(device.query_stream(a).unwrap().state, "open");
    for missing in [
        device.query_path(place.conn, 8).err(),
        device.query_connection(9).err(),
        device.query_plane(place.conn, 1).err(),
        device.query_counters(9).err(),
    ] {
        assert!(
            matches!(missing, Some(Error::NotFound { .. })),
            "{missing:?}"
        );
    }
}

#[test]
fn a_path_moves_to_another_port() {
    let (mut link, a, _) = Link::plain(2, 20);
    let conn = link.devices[0].place_of(a).unwrap().unwrap().conn;
    let now = link.now;
    link.devices[0]
        .move_path(now, conn, 3, Some(50_200), None)
        .unwrap();
    assert_eq!(
        link.devices[0].query_path(conn, 3).unwrap().src_port,
        50_200
    );
    write(&mut link, a, 100_000);
    let taken = link.devices[0].move_path(now, conn, 4, Some(50_200), None);
    assert_eq!(taken, Err(Error::Core(Misuse::Range { what: "port" })));
}

#[test]
fn a_retired_path_opens_again() {
    let (mut link, a, _) = Link::plain(3, 20);
    let conn = link.devices[0].place_of(a).unwrap().unwrap().conn;
    write(&mut link, a, 100_000);
    let now = link.now;
    let early = link.devices[0].reopen_path(now, conn, 2);
    assert!(matches!(early, Err(Error::Core(Misuse::NotPossible(_)))));
    link.devices[0].retire_path(now, conn, 2).unwrap();
    let alive = |alive| AsyncEvent::PathAlive {
        conn,
        path: 2,
        alive,
    };
    link.run(|link| link.events[0].contains(&alive(false)));
    write(&mut link, a, 100_000);
    link.run(|link| link.events[0].contains(&alive(true)));
    assert_eq!(link.devices[0].query_path(conn, 2).unwrap().epoch, 1);
    write(&mut link, a, 100_000);
}

#[test]
fn a_path_that_is_asked_for_opens_sooner_than_by_itself() {
    let opened_after = |ask: bool| {
        let (mut link, a, _) = Link::plain(4, 0);
        let conn = link.devices[0].place_of(a).unwrap().unwrap().conn;
        write(&mut link, a, 100_000);
        let now = link.now;
        link.devices[0].retire_path(now, conn, 2).unwrap();
        link.pass(10_000_000);
        // Nothing answers for a while, and the pause between the questions doubles.
        link.cut = true;
        link.pass(12_000_000_000);
        link.cut = false;
        let now = link.now;
        if ask {
            link.devices[0].reopen_path(now, conn, 2).unwrap();
        }
        let up = AsyncEvent::PathAlive {
            conn,
            path: 2,
            alive: true,
        };
        link.run(|link| link.events[0].contains(&up));
        link.now - now
    };
    let (asked, alone) = (opened_after(true), opened_after(false));
    assert!(asked <= 1_100_000_000 && alone > asked, "{asked} {alone}");
}

/// Two planes at both ends.
fn planes(seed: u64) -> (Link, Qp, u32) {
    let two = |config: Config| {
        let last = if config.local.ip().to_string().ends_with(".1") {
            1
        } else {
            2
        };
        Config {
            planes: vec![[198, 51, 100, last].into()],
            capacity_mbps: Some(10_000),
            ..config
        }
    };
    let mut link = Link::with(seed, 0, Limits::default(), two);
    let mut asked = service(1);
    asked.extra_planes = 1;
    link.listen(asked);
    let (a, _) = link.pair(asked);
    let conn = link.devices[0].place_of(a).unwrap().unwrap().conn;
    (link, a, conn)
}

#[test]
fn planes_are_told_of_and_left_and_joined_again() {
    let (mut link, a, conn) = planes(5);
    write(&mut link, a, 400_000);
    let plane = |link: &Link, n| link.devices[0].query_plane(conn, n).unwrap();
    assert_eq!([plane(&link, 0).paths, plane(&link, 1).paths], [4, 4]);
    link.run(|link| link.devices[0].query_plane(conn, 1).unwrap().proven);
    let second = plane(&link, 1);
    assert_eq!(second.local.to_string(), "198.51.100.1");
    assert_eq!(second.peer.to_string(), "198.51.100.2");
    assert!(second.up);
    let now = link.now;
    link.devices[0].set_plane(now, conn, 1, false).unwrap();
    assert_eq!([plane(&link, 0).paths, plane(&link, 1).paths], [8, 0]);
    assert!(!plane(&link, 1).up);
    write(&mut link, a, 100_000);
    let now = link.now;
    link.devices[0].set_plane(now, conn, 1, true).unwrap();
    assert_eq!([plane(&link, 0).paths, plane(&link, 1).paths], [4, 4]);
    link.devices[0]
        .move_path(now, conn, 0, None, Some(1))
        .unwrap();
    assert_eq!(link.devices[0].query_path(conn, 0).unwrap().plane, 1);
    write(&mut link, a, 100_000);
    let missing = link.devices[0].set_plane(now, conn, 2, true);
    assert_eq!(missing, Err(Error::Core(Misuse::NoPlane(2))));
}

/// PLN-011, for a request that had been acknowledged and is refused when its memory is gone (OPS-044).
#[test]
fn a_late_refusal_goes_through_the_plane_of_the_request() {
    let (mut link, a, conn) = planes(9);
    write(&mut link, a, 400_000);
    link.run(|link| link.devices[0].query_plane(conn, 1).unwrap().proven);
    let now = link.now;
    link.devices[0].set_plane(now, conn, 0, false).unwrap();
    let (here, there) = (
        link.region(0, &vec![0; 1_000_000]),
        link.region(1, &vec![1; 1_000_000]),
    );
    let read = WrOpcode::RdmaRead(there.remote(0));
    link.send(0, a, 1, read, here.sge(0, 1_000_000));
    link.run(|link| link.devices[0].bytes(here).unwrap()[0] == 1);
    link.devices[1].dereg_mr(there).unwrap();
    link.run(|link| !link.naks.is_empty());
    assert_eq!(link.naks[0], (1, [198, 51, 100, 1].into()));
}

#[test]
fn the_capacity_is_told_to_the_peer() {
    let (mut link, a, conn) = planes(6);
    link.devices[1].set_capacity(40).unwrap();
    let from = link.region(0, &vec![1; 1_000_000]);
    let to = link.region(1, &vec![0; 1_000_000]);
    let write = WrOpcode::RdmaWrite(to.remote(0));
    link.send(0, a, 1, write, from.sge(0, 1_000_000));
    link.run(|link| {
        let hint = link.devices[0].query_connection(conn).unwrap().hint_mbps;
        hint.is_some_and(|mbps| mbps <= 40)
    });
    link.completions(0, 1);
    let (mut link, ..) = Link::plain(7, 0);
    let refused = link.devices[0].set_capacity(40);
    assert!(matches!(refused, Err(Error::Core(Misuse::NotPossible(_)))));
}

#[test]
fn a_queue_pair_without_stream_has_no_place() {
    let mut link = Link::new(8, 0);
    let init = link.init(0);
    let qp = link.devices[0].create_qp(init).unwrap();
    assert_eq!(link.devices[0].place_of(qp), Ok(None));
    assert!(matches!(
        link.devices[0].query_stream(qp),
        Err(Error::NotFound { .. })
    ));
    let wr = SendWr::new(1, WrOpcode::Send, Sge::default());
    assert!(link.devices[0].post_send(0, qp, &[wr]).is_err());
}

#[test]
fn connections_and_streams_tell_what_they_have_moved() {
    for loss in [0, 100] {
        let (mut link, a, b) = Link::plain(9, loss);
        let (c, d) = link.pair(service(1));
        let near = link.region(0, &bytes(1, 50_000));
        let far = link.region(1, &bytes(2, 50_000));
        link.recv(1, b, 1, far.sge(0, 20_000));
        link.recv(1, b, 2, Sge::default());
        let remote = far.remote(0);
        link.send(0, a, 1, WrOpcode::Send, near.sge(0, 20_000));
        let imm = WrOpcode::RdmaWriteWithImm(remote, 1);
        link.send(0, a, 2, imm, near.sge(0, 7));
        link.send(0, a, 3, WrOpcode::RdmaRead(remote), near.sge(0, 30_000));
        let add = WrOpcode::AtomicFetchAndAdd { remote, add: 1 };
        link.send(0, a, 4, add, near.sge(0, 8));
        let write = WrOpcode::RdmaWrite(remote);
        link.send(0, c, 5, write, near.sge(0, 50_000));
        let done = link.completions(0, 5);
        assert!(done.iter().all(|wc| wc.status == WcStatus::Success));
        // The last acknowledgment of the answers is on its way.
        link.pass(1_000_000_000);
        let totals = |end: usize, qp| {
            let stats = link.devices[end].query_stream(qp).unwrap();
            let messages = (stats.messages_sent, stats.messages_received);
            (messages, stats.bytes_sent, stats.bytes_received)
        };
        assert_eq!(totals(0, a), ((4, 0), 20_007, 30_000));
        assert_eq!(totals(1, b), ((0, 2), 30_000, 20_007));
        assert_eq!(totals(0, c), ((1, 0), 50_000, 0));
        assert_eq!(totals(1, d), ((0, 0), 0, 50_000));
        let all = |end: usize, qp| {
            let conn = link.devices[end].place_of(qp).unwrap().unwrap().conn;
            let stats = link.devices[end].query_connection(conn).unwrap();
            let messages = (stats.messages_sent, stats.messages_received);
            (messages, stats.bytes_sent, stats.bytes_received)
        };
        assert_eq!(all(0, a), ((5, 0), 70_007, 30_000));
        assert_eq!(all(1, b), ((0, 2), 30_000, 70_007));
    }
}

#[test]
fn a_path_tells_how_much_of_its_window_is_in_use() {
    let (mut link, a, _) = Link::plain(10, 0);
    let conn = link.devices[0].place_of(a).unwrap().unwrap().conn;
    let used = |link: &Link| -> Vec<f64> {
        let paths = (0..8).map(|path| link.devices[0].query_path(conn, path).unwrap());
        let used = paths.map(|path| {
            assert_eq!(path.utilisation, f64::from(path.in_flight) / path.window);
            path.utilisation
        });
        used.collect()
    };
    assert_eq!(used(&link), [0.0; 8]);
    let from = link.region(0, &vec![0; 4_000_000]);
    let to = link.region(1, &vec![0; 4_000_000]);
    let write = WrOpcode::RdmaWrite(to.remote(0));
    link.send(0, a, 1, write, from.sge(0, 4_000_000));
    link.drain();
    let full = used(&link);
    assert!(
        full.iter().all(|used| *used > 0.5 && *used <= 1.0),
        "{full:?}"
    );
    link.completions(0, 1);
    assert_eq!(used(&link), [0.0; 8]);
}
