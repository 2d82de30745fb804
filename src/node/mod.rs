//! A running node: owns the hub, the sockets and the timers.
//!
//! [`Node::start`] opens the ports and starts the tasks; how it comes to serve is in [`lifecycle`].
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
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::secure::key_file::KeyFile;
use clients::certificates::Certificates;
use clients::file_jobs::Saving;
use clients::files::ClientFiles;
use config::{CALLED_WAIT, Config, PEER_WAIT, Start};
use distkv_http::HttpPort;
use distkv_tls::CaHash;
use durable::{Durable, Opened, Prepared};
pub use error::NodeError;
pub(crate) use error::{advice_of_writing, is_wrong_place};
use lifecycle::farewell::Kept;
use lifecycle::file_descriptors::Shares;
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

use crate::engine::changes::BeginHandOver;
use crate::engine::delete::DeleteSettings;
use crate::engine::{Engine, TICK_INTERVAL_MS};
use crate::hub::Hub;
use crate::membership::{NetworkName, SwimConfig};
use crate::model::ids::{Incarnation, Millis, NodeId, NodeName};
use crate::rt::{self, Task, TcpListener, millis};
use crate::server::Server;
use crate::server::access::audit::Audit;
use crate::server::access::audit::record::{Event, Outcome, Record};

/// When the wait for peers' acknowledgements of this node's last changes ends, counted from the
/// beginning of the stop.
const COPIES_DEADLINE: Duration = Duration::from_millis(1_500);
/// How long another node may take to step in for this one in the Delete group.
const HAND_OVER_TIMEOUT: Duration = Duration::from_millis(250);
/// How long the last words to peers may take.
const LINKS_FAREWELL_TIMEOUT: Duration = Duration::from_millis(1_000);
/// How long the membership's thread may take to end when it is not to say anything any more.
const SWIM_END_TIMEOUT: Duration = Duration::from_millis(200);
/// How long clients may take to read what is written to them.
const CLIENTS_FAREWELL_TIMEOUT: Duration = Duration::from_millis(800);
/// How long the last record may take: a disk under load takes seconds for a sync, and without the
/// record the node comes back as another incarnation.
pub(crate) const LOG_FAREWELL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the last words to members may take, counted from those to peers.
const SWIM_FAREWELL_TIMEOUT: Duration = Duration::from_millis(800);
/// How long it may take until the last list of known peers is on disk. Without it, the next start waits for peers that
/// have left.
const PEER_FILE_FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the last lines of the audit log may take.
const AUDIT_FAREWELL_TIMEOUT: Duration = Duration::from_millis(200);

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

/// Opens the audit log, if there is to be one.
fn open_audit(config: &Config) -> Result<Option<AuditLog>, NodeError> {
    config.audit.as_deref().map(|path| AuditLog::open(path, config.name.as_str())).transpose()
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

/// Opens and reads the data directory, if there is one.
async fn open_data(config: &Config) -> Result<Option<Opened>, NodeError> {
    let Some(data) = config.data.clone() else { return Ok(None) };
    config.phase.note("reading its data directory");
    let (network, name) = (config.network.clone(), config.name.clone());
    rt::spawn_blocking(move || durable::open(&data, &network, &name).map(Some)).await
}

/// Whether two names are of one directory.
fn is_same_directory(a: &Path, b: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &Path| std::fs::metadata(path).map(|of| (of.dev(), of.ino()));
    Ok(id(a)? == id(b)?)
}

/// Opens the directory for clients' files, if there is one.
fn open_client_files(config: &Config) -> Result<Option<ClientFiles>, NodeError> {
    let Some(path) = &config.client_files else { return Ok(None) };
    let failed = |source| NodeError::ClientFiles { path: path.clone(), source };
    if let Some(data) = &config.data
        && is_same_directory(path, &data.dir).map_err(failed)?
    {
        // A client could make what the next start takes for the node's own.
        let why = "it is the data directory; choose another one";
        return Err(failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, why)));
    }
    ClientFiles::open(path).map(Some).map_err(failed)
}

/// The certificate for clients, if they are to use TLS.
fn tls_of(config: &Config, me: &Arc<Myself>) -> Result<Option<Arc<Certificates>>, NodeError> {
    let http = config.http.as_ref();
    config.tls.as_ref().map(|tls| Certificates::open(tls, http, me)).transpose()
}

/// Begins with the state that was read. From then on the directory records what leaves the node.
async fn prepare(config: &Config, opened: Opened) -> Result<Prepared, NodeError> {
    config.phase.note("beginning a new log in its data directory");
    let (name, config) = (config.name.clone(), config.clone());
    let prepare = move || opened.prepare(&name, |id| engine_config(&config, id));
    rt::spawn_blocking(prepare).await.map_err(|_| NodeError::TableFull)
}

fn engine_config(config: &Config, id: NodeId) -> crate::engine::Config {
    crate::engine::Config {
        read_only: config.read_only,
        ignore_auth: config.ignore_auth,
        memory_max: config.memory_max,
        delete: DeleteSettings {
            say_for_ms: millis(config.purge_grace),
            ..DeleteSettings::default()
        },
        ..crate::engine::Config::new(id, rt::random_u64())
    }
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

/// The peers of the peer file, after a look at those of the options.
fn known_peers(config: &Config, has_data: bool) -> Result<Stored, NodeError> {
    for peer in &config.peers {
        membership::address::parse_peer(peer)?;
    }
    let stored = peer_file::stored(config, has_data)?;
    if let Some(damage) = &stored.damage {
        tracing::warn!("{damage}; this node goes on with what is good in it");
    }
    let knows_nobody = config.peers.is_empty() && stored.peers.is_empty();
    if knows_nobody && !has_data {
        match config.start {
            Start::Join => return Err(NodeError::NoPeers),
            Start::ByWhatThereIs { found: false, .. } => return Err(NodeError::NothingToStartWith),
            Start::Run { .. } | Start::ByWhatThereIs { .. } => {}
        }
    }
    Ok(stored)
}

/// A port that other machines reach needs a key, or the word of the operator.
fn check_port_protection(
    config: &Config,
    what: &'static str,
    addr: SocketAddr,
) -> Result<(), NodeError> {
    if config.key.is_some() || config.insecure || addr.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(NodeError::Unprotected { what, addr, network: config.network.clone() })
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

impl Inner {
    /// Carries the farewell out when it is asked for.
    async fn wait_for_end(self: Arc<Self>) {
        self.stop.requested().await;
        if self.stop.is_finished() {
            return;
        }
        if let Some(reason) = self.stop.reason() {
            tracing::info!(%reason, "stopping");
        }
        // First the clients: their last writes must go out before the farewell.
        let began = rt::now();
        self.server.stop(CLIENTS_FAREWELL_TIMEOUT).await;
        // Who is sent away because of its name was alone, it may be, and its first link is only just being made.
        let is_sent_away = matches!(self.stop.reason(), Some(StopReason::NameInUse { .. }));
        let deadline = began + millis(COPIES_DEADLINE);
        lifecycle::farewell::wait_for_copies(&self.links, is_sent_away, deadline).await;
        // While all still see a member here.
        self.hand_over().await;
        self.swim.leave();
        let members = rt::timeout(SWIM_FAREWELL_TIMEOUT, self.swim.ended());
        let links = async {
            self.links.leave(LINKS_FAREWELL_TIMEOUT).await;
            let saving = Arc::clone(&self.saving);
            rt::spawn_blocking(move || saving.end()).await;
            // Nothing leaves the node any more.
            match &self.durable {
                None => Kept::InMemory,
                Some(durable) if !self.end_log(durable).await => Kept::InPart,
                Some(durable) if is_sent_away => Kept::Apart(durable.directory().to_owned()),
                Some(_) => Kept::OnDisk,
            }
        };
        let (kept, _) = futures::future::join(links, members).await;
        if lifecycle::farewell::tell_of_changes(&self.links, &kept) {
            self.has_lost.store(true, Ordering::Release);
        }
        let accepting = self.accepting.lock().take();
        if let Some(accepting) = accepting {
            accepting.cancel().await;
        }
        let http = self.http.lock().take();
        if let Some(http) = http {
            http.close().await;
        }
        self.swim.stop();
        let _ = rt::timeout(SWIM_END_TIMEOUT, self.swim.ended()).await;
        let following = self.following.lock().take();
        if let Some(following) = following {
            let _ = rt::timeout(PEER_FILE_FAREWELL_TIMEOUT, following).await;
        }
        if let Some(log) = &self.audit {
            log.end(AUDIT_FAREWELL_TIMEOUT).await;
        }
        // The ports are free now, and so is the data directory.
        self.end_at_once();
    }

    /// Returns whether the directory has all.
    async fn end_log(&self, durable: &Durable) -> bool {
        if self.stop.reason() != Some(StopReason::LeftForGood) {
            return durable.stop(&self.hub, LOG_FAREWELL_TIMEOUT).await;
        }
        if !durable.stop_for_good(&self.hub, LOG_FAREWELL_TIMEOUT).await {
            tracing::error!(
                "this node has left its network for good, but its data directory cannot say so: the disk \
                 fails; do not start a node with it again"
            );
            return false;
        }
        true
    }

    /// The only member of the Delete group leaves its place to another node, if it has no data
    /// directory. The wait for that is short: without it a new lineage begins.
    async fn hand_over(&self) {
        if self.hub.read(Engine::has_handed_over) {
            return;
        }
        self.hub.handle(BeginHandOver, rt::now());
        let done = async {
            while !self.hub.read(Engine::has_handed_over) {
                rt::sleep(Duration::from_millis(TICK_INTERVAL_MS)).await;
            }
        };
        if rt::timeout(HAND_OVER_TIMEOUT, done).await.is_none() {
            tracing::info!("no other node took over this node's place in the Delete group");
        }
    }

    fn end_at_once(self: &Arc<Self>) {
        // A caller that waits for the node's end may start another one.
        self.server.release_leavers();
        self.stop.finish();
        self.server.abandon();
        drop(self.http.lock().take());
        self.swim.stop();
        self.links.abandon();
        let saving = Arc::clone(&self.saving);
        drop(rt::spawn_blocking(move || saving.end()));
        if let Some(durable) = &self.durable {
            durable.abandon();
        }
    }
}
