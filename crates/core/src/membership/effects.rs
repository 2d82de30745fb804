//! What foca wants done, gathered while it runs: it calls back, we hand out data.

use std::net::SocketAddr;
use std::time::Duration;

use foca::{Notification, Runtime, Timer};

use super::members::identity::Identity;
use super::wire::datagram::{Envelope, Kind};
use crate::model::ids::Millis;

/// The runtime that foca is given. Emptied after every call into foca.
#[derive(Debug)]
pub(super) struct Effects {
    pub(super) envelope: Envelope,
    /// What foca's datagrams are marked as: see [`Kind::SwimJoining`].
    pub(super) kind: Kind,
    /// Sealed datagrams, in order.
    pub(super) sends: Vec<(SocketAddr, Vec<u8>)>,
    /// Timers, and in how many milliseconds they are due.
    pub(super) timers: Vec<(Millis, Timer<Identity>)>,
    /// Addresses about which something changed, each once, in the order of the first change.
    pub(super) touched: Vec<SocketAddr>,
    /// foca has active members now, after it had none.
    pub(super) became_active: bool,
    /// foca took a new identity by itself.
    pub(super) rejoined: bool,
    /// We have a new identity, and no member has let it in yet: until one does, foca does not probe, also
    /// where it believes members to be up.
    pub(super) is_outside: bool,
}

impl Effects {
    pub(super) fn new(envelope: Envelope) -> Self {
        Self {
            envelope,
            kind: Kind::Swim,
            sends: Vec::new(),
            timers: Vec::new(),
            touched: Vec::new(),
            became_active: false,
            rejoined: false,
            is_outside: false,
        }
    }

    /// We have a new identity.
    pub(super) fn note_rejoined(&mut self) {
        (self.rejoined, self.is_outside) = (true, true);
    }

    fn touch(&mut self, identity: &Identity) {
        if !self.touched.contains(&identity.addr) {
            self.touched.push(identity.addr);
        }
    }
}

impl Runtime<Identity> for Effects {
    fn notify(&mut self, notification: Notification<'_, Identity>) {
        match notification {
            Notification::MemberUp(id)
            | Notification::MemberDown(id)
            | Notification::Rename(_, id) => self.touch(id),
            Notification::Active => (self.became_active, self.is_outside) = (true, false),
            Notification::Rejoin(_) => self.note_rejoined(),
            // Idle: the durable list goes on calling. Defunct: only when all generations are used
            // up, which takes 2^31 renewals; see `GENERATION_LEARN_MAX`.
            Notification::Idle | Notification::Defunct => {}
        }
    }

    fn send_to(&mut self, to: Identity, data: &[u8]) {
        self.sends.push((to.addr, self.envelope.seal(self.kind, data)));
    }

    fn submit_after(&mut self, event: Timer<Identity>, after: Duration) {
        let after = Millis::try_from(after.as_millis()).unwrap_or(Millis::MAX);
        self.timers.push((after, event));
    }
}
