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
use crate::model::value::write::{write_bin, write_str};
use crate::model::value::{SkipError, Value, ValueError};
use crate::protocol::json::{JsonError, value_from_text};

/// Longest JSON text that is read. JSON is longer than the MessagePack that it becomes, with
/// escapes and base64 several times so.
const TEXT_BYTES_MAX: usize = 8 * VALUE_BYTES_MAX;
/// Bytes that MessagePack has before a long string, or byte string.
const HEAD_BYTES: usize = 5;
/// So many are left for the string.
const STRING_BYTES_MOST: usize = VALUE_BYTES_MAX - HEAD_BYTES;

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
            let place = file.display().to_string();
            let bytes = read_value(file, VALUE_BYTES_MAX)?;
            return Value::new(&bytes).map_err(|error| unusable(&place, error));
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
            return Value::new(&out).map_err(|error| unusable("the value", error));
        }
        parse_json(&text, "the value").map_err(CliError::Usage)
    }
}

/// The value that a JSON text says; `what` names it in the error.
pub(super) fn parse_json(text: &str, what: &str) -> Result<Value, String> {
    value_from_text(without_mark(text)).map_err(|error| match error {
        JsonError::Syntax(ref syntax) if syntax.is_key_twice() => {
            format!("{what} is {error}")
        }
        JsonError::Syntax(_) => {
            format!("{what} is {error}. For a string, use quotes, as in '\"text\"', or --string")
        }
        JsonError::TooLarge => too_long(what),
        _ => format!("{what} cannot be stored: {error}"),
    })
}

/// A file's bytes, as a byte string.
pub(super) fn read_byte_string(file: &FilePath) -> Result<Value, CliError> {
    let bytes = read_value(file, STRING_BYTES_MOST)?;
    let mut out = Vec::with_capacity(bytes.len() + HEAD_BYTES);
    write_bin(&bytes, &mut out);
    Value::new(&out).map_err(|error| unusable(&file.display().to_string(), error))
}

/// Bytes that are the value, or are to be in it.
fn read_value(file: &FilePath, bytes_max: usize) -> Result<Vec<u8>, CliError> {
    let (place, opened) = open_input(file);
    let bytes = read_one_more(&place, opened, bytes_max)?;
    if bytes.len() > bytes_max {
        return Err(CliError::Usage(too_long(&place)));
    }
    Ok(bytes)
}

/// Why bytes are no value; `what` names them.
fn unusable(what: &str, error: ValueError) -> CliError {
    CliError::Usage(match error {
        ValueError::Skip(SkipError::TooLarge { .. }) => too_long(what),
        error => format!("{what}: {error}"),
    })
}

/// That a value is longer than any may be, in the same words wherever that is noticed.
fn too_long(what: &str) -> String {
    format!(
        "{what} is too long: encoded as MessagePack, a value has at most {VALUE_BYTES_MAX} bytes, so a string or byte \
         string has at most {STRING_BYTES_MOST}"
    )
}

/// Reads a value as JSON, for options.
pub(in crate::cli) fn parse_json_option(text: &str) -> Result<Value, String> {
    value_from_text(text)
        .map_err(|error| format!("{error}; a string needs quotes, as in '\"text\"'"))
}

/// Reads all of a file, or of standard input.
pub(in crate::cli) fn read_input(file: &FilePath, bytes_max: usize) -> Result<Vec<u8>, CliError> {
    let (place, opened) = open_input(file);
    read_bounded(&place, opened, bytes_max)
}

/// A file, or standard input; and what it is called.
fn open_input(file: &FilePath) -> (String, io::Result<Box<dyn Read>>) {
    match file.to_str() {
        Some("-") => {
            let opened = standard_input::open().map(|input| Box::new(input) as Box<dyn Read>);
            (String::from("standard input"), opened)
        }
        _ => {
            let opened = standard_input::take(file).and_then(|()| File::open(file));
            let opened = opened.map(|file| Box::new(file) as Box<dyn Read>);
            (file.display().to_string(), opened)
        }
    }
}

/// Reads all of what was opened; `place`: what it is called.
pub(in crate::cli) fn read_bounded(
    place: &str,
    opened: io::Result<impl Read>,
    bytes_max: usize,
) -> Result<Vec<u8>, CliError> {
    let bytes = read_one_more(place, opened, bytes_max)?;
    if bytes.len() > bytes_max {
        return Err(CliError::Usage(format!("{place} is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Reads all, or one byte more than allowed, which shows that there is too much.
fn read_one_more(
    place: &str,
    opened: io::Result<impl Read>,
    bytes_max: usize,
) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let limit = bytes_max as u64 + 1;
    opened
        .and_then(|opened| opened.take(limit).read_to_end(&mut bytes))
        .map_err(|error| CliError::Failure(format!("cannot read {place}: {error}")))?;
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
