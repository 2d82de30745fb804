//! What a node has opened to others before anything runs.

use std::net::SocketAddr;

use super::bind::{GossipSockets, bind_client, bind_gossip};
use crate::node::config::{CLIENT_PORT, Config, GOSSIP_PORT};
use crate::node::error::NodeError;
use crate::node::membership::address::{Advertised, HostPort, advertised_client, client_warning};
use crate::node::membership::identity::Myself;
use crate::node::monitoring;
use crate::rt::TcpListener;

/// See the module.
pub(in crate::node) struct Ports {
    pub(in crate::node) gossip: GossipSockets,
    pub(in crate::node) client: TcpListener,
    client_addr: SocketAddr,
    advertised: Advertised,
    /// What clients are told instead of `client_addr`.
    advertised_client: Option<HostPort>,
    pub(in crate::node) http: Option<(TcpListener, SocketAddr)>,
}

impl Ports {
    /// # Errors
    /// [`NodeError`] says which port cannot be opened, or must not be.
    pub(in crate::node) async fn open(config: &Config) -> Result<Self, NodeError> {
        config.phase.note("opening its ports");
        let gossip = bind_gossip(&config.gossip, GOSSIP_PORT).await?;
        let (client, client_addr) = bind_client(&config.client, CLIENT_PORT).await?;
        // Nothing that has come over them was answered yet.
        check_port_protection(config, "gossip", gossip.addr)?;
        check_port_protection(config, "client", client_addr)?;
        let advertised = Advertised::decide(config.advertise.as_deref(), gossip.addr).await?;
        let told = config.advertise_client.as_deref();
        let told = told.map(|told| advertised_client(told, client_addr.port())).transpose()?;
        let trouble = client_warning(client_addr, config.advertise_client.as_deref());
        for trouble in advertised.warning().into_iter().chain(trouble) {
            tracing::warn!("{trouble}");
        }
        let http = monitoring::health::open(config).await?;
        Ok(Self { gossip, client, client_addr, advertised, advertised_client: told, http })
    }

    /// What the node with these ports says about itself.
    pub(in crate::node) fn myself(&self, config: &Config) -> Myself {
        Myself::new(
            config.name.clone(),
            config.network.clone(),
            self.client_addr,
            self.gossip.addr,
            self.advertised.clone(),
        )
        .with_v6_only(self.gossip.v6_only)
        .with_advertised_client(self.advertised_client.clone())
    }
}

/// A port that other machines reach needs a key, or the word of the operator.
pub(in crate::node) fn check_port_protection(
    config: &Config,
    what: &'static str,
    addr: SocketAddr,
) -> Result<(), NodeError> {
    if config.key.is_some() || config.insecure || addr.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(NodeError::Unprotected { what, addr, network: config.network.clone() })
}
