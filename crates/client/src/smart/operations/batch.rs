//! Many reads and writes in one request with one reply. No transaction: what fails does not keep the
//! rest from being done, and others' changes may come in between.

use serde::Serialize;

use super::entry::{self, Entry, Written, malformed};
use super::options::{PutOptions, WriteId};
use super::write_places::Turn;
use crate::error::{ClientError, ServerError};
use crate::message::{Fields, Message, array_items};
use crate::model::path::Path;
use crate::model::shard::shard_of;
use crate::model::value::{Value, write_array_len};
use crate::pool::NodeIdentity;
use crate::retry::deviations::{Rule, is_broken};
use crate::retry::{ErrorClass, Idempotency};
use crate::smart::choice::call::{Plan, Served, fate_of, worse};
use crate::smart::error::{At, CallError, Fate};
use crate::smart::{Client, Inner};

/// Most operations of a batch.
pub const BATCH_OPS_MAX: usize = 1024;

/// Operations that are to be done in this order. One operation sees what those before it did.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    ops: Vec<Op>,
}

#[derive(Debug, Clone)]
struct Op {
    path: Path,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Get,
    Put(Value, PutOptions),
    Delete(PutOptions),
}

/// What one operation of a batch came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchReply {
    /// The entry; without value and chain if there is none.
    Read(Entry),
    /// What a write or a deletion did.
    Written(Written),
    /// The node refused it; the other operations were executed. It is a [`CallError::Refused`], whose
    /// [`CallError::fate`] says whether an earlier try of the batch may have done it.
    Refused(CallError),
}

/// The node's answer to one operation.
type Answer = Result<BatchReply, ServerError>;

/// Whether the node has made a change.
fn is_made(answer: &Answer) -> bool {
    match answer {
        Ok(reply) => matches!(reply, BatchReply::Written(_)),
        Err(error) => error.is_made,
    }
}

impl Batch {
    /// An empty one.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Reads an entry.
    pub fn get(&mut self, path: &Path) -> &mut Batch {
        self.push(path, Kind::Get)
    }

    /// Writes a value.
    ///
    /// # Errors
    /// [`CallError::Value`]; the batch stays as it was.
    pub fn put<T: Serialize + ?Sized>(
        &mut self,
        path: &Path,
        value: &T,
    ) -> Result<&mut Batch, CallError> {
        let value = entry::encode(value)?;
        Ok(self.put_raw(path, &value, &PutOptions::default()))
    }

    /// Writes a value in MessagePack, with options. [`PutOptions::copies`] and [`PutOptions::deadline`] have no
    /// effect: a batch waits for no copies, and has the deadline of the client's
    /// [`RetryPolicy`](crate::RetryPolicy).
    pub fn put_raw(&mut self, path: &Path, value: &Value, options: &PutOptions) -> &mut Batch {
        self.push(path, Kind::Put(value.clone(), options.clone()))
    }

    /// Deletes an entry.
    pub fn delete(&mut self, path: &Path) -> &mut Batch {
        self.push(path, Kind::Delete(PutOptions::default()))
    }

    /// The same with options.
    pub fn delete_with(&mut self, path: &Path, options: &PutOptions) -> &mut Batch {
        self.push(path, Kind::Delete(options.clone()))
    }

    /// How many operations it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    fn push(&mut self, path: &Path, kind: Kind) -> &mut Batch {
        self.ops.push(Op { path: path.clone(), kind });
        self
    }

    /// Its operations as a field's value, and what a second try would do.
    fn encode(&self, client: &Inner, turn: &mut Option<Turn<'_>>) -> (Vec<u8>, Idempotency) {
        let mut bytes = Vec::new();
        let mut idempotency = Idempotency::Read;
        write_array_len(self.ops.len(), &mut bytes);
        for op in &self.ops {
            let mut fields = Fields::at(&op.path);
            let options = match &op.kind {
                Kind::Get => {
                    fields.str("action", "get_value").u64("nchain", 1).bool("with_time", true);
                    None
                }
                Kind::Put(value, options) => {
                    fields.str("action", "set_value").raw("value", value.as_bytes());
                    Some(options)
                }
                Kind::Delete(options) => {
                    fields.str("action", "delete_value");
                    Some(options)
                }
            };
            if let Some(options) = options {
                let id: Option<WriteId> = options.decide_id(turn.as_mut());
                // In a batch, a write cannot wait for copies.
                options.write_into(id, &mut fields);
                let may_be_done = matches!(op.kind, Kind::Delete(_)) || options.is_idempotent();
                client.order_into(&op.path, may_be_done, &mut fields);
                idempotency = match (idempotency, options.idempotency(id)) {
                    (Idempotency::Unguarded, _) | (_, Idempotency::Unguarded) => {
                        Idempotency::Unguarded
                    }
                    (_, _) => Idempotency::Guarded,
                };
            }
            bytes.extend_from_slice(&fields.encode());
        }
        (bytes, idempotency)
    }

    /// Where the first of its operations that has a condition goes, if that is no live node.
    fn apart(&self, client: &Inner) -> Option<String> {
        self.ops.iter().find_map(|op| match &op.kind {
            Kind::Put(_, options) | Kind::Delete(options) if options.has_condition() => {
                client.apart(&op.path)
            }
            Kind::Get | Kind::Put(..) | Kind::Delete(_) => None,
        })
    }

    /// The answers, in the order of the operations. An error that another node might not have
    /// becomes the error of the whole batch if the batch can be retried; it says whether any of it is made.
    fn decode(
        &self,
        reply: &Message,
        node: &str,
        is_repeatable: bool,
    ) -> Result<Vec<Answer>, ClientError> {
        let results = reply.get("results").ok_or_else(|| malformed(node, "results"))?;
        let mut answers = Vec::with_capacity(self.ops.len());
        let mut passing = None;
        for (op, result) in self.ops.iter().zip(array_items(results)) {
            let message = Message::new(result).map_err(|_| malformed(node, "a result"))?;
            let answer = match (message.error(), &op.kind) {
                (Some(error), _) => {
                    if passing.is_none() && ErrorClass::of_server(&error) != ErrorClass::Final {
                        passing = Some(error.clone());
                    }
                    Err(error)
                }
                (None, Kind::Get) => Ok(BatchReply::Read(entry::entry_of(&message, node)?)),
                (None, Kind::Put(..) | Kind::Delete(_)) => {
                    Ok(BatchReply::Written(entry::written_of(&message, node)?))
                }
            };
            answers.push(answer);
        }
        if answers.len() != self.ops.len() {
            return Err(malformed(node, "the number of results"));
        }
        match passing {
            Some(error) if is_repeatable && !is_broken(Rule::Batch) => {
                let is_made = answers.iter().any(is_made);
                Err(ServerError { is_made, ..error }.into())
            }
            _ => Ok(answers),
        }
    }
}

impl Op {
    /// The node's error, and what is known of the operation: the batch may have been tried before.
    fn refusal(&self, error: ServerError, served: &Served<()>) -> CallError {
        let fate = match self.kind {
            Kind::Get => Fate::NotDone,
            Kind::Put(..) | Kind::Delete(_) => {
                let class = ErrorClass::of_server(&error);
                worse(served.earlier, fate_of(class, error.is_made, Idempotency::Unguarded))
            }
        };
        let (node, attempts) = (Some(served.node().name.clone()), served.attempts);
        CallError::Refused { error, at: At { node, attempts, fate } }
    }
}

impl Client {
    /// Carries out a batch at one node: the one that is preferred for its first path.
    ///
    /// # Errors
    /// [`CallError::Usage`] above [`BATCH_OPS_MAX`] operations; else [`CallError`]: nothing is
    /// known of any of its operations but the fate of them all.
    pub async fn batch(&self, batch: &Batch) -> Result<Vec<BatchReply>, CallError> {
        if batch.len() > BATCH_OPS_MAX {
            let text = format!("a batch has at most {BATCH_OPS_MAX} operations");
            return Err(CallError::Usage(text));
        }
        let Some(first) = batch.ops.first() else { return Ok(Vec::new()) };
        let mut turn = self.inner.turn(batch.len());
        let (ops, idempotency) = batch.encode(&self.inner, &mut turn);
        let mut fields = Fields::new();
        fields.raw("ops", &ops);
        let fields = &fields;
        let shard = shard_of(&first.path);
        let first = match idempotency {
            Idempotency::Read => self.inner.home(shard),
            Idempotency::Guarded | Idempotency::Unguarded => batch.apart(&self.inner),
        };
        let needs_id = batch.ops.iter().any(|op| match &op.kind {
            Kind::Get => false,
            Kind::Put(_, options) | Kind::Delete(options) => options.needs_id(),
        });
        let plan = Plan {
            first: first.as_deref(),
            needs_id,
            bytes: fields.byte_len(),
            ..Plan::new("batch", shard, idempotency)
        };
        let is_repeatable = idempotency != Idempotency::Unguarded;
        let served = self.inner.call(plan, |used| async move {
            let reply = used.request("batch", fields).await?;
            batch.decode(&reply, &used.identity().name, is_repeatable)
        });
        let served = served.await?;
        let (answers, served) = served.split();
        let tell = |(op, answer): (&Op, Answer)| match answer {
            Ok(BatchReply::Written(mut written)) => {
                served.tell(&mut written);
                self.note(op, &written, served.node());
                BatchReply::Written(written)
            }
            Ok(BatchReply::Read(entry)) => {
                self.inner.note_answer(&op.path, &entry.node);
                BatchReply::Read(entry)
            }
            Ok(reply @ BatchReply::Refused(_)) => reply,
            Err(error) => BatchReply::Refused(op.refusal(error, &served)),
        };
        Ok(batch.ops.iter().zip(answers).map(tell).collect())
    }

    fn note(&self, op: &Op, written: &Written, node: &NodeIdentity) {
        if written.chain.is_some() {
            self.inner.note_write(&op.path, written.tock, node);
        }
    }
}
