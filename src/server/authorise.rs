//! The hook through which everything passes that a client asks for. Authorisation comes with a
//! later version; until then everybody may do everything.

use crate::protocol::client::{Action, ClientError, ErrorCode};

/// The answer is no. Nothing was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// What was asked for.
    pub action: Action,
}

impl From<Denied> for ClientError {
    fn from(denied: Denied) -> Self {
        Self::new(ErrorCode::Denied, format!("this session may not '{}'", denied.action.name()))
    }
}

/// Who asks: what authorisation will decide by. There is nothing to know yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {}

/// Whether somebody may do something at a whole path, in canonical bytes: in the tree, with the
/// session's root included, or a message's topic; none for what concerns the node as a whole.
///
/// # Errors
/// They may not.
pub fn authorise(
    _identity: &Identity,
    _action: Action,
    _path: Option<&[u8]>,
) -> Result<(), Denied> {
    Ok(())
}
