//! The hook that every request passes: whether the client's role permits the action, and its access list the
//! path.
//!
//! An access list is asked twice: on the way to the path, `x` of the parent for each element that is there, and
//! `n` for each that a change would make; and at the path itself, the letter of the action. What may not be
//! read looks as if it could be there or not: the answer is the same.

use distkv_access::acl::{Letters, Rights};
use distkv_access::users::{Role, is_before_login, least_role, least_role_at};

use super::Access;
use super::mistakes::Mistake;
use crate::model::path::Path;
use crate::protocol::client::{Action, ClientError, ErrorCode};

/// The answer is no. Nothing was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Denied {
    /// The client has not logged in.
    LoginNeeded,
    /// Its role does not permit the action.
    Role {
        /// The kind of access.
        action: Action,
        /// The least role that does.
        needed: Role,
    },
    /// It may go to this path, and not list what is there: a path below may do.
    Listing {
        /// The kind of access.
        action: Action,
    },
    /// Its access list does not permit the action at this path.
    Path {
        /// The kind of access.
        action: Action,
    },
}

impl From<Denied> for ClientError {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::LoginNeeded => {
                Self::new(ErrorCode::AuthRequired, "log in first; nothing was done")
            }
            Denied::Role { action, needed } => {
                let text = format!(
                    "'{}' needs the role '{needed}', which this session does not have; nothing was done",
                    action.name()
                );
                Self::new(ErrorCode::Denied, text)
            }
            Denied::Listing { action } => {
                let text = format!(
                    "the access list of this session does not permit '{}' here: that needs the letter e at the path \
                     itself; ask for a path below that has it; nothing was done",
                    action.name()
                );
                Self::new(ErrorCode::Denied, text)
            }
            Denied::Path { action } => {
                let text = format!(
                    "the access list of this session does not permit '{}' here; nothing was done",
                    action.name()
                );
                Self::new(ErrorCode::Denied, text)
            }
        }
    }
}

/// What an action is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'p> {
    /// The node as a whole.
    Node,
    /// A whole path, in canonical bytes: the session's root is part of it.
    Path(&'p [u8]),
    /// A message's topic, or a pattern of topics, in canonical bytes.
    Topic(&'p [u8]),
}

/// One letter of which an access list must have at the path itself; none where the action itself shows
/// nothing and changes nothing.
fn letters_needed(action: Action) -> &'static [Letters] {
    match action {
        // Which of the two it must be depends on what is there when the change is made.
        Action::SetValue | Action::SetInternal | Action::Update => {
            &[Letters::WRITE, Letters::CREATE]
        }
        Action::DeleteValue | Action::DeleteInternal | Action::DeleteTree => &[Letters::DELETE],
        Action::GetTree | Action::GetTreeInternal | Action::Enum | Action::EnumInternal => {
            &[Letters::ENUM]
        }
        Action::Watch | Action::Root => &[Letters::PASS],
        Action::MsgSend => &[Letters::WRITE],
        // What they tell is looked at entry by entry.
        Action::Conflicts | Action::TestAcl => &[],
        _ => &[Letters::READ],
    }
}

/// Whether an action makes entries.
fn makes_entries(action: Action) -> bool {
    matches!(action, Action::SetValue | Action::SetInternal | Action::Update)
}

/// Whether a client may do this. `is_there`: whether there is something at, or below, a path; it is asked
/// only where the access list needs it.
///
/// # Errors
/// It may not.
pub(crate) fn authorise(
    access: &Access,
    action: Action,
    target: Target<'_>,
    is_there: impl Fn(&Path) -> bool,
) -> Result<(), Denied> {
    if access.may_everything() {
        return Ok(());
    }
    let needed = match target {
        Target::Path(path) => least_role_at(action, path),
        Target::Node | Target::Topic(_) => least_role(action),
    };
    match access.role {
        None if is_before_login(action) => return Ok(()),
        None => return Err(Denied::LoginNeeded),
        Some(role) if role < needed && !access.makes(Mistake::Action(action)) => {
            return Err(Denied::Role { action, needed });
        }
        Some(_) => {}
    }
    if access.makes(Mistake::Action(action)) {
        return Ok(());
    }
    let letters = match target {
        Target::Node => return Ok(()),
        _ if access.rights.is_everything() => return Ok(()),
        Target::Topic(topic) => access.rights.topic(topic),
        Target::Path(path) => {
            if !access.makes(Mistake::Way) && !way_is_open(&access.rights, action, path, is_there) {
                return Err(Denied::Path { action });
            }
            access.rights.letters(path)
        }
    };
    let needed = letters_needed(action);
    let is_permitted = needed.is_empty() || needed.iter().any(|letter| letters.has(*letter));
    match is_permitted {
        true => Ok(()),
        false if matches!(needed, [Letters::ENUM]) => Err(Denied::Listing { action }),
        false => Err(Denied::Path { action }),
    }
}

fn way_is_open(
    rights: &Rights,
    action: Action,
    path: &[u8],
    is_there: impl Fn(&Path) -> bool,
) -> bool {
    // If nothing is made, whether it is there does not show.
    let made = makes_entries(action).then(|| Path::from_canonical(path).ok()).flatten();
    rights.way(path, |depth| made.as_ref().is_none_or(|path| is_there(&path.prefix(depth)))).is_ok()
}
