//! A party in a process of its own, spoken to over its standard input and output.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use super::{PartyError, Request, interrupted, printable, read_answer};

/// How long an adapter may take to answer a request that does not wait for anything.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// In how many turns that time is waited, so that a harness that was stopped for a while does not take the pause for the
/// adapter's.
const TURNS: u32 = 100;
/// How long an adapter may take to end after its input is closed.
const END_TIME: Duration = Duration::from_secs(2);
/// How long the end of an adapter that has closed its output may take to be known.
const STATUS_TIME: Duration = Duration::from_secs(1);
/// How long the supervisor may take to end all processes of the adapter.
const KILL_TIME: Duration = Duration::from_secs(5);
/// How long the readers of a dead adapter may take to see the end.
const READ_TIME: Duration = Duration::from_secs(1);
/// Longest line that is read from an adapter, bytes.
const LONGEST_LINE: u64 = 8 << 20;
/// How much of standard error is kept, bytes: the last that was written.
const STDERR_KEPT: usize = 4096;
/// How much of it is shown, characters.
const STDERR_SHOWN: usize = 300;

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
    ///
    /// `program` is the binary `metaroce`, which is the supervisor and the reference endpoint.
    fn build(&self, program: &std::path::Path) -> std::process::Command {
        let mut command = std::process::Command::new(program);
        command.args([
            "supervise",
            "--parent",
            &std::process::id().to_string(),
            "--",
        ]);
        match self {
            Self::Shell(line) => {
                command.args(["sh", "-c", line]);
            }
            Self::Reference { mutant } => {
                command.arg(program).arg("endpoint");
                if let Some(id) = mutant {
                    command.args(["--mutant", id]);
                }
            }
        }
        command
    }
}

enum Line {
    Text(String),
    TooLong,
    NotText,
}

/// A running adapter. Dropping it ends every process that it has started.
pub struct AdapterProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Line>,
    reader: Option<JoinHandle<()>>,
    stderr_reader: Option<JoinHandle<()>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    next_id: u64,
    answer_time: Duration,
}

impl AdapterProcess {
    /// Starts the adapter under a supervisor, which is this program.
    ///
    /// # Errors
    /// [`PartyError::Start`]: the supervisor cannot be started, which is no fault of the adapter.
    pub fn start(command: &Command) -> Result<Self, PartyError> {
        let program = std::env::current_exe().map_err(|e| PartyError::Start {
            command: command.text(),
            message: e.to_string(),
        })?;
        Self::start_by(&program, command)
    }

    /// The same by the binary `metaroce` at `program`, for callers that are another program.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_by(program: &std::path::Path, command: &Command) -> Result<Self, PartyError> {
        let failed = |message: String| PartyError::Start {
            command: command.text(),
            message,
        };
        let mut child = command
            .build(program)
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
        let (sender, lines) = sync_channel(1);
        let kept = Arc::new(Mutex::new(Vec::new()));
        let kept_by_thread = Arc::clone(&kept);
        // An adapter that does not read must not stop the harness.
        let unblocked = rustix::io::ioctl_fionbio(&stdin, true);
        let process = Self {
            child,
            stdin: Some(stdin),
            lines,
            reader: Some(std::thread::spawn(move || {
                read_lines(BufReader::new(stdout), &sender)
            })),
            stderr_reader: Some(std::thread::spawn(move || {
                keep_last(stderr, &kept_by_thread)
            })),
            stderr: kept,
            next_id: 1,
            answer_time: ANSWER_TIME,
        };
        unblocked.map_err(|e| failed(e.to_string()))?;
        Ok(process)
    }

    /// Sets how long the adapter may take to answer a request that does not wait for anything; 10 s unless set.
    pub fn set_answer_time(&mut self, time: Duration) {
        self.answer_time = time;
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// [`PartyError`], whatever else the adapter does; [`PartyError::Interrupted`] when this program is to end.
    pub fn call(&mut self, request: &Request) -> Result<Value, PartyError> {
        let op = request.op();
        let id = self.next_id;
        self.next_id += 1;
        let answer = self
            .exchange(request, id)
            .and_then(|line| read_answer(op, id, &line));
        match answer {
            Err(error @ (PartyError::Garbage { .. } | PartyError::Silent { .. })) => {
                Err(error.saying(self.last_words()))
            }
            other => other,
        }
    }

    fn exchange(&mut self, request: &Request, id: u64) -> Result<String, PartyError> {
        let op = request.op();
        self.unasked(op)?;
        let mut line = request.line(id).map_err(|e| PartyError::Start {
            command: op.into(),
            message: format!("the request cannot be written: {e}"),
        })?;
        line.push('\n');
        let waits = match request {
            Request::Poll { timeout_ms } => Duration::from_millis(*timeout_ms),
            _ => Duration::ZERO,
        };
        let mut patience = Patience {
            turn: (self.answer_time + waits) / TURNS,
            left: TURNS,
        };
        self.send(op, line.as_bytes(), &mut patience)?;
        loop {
            if interrupted() {
                return Err(PartyError::Interrupted);
            }
            match self.lines.recv_timeout(patience.turn) {
                Ok(line) => return text(op, line),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended(op)),
                Err(RecvTimeoutError::Timeout) if patience.spend() => {}
                Err(RecvTimeoutError::Timeout) => return Err(self.silent(op, waits)),
            }
        }
    }

    /// A line that is there before the request is no answer.
    fn unasked(&mut self, op: &str) -> Result<(), PartyError> {
        match self.lines.try_recv() {
            Ok(line) => Err(PartyError::Garbage {
                op: op.into(),
                what: "a line that nobody had asked for".into(),
                line: text(op, line).map_or_else(|e| e.to_string(), |line| printable(&line)),
            }),
            Err(TryRecvError::Empty) => Ok(()),
            Err(TryRecvError::Disconnected) => Err(self.ended(op)),
        }
    }

    fn send(&mut self, op: &str, bytes: &[u8], patience: &mut Patience) -> Result<(), PartyError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(stdin) = self.stdin.as_mut() else {
                return Err(self.ended(op));
            };
            match stdin.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let turn = Timespec::try_from(patience.turn).ok();
                    let mut fds = [PollFd::new(stdin, PollFlags::OUT)];
                    // Whatever it says, the next write shows how things are.
                    let ready = poll(&mut fds, turn.as_ref()).unwrap_or(0);
                    if interrupted() {
                        return Err(PartyError::Interrupted);
                    }
                    if ready == 0 {
                        self.unasked(op)?;
                        if !patience.spend() {
                            return Err(self.silent(op, Duration::ZERO));
                        }
                    }
                }
                Err(_) => return Err(self.ended(op)),
            }
        }
        Ok(())
    }

    fn silent(&self, op: &str, waits: Duration) -> PartyError {
        PartyError::Silent {
            op: op.into(),
            seconds: (self.answer_time + waits).as_secs(),
        }
    }

    /// Closes the adapter's input, which asks it to end.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Closes the adapter's input, waits a little for it to end by itself, and ends what is left. Tells what had to be
    /// done or how it ended, unless it ended well.
    pub fn finish(mut self) -> Option<String> {
        self.close_input();
        match self.wait_for_end(END_TIME) {
            Some(status) if status.success() => None,
            Some(status) => Some(describe(status)),
            None => Some(format!(
                "killed {} s after its input was closed",
                END_TIME.as_secs()
            )),
        }
    }

    /// The exit status of the supervisor, which is the adapter's, once it is there.
    fn wait_for_end(&mut self, within: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if start.elapsed() >= within || interrupted() {
                return None;
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// The error for an adapter that has closed its output, or its input.
    fn ended(&mut self, op: &str) -> PartyError {
        if interrupted() {
            return PartyError::Interrupted;
        }
        let status = self.wait_for_end(STATUS_TIME);
        let stderr = self.last_words();
        let op = op.to_owned();
        match status {
            Some(status) => PartyError::Ended {
                op,
                status: describe(status),
                stderr,
            },
            None => PartyError::Deaf { op, stderr },
        }
    }

    /// The end of what the adapter wrote to standard error, all of it once it has ended.
    fn last_words(&mut self) -> String {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            wait_for_thread(self.stderr_reader.as_ref());
        }
        let last = self
            .stderr
            .lock()
            .map(|kept| String::from_utf8_lossy(&kept).into_owned())
            .unwrap_or_default();
        let last = last.trim();
        let skipped = last.chars().count().saturating_sub(STDERR_SHOWN);
        let tail: String = last.chars().skip(skipped).collect();
        if tail.is_empty() {
            String::new()
        } else {
            format!(", saying: {}", super::escaped(&tail))
        }
    }
}

impl Drop for AdapterProcess {
    fn drop(&mut self) {
        self.stdin = None;
        let supervisor = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Some(pid), Ok(None)) = (supervisor, self.child.try_wait()) {
            // The supervisor ends the adapter and all its offspring, then itself.
            let _gone = kill_process(pid, Signal::TERM);
            let start = Instant::now();
            while matches!(self.child.try_wait(), Ok(None)) {
                if start.elapsed() >= KILL_TIME {
                    let _gone = kill_process_group(pid, Signal::KILL);
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(1));
            }
            let _status = self.child.wait();
        }
        // Unread lines are thrown away so that no reader waits to hand one over.
        let start = Instant::now();
        while start.elapsed() < READ_TIME
            && !matches!(
                self.lines.recv_timeout(READ_TIME),
                Err(RecvTimeoutError::Disconnected)
            )
        {}
        // Should a process have survived that holds a pipe open, its reader is left to end with it.
        for thread in [self.reader.take(), self.stderr_reader.take()] {
            if wait_for_thread(thread.as_ref()) {
                let _panicked = thread.map(JoinHandle::join);
            }
        }
    }
}

/// How long an answer is waited for, in turns.
struct Patience {
    turn: Duration,
    left: u32,
}

impl Patience {
    /// Takes a turn; tells whether there was one left.
    fn spend(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}

fn wait_for_thread(thread: Option<&JoinHandle<()>>) -> bool {
    let start = Instant::now();
    let Some(thread) = thread else { return true };
    while !thread.is_finished() && start.elapsed() < READ_TIME {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    thread.is_finished()
}

fn text(op: &str, line: Line) -> Result<String, PartyError> {
    let garbage = |what: String| PartyError::Garbage {
        op: op.into(),
        what,
        line: String::new(),
    };
    match line {
        Line::Text(line) => Ok(line),
        Line::TooLong => Err(garbage(format!(
            "a line of over {} MiB",
            LONGEST_LINE >> 20
        ))),
        Line::NotText => Err(garbage("bytes that are not UTF-8".into())),
    }
}

/// An exit status in words. The supervisor passes a signal on as shells do: 128 and its number.
fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code @ 129..=192), _) => format!("exit status {code} (signal {})", code - 128),
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("its supervisor killed by signal {signal}"),
        (None, None) => "status unknown".into(),
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
    let mut buffer = [0; 16 << 10];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let Ok(mut kept) = kept.lock() else { return };
        kept.extend_from_slice(&buffer[..read]);
        let excess = kept.len().saturating_sub(STDERR_KEPT);
        kept.drain(..excess);
    }
}
