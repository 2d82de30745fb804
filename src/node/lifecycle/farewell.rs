//! A node's last seconds: its last changes should reach another node before it stops, and its
//! operator should know if they did not.

use std::time::Duration;

use crate::engine::Engine;
use crate::model::ids::Millis;
use crate::node::link::Links;
use crate::rt;

/// The time between two looks, besides those when an acknowledgement comes.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until another node has every change that this one has made since its start; not if no peer
/// is linked, and not beyond `deadline`.
pub(in crate::node) async fn wait_for_copies(links: &Links, deadline: Millis) {
    loop {
        let acknowledged = links.hub.acknowledged.listen();
        let is_done = links.hub.read(Engine::unshared_changes) == 0;
        if is_done || links.count() == 0 || rt::now() >= deadline {
            return;
        }
        let _ = rt::timeout(LOOK_INTERVAL, acknowledged).await;
    }
}

/// Says how many changes leave the network with this node.
pub(in crate::node) fn tell_of_changes(links: &Links, is_durable: bool) {
    let changes = links.hub.read(Engine::unshared_changes);
    if changes == 0 {
        return;
    }
    let what = match changes {
        1 => String::from("1 change of this node is on no other node"),
        _ => format!("{changes} changes of this node are on no other node"),
    };
    if is_durable {
        tracing::warn!("{what}: the data directory has all; start the node again to share it");
    } else {
        tracing::warn!("{what} and lost now: this node kept its data in memory");
    }
}
