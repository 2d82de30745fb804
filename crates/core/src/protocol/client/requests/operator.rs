//! What operators ask for: who is connected, what is asked for most, and the past of an entry.

use super::field::{Field, Fields};
use crate::model::path::PathBytes;
use crate::protocol::client::error::ClientError;

/// Most rows of one answer to `clients`.
const CLIENTS_LIMIT_MAX: usize = 1_000;
/// Most changes of one answer to `history`.
const HISTORY_LIMIT_MAX: usize = 1_000;
/// How many there are unless `limit` says otherwise.
const HISTORY_LIMIT: usize = 100;

/// `clients`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListClients {
    /// The connections with a greater number than this, if one is given, the least first.
    Connections {
        /// The last row of the page before.
        after: Option<u64>,
        /// At most so many; 1 or more.
        limit: usize,
    },
    /// What clients ask for most, by the first elements of paths.
    Prefixes {
        /// At most so many; 1 or more.
        limit: usize,
    },
}

/// `history`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryOf<'a> {
    /// The entry's whole path.
    pub path: PathBytes<'a>,
    /// Only changes from this moment on, milliseconds since 1970.
    pub since_ms: u64,
    /// The last of them, at most so many; 1 or more.
    pub limit: usize,
}

pub(super) fn decode_list_clients(fields: &Fields<'_>) -> Result<ListClients, ClientError> {
    let limit = limit(fields, CLIENTS_LIMIT_MAX)?.unwrap_or(CLIENTS_LIMIT_MAX);
    if fields.flag(Field::Prefixes)? {
        return Ok(ListClients::Prefixes { limit });
    }
    let after = fields.int_or_nil(Field::After)?.map(u64::try_from).transpose();
    let after = after.map_err(|_| {
        ClientError::bad_request("bad field 'after': it must be the number of a connection")
    })?;
    Ok(ListClients::Connections { after, limit })
}

pub(super) fn decode_history<'a>(fields: &Fields<'a>) -> Result<HistoryOf<'a>, ClientError> {
    let since = fields.int_or_nil(Field::Since)?.unwrap_or(0);
    Ok(HistoryOf {
        path: fields.path(Field::Path)?,
        since_ms: u64::try_from(since.max(0)).unwrap_or(u64::MAX),
        limit: limit(fields, HISTORY_LIMIT_MAX)?.unwrap_or(HISTORY_LIMIT),
    })
}

fn limit(fields: &Fields<'_>, most: usize) -> Result<Option<usize>, ClientError> {
    match fields.int_or_nil(Field::Limit)? {
        None => Ok(None),
        Some(limit) if limit > 0 => Ok(Some(usize::try_from(limit).unwrap_or(most).min(most))),
        Some(_) => Err(ClientError::bad_request("bad field 'limit': it must be above 0")),
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::client::{ClientMessage, Request, decode};

    fn request(bytes: &[u8]) -> Result<String, String> {
        match decode(bytes) {
            Ok(ClientMessage::Request { request: Request::Clients(asked), .. }) => {
                Ok(format!("{asked:?}"))
            }
            Ok(ClientMessage::Request { request: Request::History(asked), .. }) => {
                Ok(format!("{} {} {}", asked.path.to_path(), asked.since_ms, asked.limit))
            }
            Ok(other) => panic!("{other:?}"),
            Err(bad) => Err(bad.error.text),
        }
    }

    #[test]
    fn pages_of_clients_and_prefixes_are_bounded() {
        let all = request(b"\x82\xa3seq\x01\xa6action\xa7clients").unwrap();
        assert_eq!(all, "Connections { after: None, limit: 1000 }");
        let page = b"\x84\xa3seq\x01\xa6action\xa7clients\xa5after\x07\xa5limit\xcd\xff\xff";
        assert_eq!(request(page).unwrap(), "Connections { after: Some(7), limit: 1000 }");
        let prefixes = b"\x84\xa3seq\x01\xa6action\xa7clients\xa8prefixes\xc3\xa5limit\x02";
        assert_eq!(request(prefixes).unwrap(), "Prefixes { limit: 2 }");
        for wrong in [
            &b"\x83\xa3seq\x01\xa6action\xa7clients\xa5limit\x00"[..],
            b"\x83\xa3seq\x01\xa6action\xa7clients\xa5after\xff",
        ] {
            assert!(request(wrong).unwrap_err().contains("bad field"));
        }
    }

    #[test]
    fn a_history_is_of_a_path_since_a_moment() {
        let plain = b"\x83\xa3seq\x01\xa6action\xa7history\xa4path\x92\xa1a\xa1b";
        assert_eq!(request(plain).unwrap(), "a.b 0 100");
        let since = b"\x85\xa3seq\x01\xa6action\xa7history\xa4path\x91\xa1a\xa5since\xcd\x01\x00\xa5limit\x05";
        assert_eq!(request(since).unwrap(), "a 256 5");
        assert!(request(b"\x82\xa3seq\x01\xa6action\xa7history").unwrap_err().contains("path"));
    }
}
