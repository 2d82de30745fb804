//! `msg_monitor`: the messages of some topics, as they come.

use std::collections::VecDeque;
use std::sync::Arc;

use distkv_access::acl::Letters;

use super::{Emit, Garbage, Progress, Source};
use crate::hub::inbox::{HeardMessage, Inbox, MonitorId, QueueId, TopicMessage};
use crate::model::path::Path;
use crate::model::value::Value;
use crate::protocol::client::Action;
use crate::server::access::authorise::Target;
use crate::server::access::mistakes::Mistake;
use crate::server::connections::session::Context;

/// Messages taken from the inbox at once.
const TAKE: usize = 64;

/// See the module.
pub(in crate::server) struct MonitorSource {
    id: MonitorId,
    /// The topic, or a pattern of topics.
    topic: Path,
    inbox: Arc<Inbox>,
    /// Messages go to the client as bytes, not as values.
    raw: bool,
    queue: VecDeque<HeardMessage>,
    /// Messages before those in `queue` that the client was too slow for and that were not reported to it yet.
    dropped: u64,
}

impl MonitorSource {
    /// A monitor that is registered with the hub already.
    pub(in crate::server) fn new(
        (id, topic): (MonitorId, Path),
        inbox: Arc<Inbox>,
        raw: bool,
    ) -> Self {
        Self { id, topic, inbox, raw, queue: VecDeque::new(), dropped: 0 }
    }
}

impl Source for MonitorSource {
    fn asks(&self) -> Option<(Action, Target<'_>)> {
        Some((Action::MsgMonitor, Target::Topic(self.topic.as_bytes())))
    }

    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        if self.queue.is_empty() {
            self.queue = self.inbox.take_messages(self.id, TAKE).into();
            if !cx.is_current() {
                // They may be of after a change of the client's rights, which come first.
                return Progress::Busy;
            }
        }
        if self.queue.is_empty() {
            return Progress::Idle;
        }
        let rights = &cx.access.rights;
        let counts = rights.is_everything() || cx.access.makes(Mistake::Each(Action::MsgMonitor));
        let is_shown = |message: &TopicMessage| {
            counts || rights.topic(message.topic.as_bytes()).has(Letters::READ)
        };
        let next = loop {
            let Some(HeardMessage { dropped, message }) = self.queue.pop_front() else {
                return Progress::Busy;
            };
            self.dropped += dropped;
            if is_shown(&message) {
                break message;
            }
        };
        let TopicMessage { topic, data, .. } = &*next;
        let tock = emit.tock();
        let (mut message, tag) = emit.begin();
        topic.encode_array(message.key("topic"));
        if self.raw {
            message.bin("raw", data);
        } else {
            match Value::check_readable(data) {
                Ok(()) => message.raw("data", data),
                Err(e) => message.bin("raw", data).str("error", &e.to_string()),
            };
        }
        message.tag(tag).tock(tock);
        if self.dropped > 0 {
            // Ours: how many were lost just before this one, because the client did not keep up.
            // Some may have been of topics that the client may not monitor: it is not told how many.
            let dropped = std::mem::take(&mut self.dropped);
            message.u64("dropped", if counts { dropped } else { 1 });
        }
        Progress::Wrote
    }

    fn is_endless(&self) -> bool {
        true
    }

    fn queue(&self) -> Option<QueueId> {
        Some(QueueId::Monitor(self.id))
    }

    fn close(self: Box<Self>, cx: &Context<'_>) -> Option<Garbage> {
        cx.hub.unmonitor(self.id);
        None
    }
}
