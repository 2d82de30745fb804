//! One connection's state, and how its requests are carried out, without any I/O of its own:
//! requests come in as a batch, replies are appended to a buffer.
//!
//! Runs of reads and runs of writes take the engine's guard once each, in order; whatever else
//! is asked for is carried out one by one. No guard is held while something is encoded.

mod admission;
mod aside;
mod heavy;
mod looking;
mod whole_path;

pub(in crate::server) use aside::Needs;
pub(in crate::server) use heavy::{HeavyJob, Purpose};
pub(crate) use looking::KEPT_CONNECTIONS_MAX;
pub(super) use looking::LOOK_MS_MAX;
pub(in crate::server) use whole_path::WholePath;

use std::sync::Arc;

use aside::Aside;
use parking_lot::Mutex;

use super::input::Batch;
use super::not_ready::Patience;
use super::unsynced_replies::{UnsyncedReplies, refused};
use crate::engine::Engine;
pub(in crate::server) use crate::engine::NodeNames;
use crate::hub::Hub;
use crate::hub::client_memory::{Account, ClientMemory};
use crate::hub::inbox::Inbox;
use crate::model::count::count_of;
use crate::model::ids::{Millis, Tock};
use crate::model::path::Path;
use crate::protocol::client::error::ErrorCode;
use crate::protocol::client::reply::write_error;
use crate::protocol::client::request::RequestPath;
use crate::protocol::client::{Action, BadMessage, ClientError, ClientMessage, Request};
use crate::rt;
use crate::server::Shared;
use crate::server::access::audit::witness::Witness;
use crate::server::access::authorise::{Target, authorise};
use crate::server::access::guest::Guest;
use crate::server::access::{Access, Identity};
use crate::server::command::access::acl::is_there;
use crate::server::command::data::batch::LongBatch;
use crate::server::command::data::copies::CopiesWait;
use crate::server::counts::Traffic;
use crate::server::local_client::InProcess;
use crate::server::snapshot_upload::Upload;
use crate::server::stream::{
    FailedSource, Garbage, Produced, Source, Streams, write_failed_stream,
};

/// About what an open stream takes, with its place in the table of watches.
const STREAM_BYTES: usize = 1 << 10;

/// What a session works with.
#[derive(Clone)]
pub(in crate::server) struct Context<'c> {
    pub(in crate::server) hub: &'c Hub,
    pub(in crate::server) shared: &'c Shared,
    pub(in crate::server) now: Millis,
    /// What the client may do, of the policies at this moment.
    pub(in crate::server) access: Access,
    /// Who is to be told of what the client does; none without an audit log.
    pub(in crate::server) witness: Option<Witness>,
}

impl Context<'_> {
    /// Whether the policies are still those that [`Self::access`] is of. What was read since may be of later
    /// ones if not.
    pub(in crate::server) fn is_current(&self) -> bool {
        self.hub.policies.now() == self.access.policies
    }

    /// The current tock, for replies that need no fresh one.
    pub(in crate::server) fn tock(&self) -> Tock {
        self.hub.read(Engine::tock)
    }

    /// Whether changes may be made without waiting for the disk.
    pub(in crate::server) fn has_room(&self) -> bool {
        self.hub.log().is_none_or(|log| log.has_room())
    }

    /// Why clients' changes are refused, if they are: the disk fails, and they must be on it.
    pub(in crate::server) fn check_storage(&self) -> Result<(), ClientError> {
        self.check_storage_after("nothing was changed")
    }

    /// The same, in the middle of a request that has changed so much.
    pub(in crate::server) fn check_storage_after(&self, done: &str) -> Result<(), ClientError> {
        let refusal = self.hub.log().and_then(|log| log.refusal());
        refusal.map_or(Ok(()), |failure| Err(refused(&failure, done)))
    }
}

/// A message of a batch, decoded.
pub(in crate::server) type Decoded<'a> = Result<ClientMessage<'a>, BadMessage>;

/// What to do after a batch, or a part of it.
pub(in crate::server) enum Then {
    /// Nothing special.
    Continue,
    /// Run this, append its bytes to the output, then go on with the batch.
    Heavy(HeavyJob),
    /// Wait until the disk keeps up, then go on with the batch.
    NeedsRoom,
    /// As many requests wait for the node to be ready as may: go on with the batch when it is, or at
    /// [`Session::next_deadline`].
    NeedsReady,
    /// The request needs this before it can be carried out. It is put aside, and what is behind it goes on as far as it may.
    Aside(Needs),
    /// The next one must wait until the one that was put aside is answered.
    Behind,
    /// The turn of a batch has ended, and the batch has not: others come first, then [`Session::resume_batch`].
    Unfinished,
    /// The connection cannot go on; why is written already.
    Close,
}

/// See the module.
pub(in crate::server) struct Session {
    pub(in crate::server) identity: Identity,
    /// What follows from that; of the policies when it was last needed.
    access: Access,
    /// Where requests' paths begin.
    pub(in crate::server) root: Path,
    /// The window of streams that are opened from now on; none for no flow control.
    pub(in crate::server) window: Option<u64>,
    pub(in crate::server) inbox: Arc<Inbox>,
    /// What the connection costs in memory.
    pub(in crate::server) account: Arc<Account>,
    /// What the client has asked for, and what went to and fro.
    pub(in crate::server) traffic: Arc<Traffic>,
    pub(in crate::server) streams: Streams,
    /// Changes whose replies wait for copies. Invariant: together with the streams, no more
    /// than the configuration allows.
    pub(in crate::server) copies: Vec<CopiesWait>,
    /// The replies in the output that are sent only when the changes that they tell of are on disk.
    pub(in crate::server) unsynced: UnsyncedReplies,
    /// Whether the client is on this machine.
    pub(in crate::server) is_local: bool,
    /// A snapshot that is being uploaded. The jobs that take its pieces put it back here.
    pub(in crate::server) upload: Arc<Mutex<Option<Upload>>>,
    /// Requests that wait for the node to be ready.
    pub(in crate::server) patience: Patience,
    /// The request about logins that is under way.
    aside: Option<Aside>,
    /// The batch that is under way.
    pub(in crate::server) long_batch: Option<Box<LongBatch>>,
    /// The client has asked the node to leave, and waits for its end.
    pub(in crate::server) sent_away: bool,
    /// What concerns the client's login.
    pub(in crate::server) guest: Guest,
    /// There was no room for the client, for this reason: it may only look.
    pub(in crate::server) looks_only: Option<ClientError>,
    /// Of a client in the same process.
    pub(in crate::server) in_process: Option<Box<InProcess>>,
    /// The client has one of the places that there are for connections.
    pub(in crate::server) has_place: bool,
    /// See [`Context::witness`].
    witness: Option<Witness>,
    /// What the client's certificate says.
    certified: Option<Certified>,
    /// That is why the client is who it is.
    is_by_certificate: bool,
    /// Who it was until its certificate was over.
    expired: Option<Identity>,
    /// Its certificate names a user who has as many connections as it may have.
    crowded_out: Option<ClientError>,
}

/// What a client's certificate says.
struct Certified {
    user: Arc<str>,
    /// When it is over, by the wall clock.
    end_ms: u64,
}

/// Whether a request comes in time. The clock is asked now: the process may have stood still since the round began.
///
/// # Errors
/// It is later than the request says that it counts.
pub(in crate::server) fn check_time(by: Millis) -> Result<(), ClientError> {
    if by == Millis::MAX {
        return Ok(());
    }
    let clock = rt::awake_or_not();
    if clock > by { Err(ClientError::too_late(by, clock)) } else { Ok(()) }
}

impl Session {
    /// `is_local`: the client is on this machine.
    pub(in crate::server) fn new(is_local: bool, memory: &Arc<ClientMemory>, now: Millis) -> Self {
        let inbox = Arc::new(Inbox::new());
        let account = memory.open(&inbox, now);
        Self {
            identity: Identity::default(),
            access: Access::unknown(),
            root: Path::root(),
            window: None,
            inbox,
            account,
            traffic: Arc::default(),
            streams: Streams::default(),
            copies: Vec::new(),
            unsynced: UnsyncedReplies::default(),
            is_local,
            upload: Arc::default(),
            patience: Patience::default(),
            in_process: None,
            aside: None,
            long_batch: None,
            sent_away: false,
            guest: Guest::default(),
            looks_only: None,
            has_place: false,
            witness: None,
            certified: None,
            is_by_certificate: false,
            expired: None,
            crowded_out: None,
        }
    }

    /// Carries out messages that have arrived, from the first, while the output has room; those that must
    /// wait for the node to be ready are put aside. Tells how many are done; the rest is to be handed in
    /// again.
    pub(in crate::server) fn run(
        &mut self,
        cx: &Context<'_>,
        arrived: &Batch<'_>,
        out: &mut Vec<u8>,
    ) -> (usize, Then) {
        let Some(free) = self.not_behind(&arrived.messages) else { return (0, Then::Behind) };
        let ran = self.carry_out(cx, free, Some(arrived), out);
        self.put_aside(ran, self.window, |at| arrived.bytes_of(at))
    }

    /// The same of requests that have waited; `window` is that of the streams that they open.
    pub(in crate::server) fn run_waited(
        &mut self,
        cx: &Context<'_>,
        batch: &[Decoded<'_>],
        window: Option<u64>,
        out: &mut Vec<u8>,
    ) -> (usize, Then) {
        let window_now = std::mem::replace(&mut self.window, window);
        let ran = self.carry_out(cx, batch, None, out);
        self.window = window_now;
        ran
    }

    /// Runs of reads and runs of writes are carried out together, all else one by one. `arrived`: the batch, if its
    /// requests may have to wait.
    fn carry_out(
        &mut self,
        cx: &Context<'_>,
        batch: &[Decoded<'_>],
        arrived: Option<&Batch<'_>>,
        out: &mut Vec<u8>,
    ) -> (usize, Then) {
        let batch = match self.looking(cx, batch, out) {
            Some(batch) => batch,
            None => return (1, Then::Close),
        };
        if cx.access.is_stranger() {
            return self.meet_stranger(cx, batch, out);
        }
        let limit = cx.shared.output_limit();
        let mut done = 0;
        while let Some(rest) = batch.get(done..)
            && let Some(next) = rest.first()
            && out.len() < limit
        {
            if let Some(arrived) = arrived
                && let Ok(ClientMessage::Request { seq, action, request, .. }) = next
                && self.patience.holds_back(cx, request)
            {
                let message = arrived.bytes_of(done);
                if !self.patience.keep(cx, (*seq, *action), self.window, message) {
                    return (done, Then::NeedsReady);
                }
                done += 1;
                continue;
            }
            // One at a time while the one behind it may have to wait.
            let together = arrived.is_none() || self.patience.is_needless();
            let rest = if together { rest } else { rest.get(..1).unwrap_or(rest) };
            let (ran, then) = match next {
                Ok(ClientMessage::Request {
                    request: Request::Write(_) | Request::DeleteTree { .. } | Request::Update(_),
                    ..
                }) if !cx.has_room() => (0, Then::NeedsRoom),
                Ok(ClientMessage::Request { request: Request::Get { .. }, .. }) => {
                    (self.run_reads(cx, rest, out), Then::Continue)
                }
                Ok(ClientMessage::Request {
                    request: Request::Write(_) | Request::GetTock,
                    ..
                }) => (self.run_writes(cx, rest, out), Then::Continue),
                _ => self.on_message(cx, next, out),
            };
            done += ran;
            // What was not done comes again.
            if ran == 0 || !matches!(then, Then::Continue) {
                return (done, then);
            }
        }
        (done, Then::Continue)
    }

    /// A message that is carried out by itself. Returns how many are done, 1 or 0.
    fn on_message(
        &mut self,
        cx: &Context<'_>,
        message: &Decoded<'_>,
        out: &mut Vec<u8>,
    ) -> (usize, Then) {
        match message {
            Ok(ClientMessage::Request { seq, action, request, by }) => {
                if let Err(late) = check_time(*by) {
                    self.refuse(cx, Some(*seq), action.errs_in_stream(), late, out);
                    return (1, Then::Continue);
                }
                return match self.run_one(cx, *seq, *action, request, out) {
                    then @ (Then::NeedsRoom | Then::Aside(_)) => (0, then),
                    then @ (Then::Heavy(_) | Then::Unfinished | Then::Close) => (1, then),
                    Then::NeedsReady | Then::Behind | Then::Continue => (1, Then::Continue),
                };
            }
            Ok(ClientMessage::Ack { seq, ack }) => self.streams.acknowledge(*seq, *ack, cx.now),
            Ok(ClientMessage::Settings { qlen, nowait }) => self.set_up(*qlen, *nowait),
            Ok(ClientMessage::StreamEnd) => {}
            Err(bad) => {
                self.refuse(cx, bad.seq, bad.in_stream, bad.error.clone(), out);
                if bad.is_fatal {
                    return (1, Then::Close);
                }
            }
        }
        (1, Then::Continue)
    }

    /// What requests, and streams, are carried out with at this moment.
    pub(in crate::server) fn context<'c>(
        &mut self,
        shared: &'c Shared,
        now: Millis,
    ) -> Context<'c> {
        self.drop_expired_certificate();
        // Before anything is read: what is read later may be of later policies, and is checked again then.
        let is_over = self.access.until.is_some_and(|until| now >= until);
        // Who could not log in by a certificate can as soon as the node knows its users.
        let is_kept_out = self.access.is_stranger() && self.certified_user().is_some();
        if is_over || is_kept_out || self.access.policies != shared.hub.policies.now() {
            self.log_in_by_certificate(shared);
            self.access = shared.access_of(&self.identity);
            if !self.access.is_stranger() {
                self.guest.admit();
            }
        }
        let (access, witness) = (self.access.clone(), self.witness.clone());
        Context { hub: &shared.hub, shared, now, access, witness }
    }

    /// What the client wants, logged in or not: `qlen`, its length of windows, 0 for no flow control; `nowait`, whether it
    /// would rather be refused than wait for the node to be ready.
    fn set_up(&mut self, qlen: u64, nowait: bool) {
        self.patience.set_nowait(nowait);
        // A client's own buffers are its own affair: the window costs memory there, not here. If it
        // were reduced, a client that acknowledges by its own length would wait for ever. The
        // server pauses one short of it.
        self.window = (qlen > 0).then_some(qlen.saturating_sub(1).max(1));
    }

    fn run_one(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        action: Action,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Then {
        let result = match request {
            // These are carried out in runs.
            Request::Get { .. } | Request::Write(_) | Request::GetTock => return Then::Continue,
            Request::Batch(batch) => return self.batch(cx, seq, batch, out),
            Request::GetByEvent { node, tick, chain } => {
                self.get_by_event(cx, seq, node, *tick, *chain)
            }
            Request::DeleteTree { path, chain, above } => {
                self.delete_tree(cx, seq, path, *chain, *above)
            }
            Request::GetTree { scope, empty, after } => {
                self.get_tree(cx, seq, scope, *empty, after.as_ref())
            }
            Request::Enum { path, with_data, empty } => {
                self.enumerate(cx, seq, path, *with_data, *empty, out)
            }
            Request::Watch { scope, fetch, restart, conflicts } => {
                self.watch(cx, seq, scope, *fetch, *restart, *conflicts)
            }
            Request::Conflicts { scope, since, limit } => {
                self.conflicts(cx, seq, scope, *since, *limit)
            }
            Request::Stop { task } => Ok(self.stop(cx, seq, *task, out)),
            Request::GetState(parts) => self.get_state(cx, seq, *parts, out),
            Request::EnumNode { node, max, current } => {
                self.enum_node(cx, seq, node, *max, *current)
            }
            Request::KillNode { node } => self.kill_node(cx, seq, node),
            Request::Root { path } => self.move_root(cx, seq, path, out),
            Request::MsgSend { topic, data } => self.msg_send(cx, seq, topic, data, out),
            Request::MsgMonitor { topic, raw } => self.msg_monitor(cx, seq, topic, *raw),
            Request::Status => self.status(cx, seq, out),
            Request::Members => self.members(cx, seq, out),
            Request::Clients(asked) => self.clients(cx, seq, *asked, out),
            Request::History(asked) => self.history(cx, seq, asked),
            Request::ListShards(asked) => self.list_shards(cx, seq, *asked, out),
            Request::Cluster => self.cluster(cx, seq, out),
            Request::WatchCluster => self.watch_cluster(cx, seq),
            Request::ForgetMember { node } => self.forget_member(cx, seq, node, out),
            Request::KeyList => self.key_list(cx, seq, out),
            Request::ChangeKeys(change) => self.change_keys(cx, seq, change),
            Request::CheckDeleted { nodes } => self.check_deleted(cx, seq, nodes),
            Request::GetSnapshot(wanted) => self.get_snapshot(cx, seq, wanted),
            Request::Restore(piece) => self.restore(cx, seq, piece),
            Request::Save { file, full } => self.save(cx, seq, file, *full),
            Request::Log { file, fetch } => self.log(cx, seq, *file, *fetch),
            Request::Update(change) => self.update(cx, seq, change, out),
            Request::Snapshot { file } => self.snapshot(cx, seq, *file),
            Request::LogStart { file, distkv, fetch, force } => {
                self.log_start(cx, seq, file, *distkv, *fetch, *force)
            }
            Request::LogStop => self.log_stop(cx, seq),
            Request::Leave { for_good_ms: None } => self.leave(cx, seq, out),
            Request::Leave { for_good_ms: Some(patience_ms) } => {
                self.leave_for_good(cx, seq, *patience_ms)
            }
            Request::AuthInfo => self.auth_info(cx, seq, out),
            Request::TestAcl(test) => self.test_acl(cx, seq, test, out),
            Request::Forge => self.forge(cx, action),
            Request::Auth(request) => self.auth(cx, seq, request, out),
        };
        admission::tell(cx, action, request, &result);
        result.unwrap_or_else(|error| {
            self.refuse(cx, Some(seq), action.errs_in_stream(), error, out);
            Then::Continue
        })
    }

    /// `fake_info` and its sibling would have nodes account for ticks whose changes they never got.
    fn forge(&self, cx: &Context<'_>, action: Action) -> Result<Then, ClientError> {
        self.authorise(cx, action, Target::Node)?;
        let text = format!(
            "'{}' is refused, nothing was changed: a node that believes it has ticks which it never \
             got loses their changes for good; ask 'get_state' with 'missing' and leave the rest to \
             the nodes, or use 'forget_member' for a node that will not come back",
            action.name()
        );
        Err(ClientError::new(ErrorCode::Denied, text))
    }

    /// Answers with an error; within a stream where the client needs that.
    pub(in crate::server) fn refuse(
        &mut self,
        cx: &Context<'_>,
        seq: Option<u64>,
        in_stream: bool,
        error: ClientError,
        out: &mut Vec<u8>,
    ) {
        match seq {
            Some(seq) if in_stream && self.check_room(cx, seq).is_ok() => {
                let source = Box::new(FailedSource(Some(error)));
                self.streams.open(seq, self.window, source, cx.now);
            }
            // As many are open as may be: this one needs no place to say so.
            Some(seq) if in_stream && !self.streams.contains(seq) => {
                cx.shared.counts.note_error(&error);
                write_failed_stream(&error, seq, self.window.is_some(), cx.tock(), out);
            }
            _ => {
                cx.shared.counts.note_error(&error);
                write_error(&error, seq, cx.tock(), out);
            }
        }
    }

    /// Whether this client may do that; see [`authorise`].
    pub(in crate::server) fn authorise(
        &self,
        cx: &Context<'_>,
        action: Action,
        target: Target<'_>,
    ) -> Result<(), ClientError> {
        let looks = |path: &Path| cx.hub.read(|engine| is_there(engine.tree(), path));
        authorise(&cx.access, action, target, looks).map_err(|denied| {
            if let Some(witness) = &cx.witness {
                witness.denied(&denied, action, target);
            }
            denied.error(target, &cx.access)
        })
    }

    /// A request's whole path, after the hook has allowed it.
    pub(in crate::server) fn resolve<'a>(
        &self,
        cx: &Context<'_>,
        action: Action,
        path: &'a RequestPath<'a>,
    ) -> Result<WholePath<'a>, ClientError> {
        // The usual case of each read and write. That and `Access::is_unchecked` save 3 % of the instructions of both with
        // 16 in flight; without them, the goal of docs/performance.md, "What security costs", is missed.
        if self.is_as_sent(path) && cx.access.may_everything() {
            return Ok(WholePath::AsSent(path));
        }
        let whole = self.whole_path(path)?;
        self.authorise(cx, action, Target::Path(whole.as_bytes()))?;
        Ok(whole)
    }

    /// Whether a request's path is a whole one.
    fn is_as_sent(&self, path: &RequestPath<'_>) -> bool {
        !path.internal && self.root.is_root()
    }

    /// A request's whole path, for what is not about the entry there.
    pub(in crate::server) fn whole_path<'a>(
        &self,
        path: &'a RequestPath<'a>,
    ) -> Result<WholePath<'a>, ClientError> {
        Ok(if self.is_as_sent(path) {
            WholePath::AsSent(path)
        } else {
            let top = if path.internal { Path::system_root() } else { self.root.clone() };
            let joined = top.join(&path.path.to_path()).map_err(|e| {
                ClientError::bad_request(format!("bad field 'path', below the root: {e}"))
            })?;
            WholePath::Joined(joined)
        })
    }

    /// Whether another request may stay open under this number.
    pub(in crate::server) fn check_room(
        &self,
        cx: &Context<'_>,
        seq: u64,
    ) -> Result<(), ClientError> {
        if self.streams.contains(seq) {
            let text = format!("the stream {seq} is still open; use another 'seq'");
            return Err(ClientError::bad_request(text));
        }
        self.check_count(cx, 1)
    }

    /// Whether this many more requests may stay open.
    pub(in crate::server) fn check_count(
        &self,
        cx: &Context<'_>,
        more: usize,
    ) -> Result<(), ClientError> {
        let max = cx.shared.config.open_requests_max;
        if self.streams.len() + self.copies.len() + more > max {
            let open = count_of(max as u64, "request is", "requests are");
            let text = format!("{open} open on this connection; no more are allowed");
            return Err(ClientError::new(ErrorCode::TooMany, text));
        }
        Ok(())
    }

    /// Opens a stream; the caller has checked that there is room.
    pub(in crate::server) fn open_stream(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        source: Box<dyn Source>,
    ) {
        self.streams.open(seq, self.window, source, cx.now);
    }

    /// Whether the node can answer requests that need data.
    pub(in crate::server) fn check_ready(cx: &Context<'_>) -> Result<(), ClientError> {
        if cx.hub.read(Engine::is_ready) { Ok(()) } else { Err(not_ready()) }
    }

    /// Gives streams their turns and answers writes whose copies are confirmed.
    pub(in crate::server) fn produce(&mut self, cx: &Context<'_>, out: &mut Vec<u8>) -> Produced {
        self.answer_copies(cx, out);
        if self.streams.is_empty() {
            return Produced::Idle;
        }
        self.streams.produce(cx, cx.tock(), out, &mut self.unsynced, &self.inbox)
    }

    /// About how much memory open requests take, without their queues.
    pub(in crate::server) fn open_bytes(&self) -> usize {
        let copies: usize = self.copies.iter().map(CopiesWait::bytes).sum();
        let waiting = self.patience.bytes() + self.aside.as_ref().map_or(0, Aside::bytes);
        let batch = self.long_batch.as_ref().map_or(0, |batch| batch.bytes());
        self.streams.len() * STREAM_BYTES + copies + waiting + batch
    }

    /// Whether a stream makes changes as it continues.
    pub(in crate::server) fn makes_changes(&self) -> bool {
        self.streams.make_changes()
    }

    /// Whether nothing is open: no stream, no write that waits, no login under way.
    pub(in crate::server) fn is_quiet(&self) -> bool {
        self.streams.is_empty() && self.copies.is_empty() && self.aside.is_none()
    }

    /// The client sends nothing any more.
    pub(in crate::server) fn end_endless(&mut self, cx: &Context<'_>, out: &mut Vec<u8>) {
        let tock = cx.tock();
        self.streams.end_endless(cx, tock, out);
    }

    /// The node ends the connection.
    pub(in crate::server) fn end_all(&mut self, cx: &Context<'_>, out: &mut Vec<u8>) {
        let tock = cx.tock();
        self.streams.end_all(cx, tock, out);
        self.give_up_copies(cx, tock, out);
    }

    /// The connection is gone.
    pub(in crate::server) fn abandon(&mut self, cx: &Context<'_>) {
        self.streams.abandon(cx);
        self.copies.clear();
        self.aside = None;
        self.long_batch = None;
        drop(self.upload.lock().take());
    }

    /// Memory that should be dropped where no task waits for it.
    pub(in crate::server) fn take_garbage(&mut self) -> Vec<Garbage> {
        self.streams.take_garbage()
    }

    /// Whether nothing of this client has a deadline.
    pub(in crate::server) fn waits_only_for_bytes(&self) -> bool {
        let is_timed = self.guest.deadline().is_some() || self.looks_only.is_some();
        self.is_quiet() && !self.patience.is_waiting() && !is_timed
    }

    /// When something must be looked at even if nothing happens before.
    pub(in crate::server) fn next_deadline(&self, shared: &Shared, now: Millis) -> Option<Millis> {
        let copies = self.copies_deadline(now);
        let streams = self.streams.next_deadline(shared.config.snapshot_stall_ms);
        let guest = self.guest.deadline().into_iter().chain(self.look_deadline(now));
        let waiting = self.patience.deadline().into_iter().chain(self.aside_deadline());
        copies.into_iter().chain(streams).chain(waiting).chain(guest).min()
    }
}

/// The error of a node that has not caught up yet.
pub(in crate::server) fn not_ready() -> ClientError {
    ClientError::new(
        ErrorCode::NotReady,
        "this node has not caught up with its network yet; try again, or another node",
    )
}
