//! A client in the same process: what answers HTTP asks through it, so that authorisation, preconditions, limits and
//! the wait for the disk are those of every other client. It is the loop of a connection without a socket: bytes of
//! the client protocol go in and come out.
//!
//! It works only while its owner waits for a message, so whoever reads slowly is served slowly: output stays within
//! the limit of a connection's, watches start over, and the memory is charged as that of any client.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use distkv_access::users::Role;
use event_listener::EventListener;

use super::Shared;
use super::access::Identity;
use super::connections::connection::no_thread;
use super::connections::input::Input;
use super::connections::session::{HeavyJob, Session, Then};
use super::counts::Meter;
use super::stream::Produced;
use crate::engine::{Engine, NodeNames};
use crate::hub::client_memory::Account;
use crate::model::ids::{Incarnation, Millis};
use crate::model::value::Reader;
use crate::protocol::client::reply::write_error;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::rt;

/// Bytes of output kept while nothing goes out.
const IDLE_BYTES: usize = 4 << 10;

/// See the module.
pub struct LocalClient {
    shared: Arc<Shared>,
    session: Session,
    input: Input,
    /// What the session has written; not to be seen before it is safe.
    out: Vec<u8>,
    /// Messages that may be seen, from `taken` on.
    safe: Vec<u8>,
    taken: usize,
    /// No further message comes.
    has_ended: bool,
    stopping: EventListener,
    closing: EventListener,
    wakes: Wakes,
    meter: Meter,
}

/// What it waits for. Listeners are kept from one round to the next.
#[derive(Default)]
struct Wakes {
    inbox: Option<EventListener>,
    acknowledged: Option<EventListener>,
    ready: Option<EventListener>,
    policies: Option<EventListener>,
}

/// Memory that an answer costs after its client has gone, for as long as this lives.
pub struct Charge {
    account: Arc<Account>,
}

impl Charge {
    /// Whether the memory is needed more than the answer.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.account.is_closing()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.set_buffers(0);
    }
}

impl LocalClient {
    /// A client that has come from this address.
    ///
    /// # Errors
    /// The node stops, has no memory for it, or too many clients must log in already.
    pub(in crate::server) fn open(
        shared: Arc<Shared>,
        address: SocketAddr,
    ) -> Result<Self, ClientError> {
        if shared.is_stopping() {
            return Err(ClientError::new(ErrorCode::NotReady, "this node is leaving"));
        }
        if shared.hub.client_memory().is_exceeded() {
            let text =
                "what this node keeps for its clients exceeds --max-client-memory; try again later";
            return Err(ClientError::new(ErrorCode::TooMany, text));
        }
        // What only clients on this machine may do is not asked for by HTTP, and a browser is no such client.
        let is_local = false;
        let mut session = Session::new(is_local, shared.hub.client_memory(), rt::now());
        session.identity = shared.first_identity();
        session.enter(&shared, address, rt::now())?;
        Ok(Self {
            input: Input::new(shared.config.message_limit()),
            out: Vec::new(),
            safe: Vec::new(),
            taken: 0,
            has_ended: false,
            stopping: shared.stopping.listen(),
            closing: session.account.closing.listen(),
            wakes: Wakes::default(),
            meter: Meter::default(),
            session,
            shared,
        })
    }

    /// Whether clients may do nothing here before they have logged in.
    #[must_use]
    pub fn must_log_in(&self) -> bool {
        self.shared.must_log_in()
    }

    /// What the client may do with the node as a whole, at this moment; none: it must log in first.
    #[must_use]
    pub fn role(&mut self) -> Option<Role> {
        self.session.context(&self.shared, rt::now()).access.role
    }

    /// The name of the node that had this life, if it is known here.
    #[must_use]
    pub fn node_of(&self, incarnation: Incarnation) -> Option<String> {
        let names = self.shared.hub.read(NodeNames::of);
        let mut lives = names.names().table.iter();
        lives.find(|(_, id)| id.incarnation == incarnation).map(|(_, id)| id.name.to_string())
    }

    /// Ends, and charges the clients' memory with this many bytes of an answer.
    #[must_use]
    pub fn into_charge(self, bytes: usize) -> Charge {
        let account = Arc::clone(&self.session.account);
        drop(self);
        account.set_buffers(bytes);
        Charge { account }
    }

    /// Takes one message, a whole MessagePack map. It is carried out while [`Self::next`] is waited for.
    pub fn send(&mut self, message: &[u8]) {
        let mut rest = message;
        while !rest.is_empty() {
            let room = self.input.room();
            let count = room.len().min(rest.len());
            let (now, later) = rest.split_at(count);
            if let Some(room) = room.get_mut(..count) {
                room.copy_from_slice(now);
            }
            self.input.filled(count);
            rest = later;
        }
    }

    /// The next message; none if no further one comes. It may be dropped while it waits.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(message) = self.cut() {
                self.session.account.note_moved(rt::now());
                return Some(message);
            }
            if self.has_ended {
                return None;
            }
            self.step().await;
        }
    }

    /// The next message, if it is there already.
    pub fn next_now(&mut self) -> Option<Vec<u8>> {
        self.cut()
    }

    fn cut(&mut self) -> Option<Vec<u8>> {
        let rest = self.safe.get(self.taken..).filter(|rest| !rest.is_empty())?;
        let length = Reader::new(rest).read_raw().map_or(rest.len(), <[u8]>::len);
        let message = rest.get(..length)?.to_vec();
        self.taken += length;
        if self.taken >= self.safe.len() {
            self.safe.clear();
            self.safe.shrink_to(IDLE_BYTES);
            self.taken = 0;
        }
        Some(message)
    }

    /// One round: carries out requests, lets streams go on, and waits if there is nothing else to do.
    async fn step(&mut self) {
        if self.shared.is_abandoned() {
            self.has_ended = true;
            return;
        }
        self.listen_for_policies();
        if self.is_shut_out() {
            return self.end_shut_out();
        }
        if let Some(error) = self.session.guest.overstays(rt::now(), self.input.total()) {
            return self.end_after(&error);
        }
        let woken_before = self.shared.hub.woke_few_links();
        let mut busy = match self.take_requests() {
            (Then::Heavy(job), _) => {
                self.run_heavy(job).await;
                true
            }
            (Then::NeedsRoom, _) => {
                self.publish().await;
                self.shared.room().await;
                true
            }
            (Then::Close, _) => {
                self.publish().await;
                self.has_ended = true;
                return;
            }
            (Then::Continue | Then::NeedsReady, has_more) => has_more,
        };
        if self.session.makes_changes() {
            self.shared.room().await;
        }
        if self.shared.hub.woke_few_links() != woken_before {
            rt::yield_now().await;
        }
        busy |= self.produce();
        self.publish().await;
        if self.has_ended {
            return;
        }
        if self.shared.is_stopping() {
            self.session.patience.give_up();
            self.take_requests();
            let cx = self.session.context(&self.shared, rt::now());
            self.session.end_all(&cx, &mut self.out);
            self.publish().await;
            self.has_ended = true;
            return;
        }
        if self.session.account.is_closing() {
            return match self.is_shut_out() {
                true => self.end_shut_out(),
                false => self.end_for_memory(),
            };
        }
        if busy || self.taken < self.safe.len() {
            // Others have their turn first.
            rt::yield_now().await;
        } else if !self.is_ready_for_waiting() {
            self.wait().await;
        }
    }

    /// Carries out a batch of requests, or a part of it: first those that have waited. Tells whether there may be
    /// others.
    fn take_requests(&mut self) -> (Then, bool) {
        let cx = self.session.context(&self.shared, rt::now());
        let due = self.session.patience.take_due(&cx);
        if let Some(first) = due.first() {
            let window = first.window;
            let batch: Vec<_> =
                due.iter().map(|due| crate::protocol::client::decode(&due.message)).collect();
            let (done, then) = self.session.run_waited(&cx, &batch, window, &mut self.out);
            drop(batch);
            self.session.patience.put_back(due.into_iter().skip(done));
            return (then, true);
        }
        let Some(batch) = self.input.batch() else {
            return (Then::Continue, self.input.has_more());
        };
        let (done, then) = self.session.run(&cx, &batch, &mut self.out);
        let counts = (&*self.shared.counts, &*self.session.traffic);
        self.meter.count(&batch.messages, done, None, counts);
        let all = done == batch.messages.len();
        let end = done.checked_sub(1).and_then(|last| batch.ends.get(last)).copied().unwrap_or(0);
        drop(batch);
        self.input.consume(end, all);
        (then, self.input.has_more())
    }

    async fn run_heavy(&mut self, job: HeavyJob) {
        self.publish().await;
        if self.has_ended {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let HeavyJob { seq, work, prelude, .. } = job;
        let _permit = match prelude {
            Some(_) => shared.logins.core().await,
            None => {
                let _waits = shared.counts.heavy_waits();
                shared.heavy.acquire().await
            }
        };
        let _runs = prelude.is_none().then(|| shared.counts.heavy_runs());
        let error = match rt::spawn_work("request", work) {
            Ok(work) => match work.done().await {
                Some(reply) => return self.out.extend_from_slice(&reply),
                None => ClientError::new(ErrorCode::Internal, "the node failed at this request"),
            },
            Err(error) => no_thread(&error),
        };
        if prelude.is_none() {
            shared.counts.note_error(&error);
            write_error(&error, Some(seq), shared.hub.read(Engine::tock), &mut self.out);
        }
    }

    /// Gives the streams their turns; tells whether there is more to do at once.
    fn produce(&mut self) -> bool {
        if self.session.is_quiet() {
            let policies = self.wakes.policies.take();
            self.wakes = Wakes { policies, ..Wakes::default() };
            return false;
        }
        // Listen first, then look: what happens in between is not missed.
        if !self.session.streams.is_empty() && self.wakes.inbox.is_none() {
            self.wakes.inbox = Some(self.session.inbox.changed.listen());
        }
        if !self.session.copies.is_empty() && self.wakes.acknowledged.is_none() {
            self.wakes.acknowledged = Some(self.shared.hub.acknowledged.listen());
        }
        let cx = self.session.context(&self.shared, rt::now());
        let produced = self.session.produce(&cx, &mut self.out);
        self.drop_garbage();
        produced == Produced::More
    }

    /// Lets what the session has written be seen, once everything that it tells of may be: under the sync policy
    /// `every-batch` when that is on disk.
    async fn publish(&mut self) {
        if let Some(log) = self.shared.hub.log()
            && log.gates()
            && !self.out.is_empty()
            && let Err(failure) = log.until_synced(log.appended()).await
        {
            let tock = self.shared.hub.read(Engine::tock);
            self.session.unsynced.withdraw(&failure, tock, &self.shared.counts, &mut self.out);
        }
        self.session.unsynced.forget();
        if !self.out.is_empty() && self.is_shut_out() {
            // Whatever was read after that moment is in the output that is dropped here.
            return self.end_shut_out();
        }
        self.safe.append(&mut self.out);
        self.tell_memory();
    }

    fn tell_memory(&self) {
        let buffers = self.out.capacity() + self.safe.capacity() + self.input.capacity();
        self.session.account.set_buffers(buffers + self.session.open_bytes());
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        self.input.shrink();
        self.out.shrink_to(IDLE_BYTES);
        self.tell_memory();
        let cx = self.session.context(&self.shared, rt::now());
        let deadline = self.session.next_deadline(&cx);
        let left = deadline.map(|at: Millis| Duration::from_millis(at.saturating_sub(cx.now)));
        let woken = poll_fn(|cx| self.poll_wake(cx));
        match left {
            None => woken.await,
            Some(left) => drop(rt::timeout(left, woken).await),
        }
    }

    fn poll_wake(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let Wakes { inbox, acknowledged, ready, policies } = &mut self.wakes;
        for listener in [inbox, acknowledged, ready, policies] {
            if let Some(event) = listener
                && Pin::new(event).poll(cx).is_ready()
            {
                *listener = None;
                return Poll::Ready(());
            }
        }
        let is_stopping = Pin::new(&mut self.stopping).poll(cx).is_ready();
        if is_stopping || Pin::new(&mut self.closing).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn listen_for_policies(&mut self) {
        if matches!(self.session.identity, Identity::User { .. }) && self.wakes.policies.is_none() {
            self.wakes.policies = Some(self.shared.hub.policies.changed.listen());
        }
    }

    /// Makes the node's readiness wake this client if requests wait for it. Tells whether it is ready already.
    fn is_ready_for_waiting(&mut self) -> bool {
        if !self.session.patience.is_waiting() {
            return false;
        }
        self.wakes.ready.get_or_insert_with(|| self.shared.hub.became_ready.listen());
        self.shared.hub.read(Engine::is_ready)
    }

    fn is_shut_out(&mut self) -> bool {
        let cx = self.session.context(&self.shared, rt::now());
        self.session.is_shut_out(&cx)
    }

    /// The client may do nothing any more: drops what it has not seen, and says so.
    fn end_shut_out(&mut self) {
        self.session.tell_shut_out();
        let text = "this user was removed, or must log in now; what was asked for and not answered may have been done";
        self.end_after(&ClientError::new(ErrorCode::AuthRequired, text));
    }

    fn end_for_memory(&mut self) {
        let text = "what this node keeps for its clients exceeds --max-client-memory, and this one keeps much and \
                    takes little; read faster, or ask for less at once";
        self.end_after(&ClientError::new(ErrorCode::TooSlow, text));
    }

    fn end_after(&mut self, error: &ClientError) {
        (self.out, self.safe, self.taken) = (Vec::new(), Vec::new(), 0);
        self.shared.counts.note_error(error);
        write_error(error, None, self.shared.hub.read(Engine::tock), &mut self.safe);
        self.abandon();
        self.has_ended = true;
    }

    fn abandon(&mut self) {
        let cx = self.session.context(&self.shared, rt::now());
        self.session.abandon(&cx);
        self.drop_garbage();
        self.session.account.set_buffers(0);
    }

    fn drop_garbage(&mut self) {
        for garbage in self.session.take_garbage() {
            // Detached: no task waits for it.
            drop(rt::spawn_blocking(move || drop(garbage)));
        }
    }
}

impl Drop for LocalClient {
    fn drop(&mut self) {
        self.abandon();
    }
}
