//! The adapter as a process: lines on standard input and output, datagrams over real sockets.

use std::io::{self, BufRead, Write};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{LONGEST_LINE, Session};
use crate::mutants;
use crate::udp::{Driver, Pace, Settings, Sockets};

/// Each packet draws its own answer, whatever the system has joined: so that whoever judges them from outside sees the
/// same as where they come one by one.
const PACE: Pace = Pace {
    receive: 64,
    send: 64,
    answer_each: true,
};

/// How the process behaves.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A mutant or fake to be, by id.
    pub mutant: Option<String>,
}

/// Why the process ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no such mutant.
    #[error("there is no mutant {0:?}; `metaroce mutants --list` shows them")]
    NoMutant(String),
    /// Standard streams, the timer or the runtime failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Serves requests from standard input until it ends, or until SIGTERM.
///
/// A thread of its own reads standard input, because a read in the runtime would hold up its end. After SIGTERM that
/// thread may still wait for a line: it ends with the process, so the caller ends the process.
///
/// # Errors
/// [`RunError`]. What goes wrong with datagrams is no error: they are lost.
pub fn run_stdio(options: &Options) -> Result<(), RunError> {
    let mutant = match &options.mutant {
        None => None,
        Some(id) => Some(mutants::by_id(id).ok_or_else(|| RunError::NoMutant(id.clone()))?),
    };
    // One line at a time: whoever writes faster than it is answered waits.
    let (sender, lines) = mpsc::channel(1);
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(move || read_lines(io::stdin().lock(), &sender))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let served = runtime.block_on(async { serve(Session::new(0, mutant), lines).await });
    match served {
        // The harness is gone, which is as good as the end of its requests.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// A line of input.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Text(String),
    TooLong,
    NotText,
}

fn read_lines(mut from: impl BufRead, to: &mpsc::Sender<Line>) {
    // A read error ends the input like its end does.
    while let Ok(Some(line)) = read_line(&mut from, LONGEST_LINE) {
        if to.blocking_send(line).is_err() {
            return;
        }
    }
}

/// The next line without its end, in memory of at most `longest` bytes; what is longer is read and thrown away.
fn read_line(from: &mut impl BufRead, longest: usize) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let (mut too_long, mut any) = (false, false);
    loop {
        let chunk = match from.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            chunk => chunk?,
        };
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let taken = end.unwrap_or(chunk.len());
        any |= !chunk.is_empty();
        let over = chunk.is_empty() || end.is_some();
        if line.len() + taken > longest {
            too_long = true;
            line = Vec::new();
        } else if !too_long {
            line.extend_from_slice(chunk.get(..taken).unwrap_or_default());
        }
        from.consume(taken + usize::from(end.is_some()));
        if over {
            break;
        }
    }
    if !any {
        return Ok(None);
    }
    Ok(Some(if too_long {
        Line::TooLong
    } else {
        String::from_utf8(line).map_or(Line::NotText, Line::Text)
    }))
}

/// A session between its sockets and its requests.
struct Server {
    session: Session,
    driver: Driver,
    /// A `poll` that waits for an event, and until when, ns.
    waiting: Option<(String, u64)>,
}

async fn serve(session: Session, mut lines: mpsc::Receiver<Line>) -> io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut server = Server {
        session,
        driver: Driver::new(PACE)?,
        waiting: None,
    };
    // A line that came while a `poll` was waiting; its turn is after that.
    let mut next: Option<Line> = None;
    loop {
        let more = server.driver.turn(&mut server.session);
        server.answer_waiting()?;
        if server.waiting.is_none()
            && let Some(line) = next.take()
        {
            server.serve_line(line)?;
            continue;
        }
        let due = server.due();
        tokio::select! {
            line = lines.recv(), if next.is_none() => match line {
                Some(line) => next = Some(line),
                None => return Ok(()),
            },
            woken = server.driver.wait(due, more) => woken?,
            _ = terminated.recv() => return Ok(()),
        }
    }
}

impl Server {
    fn due(&self) -> Option<u64> {
        let until = self.waiting.as_ref().map(|(_, until)| *until);
        self.session.poll_timeout().into_iter().chain(until).min()
    }

    fn answer_waiting(&mut self) -> io::Result<()> {
        let now = self.driver.now();
        let over = |(_, until): &mut (String, u64)| self.session.has_events() || *until <= now;
        match self.waiting.take_if(over) {
            Some((line, _)) => write_line(&self.session.handle_line(now, &line)),
            None => Ok(()),
        }
    }

    fn serve_line(&mut self, line: Line) -> io::Result<()> {
        let line = match line {
            Line::Text(line) => line,
            Line::TooLong => {
                let message = format!("a line has at most {LONGEST_LINE} bytes");
                return write_line(&self.session.refuse_line(&message));
            }
            Line::NotText => return write_line(&self.session.refuse_line("a line is UTF-8")),
        };
        let now = self.driver.now();
        let wait = self.session.wait_of(&line).unwrap_or(0);
        if wait > 0 && !self.session.has_events() {
            self.waiting = Some((line, now.saturating_add(wait.saturating_mul(1_000_000))));
            return Ok(());
        }
        let mut answer = self.session.handle_line(now, &line);
        match (self.session.locals(), self.driver.sockets()) {
            ([], Some(_)) => self.driver.set_sockets(None),
            (locals @ [_, ..], None) => match Sockets::bind_all(locals, &Settings::default()) {
                Ok(bound) => self.driver.set_sockets(Some(bound)),
                Err(error) => {
                    let message = format!("cannot bind {locals:?}: {error}");
                    answer = self.session.refuse_open(&message);
                }
            },
            _ => {}
        }
        write_line(&answer)
    }
}

fn write_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], longest: usize) -> Vec<Line> {
        // A small buffer, so that lines come in several pieces.
        let mut reader = io::BufReader::with_capacity(3, bytes);
        std::iter::from_fn(|| read_line(&mut reader, longest).unwrap()).collect()
    }

    #[test]
    fn lines_are_bounded() {
        let text = |text: &str| Line::Text(text.into());
        assert_eq!(lines(b"", 5), []);
        assert_eq!(
            lines(b"abcde\n\nx", 5),
            [text("abcde"), text(""), text("x")]
        );
        assert_eq!(
            lines(b"abcdef\nabcdefghijkl\nok\n\xff\n", 5),
            [Line::TooLong, Line::TooLong, text("ok"), Line::NotText]
        );
    }
}
