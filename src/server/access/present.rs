//! Who is connected: so that a connection ends when its client may do nothing any more, also if it is idle,
//! or does not read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use parking_lot::Mutex;

use super::Identity;
use crate::hub::client_memory::Account;
use crate::rt;
use crate::server::Shared;

/// Connections are told of the end of a grace this much later: when they look by their own clocks, it is over.
const GRACE_MARGIN: Duration = Duration::from_millis(50);

/// All connections; at most as many as clients may connect.
#[derive(Default)]
pub(in crate::server) struct Present {
    all: Mutex<HashMap<u64, Arc<Guest>>>,
    next: AtomicU64,
}

/// A connection.
struct Guest {
    identity: Mutex<Identity>,
    account: Arc<Account>,
    /// It could do something at some time.
    was_admitted: AtomicBool,
}

impl Present {
    pub(in crate::server) fn add(self: &Arc<Self>, account: Arc<Account>) -> Presence {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let guest = Arc::new(Guest {
            identity: Mutex::default(),
            account,
            was_admitted: AtomicBool::new(false),
        });
        self.all.lock().insert(number, Arc::clone(&guest));
        Presence { present: Arc::clone(self), number, guest }
    }
}

impl Present {
    /// How many could do something at some time, and have not shown who they are.
    pub(in crate::server) fn without_login(&self) -> usize {
        let all = self.all.lock();
        let is_unknown = |guest: &&Arc<Guest>| {
            guest.was_admitted.load(Ordering::Acquire)
                && *guest.identity.lock() == Identity::Unknown
        };
        all.values().filter(is_unknown).count()
    }
}

/// A connection's entry.
pub(in crate::server) struct Presence {
    present: Arc<Present>,
    number: u64,
    guest: Arc<Guest>,
}

impl Presence {
    /// The client has shown who it is.
    pub(in crate::server) fn is(&self, identity: Identity) {
        *self.guest.identity.lock() = identity;
    }

    /// It may do something.
    pub(in crate::server) fn admit(&self) {
        self.guest.was_admitted.store(true, Ordering::Release);
    }

    /// Whether it ever could.
    pub(in crate::server) fn was_admitted(&self) -> bool {
        self.guest.was_admitted.load(Ordering::Acquire)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.present.all.lock().remove(&self.number);
    }
}

/// Closes the connections that may do nothing any more, whenever users or logins change, until the server
/// stops.
pub(in crate::server) async fn shut_out(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.listen();
    loop {
        let changed = shared.hub.policies.changed.listen();
        let closed = shared.hub.closing.changed.listen();
        if shared.is_stopping() {
            return;
        }
        let all = || shared.logins.present.all.lock().values().cloned().collect::<Vec<_>>();
        let guests: Vec<Arc<Guest>> = if shared.must_log_in() { all() } else { Vec::new() };
        for guest in guests {
            let identity = guest.identity.lock().clone();
            if guest.was_admitted.load(Ordering::Acquire)
                && shared.access_of(&identity).is_stranger()
            {
                guest.account.close();
            }
        }
        let grace = shared.grace_ms().map(|left| Duration::from_millis(left) + GRACE_MARGIN);
        let news = async {
            let change = select(changed, closed);
            match grace {
                Some(left) => drop(rt::timeout(left, change).await),
                None => drop(change.await),
            }
        };
        if let Either::Right(_) = select(std::pin::pin!(news), &mut stopping).await {
            return;
        }
    }
}
