//! From the evidence of a test to its result. The run and the later analysis both come through here, and nothing is
//! read but the evidence.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use metaroce_reports::{AdapterExit, Conduct, Finding, TestResult, Verdict};
use sha2::{Digest, Sha256};

use crate::evidence::{CAPTURE, DECLARATION, Declaration, EVENTS, Event, SCHEMA, What};
use crate::model::{Context, Facts};
use crate::monitors::{Panel, merge};
use crate::trace::pcapng::{TraceError, TraceReader};
use crate::trace::{Observation, Side};

/// Why evidence cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", file.display())]
pub struct JudgeError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub message: String,
}

fn error(file: &Path, message: impl ToString) -> JudgeError {
    JudgeError {
        file: file.into(),
        message: message.to_string(),
    }
}

/// SHA-256 of a file, hex.
///
/// # Errors
/// [`JudgeError`] when it cannot be read.
pub fn file_sha256(path: &Path) -> Result<String, JudgeError> {
    check_regular(path)?;
    let mut file = BufReader::new(File::open(path).map_err(|e| error(path, e))?);
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(|e| error(path, e))? {
            0 => return Ok(crate::payload::hex(&digest.finalize())),
            n => digest.update(&buffer[..n]),
        }
    }
}

/// Judges the evidence in `folder`.
///
/// # Errors
/// [`JudgeError`] when a file is missing, damaged, cut, or belongs to another test.
pub fn judge(folder: &Path) -> Result<TestResult, JudgeError> {
    let mut result = judged(folder)?;
    result.declaration_sha256 = Some(file_sha256(&folder.join(DECLARATION))?);
    Ok(result)
}

fn judged(folder: &Path) -> Result<TestResult, JudgeError> {
    let declaration = read_declaration(folder)?;
    if let Some(problem) = declaration.problem.as_ref().filter(|p| p.side.is_none()) {
        // What the harness failed to write cannot be read either, and is not needed: there is nothing to judge.
        let mut result = unjudged(&declaration);
        result.conduct = Conduct::Error;
        result.reason = Some(format!("the harness: {}", problem.message));
        return Ok(result);
    }
    for (name, told) in [
        (CAPTURE, &declaration.capture_sha256),
        (EVENTS, &declaration.events_sha256),
    ] {
        let file = folder.join(name);
        if file_sha256(&file)? != *told {
            return Err(error(
                &file,
                "is not the file that the declaration names: its SHA-256 differs",
            ));
        }
    }
    let events = read_events(&folder.join(EVENTS))?;
    let mut trial = Trial::new(&declaration, &events);
    trial.read(&folder.join(CAPTURE), &events)?;
    Ok(trial.result(&events))
}

fn read_declaration(folder: &Path) -> Result<Declaration, JudgeError> {
    let file = folder.join(DECLARATION);
    let text = text_of(&file)?;
    let declaration: Declaration = serde_json::from_str(&text).map_err(|e| error(&file, e))?;
    if declaration.schema != SCHEMA {
        return Err(error(
            &file,
            format!("schema {:?} instead of {SCHEMA:?}", declaration.schema),
        ));
    }
    Ok(declaration)
}

/// The text of a file of the evidence. Only a regular file is one: a pipe would be waited for.
///
/// # Errors
/// [`JudgeError`] when it cannot be read.
pub(crate) fn text_of(file: &Path) -> Result<String, JudgeError> {
    check_regular(file)?;
    std::fs::read_to_string(file).map_err(|e| error(file, e))
}

fn check_regular(file: &Path) -> Result<(), JudgeError> {
    let metadata = std::fs::metadata(file).map_err(|e| error(file, e))?;
    if metadata.is_file() {
        Ok(())
    } else {
        Err(error(file, "is no regular file"))
    }
}

fn read_events(file: &Path) -> Result<Vec<Event>, JudgeError> {
    let text = text_of(file)?;
    let lines = text.lines().enumerate();
    lines
        .map(|(n, line)| {
            serde_json::from_str(line).map_err(|e| error(file, format!("line {}: {e}", n + 1)))
        })
        .collect()
}

/// Packets counted at the taps, in one direction.
#[derive(Debug, Default, Clone, Copy)]
struct Balance {
    entered: u64,
    left: u64,
    dropped: u64,
    duplicated: u64,
}

struct Trial<'t> {
    declaration: &'t Declaration,
    panels: Vec<(Side, Panel)>,
    allowance: u64,
    balance: [Balance; 2],
    sent: [u64; 2],
    noted: std::collections::BTreeMap<String, u64>,
    end: u64,
}

impl<'t> Trial<'t> {
    fn new(declaration: &'t Declaration, events: &[Event]) -> Self {
        let facts = Facts::new(events);
        let timing = declaration.timing;
        // What was measured is allowed for, whatever was declared.
        let allowance = timing.allowance_ns.max(timing.jitter_ns);
        let panel = |side: &Side| {
            let context = Context {
                side: *side,
                local: declaration.party(*side).address,
                peer: declaration.party(*side).peer,
                allowance_ns: allowance,
                jitter_ns: timing.jitter_ns,
                facts: facts.clone(),
            };
            (*side, Panel::new(context))
        };
        Self {
            declaration,
            panels: declaration.judged.iter().map(panel).collect(),
            allowance,
            balance: [Balance::default(); 2],
            sent: [0; 2],
            noted: std::collections::BTreeMap::new(),
            end: 0,
        }
    }

    /// Shows packets and events in order of time. An event comes after every packet that can have brought it about: of the
    /// same instant, and as much later as the link allows.
    fn read(&mut self, capture: &Path, events: &[Event]) -> Result<(), JudgeError> {
        let allowance = self.allowance;
        let mut events = events.iter().peekable();
        let damaged = |e: TraceError| error(capture, format!("{}: {}", e.place, e.message));
        for item in TraceReader::open(capture).map_err(damaged)? {
            let (frame, observation) = item.map_err(damaged)?;
            let due = |event: &&Event| event.t_ns.saturating_add(allowance) < observation.time_ns;
            while let Some(event) = events.next_if(due) {
                self.event(event);
            }
            self.observation(frame, &observation)
                .map_err(|e| error(capture, e))?;
        }
        events.for_each(|event| self.event(event));
        Ok(())
    }

    fn event(&mut self, event: &Event) {
        self.end = self.end.max(event.t_ns);
        for (_, panel) in &mut self.panels {
            panel.event(event);
        }
    }

    fn observation(&mut self, frame: u64, observation: &Observation) -> Result<(), String> {
        self.end = self.end.max(observation.time_ns);
        let from = observation.from;
        let balance = &mut self.balance[from.index()];
        if observation.tap == from {
            self.sent[from.index()] += 1;
            balance.entered += 1;
            for note in &observation.notes {
                *self.noted.entry(note.rule.clone()).or_default() += 1;
                match note.action.as_str() {
                    "drop" => balance.dropped += 1,
                    "duplicate" => balance.duplicated += 1,
                    _ => {}
                }
            }
            // A packet that was dropped after a rule had doubled it is gone once, not twice.
            let both = |action: &str| observation.notes.iter().any(|note| note.action == action);
            if both("drop") && both("duplicate") {
                balance.duplicated -= 1;
            }
        } else {
            balance.left += 1;
        }
        for (side, panel) in &mut self.panels {
            if observation.tap == *side {
                let seen = panel.observe(frame, observation);
                seen.map_err(|e| format!("frame {frame}: {e}"))?;
            }
        }
        Ok(())
    }

    /// Why the test proves nothing, if so: taps that do not balance, or a stimulus that was not there.
    fn void(&self, events: &[Event]) -> Option<String> {
        for side in Side::BOTH {
            let b = self.balance[side.index()];
            let held = self.declaration.held[side.index()];
            if b.entered + b.duplicated != b.left + b.dropped + held {
                return Some(format!(
                    "the taps do not balance for packets from {side}: {} entered, {} duplicated, {} left, {} dropped, {held} held",
                    b.entered, b.duplicated, b.left, b.dropped
                ));
            }
        }
        for rule in &self.declaration.rules {
            let noted = self.noted.get(&rule.rule).copied().unwrap_or(0);
            if noted != rule.fired {
                return Some(format!(
                    "rule {} acted {} times, the capture shows {noted}",
                    rule.rule, rule.fired
                ));
            }
            if rule.fired < rule.at_least {
                return Some(format!(
                    "the stimulus is missing: rule {} acted {} times, {} are needed",
                    rule.rule, rule.fired, rule.at_least
                ));
            }
        }
        let silent = self
            .declaration
            .judged
            .iter()
            .find(|side| self.sent[side.index()] == 0);
        silent.map(|side| {
            let claims = events
                .iter()
                .any(|event| event.side == *side && matches!(event.what, What::Established { .. }));
            let but = if claims {
                ", although it reports a connection"
            } else {
                ""
            };
            format!("party {side} has sent nothing{but}")
        })
    }

    fn result(self, events: &[Event]) -> TestResult {
        let declaration = self.declaration;
        let void = self.void(events);
        let end = self.end;
        let finish = |(side, mut panel): (Side, Panel)| {
            panel.advance(end);
            (side.to_string(), panel.finish())
        };
        let findings = merge(self.panels.into_iter().map(finish).collect());
        let mut result = unjudged(declaration);
        result.findings = findings;
        if let Some(problem) = &declaration.problem {
            let who = problem.side.map_or("the harness".to_owned(), |side| {
                format!("party {side} ({})", declaration.party(side).name)
            });
            result.reason = Some(format!("{who}: {}", problem.message));
            match problem.side {
                // Told apart before the capture is read.
                None => result.conduct = Conduct::Error,
                // Nobody is at fault: nothing passes, what was broken stays broken.
                Some(side) if excused(side, events) => keep_failures(&mut result),
                Some(side) if declaration.judged.contains(&side) => {
                    result.conduct = Conduct::Failed;
                }
                // What the peer did is not charged to the judged party, nor is what that one did in such company.
                Some(_) => result.conduct = Conduct::Inconclusive,
            }
            return result;
        }
        if let Some(reason) = void {
            result.conduct = Conduct::Inconclusive;
            result.reason = Some(reason);
            return result;
        }
        if let Some(reason) = insane(declaration, events) {
            result.reason = Some(reason);
            keep_failures(&mut result);
        }
        result
    }
}

/// The result of a test before its evidence is looked at.
fn unjudged(declaration: &Declaration) -> TestResult {
    TestResult {
        id: declaration.test.clone(),
        title: declaration.title.clone(),
        scenario: declaration.test.clone(),
        evidence: Some(format!("{}/{CAPTURE}", declaration.test)),
        // Known to whoever has read it from its file.
        declaration_sha256: None,
        conduct: Conduct::Sound,
        verdict: Verdict::Error,
        reason: None,
        adapters: adapter_exits(declaration),
        findings: Vec::new(),
    }
}

/// How the adapters ended, where they did not end well.
fn adapter_exits(declaration: &Declaration) -> Vec<AdapterExit> {
    let exit = |side: Side| {
        let reason = declaration.ends[side.index()].clone()?;
        let role = if declaration.judged.contains(&side) {
            metaroce_reports::Side::Iut
        } else {
            metaroce_reports::Side::Peer
        };
        Some(AdapterExit { side: role, reason })
    };
    Side::BOTH.into_iter().filter_map(exit).collect()
}

/// Whether the party on `side` may have refused what it was asked for: its connection was over, or its adapter met a limit
/// that no claim speaks of, or a machine without sockets to give.
fn excused(side: Side, events: &[Event]) -> bool {
    let own = || events.iter().filter(|event| event.side == side);
    let refused = own().find_map(|event| match &event.what {
        What::Refused { code, .. } => Some(code.as_str()),
        _ => None,
    });
    let Some(code) = refused else { return false };
    let over = |event: &Event| matches!(event.what, What::Closed { .. } | What::Failed { .. });
    ["io", "limit"].contains(&code) || own().any(over)
}

/// What the exchanges around the stimulus say against the test.
fn insane(declaration: &Declaration, events: &[Event]) -> Option<String> {
    // What was acknowledged and reported, but is not in memory, was not received: nothing else shows the party at work.
    let wrong = events.iter().find(|event| {
        let judged = declaration.judged.contains(&event.side);
        judged && matches!(&event.what, What::Memory { expected, seen, .. } if expected != seen)
    });
    if let Some(event) = wrong {
        return Some(format!(
            "the memory of party {} does not hold what was sent to it",
            event.side
        ));
    }
    for when in ["before", "after"] {
        for side in &declaration.judged {
            let said = events
                .iter()
                .filter(|event| event.side == *side)
                .filter_map(|event| match &event.what {
                    What::Sanity {
                        when: at,
                        ok,
                        detail,
                    } if at == when => Some((*ok, detail)),
                    _ => None,
                });
            let said: Vec<_> = said.collect();
            if said.is_empty() {
                return Some(format!(
                    "no sanity exchange {when} the stimulus with party {side}"
                ));
            }
            if let Some((_, detail)) = said.iter().find(|(ok, _)| !ok) {
                return Some(format!(
                    "the sanity exchange {when} the stimulus failed: {detail}"
                ));
            }
        }
    }
    None
}

/// A test around which the party was not well lets nothing pass. What it was seen to break, it broke.
fn keep_failures(result: &mut TestResult) {
    let reason = result.reason.clone().unwrap_or_default();
    let mut any = false;
    for finding in &mut result.findings {
        if finding.verdict == Verdict::Fail {
            any = true;
        } else {
            *finding =
                Finding::inconclusive(finding.clause.clone(), finding.exercised, reason.clone());
        }
    }
    // With a violation the test itself is sound enough to fail; without one it is inconclusive as a whole.
    result.conduct = if any {
        Conduct::Sound
    } else {
        Conduct::Inconclusive
    };
}
