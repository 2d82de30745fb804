//! Errors of what may have been done: where that is out of the question, and how to go on where it is not.

use super::{CliError, Outcome};

impl CliError {
    /// Of a request that changes nothing: there is nothing that may have been done.
    #[must_use]
    pub fn of_read(self) -> CliError {
        match self {
            CliError::Request { outcome: Outcome::UnknownFate, code, text } => {
                CliError::Request { outcome: Outcome::Unreachable, code, text }
            }
            other => other,
        }
    }

    /// Whether it is a request that may have been done.
    #[must_use]
    pub fn may_have_been_done(&self) -> bool {
        matches!(self, CliError::Request { outcome: Outcome::UnknownFate, .. })
    }

    /// Of a change that may have been done, it also says how to go on.
    #[must_use]
    pub fn in_doubt(self, how: impl FnOnce() -> String) -> CliError {
        match self {
            CliError::Request { outcome: outcome @ Outcome::UnknownFate, code, text } => {
                CliError::Request { outcome, code, text: format!("{text}; {}", how()) }
            }
            other => other,
        }
    }
}
