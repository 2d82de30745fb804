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
        if self.system || path.strip_prefix(&Path::system_root()).is_none() {
            return Ok(());
        }
        Err(CliError::Usage(format!(
            "{} belongs to the system (`:n`), so nothing was changed; users are changed by `user`, logins by `auth`, access \
             lists by `acl`, types by `type` and `match`, preferred nodes by `shards prefer`; --system sets other values there",
            shown_path(path)
        )))
    }

    /// Whether it was said.
    pub(super) fn is_given(&self) -> bool {
        self.system
    }
}
