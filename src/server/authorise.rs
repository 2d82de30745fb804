//! The hook that every request passes. Authorisation is not implemented yet; until then every
//! client may do everything.

use crate::protocol::client::{Action, ClientError, ErrorCode};

/// The answer is no. Nothing was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// The kind of access.
    pub action: Action,
}

impl From<Denied> for ClientError {
    fn from(denied: Denied) -> Self {
        Self::new(ErrorCode::Denied, format!("this session may not '{}'", denied.action.name()))
    }
}

/// The client, on whom authorisation will depend. Nothing is known of it yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {}

/// Whether a client may access a whole path, in canonical bytes: in the tree, with the session's
/// root included, or a message's topic; none for requests that concern the node as a whole.
///
/// # Errors
/// It may not.
pub(crate) fn authorise(
    _identity: &Identity,
    _action: Action,
    _path: Option<&[u8]>,
) -> Result<(), Denied> {
    Ok(())
}
