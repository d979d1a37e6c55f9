//! Adapters that exit, hang, print garbage, flood or lie, and runs that are interrupted: a clear verdict and message each
//! time, an end within bounds, and no process left behind.

#![cfg(feature = "reference")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod hostile;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use hostile::{Ended, METAROCE, Running, adapter, in_parallel, reference};
use metaroce_conformance::iut::{AdapterProcess, Command, PartyError, Request};
use metaroce_reports::{Conduct, RunResult, Verdict, exit};
use rustix::process::{Pid, Signal, kill_process};

/// The test that is made with hostile adapters in the judged place: small, in both roles.
const ONE: &str = "id(write-lossless.initiator)";
const OTHER: &str = "id(write-lossless.acceptor)";

fn run(arguments: &[&str]) -> Ended {
    let ended = Running::start(arguments).end();
    ended.assert_honest();
    ended
}

fn code(ended: &Ended) -> Option<u8> {
    ended.status.code().and_then(|code| u8::try_from(code).ok())
}

fn reasons(result: &RunResult) -> String {
    let reasons = result
        .tests
        .iter()
        .filter_map(|test| test.reason.as_deref());
    reasons.collect::<Vec<_>>().join("\n")
}

fn assert_says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

#[test]
fn a_judged_adapter_that_fails_in_mid_test_fails_the_test_and_says_how() {
    let cases: Vec<(&str, &str, &[&str])> = vec![
        (
            "post_write",
            "hang",
            &["gave no answer to post_write within 10 s", "thinking"],
        ),
        ("poll", "closed-output", &["poll", "runs on"]),
        (
            "open",
            "exit",
            &["ended during open, exit status 3", "out of cheese"],
        ),
        (
            "register",
            "exit",
            &["ended during register, exit status 3", "out of cheese"],
        ),
        (
            "post_write",
            "exit",
            &["ended during post_write, exit status 3", "out of cheese"],
        ),
        (
            "poll",
            "exit",
            &["ended during poll, exit status 3", "out of cheese"],
        ),
        (
            "digest",
            "signal",
            &["ended during digest", "signal 11", "about to go"],
        ),
        ("poll", "mutiny", &["ended during poll", "signal 15"]),
        (
            "poll",
            "garbage",
            &["poll", "no valid answer", "what do you mean?"],
        ),
        ("post_write", "no-text", &["post_write", "not UTF-8"]),
        ("poll", "escapes", &["poll", "no valid answer", "owned"]),
        ("poll", "escapes-within", &["poll", "no valid answer"]),
        (
            "poll",
            "escapes-on-stderr",
            &["poll", "exit status 4", "red"],
        ),
        (
            "write_memory",
            "flood-of-lines",
            &["write_memory", "answer", ": y"],
        ),
        (
            "poll",
            "flood-of-one-line",
            &["poll", "a line of over 8 MiB"],
        ),
        ("poll", "flood-of-events", &["poll", "events in one test"]),
        ("poll", "wrong-id", &["poll", "the id 999999"]),
        ("register", "twice", &["answered"]),
        ("poll", "heir", &["ended during poll, exit status 5"]),
        (
            "poll",
            "heir-in-own-session",
            &["ended during poll, exit status 5"],
        ),
        ("poll", "foreign-work", &["poll", "completion of work 4242"]),
        (
            "post_write",
            "refuses",
            &["post_write was refused", "not today"],
        ),
    ];
    in_parallel(cases, |(operation, deed, says)| {
        let line = adapter(operation, deed, None);
        let start = Instant::now();
        let ended = run(&["--adapter", &line, "--filter", ONE]);
        let result = ended.result();
        let told = reasons(&result);
        assert_eq!(code(&ended), Some(exit::FAIL), "{deed}: {told}");
        assert_eq!(result.tests[0].conduct, Conduct::Failed, "{deed}");
        assert_says(&told, says);
        assert_says(&told, &["party a (metaroce-endpoint)"]);
        // People read it, too.
        assert_says(&ended.stdout, &[says[0]]);
        assert!(start.elapsed() < Duration::from_secs(40), "{deed}");
    });
}

#[test]
fn an_adapter_that_cannot_be_used_at_all_is_an_error_of_usage() {
    let adapters: Vec<(String, &[&str])> = vec![
        ("/nonexistent/adapter".into(), &["/nonexistent/adapter", "hello", "not found"]),
        ("exit 7".into(), &["hello", "exit status 7"]),
        ("true".into(), &["hello", "exit status 0"]),
        ("kill -9 $$".into(), &["hello", "signal 9"]),
        (adapter("capabilities", "exit", None), &["capabilities", "exit status 3", "cheese"]),
        (adapter("hello", "garbage", None), &["hello", "what do you mean?"]),
        (adapter("hello", "escapes", None), &["hello", "no valid answer"]),
        (adapter("hello", "flood-of-lines", None), &["hello"]),
        (adapter("hello", "flood-of-one-line", None), &["hello", "8 MiB"]),
        (adapter("hello", "hang", None), &["hello", "within 10 s", "thinking"]),
        (adapter("capabilities", "heir-in-own-session", None), &["capabilities", "5"]),
        (
            "read -r l; echo '{\"id\":1,\"ok\":{\"protocol\":1,\"name\":\"n\",\"version\":\"1\",\"profile\":\"p\"}}'; \
             read -r l; echo '{\"id\":2,\"ok\":{\"roles\":[\"initiator\\u001b[2J\"],\"operations\":[],\"max_paths\":1,\
             \"max_streams\":1,\"payload_sizes\":[]}}'; cat"
                .into(),
            &["contradicts its PICS", "max_paths: the PICS claims 256, the adapter says 1"],
        ),
        (
            "read -r l; echo '{\"id\":1,\"ok\":{\"protocol\":9,\"name\":\"n\",\"version\":\"1\",\"profile\":\"p\"}}'; cat"
                .into(),
            &["version 9 of the adapter protocol"],
        ),
    ];
    in_parallel(adapters, |(line, says)| {
        for place in ["--adapter", "--peer"] {
            let good = reference(None);
            let arguments = match place {
                "--adapter" => ["--adapter", &line, "--peer", &good, "--filter", ONE],
                // Only one of the two is asked for so long.
                _ if says.contains(&"within 10 s") => continue,
                _ if says[0].contains("PICS") => continue,
                _ => ["--adapter", &good, "--peer", &line, "--filter", ONE],
            };
            let ended = run(&arguments);
            assert_eq!(code(&ended), Some(exit::USAGE), "{line}: {}", ended.stderr);
            assert_says(&ended.stderr, says);
            assert!(!ended.out.exists(), "evidence of no test");
        }
    });
}

#[test]
fn what_the_peer_does_is_never_charged_to_the_judged_party() {
    let deeds = [
        ("open", "exit"),
        ("post_write", "exit"),
        ("poll", "garbage"),
        ("poll", "closed-output"),
        ("poll", "flood-of-lines"),
        ("post_write", "refuses"),
        ("poll", "heir-in-own-session"),
        ("poll", "foreign-work"),
        ("poll", "established"),
        ("open", "one-path"),
    ];
    let mut peers: Vec<(String, String)> = deeds
        .iter()
        .map(|(operation, deed)| {
            (
                adapter(operation, deed, None),
                format!("{deed} in {operation}"),
            )
        })
        .collect();
    for fake in ["null", "echo", "ack-everything"] {
        peers.push((reference(Some(fake)), fake.into()));
    }
    let good = reference(None);
    in_parallel(peers, |(peer, what)| {
        let ended = run(&["--adapter", &good, "--peer", &peer, "--filter", ONE]);
        let result = ended.result();
        assert_eq!(
            code(&ended),
            Some(exit::INCONCLUSIVE),
            "{what}: {}",
            ended.stdout
        );
        let failed = result.clauses.iter().find(|c| c.verdict == Verdict::Fail);
        assert!(failed.is_none(), "{what}: {failed:?}");
        assert_eq!(result.tests[0].verdict, Verdict::Inconclusive, "{what}");
        assert!(result.tests[0].reason.is_some());
    });
}

#[test]
fn an_adapter_that_pretends_passes_nothing() {
    let liars = vec![
        (reference(Some("null")), OTHER, "has sent nothing"),
        (reference(Some("null")), ONE, "has sent nothing"),
        (reference(Some("echo")), OTHER, ""),
        (reference(Some("ack-everything")), ONE, ""),
        (reference(Some("ack-everything")), OTHER, ""),
        (adapter("poll", "established", None), ONE, ""),
        (adapter("poll", "established", None), OTHER, ""),
        (
            adapter("open", "one-path", None),
            ONE,
            "1 paths and 1 streams, 4 and 1 were asked for",
        ),
        (
            adapter("open", "one-path", None),
            OTHER,
            "4 and 1 were asked for",
        ),
    ];
    in_parallel(liars, |(line, filter, says)| {
        let ended = run(&["--adapter", &line, "--filter", filter]);
        let result = ended.result();
        let code = code(&ended);
        assert!(
            code == Some(exit::FAIL) || code == Some(exit::INCONCLUSIVE),
            "{line}: {code:?}"
        );
        assert_eq!(result.summary.clauses.pass, 0, "{line}: {}", ended.stdout);
        assert_ne!(result.tests[0].verdict, Verdict::Pass, "{line}");
        assert_says(&reasons(&result), &[says]);
    });
}

#[test]
fn an_adapter_that_only_makes_noise_or_will_not_go_is_judged_as_ever() {
    let cases = vec![
        (adapter("poll", "flood-of-stderr", None), None),
        (
            adapter("poll", "stays", None),
            Some("killed 2 s after its input was closed"),
        ),
    ];
    in_parallel(cases, |(line, end)| {
        let ended = run(&["--adapter", &line, "--filter", ONE]);
        let result = ended.result();
        assert_eq!(result.tests[0].verdict, Verdict::Pass, "{}", ended.stdout);
        let told = result.tests[0].adapters.first().map(|exit| &*exit.reason);
        if end.is_some() {
            assert_eq!(told, end);
        }
    });
}

/// A named pipe, and a wait for somebody to open it for writing.
struct Notice(PathBuf);

impl Notice {
    fn new(folder: &Path) -> Self {
        let path = folder.join("notice");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        Self(path)
    }

    fn wait(&self) {
        let path = self.0.clone();
        let (sender, opened) = channel();
        std::thread::spawn(move || {
            let opened = std::fs::File::open(path).map(|mut file| file.read(&mut [0]));
            let _late = sender.send(opened.is_ok());
        });
        assert_eq!(opened.recv_timeout(hostile::RUN_TIME), Ok(true));
    }
}

/// When a run is interrupted.
#[derive(Clone, Copy)]
enum Moment {
    /// As soon as it has been started.
    Start,
    /// While the adapter hangs in this operation.
    Hang(&'static str),
    /// At the beginning of the test of this number.
    Test(usize),
}

fn interrupted(moment: Moment, signal: Signal) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let notice = Notice::new(folder.path());
    let line = match moment {
        Moment::Hang(operation) => adapter(operation, "hang", Some(&notice.0)),
        _ => reference(None),
    };
    let filter = "tag(write) and not tag(tester)";
    let mut running = Running::start(&["--adapter", &line, "--filter", filter]);
    match moment {
        Moment::Start => {}
        Moment::Hang(_) => notice.wait(),
        Moment::Test(n) => running.wait_for(&format!("[{n}/")),
    }
    let pid = Pid::from_child(&running.child);
    kill_process(pid, signal).unwrap();
    let ended = running.end();
    ended.assert_honest();
    ended
}

#[test]
fn a_run_that_is_interrupted_leaves_no_process_and_no_verdict() {
    use std::os::unix::process::ExitStatusExt;
    let moments = [
        Moment::Start,
        Moment::Hang("hello"),
        Moment::Hang("open"),
        Moment::Hang("poll"),
        Moment::Test(1),
        Moment::Test(3),
        Moment::Test(4),
    ];
    let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL];
    let cases = moments
        .into_iter()
        .flat_map(|moment| signals.map(|signal| (moment, signal)));
    in_parallel(cases.collect(), |(moment, signal)| {
        let ended = interrupted(moment, signal);
        let raw = signal.as_raw();
        match (signal, moment) {
            (Signal::KILL, _) => assert_eq!(ended.status.signal(), Some(raw)),
            // The shell, or `metaroce` before it listens, ends by the signal.
            (_, Moment::Start) if ended.status.signal() == Some(raw) => {}
            _ => {
                assert_eq!(code(&ended), Some(exit::HARNESS), "{}", ended.stderr);
                assert_says(&ended.stderr, &["error: interrupted"]);
            }
        }
        assert!(!ended.out.join("result.json").exists());
        let Ok(entries) = std::fs::read_dir(&ended.out) else {
            return;
        };
        if signal != Signal::KILL {
            for entry in entries.map(|entry| entry.unwrap().path()) {
                let whole = !entry.is_dir() || entry.join("test.json").is_file();
                assert!(whole, "half a test in {}", entry.display());
                assert_ne!(entry.extension().unwrap_or_default(), "partial");
            }
        }
        let analyzed = std::process::Command::new(METAROCE)
            .arg("analyze")
            .arg(&ended.out)
            .output()
            .unwrap();
        let said = String::from_utf8(analyzed.stderr).unwrap();
        if ended.out.join("run.json").is_file() {
            assert_eq!(
                analyzed.status.code(),
                Some(i32::from(exit::HARNESS)),
                "{said}"
            );
            assert_says(&said, &["the run was not finished"]);
        } else {
            assert_eq!(
                analyzed.status.code(),
                Some(i32::from(exit::USAGE)),
                "{said}"
            );
        }
    });
}

#[test]
fn an_interrupted_run_can_be_made_again_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let notice = Notice::new(folder.path());
    let line = adapter("poll", "hang", Some(&notice.0));
    let running = Running::start(&["--adapter", &line, "--filter", ONE]);
    notice.wait();
    kill_process(Pid::from_child(&running.child), Signal::KILL).unwrap();
    let ended = running.end();
    // Of what a run cut short may leave, the least and the most awkward.
    std::fs::create_dir(ended.out.join("one-path")).unwrap();
    std::fs::write(ended.out.join("one-path/events.partial"), "{").unwrap();
    std::fs::create_dir(ended.out.join("marked")).unwrap();
    let again = std::process::Command::new(METAROCE)
        .args(["run", "--link", "sim", "--filter", "id(one-path)", "--out"])
        .arg(&ended.out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(ended.out.join("result.json").is_file(), "{said}");
    assert!(!ended.out.join("write-lossless.initiator").exists());
    assert!(!ended.out.join("marked").exists());
    assert!(!ended.out.join("one-path/events.partial").exists());
}

/// Calls of an adapter with little patience.
#[test]
fn calls_end_in_time_whatever_the_adapter_does() {
    let hello = Request::Hello { protocol: 1 };
    let large = Request::WriteMemory {
        mr: 0,
        offset: 0,
        hex: "00".repeat(1 << 20),
    };
    let silent = |error: &PartyError| matches!(error, PartyError::Silent { .. });
    let said = |error: &PartyError| matches!(error, PartyError::Said { error, .. } if matches!(**error, PartyError::Silent { .. }));
    let garbage = |error: &PartyError| matches!(error, PartyError::Garbage { .. });
    let deaf = |error: &PartyError| matches!(error, PartyError::Deaf { .. });
    type Check<'c> = &'c dyn Fn(&PartyError) -> bool;
    // Silence is waited for; what ends a call by itself gets all the time that a busy machine needs for it.
    let (short, long) = (Duration::from_millis(300), Duration::from_secs(60));
    let cases: [(&str, &Request, Duration, Check<'_>); 8] = [
        ("sleep 1000", &hello, short, &silent),
        (
            "echo well >&2; sleep 1000",
            &hello,
            Duration::from_secs(3),
            &said,
        ),
        // It does not read, and the request is longer than what the pipe takes.
        ("sleep 1000", &large, short, &silent),
        ("yes", &large, long, &garbage),
        ("exec >&-; sleep 1000", &hello, long, &deaf),
        ("exec <&-; sleep 1000", &large, long, &deaf),
        (
            "trap '' TERM; while :; do read -r l; done",
            &large,
            short,
            &silent,
        ),
        ("kill -STOP $$", &hello, short, &silent),
    ];
    for (line, request, patience, expected) in cases {
        let command = Command::Shell(line.into());
        let mut process = AdapterProcess::start_by(Path::new(METAROCE), &command).unwrap();
        process.set_answer_time(patience);
        let error = process.call(request).unwrap_err();
        assert!(expected(&error), "{line}: {error:?}");
    }
}
