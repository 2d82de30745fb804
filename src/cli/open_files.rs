//! How many files this process may open at once.

use rustix::process::{Resource, getrlimit};

use super::error::CliError;

/// With fewer, neither the asynchronous runtime nor a connection can be had: standard streams, the runtime's
/// own three, a connection, a file, and some to spare.
const OPEN_FILES_MIN: u64 = 16;

/// Lets the process open as many files as the system allows.
pub(super) fn raise() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!("cannot raise the limit on open files: {error}");
    }
}

/// Raises a limit that is too low for any command, where the system allows that.
///
/// # Errors
/// It does not.
pub(super) fn require() -> Result<(), CliError> {
    let now = || getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if now() < OPEN_FILES_MIN {
        // What has come of it is looked at.
        let _ = rlimit::increase_nofile_limit(OPEN_FILES_MIN);
    }
    let now = now();
    if now < OPEN_FILES_MIN {
        return Err(CliError::Failure(format!(
            "this process may open only {now} files at once, and needs {OPEN_FILES_MIN}; raise the limit \
             (ulimit -n)"
        )));
    }
    Ok(())
}
