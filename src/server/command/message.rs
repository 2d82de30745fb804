//! `msg_send` and `msg_monitor`: messages through the network that leave nothing behind.

use std::sync::Arc;

use distkv_access::acl::Letters;

use crate::engine::changes::SendTopic;
use crate::model::path::{Element, Path};
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::access::Access;
use crate::server::access::authorise::{Denied, Lack, Target};
use crate::server::access::mistakes::Mistake;
use crate::server::connections::session::{Context, Session, Then};
use crate::server::stream::MonitorSource;

/// Levels of a pattern that stand for any level, or for the rest.
const WILDCARDS: [&str; 2] = ["+", "#"];

/// Whether the client may monitor a topic, or perhaps one that matches a pattern of topics.
pub(in crate::server) fn may_match(access: &Access, pattern: &Path) -> bool {
    if access.makes(Mistake::Action(Action::MsgMonitor)) {
        return true;
    }
    let rights = &access.rights;
    let is_level = |element: &Element<'_>| !WILDCARDS.map(Element::Str).contains(element);
    let exact = pattern.prefix(pattern.elements().take_while(is_level).count());
    if exact == *pattern {
        return rights.is_everything() || rights.topic(pattern.as_bytes()).has(Letters::READ);
    }
    !rights.topic_at(exact.as_bytes()).is_dead()
}

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
        // Each message is looked at by itself; so here it is enough that there may be one.
        self.authorise(cx, Action::MsgMonitor, Target::Node)?;
        if !may_match(&cx.access, topic) {
            let (action, lack) = (Action::MsgMonitor, Lack::Letters(&[Letters::READ]));
            let (denied, target) = (Denied::Path { action, lack }, Target::Topic(topic.as_bytes()));
            if let Some(witness) = &cx.witness {
                witness.denied(&denied, action, target);
            }
            return Err(denied.error(target, &cx.access));
        }
        Self::check_ready(cx)?;
        self.check_room(cx, seq)?;
        let added = cx.hub.monitor(topic.clone(), &self.inbox, &self.holder());
        let id = added.map_err(|no| ClientError::new(ErrorCode::TooMany, no.text("monitors")))?;
        let source = MonitorSource::new((id, topic.clone()), Arc::clone(&self.inbox), raw);
        self.open_stream(cx, seq, Box::new(source));
        Ok(Then::Continue)
    }
}
