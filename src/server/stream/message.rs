//! `msg_monitor`: the messages of some topics, as they come.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Emit, Garbage, Progress, Source};
use crate::hub::inbox::{Inbox, MonitorId, QueueId, TopicMessage};
use crate::model::value::Value;
use crate::server::connections::session::Context;

/// Messages taken from the inbox at once.
const TAKE: usize = 64;

/// See the module.
pub(in crate::server) struct MonitorSource {
    id: MonitorId,
    inbox: Arc<Inbox>,
    /// Messages go to the client as bytes, not as values.
    raw: bool,
    queue: VecDeque<Arc<TopicMessage>>,
    /// Messages that the client was too slow for and that were not reported to it yet.
    dropped: u64,
}

impl MonitorSource {
    /// A monitor that is registered with the hub already.
    pub(in crate::server) fn new(id: MonitorId, inbox: Arc<Inbox>, raw: bool) -> Self {
        Self { id, inbox, raw, queue: VecDeque::new(), dropped: 0 }
    }
}

impl Source for MonitorSource {
    fn next(&mut self, _: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        if self.queue.is_empty() {
            let (messages, dropped) = self.inbox.take_messages(self.id, TAKE);
            self.queue = messages.into();
            self.dropped += dropped;
        }
        let Some(next) = self.queue.pop_front() else { return Progress::Idle };
        let TopicMessage { topic, data, .. } = &*next;
        let tock = emit.tock();
        let (mut message, tag) = emit.begin();
        topic.encode_array(message.key("topic"));
        if self.raw {
            message.bin("raw", data);
        } else {
            match Value::check(data) {
                Ok(()) => message.raw("data", data),
                Err(e) => message.bin("raw", data).str("error", &e.to_string()),
            };
        }
        message.tag(tag).tock(tock);
        if self.dropped > 0 {
            // Ours: how many were lost before this one, because the client did not keep up.
            message.u64("dropped", std::mem::take(&mut self.dropped));
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
