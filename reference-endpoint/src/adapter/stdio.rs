//! The adapter as a process: lines on standard input and output, datagrams over real sockets.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::Session;
use crate::mutants;
use crate::udp::Sockets;

/// Datagrams received or sent before other things get their turn.
const TURN: usize = 64;

/// How the process behaves.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A mutant to be, by id.
    pub mutant: Option<String>,
}

/// Why the process ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no such mutant.
    #[error("there is no mutant {0:?}; `metaroce mutants --list` shows them")]
    NoMutant(String),
    /// Standard streams or sockets failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Serves requests from standard input until it ends.
///
/// The thread that reads standard input may outlive this call when it ends with an error: a caller ends the process.
///
/// # Errors
/// [`RunError`].
pub fn run_stdio(options: &Options) -> Result<(), RunError> {
    let mutant = match &options.mutant {
        None => None,
        Some(id) => Some(mutants::by_id(id).ok_or_else(|| RunError::NoMutant(id.clone()))?),
    };
    let (sender, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    runtime.block_on(serve(Session::new(0, mutant), lines))?;
    Ok(())
}

async fn serve(mut session: Session, mut lines: mpsc::Receiver<String>) -> std::io::Result<()> {
    let start = Instant::now();
    let clock = move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut sockets: Option<Sockets> = None;
    let mut waiting: Option<(String, u64)> = None;
    loop {
        let now = clock();
        if let Some((line, until)) = waiting.take() {
            if session.has_events() || now >= until {
                answer(&session.handle_line(now, &line))?;
            } else {
                waiting = Some((line, until));
            }
        }
        if session.poll_timeout().is_some_and(|due| due <= now) {
            session.handle_timeout(now);
        }
        let mut more = false;
        if let Some(sockets) = &mut sockets {
            more = send(&mut session, sockets, clock)?;
        }
        let deadlines = [
            session.poll_timeout(),
            waiting.as_ref().map(|(_, until)| *until),
        ];
        let next = if more {
            Some(0)
        } else {
            deadlines.into_iter().flatten().min()
        };
        // A due time in the past must not keep other things from their turn.
        let wait = next.map_or(Duration::from_secs(3600), |due| {
            Duration::from_nanos(due.saturating_sub(clock()))
        });
        tokio::select! {
            line = lines.recv(), if waiting.is_none() => {
                let Some(line) = line else { return Ok(()) };
                let patience = Session::patience_ms(&line);
                if patience > 0 && !session.has_events() {
                    waiting = Some((line, clock().saturating_add(patience.saturating_mul(1_000_000))));
                    continue;
                }
                let mut reply = session.handle_line(clock(), &line);
                match (session.local(), &sockets) {
                    (Some(local), None) => match Sockets::bind(local) {
                        Ok(bound) => sockets = Some(bound),
                        Err(error) => {
                            session.handle_line(clock(), r#"{"id":0,"op":"reset"}"#);
                            reply = refuse(&line, &format!("cannot bind {local}: {error}"));
                        }
                    },
                    (None, Some(_)) => sockets = None,
                    _ => {}
                }
                answer(&reply)?;
            }
            readable = readable(sockets.as_ref()) => {
                readable?;
                if let Some(sockets) = &mut sockets {
                    receive(&mut session, sockets, clock);
                }
            }
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn readable(sockets: Option<&Sockets>) -> std::io::Result<()> {
    match sockets {
        Some(sockets) => sockets.readable().await,
        None => std::future::pending().await,
    }
}

fn receive(session: &mut Session, sockets: &mut Sockets, clock: impl Fn() -> u64) {
    let mut out = Vec::new();
    for _ in 0..TURN {
        // Every datagram is answered before the next is looked at, so that each acknowledgment has its own trigger.
        let mut arrived = Vec::new();
        if sockets
            .receive(|from, ecn, bytes| arrived.push((from, ecn, bytes.to_vec())))
            .is_err()
        {
            return;
        }
        for (from, ecn, bytes) in arrived {
            session.handle_datagram(clock(), from, ecn, &bytes);
            let now = clock();
            if let Some(transmit) = session.poll_transmit(now, &mut out) {
                let _unbound = sockets.send(&transmit, &out);
            }
        }
    }
}

/// Sends what is to be sent, at most one turn of it; tells whether there may be more.
fn send(
    session: &mut Session,
    sockets: &mut Sockets,
    clock: impl Fn() -> u64,
) -> std::io::Result<bool> {
    let mut out = Vec::new();
    for _ in 0..TURN {
        let Some(transmit) = session.poll_transmit(clock(), &mut out) else {
            return Ok(false);
        };
        sockets.send(&transmit, &out)?;
    }
    Ok(true)
}

fn refuse(line: &str, message: &str) -> String {
    let id = serde_json::from_str::<serde_json::Value>(line)
        .ok()
        .and_then(|value| value["id"].as_u64())
        .unwrap_or(0);
    serde_json::json!({ "id": id, "error": { "code": "io", "message": message } }).to_string()
}

fn answer(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}
