//! Asking the node as a client does: requests with fields, replies as messages, errors with their status.

use distkv_access::users::Role;
use distkv_http::header::{HeaderValue, RETRY_AFTER};
use distkv_http::{Conversions, Reply, StatusCode, Turn, others_first};

use crate::client::{Fields, Message};
use crate::crowd::shares::Holder;
use crate::model::entry::Entry;
use crate::model::ids::Incarnation;
use crate::protocol::client::ClientError;
use crate::server::local_client::{Charge, LocalClient};

/// A client in the same process. It hears of one request at a time, the one that was begun last.
pub struct Client {
    inner: LocalClient,
    /// The number of that request.
    seq: u64,
    conversions: Conversions,
    /// How many messages have been read since others went first.
    in_a_row: usize,
}

/// To look through a message that is longer than this takes a turn: it may have millions of parts.
const LONG_MESSAGE_BYTES: usize = 64 << 10;
/// After so many messages of a stream, each of which is told as JSON, others go first: about a millisecond.
const MESSAGES_IN_A_ROW_MAX: usize = 64;

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// For programs: one of the client protocol's words.
    pub(crate) code: String,
    /// For people.
    pub(crate) text: String,
}

impl Client {
    /// `conversions`: the turns of the port that it has come in by.
    pub(super) fn new(mut inner: LocalClient, conversions: Conversions) -> Self {
        // A program that asks by HTTP can ask again, or elsewhere, so it need not wait for the node to be ready.
        inner.send(&crate::client::message::encode_settings(0, true));
        Self { inner, seq: 0, conversions, in_a_row: 0 }
    }

    /// What the client may do with the node as a whole at this moment; none: it must log in first.
    #[must_use]
    pub(crate) fn role(&mut self) -> Option<Role> {
        self.inner.role()
    }

    /// Whether clients may do nothing here before they have logged in.
    #[must_use]
    pub(crate) fn must_log_in(&self) -> bool {
        self.inner.must_log_in()
    }

    /// The turns of long conversions.
    pub(super) fn conversions(&self) -> &Conversions {
        &self.conversions
    }

    /// Whose shares it takes from: its user's, or those of all from its host.
    pub(super) fn holder(&self) -> Holder {
        self.inner.holder()
    }

    pub(super) fn node_of(&self, incarnation: Incarnation) -> Option<String> {
        self.inner.node_of(incarnation)
    }

    /// Charges the clients' memory with what is kept of an answer.
    pub(super) fn keep(&mut self, bytes: usize) {
        self.inner.keep(bytes);
    }

    /// Whether it must end: [`Client::closed`] tells why.
    pub(super) fn is_closing(&self) -> bool {
        self.inner.is_closing()
    }

    /// Ends; why.
    pub(super) async fn closed(&mut self) -> Failure {
        match self.next().await {
            Err(failure) => failure,
            Ok(_) => Failure::ended(),
        }
    }

    pub(super) fn into_charge(self, bytes: usize) -> Charge {
        self.inner.into_charge(bytes)
    }

    /// The session's settings, from now on.
    pub(super) fn settings(&mut self, settings: &[u8]) {
        self.inner.send(settings);
    }

    /// Begins a request, whose replies [`Client::next`] gives from now on. Returns its number.
    pub(crate) fn begin(&mut self, action: &str, fields: &Fields) -> u64 {
        self.seq += 1;
        self.inner.send(&fields.encode_request(self.seq, action));
        self.seq
    }

    /// The next message about the request that was begun last: none if there will be no further one. What is about an
    /// earlier one is skipped: a stream that was stopped tells its end behind the answer to that.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn next(&mut self) -> Result<Option<Message>, Failure> {
        while let Some(waiting) = self.inner.ready().await {
            self.in_a_row += 1;
            if self.in_a_row >= MESSAGES_IN_A_ROW_MAX {
                self.in_a_row = 0;
                others_first().await;
            }
            // Besides a long message, at most 64 KiB can wait: a stream's turn makes no more. So this much has a long one in it.
            let mut turn = None;
            if waiting > 2 * LONG_MESSAGE_BYTES {
                turn = Some(self.turn().await);
            }
            let Some(bytes) = self.inner.next_now() else { continue };
            if bytes.len() > LONG_MESSAGE_BYTES {
                self.inner.keep(bytes.len());
                if turn.is_none() {
                    turn = Some(self.turn().await);
                }
                // It has been looked through once, to find its end.
                others_first().await;
            }
            let read = self.read(&bytes);
            drop(turn);
            if let Some(message) = read? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    async fn turn(&mut self) -> Turn {
        let holder = self.inner.holder();
        self.conversions.turn_to_write(&holder).await
    }

    /// The same without waiting: none if none is there.
    pub(super) fn next_now(&mut self) -> Result<Option<Message>, Failure> {
        while let Some(bytes) = self.inner.next_now() {
            if let Some(message) = self.read(&bytes)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// A message; none if it is about an earlier request.
    fn read(&self, bytes: &[u8]) -> Result<Option<Message>, Failure> {
        let message = Message::new(bytes).map_err(|error| Failure {
            code: String::from("internal"),
            text: format!("the node's own reply cannot be read: {error}"),
        })?;
        // What has no number is about the client as a whole.
        if message.u64("seq").is_some_and(|seq| seq != self.seq) {
            return Ok(None);
        }
        match Failure::of(&message) {
            Some(failure) => Err(failure),
            None => Ok(Some(message)),
        }
    }

    /// A request that has one reply.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn call(&mut self, action: &str, fields: &Fields) -> Result<Message, Failure> {
        self.begin(action, fields);
        self.next().await?.ok_or_else(Failure::ended)
    }

    /// The same; a long value is not in the reply, but in the entry that comes with it.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn call_apart(
        &mut self,
        action: &str,
        fields: &Fields,
    ) -> Result<(Message, Option<Entry>), Failure> {
        self.inner.want_apart();
        let called = self.call(action, fields).await;
        let apart = self.inner.take_apart();
        Ok((called?, apart))
    }

    /// Ends a stream, if it has not ended.
    pub(super) async fn stop(&mut self, seq: u64) -> Result<(), Failure> {
        let mut fields = Fields::new();
        fields.u64("task", seq);
        self.call("stop", &fields).await.map(drop)
    }

    /// A request that is answered by a stream, of which only its end matters.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn call_to_end(
        &mut self,
        action: &str,
        fields: &Fields,
    ) -> Result<(), Failure> {
        self.begin(action, fields);
        let mut failure = None;
        loop {
            match self.next().await {
                Ok(Some(message)) if message.str("state") == Some("end") => {
                    return failure.map_or(Ok(()), Err);
                }
                Ok(Some(_)) => {}
                Ok(None) => return Err(failure.unwrap_or_else(Failure::ended)),
                // The stream's end follows.
                Err(error) => failure = Some(error),
            }
        }
    }
}

impl Failure {
    /// What this message says of a failure, if it does.
    fn of(message: &Message) -> Option<Self> {
        let error = message.error()?;
        Some(Self {
            code: error.code.unwrap_or_else(|| String::from("internal")),
            text: error.text,
        })
    }

    /// The node ends.
    #[must_use]
    pub(crate) fn ended() -> Self {
        let text = String::from("the node is leaving");
        Self { code: String::from("not_ready"), text }
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self { code: String::from("bad_request"), text: text.into() }
    }

    /// The status that goes with its code.
    #[must_use]
    pub(crate) fn status(&self) -> StatusCode {
        match self.code.as_str() {
            "bad_request" | "bad_message" | "type_mismatch" => StatusCode::BAD_REQUEST,
            "auth_required" | "auth_failed" => StatusCode::UNAUTHORIZED,
            "denied" | "read_only" => StatusCode::FORBIDDEN,
            "not_found" => StatusCode::NOT_FOUND,
            "is_root" => StatusCode::METHOD_NOT_ALLOWED,
            "in_use" | "wid_reused" | "given_up" | "too_late" => StatusCode::CONFLICT,
            "already_exists" | "is_new" | "chain_mismatch" | "data_mismatch" => {
                StatusCode::PRECONDITION_FAILED
            }
            "too_large" => StatusCode::PAYLOAD_TOO_LARGE,
            "too_many" | "too_slow" => StatusCode::TOO_MANY_REQUESTS,
            "unknown_action" | "not_implemented" => StatusCode::NOT_IMPLEMENTED,
            "not_ready" | "storage_failed" | "no_event" => StatusCode::SERVICE_UNAVAILABLE,
            "unknown_fate" => StatusCode::GATEWAY_TIMEOUT,
            "memory_full" => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// For how many seconds it makes no sense to ask again, if the text says so: the client protocol has no field for it.
    fn wait(&self) -> Option<u64> {
        let (_, behind) = self.text.split_once("try again in ")?;
        behind.split_once(" s").and_then(|(seconds, _)| seconds.parse().ok())
    }

    /// As an answer.
    #[must_use]
    pub(crate) fn reply(&self) -> Reply {
        let reply = Reply::error(self.status(), &self.code, &self.text);
        match self.status() {
            StatusCode::UNAUTHORIZED => super::rights::challenge(reply),
            StatusCode::TOO_MANY_REQUESTS => match self.wait() {
                Some(seconds) => reply.with(RETRY_AFTER, HeaderValue::from(seconds)),
                None => reply,
            },
            _ => reply,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self { code: error.code.word().to_owned(), text: error.text }
    }
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        failure.reply()
    }
}
