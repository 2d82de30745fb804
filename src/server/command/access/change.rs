//! One change of a user's entries: what must be there for it, and how it is made.

use std::sync::Arc;

use distkv_access::users::user_acl_path;

use crate::engine::{BatchTerms, Engine, Operation, Outcome, WriteOp};
use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeTable, Tick};
use crate::model::invariant::OrBroken;
use crate::model::path::{Path, PathError};
use crate::model::spelling::LifeRef;
use crate::model::value::values_equal;
use crate::protocol::client::chain::ChainField;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::replica::write::{ChainCondition, Precondition, Write, WriteError, Written};
use crate::server::change_time;
use crate::server::command::data::value::engine_error;
use crate::server::connections::session::{Context, NodeNames};

use super::removal::Known;

/// A change that was made.
pub(super) struct Change {
    pub(super) written: Written,
    pub(super) names: NodeNames,
    /// Of the log's batch with it.
    pub(super) number: u64,
}

/// What the entry's newest event must be: known here, or as a client names it.
pub(super) type Held<'a> = (ChainCondition, Option<(LifeRef<'a>, u64)>);

/// It may be any.
pub(super) const ANY: Held<'static> = (ChainCondition::Any, None);

/// One entry's new value.
pub(super) struct Wanted<'a> {
    pub(super) path: &'a Path,
    pub(super) value: Option<&'a [u8]>,
    pub(super) held: Held<'a>,
    /// Whether what allows it must be of the present policies.
    pub(super) is_checked: bool,
}

/// A user's entries, of one moment.
pub(super) struct There {
    /// The record, which may be nobody's.
    pub(super) entry: Option<Entry>,
    /// The access list's name.
    list: Option<Entry>,
    pub(super) known: Known,
    lives: Arc<NodeTable>,
}

impl There {
    pub(super) fn look_up(
        cx: &Context<'_>,
        method: &str,
        user: &str,
        path: &Path,
    ) -> Result<Self, ClientError> {
        let list = user_acl_path(method, user).map_err(too_long)?;
        let look = |engine: &Engine| (engine.tree().clone(), Arc::clone(engine.table()));
        let (tree, lives) = cx.hub.read(look);
        let entry = |path: &Path| tree.get(path.as_bytes()).cloned();
        let known = Known::of(&tree, method, user)?;
        Ok(Self { entry: entry(path), list: entry(&list), known, lives })
    }

    /// Whether the record is what a request says that it is. A record that need not be written is not looked at by the
    /// replica, and what else the request asks for is in other entries: so this is to be asked before any of it is
    /// written. It holds until a change that is checked is made ([`Wanted::is_checked`]).
    ///
    /// # Errors
    /// It is not. Nothing was changed.
    pub(super) fn check(&self, (chain, newest): Held<'_>) -> Result<(), ClientError> {
        let named = newest.map(|(life, tick)| {
            let event = self.lives.find(life.name, life.incarnation).zip(Tick::new(tick));
            event.map(|(node, tick)| Event { node, tick })
        });
        let wanted = match (chain, named) {
            (_, Some(named)) => named,
            (ChainCondition::Newest(event), None) => Some(event),
            (ChainCondition::Unknown, None) => None,
            (ChainCondition::Any, None) => return Ok(()),
            (ChainCondition::MustBeNew, None) => {
                let is_there = live(self.entry.as_ref()).is_some();
                return if is_there { Err(refusal(WriteError::AlreadyExists)) } else { Ok(()) };
            }
        };
        let newest = live(self.entry.as_ref()).map(Entry::newest);
        let newest = newest.ok_or_else(|| refusal(WriteError::IsNew))?;
        match wanted == Some(newest) {
            true => Ok(()),
            false => Err(refusal(WriteError::ChainMismatch { newest })),
        }
    }

    /// Whether the record, and the list where one is asked for (none: it is taken away), are so already.
    pub(super) fn is(&self, record: &[u8], list: Option<Option<&[u8]>>) -> bool {
        let [present, present_list] =
            [&self.entry, &self.list].map(|entry| entry.as_ref().and_then(Entry::value));
        let is_same = |entry: Option<&[u8]>, wanted: Option<&[u8]>| match (entry, wanted) {
            (Some(entry), Some(wanted)) => values_equal(entry, wanted),
            (entry, wanted) => entry.is_none() && wanted.is_none(),
        };
        is_same(present, Some(record)) && list.is_none_or(|list| is_same(present_list, list))
    }
}

fn live(entry: Option<&Entry>) -> Option<&Entry> {
    entry.filter(|entry| !entry.is_tombstone())
}

fn refusal(error: WriteError) -> ClientError {
    engine_error(&error.into())
}

/// What a request's chain asks of a user's record. `absent`: the entry there, whose record is nobody's. Only who is there
/// can be there already, or be changed: the entry's own chain does not say that.
///
/// # Errors
/// A user is to be changed who is not there.
pub(super) fn held<'a>(
    chain: &ChainField<'a>,
    absent: Option<&Entry>,
) -> Result<Held<'a>, ClientError> {
    match (*chain, live(absent)) {
        (ChainField::Any, _) => Ok(ANY),
        (ChainField::New, None) => Ok((ChainCondition::MustBeNew, None)),
        (ChainField::New, Some(entry)) => Ok((ChainCondition::Newest(entry.newest()), None)),
        (ChainField::Newest { life, tick }, None) => Ok((ChainCondition::Any, Some((life, tick)))),
        (ChainField::Newest { .. }, Some(_)) => Err(refusal(WriteError::IsNew)),
    }
}

/// Whether a user has an access list.
pub(super) fn has_list(cx: &Context<'_>, method: &str, user: &str) -> Result<bool, ClientError> {
    let path = user_acl_path(method, user).map_err(too_long)?;
    let has = |engine: &Engine| engine.get(path.as_bytes()).is_some_and(|e| !e.is_tombstone());
    Ok(cx.hub.read(has))
}

/// Takes the list that a user has. False: it has none.
pub(super) fn take_list(cx: &Context<'_>, method: &str, user: &str) -> Result<bool, ClientError> {
    if !has_list(cx, method, user)? {
        return Ok(false);
    }
    let path = user_acl_path(method, user).map_err(too_long)?;
    make(cx, Wanted { path: &path, value: None, held: ANY, is_checked: true }).map(|_| true)
}

/// Makes one change.
pub(super) fn make(cx: &Context<'_>, wanted: Wanted<'_>) -> Result<Change, ClientError> {
    let (chain, newest) = wanted.held;
    let precondition = Precondition::chain(chain);
    let write = Write { precondition, idempotent: true, ..Write::new(wanted.path, wanted.value) };
    let op = WriteOp { newest, ..WriteOp::new(write) };
    let checked = wanted.is_checked.then_some(cx.access.policies);
    let terms = BatchTerms { with_names: true, checked, time: change_time(), ..BatchTerms::WHOLE };
    let (done, number) = cx.hub.write_batch([Operation::Write(op)], terms);
    let names = done.names.or_broken("names were asked for");
    match done.outcomes.into_iter().flatten().next().map(Outcome::into_written) {
        Some(Ok(written)) => Ok(Change { written, names, number }),
        Some(Err(error)) => Err(engine_error(&error)),
        None => Err(policies_changed()),
    }
}

/// What allowed a change does not hold any more.
pub(in crate::server) fn policies_changed() -> ClientError {
    let text = "users or access lists were changed at this moment; nothing was changed; try again";
    ClientError::new(ErrorCode::NotReady, text)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn too_long(error: PathError) -> ClientError {
    ClientError::bad_request(format!("the names are too long: {error}"))
}
