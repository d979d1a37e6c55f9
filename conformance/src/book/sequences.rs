//! The worked sequences, drawn step by step.

use std::fmt::Write as _;

use metaroce_spec::{Sequence, parse_sequences, render};

use super::{Files, Material};
use crate::coverage::VECTORS;
use crate::run::RunError;

/// Folder of the sequences, below `vectors` and in the book.
const FOLDER: &str = "sequences/";

/// The page of a file of sequences, below the top of the book.
pub(super) fn page_of(file: &str) -> String {
    file.replace(".json", ".md")
}

pub(super) fn pages(material: &Material, files: &mut Files) -> Result<(), RunError> {
    let mut index = String::from(
        "# Worked sequences\n\nExchanges step by step, as data in `vectors/sequences`: those that keep to the clauses, and next to each the ones that break some.\n\n",
    );
    for (file, text) in VECTORS.iter().filter(|(file, _)| file.starts_with(FOLDER)) {
        let all =
            parse_sequences(text).map_err(|e| RunError::Harness(format!("vectors/{file}: {e}")))?;
        let title = all.sequences.first().map_or("", |s| s.title.as_str());
        let page = page_of(file);
        // Writing to a string cannot fail.
        let _ = write!(index, "- [{title}]({page})");
        let wrong = all.sequences.iter().filter(|s| s.base.is_some()).count();
        let _ = writeln!(index, ", and {wrong} that go wrong");
        let mut out = format!("# {title}\n\nThe data: `vectors/{file}`.\n");
        for sequence in &all.sequences {
            out.push_str(&show(material, sequence));
        }
        files.insert(format!("src/{page}"), out);
    }
    files.insert("src/sequences.md".to_owned(), index);
    Ok(())
}

fn show(material: &Material, sequence: &Sequence) -> String {
    let mut out = format!("\n## {}\n\n", sequence.id);
    let link = |id: &String| material.link(id, "../");
    let keeps: Vec<String> = sequence.satisfies.iter().map(link).collect();
    if !keeps.is_empty() {
        let _ = writeln!(out, "Keeps to {}.\n", keeps.join(", "));
    }
    let broken: Vec<String> = sequence
        .violates
        .iter()
        .map(|broken| link(&broken.clause))
        .collect();
    if !broken.is_empty() {
        let _ = writeln!(out, "Breaks {}.\n", broken.join(", "));
    }
    let _ = writeln!(out, "```text\n{}\n```", render(sequence).trim_end());
    out
}
