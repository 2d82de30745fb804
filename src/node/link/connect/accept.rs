//! Connections that peers make to us: each is sealed, greeted and checked, in this order, before it is a link.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::greet::{GreetError, read_greeting, send_hello, send_refusal};
use super::secure::seal_accepted;
use crate::crowd::Place;
use crate::model::ids::NodeName;
use crate::node::link::transport::Channel;
use crate::node::link::{LinkEnd, Links, is_worth_a_warning, tune};
use crate::node::membership::address::HostPort;
use crate::node::membership::identity::Told;
use crate::protocol::peer::greeting::{Greeting, Hello, Refusal, RefusalCode};
use crate::rt::{self, TcpListener, TcpStream};
use crate::secure::key::KeyId;

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
    let Some(caller) = Caller::enter(&links, &stream, remote.ip()) else { return };
    tune(&stream);
    let Some(mut channel) = caller.seal(stream).await else { return };
    let Some((hello, leftover)) = caller.read_hello(&mut channel).await else { return };
    // From now on it gives way to nobody.
    if !caller.place.set_busy(true) {
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
    let name = hello.name.clone();
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
    let link = match admitted {
        Ok(link) => link,
        Err(refusal) => return caller.refuse(&mut channel, &name, &refusal).await,
    };
    if let Err(error) = send_hello(&mut channel, &own).await {
        tracing::debug!(peer = caller.named(&name), "the greeting could not be sent: {error}");
        return links.finish(&link, LinkEnd::Gone);
    }
    drop(caller);
    links.run(link, channel.into_halves(leftover)).await;
}

/// A peer, or anybody else, that has made a connection, until that is a link.
struct Caller<'a> {
    links: &'a Links,
    host: IpAddr,
    /// Its place among those that have not become links.
    place: Place,
}

impl<'a> Caller<'a> {
    /// Takes a place for the connection, if there is one.
    fn enter(links: &'a Links, stream: &TcpStream, host: IpAddr) -> Option<Self> {
        let end = {
            let stream = stream.clone();
            move || drop(stream.shutdown(std::net::Shutdown::Both))
        };
        let Some(place) = links.greetings.strangers.enter(host, rt::now(), end) else {
            let text = "too many connections are being greeted; closing new ones";
            links.complain("-", "crowd", text);
            links.record_refusal(host, CROWD, None);
            return None;
        };
        Some(Self { links, host, place })
    }

    /// Seals the connection if this node has a key. None: that failed, and was logged, or the node stops.
    async fn seal(&self, stream: TcpStream) -> Option<Channel> {
        let sealed = async {
            match &self.links.keys {
                None => Ok(Channel::open(stream, Vec::new())),
                Some(keys) => seal_accepted(keys, stream).await,
            }
        };
        match self.links.stop.or(sealed).await? {
            Ok(channel) => Some(channel),
            Err(error) => {
                self.complain(error.reason(), error.refusal(), &error);
                None
            }
        }
    }

    /// Its greeting, and the bytes behind that. None: it refuses, or sent none, which was logged, or the node stops.
    async fn read_hello(&self, channel: &mut Channel) -> Option<(Hello, Vec<u8>)> {
        let error = match self.links.stop.or(read_greeting(channel)).await? {
            Ok((Greeting::Hello(hello), leftover)) => return Some((*hello, leftover)),
            Ok((Greeting::Refusal(_), _)) => return None,
            Err(error) => error,
        };
        self.complain(error.reason(), error.refusal().map(|why| (why, None)), &error);
        if matches!(error, GreetError::Sealed) {
            let me = &self.links.me.name;
            let text = format!("node {me} uses no key; start it with `--key FILE`, too");
            send_refusal(channel, &Refusal::new(RefusalCode::Key, text)).await;
        }
        None
    }

    /// Tells a peer that has greeted, and the logs, why it is refused.
    async fn refuse(&self, channel: &mut Channel, name: &NodeName, refusal: &Refusal) {
        let (named, code) = (self.named(name), refusal.code.as_str());
        if is_worth_a_warning(refusal.code) {
            self.links.record_refusal(self.host, audited(refusal.code), Some(name.as_str()));
            self.links.complain(&named, code, &format!("refused a peer: {refusal}"));
        } else {
            tracing::debug!(peer = named, code, "refused a peer: {refusal}");
        }
        send_refusal(channel, refusal).await;
    }

    /// Tells the log why the connection is closed, and the audit log if that is a `refusal`.
    fn complain(
        &self,
        reason: &str,
        refusal: Option<(&'static str, Option<KeyId>)>,
        error: &dyn fmt::Display,
    ) {
        let (links, host) = (self.links, self.host);
        if self.place.gave_way() {
            let text = "too many connections that have not greeted; closing the oldest";
            links.record_refusal(host, CROWD, None);
            return links.complain("-", "crowd", text);
        }
        if let Some((why, key)) = refusal {
            let key = key.map(|key| format!("key {key}"));
            links.record_refusal(host, why, key.as_deref());
        }
        // Complaints are distinguished by host: the port differs each time.
        let who = host.to_string();
        if reason == "closed" && links.has_peer_at(host) {
            return tracing::debug!(peer = who, "a call was given up: {error}");
        }
        let text = format!("a connection to the gossip port was closed: {error}");
        links.complain(&who, reason, &text);
    }

    /// Who it says it is, and where it is, for the log.
    fn named(&self, name: &NodeName) -> String {
        format!("{name} at {}", self.host)
    }
}
