//! What the specification has beside Send and Write, through two sessions.

use super::link::{Link, Weather};
use serde_json::{Value, json};

const MS: u64 = 1_000_000;

/// Everything offered, and more where `change` says so.
fn open(link: &mut Link, change: Value) {
    for side in [1, 0] {
        let mut body = json!({
            "features": ["imm", "inv", "reset", "retire", "change"], "read_depth": 4, "atomic_depth": 4,
            "first_streams": 1, "streams": 8,
        });
        for (name, value) in change.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        ok(link, side, "open", body);
    }
    link.run(100 * MS);
    for side in 0..2 {
        assert_eq!(types(&link.events(side)), ["established"]);
    }
}

/// A call that succeeds. `open` is completed with what the link knows.
fn ok(link: &mut Link, side: usize, op: &str, body: Value) -> Value {
    let answer = match op {
        "open" => link.open(side, body),
        _ => link.call(side, op, body),
    };
    assert!(answer.get("error").is_none(), "{op}: {answer}");
    answer
}

fn code(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or("ok")
}

fn types(events: &[Value]) -> Vec<&str> {
    let names = events.iter().map(|event| &event["type"]);
    names.map(|name| name.as_str().unwrap()).collect()
}

fn register(link: &mut Link, side: usize, bytes: &str) -> Value {
    let body = json!({
        "len": bytes.len() / 2, "fill": 0, "remote_write": true, "remote_read": true, "remote_atomic": true, "invalidate": true,
    });
    let region = ok(link, side, "register", body);
    let fill = json!({"mr": region["mr"], "offset": 0, "hex": bytes});
    ok(link, side, "write_memory", fill);
    region
}

fn read(link: &mut Link, side: usize, region: &Value, len: usize) -> String {
    let piece = json!({"mr": region["mr"], "offset": 0, "len": len});
    let answer = ok(link, side, "read_memory", piece);
    answer["hex"].as_str().unwrap().to_owned()
}

/// Work on stream 0 with the first `len` bytes of a region, and more fields.
fn work(wr_id: u64, local: &Value, len: usize, more: Value) -> Value {
    let mut body =
        json!({"conn": 0, "stream": 0, "wr_id": wr_id, "mr": local["mr"], "offset": 0, "len": len});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

fn at(region: &Value, more: Value) -> Value {
    let mut at = json!({"va": region["va"], "rkey": region["rkey"]});
    for (name, value) in more.as_object().into_iter().flatten() {
        at[name] = value.clone();
    }
    at
}

fn inline(wr_id: u64, stream: u64, more: Value) -> Value {
    let mut body = json!({"conn": 0, "stream": stream, "wr_id": wr_id, "inline": "0102030405"});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

/// Kinds and statuses of completions, by number.
fn done(events: &[Value]) -> Vec<(u64, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().replace("IBV_WC_", "");
    let done = events.iter().filter(|event| event["type"] == "completion");
    done.map(|event| {
        let wr_id = event["wr_id"].as_u64().unwrap();
        (wr_id, text(&event["kind"]), text(&event["status"]))
    })
    .collect()
}

fn entry(wr_id: u64, kind: &str, status: &str) -> (u64, String, String) {
    (wr_id, kind.to_owned(), status.to_owned())
}

#[test]
fn a_read_brings_the_bytes() {
    let weather = Weather {
        loss: 50,
        ..Weather::default()
    };
    let mut link = Link::new(3, [None, None], weather);
    open(&mut link, json!({}));
    let there = register(&mut link, 1, &"5b".repeat(3000));
    let here = register(&mut link, 0, &"00".repeat(3000));
    let body = work(1, &here, 3000, at(&there, json!({})));
    ok(&mut link, 0, "post_read", body);
    link.run(1000 * MS);
    let events = link.events(0);
    assert_eq!(done(&events), [entry(1, "read", "SUCCESS")]);
    assert_eq!(events[0]["byte_len"], 3000);
    assert_eq!(read(&mut link, 0, &here, 3000), "5b".repeat(3000));
}

#[test]
fn atomic_operations_answer_what_was_there() {
    let mut link = Link::new(4, [None, None], Weather::default());
    open(&mut link, json!({}));
    let number = |value: u64| -> String {
        let bytes = value.to_ne_bytes();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let there = register(&mut link, 1, &number(40));
    let here = register(&mut link, 0, &number(0));
    let add = at(&there, json!({"add": "0x2"}));
    ok(&mut link, 0, "post_fetch_add", work(1, &here, 8, add));
    link.run(50 * MS);
    assert_eq!(done(&link.events(0)), [entry(1, "fetch_add", "SUCCESS")]);
    assert_eq!(read(&mut link, 0, &here, 8), number(40));
    assert_eq!(read(&mut link, 1, &there, 8), number(42));
    let swap = at(
        &there,
        json!({"compare": "0x2a", "swap": "0xfedcba9876543210"}),
    );
    ok(&mut link, 0, "post_cmp_swap", work(2, &here, 8, swap));
    link.run(50 * MS);
    assert_eq!(done(&link.events(0)), [entry(2, "cmp_swap", "SUCCESS")]);
    assert_eq!(read(&mut link, 0, &here, 8), number(42));
    assert_eq!(read(&mut link, 1, &there, 8), number(0xfedc_ba98_7654_3210));
}

#[test]
fn immediate_data_and_keys_come_with_the_receive() {
    let mut link = Link::new(5, [None, None], Weather::default());
    open(&mut link, json!({}));
    let there = register(&mut link, 1, &"00".repeat(64));
    for wr_id in 0..4 {
        let body = work(wr_id, &there, 64, json!({}));
        ok(&mut link, 1, "post_recv", body);
    }
    let send = inline(1, 0, json!({"imm": 4_000_000_000u32, "solicited": true}));
    ok(&mut link, 0, "post_send", send);
    let write = inline(2, 0, at(&there, json!({"imm": 0, "signalled": false})));
    ok(&mut link, 0, "post_write", write);
    let keyed = inline(3, 0, json!({"invalidate": there["rkey"]}));
    ok(&mut link, 0, "post_send", keyed);
    link.run(50 * MS);
    let events = link.events(1);
    let expected = [
        entry(0, "recv", "SUCCESS"),
        entry(1, "recv_write", "SUCCESS"),
        entry(2, "recv", "SUCCESS"),
    ];
    assert_eq!(done(&events), expected);
    let seen = |name: &str| -> Vec<Value> { events.iter().map(|e| e[name].clone()).collect() };
    assert_eq!(
        seen("imm"),
        [json!(4_000_000_000u32), json!(0), Value::Null]
    );
    assert_eq!(
        seen("invalidated"),
        [Value::Null, Value::Null, there["rkey"].clone()]
    );
    assert_eq!(seen("solicited"), [json!(true), Value::Null, Value::Null]);
    // Unsignalled work succeeds in silence.
    let expected = [entry(1, "send", "SUCCESS"), entry(3, "send", "SUCCESS")];
    assert_eq!(done(&link.events(0)), expected);
    // The key opens nothing any more.
    let late = inline(4, 0, at(&there, json!({})));
    ok(&mut link, 0, "post_write", late);
    link.run(500 * MS);
    let expected = [entry(4, "write", "REM_ACCESS_ERR")];
    assert_eq!(done(&link.events(0))[..1], expected);
}

#[test]
fn a_stream_is_opened_and_ended_while_the_connection_lives() {
    let mut link = Link::new(6, [None, None], Weather::default());
    open(&mut link, json!({}));
    let opened = ok(&mut link, 1, "open_stream", json!({"conn": 0}));
    // The acceptor opens odd ones.
    assert_eq!(opened, json!({"stream": 1}));
    link.run(50 * MS);
    for side in 0..2 {
        let events = link.events(side);
        assert_eq!(types(&events), ["stream_opened"]);
        assert_eq!(events[0]["stream"], 1);
    }
    let there = register(&mut link, 1, &"00".repeat(64));
    let mut receive = work(1, &there, 64, json!({}));
    receive["stream"] = json!(1);
    ok(&mut link, 1, "post_recv", receive);
    let ended = ok(
        &mut link,
        0,
        "reset_stream",
        json!({"conn": 0, "stream": 1}),
    );
    assert_eq!(ended, json!({}));
    link.run(50 * MS);
    let events = link.events(1);
    assert_eq!(done(&events), [entry(1, "recv", "WR_FLUSH_ERR")]);
    assert!(types(&events).contains(&"stream_ended"), "{events:?}");
    assert!(types(&link.events(0)).contains(&"stream_ended"));
    // The other one goes on.
    ok(
        &mut link,
        0,
        "post_write",
        inline(2, 0, at(&there, json!({}))),
    );
    link.run(50 * MS);
    assert_eq!(done(&link.events(0)), [entry(2, "write", "SUCCESS")]);
    let stats = ok(&mut link, 0, "stats", json!({"conn": 0}));
    assert_eq!(stats["connection"]["streams_open"], 1);
    assert_eq!(
        stats["connection"]["features"],
        json!(["imm", "inv", "reset", "retire", "change"])
    );
}

#[test]
fn a_stream_of_the_acceptor_is_none_of_the_first_ones() {
    // The first answer to the initiator's stream is lost, so that the acceptor's is open before it.
    let weather = Weather {
        first: &[(metaroce_wire::metaroce::Opcode::STREAM_OPEN_ACK, 1)],
        ..Weather::default()
    };
    let mut link = Link::new(6, [None, None], weather);
    for side in [1, 0] {
        let body = json!({"first_streams": 1, "streams": 8});
        ok(&mut link, side, "open", body);
    }
    let mut tries = 0;
    while code(&link.call(1, "open_stream", json!({"conn": 0}))) != "ok" {
        link.run(MS / 10);
        tries += 1;
        assert!(tries < 100);
    }
    link.run(200 * MS);
    assert_eq!(types(&link.events(0)), ["stream_opened", "established"]);
    let events = link.events(1);
    let mut seen = types(&events);
    seen.sort_unstable();
    assert_eq!(seen, ["established", "stream_opened"]);
}

#[test]
fn a_first_stream_may_end_before_the_last_of_them_is_open() {
    let weather = Weather {
        first: &[(metaroce_wire::metaroce::Opcode::STREAM_OPEN, 1)],
        ..Weather::default()
    };
    let mut link = Link::new(6, [None, None], weather);
    for side in [1, 0] {
        let body = json!({"first_streams": 2, "features": ["reset"]});
        ok(&mut link, side, "open", body);
    }
    // Stream 2 is open on both sides by then, stream 0 on neither.
    link.run(4_300_000);
    assert!((0..2).all(|side| link.events(side).is_empty()));
    let of = json!({"conn": 0, "stream": 2});
    ok(&mut link, 0, "reset_stream", of);
    link.run(500 * MS);
    for side in 0..2 {
        let events = link.events(side);
        assert_eq!(types(&events), ["stream_ended", "established"]);
    }
}

#[test]
fn streams_share_their_receives() {
    let mut link = Link::new(7, [None, None], Weather::default());
    open(&mut link, json!({"srq": true, "first_streams": 2}));
    let there = register(&mut link, 1, &"00".repeat(64));
    let body = |wr_id: u64| json!({"wr_id": wr_id, "mr": there["mr"], "offset": 0, "len": 64});
    for wr_id in 10..13 {
        ok(&mut link, 1, "post_srq_recv", body(wr_id));
    }
    let withdrawn = ok(&mut link, 1, "withdraw_srq_recv", json!({"wr_id": 11}));
    assert_eq!(withdrawn, json!({"withdrawn": true}));
    let refused = link.call(1, "post_recv", work(1, &there, 64, json!({})));
    assert_eq!(code(&refused), "misuse");
    for (wr_id, stream) in [(1, 0), (2, 2)] {
        ok(&mut link, 0, "post_send", inline(wr_id, stream, json!({})));
        link.run(50 * MS);
    }
    let expected = [entry(10, "recv", "SUCCESS"), entry(12, "recv", "SUCCESS")];
    assert_eq!(done(&link.events(1)), expected);
}

#[test]
fn credit_is_asked_for_at_once() {
    let mut link = Link::new(16, [None, None], Weather::default());
    open(&mut link, json!({}));
    let start = link.transcript.len();
    ok(&mut link, 0, "post_send", inline(1, 0, json!({})));
    let asked = |link: &Link| {
        let datagrams = link.transcript.iter().skip(start);
        // Six bytes of the record stand before the packet.
        let credit = |record: &&Vec<u8>| record.get(7) == Some(&0x6e);
        datagrams.filter(credit).count()
    };
    assert_eq!(asked(&link), 1);
    // The answer brings none, so it is asked again after the pause, which is 50 ms.
    link.run(45 * MS);
    assert_eq!(asked(&link), 2, "the question and its answer");
}

#[test]
fn a_receive_is_taken_back() {
    let mut link = Link::new(8, [None, None], Weather::default());
    open(&mut link, json!({}));
    let there = register(&mut link, 1, &"00".repeat(64));
    for wr_id in [1, 2] {
        let body = work(wr_id, &there, 64, json!({}));
        ok(&mut link, 1, "post_recv", body);
    }
    for withdrawn in [true, false] {
        let of = json!({"conn": 0, "stream": 0, "wr_id": 2});
        let answer = ok(&mut link, 1, "withdraw_recv", of);
        assert_eq!(answer, json!({"withdrawn": withdrawn}));
    }
    ok(&mut link, 0, "post_send", inline(1, 0, json!({})));
    link.run(50 * MS);
    assert_eq!(done(&link.events(1)), [entry(1, "recv", "SUCCESS")]);
}

#[test]
fn a_plane_carries_paths_and_loses_them_when_it_goes_down() {
    let mut link = Link::new(9, [None, None], Weather::default());
    for side in [1, 0] {
        let planes = json!([format!("192.0.3.{}", side + 1)]);
        let body = json!({"planes": planes, "features": ["retire", "change"], "source_ports": 8});
        ok(&mut link, side, "open", body);
    }
    link.run(100 * MS);
    let plane = |link: &mut Link, path: u16| {
        let stats = ok(link, 0, "stats", json!({"conn": 0, "path": path}));
        assert_eq!(stats["connection"]["planes"], 2);
        stats["path"]["plane"].as_u64().unwrap()
    };
    let planes: Vec<u64> = (0..4).map(|path| plane(&mut link, path)).collect();
    assert_eq!(planes.iter().filter(|plane| **plane == 1).count(), 2);
    let there = register(&mut link, 1, &"00".repeat(3000));
    let here = register(&mut link, 0, &"7e".repeat(3000));
    let write = |wr_id: u64| work(wr_id, &here, 3000, at(&there, json!({})));
    ok(&mut link, 0, "post_write", write(1));
    link.run(100 * MS);
    let all: u64 = (0..4u16)
        .filter(|path| planes[usize::from(*path)] == 1)
        .map(|path| {
            let stats = ok(&mut link, 0, "stats", json!({"conn": 0, "path": path}));
            stats["path"]["packets_sent"].as_u64().unwrap()
        })
        .sum();
    assert!(all > 0, "no data on plane 1");
    // Both sides are told by their applications; what goes on goes through plane 0.
    for side in 0..2 {
        let down = json!({"conn": 0, "plane": 1, "up": false});
        ok(&mut link, side, "set_plane", down);
    }
    link.dark = Some("192.0.3.1".parse().unwrap());
    ok(&mut link, 0, "post_write", write(2));
    link.run(500 * MS);
    let expected = [entry(1, "write", "SUCCESS"), entry(2, "write", "SUCCESS")];
    assert_eq!(done(&link.events(0)), expected);
    assert_eq!(read(&mut link, 1, &there, 3000), "7e".repeat(3000));
    assert!((0..4).all(|path| plane(&mut link, path) == 0));
}

#[test]
fn a_mutant_sends_and_takes_through_all_planes() {
    // One that only does something to repairs, of which there are none.
    let mut link = Link::new(
        15,
        [Some("repair-not-ect"), Some("repair-not-ect")],
        Weather::default(),
    );
    for side in [1, 0] {
        let planes = json!([format!("192.0.3.{}", side + 1)]);
        ok(&mut link, side, "open", json!({"planes": planes}));
    }
    link.run(100 * MS);
    let there = register(&mut link, 1, &"00".repeat(3000));
    let here = register(&mut link, 0, &"7e".repeat(3000));
    let body = work(1, &here, 3000, at(&there, json!({})));
    ok(&mut link, 0, "post_write", body);
    link.run(100 * MS);
    assert_eq!(done(&link.events(0)), [entry(1, "write", "SUCCESS")]);
    for side in 0..2 {
        let counters = ok(&mut link, side, "counters", json!({"conn": 0}));
        assert_eq!(counters["counters"]["crc_errors"], 0);
    }
}

#[test]
fn paths_move_and_are_retired() {
    let mut link = Link::new(10, [None, None], Weather::default());
    open(&mut link, json!({"source_ports": 8}));
    let port = |link: &mut Link| {
        let stats = ok(link, 0, "stats", json!({"conn": 0, "path": 1}));
        stats["path"]["src_port"].as_u64().unwrap()
    };
    assert_ne!(port(&mut link), 50007);
    let moved = json!({"conn": 0, "path": 1, "port": 50007});
    ok(&mut link, 0, "move_path", moved);
    assert_eq!(port(&mut link), 50007);
    ok(&mut link, 0, "retire_path", json!({"conn": 0, "path": 2}));
    link.run(MS);
    let events = link.events(0);
    assert_eq!(types(&events), ["path_alive"]);
    assert_eq!(
        (&events[0]["path"], &events[0]["alive"]),
        (&json!(2), &json!(false))
    );
    // It is asked after a second first.
    link.run(3000 * MS);
    let events = link.events(0);
    assert_eq!(
        (&events[0]["path"], &events[0]["alive"]),
        (&json!(2), &json!(true))
    );
}

#[test]
fn an_abort_flushes() {
    let mut link = Link::new(11, [None, None], Weather::default());
    open(&mut link, json!({}));
    ok(&mut link, 0, "post_send", inline(1, 0, json!({})));
    ok(&mut link, 0, "abort", json!({"conn": 0}));
    link.run(100 * MS);
    assert_eq!(done(&link.events(0)), [entry(1, "send", "WR_FLUSH_ERR")]);
    let events = link.events(1);
    assert!(types(&events).contains(&"closed") || types(&events).contains(&"failed"));
}

#[test]
fn a_forgotten_region_opens_nothing_and_makes_room() {
    let mut link = Link::new(12, [None, None], Weather::default());
    open(&mut link, json!({}));
    let gigabyte = json!({"len": 1 << 30, "fill": 0, "remote_write": true});
    let there = ok(&mut link, 1, "register", gigabyte.clone());
    assert_eq!(code(&link.call(1, "register", gigabyte)), "limit");
    ok(&mut link, 1, "deregister", json!({"mr": there["mr"]}));
    let answer = link.call(
        1,
        "digest",
        json!({"mr": there["mr"], "offset": 0, "len": 0}),
    );
    assert_eq!(code(&answer), "no_such_region");
    register(&mut link, 1, "00");
    ok(
        &mut link,
        0,
        "post_write",
        inline(1, 0, at(&there, json!({}))),
    );
    link.run(500 * MS);
    let expected = [entry(1, "write", "REM_ACCESS_ERR")];
    assert_eq!(done(&link.events(0)), expected);
}

#[test]
fn who_asks_for_nothing_new_hears_nothing_new() {
    let mut link = Link::new(13, [None, None], Weather::default());
    ok(&mut link, 1, "open", json!({}));
    // The other side asks for a wake-up, which needs no feature.
    ok(&mut link, 0, "open", json!({"features": []}));
    link.run(100 * MS);
    link.events(1);
    let there = register(&mut link, 1, &"00".repeat(64));
    ok(&mut link, 1, "post_recv", work(1, &there, 64, json!({})));
    ok(
        &mut link,
        0,
        "post_send",
        inline(1, 0, json!({"solicited": true})),
    );
    link.run(50 * MS);
    let events = link.events(1);
    assert_eq!(done(&events), [entry(1, "recv", "SUCCESS")]);
    let names: Vec<&String> = events[0].as_object().unwrap().keys().collect();
    assert!(!names.iter().any(|name| *name == "solicited"), "{names:?}");
    // Nothing was agreed, so a further feature is refused where it is asked for.
    link.events(0);
    ok(&mut link, 0, "post_send", inline(2, 0, json!({"imm": 1})));
    link.run(50 * MS);
    assert_eq!(
        done(&link.events(0))[..1],
        [entry(2, "send", "LOC_QP_OP_ERR")]
    );
    assert!(link.events(1).iter().all(|event| {
        ["completion", "closed", "failed"].contains(&event["type"].as_str().unwrap())
    }));
}

#[test]
fn fakes_have_no_further_calls() {
    let mut link = Link::new(14, [Some("null"), None], Weather::default());
    ok(&mut link, 0, "open", json!({"srq": true}));
    for (op, body) in [
        ("stats", json!({"conn": 0})),
        ("open_stream", json!({"conn": 0})),
        ("withdraw_srq_recv", json!({"wr_id": 0})),
        ("set_plane", json!({"conn": 0, "plane": 0, "up": true})),
    ] {
        assert_eq!(code(&link.call(0, op, body)), "misuse", "{op}");
    }
}
