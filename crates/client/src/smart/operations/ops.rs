//! Reading, writing, and trees.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::entry::{self, Entry, TreeEntry, Written};
use crate::chain::Chain;
use crate::connection::{ReplyStream, StreamEvent};
use crate::error::ClientError;
use crate::message::{Fields, Message};
use crate::model::path::Path;
use crate::model::shard::shard_of;
use crate::model::value::Value;
use crate::pool::PooledConnection;
use crate::retry::Idempotency;
use crate::rt;
use crate::smart::choice::call::{Plan, Served};
use crate::smart::choice::read_modes::ReadRequest;
use crate::smart::error::CallError;
use crate::smart::{Client, Inner, ReadMode};

/// Most entries that [`Client::tree`] gives back; a greater tree is an error.
pub const TREE_ENTRIES_MAX: usize = 1 << 20;

/// The id by which nodes recognise a write: two writes never have the same. Random, and never used
/// for anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriteId(pub [u8; 16]);

impl WriteId {
    /// A new one.
    #[must_use]
    pub fn random() -> WriteId {
        let both = [rt::random_u64().to_be_bytes(), rt::random_u64().to_be_bytes()];
        let mut id = [0; 16];
        id.iter_mut().zip(both.iter().flatten()).for_each(|(to, from)| *to = *from);
        WriteId(id)
    }
}

/// The options of a write. The default: no precondition, an id of its own, no waiting for copies.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    chain: ChainCondition,
    prev: Option<Value>,
    id: Id,
    copies: u64,
    idempotent: bool,
    deadline: Option<Duration>,
}

#[derive(Debug, Clone, Default)]
enum ChainCondition {
    #[default]
    Any,
    New,
    Newest(Chain),
}

#[derive(Debug, Clone, Copy, Default)]
enum Id {
    #[default]
    Automatic,
    Given(WriteId),
    None,
}

impl PutOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> PutOptions {
        PutOptions::default()
    }

    /// Only if the entry's newest event is still this chain's, that is, if nobody has written
    /// since.
    #[must_use]
    pub fn chain(self, chain: Chain) -> PutOptions {
        PutOptions { chain: ChainCondition::Newest(chain), ..self }
    }

    /// Only if there is no value.
    #[must_use]
    pub fn must_be_new(self) -> PutOptions {
        PutOptions { chain: ChainCondition::New, ..self }
    }

    /// Only if the value is this one.
    #[must_use]
    pub fn prev(self, value: Value) -> PutOptions {
        PutOptions { prev: Some(value), ..self }
    }

    /// With this id: another program can make the same write again, also after a restart, and it
    /// counts once.
    #[must_use]
    pub fn write_id(self, id: WriteId) -> PutOptions {
        PutOptions { id: Id::Given(id), ..self }
    }

    /// Without an id: if it is unknown whether the write was made, that is an error, unless it has
    /// a chain as its precondition.
    #[must_use]
    pub fn without_write_id(self) -> PutOptions {
        PutOptions { id: Id::None, ..self }
    }

    /// The write succeeds only when this many other nodes have it.
    #[must_use]
    pub fn copies(self, copies: u64) -> PutOptions {
        PutOptions { copies, ..self }
    }

    /// The same value again is no change.
    #[must_use]
    pub fn idempotent(self) -> PutOptions {
        PutOptions { idempotent: true, ..self }
    }

    /// How long all tries may take together, instead of what the client's policy says.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> PutOptions {
        PutOptions { deadline: Some(deadline), ..self }
    }

    /// Adds the fields of one write. `try_deadline`: the node's wait for copies ends before.
    pub(super) fn write_into(&self, id: Option<WriteId>, try_deadline: Duration, to: &mut Fields) {
        match &self.chain {
            ChainCondition::Any => {}
            ChainCondition::New => drop(to.nil("chain")),
            ChainCondition::Newest(chain) => {
                let mut bytes = Vec::new();
                chain.encode(&mut bytes);
                to.raw("chain", &bytes);
            }
        }
        if let Some(prev) = &self.prev {
            to.raw("prev", prev.as_bytes());
        }
        if let Some(WriteId(id)) = id {
            to.bin("wid", &id);
        }
        if self.idempotent {
            to.bool("idem", true);
        }
        if self.copies > 0 {
            // So that the node's own answer comes, which says more than silence.
            let wait = try_deadline.mul_f64(COPIES_SHARE);
            to.u64("copies", self.copies).f64("timeout", wait.as_secs_f64());
        }
        to.u64("nchain", 1);
    }

    /// As above for a batch, in which a write cannot wait for copies.
    pub(super) fn write_into_batch(&self, id: Option<WriteId>, to: &mut Fields) {
        let without = PutOptions { copies: 0, ..self.clone() };
        without.write_into(id, Duration::ZERO, to);
    }

    /// The id that all tries carry.
    pub(super) fn decide_id(&self, is_default: bool) -> Option<WriteId> {
        match self.id {
            Id::Given(id) => Some(id),
            Id::Automatic if is_default => Some(WriteId::random()),
            Id::Automatic | Id::None => None,
        }
    }

    /// Whether only the id makes a second try count once.
    pub(in crate::smart) fn needs_id(&self) -> bool {
        matches!(self.chain, ChainCondition::Any) && !self.idempotent
    }

    /// Whether a second try counts once.
    pub(in crate::smart) fn idempotency(&self, id: Option<WriteId>) -> Idempotency {
        let has_chain = !matches!(self.chain, ChainCondition::Any);
        if id.is_some() || has_chain || self.idempotent {
            Idempotency::Guarded
        } else {
            Idempotency::Unguarded
        }
    }
}

/// The part of a try's time for which a node waits for copies.
const COPIES_SHARE: f64 = 0.75;

/// What part of a tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct TreeOptions {
    /// Levels below the path before which nothing is given.
    pub min_depth: Option<u64>,
    /// Levels below the path behind which nothing is given.
    pub max_depth: Option<u64>,
    /// Whether chains are given, for preconditions.
    pub with_chains: bool,
}

/// How a tree is deleted.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeleteTreeOptions {
    /// Retry also if it is unknown whether all of it was done: entries that others wrote between
    /// two tries are deleted as well.
    pub again_if_unknown: bool,
}

impl Client {
    /// The value at a path, if there is one.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Value`] if it is not of this type.
    pub async fn get<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>, CallError> {
        match self.get_raw(path).await? {
            Some(value) => entry::decode(&value).map(Some),
            None => Ok(None),
        }
    }

    /// The same, as MessagePack.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get_raw(&self, path: &Path) -> Result<Option<Value>, CallError> {
        let request = ReadRequest { path, with_chain: false };
        Ok(self.inner.read(request, self.inner.config.read_mode).await?.value)
    }

    /// The entry at a path with its chain, which a put with a chain as precondition needs. `None`
    /// if there never was an entry, or it was deleted and purged; a deleted entry has no value.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get_entry(&self, path: &Path) -> Result<Option<Entry>, CallError> {
        self.get_entry_with(path, self.inner.config.read_mode).await
    }

    /// The same with another read mode than the client's.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get_entry_with(
        &self,
        path: &Path,
        mode: ReadMode,
    ) -> Result<Option<Entry>, CallError> {
        let entry = self.inner.read(ReadRequest { path, with_chain: true }, mode).await?;
        Ok((entry.value.is_some() || entry.chain.is_some()).then_some(entry))
    }

    /// Writes a value.
    ///
    /// # Errors
    /// [`CallError`]; its [`CallError::fate`] says whether the write may have been made.
    pub async fn put<T: Serialize + ?Sized + Sync>(
        &self,
        path: &Path,
        value: &T,
    ) -> Result<Written, CallError> {
        self.put_with(path, value, &PutOptions::default()).await
    }

    /// As [`Client::put`], with options.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::is_precondition`] if another write came first.
    pub async fn put_with<T: Serialize + ?Sized + Sync>(
        &self,
        path: &Path,
        value: &T,
        options: &PutOptions,
    ) -> Result<Written, CallError> {
        let value = entry::encode(value)?;
        self.put_raw(path, &value, options).await
    }

    /// The same with a value as MessagePack.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn put_raw(
        &self,
        path: &Path,
        value: &Value,
        options: &PutOptions,
    ) -> Result<Written, CallError> {
        self.inner.write(path, Some(value), options).await
    }

    /// Deletes the entry at a path; entries below it stay.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn delete(&self, path: &Path) -> Result<Written, CallError> {
        self.delete_with(path, &PutOptions::default()).await
    }

    /// The same with options.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn delete_with(
        &self,
        path: &Path,
        options: &PutOptions,
    ) -> Result<Written, CallError> {
        self.inner.write(path, None, options).await
    }

    /// Deletes all values at and below a path, as the node that is asked has them; returns how
    /// many.
    ///
    /// # Errors
    /// [`CallError`]. Part of it may have been done if the fate is unknown.
    pub async fn delete_tree(
        &self,
        path: &Path,
        options: DeleteTreeOptions,
    ) -> Result<u64, CallError> {
        let fields = &Fields::at(path);
        let idempotency = match options.again_if_unknown {
            true => Idempotency::Guarded,
            false => Idempotency::Unguarded,
        };
        let mut plan = Plan::new(shard_of(path), idempotency);
        // As many entries as there are take as long as that takes.
        plan.try_deadline = Some(self.inner.config.retry.total_deadline);
        let served = self.inner.request(plan, "delete_tree", fields).await?;
        self.inner.own_writes.on_tree_deleted(shard_of(path), &served.node);
        Ok(served.value.u64("changed").unwrap_or(0))
    }

    /// All values at and below a path as one node has them at one moment, parents first, in the
    /// order of paths; at most [`TREE_ENTRIES_MAX`].
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn tree(
        &self,
        path: &Path,
        options: TreeOptions,
    ) -> Result<Vec<TreeEntry>, CallError> {
        let mut fields = Fields::at(path);
        if let Some(depth) = options.min_depth {
            fields.u64("min_depth", depth);
        }
        if let Some(depth) = options.max_depth {
            fields.u64("max_depth", depth);
        }
        if options.with_chains {
            fields.u64("nchain", 1).bool("with_time", true);
        }
        let fields = &fields;
        let home = self.inner.home(shard_of(path));
        let mut plan = Plan { first: home.as_deref(), ..Plan::read(shard_of(path)) };
        plan.try_deadline = Some(self.inner.config.retry.total_deadline);
        let patience = self.inner.config.retry.try_deadline;
        let tree = self.inner.call(plan, |used| async move {
            let mut stream = used.connection().stream("get_tree", fields).await?;
            let node = &used.identity().name;
            let mut entries = Vec::new();
            while let Some((below, message)) = next_item(&mut stream, node, patience).await? {
                if entries.len() >= TREE_ENTRIES_MAX {
                    // Another try would find as many.
                    return Ok(None);
                }
                let path = path.join(&below).map_err(|_| entry::malformed(node, "path"))?;
                entries.push(TreeEntry { path, entry: entry::entry_of(&message, node)? });
            }
            Ok(Some(entries))
        });
        tree.await?.value.ok_or_else(|| {
            CallError::Usage(format!("there are more than {TREE_ENTRIES_MAX} entries"))
        })
    }
}

impl Inner {
    /// One request with one reply.
    pub(in crate::smart) async fn request(
        &self,
        plan: Plan<'_>,
        action: &str,
        fields: &Fields,
    ) -> Result<Served<Message>, CallError> {
        self.call(plan, |used| request_on(used, action, fields)).await
    }

    async fn write(
        &self,
        path: &Path,
        value: Option<&Value>,
        options: &PutOptions,
    ) -> Result<Written, CallError> {
        let id = options.decide_id(self.config.writes_ids);
        let mut fields = Fields::at(path);
        let action = match value {
            Some(value) => {
                fields.raw("value", value.as_bytes());
                "set_value"
            }
            None => "delete_value",
        };
        options.write_into(id, self.config.retry.try_deadline, &mut fields);
        let plan = Plan {
            deadline: options.deadline,
            needs_id: options.needs_id(),
            ..Plan::new(shard_of(path), options.idempotency(id))
        };
        let fields = &fields;
        let served = self.call(plan, |used| async move {
            let reply = used.connection().request(action, fields).await?;
            entry::written_of(&reply, &used.identity().name)
        });
        let served = served.await?;
        let (mut written, served) = served.split();
        served.tell(&mut written);
        if written.chain.is_some() {
            self.own_writes.on_written(path, written.tock, &served.node);
        }
        Ok(written)
    }

    /// The name of the node whose answer has this client's own writes of a shard, if it lives.
    pub(in crate::smart) fn home(&self, shard: u16) -> Option<String> {
        let home = self.own_writes.home(shard)?;
        let routing = self.topology.routing();
        let target = routing.by_name(&home.name)?;
        let is_same_life = match (target.incarnation, home.incarnation) {
            (Some(now), Some(then)) => now == then,
            (None, _) | (_, None) => true,
        };
        (target.is_live && is_same_life).then_some(home.name)
    }
}

/// One request on a connection.
pub(super) async fn request_on(
    used: Arc<PooledConnection>,
    action: &str,
    fields: &Fields,
) -> Result<Message, ClientError> {
    used.connection().request(action, fields).await
}

/// The next item of a stream that has an end, within the given time.
pub(super) async fn next_item(
    stream: &mut ReplyStream,
    node: &str,
    patience: Duration,
) -> Result<Option<(Path, Message)>, ClientError> {
    loop {
        let silent = || ClientError::Lost {
            address: node.to_owned(),
            reason: format!("nothing came for {patience:?}"),
        };
        match rt::timeout(patience, stream.next()).await.unwrap_or_else(|| Err(silent()))? {
            None => return Ok(None),
            Some(StreamEvent::Item { path: Some(path), message }) => {
                return Ok(Some((path, message)));
            }
            Some(StreamEvent::Item { path: None, .. }) => {
                return Err(entry::malformed(node, "path"));
            }
            Some(StreamEvent::Start | StreamEvent::UpToDate | StreamEvent::State(..)) => {}
        }
    }
}
