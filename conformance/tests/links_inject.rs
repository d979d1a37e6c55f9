//! What each action makes of a packet, and which packets a rule finds.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod links;

use links::rules;
use links::traffic::{Maker, Sent};
use metaroce_conformance::inject::{Decision, Delivery, Injector};
use metaroce_conformance::trace::Side;
use metaroce_wire::crc;
use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::parse;

const MS: u64 = 1_000_000;

/// An injector that has seen the set-up, and the makers of both sides.
fn bench(text: &str, seed: u64) -> (Injector, Maker, Maker) {
    let [a, b] = Maker::pair();
    let mut injector = Injector::new(rules(text), seed);
    for (side, sent) in [
        (Side::A, a.open()),
        (Side::B, b.accept()),
        (Side::A, a.stream_open()),
    ] {
        injector.decide(0, side, &sent.frame());
    }
    (injector, a, b)
}

fn decide(injector: &mut Injector, now: u64, maker: &Maker, sent: &Sent) -> Decision {
    injector.decide(now, maker.side, &sent.frame())
}

fn untouched(sent: &Sent, from: Side) -> Delivery {
    Delivery {
        delay_ns: 0,
        ecn: sent.ecn,
        bytes: sent.bytes.clone(),
        src: sent.src,
        dst: sent.dst,
        from,
        stranger: false,
    }
}

fn names(decision: &Decision) -> Vec<(&str, &str)> {
    let notes = decision.notes.iter();
    notes
        .map(|note| (note.rule.as_str(), note.action.as_str()))
        .collect()
}

fn psns(deliveries: &[Delivery]) -> Vec<u32> {
    let header = |delivery: &Delivery| metaroce_wire::metaroce::parse_lax(&delivery.bytes).cbh;
    deliveries
        .iter()
        .map(|delivery| {
            header(delivery)
                .unwrap()
                .psn
                .value()
                .wrapping_sub(links::traffic::ISN[0])
        })
        .collect()
}

/// The packets out of a row of data, retransmissions and acknowledgments on which a rule acts.
fn found(matching: &str) -> Vec<String> {
    let (mut injector, a, b) = bench(
        &format!("[{{id: x, match: {matching}, action: {{delay: 1ms}}}}]"),
        1,
    );
    let mut all = Vec::new();
    for maker in [a, b] {
        for path in 0..2 {
            for n in 0..6 {
                all.push((
                    maker,
                    format!("{}{path}.{n}", maker.side),
                    maker.write(path, n, false),
                ));
            }
            all.push((
                maker,
                format!("{}{path}.2r", maker.side),
                maker.write(path, 2, true),
            ));
            all.push((
                maker,
                format!("{}{path}ack", maker.side),
                maker.ack(path, 2),
            ));
        }
    }
    let mut found = Vec::new();
    for (maker, name, sent) in all {
        if !decide(&mut injector, 0, &maker, &sent).notes.is_empty() {
            found.push(name);
        }
    }
    found
}

#[test]
fn rules_find_packets_by_identity() {
    assert_eq!(found("{from: a, class: data, path: 1, psn: 3}"), ["a1.3"]);
    assert_eq!(found("{from: b, path: 0, psn: '4..9'}"), ["b0.4", "b0.5"]);
    assert_eq!(
        found("{path: 0, psn: [0, 5]}"),
        ["a0.0", "a0.5", "b0.0", "b0.5"]
    );
    assert_eq!(found("{from: a, path: 0, psn: 2}"), ["a0.2", "a0.2r"]);
    assert_eq!(
        found("{from: a, path: 0, psn: 2, transmission: 2}"),
        ["a0.2r"]
    );
    assert_eq!(found("{from: a, path: 0, rtx: true}"), ["a0.2r"]);
    assert_eq!(found("{from: a, class: [ack, nak]}"), ["a0ack", "a1ack"]);
    assert_eq!(found("{from: a, path: 0, msn: 1}"), ["a0.4", "a0.5"]);
    assert_eq!(
        found("{from: a, path: 0, offset: 3072, stream: 2}"),
        ["a0.3"]
    );
    assert_eq!(found("{stream: 4}"), [] as [&str; 0]);
    assert_eq!(found("{opcode: ACK, from: b, path: 1}"), ["b1ack"]);
    assert_eq!(found("{class: any}").len(), 32);
}

#[test]
fn psn_rules_wait_for_the_set_up_and_do_not_believe_a_broken_one() {
    let [a, _] = Maker::pair();
    let text = "[{id: x, match: {psn: 0}, action: drop, times: 1}]";
    let mut injector = Injector::new(rules(text), 1);
    let first = a.write(0, 0, false);
    assert_eq!(decide(&mut injector, 0, &a, &first).deliveries.len(), 1);
    let mut broken = a.open();
    broken.bytes[50] ^= 1;
    decide(&mut injector, 0, &a, &broken);
    assert_eq!(decide(&mut injector, 0, &a, &first).deliveries.len(), 1);
    decide(&mut injector, 0, &a, &a.open());
    assert_eq!(decide(&mut injector, 0, &a, &first).deliveries.len(), 0);
}

#[test]
fn nothing_else_changes_what_no_rule_names() {
    let (mut injector, a, b) = bench("[{id: x, match: {from: b}, action: mark_ce}]", 1);
    let sent = a.write(0, 0, false);
    let decision = decide(&mut injector, 0, &a, &sent);
    assert_eq!(decision.deliveries, [untouched(&sent, Side::A)]);
    let acknowledgment = b.ack(0, 1);
    let decision = decide(&mut injector, 0, &b, &acknowledgment);
    // Not ECN-capable: it cannot be marked, and so the rule has not acted.
    assert_eq!(decision.deliveries, [untouched(&acknowledgment, Side::B)]);
    assert_eq!((names(&decision), injector.counts()[0].fired), (vec![], 0));
    for len in 0..20 {
        let mut short = a.write(0, 0, false);
        short.bytes.truncate(len);
        let decision = decide(&mut injector, 0, &a, &short);
        assert_eq!(decision.deliveries, [untouched(&short, Side::A)]);
    }
}

#[test]
fn every_action_does_what_it_says() {
    let one = |action: &str| {
        let text =
            format!("[{{id: x, match: {{from: a, psn: 0, transmission: 1}}, action: {action}}}]");
        let (mut injector, a, _) = bench(&text, 1);
        let sent = a.write(0, 0, false);
        let decision = decide(&mut injector, 0, &a, &sent);
        assert_eq!(decision.notes.len(), 1, "{action}");
        (decision.deliveries, untouched(&sent, Side::A), sent)
    };
    let (out, _, _) = one("drop");
    assert_eq!(out, []);
    let (out, whole, _) = one("{delay: 2ms}");
    assert_eq!(
        out,
        [Delivery {
            delay_ns: 2 * MS,
            ..whole
        }]
    );
    let (out, whole, _) = one("{duplicate: {after: 1ms}}");
    assert_eq!(
        out,
        [
            whole.clone(),
            Delivery {
                delay_ns: MS,
                ..whole
            }
        ]
    );
    let (out, whole, _) = one("mark_ce");
    assert_eq!(
        out,
        [Delivery {
            ecn: Ecn::Ce,
            ..whole
        }]
    );
    let (out, whole, _) = one("clear_ecn");
    assert_eq!(
        out,
        [Delivery {
            ecn: Ecn::NotEct,
            ..whole
        }]
    );
    let (out, mut whole, _) = one("{truncate: 40B}");
    whole.bytes.truncate(40);
    assert_eq!(out, [whole]);
    let (out, mut whole, _) = one("{source_port: 4000}");
    whole.src.set_port(4000);
    assert_eq!(out, [whole]);
    let (out, whole, _) = one("stranger");
    assert_eq!(
        out,
        [Delivery {
            stranger: true,
            ..whole
        }]
    );
    let (out, mut whole, sent) = one("{corrupt: {byte: 60, bit: 3}}");
    whole.bytes[60] ^= 8;
    assert_eq!(out, [whole]);
    assert!(crc::verify(&sent.frame().pseudo_header(), &out[0].bytes).is_err());
    let (out, whole, sent) = one("{corrupt: {byte: 60, bit: 3, reseal: true}}");
    assert_eq!(out[0].bytes[60], whole.bytes[60] ^ 8);
    assert!(parse(&out[0].bytes, &sent.frame().pseudo_header()).is_ok());
}

#[test]
fn rules_act_together_until_one_loses_the_packet() {
    let text = "[{id: late, match: {psn: 0}, action: {delay: 1ms}},
                 {id: twice, match: {psn: 0}, action: {duplicate: {after: 1ms}}},
                 {id: again, match: {psn: 0}, action: {duplicate: {after: 3ms}}},
                 {id: lost, match: {psn: 0, path: 1}, times: 1, action: drop},
                 {id: marked, match: {psn: 0}, action: mark_ce}]";
    let (mut injector, a, _) = bench(text, 1);
    let decision = decide(&mut injector, 0, &a, &a.write(0, 0, false));
    let delays: Vec<u64> = decision.deliveries.iter().map(|d| d.delay_ns).collect();
    assert_eq!(delays, [MS, 2 * MS, 4 * MS]);
    assert!(decision.deliveries.iter().all(|d| d.ecn == Ecn::Ce));
    // A packet that is lost has not been doubled, and nothing acts on it afterwards.
    let decision = decide(&mut injector, 0, &a, &a.write(1, 0, false));
    assert_eq!(names(&decision), [("late", "delay"), ("lost", "drop")]);
    let fired: Vec<u64> = injector.counts().iter().map(|count| count.fired).collect();
    assert_eq!(fired, [2, 1, 1, 1, 1]);
}

#[test]
fn what_is_lost_or_late_overtakes_nothing() {
    let text = "[{id: back, match: {path: 0, psn: 0}, action: {reorder: {behind: 2}}},
                 {id: lost, match: {path: 0, psn: 1}, times: 1, action: drop},
                 {id: late, match: {path: 0, psn: 2}, action: {delay: 9ms}}]";
    let (mut injector, a, b) = bench(text, 1);
    let mut send = |maker: &Maker, sent: Sent| decide(&mut injector, 0, maker, &sent).deliveries;
    assert_eq!(send(&a, a.write(0, 0, false)), []);
    assert_eq!(send(&a, a.write(0, 1, false)), []);
    assert_eq!(psns(&send(&a, a.write(0, 2, false))), [2]);
    // Neither another path, nor another direction, nor an acknowledgment counts.
    assert_eq!(psns(&send(&a, a.write(1, 3, false))), [3]);
    assert_eq!(send(&b, b.write(0, 3, false)).len(), 1);
    assert_eq!(send(&a, a.ack(0, 3)).len(), 1);
    assert_eq!(psns(&send(&a, a.write(0, 3, false))), [3]);
    assert_eq!(psns(&send(&a, a.write(0, 4, false))), [4, 0]);
    assert_eq!(injector.held(), [0, 0]);
    assert_eq!(injector.counts()[0].at_least, 1);
}

#[test]
fn nothing_is_held_for_ever_and_a_vain_hold_is_no_stimulus() {
    let text = "[{id: back, match: {psn: 0}, action: {reorder: {behind: 1, at_most: 3ms}}}]";
    let (mut injector, a, _) = bench(text, 1);
    assert_eq!(injector.deadline(), None);
    let sent = a.write(0, 0, false);
    assert_eq!(decide(&mut injector, MS, &a, &sent).deliveries, []);
    assert_eq!(
        (injector.deadline(), injector.held()),
        (Some(4 * MS), [1, 0])
    );
    assert_eq!(injector.expired(4 * MS - 1), []);
    assert_eq!(injector.expired(4 * MS), [untouched(&sent, Side::A)]);
    assert_eq!((injector.deadline(), injector.held()), (None, [0, 0]));
    let count = &injector.counts()[0];
    assert!(count.fired < count.at_least);
}

#[test]
fn a_packet_waits_for_the_one_that_its_rule_describes() {
    let text = "[{id: wait, match: {from: a, path: 0, psn: 1},
                  action: {hold_until: {packet: {from: b, class: ack}, at_most: 5ms}}},
                 {id: marked, match: {from: a, path: 0, psn: 1}, action: mark_ce}]";
    let (mut injector, a, b) = bench(text, 1);
    let held = a.write(0, 1, false);
    assert_eq!(decide(&mut injector, 0, &a, &held).deliveries, []);
    assert_eq!(
        decide(&mut injector, 0, &a, &a.ack(0, 1)).deliveries.len(),
        1
    );
    assert_eq!(
        decide(&mut injector, 0, &b, &b.write(0, 1, false))
            .deliveries
            .len(),
        1
    );
    let released = decide(&mut injector, 0, &b, &b.ack(0, 1)).deliveries;
    let marked = Delivery {
        ecn: Ecn::Ce,
        ..untouched(&held, Side::A)
    };
    assert_eq!(released[1..], [marked]);
}

#[test]
fn chance_depends_on_identity_and_seed_alone() {
    let text = "[{id: x, match: {class: data}, chance: 20%, action: drop}]";
    let lost = |isn: u32, seed: u64, backwards: bool| {
        let [mut a, _] = Maker::pair();
        a.isn = isn;
        let mut injector = Injector::new(rules(text), seed);
        decide(&mut injector, 0, &a, &a.open());
        let mut numbers: Vec<u32> = (0..1000).collect();
        if backwards {
            numbers.reverse();
        }
        numbers.retain(|n| {
            decide(&mut injector, 0, &a, &a.write(0, *n, false))
                .deliveries
                .is_empty()
        });
        numbers.sort_unstable();
        numbers
    };
    let first = lost(5, 1, false);
    assert!((120..280).contains(&first.len()), "{}", first.len());
    assert_eq!(first, lost(5, 1, true), "the order does not matter");
    assert_eq!(first, lost(0xffff_ff00, 1, false), "nor does the first PSN");
    assert_ne!(first, lost(5, 2, false), "the seed does");
}

#[test]
fn a_retransmission_draws_anew() {
    let text = "[{id: x, match: {class: data}, chance: 50%, action: drop}]";
    let (mut injector, a, _) = bench(text, 3);
    let mut fate = |n| {
        decide(&mut injector, 0, &a, &a.write(0, n, false))
            .deliveries
            .is_empty()
    };
    let twice: Vec<(bool, bool)> = (0..200).map(|n| (fate(n), fate(n))).collect();
    for both in [(false, false), (false, true), (true, false), (true, true)] {
        assert!(twice.contains(&both), "{both:?}");
    }
}
