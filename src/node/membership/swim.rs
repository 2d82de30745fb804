//! The thread that owns SWIM: one UDP socket, one machine ([`crate::membership::Swim`]), and
//! nothing else, so that load on the rest of the node is not mistaken for death. It never waits for
//! other threads: commands are taken from a bounded queue, and its results are published as a
//! whole, replaced at each change.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use event_listener::{Event, EventListener};
use parking_lot::Mutex;

use super::door::{Door, DroppedDatagrams};
use crate::membership::{
    DATAGRAM_BYTES_MAX, Identity, MemberInfo, Swim, SwimConfig, SwimCounters, SwimInput, SwimOutput,
};
use crate::model::ids::{Incarnation, Millis, NodeName};
use crate::rt;
use crate::secure::datagram::Outgoing;
use crate::secure::key_ring::KeyRing;

/// Most commands that wait. They come from links and dials, a few per peer; beyond this they
/// are dropped, because all of them are repeated.
const COMMANDS_MAX: usize = 4096;
/// Most notices that wait for the log; the oldest go first.
const NOTICES_MAX: usize = 64;
/// Most datagrams taken before timers are looked at again.
const DATAGRAMS_PER_TURN: usize = 256;
/// The thread looks for commands at least this often, should its wake-up be lost.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// The published view is refreshed this often, because suspicions come and go unreported.
const PUBLISH_INTERVAL_MS: Millis = 500;
/// A machine that was refused because of its name is made anew after this time.
const RETRY_AFTER_REFUSAL_MS: Millis = 2_000;

/// The members as SWIM sees them: one moment, never changed.
#[derive(Default)]
pub(in crate::node) struct Roster {
    /// All known members, those that are down included.
    pub(in crate::node) members: Vec<MemberInfo>,
}

/// Something for the log, or for the code that decides about the node's fate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::node) enum Notice {
    /// Another live node has this node's name.
    NameInUse { holder: SocketAddr },
    /// A node of another network called.
    NetworkMismatch { from: SocketAddr, network: String },
    /// A node of another version of the protocol called.
    VersionMismatch { from: SocketAddr, version: u8 },
    /// The machine cannot be made; membership does not work.
    Broken(String),
}

/// What the thread is asked to do.
enum Command {
    Input(SwimInput<'static>),
    /// Begin, or begin again under another address or incarnation.
    Become {
        addr: SocketAddr,
        incarnation: Incarnation,
    },
    /// Of a secured node: seal and open with these keys.
    Keys(Arc<KeyRing>),
    /// End without a farewell.
    Stop,
}

/// What all sides share.
struct Shared {
    commands: Mutex<VecDeque<Command>>,
    roster: Mutex<Arc<Roster>>,
    notices: Mutex<VecDeque<Notice>>,
    /// Fires when there is a new roster or notice, and when the thread has ended.
    changed: Event,
    ended: std::sync::atomic::AtomicBool,
    /// Datagrams that were sent, and their bytes.
    sent: (AtomicU64, AtomicU64),
    /// Of a secured node: those that were not taken.
    dropped: DroppedDatagrams,
    /// What the machine has counted, and when the thread last published what it knows.
    counters: Mutex<SwimCounters>,
    beat: AtomicU64,
    /// For waking the thread: its own socket and its address. None once it has ended: then the port
    /// is free.
    socket: Mutex<Option<UdpSocket>>,
    wake: SocketAddr,
}

/// The other threads' end. Clones share it.
#[derive(Clone)]
pub(in crate::node) struct SwimHandle {
    shared: Arc<Shared>,
}

impl SwimHandle {
    /// Starts the thread, which waits for [`SwimHandle::become_member`]. `seed`: random. `door`: that of a
    /// secured node.
    pub(in crate::node) fn start(
        socket: UdpSocket,
        name: NodeName,
        config: SwimConfig,
        seed: u64,
        door: Option<Door>,
    ) -> io::Result<Self> {
        // A full send buffer must not hold the thread up.
        socket.set_write_timeout(Some(Duration::from_millis(10)))?;
        let bound = socket.local_addr()?;
        let wake = SocketAddr::new(reachable(bound.ip()), bound.port());
        let shared = Arc::new(Shared {
            commands: Mutex::default(),
            roster: Mutex::default(),
            notices: Mutex::default(),
            changed: Event::new(),
            ended: false.into(),
            sent: Default::default(),
            dropped: DroppedDatagrams::default(),
            counters: Mutex::default(),
            beat: AtomicU64::new(rt::now()),
            socket: Mutex::new(Some(socket.try_clone()?)),
            wake,
        });
        let handle = Self { shared: Arc::clone(&shared) };
        let owner = Owner {
            shared,
            v6: bound.is_ipv6(),
            socket,
            name,
            config,
            seed,
            door,
            outgoing: Vec::new(),
            swim: None,
            identity: None,
            known: Vec::new(),
            retry_at: None,
            publish_at: 0,
            leaving: false,
        };
        rt::spawn_thread("swim", move || owner.run())?;
        Ok(handle)
    }

    /// The present members.
    pub(in crate::node) fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.shared.roster.lock())
    }

    /// Datagrams that were sent since the start, and their bytes.
    pub(in crate::node) fn sent(&self) -> (u64, u64) {
        let (count, bytes) = &self.shared.sent;
        (count.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }

    /// Of a secured node: the datagrams that were not taken.
    pub(in crate::node) fn dropped(&self) -> &DroppedDatagrams {
        &self.shared.dropped
    }

    /// Seals and opens with these keys from now on.
    pub(in crate::node) fn set_keys(&self, ring: Arc<KeyRing>) {
        self.command(Command::Keys(ring));
    }

    /// What the machine has counted since it was made, to within half a second.
    pub(in crate::node) fn counters(&self) -> SwimCounters {
        *self.shared.counters.lock()
    }

    /// When the thread last published what it knows: it does so every half second.
    pub(in crate::node) fn beat(&self) -> Millis {
        self.shared.beat.load(Ordering::Relaxed)
    }

    /// Takes what waits for the log.
    pub(super) fn take_notices(&self) -> Vec<Notice> {
        self.shared.notices.lock().drain(..).collect()
    }

    /// Fires at the next new roster or notice; listen first, then look.
    pub(in crate::node) fn listen(&self) -> EventListener {
        self.shared.changed.listen()
    }

    /// Takes this identity from now on; an earlier one is given up.
    pub(in crate::node) fn become_member(&self, addr: SocketAddr, incarnation: Incarnation) {
        self.command(Command::Become { addr, incarnation });
    }

    /// There is, or was, a peer at that address.
    pub(in crate::node) fn known_peer(&self, name: Option<NodeName>, addr: SocketAddr) {
        self.command(Command::Input(SwimInput::KnownPeer { name, addr }));
    }

    /// A link to the peer at that address stands, and it is not up.
    pub(in crate::node) fn linked(&self, name: NodeName, addr: SocketAddr) {
        self.command(Command::Input(SwimInput::Linked { name, addr }));
    }

    /// Get into the network of the node at that address.
    pub(in crate::node) fn join(&self, addr: SocketAddr) {
        self.command(Command::Input(SwimInput::Join(addr)));
    }

    /// Says farewell to all members; the thread ends afterwards.
    pub(in crate::node) fn leave(&self) {
        self.command(Command::Input(SwimInput::Leave));
    }

    /// Ends the thread now, as a crash would.
    pub(in crate::node) fn stop(&self) {
        self.command(Command::Stop);
    }

    /// Waits until the thread has ended.
    pub(in crate::node) async fn ended(&self) {
        loop {
            let listener = self.shared.changed.listen();
            if self.has_ended() {
                return;
            }
            listener.await;
        }
    }

    /// Whether the thread has ended: the roster stays as it is.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    fn command(&self, command: Command) {
        {
            let mut commands = self.shared.commands.lock();
            let must = matches!(
                command,
                Command::Stop
                    | Command::Keys(_)
                    | Command::Become { .. }
                    | Command::Input(SwimInput::Leave)
            );
            if commands.len() >= COMMANDS_MAX && !must {
                return;
            }
            commands.push_back(command);
        }
        // An empty datagram only ends the wait. If it is lost, the wait ends by itself.
        if let Some(socket) = &*self.shared.socket.lock() {
            let _ = socket.send_to(&[], self.shared.wake);
        }
    }
}

/// The address at which a socket that is bound to this one can be reached from here.
fn reachable(bound: IpAddr) -> IpAddr {
    match bound {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// The thread's own state.
struct Owner {
    shared: Arc<Shared>,
    socket: UdpSocket,
    /// The socket is an IPv6 one, to which IPv4 targets are mapped addresses.
    v6: bool,
    name: NodeName,
    config: SwimConfig,
    seed: u64,
    /// Of a secured node.
    door: Option<Door>,
    /// What the door has to say; empty between calls.
    outgoing: Vec<Outgoing>,
    swim: Option<Swim>,
    identity: Option<(SocketAddr, Incarnation)>,
    /// Inputs about peers that came before there was a machine, and what an earlier machine
    /// knew. Invariant: at most [`COMMANDS_MAX`].
    known: Vec<SwimInput<'static>>,
    /// After a refusal.
    retry_at: Option<Millis>,
    publish_at: Millis,
    /// The last farewell was asked for.
    leaving: bool,
}

impl Owner {
    fn run(mut self) {
        // One byte more than a datagram may have, so that one cut short is seen to be too long.
        let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
        let mut out = Vec::new();
        loop {
            self.receive(&mut buffer, &mut out);
            if self.take_commands(&mut out) {
                break;
            }
            if let Some(swim) = &mut self.swim {
                swim.handle(SwimInput::Tick, rt::now(), &mut out);
            } else if self.retry_at.is_some_and(|at| at <= rt::now()) {
                self.retry_at = None;
                self.make_machine(&mut out);
            }
            let news = self.carry_out(&mut out);
            if news || rt::now() >= self.publish_at {
                self.publish(news);
            }
            if self.swim.as_ref().is_some_and(|swim| swim.next_deadline().is_none()) {
                if self.leaving {
                    break; // has said goodbye
                }
                self.retire(); // was refused
            }
        }
        let shared = Arc::clone(&self.shared);
        // First the port: a task that waits for the end may need it.
        shared.socket.lock().take();
        drop(self);
        shared.ended.store(true, Ordering::Release);
        shared.changed.notify(usize::MAX);
    }

    /// Waits for datagrams until the next deadline, and takes all that have arrived.
    fn receive(&mut self, buffer: &mut [u8], out: &mut Vec<SwimOutput>) {
        let now = rt::now();
        let deadline = self.swim.as_ref().and_then(Swim::next_deadline).or(self.retry_at);
        let wait = deadline.map_or(WAIT_MAX, |at| Duration::from_millis(at.saturating_sub(now)));
        // Zero would mean no timeout.
        let wait = wait.clamp(Duration::from_millis(1), WAIT_MAX);
        let _ = self.socket.set_read_timeout(Some(wait));
        for turn in 0..DATAGRAMS_PER_TURN {
            match self.socket.recv_from(buffer) {
                Ok((length, from)) => {
                    let bytes = buffer.get(..length).unwrap_or_default();
                    // An empty one only wakes this thread.
                    if !bytes.is_empty() {
                        self.take_datagram(from, bytes, out);
                    }
                }
                Err(error) => {
                    let waited = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
                    if turn == 0 && !waited.contains(&error.kind()) {
                        // Should it stay like that, don't spin.
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    break;
                }
            }
            let _ = self.socket.set_nonblocking(true);
        }
        let _ = self.socket.set_nonblocking(false);
    }

    fn take_datagram(&mut self, from: SocketAddr, bytes: &[u8], out: &mut Vec<SwimOutput>) {
        let now = rt::now();
        let Some(door) = &mut self.door else {
            if let Some(swim) = &mut self.swim {
                swim.handle(SwimInput::Datagram { from, bytes }, now, out);
            }
            return;
        };
        // As it is sent to: the door remembers addresses.
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let opened = door.open(from, bytes, now, &self.shared.dropped, &mut self.outgoing);
        self.send_outgoing();
        if let (Some(bytes), Some(swim)) = (opened, &mut self.swim) {
            swim.handle(SwimInput::Datagram { from, bytes: &bytes }, now, out);
        }
    }

    /// Returns whether the thread should end.
    fn take_commands(&mut self, out: &mut Vec<SwimOutput>) -> bool {
        let commands = std::mem::take(&mut *self.shared.commands.lock());
        for command in commands {
            match command {
                Command::Stop => return true,
                Command::Keys(ring) => {
                    if let Some(door) = &mut self.door {
                        door.set_ring(&ring);
                    }
                }
                Command::Become { addr, incarnation } => {
                    let moved = self.identity.is_some_and(|(old, _)| old != addr);
                    if let Some(swim) = &mut self.swim
                        && moved
                    {
                        // Else the others would hold our own name against us.
                        swim.handle(SwimInput::Leave, rt::now(), out);
                    }
                    self.retire();
                    self.identity = Some((addr, incarnation));
                    self.make_machine(out);
                }
                Command::Input(input) => {
                    self.leaving |= input == SwimInput::Leave;
                    match &mut self.swim {
                        Some(swim) => swim.handle(input, rt::now(), out),
                        None if self.leaving => return true,
                        None if self.known.len() < COMMANDS_MAX => self.known.push(input),
                        None => {}
                    }
                }
            }
        }
        false
    }

    /// Drops the machine, but keeps its knowledge.
    fn retire(&mut self) {
        let Some(swim) = self.swim.take() else { return };
        for peer in swim.peers() {
            if self.known.len() < COMMANDS_MAX {
                self.known.push(SwimInput::KnownPeer { name: peer.name, addr: peer.addr });
            }
        }
    }

    fn make_machine(&mut self, out: &mut Vec<SwimOutput>) {
        let Some((addr, incarnation)) = self.identity else { return };
        let identity = Identity::new(addr, self.name.clone(), incarnation);
        self.seed = self.seed.wrapping_add(1);
        match Swim::new(self.config.clone(), identity, self.seed) {
            Ok(mut swim) => {
                for input in self.known.drain(..) {
                    swim.handle(input, rt::now(), out);
                }
                self.swim = Some(swim);
            }
            Err(error) => self.notice(Notice::Broken(error.to_string())),
        }
    }

    /// Sends, and returns whether anything else happened.
    fn carry_out(&mut self, out: &mut Vec<SwimOutput>) -> bool {
        let mut news = false;
        for output in out.drain(..) {
            match output {
                SwimOutput::Send { to, bytes } => match &mut self.door {
                    None => self.send(to, &bytes),
                    Some(door) => {
                        door.seal(to, bytes, rt::now(), &mut self.outgoing);
                        self.send_outgoing();
                    }
                },
                SwimOutput::MemberUp { .. } | SwimOutput::MemberDown { .. } => news = true,
                SwimOutput::IdentityRenewed { .. } => {}
                SwimOutput::Refused { holder, .. } => {
                    news = true;
                    self.retry_at = Some(rt::now() + RETRY_AFTER_REFUSAL_MS);
                    self.notice(Notice::NameInUse { holder });
                }
                SwimOutput::NetworkMismatch { from, network } => {
                    self.notice(Notice::NetworkMismatch { from, network });
                }
                SwimOutput::VersionMismatch { from, version } => {
                    self.notice(Notice::VersionMismatch { from, version });
                }
            }
        }
        news
    }

    fn send_outgoing(&mut self) {
        for Outgoing { to, bytes } in std::mem::take(&mut self.outgoing) {
            self.send(to, &bytes);
        }
    }

    fn send(&self, to: SocketAddr, bytes: &[u8]) {
        let (count, sum) = &self.shared.sent;
        count.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let _ = self.socket.send_to(bytes, self.mapped(to));
    }

    fn mapped(&self, to: SocketAddr) -> SocketAddr {
        match to {
            SocketAddr::V4(v4) if self.v6 => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            to => to,
        }
    }

    fn notice(&self, notice: Notice) {
        let mut notices = self.shared.notices.lock();
        if notices.len() >= NOTICES_MAX {
            notices.pop_front();
        }
        notices.push_back(notice);
        drop(notices);
        self.shared.changed.notify(usize::MAX);
    }

    fn publish(&mut self, news: bool) {
        let now = rt::now();
        self.publish_at = now + PUBLISH_INTERVAL_MS;
        self.shared.beat.store(now, Ordering::Relaxed);
        if let Some(swim) = &self.swim {
            *self.shared.counters.lock() = swim.counters();
        }
        let roster = match &self.swim {
            Some(swim) => Roster { members: swim.members() },
            None => Roster::default(),
        };
        // A suspicion, or its end, is not reported by the machine.
        let roster = Arc::new(roster);
        let before = std::mem::replace(&mut *self.shared.roster.lock(), Arc::clone(&roster));
        if news || before.members != roster.members {
            self.shared.changed.notify(usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{MemberState, NetworkName};

    fn start(name: &str) -> (SwimHandle, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let config = SwimConfig::lan(NetworkName::new("test").unwrap());
        let name = NodeName::new(name).unwrap();
        (SwimHandle::start(socket, name, config, addr.port().into(), None).unwrap(), addr)
    }

    async fn wait_for(swim: &SwimHandle, done: impl Fn(&Roster) -> bool) {
        let wait = async {
            loop {
                let listener = swim.shared.changed.listen();
                if done(&swim.roster()) {
                    return;
                }
                listener.await;
            }
        };
        rt::timeout(Duration::from_secs(10), wait).await.expect("in time");
    }

    #[test]
    fn two_threads_find_each_other_and_hear_a_farewell() {
        let ((a, a_addr), (b, b_addr)) = (start("a"), start("b"));
        rt::block_on(async {
            b.join(a_addr); // before there is an identity: kept
            a.become_member(a_addr, Incarnation(1));
            b.become_member(b_addr, Incarnation(2));
            let sees = |addr: SocketAddr, state| {
                move |r: &Roster| r.members.iter().any(|m| m.addr == addr && m.state == state)
            };
            wait_for(&a, sees(b_addr, MemberState::Up)).await;
            wait_for(&b, sees(a_addr, MemberState::Up)).await;
            b.leave();
            wait_for(&a, sees(b_addr, MemberState::Left)).await;
            rt::timeout(Duration::from_secs(2), b.ended()).await.expect("it ends");
            a.stop();
            rt::timeout(Duration::from_secs(2), a.ended()).await.expect("it ends");
        });
    }

    #[test]
    fn a_machine_that_moves_says_goodbye_at_its_old_address() {
        let (a, a_addr) = start("a");
        // Bound to all addresses: it is known at one, and then at another.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let config = SwimConfig::lan(NetworkName::new("test").unwrap());
        let b = SwimHandle::start(socket, NodeName::new("b").unwrap(), config, 9, None).unwrap();
        let here = |ip: [u8; 4]| SocketAddr::from((ip, port));
        rt::block_on(async {
            a.become_member(a_addr, Incarnation(1));
            b.become_member(here([127, 0, 0, 1]), Incarnation(2));
            b.join(a_addr);
            let up_at = |addr: SocketAddr| {
                let is_up = |m: &&MemberInfo| m.state == MemberState::Up;
                move |r: &Roster| r.members.iter().filter(is_up).map(|m| m.addr).eq([addr])
            };
            wait_for(&a, up_at(here([127, 0, 0, 1]))).await;
            b.become_member(here([127, 0, 0, 2]), Incarnation(2));
            wait_for(&a, up_at(here([127, 0, 0, 2]))).await;
            a.stop();
            b.stop();
        });
    }

    #[test]
    fn a_machine_that_renews_itself_is_not_held_against_itself() {
        let ((a, a_addr), (b, b_addr)) = (start("a"), start("b"));
        rt::block_on(async {
            a.become_member(a_addr, Incarnation(1));
            b.become_member(b_addr, Incarnation(2));
            b.join(a_addr);
            wait_for(&a, |r| r.members.iter().any(|m| m.addr == b_addr)).await;
            // Another incarnation at the same address, as after an identity was in doubt.
            b.become_member(b_addr, Incarnation(1));
            let renewed = |r: &Roster| {
                let up = |m: &&MemberInfo| m.state == MemberState::Up;
                r.members.iter().filter(up).any(|m| m.incarnation == Incarnation(1))
            };
            wait_for(&a, renewed).await;
            a.stop();
            b.stop();
        });
    }
}
