//! `cluster` and `watch_cluster`: ours, for clients that choose among nodes. They need no data, so
//! a node that has not caught up yet answers too.

use crate::protocol::client::{Action, ClientError, MessageWriter};
use crate::server::access::authorise::Target;
use crate::server::connections::session::{Context, Session, Then};
use crate::server::stream::ClusterSource;

impl Session {
    /// `cluster`.
    pub(in crate::server) fn cluster(
        &self,
        cx: &Context<'_>,
        seq: u64,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::Cluster, Target::Node)?;
        let view = cx.shared.cluster.look(cx.hub, &*cx.shared.info);
        let mut message = MessageWriter::new(out);
        view.write(&mut message);
        message.u64("seq", seq).tock(cx.tock());
        Ok(Then::Continue)
    }

    /// `watch_cluster`.
    pub(in crate::server) fn watch_cluster(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::WatchCluster, Target::Node)?;
        self.check_room(cx, seq)?;
        let id = cx.shared.cluster.watch(&self.inbox);
        // The first view is not older than the request.
        cx.shared.cluster.look(cx.hub, &*cx.shared.info);
        self.open_stream(cx, seq, Box::new(ClusterSource::new(id)));
        Ok(Then::Continue)
    }
}
