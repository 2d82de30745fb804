//! The node's HTTP port: opens it where that is allowed, and answers what it asks about the rest of the node.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use distkv_http::{
    Check, Event, HTTP_CONNECTIONS_MAX, HttpPort, Limits, Reply, Request, Source, Tls,
};
use distkv_metrics::Numbers;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::live;
use crate::api::{Api, Client, Failure, Host};
use crate::model::count::count_of;
use crate::model::host_port::HostPort;
use crate::model::ids::Millis;
use crate::node::config::{Config, HTTP_PORT};
use crate::node::error::NodeError;
use crate::node::lifecycle::bind::bind_http;
use crate::node::lifecycle::file_descriptors::Shares;
use crate::node::{Inner, Node};
use crate::rt::{self, TcpListener};
use crate::server::local_client::LocalClient;

/// A part of the node that has not moved for this long has stopped.
const BEAT_MS: Millis = 5_000;
/// A disk that has had work for this long and done nothing keeps clients waiting.
const DISK_PATIENCE_MS: Millis = 2_000;
/// How often it is noted when changes were made and whether some are missing.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Opens the port, if there is to be one.
///
/// # Errors
/// [`NodeError`]: it cannot be opened, or must not be: other machines would reach it.
pub(in crate::node) async fn open(
    config: &Config,
) -> Result<Option<(TcpListener, SocketAddr)>, NodeError> {
    let Some(http) = &config.http else { return Ok(None) };
    let (listener, addr) = bind_http(&http.address, HTTP_PORT).await?;
    // Nothing that has come in was answered yet.
    check_protection(config, addr)?;
    Ok(Some((listener, addr)))
}

/// Whether the HTTP port may be there.
///
/// # Errors
/// [`NodeError::HttpSecured`], [`NodeError::HttpUnprotected`]: other machines would reach it, and not by TLS.
pub(in crate::node) fn check_protection(
    config: &Config,
    addr: SocketAddr,
) -> Result<(), NodeError> {
    if addr.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    match (&config.key, &config.tls) {
        // By TLS only, and for those who log in.
        (Some(_), Some(_)) => Ok(()),
        (Some(_), None) => Err(NodeError::HttpSecured { addr }),
        (None, _) if config.insecure => Ok(()),
        (None, _) => Err(NodeError::HttpUnprotected { addr }),
    }
}

/// Answers requests at the port from now on.
pub(in crate::node) fn serve(
    (listener, addr): (TcpListener, SocketAddr),
    config: &Config,
    shares: &Shares,
    inner: &Arc<Inner>,
) {
    if shares.http < HTTP_CONNECTIONS_MAX {
        tracing::warn!(
            "the system allows {} open files, so {} can be open at once instead of {HTTP_CONNECTIONS_MAX}; raise the \
             limit (ulimit -n)",
            shares.limit,
            count_of(shares.http as u64, "HTTP connection", "HTTP connections")
        );
    }
    let mut names = config.http.as_ref().map(|http| http.names.clone()).unwrap_or_default();
    let advertised = config.advertise.iter().chain(&config.advertise_client);
    let advertised = advertised.filter_map(|text| HostPort::parse(text, Some(0)).ok());
    names.extend(advertised.map(|advertised| advertised.host));
    // A name that the certificate is for is the node's own: no other page can have it.
    names.extend(config.tls.iter().flat_map(|tls| tls.names.iter().cloned()));
    let tls = inner.certificates.as_ref().map(|certificates| certificates.settings());
    let tls = tls.map(|tls| Tls { tls: tls.tls, is_plain_at_home: tls.is_plain_at_home });
    let node = Arc::downgrade(inner);
    let token = config.http.as_ref().and_then(|http| http.write_token.clone());
    let api = Api { host: Arc::new(ApiHost(node.clone())), token };
    let source = Arc::new(Watched { node, api });
    let limits = Limits::at_most(shares.http);
    let port = HttpPort::serve(listener, addr, names, tls, source, limits);
    inner.http.lock().replace(port);
    let weak = Arc::downgrade(inner);
    let stop = inner.stop.clone();
    let _detached = rt::spawn(async move {
        while stop.or(rt::sleep(SAMPLE_INTERVAL)).await.is_some() {
            let Some(inner) = weak.upgrade() else { return };
            inner.sample_lag();
            inner.sample_rates();
        }
    });
}

/// The node, as its HTTP port sees it. Weak, because a dropped node ends its port.
struct Watched {
    node: Weak<Inner>,
    api: Api,
}

impl Source for Watched {
    fn numbers(&self) -> Numbers {
        let Some(inner) = self.node.upgrade() else { return Numbers::default() };
        let is_writable = |checks: Vec<Check>| checks.iter().all(|check| check.fault.is_none());
        inner.numbers(is_writable(inner.ready()) && is_writable(inner.writable()))
    }

    fn live(&self) -> Vec<Check> {
        self.node.upgrade().map_or_else(ended, |inner| inner.live())
    }

    fn ready(&self) -> Vec<Check> {
        self.node.upgrade().map_or_else(ended, |inner| inner.ready())
    }

    fn writable(&self) -> Vec<Check> {
        self.node.upgrade().map_or_else(ended, |inner| inner.writable())
    }

    fn api(&self, request: Request) -> BoxFuture<'static, Reply> {
        Box::pin(self.api.clone().answer(request))
    }
}

/// The node, as its HTTP API sees it.
struct ApiHost(Weak<Inner>);

impl Host for ApiHost {
    fn client(&self, address: SocketAddr) -> Result<LocalClient, Failure> {
        let inner = self.0.upgrade().ok_or_else(Failure::ended)?;
        inner.server.local_client(address).map_err(Failure::from)
    }

    fn live(&self, query: &str, client: Client) -> Result<BoxStream<'static, Event>, Reply> {
        live::events(&self.0, query, client)
    }
}

fn ended() -> Vec<Check> {
    vec![Check::new("node", Some(String::from("it has ended")))]
}

impl Node {
    /// What of the node has stopped working, as `/livez` tells it: then it should be started again. None: all works.
    #[must_use]
    pub(crate) fn standing_still(&self) -> Option<String> {
        let fault = |check: Check| check.fault.map(|fault| format!("{} {fault}", check.what));
        self.inner.live().into_iter().find_map(fault)
    }

    /// How the node is, in one line for operators.
    #[must_use]
    pub(crate) fn state_text(&self) -> String {
        let fault = |checks: Vec<Check>| checks.into_iter().find_map(|check| check.fault);
        if let Some(fault) = fault(self.inner.ready()) {
            return format!("serves no clients: {fault}");
        }
        let links = count_of(self.inner.links.count() as u64, "node", "nodes");
        let with = format!("linked to {links}");
        match fault(self.inner.writable()) {
            Some(fault) => format!("serves clients, {with}; takes no changes: {fault}"),
            None => format!("serves clients, {with}"),
        }
    }
}

impl Inner {
    fn live(&self) -> Vec<Check> {
        let now = rt::now();
        let beats = [("timer", self.links.observed.beat()), ("membership", self.swim.beat())];
        let check = |(what, beat): (&'static str, Millis)| {
            let silent_ms = now.saturating_sub(beat);
            let fault =
                (silent_ms > BEAT_MS).then(|| format!("stands for {} s", silent_ms / 1_000));
            Check::new(what, fault)
        };
        beats.map(check).to_vec()
    }

    fn ready(&self) -> Vec<Check> {
        let (is_ready, closed) = self.hub.read(|engine| (engine.is_ready(), engine.closed()));
        let leaving = self.stop.is_requested().then(|| String::from("the node is leaving"));
        let behind =
            (!is_ready).then(|| String::from("the node has not caught up with its network yet"));
        // Clients that can log in are served.
        let closed = closed.filter(|closed| !closed.login.is_known());
        vec![
            Check::new("serving", leaving.or(behind)),
            Check::new("clients", closed.map(|closed| format!("none is served: {closed}"))),
            Check::new("answers", self.waits_for_disk(rt::now())),
        ]
    }

    /// Why clients get no answers, if they wait for the disk: what they are told must be on it first.
    fn waits_for_disk(&self, now: Millis) -> Option<String> {
        let durable = self.durable.as_ref()?;
        still_disk(durable.gates(), durable.stands_ms(now))
    }

    fn writable(&self) -> Vec<Check> {
        let now = rt::now();
        let (is_read_only, used_up, excess) = self
            .hub
            .read(|engine| (engine.is_read_only(), engine.used_up(), engine.memory_excess()));
        let read_only = is_read_only.then(|| String::from("the node was started with --read-only"));
        vec![
            Check::new("changes", read_only.or(used_up.map(String::from))),
            Check::new("memory", excess.map(|excess| excess.text())),
            self.disk(now),
        ]
    }

    /// Whether clients' changes wait for the disk, or are refused because of it; and whether they are taken without being logged.
    fn disk(&self, now: Millis) -> Check {
        let Some(durable) = &self.durable else { return Check::new("disk", None) };
        let status = durable.status(now);
        let gates = durable.gates();
        let failure = status.failure.map(|(why, _)| why);
        let fault = match &failure {
            Some(why) if gates => Some(format!("the log cannot be written: {why}")),
            _ if !durable.has_room() => Some(String::from("it does not keep up with the changes")),
            _ => still_disk(gates, durable.stands_ms(now)),
        };
        let note = failure.map(|why| {
            format!("changes are taken, but nothing is logged, so a restart loses them: {why}")
        });
        Check { note, ..Check::new("disk", fault) }
    }
}

/// What is wrong with a disk that does nothing, if what clients are told must be on it (`gates`).
fn still_disk(gates: bool, stands_ms: Millis) -> Option<String> {
    (gates && stands_ms >= DISK_PATIENCE_MS)
        .then(|| format!("the disk has done nothing for {} s", stands_ms / 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_does_nothing_is_a_fault_only_where_clients_wait_for_it() {
        assert_eq!(still_disk(true, DISK_PATIENCE_MS - 1), None);
        assert_eq!(still_disk(false, 10 * DISK_PATIENCE_MS), None);
        let told = still_disk(true, DISK_PATIENCE_MS);
        assert_eq!(told.as_deref(), Some("the disk has done nothing for 2 s"));
    }
}
