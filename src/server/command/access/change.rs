//! One change of a user's entries: what must be there for it, and how it is made.

use distkv_access::users::user_acl_path;

use crate::engine::{BatchTerms, Engine, Operation, Outcome, WriteOp};
use crate::model::entry::Entry;
use crate::model::invariant::OrBroken;
use crate::model::path::{Path, PathError};
use crate::model::spelling::LifeRef;
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

/// The user's record, and what is known of the user's removals, of one moment.
pub(super) fn look_up(
    cx: &Context<'_>,
    method: &str,
    user: &str,
    path: &Path,
) -> Result<(Option<Entry>, Known), ClientError> {
    let tree = cx.hub.read(|engine| engine.tree().clone());
    Ok((tree.get(path.as_bytes()).cloned(), Known::of(&tree, method, user)?))
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
    match (*chain, absent.filter(|entry| !entry.is_tombstone())) {
        (ChainField::Any, _) => Ok(ANY),
        (ChainField::New, None) => Ok((ChainCondition::MustBeNew, None)),
        (ChainField::New, Some(entry)) => Ok((ChainCondition::Newest(entry.newest()), None)),
        (ChainField::Newest { life, tick }, None) => Ok((ChainCondition::Any, Some((life, tick)))),
        (ChainField::Newest { .. }, Some(_)) => Err(engine_error(&WriteError::IsNew.into())),
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
        None => {
            let text =
                "users or access lists were changed at this moment; nothing was changed; try again";
            Err(ClientError::new(ErrorCode::NotReady, text))
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn too_long(error: PathError) -> ClientError {
    ClientError::bad_request(format!("the names are too long: {error}"))
}
