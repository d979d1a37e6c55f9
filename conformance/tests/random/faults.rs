//! What the link does to packets: rules as in any scenario, as many as chance wants.

use crate::chance::Chance;
use crate::draw::Frame;

/// The rules of a scenario, one a line; none for a link that only takes its time.
pub fn rules(frame: &Frame, chance: &mut Chance) -> String {
    let count = chance.pick(&[0, 1, 1, 2, 2, 3, 4, 6]);
    // Two such rules on one path could keep it dark for longer than a path may be.
    let mut dark = false;
    let mut text = String::new();
    if count > 0 && chance.is(60) {
        text += &losses(chance);
    }
    for n in 0..count {
        text += &match chance.below(14) {
            0 => lossy_path(n, frame, chance),
            1 => burst(n, frame, chance),
            2 if !std::mem::replace(&mut dark, true) => dark_path(n, frame, chance),
            3 => lost_again(n, frame, chance),
            4 => lost_control(n, chance),
            5 | 6 => jitter(n, chance),
            7 => reorder(n, chance),
            8 => hold(n, frame, chance),
            9 => duplicate(n, chance),
            10 => corrupt(n, chance),
            11 => mark(n, frame, chance),
            12 => bleach(n, frame, chance),
            _ => elsewhere(n, frame, chance),
        };
    }
    text
}

/// A rule that acts as often as chance lets it, never included.
fn rule(id: &str, matching: &str, more: &str, action: &str) -> String {
    format!("  - {{id: {id}, match: {{{matching}}}, {more}at_least: 0, action: {action}}}\n")
}

fn from(chance: &mut Chance) -> &'static str {
    chance.pick(&["", "from: a, ", "from: b, "])
}

/// Loss of every class of packets, each at its own rate. Requests are repeated eight times in all: their rate is bounded so
/// that hardly one set-up in a million fails by it.
fn losses(chance: &mut Chance) -> String {
    let mut text = String::new();
    for (class, most) in [("data", 200), ("ack", 200), ("nak", 200), ("control", 100)] {
        if chance.is(60) {
            let share = format!("chance: {}, ", chance.share(most));
            text += &rule(
                &format!("lose-{class}"),
                &format!("class: {class}"),
                &share,
                "drop",
            );
        }
    }
    text
}

fn lossy_path(n: u64, frame: &Frame, chance: &mut Chance) -> String {
    let matching = format!(
        "{}class: [data, ack], path: {}",
        from(chance),
        chance.below(frame.paths)
    );
    let share = format!("chance: {}, ", chance.share(300));
    rule(&format!("lossy-path-{n}"), &matching, &share, "drop")
}

/// Packets of one path, one after the other, on their first way.
fn burst(n: u64, frame: &Frame, chance: &mut Chance) -> String {
    let matching = format!(
        "{}class: data, path: {}, psn: {}, transmission: 1",
        from(chance),
        chance.below(frame.paths),
        chance.range(30, 40)
    );
    rule(&format!("burst-{n}"), &matching, "", "drop")
}

/// A path on which nothing gets through for a while, in one direction. The exchange that begins a test is over by then.
fn dark_path(n: u64, frame: &Frame, chance: &mut Chance) -> String {
    let (from, path) = (chance.pick(&['a', 'b']), chance.below(frame.paths));
    let data = format!("from: {from}, class: data, path: {path}, psn: \"1..100000\"");
    let times = format!("times: {}, ", chance.between(1, 8));
    let probes = format!("from: {from}, opcode: PATH_PROBE, path: {path}");
    let few = format!("times: {}, ", chance.between(1, 2));
    rule(&format!("dark-{n}"), &data, &times, "drop")
        + &rule(&format!("dark-probes-{n}"), &probes, &few, "drop")
}

/// Some packets whose repairs are lost as well.
fn lost_again(n: u64, frame: &Frame, chance: &mut Chance) -> String {
    let (from, path, psn) = (from(chance), chance.below(frame.paths), chance.range(20, 4));
    let mut text = String::new();
    for nth in 1..=chance.between(2, 4) {
        let matching = format!("{from}class: data, path: {path}, psn: {psn}, transmission: {nth}");
        text += &rule(&format!("again-{n}-{nth}"), &matching, "", "drop");
    }
    text
}

fn lost_control(n: u64, chance: &mut Chance) -> String {
    let opcode = chance.pick(&[
        "OPEN",
        "ACCEPT",
        "CONFIRM",
        "CONFIRM_ACK",
        "STREAM_OPEN",
        "STREAM_OPEN_ACK",
        "CLOSE",
        "CLOSE_ACK",
        "PATH_PROBE",
        "PATH_PROBE_ACK",
        "RQ_CREDIT",
    ]);
    let times = format!("times: {}, ", chance.between(1, 3));
    let matching = format!("{}opcode: {opcode}", from(chance));
    rule(&format!("lose-request-{n}"), &matching, &times, "drop")
}

fn jitter(n: u64, chance: &mut Chance) -> String {
    let class = chance.pick(&["any", "data", "ack", "control", "[data, ack]"]);
    let matching = format!("{}class: {class}", from(chance));
    let share = format!("chance: {}, ", chance.share(500));
    let by = chance.word(&["5us", "40us", "300us", "2ms", "9ms", "35ms", "120ms"]);
    rule(
        &format!("late-{n}"),
        &matching,
        &share,
        &format!("{{delay: {by}}}"),
    )
}

fn reorder(n: u64, chance: &mut Chance) -> String {
    let share = format!("chance: {}, ", chance.share(200));
    let behind = chance.between(1, 6);
    let matching = format!("{}class: data", from(chance));
    rule(
        &format!("behind-{n}"),
        &matching,
        &share,
        &format!("{{reorder: {{behind: {behind}}}}}"),
    )
}

/// A packet that waits for one that comes later.
fn hold(n: u64, frame: &Frame, chance: &mut Chance) -> String {
    let (side, path) = (chance.pick(&['a', 'b']), chance.below(frame.paths));
    let psn = chance.below(20);
    let held = format!("from: {side}, class: data, path: {path}, psn: {psn}, transmission: 1");
    let later = psn + chance.between(1, 10);
    let most = chance.word(&["1ms", "20ms", "60ms"]);
    let action = format!(
        "{{hold_until: {{packet: {{from: {side}, class: data, path: {path}, psn: {later}}}, at_most: {most}}}}}"
    );
    rule(&format!("held-{n}"), &held, "", &action)
}

fn duplicate(n: u64, chance: &mut Chance) -> String {
    let class = chance.pick(&["any", "data", "ack", "control", "nak"]);
    let matching = format!("{}class: {class}", from(chance));
    let share = format!("chance: {}, ", chance.share(300));
    let after = chance.word(&["0us", "10us", "500us", "4ms", "30ms", "200ms"]);
    rule(
        &format!("twice-{n}"),
        &matching,
        &share,
        &format!("{{duplicate: {{after: {after}}}}}"),
    )
}

/// A flipped bit or a cut end: the trailer tells.
fn corrupt(n: u64, chance: &mut Chance) -> String {
    let class = chance.pick(&["data", "ack", "[data, ack]"]);
    let matching = format!("{}class: {class}", from(chance));
    let share = format!("chance: {}, ", chance.share(50));
    let action = if chance.is(80) {
        format!(
            "{{corrupt: {{byte: {}, bit: {}}}}}",
            chance.below(120),
            chance.below(8)
        )
    } else {
        format!("{{truncate: {}B}}", chance.below(60))
    };
    rule(&format!("spoil-{n}"), &matching, &share, &action)
}

fn mark(n: u64, frame: &Frame, chance: &mut Chance) -> String {
    let mut matching = format!(
        "{}class: {}",
        from(chance),
        chance.pick(&["data", "any", "ack"])
    );
    if chance.is(40) {
        matching += &format!(", path: {}", chance.below(frame.paths));
    }
    let share = format!("chance: {}, ", chance.share(400));
    rule(&format!("mark-{n}"), &matching, &share, "mark_ce")
}

fn bleach(n: u64, frame: &Frame, chance: &mut Chance) -> String {
    let matching = format!(
        "{}class: data, path: {}",
        from(chance),
        chance.below(frame.paths)
    );
    let share = if chance.is(60) {
        String::new()
    } else {
        format!("chance: {}, ", chance.share(900))
    };
    rule(&format!("bleach-{n}"), &matching, &share, "clear_ecn")
}

/// Another source port, as behind a device that translates addresses, or an address that is not the peer's.
fn elsewhere(n: u64, frame: &Frame, chance: &mut Chance) -> String {
    let matching = format!(
        "{}class: [data, ack], path: {}",
        from(chance),
        chance.below(frame.paths)
    );
    if chance.is(70) {
        let port = chance.between(40_000, 60_000);
        let share = format!("chance: {}, ", chance.share(1000));
        rule(
            &format!("port-{n}"),
            &matching,
            &share,
            &format!("{{source_port: {port}}}"),
        )
    } else {
        let share = format!("chance: {}, ", chance.share(100));
        rule(&format!("stranger-{n}"), &matching, &share, "stranger")
    }
}
