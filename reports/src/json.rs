//! The rendering for programs, and the way back. The other renderings are made from it.

use serde::Deserialize;
use thiserror::Error;

use crate::{AssembleError, RenderError, RunResult, SCHEMA_NAME};

/// The JSON Schema (draft 2020-12) of what [`render`] writes.
pub const SCHEMA: &str = include_str!("../schema/result.schema.json");

/// Why a text is not a result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// It is no JSON, or a field is missing, unknown, given twice or of the wrong type.
    #[error("line {line}, column {column}: {message}")]
    Text {
        /// Line of the text, from 1.
        line: usize,
        /// Column of the line in bytes, from 1; 0 when the line has none.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// It is written to another version of the model.
    #[error("a result of {found:?}, and this program reads {SCHEMA_NAME:?}")]
    Version {
        /// The value of `schema`.
        found: String,
    },
    /// Its lists contradict each other.
    #[error("the result contradicts itself: {0}")]
    Lists(#[from] AssembleError),
    /// A verdict, reason or count is not what its findings bear: the result was changed after the run.
    #[error("the result was changed after it was made: {place} does not follow from its tests")]
    Changed {
        /// What differs, for example `clause REL-007`.
        place: String,
    },
}

/// The result as indented JSON with a line end, its fields in the order of the model.
///
/// # Errors
///
/// [`RenderError`], should the library refuse.
pub fn render(result: &RunResult) -> Result<String, RenderError> {
    let mut text = serde_json::to_string_pretty(result).map_err(|error| RenderError {
        format: "JSON",
        message: error.to_string(),
    })?;
    text.push('\n');
    Ok(text)
}

/// Reads a result and draws its verdicts anew, so that no edited verdict is rendered or compared.
///
/// # Errors
///
/// [`ReadError`], with line and column where the text itself is wrong.
pub fn read(text: &str) -> Result<RunResult, ReadError> {
    // The version first: under another one, what follows would be reported as wrong though it is only unknown.
    let Probe { schema } = serde_json::from_str(text).map_err(located)?;
    if schema != SCHEMA_NAME {
        return Err(ReadError::Version { found: schema });
    }
    let result: RunResult = serde_json::from_str(text).map_err(located)?;
    let drawn = result.reassemble()?;
    match difference(&result, &drawn) {
        Some(place) => Err(ReadError::Changed { place }),
        None => Ok(result),
    }
}

#[derive(Deserialize)]
struct Probe {
    schema: String,
}

fn located(error: serde_json::Error) -> ReadError {
    let (line, column) = (error.line(), error.column());
    let message = error.to_string();
    let place = format!(" at line {line} column {column}");
    let message = message.strip_suffix(&place).unwrap_or(&message).to_owned();
    ReadError::Text {
        line,
        column,
        message,
    }
}

fn difference(recorded: &RunResult, drawn: &RunResult) -> Option<String> {
    for (ours, theirs) in recorded.tests.iter().zip(&drawn.tests) {
        let findings = ours.findings.iter().zip(&theirs.findings);
        if let Some((finding, _)) = findings.into_iter().find(|(ours, theirs)| ours != theirs) {
            return Some(format!("clause {} in test {}", finding.clause, ours.id));
        }
        if ours != theirs {
            return Some(format!("test {}", ours.id));
        }
    }
    for (ours, theirs) in recorded.clauses.iter().zip(&drawn.clauses) {
        if ours != theirs {
            return Some(format!("clause {}", ours.id));
        }
    }
    (recorded != drawn).then(|| "the summary".to_owned())
}
