//! Two adapter processes talk to each other over loopback sockets. The test program re-executes itself as the adapter.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use metaroce_endpoint::adapter::{Options, run_stdio};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "endpoint") {
        let mutant = arguments.get(1).cloned();
        return match run_stdio(&Options { mutant }) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    // The usual way of a test runner to ask what there is.
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    type Test = (&'static str, fn());
    let tests: [Test; 6] = [
        ("work_gets_done", work_gets_done),
        (
            "a_read_comes_through_two_planes",
            a_read_comes_through_two_planes,
        ),
        (
            "a_poll_waits_for_its_time_only",
            a_poll_waits_for_its_time_only,
        ),
        (
            "an_address_that_cannot_be_had_is_an_answer",
            an_address_that_cannot_be_had_is_an_answer,
        ),
        ("it_ends_when_it_is_told", it_ends_when_it_is_told),
        ("there_is_no_such_mutant", there_is_no_such_mutant),
    ];
    for (name, test) in tests {
        // A panic ends the program with a failure and shows which step it was.
        test();
        println!("test {name} ... ok");
    }
    println!(
        "\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        tests.len()
    );
    ExitCode::SUCCESS
}

struct Adapter {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    id: u64,
}

impl Adapter {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("endpoint")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            stdin,
            stdout,
            id: 0,
        }
    }

    fn ask(&mut self, op: &str, mut body: Value) {
        self.id += 1;
        body["id"] = json!(self.id);
        body["op"] = json!(op);
        writeln!(self.stdin.as_mut().unwrap(), "{body}").unwrap();
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], json!(self.id));
        answer
    }

    fn call(&mut self, op: &str, body: Value) -> Value {
        self.ask(op, body);
        let mut answer = self.answer();
        assert!(answer.get("ok").is_some(), "{op}: {answer}");
        answer["ok"].take()
    }

    /// Polls until as many events are there.
    fn events(&mut self, count: usize) -> Vec<Value> {
        let start = Instant::now();
        let mut all = Vec::new();
        while all.len() < count {
            assert!(start.elapsed() < Duration::from_secs(30), "only {all:?}");
            let answer = self.call("poll", json!({"timeout_ms": 1000}));
            all.extend(answer["events"].as_array().unwrap().iter().cloned());
        }
        all
    }

    /// Waits for the end; the exit code.
    fn end(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < Duration::from_secs(10), "it does not end");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Two addresses that no other run of this test uses at the same time, and the same free port on both.
fn addresses() -> [String; 2] {
    let process = std::process::id();
    let [_, _, high, low] = process.to_be_bytes();
    let host = |last: u8| format!("127.{}.{}.{last}", 1 + high % 250, low);
    [1, 2].map(|last| format!("{}:48000", host(last)))
}

fn open(side: usize, addresses: &[String; 2]) -> Value {
    json!({
        "role": if side == 0 { "initiator" } else { "acceptor" }, "local": addresses[side], "peer": addresses[1 - side],
        "service_id": 3, "paths": 8, "streams": 2, "payload_size": 1024, "msg_window": 64,
        "source_port_base": 51000, "seed": side, "ack_delay_us": 200,
    })
}

fn work_gets_done() {
    let addresses = addresses();
    let mut adapters = [Adapter::start(&[]), Adapter::start(&[])];
    for side in [1, 0] {
        let body = open(side, &addresses);
        adapters[side].call("open", body);
    }
    for adapter in &mut adapters {
        assert_eq!(adapter.events(1)[0]["type"], "established");
    }
    const LEN: usize = 1 << 20;
    let regions = [0, 1].map(|side: usize| {
        let body = json!({"len": LEN, "fill": side, "remote_write": true});
        adapters[side].call("register", body)
    });
    let pattern: String = (0..1024u32)
        .map(|i| format!("{:02x}", i * 7 % 251))
        .collect();
    for side in 0..2 {
        let body = json!({"mr": regions[side]["mr"], "offset": side * 5000, "hex": pattern});
        adapters[side].call("write_memory", body);
    }
    let whole = |region: &Value| json!({"mr": region["mr"], "offset": 0, "len": LEN});
    let expected = adapters[0].call("digest", whole(&regions[0]));
    let mut write = json!({"conn": 0, "stream": 0, "wr_id": 5, "va": regions[1]["va"], "rkey": regions[1]["rkey"]});
    for (name, value) in whole(&regions[0]).as_object().unwrap() {
        write[name] = value.clone();
    }
    let start = Instant::now();
    adapters[0].call("post_write", write);
    let done = adapters[0].events(1);
    println!("1 MiB took {:?}", start.elapsed());
    assert_eq!(
        (&done[0]["status"], &done[0]["wr_id"]),
        (&json!("IBV_WC_SUCCESS"), &json!(5))
    );
    assert_eq!(adapters[1].call("digest", whole(&regions[1])), expected);
    // Back again by a Send, so that a receive completes as well.
    let post = json!({"conn": 0, "stream": 2, "wr_id": 6, "mr": regions[1]["mr"], "offset": 0, "len": 5001});
    adapters[0].call("post_recv", post.clone());
    adapters[1].call("post_send", post);
    assert_eq!(adapters[0].events(1)[0]["byte_len"], json!(5001));
    assert_eq!(adapters[1].events(1)[0]["kind"], json!("send"));
    let counters = adapters[1].call("counters", json!({"conn": 0}));
    assert!(counters["counters"]["packets_received"].as_u64().unwrap() > 1024);
    adapters[0].call("close", json!({"conn": 0}));
    for adapter in &mut adapters {
        assert_eq!(adapter.events(1)[0]["type"], "closed");
        adapter.call("reset", json!({}));
        adapter.stdin = None;
        assert_eq!(adapter.end(), Some(0));
    }
}

fn a_read_comes_through_two_planes() {
    let addresses = addresses();
    let mut adapters = [Adapter::start(&[]), Adapter::start(&[])];
    for side in [1, 0] {
        let mut body = open(side, &addresses);
        body["read_depth"] = json!(2);
        let (host, _) = addresses[side].split_once(':').unwrap();
        body["planes"] = json!([format!("{host}0")]);
        adapters[side].call("open", body);
    }
    for adapter in &mut adapters {
        assert_eq!(adapter.events(1)[0]["type"], "established");
    }
    let body = json!({"len": 100_000, "fill": 3, "remote_write": false, "remote_read": true});
    let there = adapters[1].call("register", body);
    let body = json!({"len": 100_000, "fill": 0, "remote_write": false});
    let here = adapters[0].call("register", body);
    let read = json!({
        "conn": 0, "stream": 0, "wr_id": 1, "mr": here["mr"], "offset": 0, "len": 100_000,
        "va": there["va"], "rkey": there["rkey"],
    });
    adapters[0].call("post_read", read);
    let done = adapters[0].events(1);
    assert_eq!(
        (&done[0]["kind"], &done[0]["status"]),
        (&json!("read"), &json!("IBV_WC_SUCCESS"))
    );
    let whole = json!({"mr": here["mr"], "offset": 0, "len": 100_000});
    let digest = adapters[0].call("digest", whole.clone());
    assert_eq!(adapters[1].call("digest", whole), digest);
    // The answer came through both.
    let mut sent = [0, 0];
    for path in 0..8 {
        let stats = adapters[1].call("stats", json!({"conn": 0, "path": path}));
        let plane = stats["path"]["plane"].as_u64().unwrap();
        sent[plane as usize] += stats["path"]["packets_sent"].as_u64().unwrap();
    }
    assert!(sent.iter().all(|count| *count > 0), "{sent:?}");
}

fn a_poll_waits_for_its_time_only() {
    let mut adapter = Adapter::start(&["null"]);
    adapter.call("open", open(0, &addresses()));
    let start = Instant::now();
    let answer = adapter.call("poll", json!({"timeout_ms": 50}));
    assert_eq!(answer, json!({"events": []}));
    assert!(start.elapsed() >= Duration::from_millis(50));
    // A line that comes while it waits has its turn after that.
    adapter.ask("poll", json!({"timeout_ms": 50}));
    let poll = adapter.id;
    adapter.ask("reset", json!({}));
    let reset = std::mem::replace(&mut adapter.id, poll);
    assert_eq!(adapter.answer()["ok"], json!({"events": []}));
    adapter.id = reset;
    assert_eq!(adapter.answer()["ok"], json!({}));
}

fn an_address_that_cannot_be_had_is_an_answer() {
    let mut adapter = Adapter::start(&[]);
    let foreign = [
        "203.0.113.77:48000".to_owned(),
        "203.0.113.78:48000".to_owned(),
    ];
    adapter.ask("open", open(1, &foreign));
    assert_eq!(adapter.answer()["error"]["code"], json!("io"));
    adapter.call("open", open(1, &addresses()));
    // Its sockets are gone after a reset, so they can be had again.
    adapter.call("reset", json!({}));
    adapter.call("open", open(1, &addresses()));
}

fn it_ends_when_it_is_told() {
    // At the end of its input, even while a poll waits.
    let mut adapter = Adapter::start(&[]);
    adapter.call("open", open(1, &addresses()));
    adapter.ask("poll", json!({"timeout_ms": 600_000}));
    adapter.stdin = None;
    assert_eq!(adapter.end(), Some(0));
    // On SIGTERM, while its input stays open.
    let mut adapter = Adapter::start(&[]);
    adapter.call("open", open(1, &addresses()));
    let id = adapter.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(adapter.end(), Some(0));
}

fn there_is_no_such_mutant() {
    let mut adapter = Adapter::start(&["no-such-mutant"]);
    assert_eq!(adapter.end(), Some(1));
}
