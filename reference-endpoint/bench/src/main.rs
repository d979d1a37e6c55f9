//! Benchmarks of the reference endpoint, side by side with QUIC and with plain UDP in one run on one machine.
//!
//! Every subcommand prints a Markdown table, or JSON with every sample. Sender and receiver are processes of their own.

mod endpoint;
mod figures;
mod goodput;
mod loss;
mod machine;
mod many;
mod memory;
mod party;
mod plain;
mod profile;
mod quic;
mod relay;
mod transfer;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

#[cfg(feature = "count-heap")]
#[global_allocator]
static COUNTED: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

/// Bytes of the heap in use, where the build counts them.
pub fn heap() -> Option<u64> {
    #[cfg(feature = "count-heap")]
    {
        let stats = COUNTED.stats();
        Some((stats.bytes_allocated - stats.bytes_deallocated) as u64)
    }
    #[cfg(not(feature = "count-heap"))]
    None
}

/// Benchmarks of the reference endpoint.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value = "markdown")]
    format: Format,
    /// Few and short rounds: under half a minute, and less sure.
    #[arg(long, global = true)]
    quick: bool,
    /// Rounds through all cases.
    #[arg(long, global = true)]
    rounds: Option<usize>,
    /// Time of each case in a round, ms.
    #[arg(long, global = true)]
    time_ms: Option<u64>,
    /// Leave it to the system where processes run.
    #[arg(long, global = true)]
    no_pin: bool,
}

impl Common {
    fn cores(&self) -> transfer::Cores {
        (!self.no_pin).then_some([0, 1])
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Markdown,
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Goodput over loopback beside QUIC and plain UDP.
    Goodput {
        /// Payload bytes of a packet.
        #[arg(long, value_delimiter = ',', default_values_t = [1024, 4096, 8192])]
        payloads: Vec<u16>,
        /// Packets that the endpoint sends in a row on one path.
        #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 16])]
        spray_run: Vec<usize>,
        /// Messages under way.
        #[arg(long, default_value_t = 8)]
        depth: usize,
        /// Compare settings of QUIC instead.
        #[arg(long)]
        tune: bool,
    },
    /// Goodput kept under random loss, through a relay with a fixed rate and delay, beside QUIC.
    Loss {
        /// Payload bytes of a packet.
        #[arg(long, default_value_t = 4096)]
        payload: u16,
        /// Packets that the endpoint sends in a row on one path.
        #[arg(long, default_value_t = 1)]
        spray_run: usize,
        /// Rate of the line, Mb/s.
        #[arg(long, default_value_t = 500)]
        megabits: u64,
        /// One-way delay, us.
        #[arg(long, default_value_t = 1000)]
        delay_us: u64,
        /// Length of the queue, in products of rate and round trip.
        #[arg(long, default_value_t = 1.0)]
        queue: f64,
        /// Mark datagrams of QUIC too.
        #[arg(long)]
        mark_quic: bool,
        /// Shares lost, percent; none at all is always among them.
        #[arg(long, value_delimiter = ',')]
        losses: Option<Vec<f64>>,
        /// Seed of the first round; each further one has the next.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Memory of an idle connection, and thousands of connections at work.
    Memory {
        /// Idle connections: few and more.
        #[arg(long, value_delimiter = ',', default_values_t = [10, 110])]
        idle: Vec<usize>,
        /// Streams of each idle connection.
        #[arg(long, default_value_t = 64)]
        streams: u16,
        /// Connections at work.
        #[arg(long)]
        connections: Option<usize>,
        /// Writes of each.
        #[arg(long, default_value_t = 4)]
        writes: usize,
        /// Bytes of each Write.
        #[arg(long, default_value_t = 16384)]
        length: usize,
        /// Longest time for each case, s.
        #[arg(long, default_value_t = 120)]
        limit: u64,
    },
    /// Where the time goes.
    Profile {
        /// Payload bytes of a packet.
        #[arg(long, default_value_t = 1024)]
        payload: u16,
        /// Packets that the endpoint sends in a row on one path.
        #[arg(long, default_value_t = 1)]
        spray_run: usize,
        /// Count instructions of the core without sockets, by callgrind, in place of samples by perf.
        #[arg(long)]
        instructions: bool,
        /// Look at QUIC instead.
        #[arg(long, conflicts_with = "instructions")]
        quic: bool,
        /// Functions shown.
        #[arg(long, default_value_t = 25)]
        most: usize,
        /// Where the tools leave their files.
        #[arg(long, default_value = "target/profile")]
        folder: std::path::PathBuf,
    },
    /// Carry Writes between two endpoints without sockets: what `profile --instructions` starts itself.
    #[command(hide = true)]
    ByHand {
        #[arg(long)]
        payload: u16,
        #[arg(long)]
        messages: usize,
    },
    /// Be one party of a transfer: what this program starts itself.
    #[command(hide = true)]
    Party {
        task: String,
        #[arg(long)]
        core: Option<usize>,
        #[arg(long)]
        limit: u64,
    },
}

fn main() -> ExitCode {
    let Cli { command, common } = Cli::parse();
    let cores = common.cores();
    let pick = |quick, whole| if common.quick { quick } else { whole };
    let report = match command {
        Command::Party { task, core, limit } => {
            return match serde_json::from_str(&task) {
                Ok(task) => {
                    party::run(&task, core, Duration::from_secs(limit));
                    ExitCode::SUCCESS
                }
                Err(error) => fail(&error),
            };
        }
        Command::ByHand { payload, messages } => {
            return match profile::by_hand(payload, messages) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(&error),
            };
        }
        Command::Profile {
            payload,
            spray_run,
            instructions,
            quic,
            most,
            folder,
        } => {
            let setup = profile::Setup {
                payload,
                row: spray_run,
                quic,
                time_ms: common.time_ms.unwrap_or(pick(2000, 8000)),
                messages: pick(2, 8) as usize,
                most,
                folder,
                cores,
            };
            let report = if instructions {
                profile::instructions(&setup)
            } else {
                profile::samples(&setup)
            };
            match report {
                Ok(report) => report,
                Err(error) => return fail(&error),
            }
        }
        Command::Goodput {
            payloads,
            spray_run,
            depth,
            tune,
        } => {
            let setup = goodput::Setup {
                payloads,
                rows: spray_run,
                rounds: common.rounds.unwrap_or(if common.quick { 1 } else { 5 }),
                time_ms: common
                    .time_ms
                    .unwrap_or(if common.quick { 300 } else { 2000 }),
                depth,
                cores: common.cores(),
            };
            if tune {
                goodput::tune(&setup)
            } else {
                goodput::run(&setup)
            }
        }
        Command::Loss {
            payload,
            spray_run,
            megabits,
            delay_us,
            queue,
            mark_quic,
            losses,
            seed,
        } => loss::run(&loss::Setup {
            payload,
            row: spray_run,
            megabits,
            delay_us,
            queue,
            mark_quic,
            losses: losses.unwrap_or_else(|| {
                if common.quick {
                    vec![1.0]
                } else {
                    vec![0.1, 1.0, 10.0]
                }
            }),
            acks: true,
            rounds: common.rounds.unwrap_or(pick(1, 3) as usize),
            time_ms: common.time_ms.unwrap_or(pick(1000, 4000)),
            seed,
            cores,
        }),
        Command::Memory {
            idle,
            streams,
            connections,
            writes,
            length,
            limit,
        } => memory::run(&memory::Setup {
            idle: [
                idle.first().copied().unwrap_or(0),
                idle.last().copied().unwrap_or(0),
            ],
            streams,
            busy: connections.unwrap_or(pick(400, 4000) as usize),
            writes,
            length,
            limit: limit.min(pick(10, u64::MAX)),
            cores,
        }),
    };
    if let Err(error) = report.print(common.format == Format::Json) {
        return fail(&error);
    }
    if report.has_failures() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}
