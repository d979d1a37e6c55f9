//! Reading YAML, and errors with the place of what is wrong.

use serde_saphyr::Location;
pub(crate) use serde_saphyr::Spanned;

use crate::TableError;

/// Reads the whole text of a file.
pub(crate) fn read<T: serde::de::DeserializeOwned>(
    file: &str,
    text: &str,
) -> Result<T, TableError> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        let at = e.location();
        TableError {
            file: file.to_owned(),
            line: at.map_or(0, |l| l.line()),
            column: at.map_or(0, |l| l.column()),
            message: e.without_snippet().to_string(),
        }
    })
}

/// An error at the place of a value.
pub(crate) fn error<T>(file: &str, at: &Spanned<T>, message: String) -> TableError {
    let location: Location = at.referenced;
    TableError {
        file: file.to_owned(),
        line: location.line(),
        column: location.column(),
        message,
    }
}

/// [`error`] as a result.
pub(crate) fn fail<T, R>(file: &str, at: &Spanned<T>, message: String) -> Result<R, TableError> {
    Err(error(file, at, message))
}

/// An error of a file as a whole.
pub(crate) fn whole(file: &str, message: String) -> TableError {
    TableError {
        file: file.to_owned(),
        line: 0,
        column: 0,
        message,
    }
}
