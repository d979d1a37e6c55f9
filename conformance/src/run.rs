//! A run: the tests that are selected, one after the other, each into a folder of its own, and the result computed
//! from what then lies on the disk.

mod analyze;
mod test;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::filter::{Filter, Known, Subject};
use crate::iut::Command;
use crate::pics::{Pics, Role};
use crate::scenario::Loaded;
use crate::trace::Side;

pub use analyze::{analyze, versions};

/// File at the top of a run's folder that says what was to be run.
pub const RUN: &str = "run.json";
/// File with the result.
pub const RESULT: &str = "result.json";
/// File with the result for pull requests.
pub const REPORT: &str = "report.md";
/// File with the result for continuous integration.
pub const JUNIT: &str = "junit.xml";
/// Version of the form of [`RunFile`].
pub const SCHEMA: &str = "metaroce-run/1";

/// The two links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// Simulated time, in process.
    Sim,
    /// Real sockets, processes.
    Relay,
}

impl LinkKind {
    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Relay => "relay",
        }
    }
}

/// What a run is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Link.
    pub link: LinkKind,
    /// The implementation under test; the reference when missing.
    pub adapter: Option<String>,
    /// Its peer; the reference when missing.
    pub peer: Option<String>,
    /// A mutant of the reference as implementation under test.
    pub mutant: Option<String>,
    /// Claims.
    pub pics: Pics,
    /// Seed.
    pub seed: u64,
    /// Filter, as text.
    pub filter: Option<String>,
    /// Scenarios to choose from.
    pub scenarios: Vec<Loaded>,
}

impl Plan {
    /// The reference with its claims in simulated time, with every built-in scenario and seed 1.
    ///
    /// # Errors
    /// [`RunError::Harness`] when what is built in cannot be read.
    pub fn reference() -> Result<Self, RunError> {
        let harness = |e: &dyn std::fmt::Display| RunError::Harness(e.to_string());
        Ok(Self {
            link: LinkKind::Sim,
            adapter: None,
            peer: None,
            mutant: None,
            pics: Pics::parse("pics/reference.yaml", crate::pics::REFERENCE)
                .map_err(|e| harness(&e))?,
            seed: 1,
            filter: None,
            scenarios: crate::scenario::built_in().map_err(|e| harness(&e))?,
        })
    }
}

/// A test: a scenario with the implementation under test on one side, or on both.
#[derive(Debug, Clone)]
pub struct Test {
    /// Name: that of the scenario, with the role where there is a choice.
    pub id: String,
    /// Scenario.
    pub loaded: Loaded,
    /// The sides that are judged.
    pub judged: Vec<Side>,
    /// Why it is not for this implementation.
    pub excluded: Option<String>,
}

/// Why a run cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// What was asked for is not right: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The harness or the machine failed: exit code 4.
    #[error("{0}")]
    Harness(String),
}

/// What a run was to do, written before it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFile {
    /// [`SCHEMA`].
    pub schema: String,
    /// Seed.
    pub seed: u64,
    /// Link.
    pub link: String,
    /// Implementation under test: name, version, command.
    pub iut: (String, String, Option<String>),
    /// Its peer.
    pub peer: (String, String, Option<String>),
    /// Name in the PICS.
    pub pics: String,
    /// Roles that the PICS claims.
    pub roles: Vec<Role>,
    /// Features that the PICS claims.
    #[serde(default)]
    pub features: Vec<String>,
    /// Filter.
    pub filter: Option<String>,
    /// Tests in order: id, tags, and why it is left out, if so.
    pub tests: Vec<(String, Vec<String>, Option<String>)>,
}

impl Plan {
    /// The tests of the run, those that the PICS excludes included.
    ///
    /// # Errors
    /// [`RunError::Usage`] for a bad filter, or when nothing is selected.
    pub fn tests(&self) -> Result<Vec<Test>, RunError> {
        let filter = self
            .filter
            .as_deref()
            .map(Filter::parse)
            .transpose()
            .map_err(RunError::Usage)?;
        let clauses: Vec<&str> = crate::monitors::catalogue()
            .iter()
            .map(|entry| entry.clause)
            .collect();
        let mut tests = Vec::new();
        let mut known = Vec::new();
        for loaded in &self.scenarios {
            let scenario = &loaded.scenario;
            let scripted = scenario.tester.is_some();
            let both = self.adapter.is_none() && self.mutant.is_none() && !scripted;
            let sides: &[&[Side]] = match (both, scripted) {
                (true, _) => &[&Side::BOTH],
                (_, true) => &[&[Side::B]],
                _ => &[&[Side::A], &[Side::B]],
            };
            for judged in sides {
                let id = match judged {
                    [side] if !scripted => {
                        format!("{}.{}", scenario.id, crate::pics::Role::of(*side).name())
                    }
                    _ => scenario.id.clone(),
                };
                known.push(id.clone());
                let subject = |clause| Subject {
                    id: &id,
                    tags: &scenario.tags,
                    clause,
                };
                let selected = filter
                    .as_ref()
                    .is_none_or(|f| clauses.iter().any(|clause| f.selects(&subject(clause))));
                if selected {
                    let excluded = judged
                        .iter()
                        .find_map(|side| self.pics.excludes(scenario, *side));
                    tests.push(Test {
                        id,
                        loaded: loaded.clone(),
                        judged: judged.to_vec(),
                        excluded,
                    });
                }
            }
        }
        if let (Some(filter), Some(text)) = (&filter, &self.filter) {
            self.check_names(filter, text, &known)?;
        }
        if tests.is_empty() {
            let with = self.filter.as_ref().map_or_else(String::new, |text| {
                format!("filter, line 1, column 1: {text}: ")
            });
            return Err(RunError::Usage(format!(
                "{with}no test with a clause that a monitor judges is selected: `metaroce run --list` shows the tests, \
                 `metaroce clauses` what judges each clause"
            )));
        }
        Ok(tests)
    }

    /// Refuses names in the filter that nothing bears.
    fn check_names(&self, filter: &Filter, text: &str, tests: &[String]) -> Result<(), RunError> {
        let clauses = metaroce_spec::clauses().map_err(|e| RunError::Harness(e.to_string()))?;
        let clauses: Vec<String> = clauses.into_iter().map(|clause| clause.id).collect();
        let tags = self
            .scenarios
            .iter()
            .flat_map(|loaded| &loaded.scenario.tags);
        let tags: Vec<String> = tags.cloned().collect();
        let known = Known {
            tests,
            tags: &tags,
            clauses: &clauses,
        };
        filter.check(text, &known).map_err(RunError::Usage)
    }

    /// The command of the party on `side` of a test.
    fn command(&self, test: &Test, side: Side) -> Command {
        let is_iut = test.judged.contains(&side);
        let line = if is_iut { &self.adapter } else { &self.peer };
        match line {
            Some(line) => Command::Shell(line.clone()),
            None => Command::Reference {
                mutant: self.mutant.clone().filter(|_| is_iut),
            },
        }
    }
}

/// Makes the run and returns its result.
///
/// `folder` is made anew: one that holds another run is emptied of it, one that holds anything else is refused.
/// `progress` is told before each test.
///
/// # Errors
/// [`RunError`].
pub fn run(
    plan: &Plan,
    folder: &Path,
    progress: &mut dyn FnMut(usize, usize, &str),
) -> Result<metaroce_reports::RunResult, RunError> {
    let tests = plan.tests()?;
    if plan.link == LinkKind::Sim && plan.adapter.is_some() {
        return Err(RunError::Usage(
            "an adapter is a process: it needs --link relay".into(),
        ));
    }
    let identities = test::preflight(plan)?;
    let _lock = prepare(folder)?;
    let run_file = RunFile {
        schema: SCHEMA.into(),
        seed: plan.seed,
        link: plan.link.name().into(),
        iut: identities.0,
        peer: identities.1,
        pics: plan.pics.name.clone(),
        roles: plan.pics.roles.clone(),
        features: plan.pics.features.clone(),
        filter: plan.filter.clone(),
        tests: tests
            .iter()
            .map(|test| {
                (
                    test.id.clone(),
                    test.loaded.scenario.tags.clone(),
                    test.excluded.clone(),
                )
            })
            .collect(),
    };
    let text =
        serde_json::to_string_pretty(&run_file).map_err(|e| RunError::Harness(e.to_string()))?;
    write(&folder.join(RUN), text.as_bytes())?;
    for (n, test) in tests.iter().enumerate() {
        progress(n, tests.len(), &test.id);
        if test.excluded.is_none() {
            test::run_test(plan, test, &folder.join(&test.id))?;
        }
    }
    let result = analyze(folder)?;
    let text =
        metaroce_reports::json::render(&result).map_err(|e| RunError::Harness(e.to_string()))?;
    write(&folder.join(RESULT), text.as_bytes())?;
    Ok(result)
}

/// Writes a file whole or not at all.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let partial = path.with_extension("partial");
    let written = std::fs::write(&partial, bytes).and_then(|()| std::fs::rename(&partial, path));
    written.map_err(|e| RunError::Harness(format!("{}: {e}", path.display())))
}

/// Files that a run leaves at the top of its folder, [`RUN`] aside.
const WRITTEN: [&str; 3] = [RESULT, REPORT, JUNIT];

/// Whether the file is the one of that name, or what a write cut short has left of it.
fn is_ours(path: &Path, name: &str) -> bool {
    path.ends_with(name) || path.ends_with(Path::new(name).with_extension("partial"))
}

/// Makes the folder ready, and keeps other runs out of it for as long as the file that is returned is open.
fn prepare(folder: &Path) -> Result<std::fs::File, RunError> {
    let input = |what: String| RunError::Usage(format!("{}: {what}", folder.display()));
    let io = |e: std::io::Error| RunError::Harness(format!("{}: {e}", folder.display()));
    std::fs::create_dir_all(folder)
        .map_err(|e| input(format!("{e}; name another folder with --out")))?;
    let lock = std::fs::File::open(folder).map_err(io)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => {
            return Err(input(
                "another run is writing there; name another folder with --out".into(),
            ));
        }
        Err(std::fs::TryLockError::Error(e)) => return Err(io(e)),
    }
    let begun = folder.join(RUN).with_extension("partial");
    if folder.join(RUN).is_file() || begun.is_file() {
        clear(folder).map_err(io)?;
    } else if std::fs::read_dir(folder).map_err(io)?.next().is_some() {
        return Err(input(
            "holds something else than a run; name another folder with --out".into(),
        ));
    }
    Ok(lock)
}

/// Takes away what a run has written, and nothing else.
fn clear(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() && is_test(&path)? {
            std::fs::remove_dir_all(&path)?;
        } else if path.is_file() && WRITTEN.iter().any(|name| is_ours(&path, name)) {
            std::fs::remove_file(&path)?;
        }
    }
    // What shows the folder to be a run's goes last: when this is cut short, it can be done again.
    match std::fs::remove_file(folder.join(RUN)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a folder holds evidence of a test and nothing else, however little of it was written before an end that came
/// early.
fn is_test(folder: &Path) -> std::io::Result<bool> {
    use crate::evidence::{CAPTURE, DECLARATION, EVENTS};
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let ours = [EVENTS, DECLARATION, CAPTURE];
        if !path.is_file() || !ours.iter().any(|name| is_ours(&path, name)) {
            return Ok(false);
        }
    }
    Ok(true)
}
