//! Links: the one TCP connection to each peer, over which all data goes.
//!
//! How connections come about, and which of two stays, is in [`connect`]; then a link has two tasks, a
//! [`reader`] and a [`writer`], which share a [`link`](self::link::Link). Whether what was written
//! arrives is judged in [`liveness`] and, on slow lines, in [`arrivals`]; that peers know where this node is, is
//! seen to in [`told`], and that membership knows them in [`known`]. Nothing here waits for one peer while it holds anything that concerns another.

mod arrivals;
mod catch_up_pacing;
mod connect;
mod known;
#[allow(clippy::module_inception, reason = "one link, of the links")]
mod link;
mod liveness;
mod log_once;
mod reader;
mod slow;
mod told;
mod transport;
mod writer;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_lock::Semaphore;
use event_listener::Event;
use parking_lot::Mutex;

pub(super) use connect::accept::accept_peers;
use connect::admission::{Admission, LiveMember, Party, decide_admission};
pub(super) use connect::dial::dial_peers;
pub(in crate::node) use connect::handshakes::GREETINGS_MAX;
use connect::handshakes::Greetings;
use connect::name_conflict::NameTrouble;
pub(super) use connect::targets::Origin;
use connect::targets::{Dialled, Standing, Targets};
pub(super) use connect::trouble::{Refused, Trouble};
use link::{Link, LinkEnd, SILENCE_MS};
use log_once::LogOnce;
use slow::GivenUp;
use transport::{Channel, Halves};

use super::lifecycle::stop::Stop;
use super::membership::address::HostPort;
use super::membership::identity::{Myself, Told};
use super::membership::swim::SwimHandle;
use super::monitoring::observed::Observed;
use super::security::Keys;
use crate::engine::changes::{BarArrayPaths, SayFarewell};
use crate::engine::{CloseReason, Engine, Input, LinkId};
use crate::hub::Hub;
use crate::hub::link_queue::LinkQueue;
use crate::membership::{MemberInfo, MemberState};
use crate::model::ids::{Millis, NodeId, NodeName};
use crate::protocol::peer::greeting::{
    FEATURE_RIGHTS, Hello, Refusal, RefusalCode, VERSION_ARRAY_PATHS,
};
use crate::rt::{self, TcpStream};
use crate::secure::key::KeyId;
use crate::server::access::audit::Audit;

/// Most links; a few times the largest cluster that pushes to everybody.
pub(in crate::node) const LINKS_MAX: usize = 256;
/// Most catch-ups that are answered at once; other askers ask elsewhere or later.
pub(super) const SERVES_MAX: usize = 4;
/// How long a link may take to send its queue when it is closed on purpose.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(1_000);
/// Bytes that the system may hold unsent per link, so that live frames do not stand behind
/// megabytes of a catch-up.
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// A peer that is linked, for display.
#[derive(Clone, Debug)]
pub(super) struct LinkInfo {
    pub(super) id: LinkId,
    pub(super) peer: Hello,
    pub(super) since: Millis,
    pub(super) lagging: bool,
    /// Whether it is sealed with a cluster key.
    pub(super) secured: bool,
    /// What waits to be sent.
    pub(super) queue_bytes: usize,
}

/// A link that is sealed, for what is told about keys.
pub(super) struct SealedLink {
    pub(super) id: LinkId,
    pub(super) name: NodeName,
    pub(super) queue: Arc<LinkQueue>,
}

/// All links of a node, and what is needed to make them.
pub(super) struct Links {
    pub(super) hub: Arc<Hub>,
    pub(super) me: Arc<Myself>,
    pub(super) swim: SwimHandle,
    pub(super) stop: Stop,
    /// Of a secured node.
    pub(super) keys: Option<Arc<Keys>>,
    /// Where refusals are recorded, if anywhere.
    audit: Option<Audit>,
    /// By the peer's name: one each.
    table: Mutex<BTreeMap<NodeName, Arc<Link>>>,
    targets: Mutex<Targets>,
    serves: Arc<Semaphore>,
    log: LogOnce,
    /// Messages that were given up half-way.
    given_up: Mutex<GivenUp>,
    greetings: Greetings,
    name_trouble: Mutex<Option<NameTrouble>>,
    /// Held while SWIM is told of this node's own identity.
    place: Mutex<()>,
    /// When the living node that has our name, and keeps it, last told us so.
    name_held: Mutex<Option<Millis>>,
    /// Fires when a link came or went, or there are new addresses to dial.
    pub(super) changed: Event,
    /// What the node counts and notices about itself.
    pub(super) observed: Observed,
}

impl Links {
    pub(super) fn new(
        hub: Arc<Hub>,
        me: Arc<Myself>,
        swim: SwimHandle,
        stop: Stop,
        keys: Option<Arc<Keys>>,
        audit: Option<Audit>,
    ) -> Self {
        let targets = Mutex::new(Targets::new(me.name.clone()));
        Self {
            hub,
            me,
            swim,
            stop,
            keys,
            audit,
            table: Mutex::default(),
            targets,
            serves: Arc::new(Semaphore::new(SERVES_MAX)),
            log: LogOnce::default(),
            given_up: Mutex::default(),
            greetings: Greetings::default(),
            name_trouble: Mutex::new(None),
            place: Mutex::default(),
            name_held: Mutex::new(None),
            changed: Event::new(),
            observed: Observed::default(),
        }
    }

    /// No more connections than this may wait to be greeted.
    pub(super) fn bound_strangers(&self, strangers: usize) {
        self.greetings.strangers.set_most(strangers);
    }

    /// Adds an address to dial.
    pub(super) fn add_target(&self, address: &str, origin: Origin, name: Option<NodeName>) {
        self.targets.lock().add(address, origin, name, rt::now());
        self.changed.notify(usize::MAX);
    }

    /// Whether a peer on this host has a link, or is being greeted: its own call is given up then, without a word.
    fn has_peer_at(&self, host: IpAddr) -> bool {
        let is_linked = self.table.lock().values().any(|link| link.remote.ip() == host);
        is_linked || self.greetings.is_greeting(host)
    }

    /// SWIM reports that a member is up.
    pub(super) fn on_member_up(&self, addr: SocketAddr, name: &NodeName) {
        self.check_link_local(name.as_str(), addr);
        let address = HostPort::from(addr).to_string();
        let is_joining = !self.hub.read(Engine::is_ready);
        self.targets.lock().on_member_up(&address, name, is_joining, rt::now());
        self.changed.notify(usize::MAX);
    }

    /// SWIM says that a member is gone; `left` on purpose.
    pub(super) fn on_member_down(&self, addr: SocketAddr, left: bool) {
        self.targets.lock().on_member_down(&HostPort::from(addr).to_string(), left);
    }

    /// What keeps addresses from answering, for the log.
    pub(super) fn troubles(&self) -> Vec<Trouble> {
        self.targets.lock().troubles()
    }

    /// See [`Targets::refusing`].
    pub(super) fn refusing(&self) -> BTreeMap<NodeName, Arc<str>> {
        self.targets.lock().refusing()
    }

    /// What keeps a peer from being linked, at one of its addresses.
    pub(super) fn trouble_with(&self, name: &NodeName) -> Option<String> {
        self.targets.lock().trouble_with(name).map(|trouble| trouble.to_string())
    }

    /// See [`Targets::refused_by_all`].
    pub(super) fn refused_by_all(&self) -> Option<Refused> {
        self.targets.lock().refused_by_all()
    }

    /// See [`Targets::unknown_by_all`].
    pub(super) fn unknown_by_all(&self) -> Option<Refused> {
        self.targets.lock().unknown_by_all()
    }

    /// See [`Targets::only_own`].
    pub(super) fn only_own(&self) -> Option<Refused> {
        self.targets.lock().only_own()
    }

    /// See [`Targets::knows_nobody_since`].
    pub(super) fn knows_nobody_since(&self) -> Option<Millis> {
        self.targets.lock().knows_nobody_since()
    }

    /// All addresses that are dialled, for the log.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.targets.lock().addresses().map(str::to_owned).collect()
    }

    /// The linked peers, by name.
    pub(super) fn infos(&self) -> Vec<LinkInfo> {
        let table = self.table.lock();
        table
            .values()
            .map(|link| LinkInfo {
                id: link.id,
                peer: link.peer.clone(),
                since: link.since,
                lagging: link.queue.is_lagging(),
                secured: link.key.is_some(),
                queue_bytes: link.queue.bytes(),
            })
            .collect()
    }

    /// The links that are sealed.
    pub(super) fn sealed(&self) -> Vec<SealedLink> {
        let table = self.table.lock();
        let sealed = table.values().filter(|link| link.key.is_some() && link.end().is_none());
        sealed
            .map(|link| SealedLink {
                id: link.id,
                name: link.peer.name.clone(),
                queue: Arc::clone(&link.queue),
            })
            .collect()
    }

    /// Closes the links that were sealed with such keys.
    pub(super) fn close_sealed(&self, with: impl Fn(KeyId) -> bool) {
        let links: Vec<Arc<Link>> = self.table.lock().values().cloned().collect();
        for link in links.iter().filter(|link| link.key.is_some_and(&with)) {
            link.close(LinkEnd::KeyRemoved);
        }
    }

    /// How many links stand.
    pub(super) fn count(&self) -> usize {
        self.table.lock().len()
    }

    /// Our greeting for a connection with this local address.
    fn hello(&self, stream: &TcpStream) -> Hello {
        let local = stream.local_addr().ok().map(|addr| addr.ip().to_canonical());
        let linked: Vec<String> =
            self.table.lock().values().map(|link| link.peer.gossip.clone()).collect();
        let roster = self.swim.roster();
        let members = roster.members.iter().filter(|m| is_live(m.state));
        let members = members.map(|m| HostPort::from(m.addr).to_string());
        let mut hello = self.me.hello(&self.hub, local, linked.into_iter().chain(members));
        if self.keys.is_some() {
            hello.features |= FEATURE_RIGHTS;
        }
        hello
    }

    /// Over a sealed link, both sides must enforce the rights of their clients.
    fn check_rights(&self, channel: &Channel, peer: &Hello) -> Result<(), Refusal> {
        if channel.key().is_none() || peer.features & FEATURE_RIGHTS != 0 {
            return Ok(());
        }
        let text = format!(
            "node {} does not enforce the rights of its clients, as node {} does; upgrade it",
            peer.name, self.me.name
        );
        Err(Refusal::new(RefusalCode::Version, text))
    }

    fn going_away(&self) -> Refusal {
        Refusal::new(RefusalCode::Unavailable, format!("node {} is going away", self.me.name))
    }

    /// Whether a connection may become a link; if so it is in the table, and an older one of
    /// the same peer is closed.
    async fn admit(
        &self,
        channel: &Channel,
        (peer, told): (Hello, Told),
        remote: SocketAddr,
        dialled: bool,
    ) -> Result<Arc<Link>, Refusal> {
        let gossip = HostPort::parse(&peer.gossip, Some(0)).map_err(|why| {
            let text = format!("your gossip address {:?} is none: {why}", peer.gossip);
            Refusal::new(RefusalCode::Other, text)
        })?;
        // Only needed where SWIM knows another life of that name, perhaps at that very place.
        let addrs = match self.live_member(&peer.name) {
            Some(member) if member.incarnation != peer.incarnation => {
                rt::resolve(&gossip).await.unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let now = rt::now();
        let (link, replaced) = {
            let mut table = self.table.lock();
            self.check_place(&table, &peer, dialled, &addrs, now)?;
            let name = peer.name.clone();
            let link = Link::new(
                self.hub.add_link(),
                channel,
                (peer, told),
                (remote, dialled),
                &self.observed.link_traffic,
                now,
            );
            let link = Arc::new(link);
            (Arc::clone(&link), table.insert(name, link))
        };
        if let Some(old) = replaced {
            // The engine must not see two links of one peer.
            old.close(LinkEnd::Replaced);
            self.tell_down(&old);
        }
        Ok(link)
    }

    /// Whether there is a place in the table for a connection to this peer. `addrs`: where its greeting says that it is.
    fn check_place(
        &self,
        table: &BTreeMap<NodeName, Arc<Link>>,
        peer: &Hello,
        dialled: bool,
        addrs: &[SocketAddr],
        now: Millis,
    ) -> Result<(), Refusal> {
        if self.stop.is_requested() {
            return Err(self.going_away());
        }
        let standing = table.get(&peer.name).filter(|link| link.end().is_none());
        let party = standing.map(|link| link.party());
        let linked = party.as_ref().zip(standing.map(|link| now.saturating_sub(link.since)));
        let candidate = Party { incarnation: peer.incarnation, gossip: &peer.gossip, dialled };
        let (own, member) = (&self.me.name, self.live_member(&peer.name));
        match decide_admission(own, &peer.name, &candidate, addrs, linked, member) {
            Admission::AlreadyLinked => {
                let text = format!("{own} and {} are linked already", peer.name);
                Err(Refusal::new(RefusalCode::Linked, text))
            }
            Admission::NameInUse(holder) => {
                let text = format!(
                    "another node named {} is up at {holder}, as node {own} sees it",
                    peer.name
                );
                Err(Refusal { code: RefusalCode::NameInUse, text, holder: Some(holder) })
            }
            Admission::Take if table.len() >= LINKS_MAX => {
                let text = format!("node {own} has {LINKS_MAX} links, the most");
                Err(Refusal::new(RefusalCode::Unavailable, text))
            }
            Admission::Take | Admission::Replace => Ok(()),
        }
    }

    /// The node of that name that SWIM sees alive.
    fn live_member(&self, name: &NodeName) -> Option<LiveMember> {
        let roster = self.swim.roster();
        let found = roster.members.iter().find(|m| m.name == *name && is_live(m.state))?;
        Some(LiveMember { incarnation: found.incarnation, addr: found.addr })
    }

    /// Runs an admitted link to its end.
    async fn run(self: Arc<Self>, link: Arc<Link>, halves: Halves) {
        self.introduce(&link);
        let Halves { sealer, opener, raw, plain } = halves;
        let reader = {
            let (links, link) = (Arc::clone(&self), Arc::clone(&link));
            rt::spawn(async move {
                let end =
                    reader::read_link(&links, &link, reader::Source::new(opener, raw, &plain))
                        .await;
                link.close(end);
            })
        };
        let serves = self.serves.clone();
        let writer = writer::Writer::new(Arc::clone(&self.hub), Arc::clone(&link), serves, sealer);
        let end = writer.run().await;
        if let Some(bytes) = link.long_write(slow::UNDER_WAY_MS, rt::now()) {
            self.note_given_up(&link, false, bytes);
        }
        if matches!(end, LinkEnd::Left | LinkEnd::Unneeded)
            && link.end().is_none()
            && link.stream.shutdown(std::net::Shutdown::Write).is_ok()
        {
            // Closing with unread bytes would reset the connection before the peer has read
            // our last words; it closes as soon as it has.
            let _ = rt::timeout(FAREWELL_TIMEOUT, reader).await;
            self.finish(&link, link.end().unwrap_or(end));
        } else {
            link.close(end.clone());
            reader.await;
            self.finish(&link, link.end().unwrap_or(end));
        }
    }

    /// Notifies all parts of the node of a new link.
    fn introduce(&self, link: &Link) {
        let peer = &link.peer;
        tune(&link.stream);
        self.name_trouble.lock().take();
        {
            // Under the table's lock, so that a link that replaces this one reports its end after
            // its beginning, or finds that there was none.
            let table = self.table.lock();
            self.bar_array_paths(&table);
            self.observed.note_alone(false);
            if link.tell_up() {
                let id = NodeId { name: peer.name.clone(), incarnation: peer.incarnation };
                self.hub.handle(Input::LinkUp { link: link.id, peer: id }, rt::now());
            }
        }
        tracing::info!(
            peer = %peer.name,
            gossip = %peer.gossip,
            remote = %link.remote,
            dialled = link.dialled,
            software = %peer.software,
            key = link.key.map(tracing::field::display),
            "linked"
        );
        let (origin, name) = (Origin::Learned, Some(peer.name.clone()));
        self.targets.lock().add(&peer.gossip, origin, name, rt::now());
        self.changed.notify(usize::MAX);
        self.hub.cluster_changed.notify(usize::MAX);
        self.learn_route_of(link);
        // It may not have met this peer.
        self.tell_swim_of(link, 0);
    }

    /// While a peer cannot read paths with arrays, clients make none.
    fn bar_array_paths(&self, table: &BTreeMap<NodeName, Arc<Link>>) {
        let is_old = |link: &Arc<Link>| link.peer.versions.1 < VERSION_ARRAY_PATHS;
        let barred = table.values().any(is_old);
        self.hub.handle(BarArrayPaths(barred), rt::now());
    }

    fn tell_down(&self, link: &Link) {
        let _table = self.table.lock();
        if link.tell_down() {
            if let Some(known) = self.hub.read(|engine| engine.last_word(link.id)) {
                self.observed.note_last_word(link.peer.name.clone(), known, rt::now());
            }
            self.hub.handle(Input::LinkDown { link: link.id }, rt::now());
        }
    }

    fn finish(&self, link: &Link, mut end: LinkEnd) {
        if end == LinkEnd::Gone {
            // That it closed was to be expected.
            match link.queue.closing() {
                Some(CloseReason::Left) => end = LinkEnd::Left,
                Some(CloseReason::Unneeded) => end = LinkEnd::Unneeded,
                Some(CloseReason::ClockTooFar) => end = LinkEnd::ClockTooFar,
                Some(CloseReason::TableFull) | None => {}
            }
        }
        link.close(end.clone());
        self.tell_down(link);
        self.hub.remove_link(link.id);
        let is_farewell = end == LinkEnd::Left || link.queue.closing() == Some(CloseReason::Left);
        // Of a node that leaves, all links end so.
        if is_farewell && !self.stop.is_requested() {
            // Before anybody sees that the link is gone.
            self.observed.note_farewell(link.peer.name.clone(), link.peer.incarnation);
        }
        {
            let mut table = self.table.lock();
            if table.get(&link.peer.name).is_some_and(|standing| standing.id == link.id) {
                table.remove(&link.peer.name);
            }
            self.bar_array_paths(&table);
        }
        self.observed.note_link_end(end.word());
        let name = &link.peer.name;
        let now = rt::now();
        let lived = now.saturating_sub(link.since);
        if end.is_alarming() {
            if self.log.is_news(name.as_str(), &format!("{end:?}"), now) {
                tracing::warn!(peer = %name, remote = %link.remote, reason = %end, "link closed");
            }
        } else {
            tracing::info!(peer = %name, remote = %link.remote, reason = %end, "link closed");
        }
        match end {
            LinkEnd::Replaced => {}
            LinkEnd::Left => self.targets.lock().on_farewell(name, now),
            _ => self.targets.lock().on_link_end(name, lived, now, rt::random_u64()),
        }
        self.changed.notify(usize::MAX);
        self.hub.cluster_changed.notify(usize::MAX);
    }

    /// Closes links that make no progress, and those to peers that cannot read what this node holds.
    /// To be called about once a second.
    pub(super) fn close_stalled(&self) {
        let now = rt::now();
        let links: Vec<Arc<Link>> = self.table.lock().values().cloned().collect();
        let roster = self.swim.roster();
        let has_array_paths = self.hub.read(|e| e.tree().has_array_paths());
        for link in links {
            if has_array_paths && link.peer.versions.1 < VERSION_ARRAY_PATHS {
                link.close(LinkEnd::TooOld);
                continue;
            }
            let is_it = |m: &&MemberInfo| {
                m.name == link.peer.name && m.incarnation == link.peer.incarnation
            };
            let down = roster.members.iter().find(is_it).is_some_and(|m| !is_live(m.state));
            if let Some(end) = link.decide_stall(down, now) {
                link.close(end);
            }
        }
    }

    /// This node has a new incarnation: peers must greet it anew before they hear more.
    pub(super) fn on_renewed(&self) {
        self.take_place();
        let links: Vec<Arc<Link>> = self.table.lock().values().cloned().collect();
        for link in links {
            link.close(LinkEnd::Renewed);
        }
    }

    /// Says farewell on all links, and waits until all are closed, or for `patience`.
    pub(super) async fn leave(&self, patience: Duration) {
        self.hub.handle(SayFarewell, rt::now());
        let ids: Vec<LinkId> = self.table.lock().values().map(|link| link.id).collect();
        for id in ids {
            self.hub.close_link(id, CloseReason::Left);
        }
        let all_gone = async {
            loop {
                let listener = self.changed.listen();
                if self.count() == 0 {
                    return;
                }
                listener.await;
            }
        };
        let _ = rt::timeout(patience, all_gone).await;
        self.abandon();
    }

    /// Closes all links without a word.
    pub(super) fn abandon(&self) {
        let links: Vec<Arc<Link>> = self.table.lock().values().cloned().collect();
        for link in links {
            link.close(LinkEnd::Left);
        }
    }

    /// Records for the audit log that who called at the gossip port was refused; `target`: what that one calls itself,
    /// or its key.
    pub(super) fn record_refusal(&self, ip: IpAddr, reason: &'static str, target: Option<&str>) {
        if let Some(audit) = &self.audit {
            audit.note_refused_peer(ip, reason, target);
        }
    }

    /// The same of a peer that this node has called.
    pub(super) fn record_dialled(&self, ip: IpAddr, reason: &'static str, target: Option<&str>) {
        if let Some(audit) = &self.audit {
            audit.note_dialled_peer(ip, reason, target);
        }
    }

    /// What an operator should know about slow lines, one line each.
    pub(super) fn slow_warnings(&self) -> Vec<String> {
        self.given_up.lock().warnings(rt::now())
    }

    /// A link ended while a long message was under way, from the peer or to it.
    fn note_given_up(&self, link: &Link, is_from: bool, bytes: usize) {
        use LinkEnd::{Broken, Gone, Replaced, Silent, Stuck};
        let is_on_purpose = link
            .end()
            .is_some_and(|end| !matches!(end, Gone | Broken(_) | Replaced | Silent | Stuck));
        if is_on_purpose || self.stop.is_requested() {
            return;
        }
        let warning = self.given_up.lock().note(&link.peer.name, is_from, bytes, rt::now());
        if let Some(warning) = warning {
            let reason = if is_from { "slow from" } else { "slow to" };
            self.complain(link.peer.name.as_str(), reason, &warning);
        }
    }

    /// Logs a complaint about a peer, once for the same reason.
    pub(super) fn complain(&self, who: &str, reason: &str, text: &str) {
        if self.log.is_news(who, reason, rt::now()) {
            tracing::warn!(peer = who, reason, "{text}");
        }
    }
}

fn is_live(state: MemberState) -> bool {
    matches!(state, MemberState::Up | MemberState::Suspect)
}

/// Whether an operator has to do something about a refusal, or should at least know.
fn is_worth_a_warning(code: RefusalCode) -> bool {
    use RefusalCode as Code;
    match code {
        Code::Version
        | Code::Network
        | Code::Limits
        | Code::NameInUse
        | Code::NameHeld
        | Code::Key
        | Code::Other => true,
        Code::Myself | Code::Linked | Code::Unavailable => false,
    }
}

/// Small messages go out at once, and little waits inside of the system.
fn tune(stream: &TcpStream) {
    // Should the system refuse, the link is only slower.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        let socket = socket2::SockRef::from(stream);
        let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
        // The system should not keep trying for longer either, with what is left in a closed
        // socket.
        let _ = socket.set_tcp_user_timeout(Some(Duration::from_millis(SILENCE_MS)));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = UNSENT_BYTES_MAX;
}
