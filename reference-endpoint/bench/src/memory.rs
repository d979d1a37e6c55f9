//! Memory of a connection, and many connections at work.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::endpoint;
use crate::figures::{Case, Report, Table, number};
use crate::machine::About;
use crate::many::Many;
use crate::party::{Party, Task, Usage};
use crate::relay::Addresses;
use crate::transfer::Cores;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Idle connections: few, and more. The difference is what a connection takes.
    pub idle: [usize; 2],
    /// Streams of each idle connection.
    pub streams: u16,
    /// Connections at work.
    pub busy: usize,
    /// Writes of each.
    pub writes: usize,
    /// Bytes of each Write.
    pub length: usize,
    /// Longest time to open all connections of a case, and to complete all Writes, s.
    pub limit: u64,
    /// Cores.
    pub cores: Cores,
}

const PATHS: u16 = 8;
const PAYLOAD: u16 = 1024;
/// What a connection with 64 streams may take, bytes.
const GOAL: u32 = 16 << 10;

/// Steps of a side, with their times, s.
type Steps = Vec<(f64, Usage)>;

/// What a case gave: at the opener and at the acceptor, before and after; and the times of the opener's steps, s.
struct Taken {
    opener: Steps,
    acceptor: Steps,
}

fn take(many: &Many, number: u32, cores: Cores) -> io::Result<Taken> {
    // It ends by itself, in two parts; this is for what hangs.
    let limit = Duration::from_secs(2 * many.limit + 10);
    let addresses = Addresses::block(number);
    let core = |party: usize| cores.map(|cores| cores[party]);
    let at_b = SocketAddr::new(addresses.b, endpoint::SERVICE_PORT);
    let at_a = SocketAddr::new(addresses.a, endpoint::SERVICE_PORT);
    let mut acceptor = Party::start(&Task::Accept(*many, at_b), core(1), limit)?;
    let ready = acceptor.ready()?;
    let task = Task::Open(*many, at_a, at_b, ready);
    let mut opener = Party::start(&task, core(0), limit)?;
    let before = [opener.step()?, acceptor.step()?];
    let after = [opener.step()?, acceptor.step()?];
    let mut taken = Taken {
        opener: vec![before[0], after[0]],
        acceptor: vec![before[1], after[1]],
    };
    if many.writes > 0 {
        // When each connection had completed one, and when all were complete.
        taken.opener.push(opener.step()?);
        taken.opener.push(opener.step()?);
    }
    opener.done()?;
    acceptor.end();
    if many.writes > 0 {
        taken.acceptor.push(acceptor.step()?);
    }
    acceptor.last()?;
    Ok(taken)
}

/// Measures and tells.
pub fn run(setup: &Setup) -> Report {
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    let mut tables = Vec::new();
    match idle(setup) {
        Ok((table, case)) => {
            tables.push(table);
            cases.insert("idle".into(), case);
        }
        Err(error) => failed(&mut cases, "idle", &error),
    }
    match busy(setup) {
        Ok((table, case)) => {
            tables.push(table);
            cases.insert("busy".into(), case);
        }
        Err(error) => failed(&mut cases, "busy", &error),
    }
    let counted = if crate::heap().is_some() {
        "The heap is counted by its allocator."
    } else {
        "The heap is counted only in a build with `--features count-heap`."
    };
    Report {
        about: About::here(),
        notes: vec![
            format!("{PATHS} paths; opener and acceptor are processes. {counted}"),
            format!(
                "A connection takes the difference between {} and {} of them, at rest, over their number.",
                setup.idle[0], setup.idle[1]
            ),
        ],
        tables,
        cases,
    }
}

fn failed(cases: &mut BTreeMap<String, Case>, name: &str, error: &io::Error) {
    let case = cases.entry(name.to_owned()).or_default();
    case.failures.push(error.to_string());
}

fn idle(setup: &Setup) -> io::Result<(Table, Case)> {
    let mut taken = Vec::new();
    for (number, &connections) in setup.idle.iter().enumerate() {
        eprintln!("{connections} idle connections");
        let many = Many {
            connections,
            paths: PATHS,
            streams: setup.streams,
            payload: PAYLOAD,
            writes: 0,
            length: 0,
            limit: setup.limit,
        };
        taken.push(take(&many, number as u32, setup.cores)?);
    }
    let more = setup.idle[1].saturating_sub(setup.idle[0]).max(1) as f64;
    let each = |side: fn(&Taken) -> &Steps, of: fn(&Usage) -> Option<u64>| {
        let grown = |taken: &Taken| {
            let (before, after) = (side(taken).first()?, side(taken).last()?);
            Some(of(&after.1)? as f64 - of(&before.1)? as f64)
        };
        Some((grown(taken.get(1)?)? - grown(taken.first()?)?) / more)
    };
    let mut table = Table::new(
        format!("### An idle connection with {} streams", setup.streams),
        &["side", "heap, bytes", "resident, bytes", "goal, bytes"],
    );
    let mut case = Case::default();
    let mut row = |name: &str, figures: [&'static str; 2], side: fn(&Taken) -> &Steps| {
        let found = [
            each(side, |usage| usage.heap),
            each(side, |usage| Some(usage.resident)),
        ];
        for (figure, value) in figures.into_iter().zip(found) {
            value.into_iter().for_each(|value| case.push(figure, value));
        }
        let [heap, resident] = found.map(|value| number(value, 0));
        table.row([name.to_owned(), heap, resident, GOAL.to_string()]);
    };
    row("opener", ["opener heap", "opener resident"], |t| &t.opener);
    row("acceptor", ["acceptor heap", "acceptor resident"], |t| {
        &t.acceptor
    });
    Ok((table, case))
}

fn busy(setup: &Setup) -> io::Result<(Table, Case)> {
    eprintln!("{} connections at work", setup.busy);
    let many = Many {
        connections: setup.busy,
        paths: PATHS,
        streams: 1,
        payload: PAYLOAD,
        writes: setup.writes,
        length: setup.length,
        limit: setup.limit,
    };
    let taken = take(&many, 2, setup.cores)?;
    let mut case = Case::default();
    let mut table = Table::new(
        format!(
            "### {} connections, each with {} Writes of {} bytes",
            setup.busy, setup.writes, setup.length
        ),
        &["figure", "value"],
    );
    let names = [
        "all open, s",
        "each has completed one, s",
        "all complete, s",
    ];
    for (name, (seconds, _)) in names.into_iter().zip(taken.opener.iter().skip(1)) {
        case.push(name, *seconds);
        table.row([name.to_owned(), number(Some(*seconds), 2)]);
    }
    if let Some((_, usage)) = taken.opener.get(1) {
        case.push("refused", usage.refused as f64);
        table.row(["refused and tried again".into(), usage.refused.to_string()]);
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let ends = [
        (
            [
                "opener heap, MiB",
                "opener most resident, MiB",
                "opener processor, s",
            ],
            &taken.opener,
        ),
        (
            [
                "acceptor heap, MiB",
                "acceptor most resident, MiB",
                "acceptor processor, s",
            ],
            &taken.acceptor,
        ),
    ];
    for ([heap, resident, cpu], steps) in ends {
        let Some((_, usage)) = steps.last() else {
            continue;
        };
        if let Some(bytes) = usage.heap {
            case.push(heap, mib(bytes));
            table.row([heap.to_owned(), number(Some(mib(bytes)), 1)]);
        }
        case.push(resident, mib(usage.most_resident));
        case.push(cpu, usage.cpu);
        table.row([
            resident.to_owned(),
            number(Some(mib(usage.most_resident)), 1),
        ]);
        table.row([cpu.to_owned(), number(Some(usage.cpu), 2)]);
    }
    let own = mib((setup.busy * setup.length) as u64);
    table.row([
        "of which memory to be written, MiB".into(),
        number(Some(own), 1),
    ]);
    Ok((table, case))
}
