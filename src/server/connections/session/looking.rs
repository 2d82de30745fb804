//! A client of the node's own machine for which there is no room. So that somebody can look what is wrong, it may log in
//! and ask how the node is, and who its members and clients are. Whatever else it asks for gets the error that it would
//! have got at once, and its place is free for the next.

use distkv_access::users::is_before_login;

use super::{Context, Decoded, Session};
use crate::model::ids::Millis;
use crate::protocol::client::reply::write_error;
use crate::protocol::client::{Action, ClientError, ClientMessage};

/// Most clients that may look at once.
pub(crate) const KEPT_CONNECTIONS_MAX: usize = 8;
/// One that asks nothing for so long gives its place up.
pub(in crate::server) const LOOK_MS_MAX: Millis = 5_000;

/// Whether whoever looks may ask that.
fn is_looking(action: Action) -> bool {
    is_before_login(action) || matches!(action, Action::Status | Action::Members | Action::Clients)
}

impl Session {
    /// What of this may be carried out: all of it, unless the client may only look; then what stands before the first
    /// other request. None if that is the first: it is refused, and the connection ends.
    pub(super) fn looking<'b, 'm>(
        &self,
        cx: &Context<'_>,
        batch: &'b [Decoded<'m>],
        out: &mut Vec<u8>,
    ) -> Option<&'b [Decoded<'m>]> {
        let Some(refusal) = &self.looks_only else { return Some(batch) };
        let refused = batch.iter().enumerate().find_map(|(at, message)| match message {
            Ok(ClientMessage::Request { seq, action, .. }) if !is_looking(*action) => {
                Some((at, *seq, *action))
            }
            _ => None,
        });
        match refused {
            None => Some(batch),
            Some((0, seq, action)) => {
                let text = format!(
                    "{}; from its own machine, the node answers status, members and clients all the same",
                    refusal.text
                );
                let error = ClientError::new(refusal.code, text);
                self.refuse_at_once(cx, (Some(seq), action.errs_in_stream()), &error, out);
                // For requests behind it, which are not answered.
                write_error(&error, None, cx.tock(), out);
                None
            }
            Some((at, ..)) => batch.get(..at),
        }
    }

    /// Until when the client must ask for something again, if it may only look.
    pub(super) fn look_deadline(&self, now: Millis) -> Option<Millis> {
        self.looks_only.as_ref()?;
        let silent_ms = self.account.silent_ms(now);
        Some(now.saturating_add(LOOK_MS_MAX.saturating_sub(silent_ms)))
    }

    /// Why a client that may only look must go, if it must.
    pub(in crate::server) fn looks_no_more(&self, now: Millis) -> Option<ClientError> {
        let is_late = self.look_deadline(now)? <= now;
        self.looks_only.clone().filter(|_| is_late)
    }
}
