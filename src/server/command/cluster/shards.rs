//! `list_shards`: the table of virtual shards. Clients ask for runs of adjacent shards with the
//! same preference, as ranges of a 128-bit space; operators ask for single shards with their
//! counters.

use std::sync::Arc;

use distkv_access::users::Role;
use xxhash_rust::xxh64::xxh64;

use crate::engine::Engine;
use crate::hub::Hub;
use crate::model::entry::Entry;
use crate::model::ids::{NodeName, Tock};
use crate::model::shard::{SHARD_COUNT, preference_path, preferences_path};
use crate::model::value::{Reader, write_array_len};
use crate::protocol::client::shards::{ListShards, ShardRows};
use crate::protocol::client::{Action, ClientError, MessageWriter};
use crate::server::access::authorise::{Denied, Target};
use crate::server::access::mistakes::Mistake;
use crate::server::connections::session::{Context, Purpose, Session, Then};
use crate::server::shards::{ShardManager, ShardUse};
use crate::tree::Tree;
use crate::tree::shard_sums::ShardSum;

/// Bits of the 128-bit space that are within one shard.
const SHARD_BITS: u32 = 128 - SHARD_COUNT.ilog2();

impl Session {
    /// `list_shards`.
    pub(in crate::server) fn list_shards(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        asked: ListShards,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::ListShards, Target::Node)?;
        let is_planted = cx.access.makes(Mistake::Each(Action::ListShards));
        let is_low = cx.access.role < Some(Role::Operator) && !is_planted;
        if matches!(asked.rows, ShardRows::Single { .. }) && is_low {
            // Sums over all data, and how much each part is used.
            let denied = Denied::Role { action: Action::ListShards, needed: Role::Operator };
            return Err(denied.error(Target::Node, &cx.access));
        }
        Self::check_ready(cx)?;
        let moment = Moment::of(cx.hub);
        let shards = Arc::clone(&cx.shared.shards);
        match asked.rows {
            ShardRows::Runs { after } => moment.write_runs(after, asked.limit, seq, out),
            ShardRows::Single { after } if moment.sums.is_some() => {
                moment.write_single(&shards, after, asked.limit, seq, out);
            }
            ShardRows::Single { after } => {
                let hub = Arc::clone(&cx.shared.hub);
                let purpose = Purpose::to_read(Action::ListShards);
                return Ok(Then::heavy(cx, seq, purpose, move || {
                    shards.count(&hub);
                    let mut reply = Vec::new();
                    Moment::of(&hub).write_single(&shards, after, asked.limit, seq, &mut reply);
                    reply
                }));
            }
        }
        Ok(Then::Continue)
    }
}

/// What the table is made of, all of one moment.
struct Moment {
    tree: Tree,
    /// By shard, if they are kept.
    sums: Option<Vec<ShardSum>>,
    tock: Tock,
}

impl Moment {
    fn of(hub: &Hub) -> Self {
        hub.read(|engine: &Engine| Self {
            tree: engine.tree().clone(),
            sums: engine.shard_sums().map(|sums| sums.as_slice().to_vec()),
            tock: engine.tock(),
        })
    }

    fn write_runs(&self, after: Option<u128>, limit: usize, seq: u64, out: &mut Vec<u8>) {
        let runs = runs(&preferences(&self.tree));
        let mut rest = runs.iter().filter(|run| after.is_none_or(|after| run.end() > after));
        let rows: Vec<&Run> = rest.by_ref().take(limit).collect();
        let mut message = MessageWriter::new(out);
        let result = message.key("result");
        write_array_len(rows.len(), result);
        rows.iter().for_each(|run| run.write(result));
        match (rest.next(), rows.last()) {
            (Some(_), Some(last)) => message.bin("next", &last.end().to_be_bytes()),
            _ => message.nil("next"),
        };
        message.u64("seq", seq).tock(self.tock);
    }

    fn write_single(
        &self,
        shards: &ShardManager,
        after: Option<u16>,
        limit: usize,
        seq: u64,
        out: &mut Vec<u8>,
    ) {
        let preferences = preferences(&self.tree);
        let sums = self.sums.as_deref().unwrap_or_default();
        let first = after.map_or(0, |after| after.saturating_add(1));
        let mut rest = (first..SHARD_COUNT).filter_map(|shard| {
            let at = usize::from(shard);
            let row = Single {
                shard,
                sum: sums.get(at).copied().unwrap_or_default(),
                usage: shards.usage(shard),
                prefer: preferences.get(at).and_then(Option::as_ref),
            };
            row.has_anything().then_some(row)
        });
        let rows: Vec<Single<'_>> = rest.by_ref().take(limit).collect();
        let mut message = MessageWriter::new(out);
        let result = message.key("result");
        write_array_len(rows.len(), result);
        rows.iter().for_each(|row| row.write(result));
        match (rest.next(), rows.last()) {
            (Some(_), Some(last)) => message.u64("next", u64::from(last.shard)),
            _ => message.nil("next"),
        };
        message.u64("seq", seq).tock(self.tock);
    }
}

/// Which node clients of each shard should prefer, where operators have said so. What else stands
/// there is ignored.
fn preferences(tree: &Tree) -> Vec<Option<NodeName>> {
    if tree.subtree(&preferences_path()).next().is_none() {
        return vec![None; usize::from(SHARD_COUNT)];
    }
    // Looked up one by one: whatever clients have put beside them costs nothing.
    let of = |shard| {
        let value = tree.get(preference_path(shard).as_bytes()).and_then(Entry::value)?;
        NodeName::new(Reader::new(value).read_str().ok()?).ok()
    };
    (0..SHARD_COUNT).map(of).collect()
}

/// Adjacent shards with the same preference.
struct Run {
    first: u16,
    last: u16,
    prefer: Option<NodeName>,
}

fn runs(preferences: &[Option<NodeName>]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (shard, prefer) in (0..SHARD_COUNT).zip(preferences) {
        match runs.last_mut() {
            Some(run) if run.prefer == *prefer => run.last = shard,
            _ => runs.push(Run { first: shard, last: shard, prefer: prefer.clone() }),
        }
    }
    runs
}

impl Run {
    fn start(&self) -> u128 {
        u128::from(self.first) << SHARD_BITS
    }

    /// Inclusive.
    fn end(&self) -> u128 {
        (u128::from(self.last) << SHARD_BITS) | ((1 << SHARD_BITS) - 1)
    }

    /// Equal for the same row on every node; another one as soon as anything in the row changes.
    fn id(&self) -> u64 {
        let mut bytes = [self.first.to_be_bytes(), self.last.to_be_bytes()].concat();
        // No name is empty.
        let name = self.prefer.as_ref().map_or("", NodeName::as_str);
        bytes.extend_from_slice(name.as_bytes());
        xxh64(&bytes, 0)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut row = MessageWriter::new(out);
        row.u64("id", self.id())
            .bin("start", &self.start().to_be_bytes())
            .bin("end", &self.end().to_be_bytes())
            .u64("first", u64::from(self.first))
            .u64("last", u64::from(self.last));
        write_prefer(&mut row, self.prefer.as_ref());
    }
}

/// One shard.
struct Single<'a> {
    shard: u16,
    sum: ShardSum,
    usage: Option<ShardUse>,
    prefer: Option<&'a NodeName>,
}

impl Single<'_> {
    fn has_anything(&self) -> bool {
        self.sum.entries > 0 || self.usage.is_some() || self.prefer.is_some()
    }

    fn write(&self, out: &mut Vec<u8>) {
        let usage = self.usage.unwrap_or_default();
        let mut row = MessageWriter::new(out);
        row.u64("shard", u64::from(self.shard))
            .u64("entries", self.sum.entries)
            .u64("tombstones", self.sum.tombstones)
            .u64("bytes", self.sum.bytes)
            .u64("reads", usage.reads)
            .u64("writes", usage.writes)
            .u64("hash", self.sum.hash);
        write_prefer(&mut row, self.prefer);
    }
}

fn write_prefer(row: &mut MessageWriter<'_>, prefer: Option<&NodeName>) {
    match prefer {
        Some(name) => row.str("prefer", name.as_str()),
        None => row.nil("prefer"),
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs_of(overrides: &[(u16, &str)]) -> Vec<Run> {
        let mut preferences = vec![None; usize::from(SHARD_COUNT)];
        for (shard, name) in overrides {
            preferences[usize::from(*shard)] = Some(NodeName::new(name).unwrap());
        }
        runs(&preferences)
    }

    #[test]
    fn without_preferences_there_is_one_row_of_everything() {
        let runs = runs_of(&[]);
        assert_eq!(runs.len(), 1);
        assert_eq!((runs[0].start(), runs[0].end()), (0, u128::MAX));
    }

    #[test]
    fn a_preference_splits_a_row_and_the_same_beside_it_joins() {
        let rows = |overrides: &[(u16, &str)]| -> Vec<(u16, u16, Option<String>)> {
            let row = |r: &Run| (r.first, r.last, r.prefer.as_ref().map(ToString::to_string));
            runs_of(overrides).iter().map(row).collect()
        };
        let n1 = || Some(String::from("n1"));
        assert_eq!(rows(&[(5, "n1")]), [(0, 4, None), (5, 5, n1()), (6, 1023, None)]);
        assert_eq!(rows(&[(6, "n1"), (5, "n1")]), [(0, 4, None), (5, 6, n1()), (7, 1023, None)]);
        assert_eq!(rows(&[(0, "n1")]), [(0, 0, n1()), (1, 1023, None)]);
        let two = rows(&[(5, "n1"), (6, "n2")]);
        assert_eq!(two[2], (6, 6, Some(String::from("n2"))));
    }

    #[test]
    fn a_row_that_changes_in_any_way_is_another_row() {
        let middle = |overrides| runs_of(overrides).swap_remove(1).id();
        let ids = [middle(&[(5, "n1")]), middle(&[(5, "n2")]), middle(&[(6, "n1")])];
        assert!(ids[0] != ids[1] && ids[0] != ids[2]);
        assert_ne!(middle(&[(5, "n1"), (6, "n1")]), ids[0]);
        assert_eq!(middle(&[(5, "n1"), (900, "n2")]), ids[0]);
    }

    proptest! {
        #[test]
        fn rows_cover_everything_once(
            overrides in proptest::collection::vec((0u16..1024, 0u8..3), 0..40),
        ) {
            let names = ["n1", "n2", "n3"];
            let overrides: Vec<_> =
                overrides.iter().map(|(s, n)| (*s, names[usize::from(*n)])).collect();
            let runs = runs_of(&overrides);
            let mut next = 0_u128;
            for (at, run) in runs.iter().enumerate() {
                prop_assert_eq!(run.start(), next);
                prop_assert!(run.end() > run.start());
                next = run.end().wrapping_add(1);
                prop_assert!(at == 0 || runs[at - 1].prefer != run.prefer);
            }
            prop_assert_eq!(next, 0, "the last row ends at the end");
        }
    }
}
