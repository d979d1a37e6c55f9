//! The adapter protocol: the schema describes what a session says and takes, and no line makes it fall over.

use super::link::{Link, Weather};
use metaroce_endpoint::adapter::{LONGEST_LINE, Session};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Fields that may be missing, by request; of `open` all that a harness can do without.
fn is_optional(op: &str, name: &str) -> bool {
    let all: &[&str] = match op {
        "open" => &[
            "initial_psn",
            "features",
            "read_depth",
            "atomic_depth",
            "planes",
            "first_streams",
            "source_ports",
            "capacity_mbps",
            "hint_interval_us",
            "rnr_retries",
            "srq",
            "spray_run",
            "domain",
        ],
        "register" => &["remote_read", "remote_atomic", "invalidate", "domain"],
        "post_send" => &["imm", "invalidate", "signalled", "solicited", "fence"],
        "post_write" => &["imm", "signalled", "solicited", "fence"],
        "post_read" | "post_cmp_swap" | "post_fetch_add" => &["signalled", "fence"],
        "open_stream" => &["domain"],
        "stats" => &["path", "stream"],
        _ => &[],
    };
    all.contains(&name)
}

fn schema(part: &str) -> jsonschema::Validator {
    let text = include_str!("../../schema/adapter.schema.json");
    let mut schema: Value = serde_json::from_str(text).unwrap();
    let body = schema.as_object_mut().unwrap();
    body.remove("oneOf");
    body.insert("$ref".into(), json!(format!("#/$defs/{part}")));
    jsonschema::draft202012::new(&schema).unwrap()
}

/// A dialogue in which every operation is answered once with and once without success, as far as it has both.
fn dialogue() -> Vec<(String, String)> {
    let mut link = Link::new(1, [None, None], Weather::default());
    link.call(0, "hello", json!({"protocol": 1}));
    link.call(0, "capabilities", json!({}));
    link.call(0, "poll", json!({"timeout_ms": 0}));
    link.open(1, json!({"initial_psn": 4_294_967_290u32}));
    link.open(0, json!({}));
    link.open(0, json!({}));
    link.run(100_000_000);
    let whole = json!({"mr": 1, "offset": 0, "len": 64});
    let post = json!({"conn": 0, "stream": 0, "wr_id": u64::MAX, "mr": 1, "offset": 0, "len": 64});
    let mut write = post.clone();
    for side in [1, 0] {
        let region = link.call(
            side,
            "register",
            json!({"len": 64, "fill": 1, "remote_write": true}),
        );
        write["va"] = region["va"].clone();
        write["rkey"] = region["rkey"].clone();
        link.call(
            side,
            "write_memory",
            json!({"mr": 1, "offset": 1, "hex": "00fFAb"}),
        );
        link.call(side, "read_memory", whole.clone());
        link.call(side, "digest", whole.clone());
        link.call(side, "post_recv", post.clone());
    }
    link.call(0, "post_send", post.clone());
    link.call(1, "post_write", write.clone());
    link.run(100_000_000);
    for side in 0..2 {
        link.events(side);
        link.call(side, "counters", json!({"conn": 0}));
    }
    // One that is refused: the key is wrong.
    write["rkey"] = json!(1);
    link.call(1, "post_write", write);
    link.run(1_000_000_000);
    link.events(1);
    link.call(0, "close", json!({"conn": 0}));
    link.call(0, "close", json!({"conn": 9}));
    link.events(0);
    link.call(
        0,
        "post_send",
        json!({"conn": 0, "stream": 1, "wr_id": 0, "mr": 1, "offset": 1, "len": 64}),
    );
    link.call(0, "digest", json!({"mr": 7, "offset": 0, "len": 0}));
    link.call(0, "reset", json!({}));
    link.lines.extend(further_dialogue());
    link.lines
}

/// Everything that `open` can name besides.
fn more(side: usize) -> Value {
    json!({
        "features": ["imm", "inv", "reset", "retire", "change"], "read_depth": 4, "atomic_depth": 4,
        "planes": [format!("192.0.3.{}", side + 1)], "first_streams": 2, "source_ports": 8, "streams": 4,
        "capacity_mbps": 1000, "hint_interval_us": 100, "rnr_retries": 3, "srq": side == 1, "spray_run": 2, "domain": 1,
    })
}

/// The same of the operations that not every harness knows.
fn further_dialogue() -> Vec<(String, String)> {
    let mut link = Link::new(2, [None, None], Weather::default());
    for op in ["abort", "stats", "open_stream"] {
        link.call(0, op, json!({"conn": 0}));
    }
    for side in [1, 0] {
        link.open(side, more(side));
    }
    link.run(100_000_000);
    let region = json!({
        "len": 64, "fill": 1, "remote_write": true, "remote_read": true, "remote_atomic": true, "invalidate": true, "domain": 1,
    });
    let there = link.call(1, "register", region.clone());
    link.call(0, "register", region.clone());
    link.call(
        1,
        "post_srq_recv",
        json!({"wr_id": 1, "mr": 1, "offset": 0, "len": 64}),
    );
    for wr_id in 10..30 {
        let body = json!({"wr_id": wr_id, "mr": 1, "offset": 0, "len": 64});
        link.call(1, "post_srq_recv", body);
    }
    link.call(
        1,
        "post_srq_recv",
        json!({"wr_id": 2, "mr": 1, "offset": 0, "len": 64}),
    );
    link.call(
        1,
        "post_srq_recv",
        json!({"wr_id": 9, "mr": 1, "offset": 60, "len": 64}),
    );
    link.call(
        0,
        "post_srq_recv",
        json!({"wr_id": 1, "mr": 1, "offset": 0, "len": 64}),
    );
    link.call(1, "withdraw_srq_recv", json!({"wr_id": 2}));
    link.call(0, "withdraw_srq_recv", json!({"wr_id": 2}));
    let of = json!({"conn": 0, "stream": 0, "wr_id": 7});
    link.call(0, "withdraw_recv", of.clone());
    link.call(
        0,
        "withdraw_recv",
        json!({"conn": 0, "stream": 9, "wr_id": 7}),
    );
    let piece = json!({"mr": 1, "offset": 0, "len": 8});
    let at = json!({"va": there["va"], "rkey": there["rkey"]});
    let flags = json!({"signalled": true, "solicited": true, "fence": true});
    let part = json!({"signalled": true, "fence": true});
    link.call(
        0,
        "post_send",
        joined(&[&of, &json!({"inline": "0aFF", "imm": 5}), &flags]),
    );
    link.call(
        0,
        "post_write",
        joined(&[&of, &piece, &at, &flags, &json!({"imm": 0})]),
    );
    link.call(0, "post_write", joined(&[&of, &json!({"inline": ""}), &at]));
    link.call(0, "post_read", joined(&[&of, &piece, &at, &part]));
    let swap = json!({"compare": "0x0", "swap": "0xffffffffffffffff"});
    link.call(
        0,
        "post_cmp_swap",
        joined(&[&of, &piece, &at, &part, &swap]),
    );
    link.call(
        0,
        "post_fetch_add",
        joined(&[&of, &piece, &at, &part, &json!({"add": "0x1"})]),
    );
    link.run(100_000_000);
    link.call(
        0,
        "post_send",
        joined(&[&of, &piece, &json!({"invalidate": there["rkey"]})]),
    );
    // What they refuse besides their form: a stream, a region and bytes that there are not.
    let nowhere = json!({"conn": 0, "stream": 99, "wr_id": 7});
    for (op, body) in [
        ("post_send", joined(&[&nowhere, &piece])),
        ("post_write", joined(&[&nowhere, &piece, &at])),
        (
            "post_read",
            joined(&[&of, &at, &json!({"mr": 9, "offset": 0, "len": 8})]),
        ),
        (
            "post_cmp_swap",
            joined(&[&of, &at, &swap, &json!({"mr": 1, "offset": 60, "len": 8})]),
        ),
        (
            "post_fetch_add",
            joined(&[&nowhere, &piece, &at, &json!({"add": "0x1"})]),
        ),
    ] {
        let answer = link.call(0, op, body);
        assert!(answer.get("error").is_some(), "{op}: {answer}");
    }
    link.call(0, "open_stream", json!({"conn": 0, "domain": 3}));
    link.run(100_000_000);
    link.call(0, "stats", json!({"conn": 0, "path": 1, "stream": 0}));
    link.call(0, "stats", json!({"conn": 0, "path": 4}));
    link.call(0, "stats", json!({"conn": 0, "stream": 77}));
    link.call(0, "move_path", json!({"conn": 0, "path": 1, "port": 50007}));
    link.call(0, "move_path", json!({"conn": 0, "path": 1, "port": 50000}));
    link.call(0, "move_path", json!({"conn": 0, "path": 2, "plane": 0}));
    link.call(0, "move_path", json!({"conn": 0, "path": 2, "plane": 2}));
    link.call(0, "retire_path", json!({"conn": 0, "path": 3}));
    link.call(0, "retire_path", json!({"conn": 0, "path": 9}));
    link.call(0, "set_plane", json!({"conn": 0, "plane": 1, "up": false}));
    link.call(0, "set_plane", json!({"conn": 0, "plane": 2, "up": true}));
    link.call(0, "set_capacity", json!({"mbps": 500}));
    link.run(1_000_000_000);
    link.call(0, "reset_stream", json!({"conn": 0, "stream": 2}));
    link.call(0, "reset_stream", json!({"conn": 0, "stream": 99}));
    link.call(0, "deregister", json!({"mr": 1}));
    link.call(0, "deregister", json!({"mr": 1}));
    link.run(100_000_000);
    for side in 0..2 {
        link.events(side);
    }
    link.call(0, "abort", json!({"conn": 0}));
    link.call(0, "abort", json!({"conn": 3}));
    link.run(100_000_000);
    for side in 0..2 {
        link.events(side);
    }
    // Without hints there is no capacity to set.
    link.call(0, "reset", json!({}));
    link.open(0, json!({}));
    link.call(0, "set_capacity", json!({"mbps": 500}));
    link.lines
}

/// The fields of several objects in one.
fn joined(parts: &[&Value]) -> Value {
    let fields = parts.iter().filter_map(|part| part.as_object()).flatten();
    fields
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[test]
fn a_dialogue_validates() {
    let (request, response) = (schema("request"), schema("response"));
    let lines = dialogue();
    for (asked, answered) in &lines {
        for (validator, line) in [(&request, asked), (&response, answered)] {
            let value: Value = serde_json::from_str(line).unwrap();
            if let Err(error) = validator.validate(&value) {
                panic!("{line}: {error}");
            }
        }
    }
    // The dialogue asks for all that there is to ask for, once with success and once without.
    for op in [
        "deregister",
        "post_srq_recv",
        "withdraw_recv",
        "withdraw_srq_recv",
        "post_send",
        "post_write",
        "post_read",
        "post_cmp_swap",
        "post_fetch_add",
        "open_stream",
        "reset_stream",
        "abort",
        "move_path",
        "retire_path",
        "set_plane",
        "set_capacity",
        "stats",
    ] {
        let of = |part: &str| {
            let name = format!("\"op\":\"{op}\"");
            let mut all = lines.iter();
            all.any(|(asked, answered)| asked.contains(&name) && answered.contains(part))
        };
        assert!(of("\"ok\"") && of("\"error\""), "{op}");
    }
    // The dialogue says all that there is to say.
    let answers: String = lines.iter().map(|(_, answer)| answer.as_str()).collect();
    for event in [
        "established",
        "completion",
        "stream_opened",
        "stream_ended",
        "path_alive",
        "withdrawn",
        "imm",
        "invalidated",
        "solicited",
        "recv_write",
        "read",
        "cmp_swap",
        "fetch_add",
        "no_such_path",
        "no_such_plane",
        "closed",
        "failed",
        "already_open",
        "not_open",
    ] {
        assert!(answers.contains(&format!("\"{event}\"")), "{event}");
    }
    for status in [
        "IBV_WC_SUCCESS",
        "IBV_WC_REM_ACCESS_ERR",
        "IBV_WC_WR_FLUSH_ERR",
    ] {
        assert!(answers.contains(status), "{status}");
    }
}

/// Everything that one change makes of a line: a field missing, one too many, and one of another type.
fn doctored(line: &str) -> Vec<Value> {
    let value: Value = serde_json::from_str(line).unwrap();
    let mut all = Vec::new();
    for name in value.as_object().unwrap().keys() {
        if is_optional(value["op"].as_str().unwrap_or_default(), name) {
            continue;
        }
        let mut missing = value.clone();
        missing.as_object_mut().unwrap().remove(name);
        all.push(missing);
    }
    for name in value.as_object().unwrap().keys() {
        let mut other = value.clone();
        other[name] = json!([["no such value"]]);
        all.push(other);
    }
    let mut more = value.clone();
    more["more"] = json!(1);
    all.push(more);
    all
}

#[test]
fn doctored_lines_are_refused_by_schema_and_session() {
    let (request, response) = (schema("request"), schema("response"));
    for (asked, answered) in dialogue() {
        for bad in doctored(&asked) {
            assert!(!request.is_valid(&bad), "{bad}");
            let mut session = Session::new(0, None);
            let answer: Value =
                serde_json::from_str(&session.handle_line(0, &bad.to_string())).unwrap();
            let code = answer["error"]["code"].as_str().unwrap_or_default();
            assert!(
                ["bad_request", "unknown_op"].contains(&code),
                "{bad}: {answer}"
            );
            assert!(response.is_valid(&answer), "{answer}");
        }
        for bad in doctored(&answered) {
            assert!(!response.is_valid(&bad), "{bad}");
        }
    }
    let event = schema("event");
    let good = json!({"type": "closed", "conn": 0, "reason": 0, "t_ns": 1});
    assert!(event.is_valid(&good));
    assert!(
        doctored(&good.to_string())
            .iter()
            .all(|bad| !event.is_valid(bad))
    );
}

fn code_of(session: &mut Session, line: &str) -> String {
    let answer: Value = serde_json::from_str(&session.handle_line(0, line)).unwrap();
    assert!(schema("response").is_valid(&answer), "{answer}");
    answer["error"]["code"].as_str().unwrap_or("ok").to_owned()
}

fn open_line(change: Value) -> String {
    let mut line = json!({
        "id": 1, "op": "open", "role": "acceptor", "local": "192.0.2.1:49200", "peer": "192.0.2.2:49200",
        "service_id": 1, "paths": 2, "streams": 1, "payload_size": 1024, "msg_window": 8,
        "source_port_base": 50000, "seed": 1, "ack_delay_us": 200,
    });
    for (name, value) in change.as_object().into_iter().flatten() {
        line[name] = value.clone();
    }
    line.to_string()
}

/// A request that posts work, with more or other fields.
fn work_line(op: &str, more: Value) -> String {
    let line = json!({"id": 1, "op": op, "conn": 0, "stream": 0, "wr_id": 1, "mr": 1, "offset": 0, "len": 4});
    joined(&[&line, &more]).to_string()
}

#[test]
fn refusals_have_codes() {
    let mut session = Session::new(0, None);
    for (line, code) in [
        ("", "bad_line"),
        ("[]", "bad_line"),
        ("{\"id\":1,\"id\":1,\"op\":\"reset\"}", "bad_line"),
        ("{\"op\":\"reset\"}", "bad_request"),
        ("{\"id\":-1,\"op\":\"reset\"}", "bad_request"),
        ("{\"id\":1,\"op\":\"reset\",\"x\":1}", "bad_request"),
        ("{\"id\":1,\"op\":\"fly\"}", "unknown_op"),
        ("{\"id\":1,\"op\":\"hello\",\"protocol\":2}", "bad_protocol"),
        ("{\"id\":1,\"op\":\"close\",\"conn\":0}", "not_open"),
        (&open_line(json!({"payload_size": 300})), "bad_request"),
        (&open_line(json!({"paths": 0})), "bad_request"),
        (&open_line(json!({"paths": 257})), "bad_request"),
        (
            &open_line(json!({"source_port_base": 65535})),
            "bad_request",
        ),
        (&open_line(json!({"peer": "[::1]:49200"})), "bad_request"),
        (
            &open_line(json!({"peer": "192.0.2.2:49201"})),
            "bad_request",
        ),
        (&open_line(json!({"local": "0.0.0.0:49200"})), "bad_request"),
        (&open_line(json!({"initial_psn": null})), "bad_request"),
        (&open_line(json!({"features": ["fly"]})), "bad_request"),
        (
            &open_line(json!({"features": ["imm", "imm"]})),
            "bad_request",
        ),
        (&open_line(json!({"features": null})), "bad_request"),
        (&open_line(json!({"read_depth": 256})), "bad_request"),
        (&open_line(json!({"planes": ["192.0.2.1"]})), "bad_request"),
        (&open_line(json!({"planes": ["::1"]})), "bad_request"),
        (&open_line(json!({"planes": ["0.0.0.0"]})), "bad_request"),
        (
            &open_line(json!({"planes": ["192.0.3.1", "192.0.3.1"]})),
            "bad_request",
        ),
        (
            &open_line(
                json!({"planes": (2..10).map(|n| format!("192.0.{n}.9")).collect::<Vec<_>>()}),
            ),
            "bad_request",
        ),
        (&open_line(json!({"first_streams": 2})), "bad_request"),
        (&open_line(json!({"first_streams": null})), "bad_request"),
        (&open_line(json!({"source_ports": 1})), "bad_request"),
        (&open_line(json!({"source_ports": 20000})), "bad_request"),
        (&open_line(json!({"capacity_mbps": 0})), "bad_request"),
        (
            &open_line(json!({"capacity_mbps": 16_777_215})),
            "bad_request",
        ),
        (&open_line(json!({"hint_interval_us": 9})), "bad_request"),
        (&open_line(json!({"rnr_retries": 8})), "bad_request"),
        (&open_line(json!({"spray_run": 17})), "bad_request"),
        (&open_line(json!({"srq": 1})), "bad_request"),
        (
            "{\"id\":1,\"op\":\"post_srq_recv\",\"wr_id\":1,\"mr\":1,\"offset\":0,\"len\":1}",
            "not_open",
        ),
        (
            &work_line("post_send", json!({"imm": 1, "invalidate": 1})),
            "bad_request",
        ),
        (
            &work_line("post_send", json!({"inline": "00"})),
            "bad_request",
        ),
        (
            &work_line("post_send", json!({"va": "0x1", "rkey": 1})),
            "bad_request",
        ),
        (&work_line("post_write", json!({})), "bad_request"),
        (
            &work_line(
                "post_write",
                json!({"va": "0x1", "rkey": 1, "invalidate": 1}),
            ),
            "bad_request",
        ),
        (
            &work_line("post_read", json!({"va": "1", "rkey": 1})),
            "bad_request",
        ),
        (
            &work_line(
                "post_read",
                json!({"va": "0x1", "rkey": 1, "solicited": true}),
            ),
            "bad_request",
        ),
        (
            &work_line("post_fetch_add", json!({"va": "0x1", "rkey": 1, "add": 1})),
            "bad_request",
        ),
        (
            &work_line(
                "post_cmp_swap",
                json!({"va": "0x1", "rkey": 1, "swap": "0x1", "compare": "0x10000000000000000"}),
            ),
            "bad_request",
        ),
        (
            &work_line("post_read", json!({"va": "0x1", "rkey": 1})),
            "not_open",
        ),
        (
            "{\"id\":1,\"op\":\"move_path\",\"conn\":0,\"path\":0}",
            "bad_request",
        ),
        ("{\"id\":1,\"op\":\"set_capacity\",\"mbps\":5}", "not_open"),
        (&open_line(json!({})), "ok"),
        (&open_line(json!({})), "already_open"),
        (
            "{\"id\":1,\"op\":\"poll\",\"timeout_ms\":600001}",
            "bad_request",
        ),
        (
            "{\"id\":1,\"op\":\"close\",\"conn\":0}",
            "no_such_connection",
        ),
        (
            "{\"id\":1,\"op\":\"register\",\"len\":18446744073709551615,\"fill\":0,\"remote_write\":true}",
            "limit",
        ),
        (
            "{\"id\":1,\"op\":\"digest\",\"mr\":1,\"offset\":0,\"len\":0}",
            "no_such_region",
        ),
        (
            "{\"id\":1,\"op\":\"register\",\"len\":4,\"fill\":0,\"remote_write\":true}",
            "ok",
        ),
        (
            "{\"id\":1,\"op\":\"digest\",\"mr\":1,\"offset\":18446744073709551615,\"len\":2}",
            "out_of_bounds",
        ),
        (
            "{\"id\":1,\"op\":\"read_memory\",\"mr\":1,\"offset\":0,\"len\":9999999999}",
            "limit",
        ),
        (
            "{\"id\":1,\"op\":\"write_memory\",\"mr\":1,\"offset\":3,\"hex\":\"0102\"}",
            "out_of_bounds",
        ),
        (
            "{\"id\":1,\"op\":\"write_memory\",\"mr\":1,\"offset\":3,\"hex\":\"0\"}",
            "bad_request",
        ),
        ("{\"id\":1,\"op\":\"reset\"}", "ok"),
        (
            "{\"id\":1,\"op\":\"digest\",\"mr\":1,\"offset\":0,\"len\":0}",
            "not_open",
        ),
    ] {
        assert_eq!(code_of(&mut session, line), code, "{line}");
    }
    assert_eq!(
        code_of(&mut session, &" ".repeat(LONGEST_LINE + 1)),
        "bad_line"
    );
    assert_eq!(code_of(&mut session, &open_line(json!({}))), "ok");
    assert!(session.local().is_some());
    let refused: Value = serde_json::from_str(&session.refuse_open("no")).unwrap();
    assert_eq!(
        refused,
        json!({"id": 1, "error": {"code": "io", "message": "no"}})
    );
    assert!(session.local().is_none());
}

#[test]
fn only_a_valid_poll_of_an_open_session_waits() {
    let mut session = Session::new(0, None);
    let poll = "{\"id\":1,\"op\":\"poll\",\"timeout_ms\":50}";
    assert_eq!(session.wait_of(poll), None);
    assert_eq!(code_of(&mut session, &open_line(json!({}))), "ok");
    assert_eq!(session.wait_of(poll), Some(50));
    assert_eq!(
        session.wait_of("{\"id\":1,\"op\":\"poll\",\"timeout_ms\":700000}"),
        None
    );
    assert_eq!(session.wait_of("{\"id\":1,\"op\":\"poll\"}"), None);
    assert_eq!(session.wait_of("{\"id\":1,\"op\":\"reset\"}"), None);
}

proptest! {
    #[test]
    fn no_line_makes_it_fall_over(lines in proptest::collection::vec(line(), 1..20)) {
        let mut session = Session::new(0, None);
        session.handle_line(0, &open_line(json!({"role": "initiator"})));
        session.handle_line(0, "{\"id\":1,\"op\":\"register\",\"len\":9,\"fill\":0,\"remote_write\":true}");
        for (now, line) in lines.iter().enumerate() {
            let answer = session.handle_line(now as u64, line);
            prop_assert!(!answer.contains('\n'));
            let answer: Value = serde_json::from_str(&answer).unwrap();
            prop_assert!(answer.get("ok").is_some() != answer.get("error").is_some());
        }
    }

    #[test]
    fn no_datagram_makes_it_fall_over(
        datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..50)
    ) {
        let mut session = Session::new(0, None);
        session.handle_line(0, &open_line(json!({})));
        let from = "192.0.2.2:5".parse().unwrap();
        for bytes in datagrams {
            session.handle_datagram(1, from, metaroce_endpoint::core::Ecn::Ce, &bytes);
        }
        // None of them has a right trailer, so none is answered.
        prop_assert_eq!(session.poll_transmit(2, &mut Vec::new()), None);
    }
}

/// Text, and requests with any numbers in them.
fn line() -> impl Strategy<Value = String> {
    let number = prop_oneof![Just(0u64), Just(1), Just(9), any::<u64>(), Just(u64::MAX)];
    let op = proptest::sample::select(vec![
        "hello",
        "capabilities",
        "open",
        "register",
        "write_memory",
        "read_memory",
        "digest",
        "post_recv",
        "post_send",
        "post_write",
        "poll",
        "counters",
        "close",
        "deregister",
        "post_srq_recv",
        "withdraw_recv",
        "post_read",
        "open_stream",
        "reset_stream",
        "move_path",
        "retire_path",
        "set_plane",
        "stats",
        "abort",
    ]);
    let fields = proptest::collection::btree_map(
        proptest::sample::select(vec![
            "mr",
            "offset",
            "len",
            "conn",
            "stream",
            "wr_id",
            "rkey",
            "timeout_ms",
            "protocol",
            "path",
            "plane",
            "imm",
        ]),
        number,
        0..9,
    );
    let request = (op, fields, any::<bool>()).prop_map(|(op, fields, write)| {
        let mut line = json!({"id": 1, "op": op});
        for (name, value) in fields {
            line[name] = json!(value);
        }
        if write {
            line["va"] = json!("0xffffffffffffffff");
            line["hex"] = json!("00");
        }
        line.to_string()
    });
    prop_oneof![any::<String>(), request]
}
