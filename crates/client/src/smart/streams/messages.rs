//! Messages through the network that are not stored: only programs that listen receive them.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::feed::{Opened, Search, Searching, begin_search};
use crate::connection::StreamEvent;
use crate::error::ClientError;
use crate::message::{Fields, Message};
use crate::model::path::Path;
use crate::model::shard::shard_of;
use crate::model::value::Value;
use crate::retry::{ErrorClass, Idempotency};
use crate::smart::choice::call::Plan;
use crate::smart::error::{At, CallError, Fate};
use crate::smart::operations::entry;
use crate::smart::{Client, Inner};

/// What a monitor reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MonitorEvent {
    /// A message.
    Message(TopicMessage),
    /// Its node was lost, and it continues at another one: messages may have been lost in between.
    Gap {
        /// The node that sends from now on.
        node: String,
    },
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicMessage {
    /// Its topic.
    pub topic: Path,
    /// Its value; none if its bytes are not MessagePack: then they are in `raw`.
    pub data: Option<Value>,
    /// Its bytes, if they are not MessagePack.
    pub raw: Option<Vec<u8>>,
    /// Messages that were lost just before it, since this monitor did not keep up.
    pub dropped: u64,
}

impl TopicMessage {
    /// The value as a type of yours.
    ///
    /// # Errors
    /// [`CallError::Value`]: it is not of this type.
    pub fn get<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        let none = || CallError::Value(String::from("the message is no MessagePack"));
        entry::decode(self.data.as_ref().ok_or_else(none)?)
    }
}

/// A monitor of messages. Dropping it ends it.
#[derive(Debug)]
pub struct Monitor {
    client: Arc<Inner>,
    topic: Path,
    fields: Fields,
    phase: Phase,
    search: Search,
}

#[derive(Debug)]
enum Phase {
    /// Messages come.
    Live(Opened),
    /// A node is looked for.
    Searching(Searching),
    /// It ended with this.
    Ended(CallError),
}

impl Client {
    /// Sends a message to all that monitor its topic at present. It is not stored, and sent at most
    /// once: if it is unknown whether it was sent, that is the error.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn send<T: Serialize + ?Sized + Sync>(
        &self,
        topic: &Path,
        data: &T,
    ) -> Result<(), CallError> {
        let data = entry::encode(data)?;
        self.send_raw(topic, &data).await
    }

    /// The same with a value as MessagePack.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn send_raw(&self, topic: &Path, data: &Value) -> Result<(), CallError> {
        let mut fields = Fields::new();
        fields.path("topic", topic).raw("data", data.as_bytes());
        let plan = Plan::new("msg_send", shard_of(topic), Idempotency::Unguarded);
        self.inner.request(plan, &fields).await.map(drop)
    }

    /// Delivers the messages of a topic as they arrive; in a topic, `+` stands for one element and
    /// `#`, at the end, for one or more. When this returns, the monitor has begun.
    ///
    /// # Errors
    /// [`CallError`]: a node refused it, or none could begin it in time.
    pub async fn monitor(&self, topic: &Path) -> Result<Monitor, CallError> {
        let mut fields = Fields::new();
        fields.path("topic", topic);
        let opened = self.inner.open_first(shard_of(topic), "msg_monitor", &fields).await?;
        Ok(Monitor {
            client: Arc::clone(&self.inner),
            topic: topic.clone(),
            fields,
            phase: Phase::Live(opened),
            search: Search::default(),
        })
    }
}

impl Monitor {
    /// The next event. Waits for as long as necessary, also while no node can be reached. Dropping
    /// the future loses nothing.
    ///
    /// # Errors
    /// A node refused for good, or the client was closed. The monitor has ended.
    pub async fn next(&mut self) -> Result<MonitorEvent, CallError> {
        loop {
            let event = match &mut self.phase {
                Phase::Ended(error) => return Err(error.clone()),
                Phase::Searching(searching) => {
                    let (search, result) = searching.wait().await;
                    self.search = search;
                    return self.on_found(result);
                }
                Phase::Live(opened) => opened.stream.next().await,
            };
            match event {
                Ok(Some(StreamEvent::Item { message, .. })) => {
                    if let Some(message) = message_of(&message) {
                        return Ok(MonitorEvent::Message(message));
                    }
                }
                Ok(Some(StreamEvent::Start | StreamEvent::UpToDate | StreamEvent::State(..))) => {}
                Err(ClientError::Server(error))
                    if ErrorClass::of_server(&error) == ErrorClass::Final =>
                {
                    let node = self.node().map(str::to_owned);
                    let at = At { node, attempts: 1, fate: Fate::NotDone };
                    self.phase = Phase::Ended(CallError::Refused { error, at });
                }
                Ok(None) | Err(_) => self.on_lost(),
            }
        }
    }

    /// The node that sends at present, if there is one.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match &self.phase {
            Phase::Live(opened) => Some(&opened.node.name),
            Phase::Searching(_) | Phase::Ended(_) => None,
        }
    }

    fn on_lost(&mut self) {
        if let Phase::Live(opened) = &self.phase {
            self.search.on_lost(opened, &self.client.config.retry);
        }
        let (search, shard) = (std::mem::take(&mut self.search), shard_of(&self.topic));
        let searching = begin_search(&self.client, search, shard, "msg_monitor", &self.fields);
        self.phase = Phase::Searching(searching);
    }

    fn on_found(&mut self, result: Result<Opened, CallError>) -> Result<MonitorEvent, CallError> {
        match result {
            Ok(opened) => {
                let node = opened.node.name.clone();
                self.phase = Phase::Live(opened);
                Ok(MonitorEvent::Gap { node })
            }
            Err(error) => {
                self.phase = Phase::Ended(error.clone());
                Err(error)
            }
        }
    }
}

fn message_of(message: &Message) -> Option<TopicMessage> {
    let raw = message.get("raw").map(|raw| crate::model::value::Reader::new(raw).read_bin());
    Some(TopicMessage {
        topic: Path::from_msgpack_value(message.get("topic")?).ok()?,
        data: message.get("data").and_then(|data| Value::new(data).ok()),
        raw: raw.and_then(Result::ok).map(<[u8]>::to_vec),
        dropped: message.u64("dropped").unwrap_or(0),
    })
}
