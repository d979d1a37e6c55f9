//! What random runs have found once, each as small as it gets.

use crate::net::{Chosen, Dark, Outage};
use crate::plan::{Action, Kind, MS, Plan, Planned, Post, S, US};
use crate::run::play;
use crate::world::{World, take_notes};

fn passes(plan: Plan) {
    if let Err(what) = play(plan, None) {
        take_notes().iter().for_each(|line| println!("{line}"));
        panic!("{what}");
    }
}

fn quiet(theme: &'static str) -> Plan {
    Plan {
        theme,
        actions: Vec::new(),
        ..Plan::short()
    }
}

fn at(at: u64, side: usize, action: Action) -> Planned {
    Planned {
        at,
        conn: 0,
        side,
        pick: 0,
        action,
    }
}

fn write(len: usize) -> Action {
    Action::Post(Post {
        kind: Kind::Write,
        len,
        signalled: true,
        solicited: false,
        fence: false,
        inline: false,
        wrong: None,
    })
}

/// An acceptor that had never anything to do had no timer either, and kept a dead peer for ever (CONN-051).
#[test]
fn a_peer_that_dies_at_once_is_noticed() {
    let mut plan = quiet("restart");
    // The next connection waits for the end of this one.
    plan.conns.push(plan.conns[0].clone());
    plan.actions = vec![at(10 * US, 0, Action::Restart)];
    passes(plan);
}

/// Two PATH_RETIRE without an answer came to their end at the same time: the first ended the connection, and the second
/// was still taken for one of it.
#[test]
fn several_requests_without_an_answer_end_a_connection_once() {
    let mut plan = quiet("severed");
    plan.stop = 20 * S;
    plan.conns[0].services.iter_mut().for_each(|s| s.paths = 3);
    for path in 0..2 {
        plan.actions.push(at(10 * US, 0, Action::Retire { path }));
    }
    plan.link.outages.push(Outage {
        from: 0,
        until: u64::MAX / 2,
        of: Dark::All,
    });
    passes(plan);
}

/// Work that was posted after the CLOSE of the peer had come was flushed at once, before older work that was under way
/// (STRM-028).
#[test]
fn work_after_the_close_of_the_peer_waits_for_its_turn() {
    let mut plan = quiet("closing");
    plan.actions = vec![
        at(0, 1, write(60_000)),
        at(0, 0, Action::Close),
        at(250 * US, 1, write(300)),
    ];
    passes(plan);
}

/// A path whose plane had not been heard of counted as one that lives, so that the other one was given up when the first
/// answer came through it; but there was nothing to give it up for, and the connection failed (PATH-020).
#[test]
fn a_path_in_a_plane_that_is_not_open_lives_for_nobody() {
    let mut plan = quiet("outage");
    plan.planes = 1;
    plan.conns[0]
        .services
        .iter_mut()
        .for_each(|s| s.extra_planes = 1);
    plan.actions = vec![at(0, 1, write(300)), at(500 * US, 1, write(700))];
    // The first probes of the plane, on either side, and all that follows for a while.
    plan.link.chosen = Some(Chosen {
        first: 4,
        bits: 0b101,
        held: 0,
    });
    plan.link.outages.push(Outage {
        from: 450 * US,
        until: 240 * MS,
        of: Dark::All,
    });
    passes(plan);
}

/// A probe whose answer came after the 32 bits of its timestamp had come round was taken for one that was never sent, and
/// what the answer reported was sent again (REL-030, REL-051).
#[test]
fn an_answer_to_a_probe_counts_however_late_it_comes() {
    let mut plan = quiet("calm");
    plan.link.delay = MS;
    plan.actions = vec![
        at(0, 0, write(300)),
        at(50 * MS + 500 * US, 0, Action::Jump(5 * S)),
    ];
    plan.link.outages.push(Outage {
        from: 0,
        until: 40 * MS,
        of: Dark::From(1),
    });
    let mut world = World::new(plan, None);
    world.start();
    world.pass(6 * S);
    let counters = world.ends[0].counters(0).unwrap();
    assert!(
        counters.probes > 0 && counters.bad_acks == 0,
        "{counters:?}"
    );
}
