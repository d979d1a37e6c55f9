//! Scenarios: what is sent over a link, and what the link does to it, as YAML.
//!
//! ```yaml
//! id: gap-in-a-write
//! title: a packet lost in the middle of a Write is repaired on its path
//! tags: [loss]
//! paths: 4
//! delay: 1ms
//! rules:
//!   - id: lose-one
//!     match: {from: a, class: data, path: 1, psn: 3, transmission: 1}
//!     action: drop
//! work:
//!   - write: {from: a, size: 64KiB}
//! ```

use std::path::Path;

use serde::Deserialize;

use crate::inject::Rule;
use crate::tester::Step;
use crate::trace::Side;
use crate::units::{DurationNs, Size};

/// The scenarios that belong to the suite: file name and text.
pub const BUILT_IN: &[(&str, &str)] = &include!("scenarios.list");

/// One scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name, unique in the suite: lower case, digits and hyphens.
    pub id: String,
    /// What it is about, one line.
    pub title: String,
    /// For the filter `tag(name)`.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Paths in each direction.
    #[serde(default = "default_paths")]
    pub paths: u16,
    /// Streams.
    #[serde(default = "default_streams")]
    pub streams: u16,
    /// Payload bytes per packet.
    #[serde(default = "default_payload")]
    pub payload: Size,
    /// Messages in flight per stream.
    #[serde(default = "default_window")]
    pub msg_window: u16,
    /// First PSN asked of both parties; left to them when missing.
    pub initial_psn: Option<u32>,
    /// Longest delay of an acknowledgment asked of both parties; what suits the link when missing.
    pub ack_delay: Option<DurationNs>,
    /// One-way delay of the link.
    #[serde(default = "default_delay")]
    pub delay: DurationNs,
    /// What the link does to packets.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// What the parties do, posted in this order, and at once but for what makes it wait.
    #[serde(default)]
    pub work: Vec<Work>,
    /// A scripted peer as initiator, in place of an honest one; the other side is judged.
    pub tester: Option<Vec<Step>>,
    /// How long the work may take.
    #[serde(default = "default_limit")]
    pub limit: DurationNs,
}

fn default_paths() -> u16 {
    4
}
fn default_streams() -> u16 {
    1
}
fn default_payload() -> Size {
    Size::from_bytes(1024)
}
fn default_window() -> u16 {
    64
}
fn default_delay() -> DurationNs {
    DurationNs::from_nanos(1_000_000)
}
fn default_limit() -> DurationNs {
    DurationNs::from_nanos(15_000_000_000)
}

/// A piece of work.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Work {
    /// One-sided.
    Write(Transfer),
    /// Two-sided; the receive is posted first.
    Send(Transfer),
    /// A receive alone, for what a tester sends.
    Recv(Transfer),
    /// Nothing more is posted for so long.
    Pause(DurationNs),
    /// Nothing more is posted before all work so far is complete, or for so long.
    Settle(DurationNs),
}

/// How much goes from where.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Who sends.
    pub from: Side,
    /// Position of the stream among those of the connection.
    #[serde(default)]
    pub stream: u16,
    /// Bytes of one message.
    pub size: Size,
    /// Messages.
    #[serde(default = "one")]
    pub count: u16,
    /// How long after a Send its receive is posted; before it when missing.
    pub late: Option<DurationNs>,
}

fn one() -> u16 {
    1
}

/// Why a scenario cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The text is no scenario; the message names file, line and column and shows the line.
    #[error("{0}")]
    Text(String),
    /// The scenario makes no sense.
    #[error("{file}: scenario {id}: {message}")]
    Meaning {
        /// File name.
        file: String,
        /// Scenario.
        id: String,
        /// What is wrong.
        message: String,
    },
    /// The file cannot be read.
    #[error("{file}: {message}")]
    File {
        /// File name.
        file: String,
        /// Why.
        message: String,
    },
}

impl Scenario {
    /// Reads one scenario and checks that it can be run and survived.
    ///
    /// # Errors
    /// [`ScenarioError`], with line and column where the text is to blame.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = crate::yaml::read(file, text).map_err(ScenarioError::Text)?;
        scenario.check().map_err(|message| ScenarioError::Meaning {
            file: file.into(),
            id: scenario.id.clone(),
            message,
        })?;
        Ok(scenario)
    }

    /// The wall-clock or simulated time after which the whole test is given up, ns.
    pub fn limit_ns(&self) -> u64 {
        self.limit.nanos()
    }

    fn check(&self) -> Result<(), String> {
        let id_ok = !self.id.is_empty()
            && self
                .id
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        ensure(id_ok, || {
            format!(
                "id {:?} is not of lower-case letters, digits and hyphens",
                self.id
            )
        })?;
        ensure((1..=256).contains(&self.paths), || {
            format!("{} paths: there are 1 to 256", self.paths)
        })?;
        ensure(self.streams >= 1, || "no streams".into())?;
        let payload = self.payload.bytes();
        let payload_ok = (256..=8192).contains(&payload) && payload.is_power_of_two();
        ensure(payload_ok, || {
            format!("payload of {payload} bytes: a power of two from 256 to 8192 is needed")
        })?;
        ensure((1..=32767).contains(&self.msg_window), || {
            format!("msg_window {}: 1 to 32767", self.msg_window)
        })?;
        let waits = |work: &Work| matches!(work, Work::Pause(_) | Work::Settle(_));
        ensure(
            !self.work.iter().all(waits) || self.tester.is_some(),
            || "neither work nor tester: nothing would be sent".into(),
        )?;
        let ack_delay_ok = self.ack_delay.is_none_or(|d| d.nanos() <= MOST_ACK_DELAY);
        ensure(ack_delay_ok, || "ack_delay above 50ms".into())?;
        for work in &self.work {
            let transfer = match work {
                Work::Write(transfer) | Work::Send(transfer) | Work::Recv(transfer) => transfer,
                Work::Pause(span) | Work::Settle(span) => {
                    ensure(self.tester.is_none(), || {
                        "a tester has its own times".into()
                    })?;
                    ensure(span.nanos() <= LONGEST_SPAN, || "waits above 5s".into())?;
                    continue;
                }
            };
            let honest_send = matches!(work, Work::Send(_)) && self.tester.is_none();
            let late_ok = transfer
                .late
                .is_none_or(|late| honest_send && late.nanos() <= LONGEST_SPAN);
            ensure(late_ok, || {
                "late is for a send between honest parties, and 5s at most".into()
            })?;
            ensure(transfer.stream < self.streams, || {
                format!("stream {} of {}", transfer.stream, self.streams)
            })?;
            ensure(transfer.size.bytes() <= MOST_BYTES, || {
                format!("size above {MOST_BYTES} bytes")
            })?;
            ensure(transfer.count >= 1, || "count 0".into())?;
            let recv = matches!(work, Work::Recv(_));
            let honest = match self.tester {
                None => !recv,
                Some(_) => (transfer.from == Side::A) == recv,
            };
            ensure(honest, || {
                "with a tester, recv is from a and other work from b; without one there is no recv"
                    .into()
            })?;
        }
        crate::inject::feasible(&self.rules).map_err(|e| e.to_string())
    }
}

/// Largest message of a scenario, bytes.
const MOST_BYTES: u64 = 16 << 20;
/// Longest delay of an acknowledgment that a party can announce, ns.
const MOST_ACK_DELAY: u64 = 50_000_000;
/// Longest wait between pieces of work, ns.
const LONGEST_SPAN: u64 = 5_000_000_000;

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

/// A scenario with the text it came from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The scenario.
    pub scenario: Scenario,
    /// Its YAML.
    pub text: String,
}

/// The suite's own scenarios, by id.
///
/// # Errors
/// [`ScenarioError`]; a test holds that there is none.
pub fn built_in() -> Result<Vec<Loaded>, ScenarioError> {
    let mut all = Vec::new();
    for (file, text) in BUILT_IN {
        all.push(Loaded {
            scenario: Scenario::parse(file, text)?,
            text: (*text).to_owned(),
        });
    }
    unique(all, "the suite")
}

/// The scenarios of a file, or of every `.yaml` file of a folder in order of name.
///
/// # Errors
/// [`ScenarioError`].
pub fn load(path: &Path) -> Result<Vec<Loaded>, ScenarioError> {
    let file_error = |path: &Path, e: std::io::Error| ScenarioError::File {
        file: path.display().to_string(),
        message: e.to_string(),
    };
    let mut files = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(|e| file_error(path, e))? {
            let file = entry.map_err(|e| file_error(path, e))?.path();
            if file
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                files.push(file);
            }
        }
        files.sort();
        if files.is_empty() {
            return Err(ScenarioError::File {
                file: path.display().to_string(),
                message: "the folder holds no scenario, that is no file named *.yaml".into(),
            });
        }
    } else {
        files.push(path.to_owned());
    }
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|e| file_error(&file, e))?;
        all.push(Loaded {
            scenario: Scenario::parse(&file.display().to_string(), &text)?,
            text,
        });
    }
    unique(all, &path.display().to_string())
}

fn unique(all: Vec<Loaded>, file: &str) -> Result<Vec<Loaded>, ScenarioError> {
    let mut ids = std::collections::BTreeSet::new();
    match all
        .iter()
        .find(|loaded| !ids.insert(loaded.scenario.id.clone()))
    {
        None => Ok(all),
        Some(twice) => Err(ScenarioError::Meaning {
            file: file.into(),
            id: twice.scenario.id.clone(),
            message: "stands there twice".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_s_own_scenarios_are_sound() {
        let all = built_in().unwrap();
        assert!(!all.is_empty());
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios")).unwrap();
        assert_eq!(
            files.count(),
            all.len(),
            "every file of the folder is in scenarios.list"
        );
        for (loaded, (file, _)) in all.iter().zip(BUILT_IN) {
            assert_eq!(format!("{}.yaml", loaded.scenario.id), *file);
        }
    }

    #[test]
    fn errors_name_file_line_and_column() {
        let sound = "id: x\ntitle: t\nwork:\n  - write: {from: a, size: 1KiB}\n";
        assert!(Scenario::parse("f.yaml", sound).is_ok());
        for (bad, place) in [
            (
                "id: x\ntitle: t\nwork:\n  - write: {from: a, size: 1024}\n",
                "line 4",
            ),
            (
                "id: x\ntitle: t\nsurprise: 1\nwork:\n  - write: {from: a, size: 1KiB}\n",
                "line 3",
            ),
            (
                "id: x\ntitle: t\ndelay: 5\nwork:\n  - write: {from: a, size: 1KiB}\n",
                "line 3",
            ),
            ("id: x\nid: y\ntitle: t\n", "line 2"),
            ("id: x\ntitle: [\n", "line"),
        ] {
            let error = Scenario::parse("f.yaml", bad).unwrap_err().to_string();
            assert!(
                error.starts_with("f.yaml: ") && error.contains(place),
                "{error}"
            );
        }
    }

    #[test]
    fn senseless_scenarios_are_refused() {
        for bad in [
            "id: X\ntitle: t\nwork: [{write: {from: a, size: 1KiB}}]\n",
            "id: x\ntitle: t\n",
            "id: x\ntitle: t\npaths: 0\nwork: [{write: {from: a, size: 1KiB}}]\n",
            "id: x\ntitle: t\npaths: 257\nwork: [{write: {from: a, size: 1KiB}}]\n",
            "id: x\ntitle: t\npayload: 1000B\nwork: [{write: {from: a, size: 1KiB}}]\n",
            "id: x\ntitle: t\nwork: [{write: {from: a, stream: 1, size: 1KiB}}]\n",
            "id: x\ntitle: t\nwork: [{write: {from: a, size: 1KiB, count: 0}}]\n",
            "id: x\ntitle: t\nwork: [{write: {from: a, size: 1KiB, late: 1ms}}]\n",
            "id: x\ntitle: t\nwork: [{pause: 6s}, {write: {from: a, size: 1KiB}}]\n",
            "id: x\ntitle: t\nwork: [{pause: 1ms}]\n",
            "id: x\ntitle: t\nack_delay: 51ms\nwork: [{write: {from: a, size: 1KiB}}]\n",
        ] {
            assert!(
                matches!(
                    Scenario::parse("f", bad),
                    Err(ScenarioError::Meaning { .. })
                ),
                "{bad}"
            );
        }
    }
}
