//! Goodput over loopback: the reference endpoint, QUIC and plain UDP side by side.

use std::collections::BTreeMap;

use crate::endpoint;
use crate::figures::{Case, Report, Table, number, ratio};
use crate::machine::About;
use crate::party::{Bulk, Protocol};
use crate::plain;
use crate::quic::{Control, LARGEST_WITH_OFFLOAD, Tuning};
use crate::transfer::{self, Cores};

/// What is measured.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Payload sizes, bytes.
    pub payloads: Vec<u16>,
    /// Rows sent on one path by the endpoint.
    pub rows: Vec<usize>,
    /// Rounds.
    pub rounds: usize,
    /// Time of each, ms.
    pub time_ms: u64,
    /// Messages under way.
    pub depth: usize,
    /// Cores.
    pub cores: Cores,
}

const PATHS: u16 = 8;
const MESSAGE: usize = 1 << 20;
/// A row as long as the system takes.
const FULL: usize = 64;

struct Entry {
    name: String,
    label: String,
    payload: u16,
    bulk: Bulk,
}

fn entry(setup: &Setup, payload: u16, protocol: Protocol, row: usize, label: String) -> Entry {
    Entry {
        name: format!("{payload} {label}"),
        label,
        payload,
        bulk: Bulk {
            protocol,
            datagram: endpoint::datagram(payload),
            payload,
            paths: PATHS,
            row,
            message: MESSAGE,
            depth: setup.depth,
            warm_ms: (setup.time_ms / 4).max(100),
            time_ms: setup.time_ms,
        },
    }
}

fn row_label(row: usize, datagram: usize) -> String {
    match (plain::row_of(row, datagram), row) {
        (1, _) => "one by one".into(),
        (most, FULL) => format!("in full rows of {most}"),
        (less, row) if less < row => format!("in rows of {less} (no {row} fit)"),
        (row, _) => format!("in rows of {row}"),
    }
}

const QUIC: &str = "QUIC (quinn), tuned";
const QUIC_DEFAULT: &str = "QUIC (quinn), defaults";

const QUIC_SINGLE: &str = "QUIC (quinn), tuned, without offload";

fn quic_settings(size: usize) -> Vec<(Tuning, &'static str)> {
    let mut settings = vec![(Tuning::BULK, QUIC), (Tuning::DEFAULT, QUIC_DEFAULT)];
    if size > LARGEST_WITH_OFFLOAD {
        let single = Tuning {
            offload: false,
            ..Tuning::BULK
        };
        settings.push((single, QUIC_SINGLE));
    }
    settings
}

fn quic_entry(setup: &Setup, payload: u16, tuning: Tuning, label: String) -> Entry {
    let mut entry = entry(setup, payload, Protocol::Quic(tuning), 1, label);
    if tuning.offload {
        entry.bulk.datagram = entry.bulk.datagram.min(LARGEST_WITH_OFFLOAD);
    }
    entry
}

fn entries(setup: &Setup) -> Vec<Entry> {
    let mut entries = Vec::new();
    for &payload in &setup.payloads {
        let size = endpoint::datagram(payload);
        for &row in &setup.rows {
            if endpoint::offers_rows_of(row) {
                let label = match row {
                    1 => "reference endpoint, sprayed one by one".into(),
                    row => format!("reference endpoint, sprayed in rows of {row}"),
                };
                entries.push(entry(setup, payload, Protocol::Endpoint, row, label));
            }
        }
        for (tuning, label) in quic_settings(size) {
            entries.push(quic_entry(setup, payload, tuning, label.into()));
        }
        for row in [1, 8, 16, FULL] {
            let label = format!("plain UDP {}", row_label(row, size));
            // The same row twice where no longer ones fit.
            if !entries
                .iter()
                .any(|e| e.payload == payload && e.label == label)
            {
                entries.push(entry(setup, payload, Protocol::Plain, row, label));
            }
        }
    }
    entries
}

/// Runs all, round by round, each round through all cases.
fn measure(setup: &Setup, entries: &[Entry]) -> BTreeMap<String, Case> {
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for round in 0..setup.rounds {
        for (i, entry) in entries.iter().enumerate() {
            eprintln!("round {} of {}: {}", round + 1, setup.rounds, entry.name);
            let number = (round * entries.len() + i) as u32;
            let case = cases.entry(entry.name.clone()).or_default();
            match transfer::run(&entry.bulk, number, setup.cores, None) {
                Ok(outcome) => {
                    case.push("Gb/s", outcome.goodput);
                    case.push("sender", 100.0 * outcome.sent.cpu);
                    case.push("receiver", 100.0 * outcome.received.cpu);
                    let (sent, arrived) = (outcome.sent.goodput(), outcome.received.goodput());
                    if let Some(counted) = outcome.sent.counted {
                        let again = counted.again as f64 / counted.sent.max(1) as f64;
                        case.push("again", 100.0 * again);
                        case.push("timeouts", counted.timeouts as f64);
                    }
                    if entry.bulk.protocol == Protocol::Plain {
                        case.push("lost", 100.0 * (1.0 - arrived / sent.max(1e-9)).max(0.0));
                    }
                    case.push("others", 100.0 * outcome.others());
                }
                Err(error) => case.failures.push(error.to_string()),
            }
        }
    }
    cases
}

/// Measures and tells.
pub fn run(setup: &Setup) -> Report {
    let entries = entries(setup);
    let cases = measure(setup, &entries);
    let mut tables = Vec::new();
    for &payload in &setup.payloads {
        let size = endpoint::datagram(payload);
        let mut table = Table::new(
            format!("### Payload {payload}, datagrams of {size} bytes"),
            &[
                "",
                "Gb/s",
                "spread",
                "of QUIC tuned",
                "of plain UDP in the same rows",
                "sender %",
                "receiver %",
                "others %",
                "lost %",
                "sent again %",
                "timeouts",
            ],
        );
        let quic = cases.get(&format!("{payload} {QUIC}"));
        let quic = quic.and_then(|case| case.median("Gb/s"));
        for entry in entries.iter().filter(|entry| entry.payload == payload) {
            let Some(case) = cases.get(&entry.name) else {
                continue;
            };
            let goodput = case.median("Gb/s");
            // Rows that QUIC sends are the stack's own choice: it stands beside full rows.
            let row = match entry.bulk.protocol {
                Protocol::Quic(_) => FULL,
                _ => entry.bulk.row,
            };
            let plain = cases.get(&format!("{payload} plain UDP {}", row_label(row, size)));
            let plain = plain.and_then(|case| case.median("Gb/s"));
            table.row([
                entry.label.clone(),
                number(goodput, 2),
                case.show_spread("Gb/s", 2),
                number(ratio(goodput, quic), 2),
                number(ratio(goodput, plain), 2),
                case.show("sender", 0),
                case.show("receiver", 0),
                case.show("others", 0),
                case.show("lost", 1),
                case.show("again", 2),
                case.show("timeouts", 0),
            ]);
        }
        tables.push(table);
    }
    let missing: Vec<String> = setup
        .rows
        .iter()
        .filter(|&&row| !endpoint::offers_rows_of(row))
        .map(usize::to_string)
        .collect();
    let mut notes = vec![
        format!(
            "{} rounds of {} ms, interleaved; medians, and smallest to largest; messages of 1 MiB, {} under way; {PATHS} paths (plain UDP: {PATHS} sockets in turn).",
            setup.rounds, setup.time_ms, setup.depth
        ),
        format!("Sender and receiver are processes; {}.", cores(setup.cores)),
        "Goodput counts payload: of complete Writes at the sender, of the stream at the reader, of datagrams at the receiver. `sender %` and `receiver %` are shares of a core, `others %` what the rest of the machine took: with much of it, the row shows the machine.".into(),
        format!("QUIC tuned is {:?}, TLS_AES_128_GCM_SHA256; its datagrams are as long as those of the endpoint, but at least 1200 bytes, and at most {LARGEST_WITH_OFFLOAD} bytes with offload, as quinn sends rows of ten.", Tuning::BULK),
    ];
    if !missing.is_empty() {
        notes.push(format!(
            "The endpoint cannot spray in rows of {} yet.",
            missing.join(" and ")
        ));
    }
    Report {
        about: About::here(),
        notes,
        tables,
        cases,
    }
}

/// How the cores are used, in words.
pub fn cores(cores: Cores) -> String {
    cores.map_or("not pinned".into(), |[a, b]| {
        format!("pinned to core {a} and core {b}")
    })
}

/// Compares settings of QUIC, to see which tuning matters.
pub fn tune(setup: &Setup) -> Report {
    let base = Tuning::BULK;
    let mut settings = vec![
        ("tuned".to_owned(), base),
        ("defaults".to_owned(), Tuning::DEFAULT),
        (
            "tuned, BBR".to_owned(),
            Tuning {
                control: Control::Bbr,
                ..base
            },
        ),
        (
            "tuned, no offload".to_owned(),
            Tuning {
                offload: false,
                ..base
            },
        ),
        (
            "tuned, usual acknowledgments".to_owned(),
            Tuning { acks: None, ..base },
        ),
        (
            "tuned, acknowledgments after 10".to_owned(),
            Tuning {
                acks: Some(10),
                ..base
            },
        ),
        (
            "tuned, usual first window".to_owned(),
            Tuning {
                initial_window: 14_720,
                ..base
            },
        ),
    ];
    for window in [512 << 10, 1 << 20, 2 << 20, 16 << 20] {
        let name = format!("tuned, windows of {} KiB", window >> 10);
        settings.push((name, Tuning { window, ..base }));
    }
    let mut entries = Vec::new();
    for &payload in &setup.payloads {
        for (name, tuning) in &settings {
            entries.push(quic_entry(setup, payload, *tuning, name.clone()));
        }
    }
    let cases = measure(setup, &entries);
    let mut table = Table::new(
        "### Settings of QUIC",
        &[
            "",
            "payload",
            "Gb/s",
            "spread",
            "of tuned",
            "sender %",
            "receiver %",
            "others %",
        ],
    );
    for entry in &entries {
        let Some(case) = cases.get(&entry.name) else {
            continue;
        };
        let tuned = cases.get(&format!("{} tuned", entry.payload));
        let tuned = tuned.and_then(|case| case.median("Gb/s"));
        table.row([
            entry.label.clone(),
            entry.payload.to_string(),
            case.show("Gb/s", 2),
            case.show_spread("Gb/s", 2),
            number(ratio(case.median("Gb/s"), tuned), 2),
            case.show("sender", 0),
            case.show("receiver", 0),
            case.show("others", 0),
        ]);
    }
    Report {
        about: About::here(),
        notes: vec![
            format!(
                "{} rounds of {} ms, interleaved; {}.",
                setup.rounds,
                setup.time_ms,
                cores(setup.cores)
            ),
            format!("`tuned` is {base:?}."),
        ],
        tables: vec![table],
        cases,
    }
}
