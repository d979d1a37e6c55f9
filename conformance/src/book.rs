//! The specification as a book: a source tree for mdBook, with what covers each clause.
//!
//! Everything in it is made from what is built into the program. The pages load nothing from elsewhere.

mod chapters;
mod indexes;
mod links;
mod machines;
mod pages;
mod sequences;

use std::collections::BTreeMap;
use std::path::Path;

use metaroce_spec::{CHAPTERS, Clause};

use crate::coverage::{Coverage, coverage};
use crate::run::RunError;

pub use links::dead_links;

/// Files of a book, by path.
pub type Files = BTreeMap<String, String>;

/// File that shows a folder to be a book, and the first that mdBook reads.
const CONFIGURATION: &str = "book.toml";
/// First line of the configuration: a folder without it is somebody else's book.
const MARK: &str = "# Written by `metaroce book`, which replaces src whenever it runs.";
/// Where the files are written before they take their places.
const FRESH: &str = ".metaroce-book";

/// What the pages are made from.
struct Material {
    clauses: Vec<Clause>,
    coverage: BTreeMap<String, Coverage>,
}

impl Material {
    fn of(&self, clause: &str) -> Coverage {
        self.coverage.get(clause).cloned().unwrap_or_default()
    }

    /// A link to a clause from the folder that is `up` to the top: `` or `../`.
    fn link(&self, id: &str, up: &str) -> String {
        match self.clauses.iter().find(|clause| clause.id == id) {
            Some(clause) => format!(
                "[{id}]({up}chapters/{}#{})",
                clause.chapter,
                id.to_lowercase()
            ),
            None => id.to_owned(),
        }
    }

    /// The text with a link on every id of a clause that stands in its prose.
    fn linked(&self, text: &str, up: &str) -> String {
        let mut fenced = false;
        let mut out = String::new();
        for line in text.split_inclusive('\n') {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            if fenced || fence || line.starts_with('#') {
                out.push_str(line);
                continue;
            }
            for (i, part) in line.split('`').enumerate() {
                if i % 2 == 1 {
                    out.push_str(&format!("`{part}`"));
                } else {
                    self.link_words(&mut out, part, up);
                }
            }
        }
        out
    }

    fn link_words(&self, out: &mut String, text: &str, up: &str) {
        let is_id = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-';
        let mut before = ' ';
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|c| !is_id(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            // What follows a bracket is a link already.
            match before {
                '[' | '#' | '/' => out.push_str(word),
                _ => out.push_str(&self.link(word, up)),
            }
            let mut others = after.chars();
            before = others.next().unwrap_or(' ');
            if !after.is_empty() {
                out.push(before);
            }
            rest = others.as_str();
        }
    }
}

/// All files of the book.
///
/// # Errors
/// [`RunError::Harness`] when the specification is not sound, or a link of the book leads nowhere.
pub fn files() -> Result<Files, RunError> {
    let harness = |e: &dyn std::fmt::Display| RunError::Harness(e.to_string());
    let material = Material {
        clauses: metaroce_spec::clauses().map_err(|e| harness(&e))?,
        coverage: coverage()?,
    };
    let mut files = Files::new();
    let data = |e: metaroce_spec::TableError| harness(&e);
    for (name, _, text) in CHAPTERS {
        let page = chapters::page(&material, name, &material.linked(text, "../"));
        files.insert(format!("src/chapters/{name}"), page);
    }
    indexes::pages(&material, &mut files).map_err(data)?;
    machines::pages(&material, &mut files).map_err(data)?;
    pages::pages(&material, &mut files)?;
    sequences::pages(&material, &mut files)?;
    let summary = pages::summary(&files);
    files.insert("src/SUMMARY.md".to_owned(), summary);
    let dead = dead_links(&files);
    if dead.is_empty() {
        Ok(files)
    } else {
        let all = dead.join("\n");
        Err(RunError::Harness(format!(
            "links of the book lead nowhere:\n{all}"
        )))
    }
}

/// Writes the book into `folder`, which is made, or was a book before. Returns how many files it has.
///
/// # Errors
/// [`RunError::Usage`] when the folder holds something else, [`RunError::Harness`] when it cannot be written.
pub fn write(folder: &Path) -> Result<usize, RunError> {
    let io = |e: std::io::Error| RunError::Harness(format!("{}: {e}", folder.display()));
    let files = files()?;
    std::fs::create_dir_all(folder).map_err(|e| {
        let text = format!("{}: {e}; name another folder with --out", folder.display());
        RunError::Usage(text)
    })?;
    let configuration = std::fs::read_to_string(folder.join(CONFIGURATION));
    let is_ours = configuration.is_ok_and(|text| text.starts_with(MARK));
    let fresh = folder.join(FRESH);
    let others = std::fs::read_dir(folder)
        .map_err(io)?
        .filter_map(Result::ok)
        .any(|entry| entry.file_name() != FRESH);
    if !is_ours && others {
        return Err(RunError::Usage(format!(
            "{}: holds something else than a book of this command; name another folder with --out",
            folder.display()
        )));
    }
    // An attempt that was cut off has left its files behind.
    if fresh.is_dir() {
        std::fs::remove_dir_all(&fresh).map_err(io)?;
    }
    for (name, text) in &files {
        let path = fresh.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(io)?;
        }
        std::fs::write(&path, text).map_err(io)?;
    }
    // Pages that an earlier version wrote would be read as part of this one.
    let source = folder.join("src");
    if source.is_dir() {
        std::fs::remove_dir_all(&source).map_err(io)?;
    }
    for entry in std::fs::read_dir(&fresh).map_err(io)? {
        let entry = entry.map_err(io)?;
        std::fs::rename(entry.path(), folder.join(entry.file_name())).map_err(io)?;
    }
    std::fs::remove_dir(&fresh).map_err(io)?;
    Ok(files.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_prose_are_linked_and_others_are_not() {
        let material = Material {
            clauses: metaroce_spec::clauses().unwrap(),
            coverage: BTreeMap::new(),
        };
        let text = "# REL-001\nREL-002, (`REL-003` and XYZ-001)\n```\nREL-001\n```\n[REL-001](x)\n";
        let expected = "# REL-001\n[REL-002](../chapters/06-reliability.md#rel-002), (`REL-003` and XYZ-001)\n\
                        ```\nREL-001\n```\n[REL-001](x)\n";
        assert_eq!(material.linked(text, "../"), expected);
    }
}
