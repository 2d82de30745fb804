//! What `list_shards` asks for: the table of virtual shards, page by page.

use crate::model::shard::SHARD_COUNT;
use crate::model::value::Reader;
use crate::protocol::client::error::ClientError;
use crate::protocol::client::field::{Field, Fields, wrong, wrong_kind};

/// `list_shards`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListShards {
    /// Which rows.
    pub rows: ShardRows,
    /// At most this many of them; 1 or more.
    pub limit: usize,
}

/// The rows that are asked for, and behind which of them the reply begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShardRows {
    /// Runs of shards with the same preference, after the one that ends there.
    Runs {
        /// The end of the last row that the client has.
        after: Option<u128>,
    },
    /// Single shards with their counters, after the one of that number.
    Single {
        /// The last shard that the client has.
        after: Option<u16>,
    },
}

/// From a request's fields.
pub(super) fn decode_list_shards(fields: &Fields<'_>) -> Result<ListShards, ClientError> {
    let rows = if fields.flag(Field::Detail)? {
        let after = fields.int_or_nil(Field::After)?.map(u16::try_from).transpose();
        let after = after.map_err(|_| bad_after("the number of a shard"))?;
        ShardRows::Single { after }
    } else {
        ShardRows::Runs { after: end_of_row(fields)? }
    };
    let limit = match fields.int_or_nil(Field::Limit)? {
        None => usize::from(SHARD_COUNT),
        Some(limit) if limit > 0 => usize::try_from(limit).unwrap_or(usize::MAX),
        Some(_) => return Err(ClientError::bad_request("bad field 'limit': it must be above 0")),
    };
    // There are no more rows than that.
    Ok(ListShards { rows, limit: limit.min(usize::from(SHARD_COUNT)) })
}

fn end_of_row(fields: &Fields<'_>) -> Result<Option<u128>, ClientError> {
    let Some(raw) = fields.get_non_nil(Field::After) else { return Ok(None) };
    let mut reader = Reader::new(raw);
    let end = match reader.read_bin() {
        Ok(bytes) => <[u8; 16]>::try_from(bytes).map_err(|_| bad_after("16 bytes"))?,
        Err(_) => return Err(wrong(Field::After, &wrong_kind(raw, "16 bytes"))),
    };
    Ok(Some(u128::from_be_bytes(end)))
}

fn bad_after(wanted: &str) -> ClientError {
    ClientError::bad_request(format!("bad field 'after': it must be {wanted}"))
}

#[cfg(test)]
mod tests {
    use crate::model::value::{write_bin, write_bool, write_map_len, write_str, write_u64};
    use crate::protocol::client::shards::*;

    /// Writes the field's value.
    type After<'a> = &'a dyn Fn(&mut Vec<u8>);

    fn decode(after: Option<After<'_>>, detail: bool) -> Result<ListShards, String> {
        let mut bytes = Vec::new();
        write_map_len(2 + usize::from(after.is_some()), &mut bytes);
        write_str("detail", &mut bytes);
        write_bool(detail, &mut bytes);
        write_str("limit", &mut bytes);
        write_u64(5_000, &mut bytes);
        if let Some(after) = after {
            write_str("after", &mut bytes);
            after(&mut bytes);
        }
        decode_list_shards(&Fields::find(&bytes).unwrap()).map_err(|error| error.text)
    }

    #[test]
    fn a_page_begins_behind_what_the_client_has() {
        let runs = |after| Ok(ListShards { rows: ShardRows::Runs { after }, limit: 1024 });
        let single = |after| Ok(ListShards { rows: ShardRows::Single { after }, limit: 1024 });
        assert_eq!(decode(None, false), runs(None));
        assert_eq!(decode(None, true), single(None));
        let end = (7_u128 << 118) - 1;
        let bin = |out: &mut Vec<u8>| write_bin(&end.to_be_bytes(), out);
        assert_eq!(decode(Some(&bin), false), runs(Some(end)));
        assert_eq!(decode(Some(&|out| write_u64(9, out)), true), single(Some(9)));
    }

    #[test]
    fn a_place_of_another_kind_is_refused() {
        let short = |out: &mut Vec<u8>| write_bin(&[1; 15], out);
        assert!(decode(Some(&short), false).unwrap_err().contains("16 bytes"));
        assert!(decode(Some(&|out| write_u64(9, out)), false).is_err());
        assert!(decode(Some(&|out| write_u64(1 << 16, out)), true).is_err());
        assert!(decode(Some(&short), true).is_err());
    }
}
