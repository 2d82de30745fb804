//! Reading and writing one entry.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::entry::{self, Entry, Written};
use super::options::{GetOptions, PutOptions};
use super::write_places::Turn;
use crate::error::ClientError;
use crate::message::{Fields, Message};
use crate::model::path::Path;
use crate::model::shard::shard_of;
use crate::model::value::Value;
use crate::pool::NodeIdentity;
use crate::rt;
use crate::smart::choice::call::{Plan, Served};
use crate::smart::choice::read_modes::ReadRequest;
use crate::smart::choice::tries::Try;
use crate::smart::error::CallError;
use crate::smart::{Client, Inner};

impl Client {
    /// The value at a path, if there is one. A stored nil is a value: ask for an `Option` in turn, or for
    /// the value as it is.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Value`] if it is not of this type.
    pub async fn get<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>, CallError> {
        self.get_with(path, GetOptions::new()).await
    }

    /// As [`Client::get`], with options, or in another read mode than the client's.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Value`] if it is not of this type.
    pub async fn get_with<T: DeserializeOwned>(
        &self,
        path: &Path,
        options: impl Into<GetOptions>,
    ) -> Result<Option<T>, CallError> {
        match self.get_raw_with(path, options).await? {
            Some(value) => entry::decode(&value).map(Some),
            None => Ok(None),
        }
    }

    /// As [`Client::get`], as MessagePack.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get_raw(&self, path: &Path) -> Result<Option<Value>, CallError> {
        self.get_raw_with(path, GetOptions::new()).await
    }

    /// As [`Client::get_with`], as MessagePack.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get_raw_with(
        &self,
        path: &Path,
        options: impl Into<GetOptions>,
    ) -> Result<Option<Value>, CallError> {
        let request = ReadRequest { path, with_chain: false };
        Ok(self.inner.read(request, options.into()).await?.value)
    }

    /// The entry at a path with its chain, which a put with a chain as precondition needs. `None`
    /// if there never was an entry, or it was deleted and purged; a deleted entry has no value.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get_entry(&self, path: &Path) -> Result<Option<Entry>, CallError> {
        self.get_entry_with(path, GetOptions::new()).await
    }

    /// As [`Client::get_entry`], with options, or in another read mode than the client's.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get_entry_with(
        &self,
        path: &Path,
        options: impl Into<GetOptions>,
    ) -> Result<Option<Entry>, CallError> {
        let request = ReadRequest { path, with_chain: true };
        let entry = self.inner.read(request, options.into()).await?;
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
    /// [`CallError`]; its [`CallError::fate`] says whether the write may have been made, and
    /// [`CallError::is_precondition`] whether a precondition did not hold.
    pub async fn put_with<T: Serialize + ?Sized + Sync>(
        &self,
        path: &Path,
        value: &T,
        options: &PutOptions,
    ) -> Result<Written, CallError> {
        let value = entry::encode(value)?;
        self.put_raw(path, &value, options).await
    }

    /// As [`Client::put_with`], with a value as MessagePack.
    ///
    /// # Errors
    /// [`CallError`], as [`Client::put_with`].
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
    /// [`CallError`]; its [`CallError::fate`] says whether the entry may have been deleted.
    pub async fn delete(&self, path: &Path) -> Result<Written, CallError> {
        self.delete_with(path, &PutOptions::default()).await
    }

    /// As [`Client::delete`], with options.
    ///
    /// # Errors
    /// [`CallError`]; its [`CallError::fate`] says whether the entry may have been deleted, and
    /// [`CallError::is_precondition`] whether a precondition did not hold.
    pub async fn delete_with(
        &self,
        path: &Path,
        options: &PutOptions,
    ) -> Result<Written, CallError> {
        self.inner.write(path, None, options).await
    }
}

impl Inner {
    /// One request with one reply.
    pub(in crate::smart) async fn request(
        &self,
        plan: Plan<'_>,
        fields: &Fields,
    ) -> Result<Served<Message>, CallError> {
        let plan = Plan { bytes: fields.byte_len(), ..plan };
        self.call(plan, |used| request_on(used, plan.action, fields)).await
    }

    async fn write(
        &self,
        path: &Path,
        value: Option<&Value>,
        options: &PutOptions,
    ) -> Result<Written, CallError> {
        // Until it is dropped, at the end or before, the write is waited for.
        let mut turn = self.turn(1);
        let id = options.decide_id(turn.as_mut());
        let mut fields = Fields::at(path);
        let action = match value {
            Some(value) => {
                fields.raw("value", value.as_bytes());
                "set_value"
            }
            None => "delete_value",
        };
        options.write_into(id, &mut fields);
        self.order_into(path, value.is_none() || options.is_idempotent(), &mut fields);
        let policy = &self.config.retry;
        let total_deadline = options.deadline.unwrap_or(policy.total_deadline);
        let started = rt::now();
        let apart = options.has_condition().then(|| self.apart(path)).flatten();
        let plan = Plan {
            first: apart.as_deref(),
            deadline: options.deadline,
            needs_id: options.needs_id(),
            bytes: fields.byte_len(),
            ..Plan::new(action, shard_of(path), options.idempotency(id))
        };
        let fields = &fields;
        let served = self.call(plan, |used| async move {
            let fields = options.with_copies(fields, || {
                let waited = Duration::from_millis(rt::now().saturating_sub(started));
                policy.try_deadline.min(total_deadline.saturating_sub(waited))
            });
            let reply = used.request(action, &fields).await?;
            entry::written_of(&reply, &used.identity().name)
        });
        let served = served.await?;
        let (mut written, served) = served.split();
        served.tell(&mut written);
        if written.chain.is_some() {
            self.note_write(path, written.tock, served.node());
        }
        Ok(written)
    }

    /// A node acknowledged a write.
    pub(super) fn note_write(&self, path: &Path, tock: u64, node: &NodeIdentity) {
        self.own_writes.on_written(path, tock, node);
        self.note_answer(path, &node.name);
    }

    /// A call that makes so many writes, if they have ids; until it is dropped, they are waited for.
    pub(super) fn turn(&self, writes: usize) -> Option<Turn<'_>> {
        let writes = u32::try_from(writes).unwrap_or(u32::MAX);
        self.config.writes_ids.then(|| self.write_places.begin(writes))
    }

    /// What a write says of what this client knows: it comes after that. Where it may seem to be done already, the node
    /// is also told of the client's own last write of the path, of which it may not have heard.
    pub(super) fn order_into(&self, path: &Path, may_be_done: bool, to: &mut Fields) {
        self.pool.clock().write_into(to);
        if may_be_done && let Some(own) = self.own_writes.tock(path) {
            to.u64("own", own);
        }
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

/// One request in a try.
async fn request_on(this: Try, action: &str, fields: &Fields) -> Result<Message, ClientError> {
    this.request(action, fields).await
}
