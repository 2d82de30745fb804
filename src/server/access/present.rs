//! Who is connected: so that a connection ends when its client may do nothing any more, also if it is idle,
//! or does not read.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use event_listener::Event;
use futures::future::{Either, select};
use parking_lot::Mutex;

use super::Identity;
use crate::hub::client_memory::Account;
use crate::hub::shares::{Holder, Refusal, Shares};
use crate::model::ids::Millis;
use crate::rt;
use crate::server::Shared;
use crate::server::counts::Traffic;

/// Connections are told of the end of a grace this much later: when they look by their own clocks, it is over.
const GRACE_MARGIN: Duration = Duration::from_millis(50);

/// The ends of certificates are looked at this often, as long as there are some: the clock that they are told by can be
/// set, and the one that is waited by can stand still while the machine sleeps.
const ENDS_LOOK_MS: u64 = 60_000;
/// What users have shares of here, in the plural.
pub(in crate::server) const CONNECTIONS: &str = "connections";
/// In the place of an end: there is none.
const NO_END: u64 = u64::MAX;

/// All connections; at most as many as clients may connect.
pub(in crate::server) struct Present {
    all: Mutex<HashMap<u64, Arc<Guest>>>,
    next: AtomicU64,
    /// When the first of their certificates is over that is not yet, by the wall clock, as far as was seen.
    first_end: AtomicU64,
    /// That has become earlier.
    sooner: Event,
    /// Which users those of the client port are, that have logged in.
    shares: Mutex<Shares>,
}

/// A connection.
pub(in crate::server) struct Guest {
    identity: Mutex<Identity>,
    about: About,
    /// Whether the connection is one by TLS.
    is_in_tls: AtomicBool,
    /// When the certificate is over that says who it is, by the wall clock.
    ends_at: AtomicU64,
    /// It could do something at some time.
    was_admitted: AtomicBool,
}

impl Present {
    /// `max`: as many clients may connect.
    pub(in crate::server) fn new(max: usize) -> Self {
        Self {
            all: Mutex::default(),
            next: AtomicU64::default(),
            first_end: AtomicU64::new(NO_END),
            sooner: Event::new(),
            shares: Mutex::new(Shares::new(max)),
        }
    }

    pub(in crate::server) fn add(self: &Arc<Self>, about: About) -> Presence {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let guest = Arc::new(Guest {
            identity: Mutex::default(),
            about,
            is_in_tls: AtomicBool::new(false),
            ends_at: AtomicU64::new(NO_END),
            was_admitted: AtomicBool::new(false),
        });
        self.all.lock().insert(number, Arc::clone(&guest));
        Presence { present: Arc::clone(self), number, guest, share: None }
    }
}

impl Present {
    /// The connections with a greater number than this, the least first: at most so many, with their numbers, and
    /// whether there are more.
    pub(in crate::server) fn page(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> (Vec<(u64, Arc<Guest>)>, bool) {
        let all = self.all.lock();
        let is_behind = |number: &u64| after.is_none_or(|after| *number > after);
        let mut numbers: Vec<u64> = all.keys().copied().filter(is_behind).collect();
        numbers.sort_unstable();
        let has_more = numbers.len() > limit;
        numbers.truncate(limit);
        let guests = numbers
            .into_iter()
            .filter_map(|number| all.get(&number).map(|guest| (number, Arc::clone(guest))));
        (guests.collect(), has_more)
    }

    /// Takes up that a certificate is over then.
    fn note_end(&self, end_ms: u64) -> bool {
        end_ms < self.first_end.fetch_min(end_ms, Ordering::AcqRel)
    }

    /// Why users may soon get no further connections.
    pub(in crate::server) fn scarce(&self) -> Option<String> {
        self.shares.lock().scarce(CONNECTIONS)
    }

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

/// What is known of a connection from its beginning on.
pub(in crate::server) struct About {
    pub(in crate::server) account: Arc<Account>,
    /// What it asks for, and what goes to and fro.
    pub(in crate::server) traffic: Arc<Traffic>,
    pub(in crate::server) address: SocketAddr,
    pub(in crate::server) since: Millis,
}

impl Guest {
    pub(in crate::server) fn about(&self) -> &About {
        &self.about
    }

    pub(in crate::server) fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    pub(in crate::server) fn is_in_tls(&self) -> bool {
        self.is_in_tls.load(Ordering::Relaxed)
    }

    /// Who it is at this time of the wall clock: nobody any more if it was by a certificate that is over.
    fn identity_at(&self, wall_clock_ms: u64) -> Identity {
        match self.ends_at.load(Ordering::Acquire) > wall_clock_ms {
            true => self.identity(),
            false => Identity::Unknown,
        }
    }
}

/// A connection's entry.
pub(in crate::server) struct Presence {
    present: Arc<Present>,
    number: u64,
    guest: Arc<Guest>,
    /// Whose share of the connections this one is of.
    share: Option<Arc<Holder>>,
}

impl Presence {
    /// The client has shown who it is; `holder`: whose share of the connections this one is of from now on, if it is of
    /// one.
    ///
    /// # Errors
    /// That one has as many connections as it may have; nothing has changed.
    pub(in crate::server) fn is(
        &mut self,
        identity: Identity,
        holder: Option<&Holder>,
    ) -> Result<(), Refusal> {
        if self.share.as_deref() != holder {
            let mut shares = self.present.shares.lock();
            let taken = holder.map(|holder| shares.take(holder)).transpose()?;
            if let Some(before) = std::mem::replace(&mut self.share, taken) {
                shares.give_back(&before);
            }
        }
        *self.guest.identity.lock() = identity;
        Ok(())
    }

    /// See [`super::guest::Guest::is_until`].
    pub(in crate::server) fn is_until(&self, end_ms: Option<u64>) {
        let end_ms = end_ms.unwrap_or(NO_END);
        self.guest.ends_at.store(end_ms, Ordering::Release);
        if end_ms != NO_END && self.present.note_end(end_ms) {
            self.present.sooner.notify(usize::MAX);
        }
    }

    /// Whether it is one by TLS.
    pub(in crate::server) fn note_tls(&self, is_in_tls: bool) {
        self.guest.is_in_tls.store(is_in_tls, Ordering::Relaxed);
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
        if let Some(holder) = self.share.take() {
            self.present.shares.lock().give_back(&holder);
        }
    }
}

/// Closes the connections that may do nothing any more, whenever users or logins change or a certificate is over, until
/// the server stops.
pub(in crate::server) async fn shut_out(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.listen();
    loop {
        let changed = shared.hub.policies.changed.listen();
        let closed = shared.hub.closing.changed.listen();
        let present = &shared.logins.present;
        let sooner = present.sooner.listen();
        if shared.is_stopping() {
            return;
        }
        // Who comes from now on lowers it again.
        present.first_end.store(NO_END, Ordering::Release);
        let wall_clock_ms = rt::wall_clock_ms();
        let all = || shared.logins.present.all.lock().values().cloned().collect::<Vec<_>>();
        let guests: Vec<Arc<Guest>> = if shared.must_log_in() { all() } else { Vec::new() };
        for guest in guests {
            let identity = guest.identity_at(wall_clock_ms);
            let end_ms = guest.ends_at.load(Ordering::Acquire);
            if end_ms > wall_clock_ms && end_ms != NO_END {
                present.note_end(end_ms);
            }
            if guest.was_admitted.load(Ordering::Acquire)
                && shared.access_of(&identity).is_stranger()
            {
                guest.about.account.close();
            }
        }
        let grace = shared.grace_ms().map(|left| Duration::from_millis(left) + GRACE_MARGIN);
        let settled =
            if shared.is_secured() { None } else { shared.policy_data.settle_grace(&shared) };
        let first_end =
            Some(present.first_end.load(Ordering::Acquire)).filter(|end| *end != NO_END);
        let ends = first_end.map(|end| end.saturating_sub(wall_clock_ms).min(ENDS_LOOK_MS));
        let ends = ends.map(|left| Duration::from_millis(left) + GRACE_MARGIN);
        let news = async {
            let change = select(select(changed, closed), sooner);
            match grace.into_iter().chain(ends).chain(settled).min() {
                Some(left) => drop(rt::timeout(left, change).await),
                None => drop(change.await),
            }
        };
        if let Either::Right(_) = select(std::pin::pin!(news), &mut stopping).await {
            return;
        }
    }
}
