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
        let page = chapters::page(&material, name, text);
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
    let is_book = folder.join(CONFIGURATION).is_file();
    if !is_book && std::fs::read_dir(folder).map_err(io)?.next().is_some() {
        return Err(RunError::Usage(format!(
            "{}: holds something else than a book; name another folder with --out",
            folder.display()
        )));
    }
    // Pages that an earlier version wrote would be read as part of this one.
    let source = folder.join("src");
    if source.is_dir() {
        std::fs::remove_dir_all(&source).map_err(io)?;
    }
    for (name, text) in &files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(io)?;
        }
        std::fs::write(&path, text).map_err(io)?;
    }
    Ok(files.len())
}
