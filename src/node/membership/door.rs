//! What membership's datagrams pass through: nothing, or with a cluster key the door that seals and opens
//! them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::ids::Millis;
use crate::rt;
use crate::secure::datagram::{DatagramDoor, Dropped, Opened, Outgoing};
use crate::secure::key_ring::KeyRing;
use crate::server::access::audit::Audit;

/// Most addresses that are remembered as those of nodes without a key. Beyond that all are forgotten, and
/// found out again.
const PLAIN_PEERS_MAX: usize = 4_096;

/// The datagrams that were not taken since the start, by reason.
#[derive(Debug, Default)]
pub(in crate::node) struct DroppedDatagrams {
    /// Not sealed.
    plaintext: AtomicU64,
    /// Sealed with a key that is not in the ring.
    unknown_key: AtomicU64,
    /// They do not open.
    forged: AtomicU64,
    /// They were taken before, or are so old that nobody knows.
    repeated: AtomicU64,
    /// All others.
    other: AtomicU64,
}

impl DroppedDatagrams {
    fn count(&self, dropped: Dropped) {
        let counter = match dropped {
            Dropped::Plaintext => &self.plaintext,
            Dropped::UnknownKey => &self.unknown_key,
            Dropped::Forged => &self.forged,
            Dropped::Repeated | Dropped::TooOld => &self.repeated,
            Dropped::Malformed
            | Dropped::OtherNetwork
            | Dropped::OtherEpoch
            | Dropped::OtherReceiver
            | Dropped::Unasked
            | Dropped::TooOften => &self.other,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// For `status`.
    pub(in crate::node) fn counters(&self) -> [(&'static str, u64); 5] {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("datagrams_plaintext", of(&self.plaintext)),
            ("datagrams_unknown_key", of(&self.unknown_key)),
            ("datagrams_forged", of(&self.forged)),
            ("datagrams_repeated", of(&self.repeated)),
            ("datagrams_not_taken", of(&self.other)),
        ]
    }
}

/// The door of a secured node.
pub(in crate::node) struct Door {
    sealed: DatagramDoor,
    /// While a network moves to a key: who has sent plaintext since the last sealed datagram.
    plain_peers: Option<BTreeSet<SocketAddr>>,
    /// Where refusals are recorded, if anywhere.
    audit: Option<Audit>,
}

/// Why a datagram is not taken, for the audit log. None of what members send, too: copies, and what was meant for an
/// earlier life of this node.
fn refusal(dropped: Dropped) -> Option<&'static str> {
    match dropped {
        Dropped::Malformed => Some("datagram: not of this protocol"),
        Dropped::Plaintext => Some("datagram: no key"),
        Dropped::UnknownKey => Some("datagram: unknown key"),
        Dropped::Forged => Some("datagram: forged"),
        Dropped::OtherNetwork => Some("datagram: other network"),
        Dropped::Repeated
        | Dropped::TooOld
        | Dropped::OtherEpoch
        | Dropped::OtherReceiver
        | Dropped::Unasked
        | Dropped::TooOften => None,
    }
}

impl Door {
    /// `takes_plaintext`: that of nodes without a key is passed on, and they are sent plaintext.
    pub(in crate::node) fn new(
        ring: &KeyRing,
        takes_plaintext: bool,
        audit: Option<Audit>,
    ) -> Self {
        Self {
            sealed: DatagramDoor::new(ring, rt::random_u64),
            plain_peers: takes_plaintext.then(BTreeSet::new),
            audit,
        }
    }

    pub(super) fn set_ring(&mut self, ring: &KeyRing) {
        self.sealed.set_ring(ring);
    }

    /// What a datagram contains, if it is to be taken. Answers are appended to `out`.
    pub(super) fn open(
        &mut self,
        from: SocketAddr,
        bytes: &[u8],
        now: Millis,
        dropped: &DroppedDatagrams,
        out: &mut Vec<Outgoing>,
    ) -> Option<Vec<u8>> {
        match (self.sealed.open(from, bytes, now, out), &mut self.plain_peers) {
            (Opened::Dropped(Dropped::Plaintext), Some(plain)) => {
                if plain.len() >= PLAIN_PEERS_MAX {
                    plain.clear();
                }
                plain.insert(from);
                Some(bytes.to_vec())
            }
            (Opened::Dropped(why), _) => {
                dropped.count(why);
                if let (Some(audit), Some(reason)) = (&self.audit, refusal(why)) {
                    audit.note_refused_peer(from.ip(), reason, None);
                }
                None
            }
            (Opened::Handled, plain) => {
                plain.as_mut().map(|plain| plain.remove(&from));
                None
            }
            (Opened::Datagram(content), plain) => {
                plain.as_mut().map(|plain| plain.remove(&from));
                Some(content)
            }
        }
    }

    /// Seals a datagram; see [`DatagramDoor::seal`]. One to a node that has not shown that it has the key
    /// goes out in plaintext as well, if that is allowed: membership does not mind copies.
    pub(super) fn seal(
        &mut self,
        to: SocketAddr,
        plain: Vec<u8>,
        now: Millis,
        out: &mut Vec<Outgoing>,
    ) {
        let knows = self.sealed.knows(to);
        self.sealed.seal(to, &plain, now, out);
        if let Some(peers) = &self.plain_peers
            && (!knows || peers.contains(&to))
        {
            out.push(Outgoing { to, bytes: plain });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::NetworkName;
    use crate::secure::key::Key;

    fn door(secret: u8, takes_plaintext: bool) -> Door {
        let ring = KeyRing::new(NetworkName::new("plant").unwrap(), Key::new([secret; 32]));
        Door::new(&ring, takes_plaintext, None)
    }

    /// As membership makes them.
    fn plain() -> Vec<u8> {
        b"dkvS\x01\x00\x01\x05plantbody".to_vec()
    }

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    /// Carries what `out` has between the two until nothing is left; what arrived at each of them.
    fn carry(a: &mut Door, b: &mut Door, mut out: Vec<Outgoing>) -> [Vec<Vec<u8>>; 2] {
        let dropped = DroppedDatagrams::default();
        let mut arrived = [Vec::new(), Vec::new()];
        for _ in 0..16 {
            let mut next = Vec::new();
            for Outgoing { to, bytes } in out {
                let (door, from, place) =
                    if to == at(1) { (&mut *a, at(2), 0) } else { (&mut *b, at(1), 1) };
                arrived[place].extend(door.open(from, &bytes, 5, &dropped, &mut next));
            }
            out = next;
        }
        arrived
    }

    #[test]
    fn plaintext_is_dropped_and_counted_unless_a_network_moves_to_a_key() {
        let (mut strict, mut moving) = (door(1, false), door(1, true));
        let dropped = DroppedDatagrams::default();
        let mut out = Vec::new();
        assert_eq!(strict.open(at(1), &plain(), 0, &dropped, &mut out), None);
        assert_eq!(moving.open(at(1), &plain(), 0, &dropped, &mut out), Some(plain()));
        assert_eq!(strict.open(at(1), b"noise", 0, &dropped, &mut out), None);
        let counts: Vec<u64> = dropped.counters().iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 0, 0, 0, 1]);
        assert!(out.is_empty());
    }

    #[test]
    fn who_has_no_key_gets_plaintext_and_who_has_it_only_sealed_ones() {
        let (mut a, mut b) = (door(1, true), door(1, true));
        let mut out = Vec::new();
        a.seal(at(2), plain(), 0, &mut out);
        assert!(out.iter().any(|sent| sent.bytes == plain()), "it may have no key");
        // b has, and answers that it does.
        carry(&mut a, &mut b, out);
        let mut out = Vec::new();
        a.seal(at(2), plain(), 6, &mut out);
        assert!(out.iter().all(|sent| sent.bytes != plain()));
        assert_eq!(carry(&mut a, &mut b, out)[1], [plain()]);
        // It was set back to a version without keys.
        let dropped = DroppedDatagrams::default();
        a.open(at(2), &plain(), 7, &dropped, &mut Vec::new());
        let mut out = Vec::new();
        a.seal(at(2), plain(), 8, &mut out);
        assert!(out.iter().any(|sent| sent.bytes == plain()));
    }

    #[test]
    fn strict_doors_send_nothing_in_plaintext() {
        let (mut a, mut b) = (door(1, false), door(1, false));
        let mut out = Vec::new();
        a.seal(at(2), plain(), 0, &mut out);
        assert!(out.iter().all(|sent| sent.bytes != plain()));
        assert_eq!(carry(&mut a, &mut b, out)[1], [plain()], "it waited for the answer");
    }
}
