//! Parties in processes of their own: how they are started, and what they say. A party says it in lines of JSON on
//! standard output and ends with its standard input.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::machine;
use crate::many::Many;
use crate::quic::Tuning;
use crate::{endpoint, many, plain, quic};

/// What sends and receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// The reference endpoint.
    Endpoint,
    /// QUIC by quinn.
    Quic(Tuning),
    /// UDP and nothing else.
    Plain,
}

/// A bulk transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bulk {
    /// What sends and receives.
    pub protocol: Protocol,
    /// UDP payload of a full datagram, bytes.
    pub datagram: usize,
    /// Bytes of the message in it.
    pub payload: u16,
    /// Paths, or sockets that take turns.
    pub paths: u16,
    /// Datagrams sent in a row on one path.
    pub row: usize,
    /// Bytes of a message.
    pub message: usize,
    /// Messages under way.
    pub depth: usize,
    /// Time before the figures begin, ms.
    pub warm_ms: u64,
    /// Time of the figures, ms.
    pub time_ms: u64,
}

/// What a party does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Receive a bulk transfer on an address.
    Receive(Bulk, SocketAddr),
    /// Send one from an address to a peer.
    Send(Bulk, SocketAddr, SocketAddr, Ready),
    /// Hold many connections, accepted on an address.
    Accept(Many, SocketAddr),
    /// Hold many connections, opened from an address to a peer.
    Open(Many, SocketAddr, SocketAddr, Ready),
}

/// What a receiver tells before anyone sends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Its port.
    pub port: u16,
    /// Address and key of its memory.
    pub region: Option<(u64, u32)>,
    /// Its certificate.
    pub certificate: Option<Vec<u8>>,
}

/// What a party of a bulk transfer has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Bytes in the time of the figures.
    pub bytes: u64,
    /// That time, s.
    pub seconds: f64,
    /// Bytes from the first to the last.
    pub total: u64,
    /// Share of a core that the process used, in the time of the figures.
    pub cpu: f64,
    /// Datagrams that the system did not take.
    pub refused: u64,
    /// What the endpoint has counted, where it is one.
    pub counted: Option<Counted>,
}

/// What an endpoint has counted, from the beginning to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Packets sent, of every kind.
    pub sent: u64,
    /// Data sent again.
    pub again: u64,
    /// Times that it waited for an answer until it gave up.
    pub timeouts: u64,
}

impl Figures {
    /// Gigabits per second.
    pub fn goodput(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds.max(1e-9) / 1e9
    }
}

/// What many connections have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of the heap, where it is counted.
    pub heap: Option<u64>,
    /// Bytes of memory.
    pub resident: u64,
    /// The most that ever was.
    pub most_resident: u64,
    /// Processor time so far, s.
    pub cpu: f64,
    /// Connections that were refused, and tried again.
    pub refused: u64,
}

/// A line that a party says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Said {
    /// It can receive.
    Ready(Ready),
    /// The time of the figures has begun, or one of several steps of [`Many`] is over, after these seconds.
    Step(f64, Usage),
    /// It has ended well.
    Done(Figures),
    /// It has not.
    Failed(String),
}

/// Says a line, to the parent process.
pub fn say(said: &Said) {
    let mut out = io::stdout().lock();
    // Nobody listens any more: the end of standard input says so too.
    let _gone = serde_json::to_writer(&mut out, said).map(|()| out.write_all(b"\n"));
    let _gone = out.flush();
}

/// Runs as a party, in its process. Ends the process when it takes too long.
pub fn run(task: &Task, core: Option<usize>, limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        say(&Said::Failed(format!("not over after {limit:?}")));
        std::process::exit(3);
    });
    if let Some(core) = core
        && let Err(error) = machine::pin(core)
    {
        return say(&Said::Failed(format!("cannot run on core {core}: {error}")));
    }
    machine::fine_timers();
    let (end, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Whatever ends the input ends the party.
        let _all = io::stdin().read_to_end(&mut Vec::new());
        let _over = end.send(());
    });
    let done = runtime().and_then(|runtime| {
        runtime.block_on(async {
            match task {
                Task::Receive(bulk, local) => match bulk.protocol {
                    Protocol::Endpoint => endpoint::receive(bulk, *local, ended).await,
                    Protocol::Quic(tuning) => quic::receive(bulk, &tuning, *local, ended).await,
                    Protocol::Plain => plain::receive(bulk, *local, ended),
                },
                Task::Send(bulk, local, peer, ready) => match bulk.protocol {
                    Protocol::Endpoint => endpoint::send(bulk, *local, *peer, ready).await,
                    Protocol::Quic(tuning) => quic::send(bulk, &tuning, *local, *peer, ready).await,
                    Protocol::Plain => plain::send(bulk, *local, *peer),
                },
                Task::Accept(many, local) => many::accept(many, *local, ended).await,
                Task::Open(many, local, peer, ready) => {
                    many::open(many, *local, *peer, ready, ended).await
                }
            }
        })
    });
    say(&done.map_or_else(|e| Said::Failed(e.to_string()), Said::Done));
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// A party, as its parent process sees it. Dropping it ends it.
pub struct Party {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Party {
    /// Starts a party as a process of its own.
    ///
    /// # Errors
    /// When there can be none.
    pub fn start(task: &Task, core: Option<usize>, limit: Duration) -> io::Result<Self> {
        Self::start_under(&[], task, core, limit)
    }

    /// Starts a party as [`Self::start`] does, under a program that watches it.
    ///
    /// # Errors
    /// When there can be none.
    pub fn start_under(
        watcher: &[&str],
        task: &Task,
        core: Option<usize>,
        limit: Duration,
    ) -> io::Result<Self> {
        let own = std::env::current_exe()?;
        let mut command = match watcher.split_first() {
            None => Command::new(own),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(own);
                command
            }
        };
        command.arg("party").arg(serde_json::to_string(task)?);
        command.arg("--limit").arg(limit.as_secs().to_string());
        if let Some(core) = core {
            command.arg("--core").arg(core.to_string());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let out = child.stdout.take();
        let out = out.ok_or_else(|| io::Error::other("a party without standard output"))?;
        Ok(Self {
            child,
            said: BufReader::new(out),
        })
    }

    /// The next line.
    ///
    /// # Errors
    /// When the party has failed or is gone.
    pub fn next(&mut self) -> io::Result<Said> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::Error::other("a party has ended without a word"));
        }
        match serde_json::from_str(&line)? {
            Said::Failed(why) => Err(io::Error::other(why)),
            said => Ok(said),
        }
    }

    /// The line that says that it can receive.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn ready(&mut self) -> io::Result<Ready> {
        match self.next()? {
            Said::Ready(ready) => Ok(ready),
            other => Err(unexpected(&other)),
        }
    }

    /// The line that says that a step is over.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn step(&mut self) -> io::Result<(f64, Usage)> {
        match self.next()? {
            Said::Step(seconds, usage) => Ok((seconds, usage)),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends its input, and returns its last line.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn done(&mut self) -> io::Result<Figures> {
        self.end();
        self.last()
    }

    /// Waits until its process is gone.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn wait(&mut self) -> io::Result<()> {
        self.child.wait().map(|_status| ())
    }

    /// Ends its input.
    pub fn end(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Its last line, which it says by itself.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn last(&mut self) -> io::Result<Figures> {
        loop {
            match self.next()? {
                Said::Done(figures) => return Ok(figures),
                Said::Step(..) => {}
                other => return Err(unexpected(&other)),
            }
        }
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        // Gone already, as a rule.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn unexpected(said: &Said) -> io::Error {
    io::Error::other(format!("unexpected: {said:?}"))
}

/// The time of the figures: what is counted, from a first arrival after the warm time to a last one.
pub struct Window {
    warm: Duration,
    time: Duration,
    start: Option<Instant>,
    begin: Option<(Instant, Duration)>,
    end: Option<(Instant, Duration)>,
    bytes: u64,
    total: u64,
}

impl Window {
    /// A window that has not begun.
    pub fn new(bulk: &Bulk) -> Self {
        Self {
            warm: Duration::from_millis(bulk.warm_ms),
            time: Duration::from_millis(bulk.time_ms),
            start: None,
            begin: None,
            end: None,
            bytes: 0,
            total: 0,
        }
    }

    /// Counts what has arrived; tells whether the time is over.
    pub fn count(&mut self, bytes: usize) -> bool {
        let now = Instant::now();
        let start = *self.start.get_or_insert(now);
        self.total += bytes as u64;
        if let Some((began, _)) = self.begin {
            if self.end.is_none() {
                self.bytes += bytes as u64;
            }
            if self.end.is_none() && now - began >= self.time {
                self.end = Some((now, machine::process_cpu()));
            }
        } else if now - start >= self.warm {
            self.begin = Some((now, machine::process_cpu()));
            say(&Said::Step(0.0, Usage::default()));
        }
        self.end.is_some()
    }

    /// Whether the time has been over for long: nothing more is waited for.
    pub fn is_stale(&self) -> bool {
        let all = self.warm + self.time * 2 + Duration::from_secs(1);
        self.start.is_some_and(|start| start.elapsed() > all)
    }

    /// What was counted; where nothing came in the end, up to now.
    pub fn figures(&self, refused: u64) -> Figures {
        let here = (Instant::now(), machine::process_cpu());
        let (began, cpu_before) = self
            .begin
            .or(self.start.map(|s| (s, here.1)))
            .unwrap_or(here);
        let (ended, cpu) = self.end.unwrap_or(here);
        let seconds = (ended - began).as_secs_f64();
        Figures {
            bytes: self.bytes,
            seconds,
            total: self.total,
            cpu: (cpu.saturating_sub(cpu_before)).as_secs_f64() / seconds.max(1e-9),
            refused,
            counted: None,
        }
    }
}
