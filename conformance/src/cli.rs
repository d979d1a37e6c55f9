//! What the commands print.

use std::collections::BTreeMap;
use std::fmt::Write;

use metaroce_spec::Clause;
use serde_json::{Value, json};

use crate::coverage::{Coverage, Judge, Place, coverage};
use crate::monitors;
use crate::query::Query;
use crate::run::{RunError, Test};

/// What covers each clause.
type Coverages = BTreeMap<String, Coverage>;

fn harness(e: impl ToString) -> RunError {
    RunError::Harness(e.to_string())
}

fn pretty(value: &Value) -> Result<String, RunError> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(harness)
}

/// A clause and what covers it, as JSON.
fn with_coverage(clause: &Clause, coverage: &Coverages) -> Result<Value, RunError> {
    let mut value = serde_json::to_value(clause).map_err(harness)?;
    let of = coverage.get(&clause.id).cloned().unwrap_or_default();
    let monitors = of.monitors.iter();
    let by: Vec<String> = monitors.map(|m| format!("monitor {}", m.name)).collect();
    value["covered_by"] = json!(by);
    value["coverage"] = serde_json::to_value(&of).map_err(harness)?;
    Ok(value)
}

/// The clauses that fit.
///
/// # Errors
/// [`RunError`].
pub fn clauses(query: &Query, as_json: bool) -> Result<String, RunError> {
    let coverage = coverage()?;
    let mut all = metaroce_spec::clauses().map_err(harness)?;
    all.retain(|clause| query.fits(clause, &coverage));
    if as_json {
        let show = |clause: &Clause| {
            let mut value = with_coverage(clause, &coverage)?;
            if let Some(fields) = value.as_object_mut() {
                fields.remove("coverage");
            }
            Ok(value)
        };
        let all: Vec<Value> = all.iter().map(show).collect::<Result<_, RunError>>()?;
        return pretty(&Value::Array(all));
    }
    if all.is_empty() {
        return Ok("no clause fits\n".to_owned());
    }
    let mut text = format!(
        "{:9} {:10} {:10} {:10} {:10} statement; features required\n",
        "clause", "level", "role", "observed", "covered"
    );
    for clause in &all {
        let monitored = coverage
            .get(&clause.id)
            .is_some_and(|of| !of.monitors.is_empty());
        let mark = match (monitored, &clause.exception) {
            (true, _) => "monitored",
            (false, Some(_)) => "excepted",
            (false, None) => "uncovered",
        };
        let line = format!(
            "{:9} {:10} {:10} {:10} {:10} {}",
            clause.id,
            clause.level,
            clause.role,
            clause.observability,
            mark,
            statement(clause)
        );
        writeln!(text, "{}", line.trim_end()).map_err(harness)?;
    }
    Ok(text)
}

/// The statement, cut to one line, and what it requires.
fn statement(clause: &Clause) -> String {
    const WIDTH: usize = 100;
    let mut text: String = clause.text.chars().take(WIDTH).collect();
    if text.len() < clause.text.len() {
        text.push_str("...");
    }
    match clause.requires.as_slice() {
        [] => text,
        some => format!("{text} [{}]", some.join(", ")),
    }
}

/// One clause.
///
/// # Errors
/// [`RunError::Usage`] when there is none of that name.
pub fn explain(id: &str, as_json: bool) -> Result<String, RunError> {
    let all = metaroce_spec::clauses().map_err(harness)?;
    let gone = metaroce_spec::retired().map_err(harness)?;
    let clause = all
        .into_iter()
        .find(|clause| clause.id.eq_ignore_ascii_case(id));
    let clause = clause.ok_or_else(|| {
        let gone = gone.iter().find(|gone| gone.id.eq_ignore_ascii_case(id));
        RunError::Usage(match gone {
            Some(gone) => format!("{} is gone since {}: {}", gone.id, gone.since, gone.why),
            None => format!("there is no clause {id}: `metaroce clauses` lists them"),
        })
    })?;
    let coverage = coverage()?;
    if as_json {
        return pretty(&with_coverage(&clause, &coverage)?);
    }
    let of = coverage.get(&clause.id).cloned().unwrap_or_default();
    let mut text = format!(
        "{} ({}, {})\n\n{}\n\n",
        clause.id, clause.level, clause.role, clause.text
    );
    let or = |text: String, none: &str| match text.is_empty() {
        true => none.to_owned(),
        false => text,
    };
    let judges = |all: &[Judge]| {
        let show = |judge: &Judge| format!("{} ({})", judge.name, judge.what);
        all.iter().map(show).collect::<Vec<_>>().join(", ")
    };
    let places = |all: &[Place]| {
        let ids: Vec<&str> = all.iter().map(|place| place.id.as_str()).collect();
        ids.join(", ")
    };
    for (key, value) in [
        ("source", clause.source.to_string()),
        ("observed", clause.observability.to_string()),
        ("requires", or(clause.requires.join(", "), "nothing")),
        ("revision", clause.revision.to_string()),
        ("exception", clause.exception.clone().unwrap_or("-".into())),
        ("monitor", or(judges(&of.monitors), "no monitor yet")),
        ("tests", or(of.tests.join(", "), "-")),
        ("mutants", or(judges(&of.mutants), "-")),
        ("kept in sequences", or(places(&of.kept_in), "-")),
        ("broken in sequences", or(places(&of.broken_in), "-")),
        ("golden packets that break it", or(places(&of.packets), "-")),
        (
            "text",
            format!("spec/chapters/{}:{}", clause.chapter, clause.line),
        ),
    ] {
        writeln!(text, "{key}: {value}").map_err(harness)?;
    }
    Ok(text)
}

/// The lock file of the clauses.
///
/// # Errors
/// [`RunError`].
pub fn lock() -> Result<String, RunError> {
    let clauses = metaroce_spec::clauses().map_err(harness)?;
    Ok(metaroce_spec::lock(&clauses, &monitors::coverage()))
}

/// The tests of a plan.
///
/// # Errors
/// [`RunError`].
pub fn list(tests: &[Test], as_json: bool) -> Result<String, RunError> {
    if as_json {
        let show = |test: &Test| {
            json!({
                "id": test.id, "title": test.loaded.scenario.title, "tags": test.loaded.scenario.tags,
                "judged": test.judged, "excluded": test.excluded,
            })
        };
        return pretty(&Value::Array(tests.iter().map(show).collect()));
    }
    let mut text = String::new();
    for test in tests {
        let scenario = &test.loaded.scenario;
        writeln!(
            text,
            "{:40} {} [{}]",
            test.id,
            scenario.title,
            scenario.tags.join(" ")
        )
        .map_err(harness)?;
        if let Some(why) = &test.excluded {
            writeln!(text, "{:40} not applicable: {why}", "").map_err(harness)?;
        }
    }
    Ok(text)
}

/// What this machine can do: name, whether, why.
///
/// # Errors
/// [`RunError`].
pub fn doctor(as_json: bool) -> Result<String, RunError> {
    let loopback =
        crate::link::relay::RelayAddresses::find(metaroce_wire::metaroce::DEFAULT_PORT, 1);
    let executable = std::env::current_exe();
    let temporary = std::env::temp_dir();
    let checks = [
        (
            "simulated time",
            true,
            "needs nothing of the machine".to_owned(),
        ),
        match &loopback {
            Ok(found) => (
                "relay: loopback addresses",
                true,
                format!("{} and its neighbours are free", found.a),
            ),
            Err(e) => (
                "relay: loopback addresses",
                false,
                format!("{e}: four addresses of 127/8 are needed, as on Linux"),
            ),
        },
        match &executable {
            Ok(path) => ("reference as a process", true, path.display().to_string()),
            Err(e) => ("reference as a process", false, e.to_string()),
        },
        (
            "temporary files",
            temporary.is_dir(),
            temporary.display().to_string(),
        ),
        (
            "bridge between interfaces",
            false,
            "not part of this version".to_owned(),
        ),
    ];
    if as_json {
        let show =
            |(name, ok, why): &(&str, bool, String)| json!({ "name": name, "ok": ok, "why": why });
        return pretty(&Value::Array(checks.iter().map(show).collect()));
    }
    let mut text = String::new();
    for (name, ok, why) in &checks {
        writeln!(text, "{:3} {name}: {why}", if *ok { "yes" } else { "no" }).map_err(harness)?;
    }
    Ok(text)
}

/// The kill matrix: every mutant against every scenario in simulated time. Also tells whether each was killed, by its
/// own clause, and broke nothing that was not declared.
///
/// # Errors
/// [`RunError`].
#[cfg(feature = "reference")]
pub fn mutants(
    as_json: bool,
    list: bool,
    progress: &mut dyn FnMut(String),
) -> Result<(String, bool), RunError> {
    let all: Vec<_> = metaroce_endpoint::mutants::all().collect();
    let mut rows = vec![Value::Null; all.len()];
    let mut complete = true;
    if list {
        rows.clear();
        rows.extend(all.iter().map(|info| {
            json!({ "id": info.id, "clause": info.clause, "declared": info.declared, "because": info.because, "what": info.what })
        }));
    } else {
        let next = std::sync::atomic::AtomicUsize::new(0);
        let (sender, outcomes) = std::sync::mpsc::channel();
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (sender, all, next) = (sender.clone(), &all, &next);
                scope.spawn(move || {
                    loop {
                        let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(info) = all.get(n) else { return };
                        if sender.send((n, failed_by(info.id))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for (n, failed) in outcomes {
                let (info, failed) = (all[n], failed?);
                progress(format!("mutant {}", info.id));
                let killed = failed.iter().any(|id| id == info.clause);
                let undeclared = failed
                    .iter()
                    .any(|id| id != info.clause && !info.declared.contains(&id.as_str()));
                complete &= killed && !undeclared;
                rows[n] = json!({
                    "id": info.id, "clause": info.clause, "killed": killed, "failed_clauses": failed,
                    "declared": info.declared, "because": info.because,
                });
            }
            Ok::<(), RunError>(())
        })?;
    }
    let text = if as_json {
        pretty(&json!({ "mutants": rows }))?
    } else {
        table(&rows)
    };
    Ok((text, complete))
}

/// The clauses that a mutant fails.
#[cfg(feature = "reference")]
fn failed_by(id: &str) -> Result<Vec<String>, RunError> {
    use crate::run::{Plan, run};
    let plan = Plan {
        mutant: Some(id.into()),
        ..Plan::reference()?
    };
    let name = format!("metaroce-mutant-{}-{id}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let result = run(&plan, &folder, &mut |_, _, _| {});
    // Evidence of mutants is not kept; what cannot be removed is in the folder for temporary files.
    let _left = std::fs::remove_dir_all(&folder);
    let failed = result?
        .clauses
        .into_iter()
        .filter(|clause| clause.verdict == metaroce_reports::Verdict::Fail);
    Ok(failed.map(|clause| clause.id).collect())
}

#[cfg(feature = "reference")]
fn table(rows: &[Value]) -> String {
    let mut text = String::new();
    for row in rows {
        let word = |key: &str| row[key].as_str().unwrap_or_default();
        let all = |key: &str| {
            let all = row[key].as_array().map(|all| {
                all.iter()
                    .filter_map(Value::as_str)
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            all.unwrap_or_default()
        };
        let killed = match row["killed"].as_bool() {
            Some(true) => "killed",
            Some(false) => "ALIVE",
            None => "",
        };
        let line = format!(
            "{:22} {:9} {killed:6} failed: {} | declared: {}",
            word("id"),
            word("clause"),
            all("failed_clauses"),
            all("declared")
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
