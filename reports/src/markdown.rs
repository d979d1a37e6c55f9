//! The rendering for pull requests.
//!
//! Text of a result stands only inside `<code>`, spelled so that neither Markdown nor HTML nor a forge's mentions see
//! anything in it, pipes of tables included.

use crate::text::clipped;
use crate::view::{self, BY_URGENCY, ID_LIMIT};
use crate::{Counts, Finding, RunResult, TestResult, Verdict};

/// Longest rendering, in bytes: forges refuse comments of more than 65,536 characters.
pub const SIZE_LIMIT: usize = 60_000;

/// Longest free text shown, in characters; the JSON has it in full.
const TEXT_LIMIT: usize = 200;

/// Kept for the ends of open sections and for saying how much is left out, in bytes.
const RESERVE: usize = 2_000;

const IDS_SHOWN: usize = 40;

/// The result as Markdown: verdict, counts, failures, errors, what is inconclusive, and folded away all clauses and those
/// without a monitor. Rows that would exceed [`SIZE_LIMIT`] are left out and counted.
#[must_use]
pub fn render(result: &RunResult) -> String {
    let mut page = format!("### Conformance: {}\n\n", result.verdict());
    page.push_str(&header(result));
    page.push_str(&counts(result));
    failures(&mut page, result);
    for (verdict, title) in [
        (Verdict::Error, "Errors"),
        (Verdict::Inconclusive, "Inconclusive"),
    ] {
        let groups = view::reasons(result, verdict);
        if !groups.is_empty() {
            page.push_str(&format!("\n#### {title}\n\n"));
            rows(&mut page, groups.iter().map(group));
        }
    }
    let contradictions = view::contradictions(result);
    if !contradictions.is_empty() {
        page.push_str("\n#### Exercised although the PICS excludes them\n\n");
        rows(&mut page, contradictions.iter().map(group));
    }
    page.push_str(&folded("All clauses", result.clauses.len()));
    page.push_str("| clause | level | role | verdict | exercised | tests |\n");
    page.push_str("|---|---|---|---|--:|---|\n");
    rows(
        &mut page,
        result.clauses.iter().map(|clause| {
            format!(
                "| {} | {} | {} | {} | {} | {} |\n",
                id(&clause.id),
                id(&clause.level),
                id(&clause.role),
                clause.verdict,
                clause.exercised,
                id_list(&clause.tests, 3),
            )
        }),
    );
    page.push_str("\n</details>\n");
    if !result.unmonitored.is_empty() {
        page.push_str(&folded("Unmonitored clauses", result.unmonitored.len()));
        rows(&mut page, view::unmonitored(result).iter().map(group));
        page.push_str("\n</details>\n");
    }
    page
}

fn header(result: &RunResult) -> String {
    let versions = &result.versions;
    format!(
        "Implementation {} {} against {} {}, link {}, seed {}, PICS {}.\nSuite {}, specification {} ({}), profile {}.\n\n",
        id(&result.iut.name),
        id(&result.iut.version),
        id(&result.peer.name),
        id(&result.peer.version),
        id(&result.link),
        result.seed,
        id(&result.selection.pics),
        id(&versions.suite),
        id(&versions.specification),
        id(&versions.specification_digest),
        id(&versions.profile),
    )
}

fn counts(result: &RunResult) -> String {
    let row = |name: &str, counts: &Counts| {
        let cells = BY_URGENCY.map(|verdict| counts.count(verdict).to_string());
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    format!(
        "| | {} |\n|---|--:|--:|--:|--:|--:|\n{}{}",
        BY_URGENCY.map(Verdict::as_str).join(" | "),
        row("clauses", &result.summary.clauses),
        row("tests", &result.summary.tests),
    )
}

fn failures(page: &mut String, result: &RunResult) {
    let mut lines = view::failed_tests(result)
        .map(failed_test)
        .chain(view::failures(result).flat_map(|(test, finding)| failure(test, finding)))
        .peekable();
    if lines.peek().is_none() {
        return;
    }
    page.push_str("\n#### Failures\n\n");
    page.push_str(
        "| clause | test | where | expected | seen | evidence |\n|---|---|---|---|---|---|\n",
    );
    rows(page, lines);
}

/// The row of a test that failed as a whole: no clause, no place.
fn failed_test(test: &TestResult) -> String {
    let reason = test.reason.as_deref().map_or(String::new(), text);
    format!(
        "| | {} | | | {reason} | {} |\n",
        id(&test.id),
        evidence(test)
    )
}

fn evidence(test: &TestResult) -> String {
    let path = test.evidence.as_deref();
    path.map_or("no capture".to_owned(), text)
}

fn failure(test: &TestResult, finding: &Finding) -> Vec<String> {
    let evidence = evidence(test);
    let row = |place: &str, expected: &str, seen: &str| {
        let (clause, test) = (id(&finding.clause), id(&test.id));
        format!("| {clause} | {test} | {place} | {expected} | {seen} | {evidence} |\n")
    };
    let listed = finding.violations.iter();
    let mut lines: Vec<String> = listed
        .map(|found| {
            row(
                &view::frames(found),
                &text(&found.expected),
                &text(&found.seen),
            )
        })
        .collect();
    if finding.more_violations > 0 {
        lines.push(row(&format!("{} more", finding.more_violations), "", ""));
    }
    if lines.is_empty() {
        lines.push(row(
            "",
            "",
            &finding.reason.as_deref().map_or(String::new(), text),
        ));
    }
    lines
}

fn group((reason, ids): &(&str, Vec<String>)) -> String {
    format!("- {}: {}\n", text(reason), id_list(ids, IDS_SHOWN))
}

fn id_list(ids: &[String], shown: usize) -> String {
    let mut parts: Vec<String> = ids.iter().take(shown).map(|one| id(one)).collect();
    if ids.len() > shown {
        parts.push(format!("{} more", ids.len() - shown));
    }
    parts.join(", ")
}

fn folded(title: &str, count: usize) -> String {
    format!("\n<details><summary>{title} ({count})</summary>\n\n")
}

/// Appends rows as long as there is room, and says how many are left out.
fn rows(page: &mut String, rows: impl Iterator<Item = String>) {
    let mut left_out = 0_u64;
    for row in rows {
        if left_out > 0 || page.len() + row.len() > SIZE_LIMIT - RESERVE {
            left_out += 1;
        } else {
            page.push_str(&row);
        }
    }
    if left_out > 0 {
        page.push_str(&format!("\n{left_out} rows are left out here.\n"));
    }
}

fn id(raw: &str) -> String {
    code(&clipped(raw, ID_LIMIT))
}

fn text(raw: &str) -> String {
    code(&clipped(raw, TEXT_LIMIT))
}

/// Text that is shown as it is. Character references cannot stand for the structure of Markdown or HTML.
fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let mut out = String::from("<code>");
    for c in text.chars() {
        match c {
            '&' | '<' | '>' | '"' | '\'' | '|' | '`' | '*' | '_' | '~' | '[' | ']' | '(' | ')'
            | '\\' | '!' | '#' | '@' | '$' | ':' => out.push_str(&format!("&#{};", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push_str("</code>");
    out
}
