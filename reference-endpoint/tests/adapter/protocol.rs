//! The adapter protocol: the schema describes what a session says and takes, and no line makes it fall over.

use super::link::{Link, Weather};
use metaroce_endpoint::adapter::{LONGEST_LINE, Session};
use proptest::prelude::*;
use serde_json::{Value, json};

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
    link.lines
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
    // The dialogue says all that there is to say.
    let answers: String = lines.iter().map(|(_, answer)| answer.as_str()).collect();
    for event in [
        "established",
        "completion",
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
        if name == "initial_psn" {
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
