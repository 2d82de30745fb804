//! What a connection keeps for its client's login: its place while it is a stranger, what was computed for it,
//! and who it turned out to be.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use distkv_access::dh::{BoxKey, DhError, Exchange};
use distkv_access::secret::{HashError, PasswordHash, Secret};
use parking_lot::Mutex;

use super::present::Presence;
use super::strangers::{LOGIN_MS_MAX, STRANGER_BYTES_MAX};
use super::throttle::Waiting;
use crate::crowd::Place;
use crate::hub::shares::{Holder, Refusal};
use crate::model::ids::{Event, Millis};
use crate::protocol::client::{ClientError, ErrorCode};

/// Something that was computed for a request, which is then carried out.
pub(in crate::server) enum Made {
    /// The keys of passwords' boxes.
    Exchanged(Result<Exchange, DhError>),
    /// Whether a secret was that of the record that this event made; and its hash, where the record had it in the
    /// original's form.
    Checked { is_good: bool, event: Option<Event>, converted: Option<PasswordHash> },
    /// A new password.
    Hashed(Result<PasswordHash, HashError>),
}

/// Where a computation puts what it made; none yet, or never.
pub(in crate::server) type Slot = Arc<Mutex<Option<Made>>>;

/// See the module.
pub(in crate::server) struct Guest {
    /// Where the client is.
    pub(in crate::server) address: IpAddr,
    /// While it must log in and has not.
    place: Option<Place>,
    /// Until when it must have.
    deadline: Millis,
    /// The node's part of the challenge for the cluster's key.
    pub(in crate::server) nonce: Option<[u8; 32]>,
    /// Of the boxes with passwords.
    pub(in crate::server) box_key: Option<BoxKey>,
    /// The secret of the user's record as it was when the client logged in as that user, or has set a new one itself;
    /// none: it has not.
    pub(in crate::server) secret: Option<Secret>,
    /// What is computed for a request, by its number.
    prelude: Option<(u64, Slot)>,
    /// How its login has waited for others to end.
    pub(in crate::server) waited: Option<Waiting>,
    presence: Option<Presence>,
    /// Whether the connection is one by TLS.
    pub(in crate::server) is_in_tls: bool,
    /// The reply to the request with which the client has shut itself out.
    pub(in crate::server) parting: Vec<u8>,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::UNSPECIFIED.into(),
            place: None,
            deadline: 0,
            nonce: None,
            box_key: None,
            secret: None,
            prelude: None,
            waited: None,
            presence: None,
            is_in_tls: false,
            parting: Vec::new(),
        }
    }
}

impl Guest {
    /// The client has come from this address.
    pub(in crate::server) fn enter(&mut self, address: IpAddr, presence: Presence) {
        presence.note_tls(self.is_in_tls);
        (self.address, self.presence) = (address, Some(presence));
    }

    /// It must log in.
    pub(in crate::server) fn keep_waiting(&mut self, place: Place, now: Millis) {
        (self.place, self.deadline) = (Some(place), now.saturating_add(LOGIN_MS_MAX));
    }

    /// It may do something.
    pub(in crate::server) fn admit(&mut self) {
        self.place = None;
        if let Some(presence) = &self.presence {
            presence.admit();
        }
    }

    /// Whether it ever could.
    pub(in crate::server) fn was_admitted(&self) -> bool {
        self.presence.as_ref().is_some_and(Presence::was_admitted)
    }

    /// Whether the connection is one by TLS.
    pub(in crate::server) fn note_tls(&mut self, is_in_tls: bool) {
        self.is_in_tls = is_in_tls;
        if let Some(presence) = &self.presence {
            presence.note_tls(is_in_tls);
        }
    }

    /// It has shown who it is.
    ///
    /// # Errors
    /// See [`Presence::is`]; nothing has changed.
    pub(in crate::server) fn is(
        &mut self,
        identity: super::Identity,
        holder: Option<&Holder>,
    ) -> Result<(), Refusal> {
        self.presence.as_mut().map_or(Ok(()), |presence| presence.is(identity, holder))
    }

    /// Until when its certificate makes it who it is, by the wall clock; none: it is that for as long as it likes.
    pub(in crate::server) fn is_until(&self, end_ms: Option<u64>) {
        if let Some(presence) = &self.presence {
            presence.is_until(end_ms);
        }
    }

    /// Whether it had to give way to another one that has not logged in.
    pub(in crate::server) fn gave_way(&self) -> bool {
        self.place.as_ref().is_some_and(Place::gave_way)
    }

    /// Whether a login of it is being computed: it keeps its place meanwhile.
    pub(in crate::server) fn set_busy(&self, is_busy: bool) {
        if let Some(place) = &self.place {
            place.set_busy(is_busy);
        }
    }

    /// Until when it must log in, if it must.
    pub(in crate::server) fn deadline(&self) -> Option<Millis> {
        self.place.as_ref().map(|_| self.deadline)
    }

    /// Why the connection of a client that has not logged in must end. `bytes`: all that has come from it; `now`:
    /// the clock, which is asked only if the client must log in.
    pub(in crate::server) fn overstays(
        &self,
        now: impl FnOnce() -> Millis,
        bytes: u64,
    ) -> Option<ClientError> {
        self.place.as_ref()?;
        let most = u64::try_from(STRANGER_BYTES_MAX).unwrap_or(u64::MAX);
        let text = if now() >= self.deadline {
            format!("closing the connection: no login within {} s", LOGIN_MS_MAX / 1_000)
        } else if bytes > most {
            format!(
                "closing the connection: more than {STRANGER_BYTES_MAX} bytes came before a login"
            )
        } else {
            return None;
        };
        Some(ClientError::new(ErrorCode::AuthRequired, text))
    }

    /// Something will be computed for this request.
    pub(in crate::server) fn begin(&mut self, seq: u64) -> Slot {
        let slot = Slot::default();
        self.prelude = Some((seq, Arc::clone(&slot)));
        slot
    }

    /// What was computed for this request: none if nothing was begun.
    ///
    /// # Errors
    /// It could not be computed.
    pub(in crate::server) fn made(&mut self, seq: u64) -> Option<Result<Made, ClientError>> {
        let (_, slot) = self.prelude.take_if(|(begun, _)| *begun == seq)?;
        let made = slot.lock().take();
        let failed =
            "the node had no thread or no memory for this; nothing was changed; try again later";
        Some(made.ok_or_else(|| ClientError::new(ErrorCode::TooMany, failed)))
    }
}
