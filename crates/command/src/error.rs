//! What a command ends with when it does not end well, and which exit code that is.

use std::io::{self, Write as _};

use clap::error::ErrorKind;
use distkv_client::{CallError, ClientError, ServerError};

/// The exit code of a command that did what it was asked.
pub const EXIT_OK: u8 = 0;
/// The exit code of a command that failed, of a `get` that found nothing, of a `status` that is
/// not ready, of a `wait` that timed out.
pub const EXIT_FAILURE: u8 = 1;
/// The exit code of a command line, a configuration file, a path or a value that makes no sense.
pub const EXIT_USAGE: u8 = 2;

/// The exit code of a node that its network refuses for good: starting it again does not help.
pub const EXIT_REFUSED: u8 = 3;

/// The exit code of a node that has found a defect of its own: a broken invariant, or any other panic.
/// It can be started again.
pub const EXIT_BROKEN: u8 = 4;

/// The exit code of a `bench` that SIGINT or SIGTERM ended: 128 and the number of SIGINT, as shells
/// have it.
pub const EXIT_INTERRUPTED: u8 = 130;

/// Why a command did not end well. Each text is one line: what, where, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CliError {
    /// What was typed makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It could not be done.
    #[error("{0}")]
    Failure(String),
    /// The node's network does not take it, and will not unless somebody changes something.
    #[error("{0}")]
    Refused(String),
    /// It failed, and what there is to say was printed already.
    #[error("")]
    Told,
    /// It was interrupted, and has tidied up.
    #[error("interrupted")]
    Interrupted,
    /// Whoever read the output has gone. That is for it to decide, so it is no failure.
    #[error("the output is closed")]
    OutputClosed,
}

impl CliError {
    /// The exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage(_) => EXIT_USAGE,
            CliError::Failure(_) | CliError::Told => EXIT_FAILURE,
            CliError::Refused(_) => EXIT_REFUSED,
            CliError::Interrupted => EXIT_INTERRUPTED,
            CliError::OutputClosed => EXIT_OK,
        }
    }

    /// Prints what there is to say to standard error, if there is one. Gives the exit code.
    pub fn tell(&self) -> u8 {
        match self {
            CliError::Usage(text) | CliError::Failure(text) | CliError::Refused(text) => {
                tell(&format!("error: {text}\n"));
            }
            CliError::Told | CliError::Interrupted | CliError::OutputClosed => {}
        }
        self.exit_code()
    }

    /// For an error of writing to standard output.
    pub fn of_output(error: &io::Error) -> CliError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::OutputClosed,
            _ => CliError::Failure(format!("cannot write to standard output: {error}")),
        }
    }
}

/// Prints help, the version, or what is wrong with the options. Gives the exit code.
pub fn explain(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nobody may be reading.
            let _ = error.print();
            EXIT_OK
        }
        ErrorKind::ValueValidation => {
            // Its first line says it all: what, where, and what to write instead.
            let text = error.render().to_string();
            tell(&format!("{}\n", text.lines().next().unwrap_or_default()));
            EXIT_USAGE
        }
        _ => {
            let _ = error.print();
            EXIT_USAGE
        }
    }
}

fn tell(text: &str) {
    // There may be no standard error.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// What a node says, for people. An error about a change that was made is no refusal.
fn told(error: &ServerError) -> String {
    let code = error.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
    let is_made = error.text.starts_with("the change is made");
    let refuses = if is_made { "" } else { "the node refuses: " };
    format!("{refuses}{}{code}", error.text)
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> CliError {
        CliError::Failure(match &error {
            ClientError::Connect { .. } => {
                format!("{error}; start a node with `run`, or name another one with --connect")
            }
            ClientError::Resolve { .. } => {
                format!("{error}; check its spelling, or the name service")
            }
            ClientError::Protocol { .. } => {
                format!("{error}; --connect takes a node's client port (default 27586)")
            }
            ClientError::Server(server) if server.has_code("auth_required") => {
                format!("{}; log in with --key, or --user and --secret-file", told(server))
            }
            ClientError::Server(server) => told(server),
            ClientError::NoAccess { .. }
            | ClientError::Lost { .. }
            | ClientError::TooLarge(_)
            | ClientError::Busy(_) => error.to_string(),
        })
    }
}

impl From<CallError> for CliError {
    fn from(error: CallError) -> CliError {
        match &error {
            CallError::Refused { error: server, at } => {
                CliError::Failure(format!("{} {at}", told(server)))
            }
            CallError::Unavailable { error: ClientError::Connect { .. }, .. } => CliError::Failure(
                format!("{error}; --connect names the nodes that are tried first"),
            ),
            _ => CliError::Failure(error.to_string()),
        }
    }
}
