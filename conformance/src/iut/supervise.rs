//! A parent for adapters that outlives the harness by a moment: when the harness is gone, however it ended, or asks for
//! it, everything that the adapter has started is ended too.
//!
//! The supervisor is the reaper of all its descendants: a process whose parent ends becomes its child, whatever group or
//! session it has moved to, so that none can slip away.

use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open,
    set_child_subreaper, wait,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// How often the supervisor looks whether its parent is still there, where the system cannot tell it.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long processes may take to be gone once they are killed.
const KILL_TIME: Duration = Duration::from_secs(4);
/// Pause between two looks at processes that are being killed.
const KILL_PAUSE: Duration = Duration::from_millis(1);
/// What is added to the number of the signal that ended a command, as shells do.
const SIGNALLED: i32 = 128;

/// Runs `command` with this process's standard streams until it ends, the process `parent` does, or SIGTERM, SIGINT or
/// SIGHUP arrives. Then every process is killed that the command has left, and the command's exit code is returned: 128
/// and the number of the signal when one ended it.
///
/// # Errors
/// When the command cannot be started or waited for, or `parent` is not the parent.
pub fn supervise(parent: u32, command: &[String]) -> io::Result<u8> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "there is no command to run"))?;
    // Where that is not possible, what leaves the adapter's family gets away; everything else is ended all the same.
    let _unsupported = set_child_subreaper(Some(getpid()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let ended = runtime.block_on(watch(parent, program, arguments));
    end_children();
    ended
}

async fn watch(parent: u32, program: &str, arguments: &[String]) -> io::Result<u8> {
    let mut changed = signal(SignalKind::child())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut harness_gone = watch_harness(parent);
    if parent_id() != parent {
        return Err(io::Error::other("the harness has ended"));
    }
    // A group of its own: an adapter that signals its whole group does not mean the supervisor.
    let child = Command::new(program)
        .args(arguments)
        .process_group(0)
        .spawn()?;
    // Only the adapter holds its pipes, so that the harness sees when it closes one.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    loop {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if u32::try_from(pid.as_raw_nonzero().get()) == Ok(child.id()) {
                return Ok(code(status));
            }
        }
        tokio::select! {
            _ = changed.recv() => {}
            _ = terminated.recv() => return Ok(by_signal(Signal::TERM)),
            _ = interrupted.recv() => return Ok(by_signal(Signal::INT)),
            _ = hung_up.recv() => return Ok(by_signal(Signal::HUP)),
            _ = &mut harness_gone => return Ok(by_signal(Signal::HUP)),
        }
    }
}

fn by_signal(signal: Signal) -> u8 {
    u8::try_from(SIGNALLED + signal.as_raw()).unwrap_or(u8::MAX)
}

fn code(status: WaitStatus) -> u8 {
    let signalled = || Some(SIGNALLED + status.terminating_signal()?);
    let code = status.exit_status().or_else(signalled);
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

/// Waits for the end of the parent, `pid`, in a thread of its own, which ends with this process.
fn watch_harness(pid: u32) -> oneshot::Receiver<()> {
    let (sender, gone) = oneshot::channel();
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let ended = raw.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    std::thread::spawn(move || {
        while parent_id() == pid {
            // Readable once it has ended. Where the system has no such thing, it is looked at now and then.
            match &ended {
                Some(ended) => {
                    let _looked_at_above = poll(&mut [PollFd::new(ended, PollFlags::IN)], None);
                }
                None => std::thread::park_timeout(LOOK_EVERY),
            }
        }
        // Nobody hears it when the supervisor is about to end itself.
        let _unheard = sender.send(());
    });
    gone
}

/// Kills all children, and those that become children thereby, until there are none.
fn end_children() {
    let start = Instant::now();
    while start.elapsed() < KILL_TIME {
        let mut reaped = false;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => reaped = true,
                Ok(None) | Err(Errno::INTR) => break,
                Err(_) => return,
            }
        }
        // Only children are killed: nobody else can have their process ids as long as they are not waited for.
        for child in children() {
            let _gone = kill_process(child, Signal::KILL);
        }
        if !reaped {
            std::thread::park_timeout(KILL_PAUSE);
        }
    }
}

/// The children of this process, adopted ones included.
fn children() -> Vec<Pid> {
    let listed = std::fs::read_dir("/proc/self/task").and_then(|tasks| {
        let mut all = String::new();
        for task in tasks {
            all.push_str(&std::fs::read_to_string(task?.path().join("children"))?);
            all.push(' ');
        }
        Ok(all)
    });
    let numbers: Vec<i32> = match listed {
        Ok(all) => all.split_whitespace().flat_map(str::parse).collect(),
        Err(_) => children_by_search(),
    };
    numbers.into_iter().filter_map(Pid::from_raw).collect()
}

/// The same where the system keeps no list: all processes are looked at.
fn children_by_search() -> Vec<i32> {
    let own = std::process::id();
    let parent = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may hold anything, parentheses too.
        let (_, rest) = stat.rsplit_once(')')?;
        rest.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| parent(*pid) == Some(own))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_find_children_find_one() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let listed = children().iter().any(|p| p.as_raw_nonzero().get() == pid);
        let searched = children_by_search().contains(&pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(listed && searched);
    }
}
