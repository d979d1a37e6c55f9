//! The worked sequences, step by step.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Files, Material};
use crate::coverage::{VECTORS, list};
use crate::run::RunError;

/// The page of a file of sequences, below the top of the book.
pub(super) fn page_of(file: &str) -> String {
    file.replace(".json", ".md")
}

pub(super) fn pages(material: &Material, files: &mut Files) -> Result<(), RunError> {
    let mut index = String::from(
        "# Worked sequences\n\nExchanges step by step, as data in `vectors/sequences`: those that keep to the clauses, and next to each the ones that break some.\n\n",
    );
    let mut any = false;
    for (file, text) in VECTORS {
        let value: Value = serde_json::from_str(text)
            .map_err(|e| RunError::Harness(format!("vectors/{file}: {e}")))?;
        let sequences = list(&value["sequences"]);
        let Some(first) = sequences.first() else {
            continue;
        };
        any = true;
        let title = word(first, "title");
        let page = page_of(file);
        let _ = writeln!(index, "- [{title}]({page}): {} sequences", sequences.len());
        let mut out = format!("# {title}\n\nThe data: `vectors/{file}`.\n");
        for sequence in sequences {
            out.push_str(&show(material, sequence));
        }
        files.insert(format!("src/{page}"), out);
    }
    if !any {
        index.push_str("None so far.\n");
    }
    files.insert("src/sequences.md".to_owned(), index);
    Ok(())
}

fn word<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn show(material: &Material, sequence: &Value) -> String {
    let link = |id: &Value| material.link(id.as_str().unwrap_or_default(), "../");
    let mut out = format!(
        "\n## {}\n\n{}. {}\n\n",
        word(sequence, "id"),
        word(sequence, "title"),
        word(sequence, "shows")
    );
    let keeps: Vec<String> = list(&sequence["satisfies"]).iter().map(link).collect();
    if !keeps.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "Keeps to {}.\n", keeps.join(", "));
    }
    let broken: Vec<String> = list(&sequence["violates"])
        .iter()
        .map(|broken| format!("{} at step {}", link(&broken["clause"]), broken["step"]))
        .collect();
    if !broken.is_empty() {
        let _ = writeln!(out, "Breaks {}.\n", broken.join(", "));
    }
    out.push_str("```text\n");
    for (n, step) in list(&sequence["steps"]).iter().enumerate() {
        let at = step["at_ns"].as_u64().unwrap_or_default();
        let (whole, rest) = (at / 1000, at % 1000);
        let _ = writeln!(out, "{n:3} {whole:8}.{rest:03} us  {}", what(step));
    }
    out.push_str("```\n");
    out
}

/// One step in words.
fn what(step: &Value) -> String {
    if word(step, "kind") != "packet" {
        return format!("{}: {}", word(step, "side"), step["what"]);
    }
    let cbh = &step["fields"]["CBH"];
    let arrow = match word(step, "from") {
        "initiator" => "initiator -->",
        _ => "<-- acceptor ",
    };
    let fate = match &step["fate"] {
        Value::String(fate) => fate.clone(),
        other => other.to_string(),
    };
    format!(
        "{arrow} {} path {} psn {} {}",
        word(step, "packet"),
        cbh["path"],
        cbh["psn"],
        fate
    )
}
