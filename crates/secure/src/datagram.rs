//! Sealed datagrams: XChaCha20-Poly1305 with a key derived from the cluster key, and no datagram is taken
//! twice, also not after a restart of either side. No clock is needed for that.
//!
//! ```text
//! plaintext   "dkvS" 1 0 ‖ content                     content: kind, network, body (`membership`)
//! sealed      "dkvS" 1 1 ‖ key id 4 ‖ nonce 24 ‖ sealed content ‖ tag 16     44 bytes more
//! nonce       sender's epoch 8 ‖ counter 8 ‖ receiver's epoch 8              big endian
//! ```
//!
//! An *epoch* is a random number that a node takes at every start; the counter counts the datagrams of a
//! sender's epoch, from 1. Together they never repeat, so no nonce does. A datagram is taken only if:
//!
//! 1. it is sealed with a key of the ring and names this network,
//! 2. the receiver's epoch in it is mine: it was made for this life of mine,
//! 3. its counter is new within the window of the last 1,024 of its sender's epoch. Windows are never given up
//!    within my epoch; if there are 4,096 of them, I take a new epoch, and with it none of the old counts.
//!
//! How epochs are learnt. Two kinds of content of our own, 0x80 and 0x81, are never passed on:
//!
//! - `ask` (receiver's epoch 0): "which is yours?" Its own counter is the challenge. Datagrams wait meanwhile.
//! - `tell`: "mine is this (the nonce says it), and I have seen your counter N". The answer to an `ask`, and to
//!   a genuine datagram for another epoch than mine, as members send after my restart.
//!
//! A `tell` is believed only if it is made for my epoch and not repeated, if I sent the counter lately, and only
//! about the address *to which I sent it*, wherever it comes from. Of two, the one about the later
//! counter wins. A datagram that was taken teaches the epoch of its source, too, if none is known there or if it
//! is the first of its sender's epoch (a restart). If another one is known, or an `ask` shows another one, I
//! ask. What was learnt wrongly lasts until the next datagram there, which is answered by a `tell`.
//!
//! There are no identities: who carries an `ask` to another node, and its answer back, makes the asker
//! seal for that node, until the right one gets such a datagram and tells. It can do so to all that it could
//! cut off as well, and SWIM drops what names another destination.
//!
//! Whoever has no key can make a node do one hash look-up or one AEAD per datagram, and whoever replays
//! recorded ones makes it answer at most 10 times a second per address with no more bytes than an `ask` has.
//!
//! Replays that seem to come from an address use up its share in every second, so the node that is really there must not
//! depend on it. What that node asks is new: later than every `ask` of its epoch that came here before, and than all that was
//! taken from it. A recorded one passes for new once. So new ones are answered beyond the share, 1,024 a second from all
//! addresses together, and only where I send to that address myself: a stranger's address never gets more than its share.
//! Of two nodes that do not know each other, one has to get an answer: by what it then sends, the other learns. Who lets
//! a copy of a later `ask` overtake an earlier one makes that one count as old; it could cut that pair off as well.

mod asks;
mod pace;
mod peers;
mod seal;
mod window;

use std::collections::BTreeMap;
use std::net::SocketAddr;

pub(crate) use seal::OVERHEAD_BYTES;

use distkv_core::membership::{DATAGRAM_BYTES_MAX, TAG_BYTES};

use self::asks::Asks;
use self::pace::Strangers;
use self::peers::{Peers, Sent};
use self::seal::{HEAD_BYTES, Keys, Nonce, NotSealed};
use self::window::{Seen, Window};
use crate::key_ring::KeyRing;

/// Most sender's epochs whose windows are kept. If there are more, this node takes a new epoch.
const SENDERS_MAX: usize = 4_096;

// What membership leaves free is enough for sealing.
const _: () = assert!(OVERHEAD_BYTES <= TAG_BYTES);

const ASK: u8 = 0x80;
const TELL: u8 = 0x81;

/// A datagram to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Where to.
    pub to: SocketAddr,
    /// The whole datagram.
    pub bytes: Vec<u8>,
}

/// What became of a datagram that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// Genuine and new: the plaintext datagram that was sealed.
    Datagram(Vec<u8>),
    /// It was about epochs, and has been dealt with.
    Handled,
    /// It is not taken.
    Dropped(Dropped),
}

/// Why a datagram is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dropped {
    /// Not a datagram of ours at all, or of another version.
    Malformed,
    /// Not sealed. While a network moves to a key, it may be passed on as it is.
    Plaintext,
    /// Sealed with a key that is not in the ring.
    UnknownKey,
    /// Forged, damaged, or sealed with another secret of the same id.
    Forged,
    /// Genuine, but of another network with the same key.
    OtherNetwork,
    /// Its counter was taken before: a replay, or a copy.
    Repeated,
    /// Its counter is so old that nobody knows whether it was taken before.
    TooOld,
    /// Genuine, but made for an earlier life of this node, for all that is known. The sender was told.
    OtherEpoch,
    /// Genuine, but made for another node, whose epoch is known here; or made by this node. Not answered.
    OtherReceiver,
    /// A `tell` about what was not asked, or is known better.
    Unasked,
    /// It deserves an answer, but its address got too many within this second.
    TooOften,
}

/// Seals and opens all datagrams of one node.
pub struct DatagramDoor {
    keys: Keys,
    /// As the content has it: one byte of length, and the name.
    network: Vec<u8>,
    random: Box<dyn FnMut() -> u64 + Send>,
    /// Mine. Never 0.
    epoch: u64,
    sent: Sent,
    peers: Peers,
    strangers: Strangers,
    asks: Asks,
    /// By sender's epoch; at most `SENDERS_MAX`.
    windows: BTreeMap<u64, Box<Window>>,
}

impl std::fmt::Debug for DatagramDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramDoor").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl DatagramDoor {
    /// The door of a node that starts. `random` gives random numbers of 64 bits, one now, and one whenever a
    /// new epoch is needed. They must not be predictable, and never be those of another start.
    #[must_use]
    pub fn new(ring: &KeyRing, mut random: impl FnMut() -> u64 + Send + 'static) -> Self {
        let name = ring.network().as_str().as_bytes();
        // A name has at most 64 bytes.
        let network = [&[name.len() as u8], name].concat();
        let epoch = random().max(1);
        Self {
            keys: Keys::new(ring),
            network,
            random: Box::new(random),
            epoch,
            sent: Sent::default(),
            peers: Peers::default(),
            strangers: Strangers::default(),
            asks: Asks::default(),
            windows: BTreeMap::new(),
        }
    }

    /// Takes over a ring that was changed. Epochs and counters go on.
    pub fn set_ring(&mut self, ring: &KeyRing) {
        self.keys = Keys::new(ring);
    }

    /// Whether a node at this address has shown that it has the key.
    #[must_use]
    pub fn knows(&self, addr: SocketAddr) -> bool {
        self.peers.get(addr).is_some_and(|peer| peer.epoch.is_some())
    }

    /// Seals a plaintext datagram, as `membership` makes it. It is appended to `out`, or waits (at most 4 per
    /// address, for at most 1 s) and an `ask` may be appended instead. What is no plaintext datagram of
    /// ours, or has no 44 bytes free below `DATAGRAM_BYTES_MAX`, is never sent. `now` is in milliseconds and never goes back.
    pub fn seal(&mut self, to: SocketAddr, plain: &[u8], now: u64, out: &mut Vec<Outgoing>) {
        let Some(content) = seal::content(plain) else { return };
        if plain.len() + OVERHEAD_BYTES > DATAGRAM_BYTES_MAX {
            return;
        }
        let peer = self.peers.use_or_add(to);
        match peer.epoch {
            Some(epoch) => self.send(to, epoch, content, out),
            None => {
                peer.wait(content, now);
                self.ask(to, now, out);
            }
        }
    }

    /// Opens a datagram. Answers, and datagrams that waited for what it tells, are appended to `out`.
    pub fn open(
        &mut self,
        from: SocketAddr,
        bytes: &[u8],
        now: u64,
        out: &mut Vec<Outgoing>,
    ) -> Opened {
        self.try_open(from, bytes, now, out).unwrap_or_else(Opened::Dropped)
    }

    fn try_open(
        &mut self,
        from: SocketAddr,
        bytes: &[u8],
        now: u64,
        out: &mut Vec<Outgoing>,
    ) -> Result<Opened, Dropped> {
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return Err(Dropped::Malformed);
        }
        let read = seal::read(bytes).map_err(|not| match not {
            NotSealed::Plaintext => Dropped::Plaintext,
            NotSealed::Malformed => Dropped::Malformed,
        })?;
        let nonce = read.nonce;
        if !self.keys.has(read.id) {
            return Err(Dropped::UnknownKey);
        }
        if nonce.sender == 0 || nonce.counter == 0 {
            return Err(Dropped::Malformed);
        }
        let is_mine = nonce.receiver == self.epoch;
        // Before the AEAD: replays are cheap.
        if is_mine && let Some(window) = self.windows.get(&nonce.sender) {
            match window.look(nonce.counter) {
                Seen::New => {}
                Seen::Repeated => return Err(Dropped::Repeated),
                Seen::TooOld => return Err(Dropped::TooOld),
            }
        }
        let plain = self.keys.open(&read).ok_or(Dropped::Forged)?;
        // Genuine from here on.
        let content = plain.get(HEAD_BYTES..).unwrap_or_default();
        let (kind, content) = content.split_first().ok_or(Dropped::Malformed)?;
        let body = content.strip_prefix(self.network.as_slice()).ok_or(Dropped::OtherNetwork)?;
        if nonce.sender == self.epoch {
            // Somebody sends my own back to me.
            return Err(Dropped::OtherReceiver);
        }
        if nonce.receiver == 0 && *kind == ASK {
            return self.on_ask(from, nonce, now, out);
        }
        if !is_mine {
            // Otherwise, who carries a datagram to another node could make the sender take one for the other.
            if self.windows.contains_key(&nonce.receiver) {
                return Err(Dropped::OtherReceiver);
            }
            // Never an answer to a `tell`, or two nodes could answer each other for ever.
            if *kind != TELL {
                self.tell(from, nonce, now, out)?;
            }
            return Err(Dropped::OtherEpoch);
        }
        let is_new_sender = !self.windows.contains_key(&nonce.sender);
        if !self.take_counter(nonce) {
            // The new epoch is another one than the datagram was made for.
            self.tell(from, nonce, now, out)?;
            return Err(Dropped::OtherEpoch);
        }
        match *kind {
            ASK => Err(Dropped::Malformed),
            TELL => self.on_tell(nonce, body, now, out),
            _ => {
                self.on_datagram(from, nonce, is_new_sender, now, out);
                Ok(Opened::Datagram(plain))
            }
        }
    }

    /// Notes a counter as taken. False if there was no room for its sender: I have a new epoch.
    fn take_counter(&mut self, nonce: Nonce) -> bool {
        if !self.windows.contains_key(&nonce.sender) && self.windows.len() >= SENDERS_MAX {
            self.windows.clear();
            self.epoch = (self.random)().max(1);
            return false;
        }
        self.windows.entry(nonce.sender).or_default().take(nonce.counter);
        true
    }

    fn on_ask(
        &mut self,
        from: SocketAddr,
        nonce: Nonce,
        now: u64,
        out: &mut Vec<Outgoing>,
    ) -> Result<Opened, Dropped> {
        let is_behind = self.windows.get(&nonce.sender).is_some_and(|w| !w.is_ahead(nonce.counter));
        let is_new = self.asks.note(nonce) && !is_behind;
        let is_peer = self.peers.get(from).is_some();
        // Replays may have used up all that this address may get; an `ask` of the node there is a new one.
        if !(self.may_tell(from, now) || is_new && is_peer && self.asks.allows_new(now)) {
            return Err(Dropped::TooOften);
        }
        self.send_tell(from, nonce, out);
        // It may be a replay, so it teaches nothing; but it may as well be that node's restart.
        let known = self.peers.get(from).and_then(|peer| peer.epoch);
        if known.is_some_and(|epoch| epoch != nonce.sender) {
            self.ask(from, now, out);
        }
        Ok(Opened::Handled)
    }

    fn on_tell(
        &mut self,
        nonce: Nonce,
        body: &[u8],
        now: u64,
        out: &mut Vec<Outgoing>,
    ) -> Result<Opened, Dropped> {
        let counter = body.try_into().map(u64::from_be_bytes).map_err(|_| Dropped::Malformed)?;
        let to = self.sent.address_of(counter).ok_or(Dropped::Unasked)?;
        let peer = self.peers.get_mut(to).ok_or(Dropped::Unasked)?;
        if counter <= peer.proof {
            return Err(Dropped::Unasked);
        }
        peer.proof = counter;
        peer.epoch = Some(nonce.sender);
        self.send_waiting(to, now, out);
        Ok(Opened::Handled)
    }

    /// What a datagram that was taken says about its source.
    fn on_datagram(
        &mut self,
        from: SocketAddr,
        nonce: Nonce,
        is_new_sender: bool,
        now: u64,
        out: &mut Vec<Outgoing>,
    ) {
        let peer = self.peers.use_or_add(from);
        match peer.epoch {
            Some(epoch) if epoch == nonce.sender => {}
            // Not taken over: it may be a former life's, or another node's with a forged source.
            Some(_) if !is_new_sender => self.ask(from, now, out),
            _ => {
                peer.epoch = Some(nonce.sender);
                self.send_waiting(from, now, out);
            }
        }
    }

    fn send_waiting(&mut self, to: SocketAddr, now: u64, out: &mut Vec<Outgoing>) {
        let Some(peer) = self.peers.get_mut(to) else { return };
        let (Some(epoch), waiting) = (peer.epoch, peer.take_waiting(now)) else { return };
        for content in waiting {
            self.send(to, epoch, &content, out);
        }
    }

    fn ask(&mut self, to: SocketAddr, now: u64, out: &mut Vec<Outgoing>) {
        if self.peers.get_mut(to).is_some_and(|peer| peer.asks.allows(now)) {
            // As long as its answer.
            let content = self.own_content(ASK, 0);
            self.send(to, 0, &content, out);
        }
    }

    /// Tells who has sent something genuine for another epoch than mine.
    fn tell(
        &mut self,
        to: SocketAddr,
        seen: Nonce,
        now: u64,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Dropped> {
        if !self.may_tell(to, now) {
            return Err(Dropped::TooOften);
        }
        self.send_tell(to, seen, out);
        Ok(())
    }

    /// Whether this address may be told something now.
    fn may_tell(&mut self, to: SocketAddr, now: u64) -> bool {
        match self.peers.get_mut(to) {
            Some(peer) => peer.tells.allows(now),
            None => self.strangers.allows(to, now),
        }
    }

    fn send_tell(&mut self, to: SocketAddr, seen: Nonce, out: &mut Vec<Outgoing>) {
        let content = self.own_content(TELL, seen.counter);
        self.send_unanswered(to, seen.sender, &content, out);
    }

    fn own_content(&self, kind: u8, number: u64) -> Vec<u8> {
        [&[kind], self.network.as_slice(), &number.to_be_bytes()].concat()
    }

    fn send(&mut self, to: SocketAddr, receiver: u64, content: &[u8], out: &mut Vec<Outgoing>) {
        self.send_unanswered(to, receiver, content, out);
        self.sent.remember(to);
    }

    /// Sends something that no `tell` may answer.
    fn send_unanswered(
        &mut self,
        to: SocketAddr,
        receiver: u64,
        content: &[u8],
        out: &mut Vec<Outgoing>,
    ) {
        let nonce = Nonce { sender: self.epoch, counter: self.sent.count(), receiver };
        out.extend(self.keys.seal(nonce, content).map(|bytes| Outgoing { to, bytes }));
    }
}

#[cfg(test)]
mod tests;
