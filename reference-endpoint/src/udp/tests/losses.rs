//! What the system refuses, for a while or for good.

use rustix::io::Errno;

use super::*;

fn errno(errno: Errno) -> Option<i32> {
    Some(errno.raw_os_error())
}

fn some(losses: impl FnOnce(&mut Losses)) -> Losses {
    let mut all = Losses::default();
    losses(&mut all);
    all
}

#[test]
fn sends_from_the_port_that_is_named() {
    run(async {
        for host in hosts() {
            let (mut receiver, mut sender) = (bind(host), bind(host));
            let to = local(&receiver);
            let free = free(host);
            send(&mut sender, &[(transmit(free, to, Ecn::Ect0), vec![1])]);
            assert_eq!(receive_many(&mut receiver, 1).await[0].from, free);
            // A port that somebody else has: what is sent from it is lost, and nothing else.
            let row = vec![(transmit(to, to, Ecn::Ect0), vec![9; 10]); 2];
            send(&mut sender, &row);
            // An address that is not here.
            let far = match to {
                SocketAddr::V4(_) => "192.0.2.1:9",
                SocketAddr::V6(_) => "[2001:db8::1]:9",
            };
            let far = transmit(far.parse().unwrap(), to, Ecn::Ect0);
            send(&mut sender, &[(far, vec![9])]);
            send(&mut sender, &[(transmit(free, to, Ecn::Ect0), vec![2])]);
            assert_eq!(receive_many(&mut receiver, 1).await[0].bytes, [2]);
            assert_eq!(sender.losses(), some(|losses| losses.unbound = 3));
            assert_eq!(sender.outbox().bound(), 1);
        }
    });
}

#[test]
fn a_port_that_becomes_free_is_found() {
    run(async {
        let (mut receiver, mut sender) = (bind(HOSTS[0]), bind(HOSTS[0]));
        let other = std::net::UdpSocket::bind(HOSTS[0]).unwrap();
        let transmit = transmit(other.local_addr().unwrap(), local(&receiver), Ecn::Ect0);
        send(&mut sender, &[(transmit, vec![1])]);
        drop(other);
        // Not at once: every attempt costs as much as many datagrams.
        for _ in 0..1023 {
            send(&mut sender, &[(transmit, vec![2])]);
        }
        assert_eq!(sender.losses(), some(|losses| losses.unbound = 1024));
        send(&mut sender, &[(transmit, vec![3])]);
        assert_eq!(receive_many(&mut receiver, 1).await[0].bytes, [3]);
    });
}

#[test]
fn a_service_port_that_is_taken_is_an_error() {
    run(async {
        let first = bind(HOSTS[0]);
        let second = Sockets::bind(local(&first));
        assert_eq!(second.err().unwrap().kind(), std::io::ErrorKind::AddrInUse);
        let both = [free(HOSTS[0]), local(&first)];
        assert!(Sockets::bind_all(&both, &Settings::default()).is_err());
        // And none is bound then.
        assert!(Sockets::bind(both[0]).is_ok());
    });
}

#[test]
fn more_ports_than_allowed_are_counted_and_an_idle_one_makes_room() {
    run(async {
        let settings = Settings {
            most_sources: 2,
            ..Settings::default()
        };
        let here = [HOSTS[0].parse().unwrap()];
        let mut sender = Sockets::bind_all(&here, &settings).unwrap();
        let mut receiver = bind(HOSTS[0]);
        let to = local(&receiver);
        let [a, b, c] = [(); 3].map(|()| free(HOSTS[0]));
        let mut send = |from| {
            let datagram = (transmit(from, to, Ecn::Ect0), vec![1]);
            super::send(&mut sender, &[datagram]);
            (sender.losses().too_many_ports, sender.outbox().bound())
        };
        assert_eq!([send(a), send(b)], [(0, 1), (0, 2)]);
        assert_eq!([send(c), send(c)], [(1, 2), (2, 2)]);
        // The service port is not one of them.
        assert_eq!(send(a), (2, 2));
        // Both in use: no room, however long.
        for i in 0..50 {
            assert_eq!(
                [send(a), send(b), send(c)],
                [(2 + i, 2), (2 + i, 2), (3 + i, 2)]
            );
        }
        // `a` has its last turn now.
        assert_eq!(send(a), (52, 2));
        for _ in 0..8 {
            send(b);
        }
        assert_eq!(send(c), (52, 2));
        assert_eq!(send(b), (52, 2));
        // And back, when it is wanted again.
        assert_eq!(send(a), (53, 2));
        let sent = 3 + 100 + 1 + 8 + 2;
        let received = receive_many(&mut receiver, sent).await;
        assert_eq!(received.len(), sent);
        assert_eq!(received[sent - 2].from, c);
    });
}

#[test]
fn every_refusal_has_its_count() {
    run(async {
        let (mut receiver, mut sender) = (bind(HOSTS[0]), bind(HOSTS[0]));
        let from = local(&sender);
        let one = (transmit(from, local(&receiver), Ecn::Ect0), vec![1]);
        let refusals = [
            Errno::CONNREFUSED,
            Errno::NETUNREACH,
            Errno::HOSTUNREACH,
            Errno::PERM,
            Errno::ACCESS,
            Errno::MSGSIZE,
            Errno::NOBUFS,
            Errno::NETDOWN,
        ];
        let script: Vec<_> = refusals.into_iter().map(errno).collect();
        sender.outbox().script(from, &script);
        for _ in refusals {
            assert_eq!(
                send(&mut sender, std::slice::from_ref(&one)).left,
                Left::Nothing
            );
        }
        // Those that this system can be brought to: too long, and a port that there is not.
        let long = (one.0, vec![0; 70_000]);
        send(&mut sender, &[long]);
        let nowhere = SocketAddr::new(from.ip(), 0);
        send(
            &mut sender,
            &[(transmit(from, nowhere, Ecn::Ect0), vec![1])],
        );
        let losses = Losses {
            connection_refused: 1,
            network_unreachable: 1,
            host_unreachable: 1,
            not_permitted: 2,
            too_long: 2,
            no_memory: 1,
            invalid: 1,
            other: 1,
            ..Losses::default()
        };
        assert_eq!(sender.losses(), losses);
        assert_eq!(losses.unsent(), 10);
        // A whole row counts by its datagrams.
        sender.outbox().script(from, &[errno(Errno::NETUNREACH)]);
        if cuts_rows(&mut sender) {
            send(&mut sender, &vec![one.clone(); 7]);
            assert_eq!(sender.losses().network_unreachable, 8);
        }
        // None of it ends anything, and the mark is still set: the crate below would leave it out after an EINVAL.
        send(&mut sender, &[one]);
        let received = receive_many(&mut receiver, 1).await;
        assert_eq!((received.len(), received[0].ecn), (1, Ecn::Ect0));
    });
}

#[test]
fn where_rows_are_refused_all_goes_one_by_one() {
    run(async {
        let real = hosts().map(|host| (host, false));
        for (host, scripted) in real.chain([(HOSTS[0], true)]) {
            let (mut receiver, mut sender) = (bind(host), bind(host));
            if !cuts_rows(&mut sender) {
                return;
            }
            let (from, to) = (local(&sender), local(&receiver));
            if scripted {
                sender.outbox().script(from, &[errno(Errno::IO)]);
            } else {
                // More than any system takes, so that this one has a reason to refuse.
                sender.outbox().pretend_segments(200);
            }
            let plain = transmit(from, to, Ecn::Ce);
            let datagrams: Vec<_> = (0..200u8).map(|i| (plain, vec![i; 100])).collect();
            send(&mut sender, &datagrams);
            assert_eq!(sender.outbox().most_segments(), 1);
            let mut received = receive_many(&mut receiver, 200).await;
            send(&mut sender, &datagrams[..20]);
            received.extend(receive_many(&mut receiver, 20).await);
            assert_eq!(received.len(), 220);
            for (i, received) in received.iter().enumerate() {
                assert_eq!(received.bytes, [(i % 200) as u8; 100]);
                assert_eq!(received.ecn, Ecn::Ce);
            }
            assert_eq!(sender.losses(), Losses::default());
        }
    });
}

#[test]
fn a_bad_destination_is_no_reason_against_rows() {
    run(async {
        let mut sender = bind(HOSTS[0]);
        if !cuts_rows(&mut sender) {
            return;
        }
        let from = local(&sender);
        let nowhere = transmit(from, SocketAddr::new(from.ip(), 0), Ecn::Ect0);
        send(&mut sender, &vec![(nowhere, vec![0; 100]); 5]);
        assert_eq!(sender.losses(), some(|losses| losses.invalid = 5));
        assert!(sender.outbox().most_segments() > 1);
    });
}

/// On the loopback interface nothing fills a send buffer, so the refusals are put in; what follows is real.
#[test]
fn what_the_system_has_no_room_for_waits() {
    run(async {
        let (mut receiver, mut sender) = (bind(HOSTS[0]), bind(HOSTS[0]));
        let (from, to) = (local(&sender), local(&receiver));
        sender.outbox().script(from, &[errno(Errno::AGAIN); 2]);
        let datagrams: Vec<_> = (0..30u8)
            .map(|i| {
                let mark = MARKS[usize::from(i) / 3 % 2];
                (transmit(from, to, mark), vec![i; 50])
            })
            .collect();
        // The first row of three is held back when the fourth datagram has ended it; the others are not even taken.
        let sent = send(&mut sender, &datagrams);
        assert_eq!((sent.datagrams, sent.left), (4, Left::Full));
        assert!(sender.outbox().held_until().is_some());
        let sent = send(&mut sender, &datagrams[4..]);
        assert_eq!((sent.datagrams, sent.left), (0, Left::Full));
        // In truth there is room.
        sender.outbox().writable().await;
        let sent = send(&mut sender, &datagrams[4..]);
        assert_eq!((sent.datagrams, sent.left), (26, Left::Nothing));
        let received = receive_many(&mut receiver, 30).await;
        assert_eq!(received.len(), 30);
        for (received, (transmit, bytes)) in received.iter().zip(&datagrams) {
            assert_eq!((&received.bytes, received.ecn), (bytes, transmit.ecn));
        }
        assert_eq!(sender.losses(), Losses::default());
        assert!(sender.outbox().held_until().is_none());
    });
}

#[test]
fn what_waits_one_by_one_goes_on_where_it_stopped() {
    run(async {
        let (mut receiver, mut sender) = (bind(HOSTS[0]), bind(HOSTS[0]));
        let (from, to) = (local(&sender), local(&receiver));
        sender.outbox().pretend_segments(8);
        let again = errno(Errno::AGAIN);
        // The row is refused, two go alone, then there is no room; the rest of the row is refused as well.
        let script = [errno(Errno::IO), None, None, again, None];
        sender.outbox().script(from, &script);
        let plain = transmit(from, to, Ecn::Ect1);
        let datagrams: Vec<_> = (0..8u8).map(|i| (plain, vec![i; 60])).collect();
        assert_eq!(send(&mut sender, &datagrams).left, Left::Full);
        assert_eq!(sender.outbox().most_segments(), 1);
        assert_eq!(send(&mut sender, &[]).left, Left::Nothing);
        let received = receive_many(&mut receiver, 8).await;
        let bytes: Vec<_> = received.iter().map(|received| received.bytes[0]).collect();
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(sender.losses(), Losses::default());
    });
}

#[test]
fn a_socket_that_stays_full_holds_up_nobody_else() {
    run(async {
        let settings = Settings {
            hold: Duration::ZERO,
            ..Settings::default()
        };
        let here = [HOSTS[0].parse().unwrap()];
        let mut sender = Sockets::bind_all(&here, &settings).unwrap();
        let mut receiver = bind(HOSTS[0]);
        let (from, to) = (local(&sender), local(&receiver));
        let other = free(HOSTS[0]);
        let stuck = (transmit(from, to, Ecn::Ect0), vec![1; 10]);
        let fine = (transmit(other, to, Ecn::Ect0), vec![2; 10]);
        sender.outbox().script(from, &[errno(Errno::AGAIN); 2]);
        let both = [stuck.clone(), fine.clone(), stuck.clone(), fine.clone()];
        assert_eq!(send(&mut sender, &both).left, Left::Nothing);
        assert_eq!(sender.losses(), some(|losses| losses.full = 2));
        assert_eq!(receive_many(&mut receiver, 2).await.len(), 2);
        // It has room again.
        send(&mut sender, &[stuck]);
        assert_eq!(receive_many(&mut receiver, 1).await[0].from, from);
        assert_eq!(sender.losses(), some(|losses| losses.full = 2));
    });
}

/// An interface that stands still has many source ports; it is waited for once, not once for each of them.
#[test]
fn an_address_that_stays_full_is_waited_for_once_for_all_its_ports() {
    run(async {
        let settings = Settings {
            // Long enough that it is not over between two looks at the clock.
            hold: Duration::from_millis(100),
            ..Settings::default()
        };
        let here = ["127.0.0.1:0", "127.0.0.2:0"].map(|host| host.parse().unwrap());
        let mut sender = Sockets::bind_all(&here, &settings).unwrap();
        let mut receiver = bind(HOSTS[0]);
        let to = local(&receiver);
        let [a, b, quiet] = [(); 3].map(|()| free(HOSTS[0]));
        let other = sender.locals().nth(1).unwrap();
        let again = errno(Errno::AGAIN);
        let send = |sender: &mut Sockets, from, script: &[Option<i32>]| {
            sender.outbox().script(from, script);
            super::send(sender, &[(transmit(from, to, Ecn::Ect0), vec![1; 10])]).left
        };
        assert_eq!(send(&mut sender, a, &[again, again]), Left::Full);
        let until = sender.outbox().held_until().unwrap();
        Timer::new().unwrap().wait_until(until).await.unwrap();
        assert_eq!(super::send(&mut sender, &[]).left, Left::Nothing);
        // The other ports of the address have used up their patience with it.
        for _ in 0..2 {
            assert_eq!(send(&mut sender, b, &[again]), Left::Nothing);
            assert_eq!(send(&mut sender, a, &[again]), Left::Nothing);
            // One that has not been full shows nothing by having room.
            assert_eq!(send(&mut sender, quiet, &[None]), Left::Nothing);
        }
        assert_eq!(sender.losses(), some(|losses| losses.full = 5));
        // Another address is waited for.
        assert_eq!(send(&mut sender, other, &[again]), Left::Full);
        assert_eq!(super::send(&mut sender, &[]).left, Left::Nothing);
        // So is this one, on every port, when one that was full has taken something.
        assert_eq!(send(&mut sender, b, &[None]), Left::Nothing);
        assert_eq!(send(&mut sender, a, &[again]), Left::Full);
        assert_eq!(super::send(&mut sender, &[]).left, Left::Nothing);
        assert_eq!(receive_many(&mut receiver, 5).await.len(), 5);
        assert_eq!(sender.losses(), some(|losses| losses.full = 5));
    });
}

#[test]
fn what_may_wait_for_ever_waits_for_room_alone() {
    run(async {
        let settings = Settings {
            hold: Duration::MAX,
            receive_buffer: usize::MAX,
            ..Settings::default()
        };
        let here = [HOSTS[0].parse().unwrap()];
        let mut sender = Sockets::bind_all(&here, &settings).unwrap();
        let mut receiver = bind(HOSTS[0]);
        let (from, to) = (local(&sender), local(&receiver));
        sender.outbox().script(from, &[errno(Errno::AGAIN)]);
        let one = [(transmit(from, to, Ecn::Ect0), vec![1])];
        assert_eq!(send(&mut sender, &one).left, Left::Full);
        assert_eq!(sender.outbox().held_until(), None);
        sender.outbox().writable().await;
        assert_eq!(send(&mut sender, &[]).left, Left::Nothing);
        assert_eq!(receive_many(&mut receiver, 1).await.len(), 1);
        assert_eq!(sender.losses(), Losses::default());
    });
}

/// The system counts the bytes of a buffer in an int: more than that is as much as there is, and not little.
#[test]
fn a_receive_buffer_beyond_all_bounds_is_as_large_as_the_system_allows() {
    run(async {
        let size = |receive_buffer| {
            let settings = Settings {
                receive_buffer,
                ..Settings::default()
            };
            let here = [HOSTS[0].parse().unwrap()];
            let mut sockets = Sockets::bind_all(&here, &settings).unwrap();
            sockets.inbox().receive_buffer().unwrap()
        };
        let most = size(i32::MAX as usize);
        for asked in [1 << 32, usize::MAX] {
            assert_eq!(size(asked), most);
        }
    });
}

#[test]
fn after_its_time_a_socket_is_not_waited_for_until_it_takes_something() {
    run(async {
        let settings = Settings {
            // Long enough that it is not over between two looks at the clock.
            hold: Duration::from_millis(100),
            ..Settings::default()
        };
        let here = [HOSTS[0].parse().unwrap()];
        let mut sender = Sockets::bind_all(&here, &settings).unwrap();
        let mut receiver = bind(HOSTS[0]);
        let (from, to) = (local(&sender), local(&receiver));
        let one = [(transmit(from, to, Ecn::Ect0), vec![1; 10])];
        let again = errno(Errno::AGAIN);
        let send = |sender: &mut Sockets, script: &[Option<i32>]| {
            sender.outbox().script(from, script);
            super::send(sender, &one).left
        };
        assert_eq!(send(&mut sender, &[again, again]), Left::Full);
        let until = sender.outbox().held_until().unwrap();
        Timer::new().unwrap().wait_until(until).await.unwrap();
        assert_eq!(super::send(&mut sender, &[]).left, Left::Nothing);
        assert_eq!(sender.losses(), some(|losses| losses.full = 1));
        // No more patience with it.
        assert_eq!(send(&mut sender, &[again]), Left::Nothing);
        assert_eq!(sender.losses(), some(|losses| losses.full = 2));
        // It takes something, and is waited for again.
        assert_eq!(send(&mut sender, &[None]), Left::Nothing);
        assert_eq!(send(&mut sender, &[again]), Left::Full);
        assert_eq!(super::send(&mut sender, &[]).left, Left::Nothing);
        assert_eq!(receive_many(&mut receiver, 2).await.len(), 2);
        assert_eq!(sender.losses(), some(|losses| losses.full = 2));
    });
}

#[test]
fn a_full_receive_socket_loses_packets_and_nothing_else() {
    run(async {
        let settings = Settings {
            receive_buffer: 1,
            ..Settings::default()
        };
        let here = [HOSTS[0].parse().unwrap()];
        let mut receiver = Sockets::bind_all(&here, &settings).unwrap();
        let mut sender = bind(HOSTS[0]);
        let plain = transmit(local(&sender), local(&receiver), Ecn::Ect0);
        for round in 0..3u8 {
            // One by one, because a joined row is taken or dropped as a whole.
            for i in 0..100 {
                send(&mut sender, &[(plain, vec![round, i])]);
            }
            assert_eq!(sender.losses(), Losses::default());
            let received = receive_many(&mut receiver, 1).await;
            assert!(received.len() < 100, "{}", received.len());
            assert_eq!(received[0].bytes, [round, 0]);
        }
        assert_eq!(receiver.losses(), Losses::default());
    });
}

/// What is sent to a source port is never read, and must not stop it from sending.
#[test]
fn what_comes_to_a_source_port_is_in_nobodys_way() {
    run(async {
        let (mut receiver, mut sender) = (bind(HOSTS[0]), bind(HOSTS[0]));
        let (source, to) = (free(HOSTS[0]), local(&receiver));
        let out = (transmit(source, to, Ecn::Ect0), vec![1]);
        send(&mut sender, std::slice::from_ref(&out));
        let back = (transmit(to, source, Ecn::Ect0), vec![0; 1000]);
        for _ in 0..200 {
            send(&mut receiver, std::slice::from_ref(&back));
        }
        send(&mut sender, &[out]);
        assert_eq!(receive_many(&mut receiver, 2).await.len(), 2);
        assert_eq!(sender.losses(), Losses::default());
    });
}
