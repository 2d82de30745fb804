//! `watch_cluster`: the nodes of the network, as a whole, whenever the view differs from the last
//! one sent. Nothing is queued: a slow client gets the latest.

use super::{Emit, Garbage, Progress, Source};
use crate::protocol::client::{Action, MessageWriter};
use crate::server::access::authorise::Target;
use crate::server::cluster::nodes::ClusterWatchId;
use crate::server::connections::session::Context;

/// See the module.
pub(in crate::server) struct ClusterSource {
    id: ClusterWatchId,
    /// The epoch of the view that was sent last; 0 before that.
    told: u64,
}

impl ClusterSource {
    /// A watcher that is registered already.
    pub(in crate::server) fn new(id: ClusterWatchId) -> Self {
        Self { id, told: 0 }
    }
}

impl Source for ClusterSource {
    fn asks(&self) -> Option<(Action, Target<'_>)> {
        Some((Action::WatchCluster, Target::Node))
    }

    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        let view = cx.shared.cluster.view();
        if view.epoch == self.told {
            return Progress::Idle;
        }
        self.told = view.epoch;
        let tock = emit.tock();
        let (mut message, tag) = emit.begin();
        view.write(&mut MessageWriter::new(message.key("cluster")));
        message.tag(tag).tock(tock);
        Progress::Wrote
    }

    fn is_endless(&self) -> bool {
        true
    }

    fn close(self: Box<Self>, cx: &Context<'_>) -> Option<Garbage> {
        cx.shared.cluster.unwatch(self.id);
        None
    }
}
