//! What the machine tells: where it runs, how busy it is, how much memory a process has.

use std::fmt;
use std::io;
use std::process::Command;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Timer resolution asked of the system, ns.
const TIMER_SLACK: u64 = 1_000;

/// Keeps the calling thread, and what it starts from now on, on one core.
///
/// # Errors
/// When there is no such core.
pub fn pin(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

/// Asks for timers as fine as the system has them, for the calling thread.
pub fn fine_timers() {
    // Without it, times are as coarse as the system has them.
    let _coarse = rustix::thread::set_current_timer_slack(TIMER_SLACK.try_into().ok());
}

fn clock(id: ClockId) -> Duration {
    Duration::try_from(clock_gettime(id)).unwrap_or_default()
}

/// Processor time that this process has used.
pub fn process_cpu() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// Processor time that this thread has used.
pub fn thread_cpu() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

/// Memory of this process that is in use now, and the most that ever was, bytes.
pub fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// How long each core has been busy, and how long it has been counted, in ticks of the system.
#[derive(Debug, Clone, Default)]
pub struct Busy(Vec<(u64, u64)>);

impl Busy {
    /// Up to now.
    pub fn now() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &str) -> Self {
        let cores = stat
            .lines()
            .filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
        let times = cores.map(|line| {
            // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
            let fields = line.split_whitespace().skip(1).take(8);
            let ticks: Vec<u64> = fields.map(|ticks| ticks.parse().unwrap_or(0)).collect();
            let all: u64 = ticks.iter().sum();
            let idle: u64 = ticks.iter().skip(3).take(2).sum();
            (all - idle, all)
        });
        Self(times.collect())
    }

    /// The busy share of each core since an earlier time.
    pub fn since(&self, earlier: &Self) -> Vec<f64> {
        let cores = self.0.iter().zip(&earlier.0);
        let share = |((busy, all), (busy_before, all_before)): (&(u64, u64), &(u64, u64))| {
            let all = all.saturating_sub(*all_before).max(1);
            busy.saturating_sub(*busy_before) as f64 / all as f64
        };
        cores.map(share).collect()
    }
}

/// What was measured, and where.
#[derive(Debug, Clone, Serialize)]
pub struct About {
    /// Commit of the sources, with `+` when they were changed since.
    pub commit: String,
    /// Processor.
    pub processor: String,
    /// Number of cores.
    pub cores: usize,
    /// System.
    pub system: String,
}

impl About {
    /// Asks the machine.
    pub fn here() -> Self {
        let git = |args: &[&str]| {
            let output = Command::new("git")
                .arg("-C")
                .arg(env!("CARGO_MANIFEST_DIR"))
                .args(args)
                .output();
            let text = output.map(|output| output.stdout).unwrap_or_default();
            String::from_utf8_lossy(&text).trim().to_owned()
        };
        let mut commit = git(&["rev-parse", "--short", "HEAD"]);
        if commit.is_empty() {
            commit = "unknown".into();
        }
        if !git(&["status", "--porcelain", "--", "..", "../../wire-format"]).is_empty() {
            commit.push('+');
        }
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let model = processors
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
        Self {
            commit,
            processor: model.unwrap_or("unknown").trim().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            system: read("/proc/version")
                .split_whitespace()
                .take(3)
                .collect::<Vec<_>>()
                .join(" "),
        }
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            commit,
            processor,
            cores,
            system,
        } = self;
        write!(
            f,
            "Commit {commit}; {processor}, {cores} cores; {system}; one machine, one run."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_busy_with_all_but_idling_and_waiting() {
        let before = Busy::parse("cpu  9 9 9 9\ncpu0 1 1 1 10 5 1 1 1 7 7\nintr 5\n");
        let after = Busy::parse("cpu  9 9 9 9\ncpu0 2 2 2 13 6 1 1 2 9 9\nintr 6\n");
        assert_eq!(after.since(&before), [0.5]);
    }

    #[test]
    fn time_of_the_processor_passes_with_work() {
        let before = (process_cpu(), thread_cpu());
        let mut x = 1u64;
        while thread_cpu() == before.1 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(process_cpu() > before.0);
    }
}
