//! When the view is asked for anew, because a node is not where it says: another node may know better than the one that is
//! watched.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use event_listener::{Event, EventListener};

use super::Shared;
use crate::rt;

/// For so long a view that has proved wrong is not asked for anew once more: it may be wrong at all nodes.
const ASK_ANEW_AFTER: Duration = Duration::from_secs(10);

/// Whether the view that is watched has proved wrong.
#[derive(Default)]
pub(super) struct Doubts {
    /// From then on it may be asked for anew.
    due: AtomicU64,
    /// Notified when it is to be asked for anew.
    found: Event,
}

impl Doubts {
    /// Becomes ready when the view proves wrong. What was found before this was called counts no more.
    pub(super) fn next(&self) -> EventListener {
        self.found.listen()
    }
}

impl Shared {
    /// Where the view has this node, another one answers. Of a node that is not live, nobody says that it is there.
    pub(super) fn on_misplaced(&self, name: &str) {
        let (now, due) = (rt::now(), self.doubts.due.load(Ordering::Relaxed));
        if now < due || !self.routing().by_name(name).is_some_and(|target| target.is_live) {
            return;
        }
        let next = now.saturating_add(rt::millis(ASK_ANEW_AFTER));
        // Of several calls that find it at once, one is enough.
        let taken =
            self.doubts.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() {
            self.doubts.found.notify(usize::MAX);
        }
    }
}
