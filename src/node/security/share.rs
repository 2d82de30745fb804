//! Hands the keys that were ordered over the network to all peers, takes theirs, and keeps what the nodes say
//! of their keys up to date. All of it is state, not events: whoever is met later gets it then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::select;

use super::Keys;
use crate::engine::LinkId;
use crate::model::group::GroupConfig;
use crate::model::ids::{Millis, NodeName};
use crate::node::link::{Links, SealedLink};
use crate::rt;
use crate::secure::key::KeyId;
use crate::secure::key_ring::handed::Handed;
use crate::secure::key_ring::{KeyRing, RingError};
use crate::secure::reports::Told;

/// What has failed is tried again after this time.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// What a link was told, and how many frames its queue had dropped then: some may have been these.
struct ToldBy {
    told: Told,
    dropped: u64,
}

/// What a link that is sealed with this key has handed over, and why it was not taken.
struct Refused {
    by: KeyId,
    handed: Handed,
    error: RingError,
}

/// What the task remembers from one look to the next.
struct Sharing {
    links: Arc<Links>,
    keys: Arc<Keys>,
    told: BTreeMap<LinkId, ToldBy>,
    /// What was put into the file last.
    kept: Handed,
    /// The keys that the rest of the node was told of.
    ring: Arc<KeyRing>,
    /// Why what a link has handed over was not taken.
    refused: BTreeMap<LinkId, Refused>,
}

/// Until the node ends. `forget_after_ms`: of a node that is away for so long nothing is known any more.
pub(in crate::node) async fn share_keys(links: Arc<Links>, forget_after_ms: Millis) {
    let Some(keys) = links.keys.clone() else { return };
    let ring = keys.ring();
    let mut sharing = Sharing {
        links: Arc::clone(&links),
        keys: Arc::clone(&keys),
        told: BTreeMap::new(),
        kept: ring.handed(),
        ring,
        refused: BTreeMap::new(),
    };
    while !links.stop.is_finished() {
        let news = select(keys.changed.listen(), links.changed.listen());
        let peers = links.sealed();
        sharing.take(&peers);
        sharing.keep().await;
        // A link that is sealed with a removed key may be a thief's. Whoever has another one comes back.
        let ring = keys.ring();
        links.close_sealed(|key| ring.lookup(key).is_none());
        sharing.expire(forget_after_ms);
        keys.refresh_report();
        sharing.tell(&peers);
        let _ = links.stop.or(rt::timeout(RETRY_INTERVAL, news)).await;
    }
}

impl Sharing {
    /// Takes what peers have handed over.
    fn take(&mut self, peers: &[SealedLink]) {
        self.refused.retain(|id, _| peers.iter().any(|peer| peer.id == *id));
        let heard = std::mem::take(&mut *self.keys.heard.lock());
        let refused = std::mem::take(&mut self.refused);
        let again = refused.into_iter().map(|(id, it)| (id, it.by, it.handed, Some(it.error)));
        let heard = heard.into_iter().map(|(id, (by, handed))| (id, by, handed, None));
        for (id, by, handed, before) in again.chain(heard) {
            let peer = peers.iter().find(|peer| peer.id == id);
            let from = peer.map_or("a peer that is gone", |peer| peer.name.as_str());
            match self.keys.take(by, &handed) {
                Ok(merged) => {
                    for key in merged.added {
                        tracing::info!(%key, from, "a new key was handed over");
                    }
                    for key in merged.removed {
                        tracing::info!(%key, from, "a key was removed");
                    }
                    if let Some(key) = merged.primary {
                        tracing::info!(%key, from, "another key is in use");
                    }
                }
                Err(error) => {
                    if before != Some(error) {
                        tracing::warn!(from, "the keys of the network cannot be taken: {error}");
                    }
                    self.refused.insert(id, Refused { by, handed, error });
                }
            }
        }
        let ring = self.keys.ring();
        if !Arc::ptr_eq(&ring, &self.ring) {
            self.links.swim.set_keys(Arc::clone(&ring));
            self.ring = ring;
            // A dial may have been refused because of the keys.
            self.links.changed.notify(usize::MAX);
        }
    }

    /// Puts what is new into the key file, or tries it again.
    async fn keep(&mut self) {
        let ring = self.keys.ring();
        let handed = ring.handed();
        let is_stale = self.keys.is_file_stale.swap(false, Ordering::AcqRel);
        let before = self.keys.trouble.lock().clone();
        let mut trouble = before.clone();
        if handed != self.kept || is_stale || before.is_some() {
            let keys = Arc::clone(&self.keys);
            trouble = rt::spawn_blocking(move || keys.keep(&ring)).await.err();
            self.kept = handed;
        }
        let refused = self.refused.values().next();
        let trouble = trouble.or(refused.map(|it| it.error.to_string()));
        if trouble != before {
            match &trouble {
                Some(why) => tracing::warn!("the keys of the network cannot be kept: {why}"),
                None => tracing::info!("the keys of the network are in the key file again"),
            }
            *self.keys.trouble.lock() = trouble;
        }
    }

    fn expire(&self, forget_after_ms: Millis) {
        let roster = self.links.swim.roster();
        let group = self.links.hub.read(|engine| engine.group_view(rt::now())).config;
        let in_group = |name: &NodeName| {
            group.iter().flat_map(GroupConfig::members).any(|member| member.name == *name)
        };
        let is_member = |name: &NodeName| {
            let in_roster = || roster.members.iter().any(|member| member.name == *name);
            *name == self.keys.name || in_roster() || in_group(name)
        };
        self.keys.reports.lock().expire(rt::wall_clock_ms(), forget_after_ms, is_member);
    }

    /// Tells each peer what it was not told yet.
    fn tell(&mut self, peers: &[SealedLink]) {
        self.told.retain(|id, _| peers.iter().any(|peer| peer.id == *id));
        let handed = self.keys.ring().handed();
        for peer in peers {
            let dropped = peer.queue.dropped();
            let before = self.told.get(&peer.id).filter(|before| before.dropped == dropped);
            let before = before.map(|before| &before.told);
            let reports = self.keys.reports.lock();
            let (message, told) = reports.tell(handed.clone(), before);
            drop(reports);
            self.told.insert(peer.id, ToldBy { told, dropped });
            let Some(message) = message else { continue };
            let mut frame = Vec::new();
            message.encode(&mut frame);
            if peer.queue.push(frame.into()) {
                peer.queue.changed.notify(usize::MAX);
            }
        }
    }
}
