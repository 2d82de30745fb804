//! Virtual shards: which node is preferred for what, and how operators change that.

use super::options::WriteId;
use crate::message::Fields;
use crate::model::path::{Element, Path};
use crate::model::shard::{SHARD_COUNT, shard_of};
use crate::retry::Idempotency;
use crate::router::Router;
use crate::shard_map::ShardRow;
use crate::shard_map::listing::Listing;
use crate::smart::Client;
use crate::smart::choice::call::Plan;
use crate::smart::choice::shard_table::{TABLE, list_page};
use crate::smart::error::CallError;

/// How many bits of a place its shard does not say.
const PLACE_BITS: u32 = u128::BITS - SHARD_COUNT.ilog2();

/// Where a path is in the 128-bit space that [`Client::list_shards`] and
/// [`ShardMap`](crate::ShardMap) show in ranges: the first place of its shard.
///
/// ```
/// use distkv_client::{Path, SHARD_COUNT, place_of, shard_of};
///
/// let path: Path = "hello.world".parse()?;
/// assert_eq!(shard_of(&path), 309); // Of 1,024.
/// assert_eq!(place_of(&path), 309 << 118);
/// # assert_eq!(SHARD_COUNT, 1024);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn place_of(path: &Path) -> u128 {
    u128::from(shard_of(path)) << PLACE_BITS
}

impl Client {
    /// The name of the node that calls about this path go to first, unless it fails just now; none if no
    /// node is live. A node that acknowledged a write of the same shard comes before it in reads.
    #[must_use]
    pub fn preferred(&self, path: &Path) -> Option<String> {
        let routing = self.inner.topology.routing();
        let index = routing.router.preferred(Router::shard(path))?;
        routing.targets.get(index).map(|target| target.name.clone())
    }

    /// The virtual shards with their overrides of preferred nodes, as a node has them now: runs of
    /// adjacent shards, in order.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Value`] if the list has gaps or overlaps.
    pub async fn list_shards(&self) -> Result<Vec<ShardRow>, CallError> {
        let _open = self.inner.open_call()?;
        let mut listing = Listing::default();
        let mut after = None;
        loop {
            let page = list_page(&self.inner, after).await?;
            after = page.next;
            let is_last = listing.push(page);
            if is_last.map_err(|error| CallError::Value(error.to_string()))? {
                break;
            }
        }
        Ok(listing.into_rows().iter().map(|row| ShardRow::clone(row)).collect())
    }

    /// Makes a node the preferred one of a shard, for all clients, while it is live; none takes that
    /// back. For admins. When this returns, this client heeds it.
    ///
    /// # Errors
    /// [`CallError::Usage`] if there is no such shard, else [`CallError`]; its [`CallError::fate`] says
    /// whether it may have been done.
    pub async fn prefer_shard(&self, shard: u16, node: Option<&str>) -> Result<(), CallError> {
        if shard >= SHARD_COUNT {
            let text = format!("there is no shard {shard}; shards are 0 to {}", SHARD_COUNT - 1);
            return Err(CallError::Usage(text));
        }
        let path = Path::from_elements([Element::Str("shards"), Element::Int(shard.into())]);
        let path = path.map_err(|error| CallError::Usage(error.to_string()))?;
        let mut fields = Fields::at(&path);
        let mut turn = self.inner.write_places.begin(1);
        let WriteId(id) = turn.id();
        fields.bin("wid", &id);
        self.inner.order_into(&path, false, &mut fields);
        let action = match node {
            Some(name) => {
                fields.str("value", name);
                "set_internal"
            }
            None => "delete_internal",
        };
        let plan = Plan { needs_id: true, ..Plan::new(action, shard, Idempotency::Guarded) };
        let served = self.inner.request(plan, &fields).await?;
        self.inner.own_writes.on_changed(TABLE, served.node());
        self.refresh_shards().await;
        Ok(())
    }

    /// Fetches the table of overrides of preferred nodes again, which happens by itself now and then
    /// ([`ClientConfig::shard_table_age`](crate::ClientConfig::shard_table_age)). Returns when it is
    /// here; for how long to wait is the caller's concern.
    pub async fn refresh_shards(&self) {
        let table = &self.inner.table;
        table.invalidate(table.now(), None);
        if table.ready().await.is_ok()
            && let Some(snapshot) = table.snapshot()
        {
            self.inner.apply_table(&snapshot);
        }
    }
}
