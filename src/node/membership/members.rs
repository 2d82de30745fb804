//! Follows SWIM: tells the engine and the links which members came and went, keeps the peer file,
//! and writes to the log what the SWIM thread, which must not wait for a terminal, could not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::address::HostPort;
use super::peer_file::{self, KnownPeer};
use super::swim::{Notice, Roster};
use crate::engine::Input;
use crate::membership::{MemberInfo, MemberState};
use crate::model::ids::{NodeId, NodeName};
use crate::node::link::{Links, Origin};
use crate::rt;

/// The peer file is written at most this often.
const STORE_INTERVAL: Duration = Duration::from_secs(2);
/// Most peers that are kept in the file, as many as SWIM keeps.
const PEERS_MAX: usize = crate::membership::PEERS_MAX;

/// The members that are up, as the engine was told last.
type Told = BTreeMap<NodeId, SocketAddr>;

/// Follows SWIM until its thread has ended. Only then is the peer file written for the last time, so that at its next
/// start this node does not wait for peers that left shortly before it did. A node that ends without a farewell writes
/// nothing more: its directory may belong to another one by now.
pub(in crate::node) async fn follow_members(links: Arc<Links>, mut file: Option<PeerFile>) {
    let mut told = Told::new();
    while !links.stop.is_finished() {
        let listener = links.swim.listen();
        let is_last = links.swim.has_ended();
        for notice in links.swim.take_notices() {
            on_notice(&links, notice);
        }
        let roster = links.swim.roster();
        told = tell(&links, &roster, told);
        links.hub.cluster_changed.notify(usize::MAX);
        if let Some(file) = &mut file {
            let linked = links.infos().into_iter().map(|link| (link.peer.name, link.peer.gossip));
            file.update(&roster.members, linked.collect(), &links.observed.parted());
            file.note_given_up(links.observed.given_up());
            file.store().await;
        }
        if is_last {
            return;
        }
        let _ = links.stop.or(rt::timeout(STORE_INTERVAL, listener)).await;
    }
}

/// Reports the differences. A member that came and went between two looks is not reported.
fn tell(links: &Links, roster: &Roster, told: Told) -> Told {
    let now_up: Told = roster
        .members
        .iter()
        .filter(|m| is_up(m.state))
        .map(|m| (NodeId { name: m.name.clone(), incarnation: m.incarnation }, m.addr))
        .collect();
    for (member, addr) in told.iter().filter(|(id, _)| !now_up.contains_key(id)) {
        let at = roster.members.iter().find(|m| m.addr == *addr);
        let left = at.is_some_and(|m| m.state == MemberState::Left);
        let why = match at {
            Some(m) if m.state == MemberState::Left => "it left",
            Some(m) if m.incarnation != member.incarnation => "it was restarted",
            Some(_) | None => "it does not answer",
        };
        tracing::info!(member = %member.name, %addr, reason = why, "member down");
        links.observed.live.note("down", format!("{}: {why}", member.name));
        links.on_member_down(*addr, left);
        links.hub.handle(Input::MemberDown { member: member.clone() }, rt::now());
    }
    for (member, addr) in now_up.iter().filter(|(id, addr)| told.get(id) != Some(addr)) {
        tracing::info!(member = %member.name, %addr, "member up");
        links.observed.live.note("up", format!("{} is here", member.name));
        links.on_member_up(*addr, &member.name);
        links.hub.handle(Input::MemberUp { member: member.clone() }, rt::now());
    }
    now_up
}

fn is_up(state: MemberState) -> bool {
    matches!(state, MemberState::Up | MemberState::Suspect)
}

fn on_notice(links: &Links, notice: Notice) {
    match notice {
        Notice::NameInUse { holder } => {
            let text = format!("another node named {} is up at {holder}", links.me.name);
            links.complain(
                &holder.to_string(),
                "name_in_use",
                &format!("{text}; choose another --name, or stop that node"),
            );
            links.note_name_trouble(text);
            // The report may be wrong; the node at that address knows.
            links.add_target(&HostPort::from(holder).to_string(), Origin::Learned, None);
        }
        Notice::NetworkMismatch { from, network } => {
            links.record_refusal(from.ip(), "datagram: other network", Some(&network));
            tracing::warn!(
                %from,
                "a node of network {network:?} called; this one is of network {:?}; check --network \
                 and the peers' addresses",
                links.me.network
            );
        }
        Notice::VersionMismatch { from, version } => {
            links.record_refusal(from.ip(), "datagram: other version", None);
            tracing::warn!(
                %from,
                "a node that speaks version {version} of the membership protocol called; upgrade the \
                 older one"
            );
        }
        Notice::Broken(why) => tracing::error!("membership does not work: {why}"),
    }
}

/// The list of known peers on disk.
pub(in crate::node) struct PeerFile {
    path: PathBuf,
    /// It is one of the operator's, and not the node's own in its data directory.
    is_given: bool,
    /// By name, with the address as peers write it: a host name if they advertise one.
    named: BTreeMap<NodeName, String>,
    /// Of these, those that are not missed any more.
    given_up: BTreeSet<NodeName>,
    /// Lines that people wrote without a name.
    unnamed: Vec<KnownPeer>,
    stored: Vec<KnownPeer>,
    failed: bool,
}

impl PeerFile {
    /// `loaded`: its content; `is_given`: it is one of the operator's.
    pub(in crate::node) fn new(path: PathBuf, loaded: Vec<KnownPeer>, is_given: bool) -> Self {
        let named = loaded.iter().filter_map(|p| Some((p.name.clone()?, p.address.clone())));
        let given_up = loaded.iter().filter(|p| !p.is_missed).filter_map(|p| p.name.clone());
        let unnamed = loaded.iter().filter(|p| p.name.is_none()).cloned();
        Self {
            path,
            is_given,
            named: named.collect(),
            given_up: given_up.collect(),
            unnamed: unnamed.collect(),
            stored: loaded,
            failed: false,
        }
    }

    /// `linked`: the peers that have a link, by name, with the address as they write it; `parted`: those that have said
    /// farewell over theirs.
    fn update(
        &mut self,
        members: &[MemberInfo],
        linked: BTreeMap<NodeName, String>,
        parted: &BTreeSet<NodeName>,
    ) {
        self.named.retain(|name, _| !parted.contains(name));
        for member in members {
            match member.state {
                MemberState::Left => {
                    let address = HostPort::from(member.addr).to_string();
                    if self.named.get(&member.name) == Some(&address) {
                        self.named.remove(&member.name);
                    }
                }
                MemberState::Up | MemberState::Suspect => {
                    let address = HostPort::from(member.addr).to_string();
                    let known = self.named.entry(member.name.clone()).or_default();
                    // A host name outlives an address.
                    let numeric =
                        HostPort::parse(known, Some(0)).map_or(true, |k| k.numeric().is_some());
                    if numeric {
                        *known = address;
                    }
                }
                MemberState::Down => {}
            }
        }
        let is_any = |name: &NodeName, is: fn(MemberState) -> bool| {
            members.iter().any(|m| m.name == *name && is(m.state))
        };
        if self.named.len() + linked.len() > PEERS_MAX {
            // Names that are never used again must not push out those that are.
            self.named.retain(|name, _| is_any(name, |state| state != MemberState::Down));
        }
        // The link of one that says farewell ends after its membership.
        let is_going = |name: &NodeName| {
            is_any(name, |state| state == MemberState::Left) && !is_any(name, is_up)
        };
        let linked = linked.into_iter().filter(|(name, _)| !is_going(name));
        for (name, address) in linked {
            self.given_up.remove(&name);
            self.named.insert(name, address);
        }
        self.given_up.retain(|name| self.named.contains_key(name) && !is_any(name, is_up));
    }

    /// These are not missed any more, as long as they do not come back.
    fn note_given_up(&mut self, names: BTreeSet<NodeName>) {
        self.given_up.extend(names.into_iter().filter(|name| self.named.contains_key(name)));
    }

    /// What is to stand in the file.
    fn peers(&self) -> Vec<KnownPeer> {
        let named = self.named.iter().map(|(name, address)| KnownPeer {
            address: address.clone(),
            name: Some(name.clone()),
            is_missed: !self.given_up.contains(name),
        });
        let is_named = |address: &String| self.named.values().any(|known| known == address);
        let unnamed = self.unnamed.iter().filter(|peer| !is_named(&peer.address)).cloned();
        named.chain(unnamed).take(PEERS_MAX).collect()
    }

    async fn store(&mut self) {
        let peers = self.peers();
        if peers == self.stored {
            return;
        }
        let (path, list, is_given) = (self.path.clone(), peers.clone(), self.is_given);
        match rt::spawn_blocking(move || peer_file::store(&path, &list, is_given)).await {
            Ok(()) => self.failed = false,
            Err(error) if self.failed => tracing::debug!("peer file: {error}"),
            Err(error) => {
                self.failed = true;
                tracing::warn!(
                    path = %self.path.display(),
                    "the peer file cannot be written ({error}); after a restart this node knows \
                     only the peers that it is told of"
                );
            }
        }
        // Also after a failure: the next attempt comes with the next change.
        self.stored = peers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Incarnation;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    fn member(text: &str, port: u16, state: MemberState) -> MemberInfo {
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        let incarnation = Incarnation::of_random(u64::from(port));
        MemberInfo { name: name(text), incarnation, addr, state, since: 0 }
    }

    fn known(file: &PeerFile) -> Vec<(&str, &str)> {
        file.named.iter().map(|(name, address)| (name.as_str(), address.as_str())).collect()
    }

    #[test]
    fn who_says_farewell_is_not_kept_though_its_link_still_stands() {
        let mut file = PeerFile::new(PathBuf::new(), Vec::new(), false);
        let link = |address: &str| BTreeMap::from([(name("b"), address.to_owned())]);
        let none = BTreeSet::new();
        file.update(&[member("b", 2, MemberState::Up)], link("127.0.0.1:2"), &none);
        assert_eq!(known(&file), [("b", "127.0.0.1:2")]);
        file.update(&[member("b", 2, MemberState::Left)], link("127.0.0.1:2"), &none);
        assert_eq!(known(&file), []);
        // It is back, at another port.
        let back = [member("b", 2, MemberState::Left), member("b", 3, MemberState::Up)];
        file.update(&back, link("b.example:3"), &none);
        assert_eq!(known(&file), [("b", "b.example:3")]);
        // It may come back.
        file.update(&[member("b", 3, MemberState::Down)], BTreeMap::new(), &none);
        assert_eq!(known(&file), [("b", "b.example:3")]);
        // Nor is one that membership has never met.
        file.update(&[], BTreeMap::new(), &BTreeSet::from([name("b")]));
        assert_eq!(known(&file), []);
    }

    #[test]
    fn who_is_not_missed_any_more_is_kept_as_such_until_it_is_back() {
        let mut file = PeerFile::new(PathBuf::new(), Vec::new(), false);
        let none = BTreeSet::new();
        file.update(&[member("b", 2, MemberState::Up)], BTreeMap::new(), &none);
        file.note_given_up(BTreeSet::from([name("b"), name("never-a-peer")]));
        file.update(&[member("b", 2, MemberState::Down)], BTreeMap::new(), &none);
        assert_eq!(known(&file), [("b", "127.0.0.1:2")]);
        assert_eq!(file.given_up, BTreeSet::from([name("b")]));
        let again = PeerFile::new(PathBuf::new(), file.peers(), false);
        assert_eq!(again.given_up, file.given_up);
        file.update(&[], BTreeMap::from([(name("b"), String::from("127.0.0.1:2"))]), &none);
        assert_eq!(file.given_up, BTreeSet::new());
    }
}
