//! The rendering for a terminal.

use crate::text::{clipped, padded, width};
use crate::view::{self, ID_LIMIT};
use crate::{Finding, IutInfo, RunResult, TestResult, Verdict};

/// Longest free text shown, in characters; the JSON has it in full.
const TEXT_LIMIT: usize = 500;

/// Columns after which a list of ids goes on in the next line.
const WIDTH: usize = 100;

/// How many tests a row names before it only counts the rest.
const TESTS_SHOWN: usize = 3;

const HEADINGS: [&str; 6] = ["clause", "level", "role", "verdict", "exercised", "tests"];
const VERDICT_COLUMN: usize = 3;
const EXERCISED_COLUMN: usize = 4;

/// Whether verdicts are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Plain text.
    Never,
    /// ANSI colours around verdicts.
    Always,
}

/// The result as lines of text: what was run, a table of the clauses, failures with their frames, errors, what is
/// inconclusive and why, the clauses without a monitor, and the summary as the last line.
#[must_use]
pub fn render(result: &RunResult, colour: Colour) -> String {
    let mut lines = header(result);
    lines.push(String::new());
    lines.extend(clauses(result, colour));
    let mut failures: Vec<String> = view::failed_tests(result).flat_map(failed_test).collect();
    failures.extend(view::failures(result).flat_map(|(test, finding)| failure(test, finding)));
    section(&mut lines, "failures", failures);
    for verdict in [Verdict::Error, Verdict::Inconclusive] {
        section(
            &mut lines,
            verdict.as_str(),
            gathered(&view::reasons(result, verdict)),
        );
    }
    let contradictions = gathered(&view::contradictions(result));
    section(
        &mut lines,
        "exercised although the pics excludes them",
        contradictions,
    );
    let title = format!("unmonitored ({})", result.unmonitored.len());
    section(&mut lines, &title, gathered(&view::unmonitored(result)));
    lines.push(String::new());
    let summary = view::summary_line(result);
    let verdict = result.verdict();
    let counts = summary.strip_prefix(verdict.as_str()).unwrap_or(&summary);
    lines.push(format!(
        "{}{counts}",
        painted(verdict.as_str(), verdict, colour)
    ));
    let mut text = String::new();
    for line in lines {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn header(result: &RunResult) -> Vec<String> {
    let show = |text: &str| clipped(text, TEXT_LIMIT);
    let versions = &result.versions;
    let selection = &result.selection;
    let filter = match &selection.filter {
        Some(filter) => format!("filter {}", show(filter)),
        None => "no filter".to_owned(),
    };
    vec![
        format!(
            "suite {}, profile {}",
            show(&versions.suite),
            show(&versions.profile)
        ),
        format!(
            "specification {} ({})",
            show(&versions.specification),
            show(&versions.specification_digest)
        ),
        format!("implementation {}", endpoint(&result.iut)),
        format!("peer {}", endpoint(&result.peer)),
        format!("link {}, seed {}", show(&result.link), result.seed),
        format!(
            "pics {}, {filter}, {} tests",
            show(&selection.pics),
            selection.tests.len()
        ),
    ]
}

fn endpoint(info: &IutInfo) -> String {
    let show = |text: &str| clipped(text, TEXT_LIMIT);
    let command = info
        .command
        .as_deref()
        .map_or("in process".to_owned(), show);
    format!("{} {} ({command})", show(&info.name), show(&info.version))
}

fn clauses(result: &RunResult, colour: Colour) -> Vec<String> {
    let rows: Vec<[String; 6]> = result
        .clauses
        .iter()
        .map(|clause| {
            [
                clipped(&clause.id, ID_LIMIT),
                clipped(&clause.level, ID_LIMIT),
                clipped(&clause.role, ID_LIMIT),
                clause.verdict.to_string(),
                clause.exercised.to_string(),
                view::ids(&clause.tests, TESTS_SHOWN),
            ]
        })
        .collect();
    let headings = HEADINGS.map(str::to_owned);
    let mut widths = headings.each_ref().map(|cell| width(cell));
    for row in &rows {
        for (column, cell) in widths.iter_mut().zip(row) {
            *column = width(cell).max(*column);
        }
    }
    let mut lines = vec![line(&headings, &widths, |cell| cell)];
    for (row, clause) in rows.iter().zip(&result.clauses) {
        lines.push(line(row, &widths, |cell| {
            painted(&cell, clause.verdict, colour)
        }));
    }
    lines
}

/// One row of the table; `paint` is given the filled cell of the verdict, so that colours do not move columns.
fn line(row: &[String; 6], widths: &[usize; 6], paint: impl Fn(String) -> String) -> String {
    let cells: Vec<String> = row
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(place, (cell, &columns))| match place {
            VERDICT_COLUMN => paint(padded(cell, columns)),
            EXERCISED_COLUMN => format!("{cell:>columns$}"),
            _ => padded(cell, columns),
        })
        .collect();
    cells.join("  ")
}

fn failed_test(test: &TestResult) -> Vec<String> {
    let reason = test.reason.as_deref().unwrap_or("no reason was given");
    vec![
        format!("test {} ({})", clipped(&test.id, ID_LIMIT), evidence(test)),
        format!("  {}", clipped(reason, TEXT_LIMIT)),
    ]
}

fn evidence(test: &TestResult) -> String {
    match &test.evidence {
        Some(path) => clipped(path, TEXT_LIMIT),
        None => "no capture".to_owned(),
    }
}

fn failure(test: &TestResult, finding: &Finding) -> Vec<String> {
    let evidence = evidence(test);
    let clause = clipped(&finding.clause, ID_LIMIT);
    let mut lines = vec![format!(
        "{clause} in {} ({evidence})",
        clipped(&test.id, ID_LIMIT)
    )];
    if let Some(reason) = &finding.reason {
        lines.push(format!("  {}", clipped(reason, TEXT_LIMIT)));
    }
    for violation in &finding.violations {
        lines.push(format!("  {}", view::frames(violation)));
        lines.push(format!(
            "    expected  {}",
            clipped(&violation.expected, TEXT_LIMIT)
        ));
        lines.push(format!(
            "    seen      {}",
            clipped(&violation.seen, TEXT_LIMIT)
        ));
    }
    if finding.more_violations > 0 {
        lines.push(format!("  and {} more violations", finding.more_violations));
    }
    lines
}

fn gathered(groups: &[(&str, Vec<String>)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (reason, ids) in groups {
        lines.push(clipped(reason, TEXT_LIMIT));
        let mut line = String::new();
        for id in ids {
            let id = clipped(id, TEXT_LIMIT);
            if !line.is_empty() && line.len() + id.len() > WIDTH {
                lines.push(format!("  {line}"));
                line.clear();
            }
            let comma = if line.is_empty() { "" } else { ", " };
            line.push_str(comma);
            line.push_str(&id);
        }
        lines.push(format!("  {line}"));
    }
    lines
}

fn section(lines: &mut Vec<String>, title: &str, content: Vec<String>) {
    if content.is_empty() {
        return;
    }
    lines.push(String::new());
    lines.push(title.to_owned());
    lines.extend(content.into_iter().map(|line| format!("  {line}")));
}

fn painted(text: &str, verdict: Verdict, colour: Colour) -> String {
    let code = match verdict {
        Verdict::Pass => 32,
        Verdict::Inconclusive => 33,
        Verdict::Fail => 31,
        Verdict::Error => 35,
        Verdict::NotApplicable => 2,
    };
    match colour {
        Colour::Never => text.to_owned(),
        Colour::Always => format!("\x1b[{code}m{text}\x1b[0m"),
    }
}
