//! What can go wrong while a result is rendered.

use thiserror::Error;

/// A library refused to write a result: a fault of this crate, since every result can be rendered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot write the result as {format}: {message}")]
pub struct RenderError {
    /// The format.
    pub format: &'static str,
    /// What the library said.
    pub message: String,
}
