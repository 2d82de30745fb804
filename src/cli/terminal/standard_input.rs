//! Standard input, for commands that take what they work on from there.

use std::io::{self, Error, ErrorKind, Stdin};

use rustix::fs::{OFlags, fcntl_getfl, fstat, stat};

/// What the runtime opens in the place of a standard input that the process was begun without: for reading and writing.
/// Whoever means an empty input opens it for reading.
const SUBSTITUTE: &str = "/dev/null";

/// Standard input, if the process was begun with one: a closed one is no empty one, which would be a value.
///
/// # Errors
/// It is closed.
pub(in crate::cli) fn open() -> io::Result<Stdin> {
    let stdin = io::stdin();
    let is_both_ways = fcntl_getfl(&stdin)?.contains(OFlags::RDWR);
    if is_both_ways && fstat(&stdin)?.st_rdev == stat(SUBSTITUTE)?.st_rdev {
        return Err(Error::new(ErrorKind::NotConnected, "it is closed"));
    }
    Ok(stdin)
}
