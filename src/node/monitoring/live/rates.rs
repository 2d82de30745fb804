//! Ten minutes of rates, a number for each second, and of how busy the shards were: so that a page that is opened
//! has a past.

use std::collections::VecDeque;

use serde_json::{Value as Json, json};

use super::latency::{Latency, Times};
use crate::node::Inner;

/// For so many seconds rates are kept.
pub(super) const LIVE_SECONDS_MAX: usize = 600;
/// Columns of the map of the shards that are kept.
const LIVE_HEAT_COLUMNS_MAX: usize = 120;
/// Seconds in a column.
const HEAT_COLUMN_SECONDS: u64 = 5;
/// Rows of the map: each stands for 16 of the 1,024 virtual shards.
pub(super) const HEAT_ROWS: usize = 64;

/// How many numbers there are for each second.
const COUNT: usize = 24;

/// What is kept: a name, a unit, and whether the number of a second is how much it has grown in that second.
const KEPT: [(&str, &str, bool); COUNT] = [
    ("own changes", "/s", true),
    ("changes from peers", "/s", true),
    ("conflicts", "/s", true),
    ("requests", "/s", true),
    ("clients", "", false),
    ("connections opened", "/s", true),
    ("connections refused", "/s", true),
    ("watches", "", false),
    ("bytes waiting for clients", "B", false),
    ("bytes to peers", "B/s", true),
    ("frames to peers", "/s", true),
    ("links", "", false),
    ("datagrams received", "/s", true),
    ("datagrams sent", "/s", true),
    ("catch-ups", "/s", true),
    ("catch-ups served", "/s", true),
    ("changes passed on", "/s", true),
    ("second copies", "/s", true),
    ("entries", "", false),
    ("memory of entries", "B", false),
    ("syncs of the log", "/s", true),
    ("time in syncs", "µs/s", true),
    ("bytes waiting for the log", "B", false),
    ("timer late", "µs/s", true),
];

/// The numbers of a moment, in the order of [`KEPT`]; those that grow, since the start.
pub(super) type Totals = [u64; COUNT];

/// See the module.
#[derive(Default)]
pub(super) struct Rates {
    before: Option<Totals>,
    /// How many seconds were added.
    seconds: u64,
    /// When the last one was, milliseconds since 1970.
    at: u64,
    kept: VecDeque<Totals>,
    /// Of the same seconds.
    latency: Latency,
    shards_before: Option<Vec<u64>>,
    columns: VecDeque<Vec<u64>>,
    /// How many columns were added.
    column: u64,
}

impl Rates {
    /// `shards`: the requests for each virtual shard since the start.
    pub(super) fn add(&mut self, totals: &Totals, times: Times, shards: &[u64], now: u64) {
        self.latency.add(times);
        let before = self.before.replace(*totals).unwrap_or(*totals);
        let mut second = *totals;
        for ((number, before), (_, _, grows)) in second.iter_mut().zip(before).zip(KEPT) {
            if grows {
                *number = number.saturating_sub(before);
            }
        }
        (self.seconds, self.at) = (self.seconds + 1, now);
        self.kept.push_back(second);
        while self.kept.len() > LIVE_SECONDS_MAX {
            self.kept.pop_front();
        }
        if self.seconds.is_multiple_of(HEAT_COLUMN_SECONDS) {
            self.add_column(shards);
        }
    }

    fn add_column(&mut self, shards: &[u64]) {
        let rows: Vec<u64> = shards
            .chunks(shards.len().div_ceil(HEAT_ROWS).max(1))
            .map(|row| row.iter().sum())
            .collect();
        let before = self.shards_before.replace(rows.clone()).unwrap_or_default();
        let before = before.into_iter().chain(std::iter::repeat(0));
        let grown = rows.iter().zip(before).map(|(now, before)| now.saturating_sub(before));
        self.columns.push_back(grown.collect());
        self.column += 1;
        while self.columns.len() > LIVE_HEAT_COLUMNS_MAX {
            self.columns.pop_front();
        }
    }

    /// Which second and which column came last.
    pub(super) fn last(&self) -> (u64, u64) {
        (self.seconds, self.column)
    }

    /// What came after a second and a column. `first`: with the names of the rates.
    pub(super) fn after(&self, (second, column): (u64, u64), first: bool) -> Json {
        let tail = |len: usize, new: u64| len.saturating_sub(usize::try_from(new).unwrap_or(len));
        let seconds = tail(self.kept.len(), self.seconds.saturating_sub(second));
        let columns = tail(self.columns.len(), self.column.saturating_sub(column));
        let seconds: Vec<&Totals> = self.kept.range(seconds..).collect();
        let columns: Vec<&Vec<u64>> = self.columns.range(columns..).collect();
        let names = first.then(|| KEPT.map(|(name, unit, _)| json!([name, unit])));
        json!({
            "names": names,
            "kinds": first.then(Latency::names),
            "at": self.at,
            "seconds": seconds,
            "latency": self.latency.last(seconds.len()),
            "columns": columns,
        })
    }
}

/// The numbers of this moment.
pub(super) fn totals(inner: &Inner) -> Totals {
    let (counters, watches, live, bytes) = inner.hub.read(|engine| {
        let tree = engine.tree();
        (engine.counters(), engine.watch_count(), tree.live_len(), tree.memory_bytes())
    });
    let (clients, queued) = (inner.server.counts(), inner.hub.queued());
    let size = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
    let durable = inner.durable.as_ref();
    let syncs = durable.map(|durable| durable.sync_times());
    let waiting = durable.map_or(0, |durable| durable.status(crate::rt::now()).waiting_bytes);
    let (syncs, sync_us) = syncs.map_or((0, 0), |times| (times.count, micros(times.sum)));
    [
        counters.writes,
        counters.applied,
        counters.conflicts,
        clients.all.requests().iter().sum(),
        size(clients.connections),
        clients.accepted,
        clients.refused,
        size(watches),
        size(inner.hub.waiting_bytes()),
        queued.bytes,
        queued.frames,
        size(inner.links.infos().len()),
        inner.swim.counters().received,
        inner.swim.sent().0,
        counters.catch_ups,
        counters.catch_ups_served,
        counters.relayed,
        counters.duplicates,
        size(live),
        size(bytes),
        syncs,
        sync_us,
        waiting,
        micros(inner.links.observed.tick_delay().sum),
    ]
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sum of durations is positive, and centuries of microseconds fit"
)]
pub(super) fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(writes: u64, clients: u64) -> Totals {
        let mut totals = [0; COUNT];
        (totals[0], totals[4]) = (writes, clients);
        totals
    }

    #[test]
    fn what_grows_is_told_by_the_second_and_what_stands_as_it_is() {
        let mut rates = Rates::default();
        for (writes, clients) in [(1_000, 3), (1_010, 4), (1_025, 2)] {
            rates.add(&totals(writes, clients), Times::default(), &[0; 1_024], 5_000);
        }
        let all = rates.after((0, 0), true);
        let of = |second: usize| {
            (all["seconds"][second][0].as_u64(), all["seconds"][second][4].as_u64())
        };
        assert_eq!(
            [of(0), of(1), of(2)],
            [(Some(0), Some(3)), (Some(10), Some(4)), (Some(15), Some(2))]
        );
        assert_eq!(all["names"].as_array().map(Vec::len), Some(COUNT));
        let news = rates.after((2, 0), false);
        assert_eq!(news["seconds"].as_array().map(Vec::len), Some(1));
        assert_eq!(news["latency"].as_array().map(Vec::len), Some(1));
        assert_eq!((&news["names"], &news["kinds"]), (&Json::Null, &Json::Null));
    }

    #[test]
    fn ten_minutes_are_kept_whatever_was_told_before() {
        let mut rates = Rates::default();
        for second in 0..2 * LIVE_SECONDS_MAX as u64 {
            let shards: Vec<u64> = (0..1_024).map(|shard| shard * second).collect();
            rates.add(&totals(second * second, 0), Times::default(), &shards, second);
        }
        assert_eq!(rates.last(), (1_200, 240));
        let all = rates.after((0, 0), true);
        let len = |key: &str| all[key].as_array().map(Vec::len);
        assert_eq!(
            (len("seconds"), len("latency"), len("columns")),
            (Some(LIVE_SECONDS_MAX), Some(LIVE_SECONDS_MAX), Some(LIVE_HEAT_COLUMNS_MAX))
        );
        // 16 shards in a row, 5 seconds in a column.
        assert_eq!(all["columns"][7][0], 5 * (0..16).sum::<u64>());
        assert_eq!(rates.after(rates.last(), false)["seconds"], json!([]));
        assert_eq!(
            rates.after((5_000, 5_000), false)["seconds"],
            json!([]),
            "of another life of the node"
        );
    }
}
