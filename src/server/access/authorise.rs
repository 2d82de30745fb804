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
use crate::model::path::{Element, Path};
use crate::protocol::client::Action;

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
        /// What the list lacks.
        lack: Lack,
    },
}

/// What an access list lacks, of all that an action needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    /// One of these letters at the path itself, or of the topic.
    Letters(&'static [Letters]),
    /// `x` on the way to the path, where so many elements lead.
    Way {
        /// How many.
        depth: usize,
    },
    /// `x` or `n` on the way to what is to be set. Where, and which of them, depends on what is there.
    WayOfChange,
    /// `r`, for a change that tells what was there.
    OldValue,
    /// `w`: there is a value, as the client may know.
    Change,
    /// `c`: there is none, as the client may know.
    Creation,
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

impl Target<'_> {
    /// Which path or topic that is; none of the node.
    pub(super) fn path(self) -> Option<Path> {
        match self {
            Self::Node => None,
            Self::Path(path) | Self::Topic(path) => Path::from_canonical(path).ok(),
        }
    }
}

/// Levels of a pattern of topics that stand for any level, or for the rest.
const WILDCARDS: [&str; 2] = ["+", "#"];

/// What a client may do with a topic. Whoever monitors may name a pattern: each message is looked at by itself, so it is enough
/// that there may be one.
fn topic_letters(rights: &Rights, action: Action, target: Target<'_>, topic: &[u8]) -> Letters {
    let is_level = |element: &Element<'_>| !WILDCARDS.map(Element::Str).contains(element);
    if action == Action::MsgMonitor
        && let Some(pattern) = target.path()
    {
        let exact = pattern.prefix(pattern.elements().take_while(is_level).count());
        if exact != pattern {
            let is_dead = rights.topic_at(exact.as_bytes()).is_dead();
            return if is_dead { Letters::NONE } else { Letters::READ };
        }
    }
    rights.topic(topic)
}

/// Those of which a client needs one to set an entry.
pub(crate) const SET_LETTERS: &[Letters] = &[Letters::WRITE, Letters::CREATE];

/// One letter of which an access list must have at the path itself; none where the action itself shows
/// nothing and changes nothing.
fn letters_needed(action: Action) -> &'static [Letters] {
    match action {
        // Which of the two it must be depends on what is there when the change is made.
        Action::SetValue | Action::SetInternal | Action::Update => SET_LETTERS,
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
    let (letters, way) = match target {
        Target::Node => return Ok(()),
        _ if access.rights.is_everything() => return Ok(()),
        Target::Topic(topic) => (topic_letters(&access.rights, action, target, topic), Ok(())),
        Target::Path(path) if access.makes(Mistake::Way) => (access.rights.letters(path), Ok(())),
        Target::Path(path) => {
            (access.rights.letters(path), find_way(&access.rights, action, path, is_there))
        }
    };
    let needed = letters_needed(action);
    if needed.is_empty() || needed.iter().any(|letter| letters.has(*letter)) {
        return way.map_err(|lack| Denied::Path { action, lack });
    }
    // What is missing at the path itself comes first, so that a refusal does not depend on what is on the way.
    match (needed, way) {
        ([Letters::ENUM], Ok(())) => Err(Denied::Listing { action }),
        _ => Err(Denied::Path { action, lack: Lack::Letters(needed) }),
    }
}

fn find_way(
    rights: &Rights,
    action: Action,
    path: &[u8],
    is_there: impl Fn(&Path) -> bool,
) -> Result<(), Lack> {
    // If nothing is made, whether it is there does not show.
    let made = makes_entries(action).then(|| Path::from_canonical(path).ok()).flatten();
    let way =
        rights.way(path, |depth| made.as_ref().is_none_or(|path| is_there(&path.prefix(depth))));
    way.map(drop).map_err(|missing| match made {
        Some(_) => Lack::WayOfChange,
        None => Lack::Way { depth: missing.depth },
    })
}
