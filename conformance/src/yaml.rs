//! The one place where YAML is read: strict, with budgets, and errors that show the line.

use serde::de::DeserializeOwned;

/// Reads `text` as `T`.
///
/// # Errors
/// A message with line, column and the offending line.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| e.to_string())
}
