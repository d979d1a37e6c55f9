//! One test: parties, link, program, evidence.

use std::path::Path;
use std::time::Instant;

use metaroce_reports::{Conduct, Finding, Verdict};

use super::{LinkKind, Plan, RunError, Test, write};
use crate::evidence::{
    CAPTURE, DECLARATION, Declaration, EVENTS, Event, Party, Problem, SCHEMA, Timing,
};
use crate::inject::Injector;
use crate::iut::{
    AdapterProcess, Command, Hello, PROTOCOL, PartyError, Request, interrupted, read_value,
};
use crate::judge::{file_sha256, judge};
use crate::link::relay::{RelayAddresses, RelaySetup};
use crate::program::{Identity, Place, Program, Record};
use crate::scenario::Scenario;
use crate::testbed::{BedError, LinkEnd, RelayBed, Testbed};
use crate::trace::Side;

/// The service port of all tests.
const PORT: u16 = metaroce_wire::metaroce::DEFAULT_PORT;
/// First UDP source ports of A and B.
const SOURCE_PORTS: [u16; 2] = [50_000, 53_000];
/// Longest delay of an acknowledgment that is asked of the parties in simulated time, us.
#[cfg(feature = "reference")]
const ACK_DELAY_US: u16 = 200;
/// The same on real sockets: longer than what the machine adds, so that an acknowledgment that comes at once can be told
/// from one that the timer sends.
const RELAY_ACK_DELAY_US: u16 = 20_000;
/// How much later than it should something may be seen on a real link, ns: processes wait for their turn on a busy
/// machine. What was measured during the test comes on top.
const RELAY_ALLOWANCE: u64 = 100_000_000;

type Named = (String, String, Option<String>);

/// The finest bound that is judged on a real link, ns: the shortest retransmission timeout.
const FINEST_BOUND: u64 = 10_000_000;
/// How often a test is made, at most, until the harness was on time for it.
const MOST_ATTEMPTS: u32 = 5;
/// The same for a test that leaves something undecided: when it does so time and again, the machine is hardly to blame.
const MOST_UNDECIDED: u32 = 3;

/// Asks both implementations who they are, and compares the claims of the one under test with what it says.
pub(super) fn preflight(plan: &Plan) -> Result<(Named, Named), RunError> {
    let reference = || {
        (
            "metaroce-endpoint".to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
            match plan.link {
                LinkKind::Sim => None,
                LinkKind::Relay => Some(Command::Reference { mutant: None }.text()),
            },
        )
    };
    let ask = |line: &Option<String>, claims: bool| -> Result<Named, RunError> {
        let Some(line) = line else {
            return Ok(reference());
        };
        let fail = |what: String| RunError::Usage(format!("adapter {line:?}: {what}"));
        let broken = |error: PartyError| match error {
            PartyError::Interrupted => {
                RunError::Harness("interrupted before the first test".into())
            }
            error if error.is_ours() => RunError::Harness(error.to_string()),
            error => fail(error.to_string()),
        };
        let mut process = AdapterProcess::start(&Command::Shell(line.clone())).map_err(broken)?;
        let hello = process
            .call(&Request::Hello { protocol: PROTOCOL })
            .map_err(broken)?;
        let hello: Hello = read_value("hello", hello).map_err(broken)?;
        if hello.protocol != PROTOCOL {
            return Err(fail(format!(
                "speaks version {} of the adapter protocol, {PROTOCOL} is needed",
                hello.protocol
            )));
        }
        let said = process.call(&Request::Capabilities {}).map_err(broken)?;
        let said = read_value("capabilities", said).map_err(broken)?;
        let contradictions = if claims {
            plan.pics.contradictions(&said)
        } else {
            Vec::new()
        };
        process.finish();
        if contradictions.is_empty() {
            Ok((hello.name, hello.version, Some(line.clone())))
        } else {
            Err(fail(format!(
                "contradicts its PICS\n  {}",
                contradictions.join("\n  ")
            )))
        }
    };
    let mut iut = ask(&plan.adapter, true)?;
    if let Some(mutant) = &plan.mutant {
        iut.0 = format!("{} mutant {mutant}", iut.0);
    }
    Ok((iut, ask(&plan.peer, false)?))
}

/// Runs a test and leaves its evidence in `folder`.
///
/// A test during which the machine kept the harness from its turn for longer than the finest bound that is judged
/// measures the machine: it is made again, whatever it would have shown, and the declaration says how often. So is one on
/// real sockets that violates nothing and leaves something undecided although it was met.
pub(super) fn run_test(plan: &Plan, test: &Test, folder: &Path) -> Result<(), RunError> {
    for attempt in 1..=MOST_ATTEMPTS {
        if attempt == 1 && folder.exists() {
            // What earlier runs have left is gone by now.
            let message = "holds something else than a test; name another folder with --out";
            return Err(RunError::Usage(format!("{}: {message}", folder.display())));
        }
        if folder.exists() {
            let emptied = std::fs::remove_dir_all(folder);
            emptied.map_err(|e| RunError::Harness(format!("test {}: {e}", test.id)))?;
        }
        let on_time = attempt_test(plan, test, folder, attempt)? <= FINEST_BOUND;
        let settled = on_time && (attempt >= MOST_UNDECIDED || !is_undecided(folder));
        if interrupted() || plan.link == LinkKind::Sim || settled {
            break;
        }
    }
    Ok(())
}

/// Whether a sound test has violated nothing and left a clause undecided that it met.
fn is_undecided(folder: &Path) -> bool {
    // Evidence that cannot be judged will be an error, and remain one.
    judge(folder).is_ok_and(|result| {
        let any = |verdict| {
            let met = |finding: &Finding| finding.verdict == verdict && finding.exercised > 0;
            result.findings.iter().any(met)
        };
        result.conduct == Conduct::Sound && any(Verdict::Inconclusive) && !any(Verdict::Fail)
    })
}

/// Makes a test once; returns the largest lateness of the harness during it, ns, as far as it matters.
fn attempt_test(plan: &Plan, test: &Test, folder: &Path, attempt: u32) -> Result<u64, RunError> {
    let harness = |e: &dyn std::fmt::Display| RunError::Harness(format!("test {}: {e}", test.id));
    std::fs::create_dir_all(folder).map_err(|e| harness(&e))?;
    let scenario = &test.loaded.scenario;
    let capture = folder.join(CAPTURE);
    let injector = Injector::new(scenario.rules.clone(), plan.seed);
    let (places, outcome) = match plan.link {
        LinkKind::Sim => simulate(plan, test, injector, &capture)?,
        LinkKind::Relay => relay(plan, test, injector, &capture)?,
    };
    let (mut record, end) = outcome;
    let end = end.unwrap_or_else(|error| {
        record.problem.get_or_insert(Problem {
            side: error.side(),
            message: error.to_string(),
        });
        LinkEnd {
            rules: Vec::new(),
            held: [0; 2],
            jitter_ns: 0,
            ends: [None, None],
        }
    });
    if interrupted() {
        // A test cut short is no evidence of anything.
        std::fs::remove_dir_all(folder).map_err(|e| harness(&e))?;
        return Err(RunError::Harness(format!(
            "interrupted in test {}: the run in {} is unfinished and gives no verdict",
            test.id,
            folder.parent().unwrap_or(folder).display()
        )));
    }
    record.events.sort_by_key(|event| event.t_ns);
    write(
        &folder.join(EVENTS),
        lines(&record.events).map_err(|e| harness(&e))?.as_bytes(),
    )?;
    if !capture.exists() {
        write(&capture, b"")?;
    }
    let allowance = match plan.link {
        LinkKind::Sim => 0,
        LinkKind::Relay => RELAY_ALLOWANCE + 2 * end.jitter_ns,
    };
    let party = |side: Side| declare(plan, test, side, &record, &places[side.index()]);
    let declaration = Declaration {
        schema: SCHEMA.into(),
        test: test.id.clone(),
        title: scenario.title.clone(),
        scenario: test.loaded.text.clone(),
        link: plan.link.name().into(),
        seed: plan.seed,
        judged: test.judged.clone(),
        a: party(Side::A),
        b: party(Side::B),
        timing: Timing {
            delay_ns: scenario.delay.nanos(),
            allowance_ns: allowance,
            jitter_ns: end.jitter_ns,
        },
        rules: end.rules,
        held: end.held,
        capture_sha256: file_sha256(&capture).map_err(|e| harness(&e))?,
        events_sha256: file_sha256(&folder.join(EVENTS)).map_err(|e| harness(&e))?,
        problem: record.problem.clone(),
        ends: end.ends.clone(),
        attempt,
    };
    let text = serde_json::to_string_pretty(&declaration).map_err(|e| harness(&e))?;
    write(&folder.join(DECLARATION), text.as_bytes())?;
    // An adapter that failed failed whatever the time.
    let failed = record.problem.is_some_and(|problem| problem.side.is_some());
    Ok(if failed { 0 } else { end.jitter_ns })
}

type Outcome = ([Place; 2], (Record, Result<LinkEnd, BedError>));

fn place(
    side: Side,
    local: std::net::SocketAddr,
    peer: std::net::SocketAddr,
    ack_delay_us: u16,
) -> Place {
    Place {
        local,
        peer,
        source_port_base: SOURCE_PORTS[side.index()],
        ack_delay_us,
    }
}

/// The longest delay of an acknowledgment that is asked of the parties, us.
fn ack_delay_us(scenario: &Scenario, of_link: u16) -> u16 {
    let asked = scenario.ack_delay.map(|delay| delay.nanos() / 1_000);
    asked.map_or(of_link, |us| u16::try_from(us).unwrap_or(u16::MAX))
}

fn play(scenario: &Scenario, seed: u64, places: [Place; 2], mut bed: Box<dyn Testbed>) -> Outcome {
    let record = Program::new(scenario, seed, places, bed.as_mut()).run();
    let end = bed.finish();
    (places, (record, end))
}

#[cfg(feature = "reference")]
fn simulate(
    plan: &Plan,
    test: &Test,
    injector: Injector,
    capture: &Path,
) -> Result<Outcome, RunError> {
    use crate::testbed::{SimBed, SimParty};
    let scenario = &test.loaded.scenario;
    let [a, b] = [[192, 0, 2, 1], [192, 0, 2, 2]]
        .map(|ip| std::net::SocketAddr::new(std::net::IpAddr::from(ip), PORT));
    let ack_delay = ack_delay_us(scenario, ACK_DELAY_US);
    let places = [
        place(Side::A, a, b, ack_delay),
        place(Side::B, b, a, ack_delay),
    ];
    let party = |side| {
        if scenario.tester.is_some() && side == Side::A {
            return Ok(SimParty::Nobody);
        }
        match plan.command(test, side) {
            Command::Reference { mutant: None } => Ok(SimParty::reference(None)),
            Command::Reference { mutant: Some(id) } => match metaroce_endpoint::mutants::by_id(&id)
            {
                Some(mutant) => Ok(SimParty::reference(Some(mutant))),
                None => Err(RunError::Usage(format!("there is no mutant {id:?}"))),
            },
            Command::Shell(_) => Err(RunError::Usage(
                "an adapter is a process: it needs --link relay".into(),
            )),
        }
    };
    let parties = [party(Side::A)?, party(Side::B)?];
    let bed = SimBed::new(scenario.delay.nanos(), injector, parties, capture);
    let bed = bed.map_err(|e| RunError::Harness(format!("test {}: {e}", test.id)))?;
    Ok(play(scenario, plan.seed, places, Box::new(bed)))
}

#[cfg(not(feature = "reference"))]
fn simulate(_: &Plan, _: &Test, _: Injector, _: &Path) -> Result<Outcome, RunError> {
    Err(RunError::Usage(
        "this build has no reference endpoint to simulate: use --link relay with adapters".into(),
    ))
}

fn relay(
    plan: &Plan,
    test: &Test,
    injector: Injector,
    capture: &Path,
) -> Result<Outcome, RunError> {
    let scenario = &test.loaded.scenario;
    let harness = |e: &dyn std::fmt::Display| RunError::Harness(format!("test {}: {e}", test.id));
    let hint = u64::from(std::process::id()) << 16 ^ plan.seed;
    let addresses = RelayAddresses::find(PORT, hint).map_err(|e| harness(&e))?;
    let ack_delay = ack_delay_us(scenario, RELAY_ACK_DELAY_US);
    let places = [
        place(Side::A, addresses.a, addresses.near, ack_delay),
        place(Side::B, addresses.b, addresses.far, ack_delay),
    ];
    let mut processes = [None, None];
    for side in Side::BOTH {
        if scenario.tester.is_some() && side == Side::A {
            continue;
        }
        match AdapterProcess::start(&plan.command(test, side)) {
            Ok(process) => processes[side.index()] = Some(process),
            // What is started is the supervisor: the adapter has no part in it.
            Err(error) => return Err(harness(&error)),
        }
    }
    let setup = RelaySetup {
        addresses,
        delay_ns: scenario.delay.nanos(),
        injector,
        capture: capture.into(),
        start: Instant::now(),
    };
    let bed = RelayBed::new(setup, processes).map_err(|e| harness(&e))?;
    Ok(play(scenario, plan.seed, places, Box::new(bed)))
}

fn declare(plan: &Plan, test: &Test, side: Side, record: &Record, place: &Place) -> Party {
    let scripted = test.loaded.scenario.tester.is_some() && side == Side::A;
    let kind = match (scripted, plan.command(test, side)) {
        (true, _) => "tester",
        (_, Command::Shell(_)) => "adapter",
        (_, Command::Reference { .. }) => "reference",
    };
    let identity: Option<&Identity> = record.identities[side.index()].as_ref();
    Party {
        kind: kind.into(),
        name: identity.map_or_else(|| kind.to_owned(), |identity| identity.hello.name.clone()),
        version: identity.map_or_else(
            || env!("CARGO_PKG_VERSION").to_owned(),
            |identity| identity.hello.version.clone(),
        ),
        address: place.local,
        peer: place.peer,
        ack_delay_us: place.ack_delay_us,
    }
}

fn lines(events: &[Event]) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    for event in events {
        text.push_str(&serde_json::to_string(event)?);
        text.push('\n');
    }
    Ok(text)
}
