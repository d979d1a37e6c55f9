//! The one place where YAML is read: strict, with budgets, and errors that show the line.

use serde::de::DeserializeOwned;

/// Reads the `text` of `file` as `T`.
///
/// # Errors
/// A message with file, line, column and the offending line.
pub fn read<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, String> {
    from_str(text).map_err(|message| {
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        // The library names no file, and speaks to programmers of its options.
        let message = message.replace("--> <input>:", &format!("--> {file}:"));
        let message = message.replace(", set DuplicateKeyPolicy in Options if acceptable", "");
        format!("{file}: {message}")
    })
}

/// Reads `text` as `T`.
///
/// # Errors
/// A message with line, column and the offending line.
pub(crate) fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| e.to_string())
}
