//! How a connection ends by this node's will, and what its client is told last.

use std::io;
use std::time::Duration;

use super::super::socket::{LINGER, LINGER_AT_STOP, linger, part};
use super::Connection;
use crate::engine::Engine;
use crate::protocol::client::reply::write_error;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::server::access::Identity;

impl Connection {
    /// The server stops: answers what had arrived by then, ends all streams, and says so.
    pub(super) async fn end(&mut self) -> io::Result<()> {
        if self.exchange.input.wants_more() {
            // What has woken the task may have been the stop alone, or the last request as well.
            self.try_read()?;
        }
        self.exchange.answer_arrived();
        self.exchange.end_all();
        if self.exchange.session.sent_away {
            self.flush().await?;
            self.exchange.shared.keep_to_the_end(self.socket.clone());
            return Ok(());
        }
        self.exchange.until_safe().await;
        if self.exchange.is_shut_out() {
            return self.end_shut_out().await;
        }
        let last = std::mem::take(&mut self.exchange.out);
        let last = self.seal(last);
        linger(&self.socket, &last, LINGER_AT_STOP).await;
        Ok(())
    }

    /// The client may do nothing any more: says so, and drops pending output. One that has brought that about
    /// itself gets its reply, and no error.
    pub(super) async fn end_shut_out(&mut self) -> io::Result<()> {
        self.exchange.out = Vec::new();
        self.exchange.session.tell_shut_out();
        let parting = std::mem::take(&mut self.exchange.session.guest.parting);
        if !parting.is_empty() {
            self.exchange.abandon();
            let parting = self.seal(parting);
            part(&self.socket, &parting, LINGER).await;
            return Ok(());
        }
        let why = self.why_shut_out();
        let text = format!(
            "closing the connection: {why}. What was asked for and not answered may have been done"
        );
        let error = ClientError::new(ErrorCode::AuthRequired, text);
        let last = std::mem::take(&mut self.exchange.last_word);
        self.end_after(last, &error).await
    }

    fn why_shut_out(&self) -> String {
        if let Some(name) = self.exchange.session.expired_user() {
            return format!(
                "the certificate of the user {name:?} has expired; connect again with another one"
            );
        }
        let (identity, shared) = (&self.exchange.session.identity, &self.exchange.shared);
        match identity {
            Identity::User { method, name, .. }
                if identity.was_disconnected(&shared.policy_data.directory(&shared.hub)) =>
            {
                format!(
                    "somebody has ended the connections of the user {name:?} (method {method:?}); log in again, with the \
                     present secret"
                )
            }
            Identity::User { method, name, .. } => format!(
                "the user {name:?} (method {method:?}) was removed, also if there is another one of that name now, or \
                 may not log in by this method any more"
            ),
            Identity::Unknown | Identity::KeyHolder => match shared.hub.read(Engine::closed) {
                Some(closed) => closed.to_string(),
                None => String::from("logins were switched on for a moment"),
            },
        }
    }

    /// The clients' memory is used up, and this connection is the worst: says so, if the client
    /// reads that. What the connection holds goes first.
    pub(super) async fn end_for_memory(&mut self) -> io::Result<()> {
        let text = "closing the connection: what this node keeps for its clients exceeds \
                    --max-client-memory, and this connection keeps much and takes little; read \
                    faster, or ask for less at once";
        let last = std::mem::take(&mut self.exchange.out);
        self.end_after(last, &ClientError::new(ErrorCode::TooSlow, text)).await
    }

    /// The client has not logged in, and had to by now, or must give way to another one. Where others wait for its place,
    /// it is not waited until it has read that.
    pub(super) async fn end_stranger(&mut self, error: &ClientError) -> io::Result<()> {
        let patience = if self.exchange.shared.is_full() { Duration::ZERO } else { LINGER };
        self.end_within(patience, Vec::new(), error).await
    }

    /// Ends the connection with an error after these bytes.
    pub(super) async fn end_after(&mut self, last: Vec<u8>, error: &ClientError) -> io::Result<()> {
        self.end_within(LINGER, last, error).await
    }

    async fn end_within(
        &mut self,
        patience: Duration,
        mut last: Vec<u8>,
        error: &ClientError,
    ) -> io::Result<()> {
        self.exchange.abandon();
        self.exchange.shared.counts.note_error(error);
        write_error(error, None, self.exchange.shared.hub.read(Engine::tock), &mut last);
        self.exchange.input.shrink();
        self.tell_memory();
        let last = self.seal(last);
        linger(&self.socket, &last, patience).await;
        Ok(())
    }
}
