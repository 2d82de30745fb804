//! Requests about files: a change as a log has it, a snapshot's pieces, and the formats of files.

use crate::model::ids::Tock;
use crate::model::value::Reader;
use crate::protocol::client::error::ClientError;
use crate::protocol::client::field::{Field, Fields, wrong};
use crate::protocol::client::request::RequestPath;
use crate::protocol::client::write::heard_tock;

/// A change as a log has it, to be made again.
#[derive(Debug)]
pub struct StoredChange<'a> {
    /// Where.
    pub path: RequestPath<'a>,
    /// The value, checked; none for a deletion.
    pub value: Option<&'a [u8]>,
    /// The change's tock.
    pub tock: Tock,
    /// The greatest tock that the client has heard of.
    pub above: Tock,
}

/// A piece of a snapshot that is uploaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestorePiece<'a> {
    /// The first: an unfinished upload from before is given up.
    pub start: bool,
    /// Bytes of the snapshot.
    pub data: Option<&'a [u8]>,
    /// All of it has come: it is taken in.
    pub last: bool,
    /// Also if it is of another network.
    pub any_network: bool,
    /// Also if it switches authorisation on, so that no client is served any more.
    pub with_auth: bool,
}

pub(super) fn decode_restore_piece<'a>(
    fields: &Fields<'a>,
) -> Result<RestorePiece<'a>, ClientError> {
    Ok(RestorePiece {
        start: fields.flag(Field::Start)?,
        data: fields.bytes(Field::Data)?,
        last: fields.flag(Field::Last)?,
        any_network: fields.flag(Field::AnyNetwork)?,
        with_auth: fields.flag(Field::WithAuth)?,
    })
}

/// The field `format`: ours, unless it says the other.
pub(super) fn is_distkv_format(fields: &Fields<'_>) -> Result<bool, ClientError> {
    match fields.optional_text(Field::Format)? {
        None | Some("distkv-node") => Ok(false),
        Some("distkv") => Ok(true),
        Some(_) => {
            let text = "bad field 'format': it must be 'distkv-node' or 'distkv'";
            Err(ClientError::bad_request(text))
        }
    }
}

/// The fields of a log's record, as they stand in the request.
pub(super) fn decode_stored_change<'a>(
    fields: &Fields<'a>,
) -> Result<StoredChange<'a>, ClientError> {
    if fields.int_or_nil(Field::Depth)?.is_some_and(|depth| depth != 0) {
        let text = "bad field 'depth': give the whole path; there is none before it to go on from";
        return Err(ClientError::bad_request(text));
    }
    let tock = fields.need(Field::Tock)?;
    let tock = Reader::new(tock).read_u64().map_err(|e| wrong(Field::Tock, &e))?;
    let tock = Tock::new(tock).ok_or_else(|| {
        ClientError::bad_request("bad field 'tock': it is out of the range of tocks")
    })?;
    let path = RequestPath { path: fields.path(Field::Path)?, internal: false };
    let above = heard_tock(fields, Field::Above)?;
    Ok(StoredChange { path, value: fields.new_value(Field::Value)?, tock, above })
}
