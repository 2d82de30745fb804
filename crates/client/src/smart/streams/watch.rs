//! Watches that continue at another node when theirs is lost.
//!
//! For each path, versions come in order, and none is delivered twice: a watch remembers what it
//! has delivered (bounded). At the next node it gets the whole state, and delivers newer versions.
//! It asks about paths that are not shown there. If such an entry was deleted meanwhile, the
//! deletion is delivered; if the node has not heard of the version yet, the watch waits for it for
//! a short while. If it does not come (it may have been lost with the node that had sent it), or if
//! more was delivered than can be remembered, the watch starts over and says so:
//! [`WatchEvent::Restarted`].
//!
//! Versions that were superseded while the watch was away, or was not read while its node could send
//! no more, are not delivered, nor deletions in between: only the latest version of each path.

mod memory;
mod settle;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, Stream};
use serde::de::DeserializeOwned;

use super::feed::{LOOK_INTERVAL, Opened, Pending, Search, Searching, begin_search};
use crate::chain::Chain;
use crate::connection::StreamEvent;
use crate::error::ClientError;
use crate::message::{Fields, Message};
use crate::model::ids::Millis;
use crate::model::path::Path;
use crate::model::shard::shard_of;
use crate::model::value::Value;
use crate::retry::deviations::{Rule, is_broken};
use crate::retry::{ErrorClass, Sent};
use crate::rt;
use crate::smart::error::{At, CallError, Fate};
use crate::smart::operations::entry::{self, Entry, Version};
use crate::smart::{Client, Inner};
use crate::stats::count;
use memory::{By, Look, Memory};
use settle::{Doubt, Of, Settled, settle};

/// Most paths of which a watch asks what became of them; if there are more, it starts over.
const DOUBTS_MAX: usize = 4096;

/// What to watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// The state comes first, then [`WatchEvent::UpToDate`], then changes. Without it, only
    /// changes; the state is still sent over the network, because otherwise it would be unknown
    /// later what changed while a node was away.
    pub fetch: bool,
    /// Levels below the path before which nothing is watched.
    pub min_depth: Option<u64>,
    /// Levels below the path behind which nothing is watched.
    pub max_depth: Option<u64>,
}

/// What a watch reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// An entry was created, changed, or deleted.
    Change(Change),
    /// All that was there has come; what follows is what changes. Once, and after each
    /// [`WatchEvent::Restarted`].
    UpToDate,
    /// Its node was lost, and it continues at another one where it was: only versions that were
    /// superseded meanwhile are missing.
    Resumed {
        /// The node that sends from now on.
        node: String,
    },
    /// It could not continue where it was. Discard what it reported: the whole present state
    /// follows, then [`WatchEvent::UpToDate`].
    Restarted,
}

/// One version of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its whole path.
    pub path: Path,
    /// Its value; none if it was deleted.
    pub value: Option<Value>,
    /// Its newest event; none for a deletion that was found later, of which nothing else is known.
    pub chain: Option<Chain>,
    /// Its tock.
    pub tock: u64,
    /// When it was made, as in [`Entry::time_ms`](crate::smart::Entry::time_ms).
    pub time_ms: Option<u64>,
}

impl Change {
    /// The value as a type of yours; none if the entry was deleted.
    ///
    /// # Errors
    /// [`CallError::Value`]: it is not of this type.
    pub fn get<T: DeserializeOwned>(&self) -> Result<Option<T>, CallError> {
        self.value.as_ref().map(entry::decode).transpose()
    }
}

/// A watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    client: Arc<Inner>,
    path: Path,
    fields: Fields,
    phase: Phase,
    search: Search,
    memory: Memory,
    queue: VecDeque<WatchEvent>,
    /// The state has not arrived completely yet: [`WatchEvent::UpToDate`] must follow.
    owes_state: bool,
    /// The state is not reported, since it was not requested.
    is_silent: bool,
    /// Paths that this node shows older than they were delivered.
    older: HashSet<Path>,
}

/// What a node says of the paths in doubt; none if it says nothing for long.
type Asking = Pending<Option<Result<Vec<Settled>, ClientError>>>;

#[derive(Debug)]
enum Phase {
    /// There is no node, and none is looked for yet.
    Lost,
    /// One is looked for.
    Searching(Searching),
    /// The state comes.
    Fetching(Opened),
    /// The node is asked about these; meanwhile its stream is not read. `was_live`: changes came
    /// already.
    Settling { opened: Opened, doubts: Vec<Doubt>, until: Millis, asking: Asking, was_live: bool },
    /// Changes come.
    Live(Opened),
    /// It ended with this.
    Ended(CallError),
}

impl Client {
    /// Watches a path and everything below it. When this returns, the watch has begun. Of what changes while it is not
    /// read, only the latest version of each path may come.
    ///
    /// # Errors
    /// [`CallError`]: a node refused it, or none could begin it in time.
    pub async fn watch(&self, path: &Path, options: WatchOptions) -> Result<Watch, CallError> {
        let mut fields = Fields::at(path);
        fields.bool("fetch", true).u64("nchain", 1).bool("with_time", true);
        if let Some(depth) = options.min_depth {
            fields.u64("min_depth", depth);
        }
        if let Some(depth) = options.max_depth {
            fields.u64("max_depth", depth);
        }
        let opened = self.inner.open_first(shard_of(path), "watch", &fields).await?;
        let config = &self.inner.config;
        Ok(Watch {
            client: Arc::clone(&self.inner),
            path: path.clone(),
            fields,
            phase: Phase::Fetching(opened),
            search: Search::default(),
            memory: Memory::new(config.watch_paths_max, config.watch_bytes_max),
            queue: VecDeque::new(),
            owes_state: true,
            is_silent: !options.fetch,
            older: HashSet::new(),
        })
    }
}

impl Watch {
    /// The next event. Waits for as long as necessary, also while no node can be reached; it
    /// continues when one can. Dropping the future loses nothing.
    ///
    /// # Errors
    /// A node refused for good, or the client was closed. The watch has ended.
    pub async fn next(&mut self) -> Result<WatchEvent, CallError> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(event);
            }
            self.advance().await?;
        }
    }

    /// The same as a stream, which ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<WatchEvent, CallError>> + Send {
        stream::unfold(Some(self), |watch| async move {
            let mut watch = watch?;
            let event = watch.next().await;
            let rest = event.is_ok().then_some(watch);
            Some((event, rest))
        })
    }

    /// What is watched.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The node that sends at present, if there is one.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match &self.phase {
            Phase::Fetching(opened) | Phase::Live(opened) | Phase::Settling { opened, .. } => {
                Some(&opened.node.name)
            }
            Phase::Lost | Phase::Searching(_) | Phase::Ended(_) => None,
        }
    }

    /// Whether a node has said within a minute that it does not let this client in, and has not let it in since: where
    /// no node sends, that may be why, and not that none can be reached.
    #[must_use]
    pub fn is_shut_out(&self) -> bool {
        self.client.pool.is_shut_out()
    }

    /// One step. A drop loses none: the state changes only after the last await, and what takes
    /// several awaits is kept.
    async fn advance(&mut self) -> Result<(), CallError> {
        match &mut self.phase {
            Phase::Ended(error) => Err(error.clone()),
            Phase::Lost => {
                let (search, shard) = (std::mem::take(&mut self.search), shard_of(&self.path));
                let searching = begin_search(&self.client, search, shard, "watch", &self.fields);
                self.phase = Phase::Searching(searching);
                Ok(())
            }
            Phase::Searching(searching) => {
                let (search, result) = searching.wait().await;
                self.search = search;
                match result {
                    Ok(opened) => {
                        self.memory.begin_feed();
                        self.older.clear();
                        self.phase = Phase::Fetching(opened);
                        Ok(())
                    }
                    Err(error) => {
                        self.phase = Phase::Ended(error.clone());
                        Err(error)
                    }
                }
            }
            Phase::Fetching(opened) | Phase::Live(opened) => {
                let event = opened.stream.next().await;
                self.on_stream(event)
            }
            Phase::Settling { asking, .. } => {
                match asking.wait().await {
                    Some(Ok(settled)) => self.on_settled(settled),
                    // It cannot answer: that is no reason to leave it.
                    Some(Err(ClientError::Server(_))) => self.start_over(),
                    Some(Err(_)) | None => self.on_lost(),
                }
                Ok(())
            }
        }
    }

    /// Begins to ask a node about these versions, after a while if it was asked already.
    fn begin_settling(
        &mut self,
        opened: Opened,
        doubts: Vec<Doubt>,
        (until, was_live): (Millis, bool),
        delay: Duration,
    ) {
        let (client, used) = (Arc::clone(&self.client), Arc::clone(&opened.used));
        let asked = doubts.clone();
        let asking = Pending::new(async move {
            rt::sleep(delay).await;
            let patience = client.config.retry.try_deadline;
            used.connection().while_any_arrives(patience, settle(&used, &asked)).await
        });
        self.phase = Phase::Settling { opened, doubts, until, asking, was_live };
    }

    fn on_stream(
        &mut self,
        event: Result<Option<StreamEvent>, ClientError>,
    ) -> Result<(), CallError> {
        match event {
            Ok(Some(StreamEvent::Item { path: Some(below), message })) => {
                self.on_item(&below, &message);
                Ok(())
            }
            Ok(Some(StreamEvent::UpToDate)) => {
                self.on_state_has_come();
                Ok(())
            }
            Ok(Some(
                StreamEvent::Start | StreamEvent::State(..) | StreamEvent::Item { path: None, .. },
            )) => Ok(()),
            Ok(None) => {
                self.on_lost();
                Ok(())
            }
            Err(error) => {
                let is_final = ErrorClass::of(&error, Sent::Maybe) == ErrorClass::Final;
                match error {
                    ClientError::Server(error) if is_final => {
                        let node = self.node().map(str::to_owned);
                        let at = At { node, attempts: 1, fate: Fate::NotDone };
                        let error = CallError::Refused { error, at };
                        self.phase = Phase::Ended(error.clone());
                        Err(error)
                    }
                    _ => {
                        self.on_lost();
                        Ok(())
                    }
                }
            }
        }
    }

    fn on_item(&mut self, below: &Path, message: &Message) {
        let node = self.node().unwrap_or_default();
        let (Ok(path), Ok(entry)) = (self.path.join(below), entry::entry_of(message, node)) else {
            // Not ours: it does not keep to the protocol.
            self.on_lost();
            return;
        };
        let is_fetching = matches!(self.phase, Phase::Fetching(_));
        match self.memory.look(&path, &entry, is_fetching && !self.owes_state) {
            Look::New => {
                self.deliver(path, entry, By::Feed);
                if is_fetching && self.memory.has_lost_earlier() {
                    self.start_over();
                }
            }
            Look::Known => count(&self.client.counts.watch_repeats),
            Look::Older if is_fetching && self.older.len() <= DOUBTS_MAX => {
                self.older.insert(path);
            }
            // Another node has told what was delivered, and this one has not heard of it yet, or it is lost with that node.
            Look::Older => {
                let delivered = self.memory.version(&path).cloned();
                self.ask(path, delivered, Of::Delivered);
            }
            // Of a whole state, too much would have to be asked about.
            Look::Doubtful if is_fetching => self.start_over(),
            Look::Doubtful => self.ask(path, entry.version(), Of::Arrived),
        }
    }

    /// Asks the node about one version, before anything else of its stream is read.
    fn ask(&mut self, path: Path, version: Option<Version>, of: Of) {
        let Some(version) = version else { return };
        match std::mem::replace(&mut self.phase, Phase::Lost) {
            Phase::Live(opened) => {
                let until = self.patience_ends();
                let doubts = vec![Doubt { path, version, of }];
                self.begin_settling(opened, doubts, (until, true), Duration::ZERO);
            }
            phase => self.phase = phase,
        }
    }

    fn patience_ends(&self) -> Millis {
        rt::now().saturating_add(rt::millis(self.client.config.watch_patience))
    }

    fn deliver(&mut self, path: Path, entry: Entry, by: By) {
        self.memory.on_delivered(&path, &entry, by);
        if self.is_silent {
            return;
        }
        let Entry { value, chain, tock, time_ms, .. } = entry;
        self.queue.push_back(WatchEvent::Change(Change { path, value, chain, tock, time_ms }));
    }

    /// The state of a node has come whole.
    fn on_state_has_come(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Lost);
        let Phase::Fetching(opened) = phase else {
            self.phase = phase;
            return;
        };
        let missing = self.memory.not_seen().take(DOUBTS_MAX + 1).cloned();
        let paths: Vec<Path> = missing.chain(self.older.drain()).collect();
        if paths.len() > DOUBTS_MAX {
            self.start_over();
            return;
        }
        let doubts: Vec<Doubt> = paths
            .into_iter()
            .filter_map(|path| {
                let version = self.memory.version(&path)?.clone();
                Some(Doubt { path, version, of: Of::Delivered })
            })
            .collect();
        if doubts.is_empty() {
            self.go_live(opened);
        } else {
            let until = self.patience_ends();
            self.begin_settling(opened, doubts, (until, false), Duration::ZERO);
        }
    }

    fn on_settled(&mut self, settled: Vec<Settled>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Lost);
        let Phase::Settling { opened, doubts, until, was_live, .. } = phase else {
            self.phase = phase;
            return;
        };
        let mut behind = Vec::new();
        for (doubt, settled) in doubts.into_iter().zip(settled) {
            match (settled, doubt.of) {
                (Settled::Behind, _) => behind.push(doubt),
                // It was told before that there is nothing.
                (Settled::Newer(entry), Of::Arrived) if entry.value.is_none() => {
                    self.memory.on_delivered(&doubt.path, &entry, By::Answer);
                }
                (Settled::Newer(entry), _) | (Settled::Same(entry), Of::Arrived) => {
                    self.deliver(doubt.path, entry, By::Answer);
                }
                (Settled::Same(_), Of::Delivered) => self.memory.on_held(&doubt.path),
                (Settled::Gone { tock }, of) => {
                    let Doubt { path, version, .. } = doubt;
                    let is_news = self.memory.on_gone(&path, version, tock);
                    // What arrived and is gone was deleted before anybody was told of it.
                    if of == Of::Delivered && is_news && !self.is_silent {
                        let (value, chain) = (None, None);
                        let change = Change { path, value, chain, tock, time_ms: None };
                        self.queue.push_back(WatchEvent::Change(change));
                    }
                }
            }
        }
        if behind.is_empty() && was_live {
            self.phase = Phase::Live(opened);
        } else if behind.is_empty() {
            self.go_live(opened);
        } else if rt::now() < until {
            self.begin_settling(opened, behind, (until, was_live), LOOK_INTERVAL);
        } else {
            self.start_over();
        }
    }

    fn go_live(&mut self, opened: Opened) {
        self.is_silent = false;
        if std::mem::replace(&mut self.owes_state, false) {
            self.queue.push_back(WatchEvent::UpToDate);
        } else {
            count(&self.client.counts.watches_resumed);
            self.queue.push_back(WatchEvent::Resumed { node: opened.node.name.clone() });
        }
        self.phase = Phase::Live(opened);
    }

    /// The stream has ended.
    fn on_lost(&mut self) {
        count(&self.client.counts.watches_lost);
        let phase = std::mem::replace(&mut self.phase, Phase::Lost);
        if let Phase::Fetching(opened) | Phase::Live(opened) | Phase::Settling { opened, .. } =
            phase
        {
            self.search.on_lost(&opened, &self.client.config.retry);
        }
        // Of a first state that nobody was told and that has not come whole, what changed meanwhile cannot be known.
        let is_over = self.client.door.is_closing();
        if !is_over && (!self.memory.is_whole() || self.is_silent) {
            self.start_over();
        }
    }

    /// What was reported does not count any more.
    fn start_over(&mut self) {
        count(&self.client.counts.watches_restarted);
        self.memory.clear();
        self.older.clear();
        self.phase = Phase::Lost;
        (self.owes_state, self.is_silent) = (true, false);
        if !is_broken(Rule::Restart) {
            self.queue.push_back(WatchEvent::Restarted);
        }
    }
}

#[cfg(test)]
mod tests;
