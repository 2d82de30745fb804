//! A client in the same process: what answers HTTP asks through it, so that authorisation, preconditions, limits and
//! the wait for the disk are those of every other client. It is the loop of a connection without a socket: bytes of
//! the client protocol go in and come out.
//!
//! It works only while its owner waits for a message, so whoever reads slowly is served slowly: output stays within
//! the limit of a connection's, watches start over, and the memory is charged as that of any client.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use distkv_access::users::Role;

use super::Shared;
use super::connections::accept::no_memory;
use super::connections::exchange::{Exchange, IDLE_BYTES, Requests};
use crate::engine::{Engine, NodeNames};
use crate::hub::shares::Holder;
use crate::model::entry::Entry;
use crate::model::ids::Incarnation;
use crate::model::value::Reader;
use crate::protocol::client::reply::write_error;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::rt;

/// A buffer for output that is larger than this is not kept when it is empty: clients that all read long values once would
/// seem to need several times what they do.
const LARGE_BYTES: usize = 256 << 10;

/// See the module.
pub(crate) struct LocalClient {
    exchange: Exchange,
    /// Messages that may be seen, from `taken` on.
    safe: Vec<u8>,
    taken: usize,
    /// No further message comes.
    has_ended: bool,
}

/// A long value of a reply, for a client in the same process: neither copied nor looked through.
#[derive(Default)]
pub(in crate::server) enum Apart {
    /// Values are in the replies.
    #[default]
    No,
    /// The next one, if it is long, is to be taken from here.
    Wanted,
    /// It has been read, and its reply has none.
    Is(Entry),
}

/// What differs for a client in the same process.
#[derive(Default)]
pub(in crate::server) struct InProcess {
    /// It takes long values from here, and not from replies.
    pub(in crate::server) apart: Apart,
}

impl InProcess {
    /// Whether the next long value is to be left here.
    pub(in crate::server) fn wants_apart(&self) -> bool {
        matches!(self.apart, Apart::Wanted)
    }
}

/// A client whose answer is on its way out. That costs memory for as long as this lives.
pub(crate) struct Charge {
    client: LocalClient,
}

impl Charge {
    /// Whether the answer is to be cut: its memory is needed more, or its user may do nothing any more. Then it is not to be
    /// asked again: each time it tells the audit log.
    #[must_use]
    pub(crate) fn is_over(&mut self) -> bool {
        let exchange = &mut self.client.exchange;
        if exchange.session.account.is_closing() {
            return true;
        }
        let is_shut_out = exchange.is_shut_out();
        if is_shut_out {
            exchange.session.tell_shut_out();
        }
        is_shut_out
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
        if shared.hub.client_memory().is_exceeded() && !shared.must_log_in() {
            return Err(no_memory());
        }
        // What only clients on this machine may do is not asked for by HTTP, and a browser is no such client.
        let is_local = false;
        let mut exchange = Exchange::new(shared, is_local);
        exchange.enter(address)?;
        exchange.session.in_process = Some(Box::default());
        Ok(Self { exchange, safe: Vec::new(), taken: 0, has_ended: false })
    }

    /// Whether clients may do nothing here before they have logged in.
    #[must_use]
    pub(crate) fn must_log_in(&self) -> bool {
        self.exchange.shared.must_log_in()
    }

    /// What the client may do with the node as a whole, at this moment; none: it must log in first.
    #[must_use]
    pub(crate) fn role(&mut self) -> Option<Role> {
        self.exchange.session.context(&self.exchange.shared, rt::now()).access.role
    }

    /// Whose shares it takes from, of what there are only so many of.
    #[must_use]
    pub(crate) fn holder(&self) -> Holder {
        self.exchange.session.holder()
    }

    /// The name of the node that had this life, if it is known here.
    #[must_use]
    pub(crate) fn node_of(&self, incarnation: Incarnation) -> Option<String> {
        let names = self.exchange.shared.hub.read(NodeNames::of);
        let mut lives = names.names().table.iter();
        lives.find(|(_, id)| id.incarnation == incarnation).map(|(_, id)| id.name.to_string())
    }

    /// Asks for nothing any more, and charges the clients' memory with this many bytes of an answer.
    #[must_use]
    pub(crate) fn into_charge(mut self, bytes: usize) -> Charge {
        self.abandon();
        (self.exchange.out, self.safe, self.taken) = (Vec::new(), Vec::new(), 0);
        self.exchange.input.shrink();
        self.exchange.session.account.set_buffers(bytes);
        Charge { client: self }
    }

    /// The value that is read next, if it is long, is not to be in its reply: [`Self::take_apart`] gives it.
    pub(crate) fn want_apart(&mut self) {
        self.leave_apart(Apart::Wanted);
    }

    /// The entry whose reply has come without its value. From now on, values are in replies again.
    pub(crate) fn take_apart(&mut self) -> Option<Entry> {
        match self.leave_apart(Apart::No) {
            Apart::Is(entry) => Some(entry),
            Apart::No | Apart::Wanted => None,
        }
    }

    fn leave_apart(&mut self, apart: Apart) -> Apart {
        let in_process = &mut self.exchange.session.in_process;
        in_process.as_mut().map(|own| std::mem::replace(&mut own.apart, apart)).unwrap_or_default()
    }

    /// Charges the clients' memory with what its owner keeps of an answer, besides all else; until it waits for a message.
    pub(crate) fn keep(&mut self, bytes: usize) {
        self.exchange.tell_memory(self.safe.capacity() + bytes);
    }

    /// Whether it is to end: its user was removed, or its memory is needed. The next message says why.
    #[must_use]
    pub(crate) fn is_closing(&self) -> bool {
        self.exchange.session.account.is_closing()
    }

    /// Takes one message, a whole MessagePack map. It is carried out while [`Self::ready`] is waited for.
    pub(crate) fn send(&mut self, message: &[u8]) {
        let mut rest = message;
        while !rest.is_empty() {
            let room = self.exchange.input.room();
            let count = room.len().min(rest.len());
            let (now, later) = rest.split_at(count);
            if let Some(room) = room.get_mut(..count) {
                room.copy_from_slice(now);
            }
            self.exchange.input.filled(count);
            rest = later;
        }
    }

    /// Waits until there is a message: in so many bytes, which [`Self::next_now`] cuts it from. None if no further one
    /// comes. It may be dropped while it waits.
    pub(crate) async fn ready(&mut self) -> Option<usize> {
        loop {
            let waiting = self.safe.len() - self.taken;
            if waiting > 0 {
                self.exchange.session.account.note_moved(rt::now());
                return Some(waiting);
            }
            if self.has_ended {
                return None;
            }
            self.step().await;
        }
    }

    /// The next message, if it is there already.
    pub(crate) fn next_now(&mut self) -> Option<Vec<u8>> {
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
        if self.exchange.shared.is_abandoned() {
            self.has_ended = true;
            return;
        }
        self.exchange.begin_round();
        self.exchange.listen_for_policies();
        if self.exchange.is_shut_out() {
            return self.end_shut_out();
        }
        if let Some(error) = self.exchange.overstays() {
            return self.end_after(&error);
        }
        let woken_before = self.exchange.shared.hub.woke_few_links();
        let mut busy = match self.exchange.take_requests(None) {
            Requests::Done | Requests::NeedsReady | Requests::Behind => false,
            Requests::More => true,
            Requests::Heavy(job) => {
                self.publish().await;
                if self.has_ended {
                    return;
                }
                self.exchange.run_heavy(job).await;
                true
            }
            Requests::NeedsRoom => {
                self.publish().await;
                self.exchange.shared.room().await;
                true
            }
            Requests::Close => {
                self.publish().await;
                self.has_ended = true;
                return;
            }
        };
        if self.exchange.session.makes_changes() {
            self.exchange.shared.room().await;
        }
        if self.exchange.shared.hub.woke_few_links() != woken_before {
            rt::yield_now().await;
        }
        let leave = self.exchange.may_produce().await;
        busy |= self.exchange.produce();
        drop(leave);
        self.publish().await;
        if self.has_ended {
            return;
        }
        if self.exchange.shared.is_stopping() {
            self.exchange.answer_arrived();
            self.exchange.end_all();
            self.publish().await;
            self.has_ended = true;
            return;
        }
        if self.exchange.session.account.is_closing() {
            return match self.exchange.is_shut_out() {
                true => self.end_shut_out(),
                false => self.end_for_memory(),
            };
        }
        if busy || self.taken < self.safe.len() {
            // Others have their turn first.
            rt::yield_now().await;
        } else if !self.exchange.listen_for_ready() {
            self.wait().await;
        }
    }

    /// Lets what the session has written be seen, once everything that it tells of may be.
    async fn publish(&mut self) {
        self.exchange.until_safe().await;
        if !self.exchange.out.is_empty() && self.exchange.is_shut_out() {
            // Whatever was read after that moment is in the output that is dropped here.
            return self.end_shut_out();
        }
        self.safe.append(&mut self.exchange.out);
        if self.exchange.out.capacity() > LARGE_BYTES {
            self.exchange.out.shrink_to(IDLE_BYTES);
        }
        self.exchange.tell_memory(self.safe.capacity());
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        self.exchange.input.shrink();
        self.exchange.out.shrink_to(IDLE_BYTES);
        self.exchange.tell_memory(self.safe.capacity());
        let left = self.exchange.time_left();
        let woken = poll_fn(|cx| match self.exchange.poll_events(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.exchange.poll_end(cx),
        });
        match left {
            None => woken.await,
            Some(left) => drop(rt::timeout(left, woken).await),
        }
    }

    /// The client may do nothing any more: drops what it has not seen, and says so.
    fn end_shut_out(&mut self) {
        self.exchange.session.tell_shut_out();
        let text = "this user was removed, its connections were ended, or it must log in now; what was asked for and not answered \
                    may have been done";
        self.end_after(&ClientError::new(ErrorCode::AuthRequired, text));
    }

    fn end_for_memory(&mut self) {
        let text = "what this node keeps for its clients exceeds --max-client-memory, and this one keeps much and \
                    takes little; read faster, or ask for less at once";
        self.end_after(&ClientError::new(ErrorCode::TooSlow, text));
    }

    fn end_after(&mut self, error: &ClientError) {
        (self.exchange.out, self.safe, self.taken) = (Vec::new(), Vec::new(), 0);
        self.leave_apart(Apart::No);
        self.exchange.shared.counts.note_error(error);
        write_error(error, None, self.exchange.shared.hub.read(Engine::tock), &mut self.safe);
        self.abandon();
        self.has_ended = true;
    }

    fn abandon(&mut self) {
        self.exchange.abandon();
        self.exchange.session.account.set_buffers(0);
    }
}

impl Drop for LocalClient {
    fn drop(&mut self) {
        self.abandon();
    }
}
