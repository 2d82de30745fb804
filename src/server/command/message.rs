//! `msg_send` and `msg_monitor`: messages through the network that leave nothing behind.

use std::sync::Arc;

use crate::engine::changes::SendTopic;
use crate::model::path::Path;
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::access::authorise::Target;
use crate::server::connections::session::{Context, Session, Then};
use crate::server::stream::MonitorSource;

impl Session {
    /// `msg_send`.
    pub(in crate::server) fn msg_send(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        topic: &Path,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::MsgSend, Target::Topic(topic.as_bytes()))?;
        // Until then it is not known whether the network's data says that clients must log in.
        Self::check_ready(cx)?;
        cx.hub.handle(SendTopic { topic, data }, cx.now);
        MessageWriter::new(out).u64("seq", seq).tock(cx.tock());
        Ok(Then::Continue)
    }

    /// `msg_monitor`.
    pub(in crate::server) fn msg_monitor(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        topic: &Path,
        raw: bool,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::MsgMonitor, Target::Topic(topic.as_bytes()))?;
        Self::check_ready(cx)?;
        self.check_room(cx, seq)?;
        let added = cx.hub.monitor(topic.clone(), &self.inbox, &self.holder());
        let id = added.map_err(|no| ClientError::new(ErrorCode::TooMany, no.text("monitors")))?;
        let source = MonitorSource::new((id, topic.clone()), Arc::clone(&self.inbox), raw);
        self.open_stream(cx, seq, Box::new(source));
        Ok(Then::Continue)
    }
}
