//! The client port of a node: opens it, and answers its questions about the rest of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use super::certificates::Certificates;
use super::file_jobs::Saving;
use super::keys;
use super::unreached::{Known, unreached};
use crate::engine::Engine;
use crate::engine::view::StateView;
use crate::membership;
use crate::model::count::count_of;
use crate::model::ids::{Millis, NodeName};
use crate::model::path::Path;
use crate::node::config::Config;
use crate::node::durable::Durable;
use crate::node::lifecycle::file_descriptors::Shares;
use crate::node::lifecycle::leave_for_good;
use crate::node::lifecycle::start::alone_warning;
use crate::node::lifecycle::stop::StopReason;
use crate::node::link::{LinkInfo, Links};
use crate::node::membership::identity::SOFTWARE;
use crate::node::monitoring::isolation::Isolation;
use crate::node::scheduled::Scheduled;
use crate::protocol::client::request::PastMoment;
use crate::rt::{self, TcpListener};
use crate::server::access::audit::Audit;
use crate::server::{
    FileJob, FileRefusal, FileReport, KeyOrder, KeyRefusal, KeysView, LeaveRefusal, MemberInfo,
    MemberState, NodeInfo, NodeStatus, PastRefusal, PastState, ScheduledStatus, Server,
    ServerConfig, SilentInfo, StorageStatus,
};
use crate::storage::history::History;

/// What only some nodes have, and what only the node knows.
pub(in crate::node) struct Extras {
    pub(in crate::node) certificates: Option<Arc<Certificates>>,
    pub(in crate::node) audit: Option<Audit>,
    pub(in crate::node) isolation: Arc<Isolation>,
    pub(in crate::node) scheduled: Option<Arc<Scheduled>>,
}

/// Starts to serve clients at a port that was opened before.
pub(in crate::node) fn open(
    listener: TcpListener,
    links: &Arc<Links>,
    config: &Config,
    shares: &Shares,
    (durable, saving): (Option<Arc<Durable>>, Arc<Saving>),
    extras: Extras,
) -> Server {
    let Extras { certificates, audit, isolation, scheduled } = extras;
    let tls = certificates.as_ref().map(|certificates| certificates.settings());
    let info = ClientPortInfo {
        links: Arc::downgrade(links),
        memory_max: config.memory_max,
        started: rt::now(),
        durable,
        saving,
        scheduled,
        certificates,
        audit: audit.clone(),
        isolation,
    };
    if shares.clients < config.connections_max {
        tracing::warn!(
            "the system allows {} open files: of --max-connections {}, {} can be served; \
             raise the limit (ulimit -n), or lower --max-connections",
            shares.limit,
            config.connections_max,
            count_of(shares.clients as u64, "client", "clients")
        );
    }
    links.bound_strangers(shares.strangers);
    let limits = ServerConfig {
        connections_max: shares.clients,
        refusals_max: shares.refusals,
        kept_connections: shares.kept,
        client_memory_max: config.client_memory_max,
        open_requests_max: config.open_requests_max,
        ready_wait_ms: rt::millis(config.ready_wait),
        remote_restore: config.remote_restore,
        ignore_auth: config.ignore_auth,
        tls,
        audit,
        isolated_logins_ms: config.isolated_logins.map(rt::millis),
        // While a network moves to a key nothing is protected yet, and clients go on as before.
        cluster_keys: links
            .keys
            .as_ref()
            .filter(|keys| !keys.takes_plaintext())
            .map(|keys| keys.logins()),
        ..ServerConfig::default()
    };
    if limits.ignore_auth && limits.cluster_keys.is_some() {
        tracing::warn!(
            "--ignore-auth does not open this node: with a key file, clients must log in; whoever has the key is an admin"
        );
    }
    let hub = Arc::clone(&links.hub);
    Server::serve(listener, links.me.client, hub, limits, Arc::new(info))
}

/// What clients may know of the node. Weak, because the server outlives a dropped node.
struct ClientPortInfo {
    links: Weak<Links>,
    memory_max: Option<usize>,
    started: Millis,
    durable: Option<Arc<Durable>>,
    saving: Arc<Saving>,
    scheduled: Option<Arc<Scheduled>>,
    certificates: Option<Arc<Certificates>>,
    audit: Option<Audit>,
    isolation: Arc<Isolation>,
}

impl NodeInfo for ClientPortInfo {
    fn status(&self) -> NodeStatus {
        let mut status = NodeStatus {
            network: self.network(),
            version: SOFTWARE.to_owned(),
            uptime_ms: rt::now().saturating_sub(self.started),
            time_ms: rt::wall_clock_ms(),
            memory_max: self.memory_max,
            members: 1,
            links: 0,
            catching_up: None,
            counters: Vec::new(),
            client_log: self.saving.client_log(),
        };
        let Some(links) = self.links.upgrade() else { return status };
        let infos = links.infos();
        let roster = links.swim.roster();
        let is_up =
            |state| matches!(state, membership::MemberState::Up | membership::MemberState::Suspect);
        // Two lives of one node are one member.
        let up = roster.members.iter().filter(|m| is_up(m.state) && m.name != links.me.name);
        status.members = 1 + up.map(|m| &m.name).collect::<BTreeSet<_>>().len();
        status.links = infos.len();
        let (progress, counters) = links.hub.read(|e| (e.catch_up_progress(), e.counters()));
        status.catching_up = progress.map(|progress| {
            let peer = infos.iter().find(|info| info.id == progress.link);
            (peer.map(|info| info.peer.name.to_string()).unwrap_or_default(), progress.entries)
        });
        status.counters = vec![
            ("writes", counters.writes),
            ("applied", counters.applied),
            ("conflicts", counters.conflicts),
            ("catch_ups", counters.catch_ups),
            ("catch_ups_served", counters.catch_ups_served),
            ("purges", counters.purges),
            ("purged", counters.purged),
            ("dropped", counters.dropped),
            ("reissued", counters.reissued),
            ("relayed", counters.relayed),
            ("duplicates", counters.duplicates),
            ("prunes", counters.prunes),
            ("grafts", counters.grafts),
            ("contents_differed", counters.contents_differed),
            ("contents_mended", counters.contents_mended),
            ("catch_up_entries", counters.catch_up_entries),
            ("digest_differences", counters.digest_differences),
        ];
        let (received, sent) = links.observed.link_traffic.bytes();
        let overflows = links.hub.queued().overflows;
        let (restarts, dropped) = links.hub.missed();
        status.counters.extend([
            ("link_bytes_received", received),
            ("link_bytes_sent", sent),
            ("link_overflows", overflows),
            ("watch_restarts", restarts),
            ("messages_dropped", dropped),
        ]);
        if let Some(audit) = &self.audit {
            let (written, lost) = audit.counts();
            status.counters.extend([("audit_written", written), ("audit_lost", lost)]);
        }
        if links.keys.is_some() {
            let secured = infos.iter().filter(|link| link.secured).count();
            status.counters.push(("links_secured", secured as u64));
            status.counters.extend(links.swim.dropped().counters());
        }
        status
    }

    fn network(&self) -> String {
        self.links.upgrade().map(|links| links.me.network.clone()).unwrap_or_default()
    }

    fn members(&self) -> Vec<MemberInfo> {
        let Some(links) = self.links.upgrade() else { return Vec::new() };
        let view = links.hub.read(Engine::view);
        let infos = links.infos();
        let now = rt::now();
        let mut members = vec![myself(&links, &view, now.saturating_sub(self.started))];
        for member in &links.swim.roster().members {
            // A member that is down may have a former self's name; its link is not its own.
            let is_up = matches!(
                member.state,
                membership::MemberState::Up | membership::MemberState::Suspect
            );
            let link = infos.iter().find(|l| {
                let same_life = l.peer.incarnation == member.incarnation;
                l.peer.name == member.name && (is_up || same_life)
            });
            let of_link = of_link(link, &view);
            members.push(MemberInfo {
                name: member.name.to_string(),
                // A link is of the life that answers; membership may not have heard of it yet.
                incarnation: link.map_or(member.incarnation, |l| l.peer.incarnation),
                ready: of_link.ready && is_up,
                gossip: member.addr.to_string(),
                client: link.map(|l| l.peer.client.clone()),
                state: match member.state {
                    membership::MemberState::Up => MemberState::Up,
                    membership::MemberState::Suspect => MemberState::Suspect,
                    membership::MemberState::Down => MemberState::Down,
                    membership::MemberState::Left => MemberState::Left,
                },
                since_ms: now.saturating_sub(member.since),
                ..of_link
            });
        }
        // A link stands before SWIM has heard of the member, and where UDP does not get through.
        for link in &infos {
            if members.iter().all(|m| !m.linked || m.name != link.peer.name.as_str()) {
                // A link may be old when membership loses its peer.
                let since = links.observed.last_heard(&link.peer.name).unwrap_or(link.since);
                members.push(MemberInfo {
                    since_ms: now.saturating_sub(since.max(link.since)),
                    ..of_link(Some(link), &view)
                });
            }
        }
        one_row_each(members)
    }

    fn keys(&self) -> Option<KeysView> {
        keys::view(&*self.links.upgrade()?, self.members())
    }

    fn change_keys(&self, order: KeyOrder) -> Result<(String, bool), KeyRefusal> {
        let links = self.links.upgrade().ok_or(KeyRefusal::NoKey)?;
        keys::change(&links, self.members(), order)
    }

    fn key_id(&self, secret: &[u8]) -> Option<String> {
        keys::id_of(secret)
    }

    fn forget_keys_of(&self, name: &NodeName) -> bool {
        self.links.upgrade().is_some_and(|links| keys::forget(&links, &self.members(), name))
    }

    fn give_up(&self, name: &NodeName) {
        if let Some(links) = self.links.upgrade() {
            links.observed.give_up(name);
        }
    }

    fn isolated_ms(&self) -> Option<Millis> {
        self.isolation.lasted_ms(rt::now())
    }

    fn leave(&self) {
        if let Some(links) = self.links.upgrade() {
            links.stop.request(StopReason::Left);
        }
    }

    fn leave_for_good(&self, patience_ms: Millis) -> Result<(), LeaveRefusal> {
        let is_gone = || LeaveRefusal::NotReady(String::from("this node is ending already"));
        leave_for_good::leave_for_good(&*self.links.upgrade().ok_or_else(is_gone)?, patience_ms)
    }

    fn storage(&self) -> Option<StorageStatus> {
        self.durable.as_ref().map(|durable| durable.status(rt::now()))
    }

    fn scheduled(&self) -> Option<ScheduledStatus> {
        self.scheduled.as_ref().map(|scheduled| scheduled.status())
    }

    fn certificate_warning(&self) -> Option<String> {
        self.certificates.as_ref().and_then(|certificates| certificates.warning())
    }

    fn slow_links(&self) -> Vec<String> {
        self.links.upgrade().map_or_else(Vec::new, |links| links.slow_warnings())
    }

    fn past(&self, at: PastMoment, below: &Path) -> Result<PastState, PastRefusal> {
        self.saving.past(at, below)
    }

    fn history(&self, path: &Path, since_ms: u64, limit: usize) -> Result<History, PastRefusal> {
        self.saving.history(path, since_ms, limit)
    }

    fn silent(&self) -> Option<SilentInfo> {
        self.links.upgrade()?.observed.silent(rt::now())
    }

    fn unreached(&self) -> Vec<String> {
        let Some(links) = self.links.upgrade() else { return Vec::new() };
        // By the links that changes are confirmed over: one that ends after it was counted is missing here.
        let (linked, wanted) = links.hub.read(|engine| {
            let linked = engine.last_words().map(|(name, _)| name.clone());
            (linked.collect(), engine.wanted_links().cloned())
        });
        let mut gone = links.observed.parted();
        gone.append(&mut links.observed.given_up());
        let known = Known { linked, wanted, gone, unmet: links.observed.unmet() };
        let silent = self.silent();
        unreached(&self.members(), silent.as_ref(), &known).into_iter().collect()
    }

    fn unlinked(&self) -> Option<String> {
        let links = self.links.upgrade()?;
        let now = rt::now();
        // Of those that it knew before, a split says more.
        let is_told = || links.observed.silent(now).is_some();
        links.observed.unlinked(now).or_else(|| alone_warning(&links).filter(|_| !is_told()))
    }

    fn unheard(&self) -> Option<String> {
        self.links.upgrade()?.observed.unheard(rt::now())
    }

    fn carry_out(&self, job: FileJob) -> Result<FileReport, FileRefusal> {
        self.saving.carry_out(job)
    }
}

/// Of several lives of one node, the present one; of those that are gone, the latest to go. Nodes
/// keep the positions of their first lives.
fn one_row_each(members: Vec<MemberInfo>) -> Vec<MemberInfo> {
    use MemberState as State;
    let rank = |member: &MemberInfo| {
        let presence = match member.state {
            State::Myself => 0,
            State::Up | State::Suspect | State::Joining => 1,
            State::Down | State::Left => 2,
            State::Away => 3,
        };
        (presence, !member.linked, member.since_ms)
    };
    let mut rows: Vec<MemberInfo> = Vec::with_capacity(members.len());
    let mut places = BTreeMap::new();
    for member in members {
        let place = *places.entry(member.name.clone()).or_insert(rows.len());
        match rows.get_mut(place) {
            None => rows.push(member),
            Some(row) if rank(&member) < rank(row) => *row = member,
            Some(_) => {}
        }
    }
    rows
}

fn myself(links: &Links, view: &StateView, since_ms: Millis) -> MemberInfo {
    MemberInfo {
        name: links.me.name.to_string(),
        incarnation: view.table.id(view.own).incarnation,
        gossip: links.me.gossip_text(None),
        client: Some(links.me.client_text(None)),
        state: MemberState::Myself,
        linked: false,
        secured: links.keys.is_some(),
        ready: view.tick.is_some(),
        lagging: false,
        acked: view.tick.unwrap_or_default(),
        since_ms,
        software: Some(SOFTWARE.to_owned()),
    }
}

/// What a member's link says of it, or that there is no link.
fn of_link(link: Option<&LinkInfo>, view: &StateView) -> MemberInfo {
    let peer = link.and_then(|l| view.peers.iter().find(|p| p.link == l.id));
    MemberInfo {
        name: link.map(|l| l.peer.name.to_string()).unwrap_or_default(),
        incarnation: link.map(|l| l.peer.incarnation).unwrap_or_default(),
        gossip: link.map(|l| l.peer.gossip.clone()).unwrap_or_default(),
        client: link.map(|l| l.peer.client.clone()),
        state: MemberState::Joining,
        linked: link.is_some(),
        secured: link.is_some_and(|l| l.secured),
        ready: peer.is_some_and(|p| p.ready),
        lagging: link.is_some_and(|l| l.lagging),
        acked: peer.map(|p| p.acked).unwrap_or_default(),
        since_ms: 0,
        software: link.map(|l| l.peer.software.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Incarnation, Tick};

    fn member(name: &str, life: u64, state: MemberState, since_ms: u64) -> MemberInfo {
        MemberInfo {
            name: name.into(),
            incarnation: Incarnation(life),
            gossip: String::new(),
            client: None,
            state,
            linked: false,
            secured: false,
            ready: false,
            lagging: false,
            acked: Tick::default(),
            since_ms,
            software: None,
        }
    }

    #[test]
    fn what_only_a_link_tells_is_unknown_of_members_that_are_there_and_not_linked() {
        use MemberState as State;
        for state in [State::Joining, State::Up, State::Suspect] {
            let far = member("a", 1, state, 9);
            assert_eq!(far.if_known(false), None, "{state:?}");
            assert_eq!(MemberInfo { linked: true, ..far }.if_known(false), Some(false));
        }
        for state in [State::Myself, State::Down, State::Left, State::Away] {
            assert_eq!(member("a", 1, state, 9).if_known(true), Some(true), "{state:?}");
        }
    }

    #[test]
    fn a_node_has_one_row_whatever_lives_it_has_had() {
        use MemberState as State;
        let linked = |member| MemberInfo { linked: true, ..member };
        let members = vec![
            member("a", 1, State::Myself, 9),
            member("b", 2, State::Down, 50),
            member("c", 3, State::Down, 50),
            member("a", 4, State::Down, 3),
            member("c", 5, State::Left, 20),
            linked(member("b", 6, State::Joining, 70)),
            member("d", 7, State::Up, 1),
            linked(member("d", 8, State::Up, 2)),
        ];
        let rows = one_row_each(members);
        let lives: Vec<u64> = rows.iter().map(|row| row.incarnation.0).collect();
        assert_eq!(lives, [1, 6, 5, 8]);
    }
}
