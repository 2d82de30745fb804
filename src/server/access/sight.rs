//! Whether what a client has asked for may go on, and what a stream may show of the data, entry by entry: looked up in the
//! client's rights of the moment, so that what is revoked while a stream runs is not sent any more.

use std::sync::Arc;

use distkv_access::acl::{Letters, Rights, Walk};

use super::Access;
use super::authorise::{Target, authorise};
use super::denial::words;
use super::mistakes::Mistake;
use crate::model::path::Path;
use crate::protocol::client::{Action, ClientError, ErrorCode};

/// Whether a client may still do what it could when it asked for it: to be called with its rights of the moment, before
/// each message of a stream, and before an answer that comes later.
///
/// # Errors
/// `denied`: it may not.
pub(in crate::server) fn authorise_still(
    access: &Access,
    action: Action,
    target: Target<'_>,
) -> Result<(), ClientError> {
    if authorise(access, action, target, |_| true).is_ok() {
        return Ok(());
    }
    let what = match target.path() {
        Some(path) => format!("to {}", words(action, &path)),
        None => format!("with '{}'", action.name()),
    };
    let who = access.who();
    let text = format!("{who} may not continue {what}: the access list, or the user, was changed");
    Err(ClientError::new(ErrorCode::Denied, text))
}

/// What an entry needs to be shown, besides that all which lead there may be passed.
#[derive(Clone, Copy, Debug)]
enum Need {
    /// To be readable.
    Read,
    /// The same, and that what leads there, from so many elements on, may be listed.
    Listed(usize),
    /// To be deletable.
    Delete,
}

/// See the module. A client that may do everything costs nothing here.
#[derive(Debug)]
pub(crate) struct Sight {
    action: Action,
    top: Path,
    need: Need,
    /// None: everything is shown.
    walk: Option<Walk>,
}

impl Sight {
    /// For a stream of `get_tree`, `watch`, `conflicts` or `delete_tree` (or their internal forms) about a whole
    /// path. It shows everything until it is refreshed.
    #[must_use]
    pub(crate) fn new(action: Action, top: Path) -> Self {
        let need = match action {
            Action::GetTree | Action::GetTreeInternal => Need::Listed(top.len()),
            Action::DeleteTree => Need::Delete,
            _ => Need::Read,
        };
        Self { action, top, need, walk: None }
    }

    /// Takes the client's rights of this moment; to be called before anything is shown in a turn. Returns
    /// how it was before, if the rights are others now.
    ///
    /// # Errors
    /// The client has lost the right to what it asked for: the stream ends.
    pub(crate) fn refresh(&mut self, access: &Access) -> Result<Option<Self>, ClientError> {
        if access.rights.is_everything() || access.makes(Mistake::Each(self.action)) {
            return Ok(self.walk.take().map(|walk| self.by(Some(walk))));
        }
        if let Some(walk) = &self.walk
            && Arc::ptr_eq(walk.rights(), &access.rights)
            && !access.is_stranger()
        {
            return Ok(None);
        }
        let (action, target) = self.asks();
        authorise_still(access, action, target)?;
        let before = self.walk.replace(Walk::new(Arc::clone(&access.rights)));
        Ok(Some(self.by(before)))
    }

    /// The same stream's, by other rights.
    fn by(&self, walk: Option<Walk>) -> Self {
        Self { action: self.action, top: self.top.clone(), need: self.need, walk }
    }

    /// Whether it perhaps shows something that another one of the same stream does not: true may be wrong, false
    /// never is.
    pub(crate) fn may_show_more(&self, other: &Self) -> bool {
        match (&self.walk, &other.walk) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(walk), Some(other)) => {
                walk.rights().may_show_more(other.rights(), self.top.as_bytes())
            }
        }
    }

    /// What was asked for.
    #[must_use]
    pub(in crate::server) fn asks(&self) -> (Action, Target<'_>) {
        (self.action, Target::Path(self.top.as_bytes()))
    }

    /// The whole path that the stream is about.
    #[must_use]
    pub(in crate::server) fn top(&self) -> &Path {
        &self.top
    }

    /// Nothing is asked for a while: what can be made again is not kept.
    pub(crate) fn rest(&mut self) {
        self.walk.iter_mut().for_each(Walk::rest);
    }

    /// Whether everything is shown.
    #[must_use]
    pub(crate) fn is_everything(&self) -> bool {
        self.walk.is_none()
    }

    /// Whether the entry at a whole path may be shown.
    pub(crate) fn shows(&mut self, path: &Path) -> bool {
        let Some(walk) = &mut self.walk else { return true };
        walk.go(path.as_bytes());
        walk.is_open()
            && match self.need {
                Need::Read => walk.letters().has(Letters::READ),
                Need::Listed(from) => walk.letters().has(Letters::READ) && walk.is_listed(from),
                Need::Delete => walk.letters().has(Letters::DELETE),
            }
    }

    /// A place above a whole path, or the path itself, below which nothing is shown whatever is there: a walk
    /// may pass over all of that. None if there is none, and if it must not be passed over.
    pub(crate) fn closed_at(&mut self, path: &Path) -> Option<Path> {
        let walk = self.walk.as_mut()?;
        let listing_from = match self.need {
            Need::Read => None,
            Need::Listed(from) => Some(from),
            // What stays must be known.
            Need::Delete => return None,
        };
        walk.go(path.as_bytes());
        walk.closed_at(listing_from).map(|elements| path.prefix(elements))
    }
}

/// Whether values may be read at a whole path that may be reached; for what is told of changes that are made
/// without reading.
#[must_use]
pub(crate) fn reads_at(rights: &Rights, path: &Path) -> bool {
    rights.is_everything() || rights.letters(path.as_bytes()).has(Letters::READ)
}
