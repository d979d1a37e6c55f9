//! Form and drawing of a small sequence.

use super::{SequenceError, parse_sequences, render};

const SIDE: &str = r#"{"address": "192.0.2.1", "port": 49200, "cid": 1, "isn": 4294967295, "clock_ns": 0, "ts_unit_ns": 1,
    "ack_delay_us": 8, "source_ports": [50000], "planes": [], "read_depth": 0, "atomic_depth": 0, "hint_support": 0,
    "hint_interval_us": 0}"#;

/// A file with one sequence: a packet that is lost, one that is marked, and an acknowledgment.
fn text() -> String {
    let data = |at: u64, psn: u64, fate: &str| {
        format!(
            r#"{{"at_ns": {at}, "kind": "packet", "from": "initiator", "source_port": 50000, "ecn": "ect0", "packet": "SEND",
            "datagram": "00", "fields": {{"CBH": {{"psn": {psn}, "flags": 64}}, "MSGH": {{"msn": 7, "len": 2}},
            "payload": {{"payload": "0102"}}}}, "fate": {fate}}}"#
        )
    };
    let steps = [
        r#"{"at_ns": 0, "kind": "event", "side": "initiator", "what": {"post_send": {"stream": 0, "wr_id": 5, "length": 2}}}"#.to_owned(),
        data(1000, 4294967295, r#""lost""#),
        data(1500, 0, r#"{"marked": {"arrives_ns": 21500}}"#),
        format!(
            r#"{{"at_ns": 21500, "kind": "packet", "from": "acceptor", "source_port": 51000, "ecn": "not_ect", "packet": "ACK_SACK",
            "datagram": "00", "fields": {{"CBH": {{"psn": 4294967294}}, "ACK": {{"ce_count": 1, "ect_count": 0}},
            "ACK_SACK": {{"sack": "58{}"}}}}, "fate": {{"delivered": {{"arrives_ns": 41500}}}}}}"#,
            "0".repeat(62)
        ),
        r#"{"at_ns": 5000000, "kind": "event", "side": "acceptor", "what": {"timer": {"name": "rnr"}}}"#.to_owned(),
        r#"{"at_ns": 5000000, "kind": "event", "side": "initiator", "what": {"end": {}}}"#.to_owned(),
    ];
    format!(
        r#"{{"$schema": "s", "format": "metaroce-sequences/1", "subject": "one", "sequences": [{{"id": "one--bad", "title": "One",
        "shows": "What there is to see.", "base": "one", "because": "a reason.", "connections": [{{"established": true,
        "initiator": {SIDE}, "acceptor": {SIDE}, "paths": 1, "streams": 1, "msg_window": 1, "payload_size": 256, "service_id": 1,
        "features": ["RESET"], "open_streams": []}}], "memory": {{"regions": [], "receives": []}}, "satisfies": ["REL-001"],
        "violates": [{{"clause": "REL-029", "step": 1}}], "steps": [{}]}}]}}"#,
        steps.join(",")
    )
}

#[test]
fn a_sequence_is_drawn_line_by_line() {
    let file = parse_sequences(&text()).unwrap();
    let drawn = render(&file.sequences[0]);
    let expected = "\
One
===

What there is to see.

Not as in one: a reason.

192.0.2.1 to 192.0.2.1, 1 path, P = 256, AckDelay 8 and 8 us, RESET

         us |initiator                                                         acceptor| us
      0.000 |* post Send: wr 5, stream 0, 2 bytes                                      |
      1.000 |--- SEND path 0 psn ffffffff msn 7 [0..2) of 2 RTX ------- x lost         |
            |                          ^^^ breaks REL-029 ^^^                          |
      1.500 |--- SEND path 0 psn 0 msn 7 [0..2) of 2 RTX ------------------------- CE >| 21.500
     41.500 |<------------------- ACK_SACK path 0 cum fffffffe has 0,2-3 ce 1 ect 0 ---| 21.500
        ... :                                                                          :
            |                                                              timer: rnr *| 5000.000
";
    assert_eq!(drawn, expected, "\n{drawn}");
}

#[test]
fn a_plane_is_shown_where_there_is_more_than_one() {
    let text = text()
        .replace(
            r#""planes": []"#,
            r#""planes": ["198.51.100.1", "198.51.100.2"]"#,
        )
        .replacen(r#""source_port""#, r#""plane": 2, "source_port""#, 1)
        .replacen(
            r#""from": "acceptor","#,
            r#""from": "acceptor", "plane": 1, "to_plane": 0,"#,
            1,
        );
    let file = parse_sequences(&text).unwrap();
    let ends = &file.sequences[0].connections[0];
    assert_eq!(ends.planes(), 3);
    let address = |plane| ends.initiator.address_in(plane).map(|a| a.to_string());
    assert_eq!(address(0).as_deref(), Some("192.0.2.1"));
    assert_eq!(address(2).as_deref(), Some("198.51.100.2"));
    assert_eq!(address(3), None);
    let drawn = render(&file.sequences[0]);
    for part in [
        "AckDelay 8 and 8 us, 3 planes, RESET",
        "SEND plane 2 path 0 psn ffffffff",
        "SEND plane 0 path 0 psn 0 ",
        "ACK_SACK plane 1 to 0 path 0",
    ] {
        assert!(drawn.contains(part), "{part}\n{drawn}");
    }
}

#[test]
fn what_is_unknown_is_refused() {
    let good = text();
    assert!(parse_sequences(&good).is_ok());
    for (here, other) in [
        (
            r#""kind": "packet","#,
            r#""kind": "packet", "surprise": 1,"#,
        ),
        (
            r#""kind": "packet","#,
            r#""kind": "packet", "to_plane": "1","#,
        ),
        (r#""wr_id": 5"#, r#""wr_id": 5, "surprise": 1"#),
        (
            r#""established": true"#,
            r#""established": true, "surprise": 1"#,
        ),
        (r#""marked""#, r#""vanished""#),
        (r#"{"end": {}}"#, r#"{"end": {"surprise": 1}}"#),
        (r#""at_ns": 1000,"#, ""),
    ] {
        let changed = good.replacen(here, other, 1);
        assert_ne!(changed, good, "{here}");
        assert!(
            matches!(parse_sequences(&changed), Err(SequenceError::Form(_))),
            "{other}"
        );
    }
    let other = good.replacen("sequences/1", "sequences/2", 1);
    assert!(matches!(
        parse_sequences(&other),
        Err(SequenceError::Format(_))
    ));
}

#[test]
fn a_text_that_is_too_long_is_cut() {
    let mut file = parse_sequences(&text()).unwrap();
    let sequence = &mut file.sequences[0];
    sequence.shows = "word ".repeat(60);
    if let super::Step::Packet(packet) = &mut sequence.steps[1] {
        packet.packet = "LONG".repeat(40);
    }
    let drawn = render(sequence);
    assert!(
        drawn.lines().all(|line| line.chars().count() <= 100),
        "{drawn}"
    );
    assert!(drawn.contains("LONG.. "), "{drawn}");
}
