//! Connections that peers make to us.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::greet::{read_greeting, send_hello, send_refusal};
use crate::node::link::{LinkEnd, Links, is_worth_a_warning, tune};
use crate::node::membership::address::HostPort;
use crate::protocol::peer::greeting::{Greeting, RefusalCode};
use crate::rt::{self, TcpListener, TcpStream};

/// The pause after the system refused to give us a connection (out of descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a peer's call waits for the outcome of ours to the same peer.
const CROSSING_PATIENCE: Duration = Duration::from_millis(300);

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
    let Some(slot) = links.greetings.slot() else {
        links.complain(
            "-",
            "crowd",
            "too many connections that have not greeted; closing new ones",
        );
        return;
    };
    tune(&stream);
    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    // Complaints are distinguished by host: the port differs each time.
    let who = remote.ip().to_string();
    let stop = links.stop.clone();
    let (hello, leftover) = match stop.or(read_greeting(&stream)).await {
        None => return,
        Some(Ok((Greeting::Hello(hello), leftover))) => (*hello, leftover),
        Some(Ok((Greeting::Refusal(_), _))) => return,
        Some(Err(error)) => {
            let text = format!("a connection to the gossip port was closed: {error}");
            return links.complain(&who, error.reason(), &text);
        }
    };
    if links.me.name < hello.name
        && let Some(addr) = HostPort::parse(&hello.gossip, Some(0)).ok().and_then(|g| g.numeric())
    {
        // Two dials that cross, and ours is the one that will stay: a link that is replaced at
        // once would only be a nuisance.
        links.greetings.over(addr, CROSSING_PATIENCE).await;
    }
    // A peer says nothing more, and waits, until it was greeted.
    if stream.is_ended() {
        // A process that stood still finds the calls of peers that gave up long ago. None of them
        // may take the place of the link that is up now.
        return;
    }
    let own = links.hello(&stream);
    let named = format!("{} at {who}", hello.name);
    let admitted = match own.check(&hello) {
        Ok(()) => links.admit(stream.clone(), hello, remote, false).await,
        // Its name is free in a moment.
        Err(_) if links.stop.is_requested() => Err(links.going_away()),
        Err(refusal) if refusal.code == RefusalCode::NameHeld && links.gives_way(&own, &hello) => {
            // It sees by our greeting that it keeps the name.
            let _ = send_hello(&stream, &own).await;
            return;
        }
        Err(refusal) => Err(refusal),
    };
    match admitted {
        Err(refusal) => {
            let code = refusal.code.as_str();
            if is_worth_a_warning(refusal.code) {
                links.complain(&named, code, &format!("refused a peer: {refusal}"));
            } else {
                tracing::debug!(peer = named, code, "refused a peer: {refusal}");
            }
            send_refusal(&stream, &refusal).await;
        }
        Ok(link) => {
            if let Err(error) = send_hello(&stream, &own).await {
                tracing::debug!(peer = named, "the greeting could not be sent: {error}");
                return links.finish(&link, LinkEnd::Gone);
            }
            drop(slot);
            Arc::clone(&links).run(link, leftover).await;
        }
    }
}
