//! Where the time goes: samples of the running parties by perf, or instructions of the core alone by callgrind.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::endpoint;
use crate::figures::{Case, Report, Table, number};
use crate::machine::About;
use crate::party::{Bulk, Party, Protocol, Task};
use crate::quic::Tuning;
use crate::relay::Addresses;
use crate::transfer::Cores;

/// What is looked at.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Payload bytes of a packet.
    pub payload: u16,
    /// Packets that the endpoint sends in a row on one path.
    pub row: usize,
    /// Look at QUIC instead.
    pub quic: bool,
    /// Time of the transfer, ms.
    pub time_ms: u64,
    /// Messages of the transfer by hand.
    pub messages: usize,
    /// Functions shown.
    pub most: usize,
    /// Where the tools leave their files.
    pub folder: PathBuf,
    /// Cores.
    pub cores: Cores,
}

const PATHS: u16 = 8;
const MESSAGE: usize = 1 << 20;

/// Samples sender and receiver while they run.
///
/// # Errors
/// When there is no perf, or a party fails.
pub fn samples(setup: &Setup) -> io::Result<Report> {
    std::fs::create_dir_all(&setup.folder)?;
    let protocol = if setup.quic {
        Protocol::Quic(Tuning::BULK)
    } else {
        Protocol::Endpoint
    };
    let bulk = Bulk {
        protocol,
        datagram: endpoint::datagram(setup.payload),
        payload: setup.payload,
        paths: PATHS,
        row: setup.row,
        message: MESSAGE,
        depth: 8,
        warm_ms: 200,
        time_ms: setup.time_ms,
    };
    let addresses = Addresses::block(0);
    let limit = Duration::from_millis(2 * setup.time_ms) + Duration::from_secs(15);
    let files = ["sender.perf", "receiver.perf"].map(|name| setup.folder.join(name));
    let paths = files.each_ref().map(|path| path.to_string_lossy());
    let watcher = |party: usize| {
        let file = paths[party].as_ref();
        [
            "perf",
            "record",
            "-q",
            "-e",
            "cpu-clock",
            "-F",
            "1997",
            "-g",
            "-o",
            file,
            "--",
        ]
    };
    let core = |party: usize| setup.cores.map(|cores| cores[party]);
    let task = Task::Receive(bulk, SocketAddr::new(addresses.b, 0));
    let mut receiver = Party::start_under(&watcher(1), &task, core(1), limit)?;
    let ready = receiver.ready()?;
    let peer = SocketAddr::new(addresses.b, ready.port);
    let task = Task::Send(bulk, SocketAddr::new(addresses.a, 0), peer, ready);
    let mut sender = Party::start_under(&watcher(0), &task, core(0), limit)?;
    let sent = sender.last()?;
    let received = receiver.done()?;
    // Their files are whole when both have ended.
    sender.wait()?;
    receiver.wait()?;

    let mut tables = Vec::new();
    let mut case = Case::default();
    case.push("Gb/s", sent.goodput());
    case.push("sender", 100.0 * sent.cpu);
    case.push("receiver", 100.0 * received.cpu);
    for (name, file) in ["Sender", "Receiver"].into_iter().zip(&files) {
        let mut command = Command::new("perf");
        command.args(["report", "--stdio", "-q", "--no-children", "-g", "none"]);
        command.args(["-F", "overhead,dso,symbol", "-i"]).arg(file);
        let mut table = Table::new(
            format!("### {name}, {:.2} Gb/s", sent.goodput()),
            &["function", "in", "% of samples"],
        );
        let said = output(&mut command)?;
        let mut places: BTreeMap<&str, f64> = BTreeMap::new();
        for (share, place, _) in said.lines().filter_map(sample) {
            *places.entry(place).or_default() += share.parse().unwrap_or(0.0);
        }
        for (place, share) in places.into_iter().filter(|(_, share)| *share >= 1.0) {
            table.row(["**all**".into(), place.to_owned(), number(Some(share), 2)]);
        }
        for (share, place, function) in said.lines().filter_map(sample).take(setup.most) {
            table.row([function.to_owned(), place.to_owned(), share.to_owned()]);
        }
        tables.push(table);
    }
    Ok(Report {
        about: About::here(),
        notes: vec![
            format!(
                "perf, {} ms, 1,997 samples a second of processor time; payload {}, {PATHS} paths in rows of {}.",
                setup.time_ms, setup.payload, setup.row
            ),
            format!(
                "A flame graph: `perf script -i {} | inferno-collapse-perf | inferno-flamegraph > sender.svg` (`cargo install inferno`).",
                files[0].display()
            ),
        ],
        tables,
        cases: BTreeMap::from([("transfer".into(), case)]),
    })
}

/// Share, place and name out of a line like `12.3%  program  [.] function`.
fn sample(line: &str) -> Option<(&str, &str, &str)> {
    let (share, rest) = line.trim().split_once('%')?;
    let (place, rest) = rest.trim().split_once(char::is_whitespace)?;
    let (_, function) = rest.trim().split_once(' ')?;
    Some((share, place, function.trim()))
}

/// Counts instructions of both cores in a transfer by hand; the same figure every time.
///
/// # Errors
/// When there is no valgrind, or the transfer fails.
pub fn instructions(setup: &Setup) -> io::Result<Report> {
    std::fs::create_dir_all(&setup.folder)?;
    let mut counted = Vec::new();
    let file = setup.folder.join("callgrind.out");
    // What is done once is the same in both, so the difference is what packets cost.
    for messages in [1, 1 + setup.messages] {
        eprintln!("{messages} messages under callgrind");
        let mut command = Command::new("valgrind");
        command
            .args(["-q", "--tool=callgrind"])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(std::env::current_exe()?)
            .args(["by-hand", "--messages", &messages.to_string()])
            .args(["--payload", &setup.payload.to_string()]);
        let said = output(&mut command)?;
        let datagrams: Vec<u64> = said
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        let summary = std::fs::read_to_string(&file)?;
        let all = summary
            .lines()
            .find_map(|line| line.strip_prefix("totals:")?.trim().parse::<u64>().ok());
        match (all, datagrams.as_slice()) {
            (Some(all), &[sent, answered]) => counted.push((all, sent, answered)),
            _ => return Err(io::Error::other("callgrind gave no total")),
        }
    }
    let (Some(less), Some(more)) = (counted.first(), counted.last()) else {
        return Err(io::Error::other("callgrind gave nothing"));
    };
    let packets = more.1.saturating_sub(less.1).max(1) as f64;
    let each = more.0.saturating_sub(less.0) as f64 / packets;
    let answers = more.2.saturating_sub(less.2) as f64 / packets;
    let mut case = Case::default();
    case.push("instructions per packet", each);

    let mut command = Command::new("callgrind_annotate");
    command.args(["--threshold=99", "--auto=no"]).arg(&file);
    let mut table = Table::new(
        "### Instructions by function, both cores together",
        &["function", "per packet", "%"],
    );
    let said = output(&mut command)?;
    // One line for each file that a function is made of.
    let mut functions: BTreeMap<String, u64> = BTreeMap::new();
    for (own, function) in said.lines().filter_map(annotated) {
        *functions.entry(function).or_default() += own;
    }
    let mut functions: Vec<(String, u64)> = functions.into_iter().collect();
    functions.sort_by_key(|(_, own)| std::cmp::Reverse(*own));
    for (function, own) in functions.into_iter().take(setup.most) {
        table.row([
            function,
            number(Some(own as f64 / more.1.max(1) as f64), 0),
            number(Some(100.0 * own as f64 / more.0.max(1) as f64), 1),
        ]);
    }
    Ok(Report {
        about: About::here(),
        notes: vec![
            format!(
                "callgrind; {} messages of 1 MiB between two cores without sockets, payload {}, {PATHS} paths.",
                setup.messages, setup.payload
            ),
            format!(
                "**{each:.0} instructions per data packet**, from its message to its acknowledgment on both sides, with {answers:.2} datagrams in answer."
            ),
            "valgrind knows no AVX-512, so the CRC takes more instructions here than where it has it.".into(),
        ],
        tables: vec![table],
        cases: BTreeMap::from([("by hand".into(), case)]),
    })
}

/// Count and name out of a line like `1,234 (12.3%)  file:function [program]`.
fn annotated(line: &str) -> Option<(u64, String)> {
    let (count, rest) = line.trim().split_once('(')?;
    let own = count.trim().replace(',', "").parse().ok()?;
    let (_, rest) = rest.split_once("%)")?;
    let name = rest.trim();
    if name == "PROGRAM TOTALS" {
        return None;
    }
    let name = name.rsplit_once(" [").map_or(name, |(name, _)| name);
    // The file is often unknown, and its path long.
    let function = match name.split_once(':') {
        Some((file, function)) if !file.contains('<') => function.trim_start_matches(':'),
        _ => name,
    };
    Some((own, function.to_owned()))
}

fn output(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output = output.map_err(|error| io::Error::other(format!("cannot run {name}: {error}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{name}: {}", why.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs the transfer by hand, and says how many datagrams it took.
///
/// # Errors
/// When an endpoint fails.
pub fn by_hand(payload: u16, messages: usize) -> io::Result<()> {
    let moved = endpoint::by_hand(payload, PATHS, MESSAGE, messages)?;
    let [sent, answered] = moved.datagrams;
    println!("{sent} {answered}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tools_say_is_understood() {
        let line = "    12.34%  endpoint-bench     [.] metaroce_endpoint::core::send";
        let taken = sample(line);
        assert_eq!(
            taken,
            Some(("12.34", "endpoint-bench", "metaroce_endpoint::core::send"))
        );
        assert_eq!(sample(""), None);
        let line = "1,234 (56.7%)  /x/y.rs:metaroce_wire::crc::compute [/z/endpoint-bench]";
        let taken = annotated(line);
        let expected = (1234, "metaroce_wire::crc::compute".to_owned());
        assert_eq!(taken, Some(expected));
        assert_eq!(annotated("1,234 (100.0%)  PROGRAM TOTALS"), None);
    }

    #[test]
    fn a_transfer_by_hand_is_the_same_every_time() {
        let run = || endpoint::by_hand(1024, PATHS, MESSAGE, 2).unwrap();
        let moved = run();
        assert!(moved.datagrams[0] >= 2048);
        assert_eq!(moved, run());
    }
}
