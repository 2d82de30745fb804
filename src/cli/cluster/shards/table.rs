//! What a node tells of its virtual shards.

use serde_json::{Value as Json, json};

use crate::cli::error::CliError;
use crate::cli::remote::Remote;
use crate::client::message::array_items;
use crate::client::{Fields, Message};
use crate::model::shard::SHARD_COUNT;

/// One shard, as a node has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::cli) struct Row {
    pub(in crate::cli) shard: u16,
    /// All entries, those that are deleted included.
    pub(in crate::cli) entries: u64,
    pub(in crate::cli) tombstones: u64,
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) reads: u64,
    pub(in crate::cli) writes: u64,
    /// Over path, newest event and tock of all entries.
    pub(in crate::cli) hash: u64,
    pub(in crate::cli) prefer: Option<String>,
}

impl Row {
    /// `None` where a node tells something else.
    fn new(row: &[u8]) -> Option<Row> {
        let row = Message::new(row).ok()?;
        let number = |name| row.u64(name).unwrap_or(0);
        Some(Row {
            shard: row.u64("shard").and_then(|s| u16::try_from(s).ok())?,
            entries: number("entries"),
            tombstones: number("tombstones"),
            bytes: number("bytes"),
            reads: number("reads"),
            writes: number("writes"),
            hash: row.u64("hash")?,
            prefer: row.str("prefer").map(str::to_owned),
        })
        .filter(|row| row.shard < SHARD_COUNT)
    }

    pub(in crate::cli) fn json(&self) -> Json {
        json!({
            "shard": self.shard,
            "entries": self.entries,
            "tombstones": self.tombstones,
            "bytes": self.bytes,
            "reads": self.reads,
            "writes": self.writes,
            // As text: many programs read numbers of JSON as floats.
            "hash": format!("{:016x}", self.hash),
            "prefer": self.prefer,
        })
    }
}

/// All shards that hold anything, were used, or have a preferred node; of one moment, as nodes give
/// as many rows at once as there are shards.
pub(in crate::cli) async fn read_rows(remote: &Remote) -> Result<Vec<Row>, CliError> {
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let mut fields = Fields::new();
        fields.bool("detail", true);
        if let Some(last) = rows.last() {
            fields.u64("after", u64::from(last.shard));
        }
        let reply = remote.request("list_shards", &fields).await?;
        let known = rows.len();
        for row in array_items(reply.get("result").unwrap_or_default()).filter_map(Row::new) {
            if rows.last().is_none_or(|last| row.shard > last.shard) {
                rows.push(row);
            }
        }
        // One that always tells of more, but of nothing new, would keep us here for ever.
        if reply.u64("next").is_none() || rows.len() == known {
            return Ok(rows);
        }
    }
}
