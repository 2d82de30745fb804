//! The hook through which everything passes that a client asks for. Authorisation comes with a
//! later version; until then everybody may do everything.

use crate::model::path::bytes;
use crate::protocol::client::{Action, ClientError, ErrorCode};

/// The session's answer is no. Nothing was done.
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

/// Whether a session may do something at a whole path (in canonical bytes, the session's root
/// included; none for what concerns the node and not the tree).
///
/// # Errors
/// It may not.
pub fn authorise(identity: &Identity, action: Action, path: Option<&[u8]>) -> Result<(), Denied> {
    let Identity {} = identity;
    debug_assert!(path.is_none_or(|p| p.is_empty() || bytes::count_elements(p) > 0));
    let _ = action;
    Ok(())
}
