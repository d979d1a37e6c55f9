//! `metaroce`: certifies an implementation of the open profile of MetaRoCE.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use metaroce_conformance::query::{self, Query};
use metaroce_conformance::run::{LinkKind, Plan, RESULT, RunError};
use metaroce_conformance::{cli, pics::Pics, run, scenario};
use metaroce_reports::exit;

#[derive(Parser)]
#[command(version, about = "Conformance suite for the open profile of MetaRoCE", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

const EXAMPLES: &str = "Examples:
  metaroce                                  certify the reference endpoint over real sockets
  metaroce run --adapter ./my-adapter       certify your implementation
  metaroce run --filter 'tag(loss) and clause(REL-*)'
  metaroce analyze target/metaroce/latest   compute the verdicts again from the evidence
  metaroce explain REL-031                  show a clause and what judges it

Exit codes: 0 all selected clauses pass, 1 a clause or a test as a whole failed, 2 usage or input error, 3 nothing failed but something is
inconclusive, 4 harness error, or the run was interrupted.";

const CLAUSES: &str = "Examples:
  metaroce clauses --chapter REL --format table         the clauses on reliability
  metaroce clauses --source P7 --level must             what rests on the published statement P7
  metaroce clauses --requires read --uncovered          of Reads, what no monitor judges
  metaroce clauses --text timeout --role sender --format table";

#[derive(Subcommand)]
enum Cmd {
    /// Run tests and judge them (the default).
    Run(Box<RunArgs>),
    /// Compute the verdicts of a run again from its evidence.
    Analyze {
        /// Folder of the run.
        dir: PathBuf,
        #[arg(long, value_enum, default_value_t = Format::Table)]
        format: Format,
    },
    /// Show a clause, its source and what judges it.
    Explain {
        /// Id of the clause.
        clause: String,
        #[arg(long, value_enum, default_value_t = Format::Table)]
        format: Format,
    },
    /// Say what this machine can and cannot do, and why.
    Doctor {
        #[arg(long, value_enum, default_value_t = Format::Table)]
        format: Format,
    },
    /// List clauses, all or those that fit.
    #[command(after_help = CLAUSES)]
    Clauses(Box<ClausesArgs>),
    /// Write the specification as a book: the source tree of mdBook.
    Book {
        /// Folder for the book; made, or, where it holds an earlier one, with a new `src`.
        #[arg(long, default_value = "target/book")]
        out: PathBuf,
    },
    /// Run the mutants of the reference endpoint in simulated time: each must fail on its clause.
    #[cfg(feature = "reference")]
    Mutants {
        #[arg(long, value_enum, default_value_t = Format::Json)]
        format: Format,
        /// Only show what there is.
        #[arg(long)]
        list: bool,
    },
    /// Be the reference endpoint, driven over standard input and output.
    #[cfg(feature = "reference")]
    Endpoint {
        /// Be this mutant.
        #[arg(long)]
        mutant: Option<String>,
    },
    /// Start a command and end it when the parent ends.
    #[command(hide = true)]
    Supervise {
        #[arg(long)]
        parent: u32,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// What chooses among the clauses.
const CHOICES: [&str; 9] = [
    "chapter",
    "role",
    "source",
    "level",
    "observed",
    "requires",
    "uncovered",
    "text",
    "format",
];

#[derive(Clone, Copy, ValueEnum)]
enum Link {
    Sim,
    Relay,
}

#[derive(Args)]
struct RunArgs {
    /// Simulated time, or a relay between processes over loopback addresses.
    #[arg(long, value_enum, default_value_t = Link::Relay)]
    link: Link,
    /// Command line of the implementation's adapter; the reference endpoint when missing.
    #[arg(long)]
    adapter: Option<String>,
    /// Command line of the peer's adapter; the reference endpoint when missing.
    #[arg(long, requires = "adapter")]
    peer: Option<String>,
    /// What the implementation claims (YAML).
    #[arg(long)]
    pics: Option<PathBuf>,
    /// Folder for the evidence.
    #[arg(long, default_value = "target/metaroce/latest")]
    out: PathBuf,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Which tests and clauses: id(glob), clause(glob), tag(name) with and, or, not.
    #[arg(long)]
    filter: Option<String>,
    /// Scenarios of a file or folder instead of the suite's own.
    #[arg(long)]
    scenarios: Option<PathBuf>,
    /// Only list the tests.
    #[arg(long)]
    list: bool,
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Args)]
struct ClausesArgs {
    /// Of this chapter: its number, its name or the prefix of its ids.
    #[arg(long, value_parser = query::chapter)]
    chapter: Option<&'static str>,
    /// Binding sender, receiver, initiator, acceptor or endpoint.
    #[arg(long, value_parser = query::role)]
    role: Option<metaroce_spec::Role>,
    /// Resting on a published statement, such as P7, or on a choice of the `project`.
    #[arg(long)]
    source: Option<String>,
    /// Of this level: must, must-not, should, should-not, may.
    #[arg(long, value_parser = query::level)]
    level: Option<metaroce_spec::Level>,
    /// Seen in wire, memory, completion, counter or none.
    #[arg(long, value_parser = query::observed)]
    observed: Option<metaroce_spec::Observability>,
    /// Requiring this feature; `none` for those that always bind.
    #[arg(long, value_parser = query::feature)]
    requires: Option<String>,
    /// Neither judged by a monitor nor excepted.
    #[arg(long)]
    uncovered: bool,
    /// With this word in statement or source.
    #[arg(long, value_name = "WORD")]
    text: Option<String>,
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Print the lock file instead, of all clauses.
    #[arg(long, conflicts_with_all = CHOICES)]
    lock: bool,
    /// Print instead which tests exercise each clause, by running them in simulated time.
    #[cfg(feature = "reference")]
    #[arg(long, conflicts_with = "lock", conflicts_with_all = CHOICES)]
    tests: bool,
}

fn main() -> ExitCode {
    // No subcommand is `run` with its defaults.
    let asked: Vec<_> = match std::env::args_os().collect::<Vec<_>>() {
        alone if alone.len() <= 1 => vec!["metaroce".into(), "run".into()],
        asked => asked,
    };
    let code = perform(Cli::parse_from(asked).command).unwrap_or_else(|error| {
        let _unread = writeln!(std::io::stderr(), "error: {error}");
        match error {
            RunError::Usage(_) => exit::USAGE,
            RunError::Harness(_) => exit::HARNESS,
        }
    });
    // Ends other threads too: one may wait on standard input.
    std::process::exit(i32::from(code))
}

fn perform(command: Cmd) -> Result<u8, RunError> {
    match command {
        Cmd::Run(args) => run_tests(&args),
        Cmd::Analyze { dir, format } => {
            let result = run::analyze(&dir)?;
            show(&result, format)?;
            let stored = std::fs::read_to_string(dir.join(RESULT));
            let fresh = metaroce_reports::json::render(&result)
                .map_err(|e| RunError::Harness(e.to_string()))?;
            match stored {
                Ok(stored) if stored == fresh => Ok(exit::exit_code(&result)),
                Ok(_) => Err(RunError::Harness(format!(
                    "{RESULT} in {} is not what the evidence gives",
                    dir.display()
                ))),
                Err(e) => Err(RunError::Harness(format!(
                    "{}: {e}: the run was not finished",
                    dir.join(RESULT).display()
                ))),
            }
        }
        Cmd::Explain { clause, format } => {
            out(&cli::explain(&clause, format == Format::Json)?).map(|()| exit::PASS)
        }
        Cmd::Doctor { format } => out(&cli::doctor(format == Format::Json)?).map(|()| exit::PASS),
        Cmd::Clauses(args) => list_clauses(*args).map(|()| exit::PASS),
        Cmd::Book { out } => {
            let pages = metaroce_conformance::book::write(&out)?;
            let _unread = writeln!(
                std::io::stderr(),
                "{pages} files: {}",
                absolute(&out).display()
            );
            Ok(exit::PASS)
        }
        #[cfg(feature = "reference")]
        Cmd::Mutants { format, list } => {
            let (text, complete) = cli::mutants(format == Format::Json, list, &mut |line| {
                eprintln!("{line}")
            })?;
            out(&text)?;
            Ok(if complete { exit::PASS } else { exit::FAIL })
        }
        #[cfg(feature = "reference")]
        Cmd::Endpoint { mutant } => {
            let options = metaroce_endpoint::adapter::Options { mutant };
            let ended = metaroce_endpoint::adapter::run_stdio(&options);
            ended
                .map(|()| exit::PASS)
                .map_err(|e| RunError::Usage(e.to_string()))
        }
        Cmd::Supervise { parent, command } => {
            metaroce_conformance::iut::supervise(parent, &command)
                .map_err(|e| RunError::Harness(format!("{}: {e}", command.join(" "))))
        }
    }
}

fn list_clauses(args: ClausesArgs) -> Result<(), RunError> {
    if args.lock {
        return out(&cli::lock()?);
    }
    #[cfg(feature = "reference")]
    if args.tests {
        let text = metaroce_conformance::coverage::find_exercised(&mut |n, of, id| {
            let _unread = writeln!(std::io::stderr(), "[{}/{of}] {id}", n + 1);
        })?;
        return out(&text);
    }
    let source = args.source.as_deref().map(query::source).transpose();
    let query = Query {
        chapter: args.chapter,
        role: args.role,
        source: source.map_err(|e| RunError::Usage(format!("--source: {e}")))?,
        level: args.level,
        observed: args.observed,
        requires: args.requires,
        uncovered: args.uncovered,
        text: args.text,
    };
    out(&cli::clauses(&query, args.format == Format::Json)?)
}

fn run_tests(args: &RunArgs) -> Result<u8, RunError> {
    let pics = match &args.pics {
        Some(path) => Pics::load(path).map_err(RunError::Usage)?,
        None => Pics::parse("pics/reference.yaml", metaroce_conformance::pics::REFERENCE)
            .map_err(RunError::Harness)?,
    };
    let scenarios = match &args.scenarios {
        Some(path) => scenario::load(path).map_err(|e| RunError::Usage(e.to_string()))?,
        None => scenario::built_in().map_err(|e| RunError::Harness(e.to_string()))?,
    };
    let plan = Plan {
        link: match args.link {
            Link::Sim => LinkKind::Sim,
            Link::Relay => LinkKind::Relay,
        },
        adapter: args.adapter.clone(),
        peer: args.peer.clone(),
        mutant: None,
        pics,
        seed: args.seed,
        filter: args.filter.clone(),
        scenarios,
    };
    if args.list {
        return out(&cli::list(&plan.tests()?, args.format == Format::Json)?).map(|()| exit::PASS);
    }
    watch_signals()?;
    let bar = progress_bar();
    let result = run::run(&plan, &args.out, &mut |n, of, id| match &bar {
        Some(bar) => {
            bar.set_length(of as u64);
            bar.set_position(n as u64);
            bar.set_message(id.to_owned());
        }
        // Nobody may be left to read it, which is no reason to stop.
        None => drop(writeln!(std::io::stderr(), "[{}/{of}] {id}", n + 1)),
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let result = result?;
    let harness = |e: metaroce_reports::RenderError| RunError::Harness(e.to_string());
    for (name, text) in [
        (run::REPORT, metaroce_reports::markdown::render(&result)),
        (
            run::JUNIT,
            metaroce_reports::junit::render(&result).map_err(harness)?,
        ),
    ] {
        let path = args.out.join(name);
        std::fs::write(&path, text)
            .map_err(|e| RunError::Harness(format!("{}: {e}", path.display())))?;
    }
    show(&result, args.format)?;
    let _unread = writeln!(
        std::io::stderr(),
        "evidence: {}",
        absolute(&args.out).display()
    );
    Ok(exit::exit_code(&result))
}

/// From now on SIGINT, SIGTERM and SIGHUP end the run in order: no process and no half of a test is left. The second of
/// them ends the program at once; its adapters end with it.
fn watch_signals() -> Result<(), RunError> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |e: std::io::Error| RunError::Harness(format!("signals: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(failed)?;
    let ignored = ignored_signals();
    let (sender, mut arrived) = tokio::sync::mpsc::channel(2);
    let mut listeners = Vec::new();
    {
        let _entered = runtime.enter();
        for kind in [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ] {
            // Whoever started the program may not want it to hear one: `nohup` does not.
            if ignored >> (kind.as_raw_value() - 1) & 1 == 0 {
                listeners.push(signal(kind).map_err(failed)?);
            }
        }
    }
    let watch = async move {
        for mut listener in listeners {
            let sender = sender.clone();
            tokio::spawn(async move {
                while listener.recv().await.is_some() && sender.send(()).await.is_ok() {}
            });
        }
        for _ in 0..2 {
            let _one = arrived.recv().await;
            metaroce_conformance::iut::interrupt();
        }
        std::process::exit(i32::from(exit::HARNESS))
    };
    let thread = std::thread::Builder::new().name("signals".into());
    let spawned = thread.spawn(move || runtime.block_on(watch));
    spawned.map(drop).map_err(failed)
}

/// The signals that this process was told to ignore, signal n at bit n - 1; none where the system does not say.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn progress_bar() -> Option<indicatif::ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = indicatif::ProgressBar::new(1);
    if let Ok(style) = indicatif::ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    Some(bar)
}

fn show(result: &metaroce_reports::RunResult, format: Format) -> Result<(), RunError> {
    match format {
        Format::Json => out(&metaroce_reports::json::render(result)
            .map_err(|e| RunError::Harness(e.to_string()))?),
        Format::Table => {
            use metaroce_reports::table::{Colour, render};
            let colour = if std::io::stdout().is_terminal() {
                Colour::Always
            } else {
                Colour::Never
            };
            out(&render(result, colour))
        }
    }
}

/// Writes to standard output; a reader that has gone away is no error.
fn out(text: &str) -> Result<(), RunError> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| {
        if text.ends_with('\n') {
            Ok(())
        } else {
            stdout.write_all(b"\n")
        }
    });
    match written {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(RunError::Harness(format!("standard output: {e}")))
        }
        _ => Ok(()),
    }
}
