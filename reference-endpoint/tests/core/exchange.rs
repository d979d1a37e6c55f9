//! Mixed work in both directions under seeded chance.

use metaroce_endpoint::core::{Buffer, Event, Service, Status, WorkKind};

use crate::link::{Link, bytes};

const LENGTHS: [usize; 8] = [0, 1, 1023, 1024, 1025, 20_000, 3, 70_001];

/// Mixed Writes and Sends in both directions, then a close; returns every byte sent.
fn exchange(mut link: Link, service: Service) -> Vec<(u64, usize, Vec<u8>)> {
    link.establish_with(service);
    exchange_on(link)
}

/// The same on a connection that is established, with at least two streams.
fn exchange_on(mut link: Link) -> Vec<(u64, usize, Vec<u8>)> {
    let mut expected = Vec::new();
    for from in 0..2 {
        for (n, &len) in LENGTHS.iter().enumerate() {
            let (wr_id, stream, to) = (n as u64, (n % 2) as u16 * 2, 1 - from);
            let data = bytes(wr_id ^ (from as u64) << 32, len);
            let buffer = link.source(from, &data);
            let target = link.target(to, len + 20);
            link.ends[to].memory_mut(target.mr).unwrap().fill(0xee);
            let now = link.now;
            if n % 3 == 0 {
                let receive = Buffer {
                    mr: target.mr,
                    offset: 10,
                    len,
                };
                link.ends[to]
                    .post_recv(now, 0, stream, 100 + wr_id, receive)
                    .unwrap();
                link.ends[from]
                    .post_send(now, 0, stream, wr_id, buffer)
                    .unwrap();
            } else {
                let va = target.va + 10;
                link.ends[from]
                    .post_write(now, 0, stream, wr_id, buffer, va, target.rkey)
                    .unwrap();
            }
            let framed = [&[0xee; 10][..], &data, &[0xee; 10]].concat();
            expected.push((to, target.mr, framed));
        }
    }
    link.run(|link| (0..2).all(|side| link.completions(side).len() == 8 + 3));
    for side in 0..2 {
        let failed = link.statuses(side).iter().any(|s| *s != Status::Success);
        assert!(!failed, "{:?}", link.events);
    }
    for (to, mr, data) in expected {
        assert!(
            link.ends[to].memory(mr) == Some(&data),
            "side {to}, region {mr}"
        );
    }
    for side in 0..2 {
        let all = link.completions(side);
        assert!(all.iter().all(|c| c.3 == Status::Success), "{all:?}");
        for stream in [0, 2] {
            for receive in [false, true] {
                let of = |c: &&(u16, u64, WorkKind, Status)| {
                    c.0 == stream && (c.2 == WorkKind::Recv) == receive
                };
                assert!(
                    all.iter().filter(of).is_sorted_by_key(|c| c.1),
                    "STRM-024, STRM-028: {all:?}"
                );
            }
        }
    }
    let now = link.now;
    link.ends[0].close(now, 0).unwrap();
    let closed = |e: &Event| matches!(e, Event::Closed { reason: 0, .. });
    link.run(|link| link.events.iter().all(|events| events.iter().any(closed)));
    // The watcher knows nothing of connections that are over.
    link.watch.on = false;
    link.run_until_idle();
    link.sent
}

fn seeded(seed: u64, loss: u32) -> Link {
    let mut link = Link::new(seed, loss);
    (link.twice, link.marked) = (20, 30);
    link
}

#[test]
fn without_loss_nothing_is_repeated() {
    for paths in [1, 4, 8, 256] {
        let sent = exchange(Link::new(1, 0), Link::service(paths, 2, None));
        assert!(sent.iter().all(|(_, _, bytes)| bytes[2] & 0x40 == 0));
    }
}

#[test]
fn under_loss_over_many_seeds() {
    for seed in 0..400 {
        let paths = [1, 2, 4, 8][seed as usize % 4];
        let link = seeded(seed, 10 + (seed as u32 % 10) * 20);
        exchange(link, Link::service(paths, 2, Some(0xffff_fff0)));
    }
}

#[test]
fn under_heavy_loss() {
    for seed in 0..40 {
        let mut link = seeded(seed, 0);
        link.establish(3, 2, None);
        link.loss = 300;
        exchange_on(link);
    }
}

#[test]
fn with_wide_jitter_between_the_paths() {
    for seed in 0..40 {
        let mut link = seeded(seed, 50);
        link.jitter = 5_000_000;
        exchange(link, Link::service(8, 2, None));
    }
}

#[test]
fn with_many_marks() {
    for seed in 0..40 {
        let mut link = seeded(seed, 20);
        link.marked = 500;
        exchange(link, Link::service(4, 2, None));
    }
}

#[test]
fn with_a_small_message_window_and_every_payload_size() {
    for (seed, payload_size) in [256u16, 512, 2048, 4096, 8192].into_iter().enumerate() {
        for msg_window in [1, 2, 3] {
            let service = Service {
                payload_size,
                msg_window,
                ..Link::service(3, 2, Some(0xffff_fffe))
            };
            exchange(seeded(seed as u64, 80), service);
        }
    }
}

#[test]
fn over_256_paths() {
    for seed in 0..5 {
        exchange(seeded(seed, 50), Link::service(256, 2, None));
    }
}

#[test]
fn same_seed_same_bytes() {
    let run = |seed| exchange(seeded(seed, 50), Link::service(4, 2, None));
    assert!(run(9) == run(9));
    assert!(run(9) != run(10));
}

#[test]
fn sends_wait_for_receives_and_find_the_right_ones() {
    for seed in 0..20 {
        let mut link = seeded(seed, if seed == 0 { 0 } else { 100 });
        link.establish(4, 1, None);
        let data: Vec<Vec<u8>> = (0..12).map(|n| bytes(n, n as usize * 700)).collect();
        for (wr_id, data) in (0..).zip(&data) {
            let buffer = link.source(0, data);
            link.ends[0]
                .post_send(link.now, 0, 0, wr_id, buffer)
                .unwrap();
        }
        link.pass(400_000_000);
        let data_sent = |link: &Link| link.sent.iter().any(|(_, _, bytes)| bytes[1] == 0x01);
        assert!(!data_sent(&link), "STRM-010");
        let mut receives = Vec::new();
        for wr_id in 0..12 {
            let region = link.target(1, 9_000);
            receives.push(region);
            let receive = Buffer {
                mr: region.mr,
                offset: 0,
                len: 9_000,
            };
            link.ends[1]
                .post_recv(link.now, 0, 0, 100 + wr_id, receive)
                .unwrap();
            if wr_id % 3 == 2 {
                link.pass(30_000_000);
            }
        }
        link.run(|link| link.completions(0).len() == 12 && link.completions(1).len() == 12);
        let ids: Vec<u64> = link.completions(1).iter().map(|c| c.1).collect();
        assert_eq!(ids, (100..112).collect::<Vec<_>>());
        for (region, data) in receives.iter().zip(&data) {
            let memory = link.ends[1].memory(region.mr).unwrap();
            assert!(memory[..data.len()] == data[..]);
            assert!(memory[data.len()..].iter().all(|&byte| byte == 0));
        }
    }
}

#[test]
fn a_send_behind_the_message_window_asks_for_nothing() {
    let mut link = Link::new(1, 0);
    let service = Service {
        msg_window: 2,
        ..Link::service(2, 1, None)
    };
    link.establish_with(service);
    for wr_id in 0..3 {
        let buffer = link.source(0, &bytes(wr_id, 3_000));
        link.ends[0]
            .post_send(link.now, 0, 0, wr_id, buffer)
            .unwrap();
    }
    link.pass(20_000_000);
    let region = link.target(1, 9_000);
    let receive = |n: usize| Buffer {
        mr: region.mr,
        offset: n * 3_000,
        len: 3_000,
    };
    for n in 0..2 {
        link.ends[1]
            .post_recv(link.now, 0, 0, 100, receive(n))
            .unwrap();
    }
    // Both fill the window for far longer than the pause between questions. No deadline may stay in the past.
    link.drop_when(|from, packet| {
        let tells = packet.cbh.opcode.is_ack() || packet.cbh.opcode.0 == 0x69;
        from == 1 && tells
    });
    link.pass(150_000_000);
    link.drop = None;
    link.ends[1]
        .post_recv(link.now, 0, 0, 100, receive(2))
        .unwrap();
    link.run(|link| link.completions(0).len() == 3);
}
