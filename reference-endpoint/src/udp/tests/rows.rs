//! What is sent arrives: one by one, in rows, from and to any address, with its mark.

use std::io::IoSliceMut;

use quinn_udp::{RecvMeta, UdpSocketState};

use super::*;

#[test]
fn every_mark_of_a_burst_survives() {
    run(async {
        for host in hosts() {
            let (mut receiver, mut sender) = (bind(host), bind(host));
            let (from, to) = (local(&sender), local(&receiver));
            let datagrams: Vec<_> = (0..90u8)
                .map(|i| {
                    let mark = MARKS[usize::from(i) % MARKS.len()];
                    (transmit(from, to, mark), vec![i; 100])
                })
                .collect();
            let sent = send(&mut sender, &datagrams);
            assert_eq!((sent.datagrams, sent.left), (90, Left::Nothing));
            let received = receive_many(&mut receiver, 90).await;
            assert_eq!(received.len(), 90);
            for (i, received) in received.iter().enumerate() {
                assert_eq!(received.bytes, [i as u8; 100]);
                assert_eq!(received.ecn, MARKS[i % MARKS.len()], "datagram {i}");
                assert_eq!((received.from, received.to), (from, to.ip()));
            }
            assert_eq!(sender.losses(), Losses::default());
            assert_eq!(receiver.losses(), Losses::default());
        }
    });
}

/// The system joins datagrams into one receive when they were sent as one; the mark and the borders must survive that.
#[test]
fn every_mark_of_a_joined_burst_survives() {
    run(async {
        for host in hosts() {
            let (mut receiver, mut sender) = (bind(host), bind(host));
            if !cuts_rows(&mut sender) {
                return;
            }
            let (from, to) = (local(&sender), local(&receiver));
            for mark in [Ecn::Ce, Ecn::Ect0, Ecn::Ect1, Ecn::NotEct] {
                let mut row: Vec<_> = (0..20u8)
                    .map(|i| (transmit(from, to, mark), vec![i; 500]))
                    .collect();
                // The last may be shorter.
                row.push((transmit(from, to, mark), vec![20; 499]));
                send(&mut sender, &row);
                let received = receive_many(&mut receiver, row.len()).await;
                assert_eq!(received.len(), row.len());
                for (received, (_, sent)) in received.iter().zip(&row) {
                    assert_eq!(&received.bytes, sent);
                    assert_eq!(received.ecn, mark, "datagram {} over {host}", sent[0]);
                }
            }
        }
    });
}

/// Looked at from below: a row comes in one piece, so it left in one call.
#[test]
fn a_row_leaves_as_one() {
    run(async {
        let mut sender = bind(HOSTS[0]);
        if !cuts_rows(&mut sender) {
            return;
        }
        let below = std::net::UdpSocket::bind(HOSTS[0]).unwrap();
        let state = UdpSocketState::new((&below).into()).unwrap();
        let (from, to) = (local(&sender), below.local_addr().unwrap());
        let pieces = |count: usize| {
            let mut buffers = vec![vec![0; 1 << 16]; count];
            let mut slices: Vec<_> = buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            let mut metas = vec![RecvMeta::default(); count];
            let received = state.recv((&below).into(), &mut slices, &mut metas);
            let metas = metas.into_iter().take(received.unwrap());
            metas.map(|m| (m.len, m.stride)).collect::<Vec<_>>()
        };
        let of = |lens: &[usize]| -> Vec<_> {
            let datagram = |len: &usize| (transmit(from, to, Ecn::Ect0), vec![7; *len]);
            lens.iter().map(datagram).collect()
        };
        // One row with a shorter last, and what comes behind that.
        send(&mut sender, &of(&[1000, 1000, 1000, 400, 400, 900]));
        assert_eq!(pieces(8), [(3400, 1000), (400, 400), (900, 900)]);
        // No row is longer than 64 datagrams or what one datagram carries.
        send(&mut sender, &of(&[100; 70]));
        assert_eq!(pieces(8), [(6400, 100), (600, 100)]);
        send(&mut sender, &of(&[8300; 16]));
        assert_eq!(
            pieces(8),
            [(7 * 8300, 8300), (7 * 8300, 8300), (2 * 8300, 8300)]
        );
        // No row goes beyond a call.
        send(&mut sender, &of(&[300; 2]));
        send(&mut sender, &of(&[300; 2]));
        assert_eq!(pieces(8), [(600, 300), (600, 300)]);
    });
}

/// Any change of address, mark or length, in any order, over several hundred kilobytes.
#[test]
fn rows_end_where_they_must() {
    run(async {
        for host in hosts() {
            let (mut receiver, mut sender) = (bind(host), bind(host));
            let to = local(&receiver);
            let sources = [local(&sender), free(host)];
            let mut random = 1u32;
            let mut choose = |of: usize| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 16) as usize % of
            };
            let mut datagrams = Vec::new();
            for i in 0..200u32 {
                let (from, mark) = (sources[choose(2)], MARKS[choose(2)]);
                let len = [1500, 600, 600, 4200][choose(4)];
                for _ in 0..=choose(12) {
                    let mut bytes = i.to_be_bytes().repeat(len / 4);
                    bytes.truncate(len - choose(8) / 7);
                    datagrams.push((transmit(from, to, mark), bytes));
                }
            }
            // In pieces that the receive buffer surely holds.
            for piece in datagrams.chunks(16) {
                let sent = send(&mut sender, piece);
                assert_eq!((sent.datagrams, sent.left), (piece.len(), Left::Nothing));
                let received = receive_many(&mut receiver, piece.len()).await;
                assert_eq!(received.len(), piece.len());
                for (received, (transmit, bytes)) in received.iter().zip(piece) {
                    assert_eq!(&received.bytes, bytes);
                    assert_eq!(received.ecn, transmit.ecn);
                    assert_eq!(received.from.port(), transmit.src_port);
                }
            }
            assert_eq!(sender.losses(), Losses::default());
        }
    });
}

#[test]
fn a_long_call_sends_all_and_a_short_one_its_bound() {
    run(async {
        let (mut receiver, mut sender) = (bind(HOSTS[0]), bind(HOSTS[0]));
        let (from, to) = (local(&sender), local(&receiver));
        let mut taken = 0u32;
        let mut next = |out: &mut Vec<u8>| {
            out.extend_from_slice(&taken.to_be_bytes().repeat(2000));
            taken += 1;
            // Every second one ends a row, so that the buffer never empties by itself.
            Some(transmit(from, to, MARKS[taken as usize / 2 % 2]))
        };
        let sent = sender.send(100, &mut next);
        assert_eq!((sent.datagrams, sent.left), (100, Left::More));
        let received = receive_many(&mut receiver, 100).await;
        for (i, received) in received.iter().enumerate() {
            assert_eq!(received.bytes, (i as u32).to_be_bytes().repeat(2000));
        }
        // Nothing was kept back, and nothing taken that was not to be sent.
        let sent = sender.send(0, &mut next);
        assert_eq!((sent.datagrams, sent.left), (0, Left::More));
        assert_eq!(taken, 100);
        assert!(sender.outbox().held_until().is_none());
    });
}

#[test]
fn every_own_address_receives_and_sends() {
    run(async {
        // The same port on two addresses: taken from the first, and free on the second but by bad luck.
        let mut planes = loop {
            let first = free("127.0.0.1:0");
            let second = SocketAddr::new("127.0.0.2".parse().unwrap(), first.port());
            if let Ok(planes) = Sockets::bind_all(&[first, second], &Settings::default()) {
                break planes;
            }
        };
        let mut peer = bind("127.0.0.3:0");
        let locals: Vec<_> = planes.locals().collect();
        for _ in 0..3 {
            let datagrams = locals.iter().map(|to| {
                let transmit = transmit(local(&peer), *to, Ecn::Ect0);
                (transmit, to.to_string().into_bytes())
            });
            let datagrams: Vec<_> = datagrams.collect();
            send(&mut peer, &datagrams);
            let mut received = receive_many(&mut planes, 2).await;
            received.sort_by_key(|received| received.to);
            for (received, to) in received.iter().zip(&locals) {
                assert_eq!(received.to, to.ip());
                assert_eq!(received.bytes, to.to_string().as_bytes());
            }
        }
        let datagrams = locals
            .iter()
            .map(|from| (transmit(*from, local(&peer), Ecn::Ect1), vec![1]));
        let datagrams: Vec<_> = datagrams.collect();
        send(&mut planes, &datagrams);
        let from: Vec<_> = receive_many(&mut peer, 2).await;
        assert_eq!([from[0].from, from[1].from], *locals);
        assert_eq!(planes.outbox().bound(), 0);
    });
}

#[test]
fn an_unspecified_address_tells_where_datagrams_came() {
    run(async {
        for from in hosts() {
            let (any, host) = match from {
                "127.0.0.1:0" => ("0.0.0.0:0", "127.0.0.5"),
                _ => ("[::]:0", "::1"),
            };
            let (mut receiver, mut sender) = (bind(any), bind(from));
            let to = SocketAddr::new(host.parse().unwrap(), local(&receiver).port());
            let from = local(&sender);
            send(&mut sender, &[(transmit(from, to, Ecn::Ce), vec![5])]);
            let received = receive_many(&mut receiver, 1).await;
            assert_eq!((received[0].to, received[0].ecn), (to.ip(), Ecn::Ce));
        }
    });
}

/// A socket of one family takes nothing of the other, or both could not be bound.
#[test]
fn both_families_have_the_same_port() {
    run(async {
        if hosts().count() < 2 {
            return;
        }
        let mut both = loop {
            let port = free("[::]:0").port();
            let locals = ["0.0.0.0", "::"].map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
            match Sockets::bind_all(&locals, &Settings::default()) {
                Ok(both) => break both,
                // The port was free on one of them only.
                Err(_) if std::net::UdpSocket::bind(locals[0]).is_err() => {}
                Err(error) => panic!("{error}"),
            }
        };
        let port = local(&both).port();
        for host in hosts() {
            let mut sender = bind(host);
            let from = local(&sender);
            let to = SocketAddr::new(from.ip(), port);
            send(&mut sender, &[(transmit(from, to, Ecn::Ect0), vec![1])]);
            let received = receive_many(&mut both, 1).await;
            assert_eq!((received[0].from, received[0].to), (from, to.ip()));
        }
    });
}

#[test]
fn an_empty_datagram_is_one() {
    run(async {
        let (mut receiver, mut sender) = (bind(HOSTS[0]), bind(HOSTS[0]));
        let plain = transmit(local(&sender), local(&receiver), Ecn::Ect0);
        let datagrams = [vec![], vec![], vec![1], vec![], vec![2]].map(|bytes| (plain, bytes));
        send(&mut sender, &datagrams);
        let received = receive_many(&mut receiver, 5).await;
        assert_eq!(received.len(), 5);
        for (received, (_, bytes)) in received.iter().zip(&datagrams) {
            assert_eq!(&received.bytes, bytes);
        }
    });
}
