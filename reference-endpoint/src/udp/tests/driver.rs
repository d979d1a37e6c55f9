//! The driver: its turns, its waits, and a whole run with its end.

use std::rc::Rc;
use std::time::Instant;

use tokio::sync::Notify;

use super::*;
use crate::adapter::Engine;
use crate::core::{Access, Buffer, Config, Endpoint, Event, Service, Status};

/// Answers what it is asked: one datagram that tells how many it has seen since the last.
#[derive(Default)]
struct Counting {
    peer: Option<(SocketAddr, SocketAddr)>,
    seen: u8,
    in_all: usize,
    /// Datagrams that it sends without being asked.
    unasked: usize,
    due: Option<u64>,
    timeouts: usize,
}

impl Party for Counting {
    fn on_datagram(&mut self, _: u64, to: IpAddr, from: SocketAddr, _: Ecn, _: &[u8]) {
        let port = self.peer.map_or(0, |(own, _)| own.port());
        self.peer = Some((SocketAddr::new(to, port), from));
        self.seen += 1;
        self.in_all += 1;
    }
    fn on_timeout(&mut self, _: u64) {
        self.due = None;
        self.timeouts += 1;
    }
    fn next_transmit(&mut self, _: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.seen == 0 {
            self.unasked = self.unasked.checked_sub(1)?;
        }
        let (own, peer) = self.peer?;
        out.push(std::mem::take(&mut self.seen));
        Some(transmit(own, peer, Ecn::Ect0))
    }
    fn next_timeout(&self) -> Option<u64> {
        self.due
    }
}

fn driver(pace: Pace) -> (Driver, SocketAddr) {
    let sockets = bind(HOSTS[0]);
    let here = local(&sockets);
    let mut driver = Driver::new(pace).unwrap();
    driver.set_sockets(Some(sockets));
    (driver, here)
}

#[test]
fn each_datagram_draws_its_own_answer_where_that_is_asked() {
    run(async {
        for answer_each in [true, false] {
            let pace = Pace {
                answer_each,
                ..Pace::default()
            };
            let (mut driver, here) = driver(pace);
            let mut peer = bind(HOSTS[0]);
            let plain = transmit(local(&peer), here, Ecn::Ect0);
            send(&mut peer, &vec![(plain, vec![1; 10]); 5]);
            let mut party = Counting {
                peer: Some((here, here)),
                ..Counting::default()
            };
            while party.in_all < 5 {
                driver.wait(None, false).await.unwrap();
                assert!(!driver.turn(&mut party));
            }
            let answers = if answer_each { vec![1; 5] } else { vec![5] };
            let received = receive_many(&mut peer, answers.len()).await;
            let seen: Vec<_> = received.iter().map(|received| received.bytes[0]).collect();
            assert_eq!(seen, answers);
        }
    });
}

#[test]
fn neither_direction_starves_the_other() {
    run(async {
        for answer_each in [true, false] {
            let pace = Pace {
                receive: 8,
                send: 16,
                answer_each,
            };
            let (mut driver, here) = driver(pace);
            let mut peer = bind(HOSTS[0]);
            let plain = transmit(local(&peer), here, Ecn::Ect0);
            let mut party = Counting {
                peer: Some((here, local(&peer))),
                unasked: usize::MAX,
                ..Counting::default()
            };
            for i in 0..200usize {
                send(&mut peer, &[(plain, vec![i as u8; 10 + i])]);
            }
            let mut turns = 0;
            while party.in_all < 200 {
                driver.wait(None, turns > 0).await.unwrap();
                assert!(driver.turn(&mut party));
                turns += 1;
                // One call to the system brings what it brings, and no second one follows.
                assert!(party.in_all <= turns * 32, "{} in {turns}", party.in_all);
            }
            let sent = usize::MAX - party.unasked;
            assert!(sent <= turns * 32, "{sent} in {turns} turns");
            assert!(sent >= turns);
        }
    });
}

#[test]
fn a_wait_ends_by_whatever_comes_first() {
    run(async {
        let (mut driver, here) = driver(Pace::default());
        let mut peer = bind(HOSTS[0]);
        let plain = transmit(local(&peer), here, Ecn::Ect0);
        let far = Some(driver.now() + 3_600_000_000_000);
        // A wake-up, before or while it waits.
        let handle = driver.handle();
        handle.wake();
        driver.wait(far, false).await.unwrap();
        let (woken, ()) = tokio::join!(driver.wait(far, false), async { handle.wake() });
        woken.unwrap();
        // A datagram.
        send(&mut peer, &[(plain, vec![1])]);
        driver.wait(far, false).await.unwrap();
        let mut party = Counting::default();
        assert!(!driver.turn(&mut party));
        assert_eq!(party.in_all, 1);
        assert_eq!(receive_many(&mut peer, 1).await[0].bytes, [1]);
        // What is due, and no sooner, also when it was to be later or sooner before.
        for micros in [500, 100, 900] {
            let due = driver.now() + micros * 1000;
            party.due = Some(due);
            driver.wait(Some(due), false).await.unwrap();
            assert!(driver.now() >= due);
            driver.turn(&mut party);
        }
        assert_eq!(party.timeouts, 3);
        // Room for what is held back.
        let script = [Some(rustix::io::Errno::AGAIN.raw_os_error())];
        let settings = Settings {
            hold: Duration::from_secs(3600),
            ..Settings::default()
        };
        let own = [HOSTS[0].parse().unwrap()];
        let mut sockets = Sockets::bind_all(&own, &settings).unwrap();
        let from = local(&sockets);
        sockets.outbox().script(from, &script);
        send(
            &mut sockets,
            &[(transmit(from, local(&peer), Ecn::Ce), vec![3])],
        );
        driver.set_sockets(Some(sockets));
        driver.wait(far, false).await.unwrap();
        driver.turn(&mut party);
        assert_eq!(receive_many(&mut peer, 1).await[0].bytes, [3]);
        assert_eq!(driver.sockets().unwrap().losses(), Losses::default());
        // Without sockets it still has its timer and its handle.
        driver.set_sockets(None);
        let due = driver.now() + 1000;
        driver.wait(Some(due), false).await.unwrap();
        assert!(driver.now() >= due);
        driver.handle().wake();
        driver.wait(None, false).await.unwrap();
        assert!(!driver.turn(&mut party));
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
        // A time that was set and not waited for ends no later wait, and no longer one holds up a shorter.
        timer.wait(Duration::from_micros(50)).await.unwrap();
        assert!(start.elapsed() < Duration::from_secs(5));
        tokio::select! {
            biased;
            _ = timer.wait(Duration::from_micros(20)) => {}
            () = std::future::ready(()) => {}
        }
        let due = Instant::now() + Duration::from_millis(2);
        timer.wait_until(due).await.unwrap();
        assert!(Instant::now() >= due);
    });
}

/// Writes what it is told to, then stops, or waits for somebody else to.
#[derive(Default)]
struct Writer {
    conn: u32,
    to: Option<(u64, u32)>,
    writes: u64,
    posted: u64,
    done: u64,
    events: Vec<Event>,
    stops: bool,
    said_stop: bool,
    established: Option<Rc<Notify>>,
}

const LEN: usize = 1 << 20;

impl Application<Endpoint> for Writer {
    fn on_event(&mut self, _: &mut Endpoint, _: u64, event: Event) {
        if let Event::Completion(done) = &event {
            assert_eq!(done.status, Status::Success);
            self.done += 1;
        }
        if let (Event::Established { .. }, Some(notify)) = (&event, &self.established) {
            notify.notify_one();
        }
        self.events.push(event);
    }
    fn act(&mut self, engine: &mut Endpoint, now: u64) -> Act {
        assert!(!self.said_stop, "it has said stop");
        let established = self
            .events
            .iter()
            .any(|event| matches!(event, Event::Established { .. }));
        if let Some((va, rkey)) = self.to
            && established
            && self.posted < self.writes
            && self.posted < self.done + 2
        {
            let buffer = Buffer {
                mr: 1,
                offset: 0,
                len: LEN,
            };
            engine
                .post_write(now, self.conn, 0, self.posted, buffer, va, rkey)
                .unwrap();
            self.posted += 1;
            return Act::Again;
        }
        if self.stops && self.done == self.writes && established {
            self.said_stop = true;
            return Act::Stop;
        }
        Act::Wait
    }
}

fn endpoint(local: SocketAddr, seed: u64) -> Endpoint {
    Endpoint::new(config(local, seed)).unwrap()
}

fn config(local: SocketAddr, seed: u64) -> Config {
    Config {
        seed,
        source_ports: 20_000..20_004,
        max_connections: 4,
        max_regions: 4,
        ..Config::new(local)
    }
}

fn service() -> Service {
    Service {
        paths: 4,
        streams: 1,
        msg_window: 16,
        ..Service::default()
    }
}

/// Both on the same port, each on an address that no other test uses, nor another run of this one.
pub(super) fn pair(number: u8, pace: Pace) -> [(Driver, SocketAddr); 2] {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let hosts = [0, 1].map(|side| IpAddr::from([127, 1 + high % 250, low, 10 + 2 * number + side]));
    loop {
        let first = free(&format!("{}:0", hosts[0]));
        let here = hosts.map(|host| SocketAddr::new(host, first.port()));
        let bound = here.map(Sockets::bind);
        if bound.iter().all(Result::is_ok) {
            let drivers = bound.map(|sockets| {
                let mut driver = Driver::new(pace).unwrap();
                driver.set_sockets(sockets.ok());
                driver
            });
            let [a, b] = drivers;
            return [(a, here[0]), (b, here[1])];
        }
    }
}

#[test]
fn a_run_does_its_work_and_ends_in_order() {
    run(async {
        for (answer_each, number) in [(true, 1), (false, 2)] {
            let pace = Pace {
                answer_each,
                ..Pace::default()
            };
            let [(mut a, from), (mut b, to)] = pair(number, pace);
            let (mut initiator, mut acceptor) = (endpoint(from, 1), endpoint(to, 2));
            let access = Access {
                remote_write: true,
                ..Access::default()
            };
            let own = initiator.register(LEN, access).unwrap();
            let there = acceptor.register(LEN, access).unwrap();
            for (i, byte) in initiator.memory_mut(own.mr).unwrap().iter_mut().enumerate() {
                *byte = (i * 7 % 251) as u8;
            }
            acceptor.listen(service()).unwrap();
            let conn = initiator.connect(a.now(), to, service()).unwrap();
            let mut writer = Writer {
                conn,
                to: Some((there.va, there.rkey)),
                writes: 8,
                stops: true,
                ..Writer::default()
            };
            let mut idle = Writer::default();
            let stop = Stop {
                close: Duration::from_secs(3600),
                rest: Duration::ZERO,
            };
            let end = b.handle();
            let (stopped, served) = tokio::join!(
                async {
                    let stopped = a.run(&mut initiator, &mut writer, stop).await;
                    end.stop();
                    stopped
                },
                b.run(&mut acceptor, &mut idle, stop),
            );
            assert_eq!(stopped.unwrap(), Stopped { left_open: 0 });
            assert_eq!(served.unwrap(), Stopped { left_open: 0 });
            assert_eq!((writer.posted, writer.done), (8, 8));
            for events in [&writer.events, &idle.events] {
                assert!(
                    matches!(events.last(), Some(Event::Closed { .. })),
                    "{events:?}"
                );
            }
            assert_eq!(
                initiator.memory(own.mr).unwrap(),
                acceptor.memory(there.mr).unwrap()
            );
            for driver in [&a, &b] {
                assert_eq!(driver.sockets().unwrap().losses(), Losses::default());
            }
        }
    });
}

#[test]
fn a_run_ends_although_the_peer_is_dead() {
    run(async {
        let [(mut a, from), (mut b, to)] = pair(3, Pace::default());
        let (mut initiator, mut acceptor) = (endpoint(from, 1), endpoint(to, 2));
        acceptor.listen(service()).unwrap();
        let established = Rc::new(Notify::new());
        let mut writer = Writer {
            conn: initiator.connect(a.now(), to, service()).unwrap(),
            stops: true,
            established: Some(Rc::clone(&established)),
            ..Writer::default()
        };
        let mut idle = Writer::default();
        let stop = Stop {
            close: Duration::from_millis(1),
            rest: Duration::from_secs(3600),
        };
        let (stopped, ()) = tokio::join!(a.run(&mut initiator, &mut writer, stop), async {
            tokio::select! {
                biased;
                () = established.notified() => {}
                _ = b.run(&mut acceptor, &mut idle, stop) => panic!("nobody has stopped it"),
            }
        });
        assert_eq!(stopped.unwrap(), Stopped { left_open: 1 });
        // It had its turn once more after the event, said stop, and was not asked again.
        assert!(writer.said_stop);
    });
}

/// Any engine will do, and where it waits for nothing, nobody waits for it.
#[test]
fn a_run_of_an_engine_that_waits_for_nothing_ends_at_once() {
    struct Stopping;
    impl<E: Engine + ?Sized> Application<E> for Stopping {
        fn on_event(&mut self, _: &mut E, _: u64, _: Event) {}
        fn act(&mut self, _: &mut E, _: u64) -> Act {
            Act::Stop
        }
    }
    run(async {
        let (mut driver, here) = driver(Pace::default());
        let mutant = crate::mutants::by_id("null").unwrap();
        let mut engine = mutant.engine(config(here, 1)).unwrap();
        let stop = Stop {
            close: Duration::from_secs(3600),
            rest: Duration::from_secs(3600),
        };
        let stopped = driver.run(engine.as_mut(), &mut Stopping, stop).await;
        assert_eq!(stopped.unwrap(), Stopped { left_open: 0 });
    });
}

#[test]
fn a_run_that_is_stopped_does_not_wait_for_a_handshake() {
    run(async {
        let [(mut a, from), (_b, to)] = pair(4, Pace::default());
        let mut initiator = endpoint(from, 1);
        initiator.connect(a.now(), to, service()).unwrap();
        let mut writer = Writer::default();
        let handle = a.handle();
        let stop = Stop {
            close: Duration::from_secs(3600),
            rest: Duration::ZERO,
        };
        let (stopped, ()) = tokio::join!(a.run(&mut initiator, &mut writer, stop), async {
            handle.stop();
        });
        assert_eq!(stopped.unwrap(), Stopped { left_open: 0 });
        assert!(writer.events.is_empty());
    });
}
