//! Two sides of a network that is split: what users and admins do at one, and what the other has heard of it.

use std::sync::Arc;

use distkv::engine::Input;
use distkv::engine::changes::LoadImage;
use distkv::engine::{Config, Engine, NO_LATER, Outbox};
use distkv::hub::Hub;
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::server::{NodeInfo, Server, ServerConfig};

use super::{logged_in, password, secured_config};
use crate::harness::{Client, Info, Node};

/// A network that was cut off with the same data.
pub fn elsewhere(node: &Node) -> Hub {
    let id = NodeId { name: NodeName::new("n2").unwrap(), incarnation: Incarnation(2) };
    let mut other = Engine::new(Config::new(id, 1));
    let mut out = Outbox::new();
    other.handle(Input::Found, 0, &mut out);
    let other = Hub::new(other);
    heal(&node.hub, &other);
    other
}

/// What has changed at one side comes to the other.
pub fn heal(from: &Hub, to: &Hub) {
    let image = from.read(Engine::image);
    to.handle(LoadImage(&image), NO_LATER).unwrap();
}

/// Serves clients of a hub as a secured node.
pub fn serve(hub: Hub) -> Node {
    serve_with(hub, secured_config())
}

/// The same with other settings.
pub fn serve_with(hub: Hub, config: ServerConfig) -> Node {
    let (hub, info) = (Arc::new(hub), Arc::new(Info::default()));
    let shared: Arc<dyn NodeInfo> = info.clone();
    let bound = Server::bind("127.0.0.1:0", Arc::clone(&hub), config, shared);
    Node { server: distkv::rt::block_on(bound).unwrap(), hub, info }
}

/// Who has a stolen secret changes it at a node that is cut off, after so many others that this change has a greater tock than what
/// is done on the other side.
pub fn steal(cut_off: &Node, secret: &str) -> Client {
    let mut thief = logged_in(cut_off, "password", "joe", secret);
    for n in 0..20 {
        thief.set("x", n);
    }
    thief.ok(password("joe", "stolen12"));
    thief
}
