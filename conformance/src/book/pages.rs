//! The pages around the chapters: introduction, data, what judges, changes, and the table of contents.

use std::fmt::Write as _;

use metaroce_spec::{CHAPTERS, block};
use serde_json::Value;

use super::indexes::title;
use super::{CONFIGURATION, Files, Material};
use crate::coverage::{VECTORS, list};
use crate::run::RunError;
use crate::scenario;

/// What the folder of the specification says of itself; the published statements stand in it.
const README: &str = include_str!("../../../spec/README.md");
/// The edits that can change a verdict.
const CHANGES: &str = include_str!("../../../spec/CHANGELOG.md");

/// The published statement of that number.
pub(super) fn statement(number: u8) -> &'static str {
    let start = format!("| P{number} | ");
    let line = README.lines().find_map(|l| l.strip_prefix(&start));
    line.map_or("", |text| text.trim_end_matches('|').trim())
}

pub(super) fn pages(material: &Material, files: &mut Files) -> Result<(), RunError> {
    files.insert(CONFIGURATION.to_owned(), configuration());
    files.insert("book.css".to_owned(), STYLE.to_owned());
    let mut put = |name: &str, text: String| {
        files.insert(format!("src/{name}.md"), text);
    };
    let data = |e: metaroce_spec::TableError| RunError::Harness(e.to_string());
    put("README", introduction(material));
    let timers = block::render(&block::Marker::Timers).map_err(data)?;
    let timers = material.linked(&timers, "");
    put("timers", format!("# Timers and limits\n\n{timers}"));
    put("changes", changes(material)?);
    put("judging/tests", tests(material)?);
    put("judging/mutants", mutants(material));
    put("judging/packets", packets(material)?);
    Ok(())
}

fn configuration() -> String {
    // Two hyphens in the name of a sequence are no dash, and belong to its anchor.
    format!(
        "{}\n[book]\ntitle = \"MetaRoCE, the open profile\"\nlanguage = \"en\"\n\n\
         [output.html]\nno-section-label = true\nsmart-punctuation = false\nadditional-css = [\"book.css\"]\n\n\
         [output.html.fold]\nenable = true\nlevel = 0\n\n# {}, specification {}\n",
        super::MARK,
        metaroce_spec::PROFILE,
        metaroce_spec::VERSION
    )
}

const STYLE: &str = "\
:root { --content-max-width: 1000px; }
.content main pre { overflow-x: auto; }
.content main blockquote { font-size: 0.9em; margin: 0.5em 0 1.5em; padding: 0.1em 1em; }
.content main blockquote p { margin: 0.35em 0; }
.content main .table-wrapper { overflow-x: auto; }
.content main table { margin: 0.5em 0; font-size: 0.9em; }
.content main table td { vertical-align: top; }
.content main td a, .content main p a { white-space: nowrap; }
svg.machine { max-width: 100%; height: auto; }
";

fn introduction(material: &Material) -> String {
    let clauses = &material.clauses;
    let judged = clauses
        .iter()
        .filter(|c| !material.of(&c.id).monitors.is_empty());
    format!(
        "# MetaRoCE, the open profile\n\n\
         Profile `{}`, specification {}. An independent, unofficial profile: it is not the text that is contributed to the Open Compute Project, \
         and nobody has endorsed it. What has been published about the transport holds here; every value that has not been published is a choice \
         of this project and says so.\n\n\
         {} clauses, {} of them judged by a monitor of the suite.\n\n\
         | to find | look at |\n|---|---|\n\
         | what a clause says and what judges it | its chapter; the box below each statement |\n\
         | all clauses on one subject, source, role or feature | [by chapter](indexes/chapters.md), [by source](indexes/sources.md), [by role](indexes/roles.md), [by feature](indexes/features.md) |\n\
         | what no monitor judges | [clauses without a monitor](indexes/uncovered.md) |\n\
         | how states, timers and exchanges hang together | [state diagrams](states.md), [timers and limits](timers.md), [worked sequences](sequences.md) |\n\
         | what a test or a mutant does | [tests](judging/tests.md), [mutants](judging/mutants.md), [golden packets](judging/packets.md) |\n\n\
         The digest of this text, as results name it: `{}`.\n",
        metaroce_spec::PROFILE,
        metaroce_spec::VERSION,
        clauses.len(),
        judged.count(),
        metaroce_spec::digest()
    )
}

fn changes(material: &Material) -> Result<String, RunError> {
    let mut out = material.linked(CHANGES.trim_end(), "");
    out.push_str("\n\n## Ids that are gone\n\n");
    let gone = metaroce_spec::retired().map_err(|e| RunError::Harness(e.to_string()))?;
    for gone in &gone {
        let _ = writeln!(out, "- {} since {}: {}", gone.id, gone.since, gone.why);
    }
    if gone.is_empty() {
        out.push_str("None.\n");
    }
    out.push_str("\n## Amended clauses\n\n");
    let amended = material.clauses.iter().filter(|c| c.revision > 1);
    let mut any = false;
    for clause in amended {
        any = true;
        let link = material.link(&clause.id, "");
        let _ = writeln!(out, "- {link}, revision {}", clause.revision);
    }
    if !any {
        out.push_str("None.\n");
    }
    Ok(out)
}

fn tests(material: &Material) -> Result<String, RunError> {
    let mut out = String::from(
        "# Tests\n\nThe scenarios of the suite, and the clauses that each exercises when the reference endpoint is on both sides in simulated time.\n",
    );
    let harness = |e: scenario::ScenarioError| RunError::Harness(e.to_string());
    for loaded in scenario::built_in().map_err(harness)? {
        let scenario = &loaded.scenario;
        let id = &scenario.id;
        let exercised = material.clauses.iter().filter(|clause| {
            let tests = material.of(&clause.id).tests;
            tests.iter().any(|test| test.split('.').next() == Some(id))
        });
        let links: Vec<String> = exercised.map(|c| material.link(&c.id, "../")).collect();
        let _ = writeln!(
            out,
            "\n## {id}\n\n{} ({})\n\n<details><summary>{} clauses</summary>\n\n{}\n\n</details>",
            scenario.title,
            scenario.tags.join(", "),
            links.len(),
            links.join(", ")
        );
    }
    Ok(out)
}

fn mutants(material: &Material) -> String {
    let mut out = String::from(
        "# Mutants\n\nThe reference endpoint with one fault each. The suite has to notice every one of them, on the clause that it breaks.\n",
    );
    let mut any = false;
    for clause in &material.clauses {
        for mutant in material.of(&clause.id).mutants {
            any = true;
            let link = material.link(&clause.id, "../");
            let _ = writeln!(out, "\n## {}\n\n{link}: {}", mutant.name, mutant.what);
        }
    }
    if !any {
        out.push_str("\nThis program was built without the reference endpoint.\n");
    }
    out
}

fn packets(material: &Material) -> Result<String, RunError> {
    let mut out = String::from(
        "# Golden packets\n\nPackets as data, in `vectors/packets`: such as a strict parser takes, and such as it refuses, with the error that it gives.\n",
    );
    for (file, text) in VECTORS {
        let value: Value = serde_json::from_str(text)
            .map_err(|e| RunError::Harness(format!("vectors/{file}: {e}")))?;
        for vector in list(&value["vectors"]) {
            let word = |key: &str| vector[key].as_str().unwrap_or_default();
            let id = word("id");
            let _ = writeln!(out, "\n## {id}\n\n{}\n", word("shows"));
            let error = &vector["invalid"]["error"];
            if let Some(kind) = error["kind"].as_str() {
                let breaks = material.clauses.iter().filter(|clause| {
                    let of = material.of(&clause.id).packets;
                    of.iter().any(|place| place.id == id && place.file == *file)
                });
                let links: Vec<String> = breaks.map(|c| material.link(&c.id, "../")).collect();
                let rest = match links.is_empty() {
                    true => String::new(),
                    false => format!(", breaks {}", links.join(", ")),
                };
                let _ = writeln!(out, "Refused: `{kind}`{rest}\n");
            }
            let hex = word("datagram").as_bytes().chunks(64);
            let lines: Vec<String> = hex
                .map(|line| String::from_utf8_lossy(line).into_owned())
                .collect();
            let _ = writeln!(out, "```text\n{}\n```", lines.join("\n"));
        }
    }
    Ok(out)
}

/// The table of contents.
pub(super) fn summary(files: &Files) -> String {
    let mut out = String::from("# Summary\n\n[Introduction](README.md)\n\n# Specification\n\n");
    for (name, _, text) in CHAPTERS {
        let _ = writeln!(out, "- [{}](chapters/{name})", title(text));
    }
    out.push_str("\n# Data\n\n");
    for (name, page) in [
        ("State diagrams", "states.md"),
        ("Timers and limits", "timers.md"),
        ("Worked sequences", "sequences.md"),
    ] {
        let _ = writeln!(out, "- [{name}]({page})");
    }
    for (path, text) in files {
        if let Some(page) = path
            .strip_prefix("src/")
            .filter(|p| p.starts_with("sequences/"))
        {
            let _ = writeln!(out, "  - [{}]({page})", title(text));
        }
    }
    out.push_str("\n# Indexes\n\n");
    for (name, page) in [
        ("By chapter", "chapters"),
        ("By source", "sources"),
        ("By role", "roles"),
        ("By feature", "features"),
        ("Without a monitor", "uncovered"),
    ] {
        let _ = writeln!(out, "- [{name}](indexes/{page}.md)");
    }
    out.push_str("\n# What judges\n\n");
    for (name, page) in [
        ("Tests", "tests"),
        ("Mutants", "mutants"),
        ("Golden packets", "packets"),
    ] {
        let _ = writeln!(out, "- [{name}](judging/{page}.md)");
    }
    out.push_str("\n---\n\n[Changes](changes.md)\n");
    out
}
