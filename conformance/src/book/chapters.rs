//! The chapters, with what is known of each clause below its statement.

use metaroce_spec::{Clause, Source};

use super::Material;

/// Links that are shown before the rest is folded away.
const SHOWN: usize = 8;

/// A chapter as a page of the book.
pub(super) fn page(material: &Material, name: &str, text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines().enumerate().peekable();
    // The clause whose bullets come next.
    let mut current: Option<&Clause> = None;
    while let Some((at, line)) = lines.next() {
        let clauses = material.clauses.iter();
        let starts = |clause: &&Clause| clause.chapter == name && clause.line == at + 1;
        if let Some(clause) = clauses.clone().find(starts) {
            current = Some(clause);
        } else if let (true, Some(clause)) = (line.starts_with("- "), current) {
            // The bullets, and blank lines between them, give way to one box.
            while lines
                .next_if(|(_, next)| {
                    next.starts_with("- ") || next.starts_with(' ') && !next.trim().is_empty()
                })
                .is_some()
            {}
            out.push_str(&about(material, clause));
            current = None;
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// What is known of a clause.
fn about(material: &Material, clause: &Clause) -> String {
    let of = material.of(&clause.id);
    let source = match &clause.source {
        Source::Public {
            statement,
            paraphrase,
        } => format!("[P{statement}](../indexes/sources.md#p{statement}), {paraphrase}"),
        Source::Project { reason } => {
            format!("[project](../indexes/sources.md#project), {reason}")
        }
    };
    let mut first = vec![
        format!("**{}**", clause.level),
        format!("[{}](../indexes/roles.md#{})", clause.role, clause.role),
        format!("observed: {}", clause.observability),
    ];
    if clause.revision > 1 {
        first.push(format!("revision {}", clause.revision));
    }
    if !clause.requires.is_empty() {
        let link = |id: &String| format!("[{id}](../indexes/features.md#{id})");
        let all: Vec<String> = clause.requires.iter().map(link).collect();
        first.push(format!("requires {}", all.join(", ")));
    }
    let mut lines = vec![first.join(" · "), format!("Source: {source}")];
    if let Some(reason) = &clause.exception {
        lines.push(format!("Exception: {reason}"));
    }
    for monitor in &of.monitors {
        lines.push(format!("Monitor `{}`: {}", monitor.name, monitor.what));
    }
    let tests = of.tests.iter().map(|id| (id.as_str(), "judging/tests.md"));
    links(&mut lines, "Exercised by", tests.collect());
    let mutants = of.mutants.iter();
    let mutants = mutants.map(|mutant| (mutant.name.as_str(), "judging/mutants.md"));
    links(&mut lines, "Broken by the mutants", mutants.collect());
    for (what, places) in [
        ("Kept in the sequences", &of.kept_in),
        ("Broken in the sequences", &of.broken_in),
    ] {
        let places = places.iter().map(|place| {
            let page = super::sequences::page_of(&place.file);
            (place.id.as_str(), page)
        });
        let places: Vec<(&str, String)> = places.collect();
        let places = places.iter().map(|(id, page)| (*id, page.as_str()));
        links(&mut lines, what, places.collect());
    }
    let packets = of.packets.iter();
    let packets = packets.map(|place| (place.id.as_str(), "judging/packets.md"));
    links(
        &mut lines,
        "Broken by the golden packets",
        packets.collect(),
    );
    if of.monitors.is_empty() && clause.exception.is_none() {
        lines.push("No monitor judges it yet.".to_owned());
    }
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        let between = if i == 0 { "> " } else { ">\n> " };
        out.push_str(between);
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// A line of links to headings of pages; most of a long list is folded away.
fn links(lines: &mut Vec<String>, what: &str, all: Vec<(&str, &str)>) {
    if all.is_empty() {
        return;
    }
    let link = |(id, page): &(&str, &str)| format!("[{id}](../{page}#{})", super::links::slug(id));
    let text = |all: &[(&str, &str)]| all.iter().map(link).collect::<Vec<_>>().join(", ");
    if all.len() <= SHOWN {
        lines.push(format!("{what}: {}", text(&all)));
    } else {
        lines.push(format!(
            "<details><summary>{what}: {} of them</summary>\n>\n> {}\n>\n> </details>",
            all.len(),
            text(&all)
        ));
    }
}
