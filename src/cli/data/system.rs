//! Changes of what belongs to the system, below `:n`: refused, unless it was said that they are meant. What is there decides
//! who may do what, and which values may stand where; a mistyped path should not.

use clap::Args;

use crate::cli::error::CliError;
use crate::cli::terminal::output::shown_path;
use crate::model::path::Path;

/// Whether a change below `:n` is meant.
#[derive(Debug, Clone, Args)]
pub(super) struct SystemArgs {
    /// Also below `:n`, where users, access lists and types are: they have commands of their own
    #[arg(long)]
    system: bool,
}

impl SystemArgs {
    /// To be asked before anything is sent.
    ///
    /// # Errors
    /// The path belongs to the system, and that was not said to be right.
    pub(super) fn check(&self, path: &Path) -> Result<(), CliError> {
        match self.refuses(path) {
            false => Ok(()),
            true => Err(CliError::Usage(format!("{}; {ANYWAY}", refusal(path)))),
        }
    }

    /// The same of one of many, where others may have been changed before.
    ///
    /// # Errors
    /// The path belongs to the system, and that was not said to be right.
    pub(super) fn check_one(&self, path: &Path) -> Result<(), String> {
        match self.refuses(path) {
            false => Ok(()),
            true => Err(format!("it {BELONGS}; {OWN_COMMANDS}; {ANYWAY}")),
        }
    }

    fn refuses(&self, path: &Path) -> bool {
        !self.system && path.is_system()
    }

    /// Whether it was said.
    pub(super) fn is_given(&self) -> bool {
        self.system
    }
}

const BELONGS: &str = "belongs to the system (`:n`)";
const OWN_COMMANDS: &str = "users are changed by `user`, logins by `auth`, access lists by `acl`, types by `type` and \
                            `match`, preferred nodes by `shards prefer`";
const ANYWAY: &str = "--system makes other changes there";

/// Why a command changes nothing there. Some do so whatever is said to be meant.
pub(super) fn refusal(path: &Path) -> String {
    format!("{} {BELONGS}, so nothing was changed; {OWN_COMMANDS}", shown_path(path))
}
