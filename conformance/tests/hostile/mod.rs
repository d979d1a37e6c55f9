//! Runs of `metaroce` whose every process can be seen to have ended.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use metaroce_reports::{Conduct, RunResult, Verdict};

/// The binary.
pub const METAROCE: &str = env!("CARGO_BIN_EXE_metaroce");
/// How long a run may take, at most.
pub const RUN_TIME: Duration = Duration::from_secs(60);
/// How long processes may take to be gone after the run.
pub const GONE_TIME: Duration = Duration::from_secs(10);

/// The command line of an adapter that does `deed` when asked for `operation`, and opens `notice` then.
pub fn adapter(operation: &str, deed: &str, notice: Option<&Path>) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile/adapter.sh");
    let notice = notice.map_or(String::new(), |path| format!(" '{}'", path.display()));
    format!("exec sh '{script}' '{METAROCE}' {operation} {deed}{notice}")
}

/// The reference as an adapter, or a mutant or fake of it.
pub fn reference(mutant: Option<&str>) -> String {
    let mutant = mutant.map_or(String::new(), |id| format!(" --mutant {id}"));
    format!("exec '{METAROCE}' endpoint{mutant}")
}

/// A run under way. All processes it starts, and those that these start, hold a pipe open.
pub struct Running {
    /// The process, `metaroce` itself.
    pub child: Child,
    /// Folder of the evidence.
    pub out: PathBuf,
    folder: tempfile::TempDir,
    lifeline: PipeReader,
    stderr: Receiver<String>,
    said: String,
}

/// What came of it.
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// All it wrote to standard error.
    pub stderr: String,
    /// All it wrote to standard output.
    pub stdout: String,
    /// Folder of the evidence.
    pub out: PathBuf,
    _folder: tempfile::TempDir,
}

impl Running {
    /// Starts `metaroce run` with `arguments`, in at most 2 GB of address space for any of its processes.
    pub fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("run");
        let (lifeline, held) = std::io::pipe().unwrap();
        let stdout = File::create(folder.path().join("stdout")).unwrap();
        // The shell hands the pipe on under a number that nobody closes.
        let script = "ulimit -v 2000000; exec 9<&0 </dev/null; exec \"$0\" \"$@\"";
        let mut child = Command::new("sh")
            .args(["-c", script, METAROCE, "run", "--out"])
            .arg(&out)
            .args(arguments)
            .stdin(held)
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, stderr) = channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).split(b'\n');
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _gone = sender.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        Self {
            child,
            out,
            folder,
            lifeline,
            stderr,
            said: String::new(),
        }
    }

    /// Waits until it has written a line that begins with `text` to standard error.
    pub fn wait_for(&mut self, text: &str) {
        loop {
            let line = self.stderr.recv_timeout(RUN_TIME);
            let line = line.unwrap_or_else(|e| panic!("{e}: no {text:?} in {:?}", self.said));
            self.said += &(line.clone() + "\n");
            if line.starts_with(text) {
                return;
            }
        }
    }

    /// Waits for its end, and for that of everything that it has started.
    pub fn end(mut self) -> Ended {
        // Standard error is held by `metaroce` alone: its end is the end of the run.
        loop {
            match self.stderr.recv_timeout(RUN_TIME) {
                Ok(line) => self.said += &(line + "\n"),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(_) => panic!("the run does not end: {}", self.said),
            }
        }
        let status = self.child.wait().unwrap();
        let mut lifeline = self.lifeline;
        let (sender, gone) = channel();
        std::thread::spawn(move || {
            let end = lifeline.read(&mut [0]);
            let _late = sender.send(matches!(end, Ok(0)));
        });
        assert_eq!(
            gone.recv_timeout(GONE_TIME),
            Ok(true),
            "a process is left behind: {}",
            self.said
        );
        Ended {
            status,
            stderr: self.said,
            stdout: std::fs::read_to_string(self.folder.path().join("stdout")).unwrap(),
            out: self.out,
            _folder: self.folder,
        }
    }
}

impl Ended {
    /// The result that it has left.
    pub fn result(&self) -> RunResult {
        let text = std::fs::read_to_string(self.out.join("result.json"));
        let text = text.unwrap_or_else(|e| panic!("{e}: {}", self.stderr));
        serde_json::from_str(&text).unwrap()
    }

    /// Asserts what holds for every run: nothing acts on a terminal, nothing passes that was not exercised in a sound
    /// test.
    pub fn assert_honest(&self) {
        for text in [&self.stdout, &self.stderr] {
            assert!(
                !text.contains(|c: char| c.is_control() && c != '\n'),
                "{text:?}"
            );
        }
        if !self.out.join("result.json").exists() {
            return;
        }
        let result = self.result();
        for clause in &result.clauses {
            assert!(
                clause.verdict != Verdict::Pass || clause.exercised > 0,
                "{} passes unexercised",
                clause.id
            );
        }
        for test in &result.tests {
            let passes = test.findings.iter().any(|f| f.verdict == Verdict::Pass);
            assert!(
                !passes || test.conduct == Conduct::Sound,
                "{} passes something",
                test.id
            );
        }
    }
}

/// Does all of `work`, several at a time.
pub fn in_parallel<T: Send>(work: Vec<T>, task: impl Fn(T) + Sync) {
    const AT_A_TIME: usize = 10;
    let queue = Mutex::new(work.into_iter());
    let next = || queue.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(one) = next() {
                    task(one);
                }
            });
        }
    });
}
