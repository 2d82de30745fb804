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
use crate::protocol::peer::greeting::{Greeting, Refusal, RefusalCode};
use crate::rt::{self, TcpStream};

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

async fn dial(links: &Arc<Links>, address: &str) -> Outcome {
    let failed = |why: String| Err(Dialled::Failed(why));
    let parsed = match HostPort::parse(address, Some(GOSSIP_PORT)) {
        Ok(parsed) => parsed,
        Err(why) => return failed(why.to_string()),
    };
    let mut addrs = match rt::resolve(&parsed).await {
        Ok(addrs) => addrs,
        Err(error) => {
            let why = format!("the name cannot be looked up: {error}");
            let hint = "check its spelling, or the name service";
            links.complain(address, "name", &format!("{why}; {hint}"));
            return Err(match rt::is_unknown_name(&error) {
                true => Dialled::Unknown(why),
                false => Dialled::Failed(why),
            });
        }
    };
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
    let (stream, remote) = match connect(&addrs).await {
        Ok(connected) => connected,
        Err(error) => return Err(Dialled::Unreachable(error.to_string())),
    };
    if let Some(name) = linked_at(links, &addrs) {
        // The peer was faster, or the doubt is over. Once greeted, it would let the link go.
        return Err(Dialled::Linked(name));
    }
    tune(&stream);
    let _greeting = links.greetings.begin(remote);
    let mut channel = match &links.keys {
        None => Channel::open(stream, Vec::new()),
        Some(keys) => match seal_dialled(keys, stream, remote).await {
            Ok(channel) => channel,
            Err(error) => {
                if let Some((reason, key)) = error.complaint() {
                    let key = key.map(|key| format!("key {key}"));
                    links.record_dialled(remote.ip(), reason, key.as_deref());
                }
                links.complain(address, error.reason(), &format!("no sealed link: {error}"));
                return Err(match error.is_lasting() {
                    true => Dialled::Refused(error.to_string()),
                    false => Dialled::Failed(error.to_string()),
                });
            }
        },
    };
    let own = links.hello(&channel.stream);
    let greeted = match send_hello(&mut channel, &own).await {
        Ok(()) => read_greeting(&mut channel).await,
        Err(error) => Err(error),
    };
    let (peer, leftover) = match greeted {
        Ok((Greeting::Hello(peer), leftover)) => (*peer, leftover),
        Ok((Greeting::Refusal(refusal), _)) => return refused(links, address, refusal),
        Err(error) => {
            if let Some(reason) = error.complaint() {
                links.record_dialled(remote.ip(), reason, None);
            }
            links.complain(address, error.reason(), &format!("a peer did not greet: {error}"));
            return Err(match error.is_lasting() {
                true => Dialled::Refused(error.to_string()),
                false => Dialled::Failed(error.to_string()),
            });
        }
    };
    let name = peer.name.clone();
    // What a peer refuses stands in its own log.
    let record = |refusal: &Refusal| {
        if is_worth_a_warning(refusal.code) {
            links.record_dialled(remote.ip(), audited(refusal.code), Some(name.as_str()));
        }
    };
    if let Err(refusal) = own.check(&peer) {
        record(&refusal);
        if refusal.code == RefusalCode::NameHeld {
            links.gives_way(&own, &peer);
            return failed(format!("a node of this node's name, {}, is running there", peer.name));
        }
        return refused(links, address, refusal);
    }
    if let Err(refusal) = links.check_rights(&channel, &peer) {
        record(&refusal);
        return refused(links, address, refusal);
    }
    if !links.hub.read(crate::engine::Engine::is_ready) {
        // A joiner should know more than the one peer that it was given.
        for other in &peer.peers {
            if HostPort::parse(other, Some(0)).is_ok_and(|other| other.port != 0) {
                links.add_target(other, Origin::Learned, None);
            }
        }
    }
    match links.admit(&channel, (peer, Told::by(&own)), remote, true).await {
        Ok(link) => Ok((link, channel.into_halves(leftover))),
        Err(refusal) if refusal.code == RefusalCode::Linked => Err(Dialled::Linked(name)),
        Err(refusal) => {
            record(&refusal);
            links.complain(address, refusal.code.as_str(), &format!("not linked: {refusal}"));
            failed(refusal.to_string())
        }
    }
}

/// The other side, or this one, refuses.
fn refused(links: &Links, address: &str, refusal: Refusal) -> Outcome {
    match refusal.code {
        RefusalCode::Myself => return Err(Dialled::Myself),
        RefusalCode::NameInUse => {
            links.note_name_trouble(refusal.text.clone());
            if let Some(holder) = &refusal.holder
                && HostPort::parse(holder, Some(0)).is_ok_and(|holder| holder.port != 0)
            {
                // The report may be wrong; the node at that address knows.
                links.add_target(holder, Origin::Learned, None);
            }
        }
        RefusalCode::NameHeld => links.note_name_held(address),
        _ => {}
    }
    if is_worth_a_warning(refusal.code) {
        let text = format!("a peer refused this node: {refusal}");
        links.complain(address, refusal.code.as_str(), &text);
    }
    Err(match refusal.code {
        RefusalCode::Network | RefusalCode::Version | RefusalCode::Limits | RefusalCode::Key => {
            Dialled::Refused(refusal.text)
        }
        _ => Dialled::Failed(refusal.text),
    })
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
