//! Connections that peers make to us.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::greet::{GreetError, read_greeting, send_hello, send_refusal};
use super::secure::seal_accepted;
use crate::node::link::transport::Channel;
use crate::node::link::{LinkEnd, Links, is_worth_a_warning, tune};
use crate::node::membership::address::HostPort;
use crate::node::membership::identity::Told;
use crate::protocol::peer::greeting::{Greeting, Refusal, RefusalCode};
use crate::rt::{self, TcpListener, TcpStream};

/// The pause after the system refused to give us a connection (out of descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a peer's call waits for the outcome of ours to the same peer.
const CROSSING_PATIENCE: Duration = Duration::from_millis(300);

/// Why a connection is closed that has done no wrong, for the audit log.
const CROWD: &str = "too many connections that have not greeted";

/// Why a peer is refused that has said who it is, for the audit log.
pub(super) fn audited(code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::Network => "other network",
        RefusalCode::Version => "other version",
        RefusalCode::Limits => "other limits",
        RefusalCode::NameInUse | RefusalCode::NameHeld => "its name is taken",
        RefusalCode::Key => "no key",
        RefusalCode::Myself
        | RefusalCode::Linked
        | RefusalCode::Unavailable
        | RefusalCode::Other => "refused",
    }
}

/// Takes connections until the node ends.
pub(in crate::node) async fn accept_peers(links: Arc<Links>, listener: TcpListener) {
    let stop = links.stop.clone();
    while let Some(accepted) = stop.or(listener.accept()).await {
        match accepted {
            Ok((stream, remote)) => {
                let links = Arc::clone(&links);
                rt::spawn(async move { answer(links, stream, remote).await });
            }
            Err(error) => {
                links.complain("-", "accept", &format!("cannot take connections: {error}"));
                let _ = stop.or(rt::sleep(ACCEPT_PAUSE)).await;
            }
        }
    }
}

/// Greets the caller, and runs the link if it becomes one.
async fn answer(links: Arc<Links>, stream: TcpStream, remote: SocketAddr) {
    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    let end = {
        let stream = stream.clone();
        move || drop(stream.shutdown(std::net::Shutdown::Both))
    };
    let Some(place) = links.greetings.strangers.enter(remote.ip(), rt::now(), end) else {
        links.complain("-", "crowd", "too many connections are being greeted; closing new ones");
        links.record_refusal(remote.ip(), CROWD, None);
        return;
    };
    tune(&stream);
    // Complaints are distinguished by host: the port differs each time.
    let who = remote.ip().to_string();
    let stop = links.stop.clone();
    let sealed = async {
        match &links.keys {
            None => Ok(Channel::open(stream, Vec::new())),
            Some(keys) => seal_accepted(keys, stream).await,
        }
    };
    let complain = |reason: &str, error: &dyn std::fmt::Display| {
        if place.gave_way() {
            let text = "too many connections that have not greeted; closing the oldest";
            links.record_refusal(remote.ip(), CROWD, None);
            return links.complain("-", "crowd", text);
        }
        if reason == "closed" && links.has_peer_at(remote.ip()) {
            return tracing::debug!(peer = who, "a call was given up: {error}");
        }
        let text = format!("a connection to the gossip port was closed: {error}");
        links.complain(&who, reason, &text);
    };
    let mut channel = match stop.or(sealed).await {
        None => return,
        Some(Ok(channel)) => channel,
        Some(Err(error)) => {
            if let Some((reason, key)) = error.refusal().filter(|_| !place.gave_way()) {
                let key = key.map(|key| format!("key {key}"));
                links.record_refusal(remote.ip(), reason, key.as_deref());
            }
            return complain(error.reason(), &error);
        }
    };
    let (hello, leftover) = match stop.or(read_greeting(&mut channel)).await {
        None => return,
        Some(Ok((Greeting::Hello(hello), leftover))) => (*hello, leftover),
        Some(Ok((Greeting::Refusal(_), _))) => return,
        Some(Err(error)) => {
            if let Some(reason) = error.refusal().filter(|_| !place.gave_way()) {
                links.record_refusal(remote.ip(), reason, None);
            }
            complain(error.reason(), &error);
            if matches!(error, GreetError::Sealed) {
                let text =
                    format!("node {} uses no key; start it with `--key FILE`, too", links.me.name);
                send_refusal(&mut channel, &Refusal::new(RefusalCode::Key, text)).await;
            }
            return;
        }
    };
    // From now on it gives way to nobody.
    if !place.set_busy(true) {
        return;
    }
    if links.me.name < hello.name
        && let Some(addr) = HostPort::parse(&hello.gossip, Some(0)).ok().and_then(|g| g.numeric())
    {
        // Two dials that cross, and ours is the one that will stay: a link that is replaced at
        // once would only be a nuisance.
        links.greetings.over(addr, CROSSING_PATIENCE).await;
    }
    // A peer says nothing more, and waits, until it was greeted.
    if channel.stream.is_ended() {
        // A process that stood still finds the calls of peers that gave up long ago. None of them
        // may take the place of the link that is up now.
        return;
    }
    let own = links.hello(&channel.stream);
    let (name, named) = (hello.name.clone(), format!("{} at {who}", hello.name));
    let admitted = match own.check(&hello) {
        Ok(()) => match links.check_rights(&channel, &hello) {
            Ok(()) => links.admit(&channel, (hello, Told::by(&own)), remote, false).await,
            Err(refusal) => Err(refusal),
        },
        // Its name is free in a moment.
        Err(_) if links.stop.is_requested() => Err(links.going_away()),
        Err(refusal) if refusal.code == RefusalCode::NameHeld && links.gives_way(&own, &hello) => {
            // It sees by our greeting that it keeps the name.
            let _ = send_hello(&mut channel, &own).await;
            return;
        }
        Err(refusal) => Err(refusal),
    };
    match admitted {
        Err(refusal) => {
            let code = refusal.code.as_str();
            if is_worth_a_warning(refusal.code) {
                links.record_refusal(remote.ip(), audited(refusal.code), Some(name.as_str()));
                links.complain(&named, code, &format!("refused a peer: {refusal}"));
            } else {
                tracing::debug!(peer = named, code, "refused a peer: {refusal}");
            }
            send_refusal(&mut channel, &refusal).await;
        }
        Ok(link) => {
            if let Err(error) = send_hello(&mut channel, &own).await {
                tracing::debug!(peer = named, "the greeting could not be sent: {error}");
                return links.finish(&link, LinkEnd::Gone);
            }
            drop(place);
            Arc::clone(&links).run(link, channel.into_halves(leftover)).await;
        }
    }
}
