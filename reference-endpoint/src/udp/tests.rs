//! On the loopback interface, as an ordinary user.

use std::time::{Duration, Instant};

use super::*;

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(20), test)
            .await
            .unwrap()
    })
}

async fn receive_many(sockets: &mut Sockets, count: usize) -> Vec<Received> {
    let mut all = Vec::new();
    while all.len() < count {
        sockets.readable().await;
        all.extend(sockets.receive());
    }
    all
}

#[test]
fn every_mark_of_a_burst_survives() {
    run(async {
        let mut receiver = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut sender = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let marks = [Ecn::Ce, Ecn::Ect0, Ecn::NotEct, Ecn::Ect1, Ecn::Ce, Ecn::Ce];
        for i in 0..90u8 {
            let transmit = Transmit {
                src_ip: std::net::Ipv4Addr::LOCALHOST.into(),
                src_port: sender.local().port(),
                dst: receiver.local(),
                ecn: marks[usize::from(i) % marks.len()],
            };
            sender.send(&transmit, &[i; 100]);
        }
        assert_eq!(sender.losses(), Losses::default());
        let received = receive_many(&mut receiver, 90).await;
        for (i, received) in received.iter().enumerate() {
            assert_eq!(received.bytes, [i as u8; 100]);
            assert_eq!(received.ecn, marks[i % marks.len()], "datagram {i}");
            assert_eq!(received.from, sender.local());
        }
    });
}

/// The system joins datagrams into one receive when they were sent as one; the mark and the borders must survive that.
#[test]
fn every_mark_of_a_joined_burst_survives() {
    run(async {
        let mut receiver = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let sender = Source::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let joined: Vec<u8> = (0..20u8).flat_map(|i| [i; 500]).collect();
        for (round, mark) in [EcnCodepoint::Ce, EcnCodepoint::Ect0]
            .into_iter()
            .enumerate()
        {
            let datagram = quinn_udp::Transmit {
                destination: receiver.local(),
                ecn: Some(mark),
                contents: &joined,
                segment_size: (sender.state.max_gso_segments() >= 20).then_some(500),
                src_ip: None,
            };
            if datagram.segment_size.is_none() {
                eprintln!("this system does not join datagrams: nothing to test");
                return;
            }
            sender.send(&datagram).unwrap();
            let received = receive_many(&mut receiver, 20).await;
            assert_eq!(received.len(), 20, "round {round}");
            for (i, received) in received.iter().enumerate() {
                assert_eq!(received.bytes, [i as u8; 500]);
                assert_eq!(received.ecn, from_codepoint(Some(mark)), "datagram {i}");
            }
        }
    });
}

#[test]
fn sends_from_the_port_that_is_named() {
    run(async {
        let mut receiver = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut sender = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // A port that is free: the system has just given it, and takes it back.
        let free = std::net::UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut transmit = Transmit {
            src_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            src_port: free.port(),
            dst: receiver.local(),
            ecn: Ecn::Ect0,
        };
        sender.send(&transmit, b"one");
        assert_eq!(receive_many(&mut receiver, 1).await[0].from, free);
        // A port that somebody else has: what is sent from it is lost, and nothing else.
        transmit.src_port = receiver.local().port();
        sender.send(&transmit, b"lost");
        sender.send(&transmit, b"lost");
        transmit.src_port = free.port();
        sender.send(&transmit, b"two");
        assert_eq!(receive_many(&mut receiver, 1).await[0].bytes, b"two");
        let losses = Losses {
            unbound: 2,
            ..Losses::default()
        };
        assert_eq!(sender.losses(), losses);
    });
}

#[test]
fn what_the_system_refuses_is_lost() {
    run(async {
        let mut sender = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let transmit = Transmit {
            src_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            src_port: sender.local().port(),
            dst: "127.0.0.1:9".parse().unwrap(),
            ecn: Ecn::NotEct,
        };
        sender.send(&transmit, &vec![0; 70_000]);
        assert_eq!(sender.losses().refused, 1);
    });
}

#[test]
fn the_timer_is_finer_than_a_millisecond() {
    run(async {
        let mut timer = Timer::new().unwrap();
        let mut shortest = Duration::MAX;
        for _ in 0..20 {
            let start = Instant::now();
            timer.wait(Duration::from_micros(100)).await.unwrap();
            let took = start.elapsed();
            assert!(took >= Duration::from_micros(100));
            shortest = shortest.min(took);
        }
        // The machine may be busy; twenty times in a row it is not.
        assert!(shortest < Duration::from_millis(1), "{shortest:?}");
        let start = Instant::now();
        tokio::select! {
            _ = timer.wait(Duration::from_secs(30)) => panic!("too early"),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
        timer.wait(Duration::ZERO).await.unwrap();
        assert!(start.elapsed() < Duration::from_secs(5));
    });
}
