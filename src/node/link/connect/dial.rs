//! Connections that we make to peers: one task that sees what is due, and one per attempt.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};

use super::accept::audited;
use super::greet::{read_greeting, send_hello};
use super::secure::seal_dialled;
use crate::model::ids::NodeName;
use crate::node::config::GOSSIP_PORT;
use crate::node::link::transport::{Channel, Halves};
use crate::node::link::{Dialled, Link, Links, Origin, Standing, is_worth_a_warning, tune};
use crate::node::membership::address::{GIVE_ANOTHER, HostPort, route_to};
use crate::node::membership::identity::Told;
use crate::protocol::peer::greeting::{Greeting, Hello, Refusal, RefusalCode};
use crate::rt::{self, TcpStream};
use crate::secure::key::KeyId;

/// How long one address may take to accept a connection. The system repeats its first packet
/// after 1 s and then ever more rarely; beyond that, a new attempt is the better repetition.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The next address of a name is tried beside the first after this time (RFC 8305 suggests
/// 250 ms).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// Nothing that is due waits longer than this, whatever happens to wake-ups; and so soon is a
/// link that falls silent seen to be in doubt.
const LOOK_MAX: Duration = Duration::from_millis(200);

/// Dials peers that should be linked and are not, until the node ends.
pub(in crate::node) async fn dial_peers(links: Arc<Links>) {
    while !links.stop.is_requested() {
        let listener = links.changed.listen();
        let now = rt::now();
        let linked: BTreeMap<NodeName, bool> = {
            let table = links.table.lock();
            table
                .iter()
                .map(|(name, link)| {
                    link.ask_for_sign(now);
                    (name.clone(), link.is_doubtful(&links.me.name, now))
                })
                .collect()
        };
        let wanted = links.hub.read(|engine| engine.wanted_links().cloned());
        let wants = |name: &NodeName| wanted.as_ref().is_none_or(|wanted| wanted.contains(name));
        let standing = |name: &_| match linked.get(name) {
            None if !wants(name) => Standing::Unwanted,
            None => Standing::Unlinked,
            Some(true) => Standing::Doubtful,
            Some(false) => Standing::Linked,
        };
        let (due, next) = links.targets.lock().take_due(standing, now);
        for address in due {
            let links = Arc::clone(&links);
            rt::spawn(async move { attempt(links, address).await });
        }
        let pause = next.map_or(LOOK_MAX, |at| {
            Duration::from_millis(at.saturating_sub(now).max(1)).min(LOOK_MAX)
        });
        let _ = links.stop.or(rt::timeout(pause, listener)).await;
    }
}

/// One attempt at one address; a link that comes of it is run to its end.
async fn attempt(links: Arc<Links>, address: String) {
    let stop = links.stop.clone();
    let outcome = stop.or(dial(&links, &address)).await;
    let (dialled, link) = match outcome {
        None => return,
        Some(Ok((link, halves))) => (Dialled::Linked(link.peer.name.clone()), Some((link, halves))),
        Some(Err(dialled)) => (dialled, None),
    };
    links.targets.lock().on_dialled(&address, dialled, rt::now(), rt::random_u64());
    links.changed.notify(usize::MAX);
    if let Some((link, halves)) = link {
        links.run(link, halves).await;
    }
}

type Outcome = Result<(Arc<Link>, Halves), Dialled>;

/// Connects to the peer at an address, and greets it. What is admitted then is a link.
async fn dial(links: &Links, address: &str) -> Outcome {
    let addrs = find(links, address).await?;
    let unreachable = |error: io::Error| Dialled::Unreachable(error.to_string());
    let (stream, remote) = connect(&addrs).await.map_err(unreachable)?;
    if let Some(name) = linked_at(links, &addrs) {
        // The peer was faster, or the doubt is over. Once greeted, it would let the link go.
        return Err(Dialled::Linked(name));
    }
    tune(&stream);
    let _greeting = links.greetings.begin(remote);
    let call = Call { links, address, remote };
    let mut channel = call.seal(stream).await?;
    let own = links.hello(&channel.stream);
    let (peer, leftover) = call.greet(&mut channel, &own).await?;
    call.check(&channel, &own, &peer)?;
    if !links.hub.read(crate::engine::Engine::is_ready) {
        // A joiner should know more than the one peer that it was given.
        for other in &peer.peers {
            if HostPort::parse(other, Some(0)).is_ok_and(|other| other.port != 0) {
                links.add_target(other, Origin::Learned, None);
            }
        }
    }
    let name = peer.name.clone();
    match links.admit(&channel, (peer, Told::by(&own)), remote, true).await {
        Ok(link) => Ok((link, channel.into_halves(leftover))),
        Err(refusal) if refusal.code == RefusalCode::Linked => Err(Dialled::Linked(name)),
        Err(refusal) => {
            call.record(&name, &refusal);
            links.complain(address, refusal.code.as_str(), &format!("not linked: {refusal}"));
            Err(Dialled::Failed(refusal.to_string()))
        }
    }
}

/// What an address stands for, if a connection is worth trying. SWIM is told of that, too.
async fn find(links: &Links, address: &str) -> Result<Vec<SocketAddr>, Dialled> {
    let parsed = HostPort::parse(address, Some(GOSSIP_PORT))
        .map_err(|why| Dialled::Failed(why.to_string()))?;
    let mut addrs = rt::resolve(&parsed).await.map_err(|error| {
        let why = format!("the name cannot be looked up: {error}");
        let hint = "check its spelling, or the name service";
        links.complain(address, "name", &format!("{why}; {hint}"));
        match rt::is_unknown_name(&error) {
            true => Dialled::Unknown(why),
            false => Dialled::Failed(why),
        }
    })?;
    // A connection tells each side an address of its own for membership, which sends by one family only where a
    // node listens at one.
    links.me.order(&mut addrs);
    if let Some(name) = linked_at(links, &addrs) {
        return Err(Dialled::Linked(name));
    }
    tell_swim(links, &addrs);
    if parsed.is_link_local() && parsed.numeric().is_some() {
        // Another node tells it, without a zone. The system would say "invalid argument".
        let why =
            format!("a link-local address needs a zone, which only operators know; {GIVE_ANOTHER}");
        return Err(Dialled::Unreachable(why));
    }
    Ok(addrs)
}

/// A connection that was made to a peer, until that is a link.
struct Call<'a> {
    links: &'a Links,
    address: &'a str,
    remote: SocketAddr,
}

impl Call<'_> {
    /// Seals the connection if this node has a key.
    async fn seal(&self, stream: TcpStream) -> Result<Channel, Dialled> {
        let Some(keys) = &self.links.keys else { return Ok(Channel::open(stream, Vec::new())) };
        seal_dialled(keys, stream, self.remote).await.map_err(|error| {
            let text = format!("no sealed link: {error}");
            self.complain(error.reason(), error.complaint(), &text);
            given_up(error.is_lasting(), error.to_string())
        })
    }

    /// Says who this node is, and asks the peer the same. Returns the bytes behind its greeting, too.
    async fn greet(&self, channel: &mut Channel, own: &Hello) -> Result<(Hello, Vec<u8>), Dialled> {
        let greeted = match send_hello(channel, own).await {
            Ok(()) => read_greeting(channel).await,
            Err(error) => Err(error),
        };
        match greeted {
            Ok((Greeting::Hello(peer), leftover)) => Ok((*peer, leftover)),
            Ok((Greeting::Refusal(refusal), _)) => Err(self.refused(refusal)),
            Err(error) => {
                let complaint = error.complaint().map(|why| (why, None));
                let text = format!("a peer did not greet: {error}");
                self.complain(error.reason(), complaint, &text);
                Err(given_up(error.is_lasting(), error.to_string()))
            }
        }
    }

    /// Whether this node may have a link to the peer.
    fn check(&self, channel: &Channel, own: &Hello, peer: &Hello) -> Result<(), Dialled> {
        let checked = own.check(peer).and_then(|()| self.links.check_rights(channel, peer));
        let Err(refusal) = checked else { return Ok(()) };
        self.record(&peer.name, &refusal);
        if refusal.code == RefusalCode::NameHeld {
            self.links.gives_way(own, peer);
            let why = format!("a node of this node's name, {}, is running there", peer.name);
            return Err(Dialled::Failed(why));
        }
        Err(self.refused(refusal))
    }

    /// The other side, or this one, refuses. Returns what that means for the address.
    fn refused(&self, refusal: Refusal) -> Dialled {
        let links = self.links;
        match refusal.code {
            RefusalCode::Myself => return Dialled::Myself,
            RefusalCode::NameInUse => {
                links.note_name_trouble(refusal.text.clone());
                if let Some(holder) = &refusal.holder
                    && HostPort::parse(holder, Some(0)).is_ok_and(|holder| holder.port != 0)
                {
                    // The report may be wrong; the node at that address knows.
                    links.add_target(holder, Origin::Learned, None);
                }
            }
            RefusalCode::NameHeld => links.note_name_held(self.address),
            _ => {}
        }
        if is_worth_a_warning(refusal.code) {
            let text = format!("a peer refused this node: {refusal}");
            links.complain(self.address, refusal.code.as_str(), &text);
        }
        let is_lasting = matches!(
            refusal.code,
            RefusalCode::Network | RefusalCode::Version | RefusalCode::Limits | RefusalCode::Key
        );
        given_up(is_lasting, refusal.text)
    }

    /// Records for the audit log that this node refuses the peer. What a peer refuses stands in its own log.
    fn record(&self, name: &NodeName, refusal: &Refusal) {
        if is_worth_a_warning(refusal.code) {
            let (ip, why) = (self.remote.ip(), audited(refusal.code));
            self.links.record_dialled(ip, why, Some(name.as_str()));
        }
    }

    /// Tells the log what has failed, and the audit log if there is a `complaint`, perhaps about a key.
    fn complain(&self, reason: &str, complaint: Option<(&'static str, Option<KeyId>)>, text: &str) {
        if let Some((why, key)) = complaint {
            let key = key.map(|key| format!("key {key}"));
            self.links.record_dialled(self.remote.ip(), why, key.as_deref());
        }
        self.links.complain(self.address, reason, text);
    }
}

/// An attempt came to nothing. `is_lasting`: that stays so until somebody changes a setting.
fn given_up(is_lasting: bool, why: String) -> Dialled {
    if is_lasting { Dialled::Refused(why) } else { Dialled::Failed(why) }
}

/// Whom one of these addresses belongs to, if that peer has a link already that is not in doubt.
fn linked_at(links: &Links, addrs: &[SocketAddr]) -> Option<NodeName> {
    let (table, now) = (links.table.lock(), rt::now());
    let at = |link: &Link| {
        let gossip = HostPort::parse(&link.peer.gossip, Some(0)).ok().and_then(|g| g.numeric());
        let dialled = link.dialled.then_some(link.remote);
        [gossip, dialled].into_iter().flatten().any(|addr| addrs.contains(&addr))
    };
    let stands = |link: &Link| link.end().is_none() && !link.is_doubtful(&links.me.name, now);
    table.values().find(|link| stands(link) && at(link)).map(|l| l.peer.name.clone())
}

/// SWIM looks for the network at the same addresses, also where TCP does not get through.
fn tell_swim(links: &Links, addrs: &[SocketAddr]) {
    let joining = !links.hub.read(crate::engine::Engine::is_ready);
    for addr in addrs {
        if links.me.wants_guess()
            && let Some(local) = route_to(*addr)
        {
            links.guess_route(local);
        }
        if joining {
            links.swim.join(*addr);
        } else {
            links.swim.known_peer(None, *addr);
        }
    }
}

/// Connects to the first address that answers; a slow one does not hold up the next.
async fn connect(addrs: &[SocketAddr]) -> io::Result<(TcpStream, SocketAddr)> {
    let mut error = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut pending: Vec<std::pin::Pin<Box<_>>> = Vec::new();
    let mut rest = addrs.iter().copied();
    loop {
        let next = rest.next();
        if let Some(addr) = next {
            pending.push(Box::pin(connect_one(addr)));
        }
        if pending.is_empty() {
            return Err(error);
        }
        let pause = if next.is_some() { NEXT_ADDRESS_AFTER } else { CONNECT_TIMEOUT };
        let any = futures::future::select_all(pending);
        match select(any, pin!(rt::sleep(pause))).await {
            Either::Left(((Ok(connected), ..), _)) => return Ok(connected),
            Either::Left(((Err(why), _, others), _)) => {
                error = why;
                pending = others;
            }
            Either::Right(((), any)) => pending = any.into_inner(),
        }
    }
}

pub(super) async fn connect_one(addr: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let stream = rt::timeout(CONNECT_TIMEOUT, TcpStream::connect(addr))
        .await
        .unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")))
        .map_err(|error| io::Error::new(error.kind(), format!("{addr}: {error}")))?;
    Ok((stream, addr))
}
