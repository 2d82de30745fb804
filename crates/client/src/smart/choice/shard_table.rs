//! The table of virtual shards that nodes export: which shards have a preferred node of their own.
//! It is cached by a [`ShardMap`], and its content goes to the topology manager.

use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;

use super::call::Plan;
use crate::connection::group::Group;
use crate::message::{Fields, Message, array_items, as_u64, map_items};
use crate::model::shard::SHARD_COUNT;
use crate::model::value::Reader;
use crate::shard_map::{
    Clock, ListShards, Page, ShardMap, ShardMapConfig, ShardRow, Snapshot, SystemClock,
};
use crate::smart::Inner;
use crate::smart::error::CallError;
use crate::topology::Preferences;

/// Rows that are asked for at once: all there can be.
const PAGE_ROWS: u64 = SHARD_COUNT as u64;

/// Stands for the table among the shards whose last own write is remembered: the node that took it
/// lists it.
pub(in crate::smart) const TABLE: u16 = SHARD_COUNT;

/// The cached table.
pub(in crate::smart) type Table = ShardMap<Lister, ClientClock>;

/// Asks nodes for the table.
#[derive(Debug)]
pub(in crate::smart) struct Lister {
    client: Weak<Inner>,
}

/// The real clock, with tasks that the client waits for when it is closed.
#[derive(Debug)]
pub(in crate::smart) struct ClientClock {
    tasks: Group,
}

impl Clock for ClientClock {
    fn now(&self) -> Duration {
        SystemClock.now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        SystemClock.sleep(duration)
    }

    fn random(&self) -> u64 {
        SystemClock.random()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.tasks.spawn(task);
    }
}

/// The table of a client that is being made.
pub(in crate::smart) fn new_table(
    client: Weak<Inner>,
    tasks: Group,
    config: ShardMapConfig,
) -> Arc<Table> {
    Arc::new(ShardMap::new(Lister { client }, ClientClock { tasks }, config))
}

/// Begins to fetch the table, and hands on its content until it is closed.
pub(in crate::smart) fn follow_table(table: Arc<Table>, tasks: &Group, client: Weak<Inner>) {
    if table.start().is_err() {
        return;
    }
    tasks.spawn(async move {
        let mut number = 0;
        while let Ok(snapshot) = table.changed(number).await {
            number = snapshot.number;
            let Some(client) = client.upgrade() else { return };
            client.apply_table(&snapshot);
        }
    });
}

impl Inner {
    /// Hands on what a table says.
    pub(in crate::smart) fn apply_table(&self, table: &Snapshot) {
        let mut preferences = Preferences::new();
        for row in table.rows() {
            if let Some(name) = &row.prefer {
                let shards: RangeInclusive<u16> = row.first..=row.last.min(SHARD_COUNT - 1);
                preferences.extend(shards.map(|shard| (shard, name.clone())));
            }
        }
        self.topology.prefer(preferences);
    }
}

impl ListShards for Lister {
    type Error = CallError;

    async fn list(&self, after: Option<u128>) -> Result<Page, CallError> {
        let Some(client) = self.client.upgrade() else {
            return Err(CallError::Usage(String::from("the client is gone")));
        };
        list_page(&client, after).await
    }
}

/// The rows behind this place, as a node has them.
pub(in crate::smart) async fn list_page(
    client: &Inner,
    after: Option<u128>,
) -> Result<Page, CallError> {
    let mut fields = Fields::new();
    fields.u64("limit", PAGE_ROWS);
    if let Some(after) = after {
        fields.bin("after", &after.to_be_bytes());
    }
    let home = client.home(TABLE);
    let plan = Plan { first: home.as_deref(), is_own: true, ..Plan::read("list_shards", 0) };
    let served = client.request(plan, &fields).await?;
    page_of(&served.value)
        .ok_or_else(|| CallError::Value(String::from("the list of shards is none")))
}

fn page_of(reply: &Message) -> Option<Page> {
    let rows = array_items(reply.get("result")?).map(row_of).collect::<Option<Vec<_>>>()?;
    let next = reply.get("next").filter(|next| !Reader::new(next).take_nil());
    let next = match next {
        Some(next) => Some(place_of(next)?),
        None => None,
    };
    Some(Page { rows, next })
}

fn row_of(bytes: &[u8]) -> Option<ShardRow> {
    let field = |name: &[u8]| {
        map_items(bytes)
            .find(|(key, _)| Reader::new(key).read_str_bytes().is_ok_and(|key| key == name))
            .map(|(_, value)| value)
    };
    let number = |name: &[u8]| u16::try_from(as_u64(field(name)?)?).ok();
    let prefer = field(b"prefer").and_then(|name| Reader::new(name).read_str().ok());
    Some(ShardRow {
        id: as_u64(field(b"id")?)?,
        start: place_of(field(b"start")?)?,
        end: place_of(field(b"end")?)?,
        first: number(b"first")?,
        last: number(b"last")?,
        prefer: prefer.map(str::to_owned),
    })
}

fn place_of(bytes: &[u8]) -> Option<u128> {
    let bytes = Reader::new(bytes).read_bin().ok()?;
    bytes.try_into().ok().map(u128::from_be_bytes)
}

#[cfg(test)]
mod vectors;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::value::write_array_len;

    fn row(first: u64, last: u64, prefer: Option<&str>) -> Fields {
        let mut fields = Fields::new();
        let start = u128::from(first) << 118;
        let end = ((u128::from(last) + 1) << 118).wrapping_sub(1);
        fields.bin("start", &start.to_be_bytes()).bin("end", &end.to_be_bytes());
        fields.u64("id", u64::MAX - first).u64("first", first).u64("last", last).nil("more");
        match prefer {
            Some(name) => fields.str("prefer", name),
            None => fields.nil("prefer"),
        };
        fields
    }

    #[test]
    fn a_page_is_read_as_nodes_send_it() {
        let mut rows = Vec::new();
        write_array_len(2, &mut rows);
        rows.extend_from_slice(&row(0, 4, None).encode());
        rows.extend_from_slice(&row(5, 1023, Some("n1")).encode());
        let mut reply = Fields::new();
        reply.raw("result", &rows).nil("next");
        let page = page_of(&Message::new(&reply.encode()).unwrap()).unwrap();
        assert_eq!(page.next, None);
        assert_eq!((page.rows[0].start, page.rows[1].end), (0, u128::MAX));
        assert_eq!(page.rows[0].end + 1, page.rows[1].start);
        assert_eq!((page.rows[1].first, page.rows[1].prefer.as_deref()), (5, Some("n1")));
        let mut reply = Fields::new();
        reply.raw("result", b"\x90").bin("next", &[0; 15]);
        assert_eq!(page_of(&Message::new(&reply.encode()).unwrap()), None);
    }
}
