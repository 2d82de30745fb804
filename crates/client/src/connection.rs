//! One connection to a node's client port, shared by any number of requests and streams.
//!
//! A task reads the socket and hands each message to the task that waits for its `seq`; another
//! task writes what is queued (`writing`). A
//! stream that is not read does not fill the memory: with flow control the node pauses it, without
//! flow control the whole connection waits.

mod answer;
pub(crate) mod clock;
pub(crate) mod group;
pub(crate) mod line;
mod network;
mod node_clock;
mod reading;
mod shared;
mod shut_out;
#[cfg(test)]
pub(crate) mod tests;
mod writing;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, TrySendError};
use futures::FutureExt as _;
use futures::future::{Either, pending, select};

use super::credentials::Access;
use super::error::{ClientError, NO_GREETING};
use super::login::Login;
use super::message::{Fields, Greeting, Message, REQUEST_BYTES_MAX, encode_ack, encode_settings};
use super::wire::Wire;
use crate::connection::clock::Clock;
use crate::connection::group::Group;
use crate::model::host_port::HostPort;
use crate::model::ids::Millis;
use crate::model::lengthen::{LengthenError, Lengthener};
use crate::model::path::Path;
use crate::retry::deviations::{Rule, is_broken};
use crate::rt;
use line::sending;
pub use network::OwnNetwork;
pub(crate) use network::shown;
use reading::Incoming;
use shared::{OpenRequest, Shared};
pub(crate) use shared::{STREAMS_MAX, Use};
pub use shut_out::ShutOut;
use writing::Outgoing;

/// Messages of one stream that are kept for its reader, where flow control does not say.
const STREAM_MESSAGES_MAX: usize = 64;
/// The least window of flow control: a node pauses one message before it is full, so with one
/// of 1 nothing would ever come.
pub(crate) const WINDOW_MIN: u64 = 2;
/// The greatest window of flow control, so that a stream's queue has a bound.
pub(crate) const WINDOW_MAX: u64 = 4096;
/// Messages beyond the window that are accepted: a stream's end, or an error, need not wait for
/// acknowledgements.
const WINDOW_SLACK: usize = 8;
/// How a connection is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long connecting may take, all the host's addresses and the greeting included.
    pub connect_timeout: Duration,
    /// Messages of one stream that may be under way unacknowledged, as far as the node grants
    /// that; `None` switches flow control off. 2 to 4096: here, what is out of that counts as the nearest.
    pub window: Option<u64>,
    /// Be refused (`not_ready`) by a node that is still catching up with its network. Otherwise
    /// requests wait there, for half a minute by default.
    pub nowait: bool,
    /// To which network, whether by TLS, and as whom.
    pub access: Access,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Duration::from_secs(10),
            window: Some(64),
            nowait: false,
            access: Access::default(),
        }
    }
}

/// A connection; clones share it. It ends when all clones and all streams are dropped.
#[derive(Debug, Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    outgoing: Outgoing,
}

impl Connection {
    /// Connects, trying all addresses of the host one after the other, and reads the greeting.
    ///
    /// # Errors
    /// [`ClientError::Resolve`], [`ClientError::Connect`], or [`ClientError::Protocol`] when
    /// something else listens there; [`ClientError::NoAccess`] where TLS or the login fails;
    /// [`ClientError::LoginWaits`], [`ClientError::OtherNetwork`]; the node's own error, where it is full.
    pub async fn connect(to: &HostPort, options: Options) -> Result<Connection, ClientError> {
        Connection::connect_again(to, options, &ShutOut::default()).await
    }

    /// The same for who connects again and again: by what the node has said before, one that makes the login wait may
    /// still refuse the client.
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub async fn connect_again(
        to: &HostPort,
        options: Options,
        shut_out: &ShutOut,
    ) -> Result<Connection, ClientError> {
        Connection::connect_in(&Group::default(), to, options, shut_out).await
    }

    /// The same; its tasks are of this group.
    pub(crate) async fn connect_in(
        tasks: &Group,
        to: &HostPort,
        options: Options,
        shut_out: &ShutOut,
    ) -> Result<Connection, ClientError> {
        start_runtime(to)?;
        let login = options.access.login().cloned();
        let connected = Connection::begin(tasks, to, options, shut_out).await;
        shut_out.forget_before(login.as_ref().map_or(0, Login::since));
        shut_out.judge(connected)
    }

    async fn begin(
        tasks: &Group,
        to: &HostPort,
        options: Options,
        shut_out: &ShutOut,
    ) -> Result<Connection, ClientError> {
        let connecting = async {
            let wire = Wire::connect(to, &options.access, options.connect_timeout).await?;
            let mut incoming = Incoming::new(wire.clone(), to.to_string());
            let greeting = incoming.greeting().await?;
            Ok::<_, ClientError>((wire, incoming, greeting))
        };
        let timed_out = || ClientError::Connect {
            address: to.to_string(),
            reason: format!(
                "{NO_GREETING} {:?}; is this a node's client port?",
                options.connect_timeout
            ),
        };
        let connected = rt::timeout(options.connect_timeout, connecting).await;
        let (wire, mut incoming, greeting) = connected.ok_or_else(timed_out)??;
        if let (Some(ours), Some(theirs)) = (options.access.network(), &greeting.network) {
            ours.check(to, theirs)?;
        }

        let window = decide_window(options.window, greeting.qlen);
        let may_send_secrets = options.access.may_send_secrets(wire.peer());
        let (address, stream) = (to.to_string(), wire.stream().clone());
        let (outgoing, writer) = writing::queue(wire);
        // A node that has caught up once never makes anybody wait.
        let nowait = options.nowait && greeting.is_catching_up;
        if window.is_some() || nowait {
            // The queue is empty and open.
            let _ = outgoing.try_send(encode_settings(window.unwrap_or(0), nowait));
        }
        incoming.writer_is(outgoing.queue());
        let (tasks, shut_out) = (tasks.clone(), shut_out.clone());
        let shared = Shared::new(
            address,
            greeting,
            window,
            stream,
            tasks.clone(),
            shut_out,
            may_send_secrets,
        );
        let shared = Arc::new(shared.hearing(incoming.arrival()));
        tasks.spawn(incoming.read_all(Arc::clone(&shared), writer.queue()));
        tasks.spawn(writer.run(Arc::clone(&shared)));
        let connection = Connection { shared, outgoing };
        if let Some(login) = options.access.login() {
            let login = login.run(&connection, may_send_secrets, options.connect_timeout);
            let logged_in = rt::timeout(options.connect_timeout, login).await;
            let result = logged_in.unwrap_or_else(|| {
                let reason = format!("no answer to the login within {:?}", options.connect_timeout);
                Err(ClientError::Connect { address: to.to_string(), reason })
            });
            if let Err(error) = result {
                connection.close("the login failed");
                return Err(error);
            }
        }
        Ok(connection)
    }

    /// From now on this clock hears what the node says.
    pub(crate) fn count_for(&self, clock: &Clock) {
        // There is one pool that it is of.
        let _ = self.shared.clock.set(clock.clone());
    }

    /// The node's error, if it has closed the connection because it is full: then it says nothing of the client.
    pub(crate) fn said_full(&self) -> Option<ClientError> {
        let words = self.shared.last_words.get().filter(|words| words.has_code("too_many"));
        words.cloned().map(ClientError::Server)
    }

    /// What the node said first.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.shared.greeting
    }

    /// Where this is connected to, as it was given.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Whether a secret may be sent over it: see [`Access::may_send_secrets`](crate::Access::may_send_secrets).
    #[must_use]
    pub fn may_send_secrets(&self) -> bool {
        self.shared.may_send_secrets
    }

    /// Whether the connection has ended; then every request fails.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.load().is_none()
    }

    /// Waits until the connection has ended, and says how.
    pub async fn closed(&self) -> ClientError {
        self.shared.closed().await
    }

    /// Ends the connection for all its users; pending calls get [`ClientError::Lost`] with this
    /// reason.
    pub fn close(&self, reason: &str) {
        self.shared.close(reason);
    }

    /// Requests and streams that are open on it.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.shared.open_count()
    }

    /// When the node last said anything, by [`rt::now`].
    #[must_use]
    pub fn heard_at(&self) -> Millis {
        self.shared.heard_at()
    }

    /// Asks the node whether it is alive: whether it says anything at all within this time, be it to others; longer where much
    /// has to be sent before, and while a message is arriving. Also if the
    /// connection ends meanwhile, which is told to whoever waits for an answer.
    ///
    /// The question is one that everybody may ask; a refusal is an answer as well.
    pub async fn is_alive(&self, patience: Duration) -> bool {
        let (asked_at, question) = (rt::now(), Fields::new());
        // What was sent before comes there first.
        let patience = patience.saturating_add(self.delay_of(0));
        let asking = async {
            match self.request_in(Use::Question, "auth_info", &question, None).await {
                // It cannot be asked. What it says to others meanwhile tells as well that it is alive.
                Err(ClientError::Busy(_)) => pending().await,
                answer => answer,
            }
        };
        let answer = self.while_any_arrives(patience, asking);
        answer.await.is_some() || self.heard_at() > asked_at
    }

    /// So many bytes of requests have no answer yet; none once the connection has ended.
    pub(crate) fn unanswered_bytes(&self) -> Option<usize> {
        self.shared.unanswered_bytes()
    }

    /// How long a further request of so many bytes may take to get to the node, behind all that is on its way.
    pub(crate) fn delay_of(&self, bytes: usize) -> Duration {
        sending(self.unanswered_bytes().unwrap_or(0).saturating_add(bytes))
    }

    /// Whether a part of a message has come, and more of it is coming.
    pub(crate) fn is_hearing(&self) -> bool {
        self.shared.arrival.goes_on()
    }

    /// Waits so long for an answer of the node; longer while a message of the node is arriving, but no longer than `longest`.
    pub(crate) async fn while_arriving<T>(
        &self,
        patience: Duration,
        longest: Duration,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        line::while_arriving(&self.shared.arrival, patience, longest, answer).await
    }

    /// The same where nothing else bounds it: as long as the longest message takes to arrive.
    pub(crate) async fn while_any_arrives<T>(
        &self,
        patience: Duration,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        line::while_any_arrives(&self.shared.arrival, patience, answer).await
    }

    /// Sends a request and waits for its one reply. Dropping the future gives up the reply; the
    /// request may be carried out all the same.
    ///
    /// # Errors
    /// The node's error, or how the connection ended.
    pub async fn request(&self, action: &str, fields: &Fields) -> Result<Message, ClientError> {
        self.request_within(action, fields, None).await
    }

    /// The same of a request that the node carries out only within this time, if it tells its clock; none: whenever it comes.
    /// Where the clock was ahead of what was counted here, the request is sent once more, with what is left of the time.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn request_within(
        &self,
        action: &str,
        fields: &Fields,
        time: Option<Duration>,
    ) -> Result<Message, ClientError> {
        self.request_in(Use::Call, action, fields, time).await
    }

    /// The same of a request that takes long. When `stop` ends before the reply has come, the node is asked to stop, and its
    /// reply is waited for all the same: that it is done, or an error that tells how much of it is ([`ServerError::changed`]).
    ///
    /// # Errors
    /// As [`Connection::request`].
    ///
    /// [`ServerError::changed`]: crate::ServerError::changed
    pub async fn request_until(
        &self,
        action: &str,
        fields: &Fields,
        time: Option<Duration>,
        stop: impl Future<Output = ()>,
    ) -> Result<Message, ClientError> {
        self.ask((Use::Call, stop), action, fields, time).await
    }

    /// The same in a place of this kind.
    async fn request_in(
        &self,
        place: Use,
        action: &str,
        fields: &Fields,
        time: Option<Duration>,
    ) -> Result<Message, ClientError> {
        self.ask((place, pending()), action, fields, time).await
    }

    async fn ask(
        &self,
        (place, stop): (Use, impl Future<Output = ()>),
        action: &str,
        fields: &Fields,
        time: Option<Duration>,
    ) -> Result<Message, ClientError> {
        let mut stop = pin!(stop.fuse());
        // Of what changes nothing, which is the more usual, the time is not looked at.
        let limit = time.map(|time| (time, rt::now()));
        let mut is_first = true;
        loop {
            let open = Shared::open(&self.shared, fields.byte_len(), place)?;
            let by = limit.and_then(|(time, began)| {
                let since = Duration::from_millis(rt::now().saturating_sub(began));
                self.shared.node_clock.after(time.saturating_sub(since))
            });
            self.send(&open, action, fields, by).await?;
            let message = match select(pin!(open.messages.take()), stop.as_mut()).await {
                Either::Left((message, _)) => message,
                Either::Right(((), answer)) => {
                    self.stop(open.seq);
                    is_first = false;
                    answer.await
                }
            };
            let message = message.ok_or_else(|| self.shared.lost())?;
            if let Some(error) = message.error() {
                let is_late = by.is_some() && error.has_code("too_late");
                let clock = message.u64("clock").filter(|_| is_late);
                if clock.is_some_and(|clock| self.shared.node_clock.hear(clock)) && is_first {
                    is_first = false;
                    continue;
                }
                return Err(error.into());
            }
            if !message.is_plain() {
                self.stop(open.seq);
                let reason = format!("a stream came as the answer to {action}");
                return Err(self.shared.protocol_error(reason));
            }
            return Ok(message);
        }
    }

    /// Sends a request that is answered with a stream, and waits for its start.
    ///
    /// # Errors
    /// The node's error, or how the connection ended.
    pub async fn stream(&self, action: &str, fields: &Fields) -> Result<ReplyStream, ClientError> {
        self.begin_stream(action, fields, false, Use::Stream).await
    }

    /// The same for what the client needs for itself: it may take a place that is kept for calls.
    pub(crate) async fn own_stream(
        &self,
        action: &str,
        fields: &Fields,
    ) -> Result<ReplyStream, ClientError> {
        self.begin_stream(action, fields, false, Use::Call).await
    }

    /// The same for a stream that ends when [`Connection::end_endless`] is called.
    pub(crate) async fn endless(
        &self,
        action: &str,
        fields: &Fields,
    ) -> Result<ReplyStream, ClientError> {
        self.begin_stream(action, fields, true, Use::Stream).await
    }

    /// Ends all streams that would not end by themselves. What has come can still be taken.
    pub(crate) fn end_endless(&self) {
        self.shared.end_endless();
    }

    async fn begin_stream(
        &self,
        action: &str,
        fields: &Fields,
        is_endless: bool,
        place: Use,
    ) -> Result<ReplyStream, ClientError> {
        let window = self.shared.window.and_then(|window| usize::try_from(window).ok());
        let capacity = window.map_or(STREAM_MESSAGES_MAX, |window| window + WINDOW_SLACK);
        let open = Shared::open_stream(&self.shared, capacity, is_endless, place)?;
        self.send(&open, action, fields, None).await?;
        let mut stream = ReplyStream {
            connection: self.clone(),
            open,
            paths: Lengthener::default(),
            ahead: None,
            is_done: false,
            taken: 0,
            acknowledged: 0,
        };
        match stream.next().await? {
            Some(StreamEvent::Start) => Ok(stream),
            Some(_) | None => {
                let reason = format!("no stream came as the answer to {action}");
                Err(self.shared.protocol_error(reason))
            }
        }
    }

    /// Whether it has a place for this. One that has ended has: whoever uses it is told how it ended.
    pub(crate) fn has_room(&self, wanted: Use) -> bool {
        self.shared.has_room(wanted)
    }

    /// Streams that are open on it.
    pub(crate) fn stream_count(&self) -> usize {
        self.shared.stream_count()
    }

    /// Requests and streams that are open on it; none once it has ended.
    pub(crate) fn load(&self) -> Option<usize> {
        self.shared.load()
    }

    /// Sends a request that is open.
    async fn send<M>(
        &self,
        open: &OpenRequest<M>,
        action: &str,
        fields: &Fields,
        by: Option<u64>,
    ) -> Result<(), ClientError> {
        let bytes = fields.encode_request_by(open.seq, action, by);
        if bytes.len() > REQUEST_BYTES_MAX {
            return Err(ClientError::TooLarge(bytes.len()));
        }
        match self.outgoing.send(bytes, open.is_alone).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.shared.lost()),
        }
    }

    /// Asks the node to end a stream, and does not wait for it.
    fn stop(&self, seq: u64) {
        let Some(own) = self.shared.next_seq() else { return };
        let mut fields = Fields::new();
        fields.u64("task", seq);
        let bytes = fields.encode_request(own, "stop");
        if let Err(TrySendError::Full(bytes)) = self.outgoing.try_send(bytes) {
            let outgoing = self.outgoing.clone();
            self.shared.tasks.spawn(async move {
                let _ = outgoing.send(bytes, false).await;
            });
        }
    }
}

/// An item of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// It begins; [`Connection::stream`] has taken this.
    Start,
    /// All that was there when it began has come; what follows are changes.
    UpToDate,
    /// Another state that the node reports, by its word.
    State(String, Message),
    /// A message with content.
    Item {
        /// Its whole path, seen from the path of the request.
        path: Option<Path>,
        /// All of it; the `path` in it is the shortened one.
        message: Message,
    },
}

/// The messages of one stream. Dropping it makes the node stop.
#[derive(Debug)]
pub struct ReplyStream {
    connection: Connection,
    open: OpenRequest<Receiver<Message>>,
    paths: Lengthener,
    /// What has come already, and is the next.
    ahead: Option<StreamEvent>,
    is_done: bool,
    /// Number of the last message that was taken out. Invariant: at least `acknowledged`.
    taken: u64,
    /// Number of the last message that was acknowledged.
    acknowledged: u64,
}

impl ReplyStream {
    /// The next message; `None` after the last. Messages returned before are acknowledged.
    ///
    /// # Errors
    /// The node's error, or how the connection ended; nothing more comes after it.
    pub async fn next(&mut self) -> Result<Option<StreamEvent>, ClientError> {
        if let Some(event) = self.ahead.take() {
            return Ok(Some(event));
        }
        if self.is_done {
            return Ok(None);
        }
        self.acknowledge().await?;
        let result = self.take().await;
        self.is_done = !matches!(result, Ok(Some(_)));
        result
    }

    /// The same within this time; while a message is arriving, longer. None: in vain.
    pub(crate) async fn next_within(
        &mut self,
        patience: Duration,
    ) -> Option<Result<Option<StreamEvent>, ClientError>> {
        let shared = Arc::clone(&self.connection.shared);
        line::while_any_arrives(&shared.arrival, patience, self.next()).await
    }

    /// Waits until the node has let the stream in: where clients of the Python DistKV need that, a stream begins before it
    /// is refused. Nothing of it is lost: what has come meanwhile is the next.
    ///
    /// The node is asked something that everybody may ask. It answers that behind what it says of the stream at once.
    ///
    /// # Errors
    /// The node's error, or how the connection ended.
    pub async fn let_in(&mut self) -> Result<(), ClientError> {
        let connection = self.connection.clone();
        let question = Fields::new();
        let asking = connection.request("auth_info", &question);
        let first = match select(pin!(self.next()), pin!(asking)).await {
            Either::Left((first, _)) => first?,
            Either::Right((Ok(_) | Err(ClientError::Server(_)), _)) => None,
            // The connection has ended; perhaps there is a reason.
            Either::Right((Err(_), next)) => next.await?,
        };
        self.ahead = first;
        Ok(())
    }

    /// The number of the request, which `stop` takes as its task.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.open.seq
    }

    async fn take(&mut self) -> Result<Option<StreamEvent>, ClientError> {
        let shared = &self.connection.shared;
        let message = self.open.messages.recv().await.map_err(|_| shared.lost())?;
        if let Some(wseq) = message.u64("wseq") {
            self.taken = self.taken.max(wseq);
        }
        if let Some(state) = message.str("state") {
            return Ok(match state {
                "start" => Some(StreamEvent::Start),
                "uptodate" => Some(StreamEvent::UpToDate),
                "end" => None,
                other => Some(StreamEvent::State(other.to_owned(), message)),
            });
        }
        // A monitored message that cannot be decoded carries an error of its own, and data.
        if message.get("topic").is_none()
            && let Some(error) = message.error()
        {
            return Err(error.into());
        }
        let path = whole_path(&mut self.paths, &message);
        let path = path.map_err(|error| shared.protocol_error(error.to_string()))?;
        Ok(Some(StreamEvent::Item { path, message }))
    }

    /// Tells the node, once per half window, how far the stream was read.
    async fn acknowledge(&mut self) -> Result<(), ClientError> {
        let Some(window) = self.connection.shared.window else { return Ok(()) };
        if self.taken - self.acknowledged < (window / 2).max(1) {
            return Ok(());
        }
        let ack = encode_ack(self.open.seq, self.taken);
        if self.connection.outgoing.send(ack, false).await.is_err() {
            return Err(self.connection.shared.lost());
        }
        self.acknowledged = self.taken;
        Ok(())
    }
}

impl Drop for ReplyStream {
    fn drop(&mut self) {
        let goes_on = is_broken(Rule::StreamStopped);
        if !self.is_done && !self.connection.is_closed() && !goes_on {
            self.connection.stop(self.open.seq);
        }
    }
}

/// Sees to it that tasks run, which a connection to this node needs.
pub(crate) fn start_runtime(to: &HostPort) -> Result<(), ClientError> {
    rt::start_if_needed().map_err(|error| {
        let (address, reason) = (to.to_string(), error.to_string());
        ClientError::Connect { address, reason }
    })
}

/// The window that both sides use. A node silently grants less than requested: with a window
/// greater than the one in its greeting, it would wait for acknowledgements that are not due yet.
fn decide_window(wanted: Option<u64>, granted: Option<u64>) -> Option<u64> {
    let granted = granted.unwrap_or(WINDOW_MAX);
    let window = wanted?.min(granted).clamp(WINDOW_MIN, WINDOW_MAX);
    (granted > 0).then_some(window)
}

/// The message's path, seen from the request's; `None` when it has none. A path without a depth is
/// whole, and does not count for the next one.
fn whole_path(paths: &mut Lengthener, message: &Message) -> Result<Option<Path>, LengthenError> {
    let Some(rest) = message.get("path") else { return Ok(None) };
    let path = match message.u64("depth") {
        Some(depth) => Path::from_msgpack(paths.lengthen(rest, depth)?)?,
        None => Path::from_msgpack_value(rest)?,
    };
    Ok(Some(path))
}
