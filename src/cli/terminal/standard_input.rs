//! Standard input, for commands that take what they work on from there.

use std::io::{self, Error, ErrorKind, Stdin};
use std::path::Path;

use distkv_command::given::take_stdin;
use distkv_command::output::is_substitute;

/// Standard input, if the process was begun with one: a closed one is no empty one, which would be a value.
///
/// # Errors
/// It is closed, or looks like that ([`is_substitute`]), or was read already for an option that says how to work.
pub(in crate::cli) fn open() -> io::Result<Stdin> {
    let stdin = io::stdin();
    take(Path::new("-"))?;
    if is_substitute(&stdin) {
        let why = "it is closed, or it is /dev/null, opened for writing, too; `</dev/null` for an empty one";
        return Err(Error::new(ErrorKind::NotConnected, why));
    }
    Ok(stdin)
}

/// Says that the command reads this file as its input: it may be standard input by another name.
///
/// # Errors
/// It is, and was read already for an option that says how to work.
pub(in crate::cli) fn take(file: &Path) -> io::Result<()> {
    take_stdin("the command's input", file)
}
