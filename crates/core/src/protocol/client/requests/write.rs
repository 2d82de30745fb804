//! The change of one entry that a client asks for: `set_value`, `delete_value`, their internal
//! forms.

use crate::model::ids::{Millis, Tock};
use crate::model::value::{Kind, Reader};
use crate::model::write_id::WriteId;
use crate::protocol::client::action::Action;
use crate::protocol::client::chain::ChainField;
use crate::protocol::client::decode::{chain_length, path};
use crate::protocol::client::error::ClientError;
use crate::protocol::client::field::{Field, Fields, wrong, wrong_kind};
use crate::protocol::client::request::{ChainLength, RequestPath};

/// How long a write waits for its copies unless the request says how long.
const COPIES_TIMEOUT_MS: Millis = 10_000;
/// The longest that a write may wait for its copies.
const COPIES_TIMEOUT_MS_MAX: Millis = 3_600_000;

/// A change of one entry that is asked for.
#[derive(Debug)]
pub struct WriteRequest<'a> {
    /// For hooks and messages: which of the four it is.
    pub action: Action,
    /// Where.
    pub path: RequestPath<'a>,
    /// The new value, checked; none to delete.
    pub value: Option<&'a [u8]>,
    /// What the newest event must be.
    pub chain: ChainField<'a>,
    /// Whether the newest event may be that of a deletion. Without it a deleted entry is new, as with the original.
    pub of_deletion: bool,
    /// What the old value must be.
    pub prev: Option<&'a [u8]>,
    /// Make no event for the same value.
    pub idempotent: bool,
    /// How much of the chain the reply holds.
    pub reply_chain: ChainLength,
    /// How many peers must have acknowledged the change before the reply; 0 for none.
    pub copies: usize,
    /// How long to wait for them.
    pub copies_timeout: Millis,
    /// By this one the write is known when it comes again.
    pub write_id: Option<WriteId>,
    /// The greatest tock that the client has heard of: the change comes after it.
    pub above: Tock,
    /// The tock of the client's own last change there, as far as it remembers.
    pub own: Tock,
}

pub(super) fn decode_write<'a>(
    action: Action,
    fields: &Fields<'a>,
) -> Result<WriteRequest<'a>, ClientError> {
    let path = path(action, fields)?;
    let sets = matches!(action, Action::SetValue | Action::SetInternal);
    let value = fields.value(Field::Value)?;
    if sets && value.is_none() {
        return Err(ClientError::bad_request(
            "the field 'value' is missing. Call 'delete_value' if you want to clear the value",
        ));
    }
    if !sets && value.is_some() {
        return Err(ClientError::bad_request("A deleted entry can't have a value"));
    }
    let copies = fields.int_or_nil(Field::Copies)?.unwrap_or(0);
    let copies = usize::try_from(copies).map_err(|_| {
        ClientError::bad_request("bad field 'copies': it must be 0 or a number of peers")
    })?;
    Ok(WriteRequest {
        action,
        path,
        value,
        chain: ChainField::decode(fields.get(Field::Chain))?,
        of_deletion: fields.flag(Field::Deleted)?,
        prev: fields.value(Field::Prev)?,
        idempotent: fields.flag(Field::Idem)?,
        reply_chain: chain_length(fields, 1)?,
        copies,
        copies_timeout: timeout(fields)?,
        write_id: write_id(fields)?,
        above: heard_tock(fields, Field::Above)?,
        own: heard_tock(fields, Field::Own)?,
    })
}

/// The field `wid`: a byte string of 16 bytes.
fn write_id(fields: &Fields<'_>) -> Result<Option<WriteId>, ClientError> {
    let Some(raw) = fields.get_non_nil(Field::Wid) else { return Ok(None) };
    let bytes = Reader::new(raw).read_bin().map_err(|e| wrong(Field::Wid, &e))?;
    let id = bytes.try_into().map_err(|_| {
        let text = format!("bad field 'wid': {} bytes instead of {}", bytes.len(), WriteId::BYTES);
        ClientError::bad_request(text)
    })?;
    Ok(Some(WriteId(id)))
}

/// A tock that the client was told, or 0.
pub(super) fn heard_tock(fields: &Fields<'_>, field: Field) -> Result<Tock, ClientError> {
    let number = fields.int_or_nil(field)?.unwrap_or(0);
    u64::try_from(number).ok().and_then(Tock::new).ok_or_else(|| {
        let text = format!("bad field '{}': it is out of the range of tocks", field.name());
        ClientError::bad_request(text)
    })
}

/// The field `timeout`: seconds, as an integer or a float.
pub(super) fn timeout(fields: &Fields<'_>) -> Result<Millis, ClientError> {
    let Some(raw) = fields.get_non_nil(Field::Timeout) else { return Ok(COPIES_TIMEOUT_MS) };
    let mut reader = Reader::new(raw);
    let seconds = match reader.peek_kind() {
        Ok(Kind::Float) => reader.read_f64(),
        Ok(Kind::Int) => reader.read_int().map(|s| s as f64),
        _ => Err(wrong_kind(raw, "a number of seconds")),
    };
    let seconds = seconds.map_err(|e| wrong(Field::Timeout, &e))?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err(ClientError::bad_request("bad field 'timeout': it must be 0 or above"));
    }
    Ok(((seconds * 1000.0) as Millis).min(COPIES_TIMEOUT_MS_MAX))
}
