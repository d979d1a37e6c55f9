//! Goodput kept under random loss, through a relay with a fixed rate and delay.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::endpoint;
use crate::figures::{Case, NONE, Report, Table, number, ratio};
use crate::goodput::cores;
use crate::machine::About;
use crate::party::{Bulk, Protocol};
use crate::quic::{self, Control, Tuning};
use crate::relay::line::LineSetup;
use crate::transfer::{self, Between, Cores, Outcome};

/// What is measured.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Payload bytes of a packet.
    pub payload: u16,
    /// Packets that the endpoint sends in a row on one path.
    pub row: usize,
    /// Rate of the line, megabits per second.
    pub megabits: u64,
    /// One-way delay, us.
    pub delay_us: u64,
    /// Length of the queue, in products of rate and round trip.
    pub queue: f64,
    /// Whether the line marks datagrams of QUIC too.
    pub mark_quic: bool,
    /// Shares lost, percent, besides none at all.
    pub losses: Vec<f64>,
    /// Whether acknowledgments are lost too, in a second row each.
    pub acks: bool,
    /// Rounds.
    pub rounds: usize,
    /// Time of each, ms.
    pub time_ms: u64,
    /// Seed of the first round; each further one has the next.
    pub seed: u64,
    /// Cores.
    pub cores: Cores,
}

const PATHS: u16 = 8;
const MESSAGE: usize = 1 << 20;
/// Messages under way: far more than the line holds, and soon over at its slowest.
const DEPTH: usize = 4;
/// What the issue allows to be sent for each packet that arrives, over the least that is possible.
const MOST_SENT: f64 = 1.02;

const ENDPOINT: &str = "reference endpoint";

/// A case: who, and how much is lost of what the sender and of what the receiver sends.
struct Entry {
    name: String,
    peer: &'static str,
    loss: [f64; 2],
    bulk: Bulk,
}

fn entries(setup: &Setup) -> Vec<Entry> {
    let peers = [
        (ENDPOINT, Protocol::Endpoint),
        ("quinn, cubic", Protocol::Quic(Tuning::line(Control::Cubic))),
        ("quinn, BBR", Protocol::Quic(Tuning::line(Control::Bbr))),
    ];
    let mut losses = vec![[0.0, 0.0]];
    for &loss in &setup.losses {
        losses.push([loss / 100.0, 0.0]);
        if setup.acks {
            losses.push([loss / 100.0; 2]);
        }
    }
    let mut entries = Vec::new();
    for loss in losses {
        for (peer, protocol) in peers {
            entries.push(Entry {
                name: name(peer, loss),
                peer,
                loss,
                bulk: Bulk {
                    protocol,
                    datagram: endpoint::datagram(setup.payload),
                    payload: setup.payload,
                    paths: PATHS,
                    row: setup.row,
                    message: MESSAGE,
                    depth: DEPTH,
                    warm_ms: 500,
                    time_ms: setup.time_ms,
                },
            });
        }
    }
    entries
}

fn name(peer: &str, [data, acks]: [f64; 2]) -> String {
    format!(
        "{peer}, {} % of data and {} % of answers lost",
        percent(data),
        percent(acks)
    )
}

fn percent(share: f64) -> f64 {
    // Without the noise of the last bits.
    (share * 1e6).round() / 1e4
}

fn note(case: &mut Case, outcome: &Outcome, setup: &Setup, bulk: &Bulk) {
    case.push("Mb/s", 1000.0 * outcome.goodput);
    case.push(
        "of the line",
        1000.0 * outcome.goodput / setup.megabits as f64,
    );
    if let Some(counted) = outcome.sent.counted {
        let again = counted.again as f64 / counted.sent.max(1) as f64;
        case.push("again", 100.0 * again);
        case.push("timeouts", counted.timeouts as f64);
    }
    case.push("sender", 100.0 * outcome.sent.cpu);
    case.push("receiver", 100.0 * outcome.received.cpu);
    for (core, busy) in outcome.busy.iter().enumerate().take(2) {
        case.push(["core 0", "core 1"][core], 100.0 * busy);
    }
    case.push("others", 100.0 * outcome.others());
    let Some(relay) = &outcome.relay else { return };
    let count = |side: usize| {
        let counts = &relay.counts[side];
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
        (
            get(&counts.entered),
            get(&counts.overflowed),
            get(&counts.marked),
            get(&counts.delivered),
        )
    };
    let (entered, overflowed, marked, delivered) = count(0);
    let payload = match bulk.protocol {
        Protocol::Quic(_) => quic::payload(bulk.datagram),
        Protocol::Endpoint | Protocol::Plain => usize::from(bulk.payload),
    };
    let needed = outcome.total as f64 / payload as f64;
    case.push("sent per needed", entered / needed.max(1.0));
    case.push("sent per delivered", entered / delivered.max(1.0));
    case.push("overflow %", 100.0 * overflowed / entered.max(1.0));
    case.push("marked %", 100.0 * marked / entered.max(1.0));
    case.push("answers per packet", count(1).0 / entered.max(1.0));
    case.push("relay", 100.0 * relay.cpu);
    case.push("latest us", relay.late_ns as f64 / 1000.0);
    case.push("mean late us", relay.mean_late_ns / 1000.0);
    case.push("unseen", relay.unseen as f64);
}

/// Measures and tells.
pub fn run(setup: &Setup) -> Report {
    let line = LineSetup::new(setup.megabits, setup.delay_us, setup.queue);
    let entries = entries(setup);
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for round in 0..setup.rounds {
        let seed = setup.seed + round as u64;
        for (i, entry) in entries.iter().enumerate() {
            eprintln!("round {} of {}: {}", round + 1, setup.rounds, entry.name);
            let number = (round * entries.len() + i) as u32;
            let mut between = Between {
                line,
                loss: entry.loss,
                seed,
            };
            if entry.bulk.protocol != Protocol::Endpoint && !setup.mark_quic {
                between.line.mark_from = u64::MAX;
            }
            let case = cases.entry(entry.name.clone()).or_default();
            match transfer::run(&entry.bulk, number, setup.cores, Some(&between)) {
                Ok(outcome) => note(case, &outcome, setup, &entry.bulk),
                Err(error) => case.failures.push(error.to_string()),
            }
        }
    }
    Report {
        about: About::here(),
        notes: notes(setup, &line),
        tables: vec![kept(&entries, &cases), relay(&entries, &cases)],
        cases,
    }
}

fn kept(entries: &[Entry], cases: &BTreeMap<String, Case>) -> Table {
    let mut table = Table::new(
        "### Goodput kept, and what it took",
        &[
            "lost: data, answers",
            "",
            "Mb/s",
            "spread",
            "of the line",
            "kept",
            "perfect",
            "sent per needed",
            "at most",
        ],
    );
    for entry in entries {
        let case = cases.get(&entry.name);
        let none = cases.get(&name(entry.peer, [0.0, 0.0]));
        let median = |case: Option<&Case>, figure: &str| case.and_then(|case| case.median(figure));
        let over_none = |figure| ratio(median(case, figure), median(none, figure));
        let [data, answers] = entry.loss;
        table.row([
            format!("{} %, {} %", percent(data), percent(answers)),
            entry.peer.to_owned(),
            number(median(case, "Mb/s"), 1),
            case.map_or(NONE.into(), |case| case.show_spread("Mb/s", 1)),
            number(median(case, "of the line"), 3),
            number(over_none("Mb/s"), 3),
            number(Some(1.0 - data), 3),
            number(median(case, "sent per needed"), 3),
            number(Some(MOST_SENT / (1.0 - data)), 3),
        ]);
    }
    table
}

fn relay(entries: &[Entry], cases: &BTreeMap<String, Case>) -> Table {
    let mut table = Table::new(
        "### What the relay saw, and how busy everything was",
        &[
            "lost: data, answers",
            "",
            "sent per delivered",
            "sent again %",
            "timeouts",
            "overflow %",
            "marked %",
            "answers per packet",
            "sender %",
            "receiver %",
            "relay %",
            "core 0 %",
            "core 1 %",
            "others %",
            "late us",
            "latest us",
            "unseen",
        ],
    );
    for entry in entries {
        let Some(case) = cases.get(&entry.name) else {
            continue;
        };
        let [data, answers] = entry.loss;
        table.row([
            format!("{} %, {} %", percent(data), percent(answers)),
            entry.peer.to_owned(),
            case.show("sent per delivered", 3),
            case.show("again", 2),
            case.show("timeouts", 0),
            case.show("overflow %", 2),
            case.show("marked %", 1),
            case.show("answers per packet", 2),
            case.show("sender", 0),
            case.show("receiver", 0),
            case.show("relay", 0),
            case.show("core 0", 0),
            case.show("core 1", 0),
            case.show("others", 0),
            case.show("mean late us", 0),
            case.show("latest us", 0),
            case.show("unseen", 0),
        ]);
    }
    table
}

fn notes(setup: &Setup, line: &LineSetup) -> Vec<String> {
    vec![
        format!(
            "{} rounds of {} ms after 500 ms, interleaved, seeds from {}; medians, and smallest to largest; messages of 1 MiB, {DEPTH} under way; payload {}, {PATHS} paths in rows of {}; datagrams of {} bytes, of QUIC {}.",
            setup.rounds,
            setup.time_ms,
            setup.seed,
            setup.payload,
            setup.row,
            endpoint::datagram(setup.payload),
            quic::datagram(endpoint::datagram(setup.payload)),
        ),
        format!(
            "Line: {} Mb/s with the headers of IP and UDP, {} us one way, a queue of {} bytes that marks ECN-capable packets from {} bytes; what is lost is lost behind the queue.",
            setup.megabits, setup.delay_us, line.queue, line.mark_from
        ),
        format!(
            "Sender and receiver are processes, {}; the relay is a thread of a third one, not pinned, and looks for packets every 100 us.",
            cores(setup.cores)
        ),
        "`needed` are the packets that hold the bytes of all messages once, `sent` all that entered the relay from the sender, over the whole connection, handshake included. `unseen` datagrams were lost by the system before the relay: with any, the row shows the machine; likewise with packets that left the relay `late` by much of the delay, on average.".into(),
        "QUIC has quinn's own settings but for windows of 4 MiB and the size of datagrams.".into(),
        if setup.mark_quic {
            "The line marks QUIC too.".into()
        } else {
            "The line does not mark QUIC: its cubic takes a mark for a loss, so marks from a fifth of the queue leave it little of the line (`--mark-quic` shows it).".into()
        },
    ]
}
