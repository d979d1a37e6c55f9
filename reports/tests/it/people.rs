//! The renderings for people: hostile text, long runs, and what they say besides the goldens.

use crate::sample::{
    HOSTILE, assemble, clause, excluded, fail, hostile, pass, sample, test, unsound,
};
use metaroce_reports::table::Colour;
use metaroce_reports::{AdapterExit, Conduct, Side, markdown, table};

fn plain(result: &metaroce_reports::RunResult) -> String {
    table::render(result, Colour::Never)
}

#[test]
fn hostile_text_cannot_act_on_a_terminal() {
    let text = plain(&hostile());
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    assert!(!text.contains(['\u{202e}', '\u{ffff}']));
    assert!(text.contains(r"\u{1b}[31mred\u{1b}[0m \u{0}\u{d}\u{a}\u{9}]]>"));
    assert!(!text.contains(r"\u{5c}u{1b}["), "escaped twice");
    assert!(text.contains("… (+399500 characters)"));
    assert!(text.len() < 50_000, "{}", text.len());
}

#[test]
fn columns_of_the_table_stand_below_each_other() {
    let text = plain(&sample());
    let mut lines = text.lines().skip_while(|line| !line.starts_with("clause "));
    let heading = lines.next().unwrap();
    let place = heading.find("verdict").unwrap();
    for line in lines.take_while(|line| !line.is_empty()) {
        assert_eq!(&line[place - 2..place], "  ", "{line}");
        assert_ne!(&line[place..=place], " ", "{line}");
    }
}

#[test]
fn the_last_line_is_the_summary() {
    let text = plain(&sample());
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with("fail: clauses 1 fail, 0 error, 2 inconclusive, 2 pass"),
        "{last}"
    );
}

#[test]
fn errors_show_their_reason_and_how_adapters_ended() {
    let mut broken = unsound(
        "t2",
        Conduct::Error,
        "no answer to hello",
        vec![fail("A", 1)],
    );
    broken.adapters.push(AdapterExit {
        side: Side::Peer,
        reason: "signal 11".into(),
    });
    let result = assemble(&[clause("A")], vec![test("t1", vec![pass("A", 1)]), broken]);
    let text = plain(&result);
    assert!(text.contains("no answer to hello"));
    assert!(text.contains("test t2 (peer: signal 11)"));
    assert!(
        !text.contains("\nfailures"),
        "a fault of the harness is charged:\n{text}"
    );
    assert!(text.lines().last().unwrap().starts_with("error: "));
    let page = markdown::render(&result);
    assert!(page.starts_with("### Conformance: error\n"));
    assert!(page.contains("#### Errors") && !page.contains("#### Failures"));
}

#[test]
fn a_contradicted_pics_shows() {
    let result = assemble(&[excluded("A")], vec![test("t1", vec![pass("A", 1)])]);
    assert!(
        plain(&result)
            .contains("exercised although the pics excludes them\n  pics item retirement\n    A\n")
    );
    assert!(markdown::render(&result).contains("Exercised although the PICS excludes them"));
}

#[test]
fn hostile_text_cannot_act_in_markdown() {
    let page = markdown::render(&hostile());
    assert!(!page.chars().any(|c| c.is_control() && c != '\n'));
    for forbidden in [
        "<script",
        "@everyone",
        "](http",
        "`x`",
        "**bold**",
        " #1",
        "]]>",
        "</failure>",
    ] {
        assert!(!page.contains(forbidden), "{forbidden} is live");
    }
    // No tags but those of the renderer itself.
    let mut rest = page.as_str();
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, tail) = after.split_once('>').unwrap();
        let known = [
            "code", "/code", "details", "/details", "summary", "/summary",
        ];
        assert!(known.contains(&tag), "{tag}");
        rest = tail;
    }
    assert!(page.len() <= markdown::SIZE_LIMIT);
}

#[test]
fn every_row_of_a_markdown_table_has_the_columns_of_its_heading() {
    for result in [sample(), hostile()] {
        let page = markdown::render(&result);
        let mut tables = 0;
        let mut columns = None;
        for line in page.lines() {
            if !line.starts_with('|') {
                columns = None;
                continue;
            }
            let pipes = line.matches('|').count();
            tables += u32::from(columns.is_none());
            assert_eq!(*columns.get_or_insert(pipes), pipes, "{line}");
        }
        assert_eq!(tables, 3);
    }
}

#[test]
fn a_long_run_fits_into_a_comment_and_says_what_is_left_out() {
    let ids: Vec<String> = (0..3000).map(|n| format!("REL-{n:04}")).collect();
    let clauses: Vec<_> = ids.iter().map(|id| clause(id)).collect();
    let findings = ids.iter().map(|id| {
        let mut finding = fail(id, 1);
        finding.violations[0].seen = HOSTILE.into();
        finding
    });
    let result = assemble(&clauses, vec![test("t1", findings.collect())]);
    let page = markdown::render(&result);
    assert!(page.len() <= markdown::SIZE_LIMIT, "{}", page.len());
    assert!(page.contains("rows are left out here"));
    assert_eq!(
        page.matches("<details>").count(),
        page.matches("</details>").count()
    );
}
