//! A running node: owns the hub, the sockets and the timers.
//!
//! [`Node::start`] opens the ports and starts the tasks; how it comes to serve, and how it ends, is in [`lifecycle`].
//! Peers are [`link`]'s, members are [`membership`]'s.

pub(crate) mod check;
mod clients;
pub mod config;
mod durable;
mod error;
mod lifecycle;
mod link;
mod local;
mod membership;
mod monitoring;
mod scheduled;
pub mod security;
mod tasks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::secure::key_file::KeyFile;
use clients::certificates::Certificates;
use clients::file_jobs::Saving;
use clients::files::ClientFiles;
use config::{CALLED_WAIT, Config, PEER_WAIT};
use distkv_http::HttpPort;
use distkv_tls::CaHash;
use durable::{Durable, Opened, Prepared};
pub use error::NodeError;
pub(crate) use error::{advice_of_writing, is_wrong_place};
pub(crate) use lifecycle::farewell::LOG_FAREWELL_TIMEOUT;
use lifecycle::file_descriptors::Shares;
use lifecycle::opening::{
    engine_config, known_peers, open_audit, open_client_files, open_data, prepare, tls_of,
};
use lifecycle::ports::Ports;
use lifecycle::start::Plan;
use lifecycle::stop::Stop;
pub use lifecycle::stop::StopReason;
use link::{Links, Origin, accept_peers, dial_peers};
use membership::door::Door;
use membership::identity::Myself;
use membership::members::{PeerFile, follow_members};
use membership::peer_file::{self, Stored};
use membership::swim::SwimHandle;
use monitoring::audit::AuditLog;
use monitoring::isolation::Isolation;
use monitoring::split::unseen::{self, Unseen};
use parking_lot::Mutex;
use scheduled::{Scheduled, keep_schedule};
use security::{Keys, KeysRead, OtherNetwork, share_keys};

use crate::engine::Engine;
use crate::hub::Hub;
use crate::membership::{NetworkName, SwimConfig};
use crate::model::ids::{Incarnation, Millis, NodeId, NodeName};
use crate::rt::{self, Task, TcpListener, millis};
use crate::server::Server;
use crate::server::access::audit::Audit;
use crate::server::access::audit::record::{Event, Outcome, Record};

/// How long a node waits for what while it starts. The defaults suit everybody but tests.
#[derive(Clone, Debug)]
pub struct Timing {
    /// A first node with known peers continues alone when none has answered for this long.
    pub no_answer_ms: Millis,
    /// One without known peers, and without data, when no node has called it for this long.
    pub called_ms: Millis,
    /// The same when peers have answered, but none of them serves clients.
    pub first_answer_ms: Millis,
    /// The same when there was one that serves clients, and it is gone.
    pub network_lost_ms: Millis,
    /// A newcomer whose name is taken, as others say, gives up after this time.
    pub name_patience_ms: Millis,
    /// One that all peers refuse for good, or whose peers' host names do not exist, gives up after this time.
    pub refused_patience_ms: Millis,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            no_answer_ms: millis(PEER_WAIT),
            called_ms: millis(CALLED_WAIT),
            first_answer_ms: 3_000,
            network_lost_ms: 10_000,
            name_patience_ms: 20_000,
            refused_patience_ms: 10_000,
        }
    }
}

impl Timing {
    /// With what the node was told about it.
    fn told(self, config: &Config) -> Self {
        let no_answer_ms = config.peer_wait.map_or(self.no_answer_ms, millis);
        let called_ms = config.called_wait.map_or(self.called_ms, millis);
        Self { no_answer_ms, called_ms, ..self }
    }
}

/// What a node has sent to other nodes since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerTraffic {
    /// Messages on links, without answers to catch-ups.
    pub frames: u64,
    /// Their bytes.
    pub frame_bytes: u64,
    /// Datagrams of membership.
    pub datagrams: u64,
    /// Their bytes.
    pub datagram_bytes: u64,
}

/// A running node. Dropping it is like a crash: nobody is told. See [`Node::shutdown`].
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    hub: Arc<Hub>,
    me: Arc<Myself>,
    links: Arc<Links>,
    server: Server,
    swim: SwimHandle,
    stop: Stop,
    /// See [`Node::has_lost_changes`].
    has_lost: AtomicBool,
    /// Takes peers' connections, and owns the listener.
    accepting: Mutex<Option<Task<()>>>,
    /// Follows the members, and owns the list of known peers on disk.
    following: Mutex<Option<Task<()>>>,
    /// Of a node with a data directory.
    durable: Option<Arc<Durable>>,
    saving: Arc<Saving>,
    /// Snapshots that the node makes by itself.
    scheduled: Option<Arc<Scheduled>>,
    /// Of a node that speaks TLS to clients.
    certificates: Option<Arc<Certificates>>,
    audit: Option<AuditLog>,
    isolation: Arc<Isolation>,
    memory_max: Option<usize>,
    started: Millis,
    /// The HTTP port, while there is one.
    http: Mutex<Option<HttpPort>>,
}

impl Node {
    /// Opens the ports and starts. When this returns, the node can be reached; it serves
    /// clients once [`Node::ready`] returns.
    ///
    /// # Errors
    /// [`NodeError`]; nothing is left running.
    pub async fn start(config: Config) -> Result<Self, NodeError> {
        Self::start_with(config, Timing::default()).await
    }

    /// [`Node::start`] with other patience.
    ///
    /// # Errors
    /// [`NodeError`]; nothing is left running.
    pub async fn start_with(config: Config, timing: Timing) -> Result<Self, NodeError> {
        rt::start_for_node();
        let timing = timing.told(&config);
        let network = NetworkName::new(&config.network)
            .map_err(|why| NodeError::Network { name: config.network.clone(), why })?;
        if let Some(key) = config.key.as_ref().filter(|key| *key.file.ring.network() != network) {
            let file = key.file.ring.network().as_str().to_owned();
            return Err(NodeError::KeyNetwork { file, network: config.network });
        }
        check::check_audit(&config)?;
        let opened = open_data(&config).await?;
        let has_data = opened.as_ref().is_some_and(Opened::has_data);
        let client_files = open_client_files(&config)?;
        let audit = open_audit(&config)?;
        let scheduled = config.scheduled.as_ref();
        let scheduled =
            scheduled.map(|scheduled| Scheduled::open(&config, scheduled)).transpose()?;
        let stored = known_peers(&config, has_data)?;
        let knows_peers = !config.peers.is_empty() || !stored.peers.is_empty();
        let plan = Plan::make(&config, has_data, knows_peers).await?;
        let ports = Ports::open(&config).await?;
        let me = Arc::new(ports.myself(&config));
        let certificates = tls_of(&config, &me)?;
        // The last of what may fail: from here on, the directory takes this for a life of the node.
        let prepared = match opened {
            Some(opened) => Some(prepare(&config, opened).await?),
            None => None,
        };
        let own = Own { me, certificates, prepared, client_files, audit, scheduled };
        let (node, listener) = Self::assemble(&config, network, ports, own)?;
        let links = &node.inner.links;
        for peer in &config.peers {
            links.add_target(peer, Origin::Configured, None);
        }
        for peer in &stored.peers {
            links.add_target(&peer.address, Origin::Configured, peer.name.clone());
        }
        let is_given = config.peer_file.is_some();
        expect_members(links, &stored, &timing);
        let stored = stored.peers;
        let file = peer_file::path_of(&config).map(|path| PeerFile::new(path, stored, is_given));
        let tock = links.hub.read(Engine::tock);
        links.me.set_may_begin(plan.may_begin(tock));
        let accepting = rt::spawn(accept_peers(Arc::clone(links), listener));
        node.inner.accepting.lock().replace(accepting);
        rt::spawn(dial_peers(Arc::clone(links)));
        let following = rt::spawn(follow_members(Arc::clone(links), file));
        node.inner.following.lock().replace(following);
        let isolation = Arc::clone(&node.inner.isolation);
        rt::spawn(tasks::keep_time(Arc::clone(links), node.inner.durable.clone(), isolation));
        rt::spawn(tasks::report(Arc::clone(links)));
        rt::spawn(monitoring::purge::watch_purging(Arc::clone(links)));
        rt::spawn(monitoring::auth::watch_auth(Arc::clone(links)));
        let forget_after_ms = millis(config.forget_down_after);
        rt::spawn(share_keys(Arc::clone(links), forget_after_ms));
        rt::spawn(monitoring::split::watch_split(Arc::clone(links), forget_after_ms));
        rt::spawn(Arc::clone(&node.inner).wait_for_end());
        if let Some(scheduled) = &node.inner.scheduled {
            rt::spawn(keep_schedule(Arc::clone(scheduled), Arc::clone(links)));
        }
        if let Some(certificates) = &node.inner.certificates {
            rt::spawn(clients::certificates::look_after(Arc::downgrade(certificates)));
        }
        if plan.patience_ms(links, &timing) == 0 {
            // There is no node to wait for.
            plan.carry_out(links, &timing).await;
        } else {
            let links = Arc::clone(links);
            rt::spawn(async move { plan.carry_out(&links, &timing).await });
        }
        Ok(node)
    }

    /// Puts the parts together. Of the node's own tasks, only the SWIM thread and the client
    /// port run afterwards. Returns the listener for peers as well.
    fn assemble(
        config: &Config,
        network: NetworkName,
        ports: Ports,
        own: Own,
    ) -> Result<(Self, TcpListener), NodeError> {
        let Own { me, certificates, prepared, client_files, audit, scheduled } = own;
        let Ports { gossip, client, http, .. } = ports;
        let (hub, durable) = match prepared.zip(config.data.as_ref()) {
            Some((prepared, data)) => {
                durable::launch(prepared, data).map(|(hub, durable)| (hub, Some(durable)))?
            }
            None => {
                let incarnation = Incarnation::of_random(rt::random_u64());
                let id = NodeId { name: config.name.clone(), incarnation };
                (Arc::new(Hub::new(Engine::new(engine_config(config, id)))), None)
            }
        };
        let durable = durable.map(Arc::new);
        let incarnation = hub.read(|engine| engine.id().incarnation);
        let saving = {
            let (hub, durable) = (Arc::clone(&hub), durable.clone());
            let sync = config.data.as_ref().map(|data| data.sync).unwrap_or_default();
            Arc::new(Saving::new(hub, config.network.clone(), durable, client_files, sync))
        };
        let (name, seed) = (config.name.clone(), rt::random_u64());
        let swim_config = SwimConfig {
            remove_down_after_ms: millis(config.forget_down_after),
            ..SwimConfig::lan(network)
        };
        let keys = config.key.clone().map(|key| Arc::new(Keys::new(config.name.clone(), key)));
        let records = audit.as_ref().map(|log| log.audit().clone());
        let door = keys
            .as_ref()
            .map(|keys| Door::new(&keys.ring(), keys.takes_plaintext(), records.clone()));
        let swim = SwimHandle::start(gossip.udp, name, swim_config, seed, door)
            .map_err(|source| NodeError::System { what: "the membership thread", source })?;
        if let Some(addr) = me.swim_addr() {
            swim.become_member(addr, incarnation);
        }
        let isolation = Arc::<Isolation>::default();
        let stop = Stop::default();
        let (links_hub, links_me) = (Arc::clone(&hub), Arc::clone(&me));
        let links =
            Links::new(links_hub, links_me, swim.clone(), stop.clone(), keys, records.clone());
        let links = Arc::new(links);
        let shares = Shares::now(config.connections_max, http.is_some());
        let server = {
            let saving = (durable.clone(), Arc::clone(&saving));
            let certificates = certificates.clone();
            let audit = records;
            let isolation = Arc::clone(&isolation);
            let scheduled = scheduled.clone();
            let extras = clients::port::Extras { certificates, audit, isolation, scheduled };
            clients::port::open(client, &links, config, &shares, saving, extras)
        };
        let inner = Arc::new(Inner {
            hub,
            me,
            links,
            server,
            swim,
            stop,
            has_lost: AtomicBool::new(false),
            accepting: Mutex::new(None),
            following: Mutex::new(None),
            durable,
            saving,
            scheduled,
            certificates,
            audit,
            isolation,
            memory_max: config.memory_max,
            started: rt::now(),
            http: Mutex::new(None),
        });
        if let Some(http) = http {
            monitoring::health::serve(http, config, &shares, &inner);
        }
        Ok((Self { inner }, gossip.tcp))
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &NodeName {
        &self.inner.me.name
    }

    /// Where clients connect, with the port that was taken.
    #[must_use]
    pub fn client_addr(&self) -> SocketAddr {
        self.inner.me.client
    }

    /// Where peers connect, with the port that was taken; as bound, not as advertised.
    #[must_use]
    pub fn gossip_addr(&self) -> SocketAddr {
        self.inner.me.gossip
    }

    /// Where it tells its metrics and its health, with the port that was taken; none if it does not.
    #[must_use]
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.inner.http.lock().as_ref().map(HttpPort::address)
    }

    /// The node's state.
    #[must_use]
    pub fn hub(&self) -> &Arc<Hub> {
        &self.inner.hub
    }

    /// By what clients know the CA of the certificate that this node shows them; none if it shows none.
    #[must_use]
    pub(crate) fn ca_hash(&self) -> Option<CaHash> {
        self.inner.certificates.as_ref().and_then(|certificates| certificates.ca_hash())
    }

    /// Reads the files of the certificate for clients again. If they are bad, the log says so and the certificate stays.
    pub(crate) fn reload_certificate(&self) {
        if let Some(certificates) = &self.inner.certificates {
            certificates.reload();
        }
    }

    /// Opens the file of the audit log anew, because it was moved.
    pub(crate) fn reopen_audit(&self) {
        if let Some(log) = &self.inner.audit {
            log.audit().reopen();
        }
    }

    /// What it has sent to other nodes so far.
    #[must_use]
    pub fn peer_traffic(&self) -> PeerTraffic {
        let queued = self.inner.hub.queued();
        let (datagrams, datagram_bytes) = self.inner.swim.sent();
        let (frames, frame_bytes) = (queued.frames, queued.bytes);
        PeerTraffic { frames, frame_bytes, datagrams, datagram_bytes }
    }

    /// Waits until the node serves clients.
    ///
    /// # Errors
    /// The node has ended before.
    pub async fn ready(&self) -> Result<(), StopReason> {
        let became_ready = async {
            loop {
                let listener = self.inner.hub.became_ready.listen();
                if self.inner.hub.read(Engine::is_ready) {
                    return;
                }
                listener.await;
            }
        };
        match self.inner.stop.or(became_ready).await {
            Some(()) => Ok(()),
            None => Err(self.inner.stop.reason().unwrap_or(StopReason::Requested)),
        }
    }

    /// Waits until the node has ended, and says why.
    pub async fn stopped(&self) -> StopReason {
        self.inner.stop.finished().await;
        self.inner.stop.reason().unwrap_or(StopReason::Requested)
    }

    /// Once it has ended: whether its disk had failed, so that its data directory may lack changes that no other node has.
    pub fn has_lost_changes(&self) -> bool {
        self.inner.has_lost.load(Ordering::Acquire)
    }

    /// Of a secured node: takes the keys of its file, which has changed, for links and datagrams from now on.
    /// Links that stand go on, unless their key is gone. What was ordered over the network stays in force.
    /// None: it has no key.
    ///
    /// # Errors
    /// [`OtherNetwork`]; the keys are as they were.
    pub(crate) fn set_keys(&self, file: KeyFile) -> Option<Result<KeysRead, OtherNetwork>> {
        let keys = self.inner.links.keys.as_ref()?;
        let set = keys.set(file);
        if let Some(log) = &self.inner.audit {
            tell_of_keys(log.audit(), &set);
        }
        self.inner.swim.set_keys(keys.ring());
        Some(set)
    }

    /// Says farewell to peers and members, and stops: in less than 3 s, whatever they do. A node
    /// that keeps files also waits for its disk: for its data up to [`LOG_FAREWELL_TIMEOUT`], for its list of
    /// known peers 2 s.
    pub async fn shutdown(&self) {
        self.inner.stop.request(StopReason::Requested);
        self.inner.stop.finished().await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.inner.stop.is_finished() {
            self.inner.end_at_once();
        }
    }
}

/// Records that the key file was read again, with the ids of its keys, which are not secret.
fn tell_of_keys(audit: &Audit, set: &Result<KeysRead, OtherNetwork>) {
    match set {
        Ok(read) if read.is_change => {
            let ids: Vec<String> = read.ids.iter().map(ToString::to_string).collect();
            let detail = format!("keys {}, primary {}", ids.join(" "), read.primary);
            audit.note(Record::new(Event::Key, Outcome::Done).detail(&detail));
        }
        Ok(_) => {}
        Err(error) => {
            audit.note(Record::new(Event::Key, Outcome::Refused).detail(&error.to_string()));
        }
    }
}

/// What else a node has opened: what is its own.
struct Own {
    me: Arc<Myself>,
    certificates: Option<Arc<Certificates>>,
    prepared: Option<Prepared>,
    client_files: Option<ClientFiles>,
    audit: Option<AuditLog>,
    scheduled: Option<Arc<Scheduled>>,
}

/// Notes whom this node knows as members from before, so that they are missed if they do not show themselves.
fn expect_members(links: &Links, stored: &Stored, timing: &Timing) {
    let now = rt::now();
    let config = links.hub.read(|engine| engine.group_view(now).config);
    let listed = config.iter().flat_map(|config| config.members());
    let listed = listed.map(|member| member.name.clone());
    let names = unseen::expected(stored, listed, &links.me.name);
    links.observed.expect(Unseen::new(names, timing.no_answer_ms, now));
}
