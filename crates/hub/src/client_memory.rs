//! What the node's clients cost in memory, all together, with one bound: buffers and open requests of
//! connections, what is queued for watches and monitors, what is kept for watches that have lapsed,
//! snapshots that are being uploaded, and old versions of entries that only the snapshots of streams still
//! hold.
//!
//! Shared data is counted once in the sum, however many watches wait for it. Each connection also
//! has an [`Account`] of what it keeps alive and for how long it has not read: when the sum exceeds
//! the bound, the server closes the worst ([`ClientMemory::worst`]) of the user that keeps most, so that
//! whoever fills the memory is the one that it is taken from.
//!
//! The sum is one atomic counter. Connections add to it in steps of [`STEP_BYTES`], and a bundle of
//! changes once, so that no message takes a lock for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use event_listener::Event;
use parking_lot::Mutex;

use super::inbox::Inbox;
use super::pins::Pins;
use super::shares::Holder;
use crate::model::ids::Millis;
use crate::model::invariant::invariant;

/// The default bound.
pub const CLIENT_MEMORY: usize = 256 << 20;
/// A connection reports its memory in steps of this many bytes.
pub(crate) const STEP_BYTES: usize = 4 << 10;
/// Connections that hold less are not closed for the memory of all, because it would gain nothing, unless they are all of a
/// user that keeps more than half of what all may.
pub(crate) const CLOSE_MIN_BYTES: usize = 64 << 10;

/// See the module.
pub struct ClientMemory {
    max: AtomicUsize,
    /// All but what snapshots hold.
    held: AtomicUsize,
    /// What snapshots hold. Invariant: the sum over `pins`, under whose lock it is changed: otherwise a
    /// snapshot that goes could give back what nobody has added yet.
    pinned: AtomicUsize,
    pins: Mutex<Pins>,
    /// How many there are, to be looked at without the lock.
    pin_count: AtomicUsize,
    accounts: Mutex<BTreeMap<u64, Weak<Account>>>,
    /// Whose connection was the worst when that was last looked for.
    worst: Mutex<Option<Holder>>,
    next_account: AtomicU64,
    is_pressed: AtomicBool,
    /// Fires when the sum exceeds the bound.
    pub pressure: Event,
    /// Fires when a connection's account is closed.
    pub relief: Event,
    closed: AtomicU64,
}

impl Default for ClientMemory {
    fn default() -> Self {
        Self {
            max: AtomicUsize::new(CLIENT_MEMORY),
            held: AtomicUsize::new(0),
            pinned: AtomicUsize::new(0),
            pins: Mutex::default(),
            pin_count: AtomicUsize::new(0),
            accounts: Mutex::default(),
            worst: Mutex::default(),
            next_account: AtomicU64::new(0),
            is_pressed: AtomicBool::new(false),
            pressure: Event::new(),
            relief: Event::new(),
            closed: AtomicU64::new(0),
        }
    }
}

/// How it stands, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientMemoryView {
    /// Bytes in use, those that snapshots hold included.
    pub used: usize,
    /// Bytes that only snapshots hold.
    pub pinned: usize,
    /// The bound.
    pub max: usize,
    /// Connections that were closed because of it.
    pub closed: u64,
}

impl ClientMemory {
    /// Sets the bound, in bytes.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// How it stands.
    #[must_use]
    pub fn view(&self) -> ClientMemoryView {
        ClientMemoryView {
            used: self.used(),
            pinned: self.pinned.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.held.load(Ordering::Relaxed).saturating_add(self.pinned.load(Ordering::Relaxed))
    }

    /// Whether more is in use than may be.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.used() > self.max.load(Ordering::Relaxed)
    }

    /// The most output that one connection may keep when this many are connected: the buffers of
    /// all of them together stay within half of the bound (a buffer doubles as it grows), as long
    /// as each has `least`.
    #[must_use]
    pub fn output_share(&self, connections: usize, least: usize, most: usize) -> usize {
        let share = self.max.load(Ordering::Relaxed) / 4 / connections.max(1);
        share.clamp(least.min(most), most)
    }

    /// Opens a connection's account.
    pub fn open(self: &Arc<Self>, inbox: &Arc<Inbox>, now: Millis) -> Arc<Account> {
        let number = self.next_account.fetch_add(1, Ordering::Relaxed);
        inbox.charge_to(self);
        let account = Arc::new(Account {
            memory: Arc::clone(self),
            number,
            inbox: Arc::clone(inbox),
            buffers: AtomicUsize::new(0),
            upload: AtomicUsize::new(0),
            moved_at: AtomicU64::new(now),
            owner: Mutex::default(),
            is_closing: AtomicBool::new(false),
            closing: Event::new(),
        });
        self.accounts.lock().insert(number, Arc::downgrade(&account));
        account
    }

    /// Charges bytes until the returned value is dropped.
    #[must_use]
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        let charge = Charge { memory: Arc::clone(self), bytes: AtomicUsize::new(0) };
        charge.add(bytes);
        charge
    }

    pub(super) fn add(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.look();
    }

    pub(super) fn sub(&self, bytes: usize) {
        let before = self.held.fetch_sub(bytes, Ordering::Relaxed);
        invariant!(bytes <= before, "what is given back was charged");
    }

    fn look(&self) {
        if self.is_exceeded() && !self.is_pressed.swap(true, Ordering::AcqRel) {
            self.pressure.notify(usize::MAX);
        }
    }

    /// The server has closed what it can: the next excess is reported again.
    pub fn note_relieved(&self) {
        self.is_pressed.store(false, Ordering::Release);
    }

    /// A stream holds a snapshot of a tree of the given size, until the returned value is dropped.
    fn pin(&self, account: &Arc<Account>, tree_bytes: usize) -> Pin {
        let mut pins = self.pins.lock();
        let number = pins.add(account.number, tree_bytes);
        self.pin_count.store(pins.len(), Ordering::Release);
        Pin { memory: Arc::clone(&account.memory), number }
    }

    /// Whether some stream holds a snapshot.
    #[must_use]
    pub(crate) fn has_pins(&self) -> bool {
        self.pin_count.load(Ordering::Acquire) > 0
    }

    /// Entries at these paths were written; `replaced`: the bytes of all the versions that went.
    pub(crate) fn note_changes<'p>(&self, paths: impl Iterator<Item = &'p [u8]>, replaced: usize) {
        let mut pins = self.pins.lock();
        let grown = pins.note_changes(paths, replaced);
        self.pinned.fetch_add(grown, Ordering::Relaxed);
        drop(pins);
        if grown > 0 {
            self.look();
        }
    }

    /// The worst connection of the user whose connections together keep most alive: by what it keeps alive, times how
    /// long it has not read. None if no connection holds enough to be worth closing, or what is being closed is enough.
    #[must_use]
    pub fn worst(&self, now: Millis) -> Option<(Arc<Account>, Holding)> {
        let accounts: Vec<Arc<Account>> =
            self.accounts.lock().values().filter_map(Weak::upgrade).collect();
        let pinned = self.pins.lock().by_account();
        let holding = |account: Arc<Account>| {
            let pinned = pinned.get(&account.number).copied().unwrap_or_default();
            let queued = account.inbox.held();
            let own =
                account.buffers.load(Ordering::Relaxed) + account.upload.load(Ordering::Relaxed);
            let bytes = own + queued + pinned;
            let moved_at = account.moved_at.load(Ordering::Relaxed);
            (account, Holding { bytes, silent_ms: now.saturating_sub(moved_at) })
        };
        let mut by_owner: HashMap<Option<Holder>, Vec<(Arc<Account>, Holding)>> = HashMap::new();
        let mut ending = 0;
        for account in accounts {
            let (account, held) = holding(account);
            if account.is_closing() {
                ending += held.bytes;
                continue;
            }
            let owner = account.owner.lock().clone();
            by_owner.entry(owner).or_default().push((account, held));
        }
        let max = self.max.load(Ordering::Relaxed);
        if ending > 0 && self.used().saturating_sub(ending) <= max {
            return None;
        }
        let bytes_of = |all: &[(_, Holding)]| all.iter().map(|(_, holding)| holding.bytes).sum();
        let mut owners: Vec<_> =
            by_owner.into_iter().map(|(owner, all)| (bytes_of(&all), owner, all)).collect();
        owners.sort_by_key(|(bytes, ..)| Reverse::<usize>(*bytes));
        let (most, owner, _) = owners.first()?;
        *self.worst.lock() = owner.clone();
        let takes_half = owners.len() > 1 && *most > max / 2;
        let worst_of = |all: &[(Arc<Account>, Holding)], least: usize| {
            let worth = all.iter().filter(|(_, holding)| holding.bytes >= least);
            worth.max_by_key(|(_, holding)| holding.badness()).cloned()
        };
        let mut all = owners.iter().map(|(.., all)| &all[..]);
        let greatest = all.next().unwrap_or_default();
        let worst = worst_of(greatest, CLOSE_MIN_BYTES);
        let worst = worst.or_else(|| worst_of(greatest, 1).filter(|_| takes_half));
        worst.or_else(|| all.find_map(|all| worst_of(all, CLOSE_MIN_BYTES)))
    }

    /// Whether more is in use than may be, and this user's connections are those that are closed for it.
    #[must_use]
    pub fn is_filled_by(&self, owner: &Holder) -> bool {
        self.is_exceeded() && self.worst.lock().as_ref() == Some(owner)
    }

    /// Counts a connection that was closed because of the bound.
    pub fn note_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a connection keeps alive, and for how long it has taken nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holding {
    /// Bytes, what it shares with others included.
    pub bytes: usize,
    /// Since it last took or sent something.
    pub silent_ms: Millis,
}

impl Holding {
    fn badness(self) -> u128 {
        self.bytes as u128 * (u128::from(self.silent_ms) + 1)
    }
}

/// What one connection holds.
pub struct Account {
    memory: Arc<ClientMemory>,
    number: u64,
    inbox: Arc<Inbox>,
    /// Of its buffers and open requests, as last reported.
    buffers: AtomicUsize,
    /// Of the snapshot that it uploads.
    upload: AtomicUsize,
    moved_at: AtomicU64,
    owner: Mutex<Option<Holder>>,
    is_closing: AtomicBool,
    /// Fires when the connection must be closed because memory ran out, or because no client is
    /// served.
    pub closing: Event,
}

impl Account {
    /// What the connection's buffers and open requests take now. Only its own task calls this.
    pub fn set_buffers(&self, bytes: usize) {
        let before = self.buffers.load(Ordering::Relaxed);
        if bytes.abs_diff(before) < STEP_BYTES {
            return;
        }
        self.buffers.store(bytes, Ordering::Relaxed);
        if bytes > before {
            self.memory.add(bytes - before);
        } else {
            self.memory.sub(before - bytes);
        }
    }

    /// What the snapshot that the connection uploads takes now; 0 when it is over.
    pub fn set_upload(&self, bytes: usize) {
        let before = self.upload.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.memory.add(bytes - before);
        } else {
            self.memory.sub(before - bytes);
        }
    }

    /// Whether so many bytes more can be kept for clients without anybody being closed for it.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.memory.used().saturating_add(bytes) <= self.memory.max.load(Ordering::Relaxed)
    }

    /// Bytes that wait for watches and monitors, and all that the connection keeps alive, snapshots not counted.
    #[must_use]
    pub fn bytes(&self) -> (usize, usize) {
        let own = self.buffers.load(Ordering::Relaxed) + self.upload.load(Ordering::Relaxed);
        (self.inbox.bytes(), own + self.inbox.held())
    }

    /// For how long the client has taken and sent nothing, milliseconds.
    #[must_use]
    pub fn silent_ms(&self, now: Millis) -> Millis {
        now.saturating_sub(self.moved_at.load(Ordering::Relaxed))
    }

    /// See [`ClientMemory::is_filled_by`].
    #[must_use]
    pub fn is_filled_by(&self, owner: &Holder) -> bool {
        self.memory.is_filled_by(owner)
    }

    /// Whose connection it is.
    pub fn set_owner(&self, owner: Holder) {
        *self.owner.lock() = Some(owner);
    }

    /// The client took or sent something.
    pub fn note_moved(&self, now: Millis) {
        self.moved_at.store(now, Ordering::Relaxed);
    }

    /// The connection must be closed: because memory ran out, or because no client is served.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.closing.notify(usize::MAX);
    }

    /// Whether it is.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// A stream of this connection holds a snapshot of a tree of the given size.
    pub fn pin(self: &Arc<Self>, tree_bytes: usize) -> Pin {
        self.memory.pin(self, tree_bytes)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.memory.sub(self.buffers.load(Ordering::Relaxed));
        self.memory.sub(self.upload.load(Ordering::Relaxed));
        self.memory.accounts.lock().remove(&self.number);
        self.memory.relief.notify(usize::MAX);
    }
}

/// Bytes that are counted while this lives.
pub(crate) struct Charge {
    memory: Arc<ClientMemory>,
    bytes: AtomicUsize,
}

impl Charge {
    /// Charges more.
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.memory.add(bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.sub(self.bytes.load(Ordering::Relaxed));
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Charge({})", self.bytes.load(Ordering::Relaxed))
    }
}

/// A snapshot that a stream holds.
pub struct Pin {
    memory: Arc<ClientMemory>,
    number: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.memory.pins.lock();
        let freed = pins.remove(self.number);
        self.memory.pin_count.store(pins.len(), Ordering::Release);
        let before = self.memory.pinned.fetch_sub(freed, Ordering::Relaxed);
        drop(pins);
        invariant!(freed <= before, "what is given back was counted");
    }
}

#[cfg(test)]
mod tests {
    use event_listener::Listener;

    use super::*;
    use crate::pins::NODE_BYTES;

    fn memory(max: usize) -> Arc<ClientMemory> {
        let memory = Arc::new(ClientMemory::default());
        memory.set_max(max);
        memory
    }

    fn open(memory: &Arc<ClientMemory>) -> Arc<Account> {
        memory.open(&Arc::new(Inbox::new()), 0)
    }

    fn write(memory: &ClientMemory, path: &str, replaced: usize) {
        memory.note_changes([path.as_bytes()].into_iter(), replaced);
    }

    #[test]
    fn buffers_are_counted_in_steps_and_given_back() {
        let memory = memory(1 << 20);
        let account = open(&memory);
        account.set_buffers(STEP_BYTES - 1);
        assert_eq!(memory.used(), 0);
        account.set_buffers(100_000);
        account.set_buffers(100_001);
        assert_eq!(memory.used(), 100_000);
        account.set_buffers(10_000);
        assert_eq!(memory.used(), 10_000);
        drop(account);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn an_upload_counts_as_its_connection_s_until_it_is_over() {
        let memory = memory(1 << 20);
        let account = open(&memory);
        account.set_upload(900_000);
        assert_eq!(memory.used(), 900_000);
        assert!(account.has_room(100_000) && !account.has_room(200_000));
        assert_eq!(memory.worst(1).unwrap().1.bytes, 900_000);
        account.set_upload(1_000);
        assert_eq!(memory.used(), 1_000);
        drop(account);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn the_worst_holds_most_and_has_taken_nothing_for_longest() {
        let memory = memory(0);
        let (quick, slow, small) = (open(&memory), open(&memory), open(&memory));
        quick.set_buffers(10 << 20);
        quick.note_moved(10_000);
        slow.set_buffers(1 << 20);
        slow.note_moved(1_000);
        small.set_buffers(CLOSE_MIN_BYTES - 1);
        let (worst, holding) = memory.worst(10_000).unwrap();
        assert_eq!(worst.number, slow.number);
        assert_eq!((holding.bytes, holding.silent_ms), (1 << 20, 9_000));
        worst.close();
        assert_eq!(memory.worst(10_000).unwrap().0.number, quick.number);
        drop((worst, quick, slow));
        assert!(memory.worst(99_999).is_none(), "the small one is not worth it");
    }

    #[test]
    fn the_memory_is_taken_from_the_user_that_keeps_most_of_it() {
        let memory = memory(4 << 20);
        let user = |name: &str| Holder::User { method: "token".into(), name: name.into() };
        let open_as = |name: &str, bytes: usize, moved_at: Millis| {
            let account = open(&memory);
            account.set_owner(user(name));
            account.set_buffers(bytes);
            account.note_moved(moved_at);
            account
        };
        // One that has waited for long, and many that have all moved just now.
        let good = open_as("good", 1 << 20, 0);
        let greedy: Vec<_> = (0..5).map(|n| open_as("mal", 1 << 20, 9_990 + n)).collect();
        assert!(memory.is_exceeded() && !memory.is_filled_by(&user("mal")));
        assert_eq!(memory.worst(10_000).unwrap().0.number, greedy[0].number);
        assert!(memory.is_filled_by(&user("mal")) && !memory.is_filled_by(&user("good")));
        drop(greedy);
        assert!(!memory.is_filled_by(&user("mal")));
        // Also if it is by many that keep little each.
        let little: Vec<_> = (0..50).map(|_| open_as("mal", CLOSE_MIN_BYTES - 1, 9_999)).collect();
        let worst = memory.worst(10_000).unwrap().0;
        assert!(little.iter().any(|account| account.number == worst.number));
        assert_eq!(good.silent_ms(10_000), 10_000);
    }

    #[test]
    fn who_waits_for_pressure_is_told_once_until_it_is_relieved() {
        let memory = memory(10_000);
        let listener = memory.pressure.listen();
        let charge = memory.charge(10_001);
        assert!(memory.is_exceeded());
        listener.wait_timeout(std::time::Duration::from_secs(10)).unwrap();
        let listener = memory.pressure.listen();
        charge.add(1);
        assert!(listener.wait_timeout(std::time::Duration::ZERO).is_none());
        memory.note_relieved();
        let listener = memory.pressure.listen();
        charge.add(1);
        listener.wait_timeout(std::time::Duration::from_secs(10)).unwrap();
        drop(charge);
        assert!(!memory.is_exceeded());
    }

    #[test]
    fn a_snapshot_is_charged_what_was_replaced_since_once_per_path_and_at_most_its_tree() {
        let memory = memory(1 << 30);
        let account = open(&memory);
        write(&memory, "before", 1_000);
        assert_eq!(memory.used(), 0);
        let pin = account.pin(100_000);
        write(&memory, "a", 1_000);
        assert_eq!(memory.used(), 1_000 + NODE_BYTES);
        write(&memory, "a", 1_000);
        assert_eq!(memory.used(), 1_000 + NODE_BYTES, "that version came after the snapshot");
        write(&memory, "new", 0);
        assert_eq!(memory.used(), 1_000 + NODE_BYTES, "nothing was there before");
        write(&memory, "big", 1 << 20);
        assert_eq!(memory.used(), 100_000);
        drop(pin);
        assert_eq!(memory.used(), 0);
        assert!(!memory.has_pins());
    }

    #[test]
    fn what_several_snapshots_hold_is_counted_once_and_goes_with_the_last() {
        let memory = memory(1 << 30);
        let (old, new) = (open(&memory), open(&memory));
        let one = 1_000 + NODE_BYTES;
        let first = old.pin(1 << 20);
        write(&memory, "a", 1_000);
        let second = new.pin(1 << 20);
        write(&memory, "a", 1_000);
        write(&memory, "b", 1_000);
        assert_eq!(memory.used(), 3 * one);
        let by_account = memory.pins.lock().by_account();
        assert_eq!((by_account[&old.number], by_account[&new.number]), (3 * one, 2 * one));
        drop(second);
        assert_eq!(memory.used(), 3 * one, "the first may hold all of it");
        let third = new.pin(1 << 20);
        drop(first);
        assert_eq!(memory.used(), 0);
        write(&memory, "b", 1_000);
        drop(third);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn outputs_share_what_there_is() {
        let memory = memory(256 << 20);
        assert_eq!(memory.output_share(1, 64 << 10, 1 << 20), 1 << 20);
        assert_eq!(memory.output_share(300, 64 << 10, 1 << 20), (64 << 20) / 300);
        assert_eq!(memory.output_share(9_999, 64 << 10, 1 << 20), 64 << 10);
        assert_eq!(memory.output_share(9_999, 64 << 10, 1 << 10), 1 << 10);
    }
}
