//! What random runs have found, as small scenarios of their own. Each failed the clause that it names before the fault was
//! mended.

use crate::run::{judged, wrong};

/// Runs a scenario with the reference on both sides: it has to be sound, and to violate nothing.
fn passes(seed: u64, text: &str) {
    let text = format!("id: found\ntitle: what a random run has found\n{text}");
    let folder = tempfile::tempdir().unwrap();
    let tests = judged(vec![text.clone()], seed, None, folder.path());
    assert_eq!(tests.len(), 1);
    for test in tests {
        assert!(wrong(&test).is_none(), "{}{text}", wrong(&test).unwrap());
    }
}

/// The answer to a repeated STREAM_OPEN told the RqLimit of the first one again (a fault of the reference, STRM-031; seed 194).
#[test]
fn no_credit_is_taken_back_by_a_repeated_answer() {
    passes(
        1,
        r"
rules:
  - {id: again, match: {opcode: STREAM_OPEN}, times: 1, action: {duplicate: {after: 4ms}}}
work:
  - send: {from: a, size: 0KiB}
",
    );
}

/// Four packets at an instant made the timers of that instant a nanosecond late (a fault of the simulated link, REL-019; seed
/// 289).
#[test]
fn what_is_due_is_not_late_because_packets_come() {
    passes(
        289,
        r#"
streams: 2
ack_delay: 0us
rules:
  - {id: burst-1, match: {from: b, class: data, path: 1, psn: "12..41", transmission: 1}, at_least: 0, action: drop}
work:
  - write: {from: b, stream: 1, size: 0B, count: 1}
  - send: {from: b, stream: 0, size: 16273B, count: 3, late: 30us}
"#,
    );
}

/// A window below one packet, or a path to be avoided for its marks, was taken for room (a fault of the monitor, PATH-006; seed
/// 40).
#[test]
fn a_path_with_marks_may_be_passed_over() {
    passes(
        40,
        r"
streams: 2
payload: 512B
delay: 51ms
rules:
  - {id: mark-2, match: {class: any, path: 2}, chance: 0.4%, at_least: 0, action: mark_ce}
work:
  - send: {from: a, stream: 1, size: 0B, count: 2, late: 0us}
  - write: {from: a, stream: 1, size: 195021B, count: 1}
",
    );
}

/// The window of the connection was left out of account after timeouts (a fault of the monitor, PATH-009; seed 121).
#[test]
fn the_window_of_the_connection_may_stop_a_free_path() {
    passes(
        121,
        r"
paths: 5
delay: 76ms
work:
  - write: {from: a, stream: 0, size: 28612B, count: 3}
",
    );
}

/// A late acknowledgment, which echoes the first of two transmissions, makes the round trip longer than that of the second (a
/// fault of the monitor, REL-048; seed 210).
#[test]
fn a_late_acknowledgment_puts_off_the_next_probe() {
    passes(
        210,
        r"
streams: 5
rules:
  - {id: late-1, match: {class: [data, ack]}, chance: 36.8%, at_least: 0, action: {delay: 9ms}}
work:
  - write: {from: a, stream: 4, size: 6086B, count: 15}
",
    );
}

/// The second answer to a probe was taken to start the timeout anew (a fault of the monitor, REL-041 and CONN-043; seed 728).
#[test]
fn a_second_answer_to_a_probe_starts_no_timer() {
    passes(
        728,
        r"
rules:
  - {id: late-0, match: {from: b, class: control}, chance: 4.3%, at_least: 0, action: {delay: 4ms}}
  - {id: twice-1, match: {from: b, class: control}, chance: 7.4%, at_least: 0, action: {duplicate: {after: 1ms}}}
  - {id: dark-2, match: {from: b, class: data, path: 2}, times: 7, at_least: 0, action: drop}
work:
  - write: {from: b, stream: 0, size: 0B, count: 1}
",
    );
}

/// A Send that the message window held back was to ask for credit (a fault of the monitor, STRM-030; seed 3118).
#[test]
fn a_send_outside_the_message_window_asks_for_nothing() {
    passes(
        3118,
        r"
msg_window: 1
rules:
  - {id: dark-0, match: {from: b, class: data, path: 1}, times: 4, at_least: 0, action: drop}
  - {id: dark-probes-0, match: {from: b, opcode: PATH_PROBE, path: 1}, times: 1, at_least: 0, action: drop}
  - {id: lose-request-3, match: {opcode: PATH_PROBE}, times: 3, at_least: 0, action: drop}
work:
  - send: {from: b, stream: 0, size: 0B, count: 2, late: 1ms}
",
    );
}

/// So was one behind a message whose rest waits for the congestion window (a fault of the monitor, STRM-030; seed 5702).
#[test]
fn a_send_behind_an_unsent_rest_asks_for_nothing() {
    passes(
        356,
        r"
paths: 1
streams: 13
payload: 256B
delay: 76ms
rules:
  - {id: lose-ack, match: {class: ack}, chance: 7.1%, at_least: 0, action: drop}
  - {id: lose-control, match: {class: control}, chance: 4.5%, at_least: 0, action: drop}
work:
  - send: {from: a, stream: 8, size: 0B, count: 1, late: 0us}
  - write: {from: b, stream: 4, size: 1039B, count: 3}
  - send: {from: b, stream: 3, size: 769B, count: 2}
  - send: {from: a, stream: 12, size: 0B, count: 1, late: 0ms}
  - send: {from: b, stream: 10, size: 1522B, count: 1}
",
    );
}
