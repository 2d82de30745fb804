//! The nodes of the network, for clients that choose among them: `cluster` returns them once,
//! `watch_cluster` whenever they change.
//!
//! There is one view at a time. It is made anew when it may have changed ([`Hub::cluster_changed`])
//! or is requested, and compared with the one before: only if it differs does it get the next
//! epoch, and watchers are woken. They take the latest, so changes between two looks are skipped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use parking_lot::Mutex;

use crate::engine::Engine;
use crate::hub::Hub;
use crate::hub::inbox::Inbox;
use crate::model::ids::{Incarnation, NodeName};
use crate::model::value::{
    write_array_len, write_bool, write_map_len, write_nil, write_str, write_u64,
};
use crate::protocol::client::MessageWriter;
use crate::rt;
use crate::server::Shared;
use crate::server::info::{MemberInfo, MemberState, NodeInfo};

/// The time between two looks: changes within it are reported together.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A node, as far as it concerns clients.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ClusterNode {
    name: String,
    incarnation: Incarnation,
    gossip: String,
    client: Option<String>,
    state: MemberState,
    ready: bool,
    /// Its place among the housekeepers, from 1.
    housekeeper: Option<u64>,
}

impl ClusterNode {
    fn of(member: MemberInfo, housekeepers: &[NodeName]) -> Self {
        let is_gone = matches!(member.state, MemberState::Down | MemberState::Left);
        // A former life has no place: the name's place is its present life's.
        let place = housekeepers.iter().position(|name| name.as_str() == member.name);
        Self {
            housekeeper: place.filter(|_| !is_gone).map(|at| at as u64 + 1),
            name: member.name,
            incarnation: member.incarnation,
            gossip: member.gossip,
            client: member.client,
            state: member.state,
            ready: member.ready && !is_gone,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_map_len(7, out);
        write_str("name", out);
        write_str(&self.name, out);
        write_str("incarnation", out);
        write_u64(self.incarnation.0, out);
        write_str("gossip", out);
        write_str(&self.gossip, out);
        write_str("client", out);
        match &self.client {
            Some(client) => write_str(client, out),
            None => write_nil(out),
        }
        write_str("state", out);
        write_str(self.state.word(), out);
        write_str("ready", out);
        write_bool(self.ready, out);
        write_str("housekeeper", out);
        match self.housekeeper {
            Some(place) => write_u64(place, out),
            None => write_nil(out),
        }
    }
}

/// The nodes at one moment; never changed.
#[derive(Default)]
pub(in crate::server) struct ClusterView {
    /// Rises with each view that differs from the one before; 0 for none yet.
    pub(in crate::server) epoch: u64,
    /// In the order of names, then of incarnations.
    nodes: Vec<ClusterNode>,
    /// The same, encoded once for all clients.
    encoded: Vec<u8>,
    /// Whose epoch it is, encoded: epochs of two nodes, or of two lives of one, say nothing of each
    /// other.
    id: Vec<u8>,
}

impl ClusterView {
    fn new(epoch: u64, nodes: Vec<ClusterNode>) -> Self {
        let (mut encoded, mut id) = (Vec::new(), Vec::new());
        write_array_len(nodes.len(), &mut encoded);
        nodes.iter().for_each(|node| node.write(&mut encoded));
        match nodes.iter().find(|node| node.state == MemberState::Myself) {
            Some(own) => {
                write_map_len(2, &mut id);
                write_str("name", &mut id);
                write_str(&own.name, &mut id);
                write_str("incarnation", &mut id);
                write_u64(own.incarnation.0, &mut id);
            }
            // Only while the node goes down.
            None => write_nil(&mut id),
        }
        Self { epoch, nodes, encoded, id }
    }

    /// Adds its fields to a message.
    pub(in crate::server) fn write(&self, message: &mut MessageWriter<'_>) {
        message.u64("epoch", self.epoch).raw("nodes", &self.encoded).raw("id", &self.id);
    }
}

/// Names a watcher; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::server) struct ClusterWatchId(u64);

/// The present view, and the watchers to be woken by the next one.
#[derive(Default)]
pub(in crate::server) struct Cluster {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    view: Arc<ClusterView>,
    /// As many as there are streams: bounded by the open requests of connections.
    watchers: BTreeMap<ClusterWatchId, Arc<Inbox>>,
    next_watcher: u64,
}

impl Cluster {
    /// The view as it was when it was last looked at.
    pub(in crate::server) fn view(&self) -> Arc<ClusterView> {
        Arc::clone(&self.state.lock().view)
    }

    /// Looks at the present nodes. Fast, but not for every request of a hot path.
    pub(in crate::server) fn look(&self, hub: &Hub, info: &dyn NodeInfo) -> Arc<ClusterView> {
        // Looked at under this lock, so that no older look follows a newer one.
        let mut state = self.state.lock();
        let members = info.members();
        let housekeepers = hub.read(Engine::housekeepers);
        let nodes = members.into_iter().map(|member| ClusterNode::of(member, &housekeepers));
        let mut nodes: Vec<ClusterNode> = nodes.collect();
        nodes.sort_by(|a, b| (&a.name, a.incarnation.0).cmp(&(&b.name, b.incarnation.0)));
        for node in nodes.iter_mut().filter(|node| node.client.is_none()) {
            // This node learns other nodes' addresses for clients over links. A missing link does
            // not make the address wrong.
            let before =
                state.view.nodes.iter().find(|before| {
                    before.name == node.name && before.incarnation == node.incarnation
                });
            node.client = before.and_then(|before| before.client.clone());
        }
        if state.view.epoch == 0 || nodes != state.view.nodes {
            state.view = Arc::new(ClusterView::new(state.view.epoch + 1, nodes));
            for inbox in state.watchers.values() {
                inbox.changed.notify(usize::MAX);
            }
        }
        Arc::clone(&state.view)
    }

    /// From now on this connection is woken when there is another view.
    pub(in crate::server) fn watch(&self, inbox: &Arc<Inbox>) -> ClusterWatchId {
        let mut state = self.state.lock();
        let id = ClusterWatchId(state.next_watcher);
        state.next_watcher += 1;
        state.watchers.insert(id, Arc::clone(inbox));
        id
    }

    /// No longer.
    pub(in crate::server) fn unwatch(&self, id: ClusterWatchId) {
        self.state.lock().watchers.remove(&id);
    }
}

/// Looks whenever something may have changed, until the server stops.
pub(in crate::server) async fn follow(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.listen();
    loop {
        let changed = shared.hub.cluster_changed.listen();
        if shared.is_stopping() {
            return;
        }
        shared.cluster.look(&shared.hub, &*shared.info);
        if let Either::Right(_) = select(changed, &mut stopping).await {
            return;
        }
        rt::sleep(LOOK_INTERVAL).await;
    }
}
