//! A parent for adapters that outlives the harness by a moment: when the harness is gone, however it ended, the
//! adapter's whole process group is ended too.

use std::os::unix::process::parent_id;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, getpgrp, kill_process_group};

/// How often the supervisor looks whether its parent is still there.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs `command` with this process's standard streams until it ends or the process `parent` does; returns the
/// command's exit code. Does not return when the parent ends first: the process group is killed.
///
/// # Errors
/// When the command cannot be started or waited for.
pub fn supervise(parent: u32, command: &[String]) -> std::io::Result<u8> {
    let (program, arguments) = command.split_first().ok_or_else(|| {
        std::io::Error::new(std::io::ErrorKind::InvalidInput, "no command to supervise")
    })?;
    let mut child = Command::new(program).args(arguments).spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(1));
        }
        if parent_id() != parent {
            let _gone = child.kill();
            kill_process_group(getpgrp(), Signal::KILL)?;
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}
