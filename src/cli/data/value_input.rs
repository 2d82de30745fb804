//! The value that a command takes: JSON on the command line or from standard input, or
//! MessagePack from a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path as FilePath, PathBuf};

use clap::Args;

use crate::cli::error::CliError;
use crate::cli::files::read::without_mark;
use crate::cli::terminal::standard_input;
use crate::model::limits::VALUE_BYTES_MAX;
use crate::model::value::Value;
use crate::model::value::write::write_str;
use crate::protocol::json::{JsonError, value_from_text};

/// Longest JSON text that is read. JSON is longer than the MessagePack that it becomes, with
/// escapes and base64 several times so.
const TEXT_BYTES_MAX: usize = 8 * VALUE_BYTES_MAX;

/// Where the value is.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct ValueArgs {
    /// The value, as JSON; '-' reads it from standard input
    #[arg(value_name = "VALUE", allow_negative_numbers = true, conflicts_with = "msgpack")]
    value: Option<String>,

    /// Take VALUE as a string, as it stands, not as JSON
    #[arg(short, long, conflicts_with = "msgpack")]
    string: bool,

    /// Take the value from a file with one MessagePack value; '-' is standard input
    #[arg(long, value_name = "FILE")]
    msgpack: Option<PathBuf>,
}

impl ValueArgs {
    /// Reads the value.
    pub(in crate::cli) fn read(&self) -> Result<Value, CliError> {
        if let Some(file) = &self.msgpack {
            let bytes = read_input(file, VALUE_BYTES_MAX)?;
            let place = file.display();
            return Value::new(&bytes).map_err(|e| CliError::Usage(format!("{place}: {e}")));
        }
        let text = match self.value.as_deref() {
            Some("-") => read_text()?,
            Some(text) => text.to_owned(),
            None => {
                let text = "the value is missing; give one as JSON, '-' for standard input, or a file with --msgpack or --raw-file";
                return Err(CliError::Usage(text.to_owned()));
            }
        };
        if self.string {
            let mut out = Vec::new();
            write_str(&text, &mut out);
            return Value::new(&out).map_err(|error| CliError::Usage(error.to_string()));
        }
        parse_json(&text, "the value").map_err(CliError::Usage)
    }
}

/// The value that a JSON text says; `what` names it in the error.
pub(super) fn parse_json(text: &str, what: &str) -> Result<Value, String> {
    value_from_text(without_mark(text)).map_err(|error| match error {
        JsonError::Syntax(ref text) if text.contains("is there twice") => {
            format!("{what} is {error}")
        }
        JsonError::Syntax(_) => {
            format!("{what} is {error}. For a string, use quotes, as in '\"text\"', or --string")
        }
        _ => format!("{what} cannot be stored: {error}"),
    })
}

/// Reads a value as JSON, for options.
pub(in crate::cli) fn parse_json_option(text: &str) -> Result<Value, String> {
    value_from_text(text)
        .map_err(|error| format!("{error}; a string needs quotes, as in '\"text\"'"))
}

/// Reads all of a file, or of standard input.
pub(in crate::cli) fn read_input(file: &FilePath, bytes_max: usize) -> Result<Vec<u8>, CliError> {
    match file.to_str() {
        Some("-") => read_bounded("standard input", standard_input::open(), bytes_max),
        _ => {
            let opened = standard_input::take(file).and_then(|()| File::open(file));
            read_bounded(&file.display().to_string(), opened, bytes_max)
        }
    }
}

/// Reads all of what was opened; `place`: what it is called.
pub(in crate::cli) fn read_bounded(
    place: &str,
    opened: io::Result<impl Read>,
    bytes_max: usize,
) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    // One byte more than allowed shows that there is too much.
    let limit = bytes_max as u64 + 1;
    opened
        .and_then(|opened| opened.take(limit).read_to_end(&mut bytes))
        .map_err(|error| CliError::Failure(format!("cannot read {place}: {error}")))?;
    if bytes.len() > bytes_max {
        return Err(CliError::Failure(format!("{place} is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// All of standard input, as text.
fn read_text() -> Result<String, CliError> {
    let bytes = read_input(FilePath::new("-"), TEXT_BYTES_MAX)?;
    let text = String::from_utf8(bytes);
    text.map_err(|_| {
        let text = "standard input is not UTF-8 text, so it is neither JSON nor a string; bytes can \
                    be stored with --raw-file";
        CliError::Usage(text.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_without_quotes_is_told_what_it_lacks() {
        let error = parse_json("hello", "the value").unwrap_err();
        assert!(error.contains("quotes"), "{error}");
        assert_eq!(parse_json("\"hello\"", "the value").unwrap().as_bytes(), b"\xa5hello");
    }

    #[test]
    fn a_file_longer_than_allowed_is_not_read_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"12345").unwrap();
        assert_eq!(read_input(file.path(), 5).unwrap(), b"12345");
        assert!(read_input(file.path(), 4).is_err());
        assert!(read_input(FilePath::new("/no/such/file"), 4).is_err());
    }
}
