//! Requests about what is stored in files: a change as a log has it, and the forms of files.

use super::error::ClientError;
use super::field::{Field, Fields, wrong};
use super::request::RequestPath;
use crate::model::ids::Tock;
use crate::model::value::Reader;

/// A change as a log has it, to be made again.
#[derive(Debug)]
pub struct StoredChange<'a> {
    /// Where.
    pub path: RequestPath<'a>,
    /// The value, checked; none for a deletion.
    pub value: Option<&'a [u8]>,
    /// The change's tock.
    pub tock: Tock,
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
    Ok(StoredChange { path, value: fields.value(Field::Value)?, tock })
}
