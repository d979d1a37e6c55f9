//! A party in a process of its own, spoken to over its standard input and output.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{PartyError, Request, printable, read_answer};

/// How long an adapter may take to answer a request that does not wait for anything.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long an adapter may take to end after its input is closed.
const END_TIME: Duration = Duration::from_secs(2);
/// Longest line that is read from an adapter, bytes.
const LONGEST_LINE: u64 = 16 << 20;
/// How much of standard error is kept, bytes: the last that was written.
const STDERR_KEPT: usize = 4096;

/// How to start a party.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A command line, run by `sh -c`.
    Shell(String),
    /// The reference endpoint: this program, re-executed.
    Reference {
        /// A mutant of it, by id.
        mutant: Option<String>,
    },
}

impl Command {
    /// The command line as people would write it.
    pub fn text(&self) -> String {
        match self {
            Self::Shell(line) => line.clone(),
            Self::Reference { mutant: None } => "metaroce endpoint".into(),
            Self::Reference { mutant: Some(id) } => format!("metaroce endpoint --mutant {id}"),
        }
    }

    /// The command under the supervisor, which ends it when this process ends in whatever way.
    fn build(&self) -> std::io::Result<std::process::Command> {
        let this = std::env::current_exe()?;
        let mut command = std::process::Command::new(&this);
        command.args([
            "supervise",
            "--parent",
            &std::process::id().to_string(),
            "--",
        ]);
        match self {
            Self::Shell(line) => command.args(["sh", "-c", line]),
            Self::Reference { mutant } => {
                command.arg(&this).arg("endpoint");
                if let Some(id) = mutant {
                    command.args(["--mutant", id]);
                }
                &mut command
            }
        };
        Ok(command)
    }
}

enum Line {
    Text(String),
    TooLong,
    NotText,
}

/// A running adapter. Dropping it kills its whole process group.
pub struct AdapterProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Line>,
    threads: Vec<JoinHandle<()>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    next_id: u64,
}

impl AdapterProcess {
    /// Starts the process in a group of its own.
    ///
    /// # Errors
    /// [`PartyError::Start`].
    pub fn start(command: &Command) -> Result<Self, PartyError> {
        let failed = |message: String| PartyError::Start {
            command: command.text(),
            message,
        };
        let mut child = command
            .build()
            .map_err(|e| failed(e.to_string()))?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| failed(e.to_string()))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed("its standard streams are not there".into()));
        };
        // A small bound: an adapter that floods blocks on its pipe, and costs no memory here.
        let (sender, lines) = sync_channel(4);
        let kept = Arc::new(Mutex::new(Vec::new()));
        let kept_by_thread = Arc::clone(&kept);
        let threads = vec![
            std::thread::spawn(move || read_lines(BufReader::new(stdout), &sender)),
            std::thread::spawn(move || keep_last(stderr, &kept_by_thread)),
        ];
        Ok(Self {
            child,
            stdin: Some(stdin),
            lines,
            threads,
            stderr: kept,
            next_id: 1,
        })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// [`PartyError`], whatever else the adapter does.
    pub fn call(&mut self, request: &Request) -> Result<Value, PartyError> {
        let op = request.op();
        let id = self.next_id;
        self.next_id += 1;
        let garbage = |what: &str, line: &str| PartyError::Garbage {
            op: op.into(),
            what: what.into(),
            line: line.into(),
        };
        if let Ok(Line::Text(line)) = self.lines.try_recv() {
            return Err(garbage(
                "a line that nobody had asked for",
                &printable(&line),
            ));
        }
        let mut line = request.line(id).map_err(|e| garbage(&e.to_string(), ""))?;
        line.push('\n');
        let written = match self.stdin.as_mut() {
            Some(stdin) => stdin
                .write_all(line.as_bytes())
                .and_then(|()| stdin.flush()),
            None => return Err(self.ended(op)),
        };
        if written.is_err() {
            return Err(self.ended(op));
        }
        let wait = match request {
            Request::Poll { timeout_ms } => ANSWER_TIME + Duration::from_millis(*timeout_ms),
            _ => ANSWER_TIME,
        };
        match self.lines.recv_timeout(wait) {
            Ok(Line::Text(line)) => read_answer(op, id, &line),
            Ok(Line::TooLong) => Err(garbage("a line of over 16 MiB", "")),
            Ok(Line::NotText) => Err(garbage("bytes that are not UTF-8", "")),
            Err(RecvTimeoutError::Timeout) => Err(PartyError::Silent {
                op: op.into(),
                seconds: wait.as_secs(),
            }),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended(op)),
        }
    }

    /// Closes the adapter's input and waits a little for it to end by itself.
    pub fn finish(mut self) {
        self.stdin = None;
        let start = Instant::now();
        while start.elapsed() < END_TIME {
            match self.child.try_wait() {
                Ok(None) => std::thread::park_timeout(Duration::from_millis(2)),
                _ => break,
            }
        }
    }

    fn ended(&mut self, op: &str) -> PartyError {
        let start = Instant::now();
        let mut status = String::new();
        while start.elapsed() < Duration::from_millis(500) {
            if let Ok(Some(code)) = self.child.try_wait() {
                status = format!(" ({code})");
                break;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        let last = self
            .stderr
            .lock()
            .map(|kept| String::from_utf8_lossy(&kept).into_owned())
            .unwrap_or_default();
        let tail: String = last
            .trim()
            .chars()
            .rev()
            .take(300)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        let stderr = if tail.is_empty() {
            String::new()
        } else {
            format!(", saying: {}", printable(&tail))
        };
        PartyError::Ended {
            op: op.into(),
            status,
            stderr,
        }
    }
}

impl Drop for AdapterProcess {
    fn drop(&mut self) {
        self.stdin = None;
        // The supervisor leads the group; it may be gone already, and the group with it.
        if let Some(group) = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _status = self.child.wait();
        // Readers end with the pipes; unread lines are thrown away so that no reader waits to hand one over.
        while self.lines.recv_timeout(Duration::from_millis(200)).is_ok() {}
        for thread in self.threads.drain(..) {
            // A process that left the group may hold the pipe open: its reader is left to end with it.
            if thread.is_finished() {
                let _panicked = thread.join();
            }
        }
    }
}

fn read_lines(mut from: impl BufRead, to: &SyncSender<Line>) {
    loop {
        let mut bytes = Vec::new();
        match (&mut from).take(LONGEST_LINE).read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let complete = bytes.last() == Some(&b'\n');
        let line = if !complete && bytes.len() as u64 == LONGEST_LINE {
            Line::TooLong
        } else {
            String::from_utf8(bytes)
                .map_or(Line::NotText, |text| Line::Text(text.trim_end().to_owned()))
        };
        let last = matches!(line, Line::TooLong);
        if to.send(line).is_err() || last {
            return;
        }
    }
}

fn keep_last(mut from: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        let Ok(mut kept) = kept.lock() else { return };
        kept.extend_from_slice(&buffer[..n]);
        let excess = kept.len().saturating_sub(STDERR_KEPT);
        kept.drain(..excess);
    }
}
