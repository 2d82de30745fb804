//! What becomes of a watch when its client's rights change while it runs.
//!
//! Where they shrink, nothing is told: what changes there is passed over, but deletions are kept ([`Withheld`]). Where
//! they grow, the client has not been told what they show now, or only as it was before: it gets what is there, and what
//! has gone. What could be read all the time is not sent again.

use std::sync::Arc;

use super::tree::EntryStyle;
use super::walk::{Include, Look, ScopeWalk};
use super::withheld::Withheld;
use super::{Emit, Garbage, Progress};
use crate::hub::Hub;
use crate::hub::client_memory::Account;
use crate::hub::inbox::Inbox;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::replica::Committed;
use crate::replica::watch::{WatchId, WatchScope};
use crate::server::access::sight::Sight;

/// See the module.
#[derive(Default)]
pub(super) struct Growth {
    /// The client's rights have grown, and it was not sent yet what they show.
    before: Option<Before>,
    /// The same, to be sent when so many items that wait in the inbox, which are older, have been.
    next: Option<(usize, Shown)>,
    /// Of a client that could read more at some time than later.
    withheld: Option<Withheld>,
}

/// What a client could read before its rights grew.
enum Before {
    /// What these rights show.
    By(Sight),
    /// That is not known any more: perhaps nothing.
    Unknown,
}

/// What a client may read now and could not before.
pub(super) struct Shown {
    /// What has gone.
    deletions: std::vec::IntoIter<Committed>,
    /// What is there.
    walk: ScopeWalk,
    /// Whether the client was told that it follows.
    is_announced: bool,
}

impl Growth {
    /// The client's rights are others than before. `starts_over`: the watch has overflowed, and tells what it has missed.
    pub(super) fn on_rights(
        &mut self,
        (before, now): (Sight, &Sight),
        starts_over: bool,
        withheld: impl FnOnce() -> Withheld,
    ) {
        if before.may_show_more(now) {
            let withheld = self.withheld.get_or_insert_with(withheld);
            if starts_over {
                // Tombstones may be among what it passes over.
                withheld.give_up();
            }
        }
        if now.may_show_more(&before) {
            // What a walk that has begun comes to, it tells by the rights of that moment. So what is missing is what those
            // before did not show.
            self.before = match self.before {
                None => Some(Before::By(before)),
                Some(_) => Some(Before::Unknown),
            };
        }
    }

    /// A change was passed over.
    pub(super) fn note_passed_over(&mut self, change: &Committed) {
        if let Some(withheld) = &mut self.withheld {
            withheld.note(change);
        }
    }

    /// The watch has overflowed, and starts over by itself.
    pub(super) fn on_overflow(&mut self) -> Option<Garbage> {
        if let Some(withheld) = &mut self.withheld {
            withheld.give_up();
        }
        let (_, shown) = self.next.take()?;
        // It is older than what the watch starts over from.
        self.before = Some(Before::Unknown);
        shown.discard()
    }

    /// How many items in the inbox come before what the rights show, which is [`Self::take`] then; none if they show
    /// nothing new. All that was taken from the inbox is told.
    ///
    /// # Errors
    /// What has gone is not known any more: the stream ends.
    pub(super) fn look(
        &mut self,
        hub: &Hub,
        (id, inbox): (WatchId, &Inbox),
        (scope, sight): (&WatchScope, &mut Sight),
        account: &Arc<Account>,
    ) -> Result<Option<usize>, ClientError> {
        if self.next.is_none()
            && self.before.is_some()
            // A watch that overflowed starts over first.
            && let Some((tree, older)) = hub.look_again(id, inbox)
        {
            let deletions = match &self.withheld {
                None => Vec::new(),
                Some(withheld) => withheld.shown(&tree, sight).ok_or_else(forgotten)?,
            };
            let before = match self.before.take() {
                Some(Before::By(sight)) => Some(sight),
                Some(Before::Unknown) | None => None,
            };
            let pin = account.pin(tree.memory_bytes());
            let walk = ScopeWalk::new(&tree, scope.clone(), Include::Hidden(before));
            let (deletions, walk) = (deletions.into_iter(), walk.pinned_by(pin));
            self.next = Some((older, Shown { deletions, walk, is_announced: false }));
        }
        Ok(self.next.as_ref().map(|(older, _)| *older))
    }

    /// So many items of the inbox were taken.
    pub(super) fn note_taken(&mut self, items: usize) {
        if let Some((older, _)) = &mut self.next {
            *older = older.saturating_sub(items);
        }
    }

    /// What the rights show, once all that is older is told.
    pub(super) fn take(&mut self) -> Option<Shown> {
        self.next.take_if(|(older, _)| *older == 0).map(|(_, shown)| shown)
    }

    /// All of it was told.
    pub(super) fn on_told(&mut self, sight: &mut Sight) {
        // If the rights have grown again, some that are shown now were not, and are told next.
        if let Some(withheld) = &mut self.withheld
            && self.before.is_none()
        {
            withheld.forget_shown(sight);
        }
    }

    /// Whether a snapshot waits.
    pub(super) fn holds_snapshot(&self) -> bool {
        self.next.is_some()
    }

    /// The stream ends.
    pub(super) fn discard(self) -> Option<Garbage> {
        self.next.and_then(|(_, shown)| shown.discard())
    }
}

impl Shown {
    /// Writes the next of it. Finished if there is nothing more. `announces`: a state says before the first that it
    /// follows.
    pub(super) fn next(
        &mut self,
        announces: bool,
        (style, sight): (&mut EntryStyle, &mut Sight),
        emit: &mut Emit<'_>,
    ) -> Progress {
        while let Some(deletion) = self.deletions.as_slice().first() {
            if !sight.shows(&deletion.path) {
                drop(self.deletions.next());
                continue;
            }
            if self.is_announcement(announces) {
                emit.state("restart");
            } else if let Some(deletion) = self.deletions.next() {
                style.write_change(&deletion, emit);
            }
            return Progress::Wrote;
        }
        match self.walk.next(sight) {
            Look::Item(item) => {
                if self.is_announcement(announces) {
                    self.walk.put_back(item);
                    emit.state("restart");
                } else {
                    style.write(&item, emit);
                }
                Progress::Wrote
            }
            Look::Busy => Progress::Searched,
            Look::End => Progress::Finished,
        }
    }

    fn is_announcement(&mut self, announces: bool) -> bool {
        !std::mem::replace(&mut self.is_announced, true) && announces
    }

    /// The client's rights are others than before.
    pub(super) fn check_again(&mut self, sight: &mut Sight) {
        self.walk.check_again(sight);
    }

    /// Gives up the snapshot.
    pub(super) fn discard(self) -> Option<Garbage> {
        self.walk.discard()
    }
}

/// What a client receives if it may read again where it could not, and its watch does not know what has gone there.
fn forgotten() -> ClientError {
    let text = "this watch may read again where it could not, and more entries were deleted there meanwhile than are \
                remembered for it; start the watch again, with 'fetch'";
    ClientError::new(ErrorCode::TooSlow, text)
}
