//! Splits, merges, rows that are gone; and a long random run against a table that keeps changing.

use super::*;

/// Makes the map fetch this table now.
fn refresh(world: &World, map: &Map, rows: Vec<ShardRow>) {
    world.advance(millis(1));
    map.invalidate(map.now(), None);
    world.settle();
    world.answer_all(rows);
}

#[test]
fn a_row_splits() {
    let (world, map) = World::ready(vec![row(9, 0, u128::MAX)]);
    world.advance(seconds(4));
    // Two callers find that a predicted row does not exist any more.
    let first = map.predict(5).unwrap();
    let second = map.predict(u128::MAX).unwrap();
    let seen_at = map.now();
    world.advance(millis(1));
    map.invalidate(seen_at, Some(first.id));
    world.settle();
    world.answer_all(two_rows());
    // The other one comes late, with something newer than the table even.
    world.advance(seconds(1));
    map.invalidate(map.now(), Some(second.id));
    assert_eq!(map.state(), ShardMapState::Ready);
    assert_eq!((predicted(&map, 5), predicted(&map, u128::MAX)), (Some(1), Some(2)));
}

#[test]
fn a_row_splits_and_its_range_can_be_asked_for_a_minute() {
    let (world, map) = World::ready(vec![row(9, 0, 499), row(10, 500, u128::MAX)]);
    world.advance(seconds(4));
    map.invalidate(map.now(), Some(10));
    world.settle();
    // It is a minute from when the row went, and not from when the fetch was begun.
    world.advance(seconds(10));
    world.answer_all(vec![row(9, 0, 499), row(11, 500, 999), row(12, 1000, u128::MAX)]);
    assert_eq!(predicted(&map, 700), Some(11));
    assert_eq!(map.hashrange(10), Some((500, u128::MAX)));
    assert_eq!(map.hashrange(11), Some((500, 999)));
    assert_eq!(map.stats().closed_rows, 1);
    map.invalidate(map.now(), Some(10));
    assert_eq!(map.state(), ShardMapState::Ready, "known to be gone");
    world.advance(seconds(60) - millis(1));
    assert_eq!(map.hashrange(10), Some((500, u128::MAX)));
    world.advance(millis(1));
    assert_eq!((map.hashrange(10), map.stats().closed_rows), (None, 0));
    assert_eq!(map.hashrange(9), Some((0, 499)), "one that stays is never too old");
}

#[test]
fn rows_merge() {
    let (world, map) = World::ready(two_rows());
    refresh(&world, &map, vec![row(3, 0, u128::MAX)]);
    assert_eq!((predicted(&map, 0), predicted(&map, 1000)), (Some(3), Some(3)));
    assert_eq!(map.hashrange(1), Some((0, 999)));
    assert_eq!(map.hashrange(2), Some((1000, u128::MAX)));
    world.advance(seconds(1));
    map.invalidate(map.now(), Some(1));
    map.invalidate(map.now(), Some(2));
    assert_eq!(map.state(), ShardMapState::Ready);
    map.invalidate(map.now(), Some(3));
    assert_eq!(map.state(), ShardMapState::Updating);
}

#[test]
fn a_row_that_merges_while_its_split_is_fetched_is_fetched_once_more() {
    let (world, map) = World::ready(vec![row(9, 0, u128::MAX)]);
    world.advance(seconds(4));
    map.invalidate(map.now(), Some(9));
    world.advance(seconds(1));
    // The arriving listing is older than the observation.
    map.invalidate(map.now(), Some(9));
    world.answer_all(two_rows());
    assert_eq!(map.state(), ShardMapState::Updating);
    world.answer_all(vec![row(3, 0, u128::MAX)]);
    assert_eq!((map.state(), ids(&map)), (ShardMapState::Ready, vec![3]));
    for (id, range) in [(9, (0, u128::MAX)), (1, (0, 999)), (2, (1000, u128::MAX))] {
        assert_eq!(map.hashrange(id), Some(range), "{id}");
    }
}

#[test]
fn a_row_that_comes_back_is_there_and_not_gone() {
    let (world, map) = World::ready(two_rows());
    refresh(&world, &map, vec![row(3, 0, u128::MAX)]);
    assert_eq!(map.stats().closed_rows, 2);
    world.advance(seconds(30));
    refresh(&world, &map, vec![row(1, 0, 499), row(2, 500, u128::MAX)]);
    assert_eq!(map.hashrange(1), Some((0, 499)), "where it is now");
    assert_eq!(map.stats().closed_rows, 1);
    world.advance(seconds(31));
    refresh(&world, &map, vec![row(4, 0, u128::MAX)]);
    // Gone again, with a minute of its own.
    world.advance(seconds(30));
    assert_eq!(map.hashrange(1), Some((0, 499)));
    assert_eq!(map.hashrange(3), None);
}

#[test]
fn rows_that_are_gone_are_bounded_and_the_oldest_go_first() {
    let table = |from: u64, count: u64| -> Vec<ShardRow> {
        let end = |n: u64| if n + 1 == count { u128::MAX } else { u128::from(n) };
        (0..count).map(|n| row(from + n, u128::from(n), end(n))).collect()
    };
    let half = CLOSED_MAX as u64 / 2;
    let (world, map) = World::ready(table(0, half));
    for n in 1..=3 {
        refresh(&world, &map, table(n * half, half));
    }
    assert_eq!(map.stats().closed_rows, CLOSED_MAX);
    assert_eq!(map.hashrange(half - 1), None, "of the oldest table");
    assert_eq!(map.hashrange(half), Some((0, 0)));
}

#[test]
fn a_map_follows_a_table_that_keeps_changing() {
    for seed in 0..30_u64 {
        let mut random = Random(seed);
        let (world, map) = World::new(ShardMapConfig::default());
        world.set_random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut truth = Truth { rows: vec![row(0, 0, u128::MAX)], last_id: 0 };
        map.start().unwrap();
        for _ in 0..300 {
            world.advance(millis(random.below(700)));
            assert!(world.open_questions() <= 1, "seed {seed}: one fetch at a time");
            match random.below(6) {
                0 => truth.change(&mut random),
                1 => {
                    // A caller finds that a prediction was wrong.
                    let place = u128::from(random.next()) << 64;
                    let predicted = map.predict(place);
                    if predicted.as_deref() != Some(truth.row_of(place)) {
                        map.invalidate(map.now(), predicted.map(|row| row.id));
                    }
                }
                2 if world.open_questions() == 1 => {
                    world.answer(Err("no".to_owned()));
                }
                _ if world.open_questions() == 1 => truth.answer(&world, &mut random),
                _ => {}
            }
            if let Some(table) = map.snapshot() {
                let place = u128::from(random.next()) << 64;
                let row = table.predict(place).unwrap();
                assert!(row.start <= place && place <= row.end, "seed {seed}");
            }
        }
        // The table stays as it is from now on, and all that find it wrong say so.
        for _ in 0..100 {
            world.advance(seconds(1));
            if let Some((predicted, _)) = map.snapshot().and_then(|table| {
                table.rows().iter().cloned().zip(&truth.rows).find(|(a, b)| **a != **b)
            }) {
                map.invalidate(map.now(), Some(predicted.id));
                world.settle();
            }
            while world.open_questions() == 1 {
                truth.answer(&world, &mut random);
            }
        }
        assert_eq!(map.state(), ShardMapState::Ready, "seed {seed}");
        let rows: Vec<ShardRow> =
            map.snapshot().unwrap().rows().iter().map(|row| (**row).clone()).collect();
        assert_eq!(rows, truth.rows, "seed {seed}");
    }
}

/// What the nodes have: rows that split and merge.
struct Truth {
    rows: Vec<ShardRow>,
    last_id: u64,
}

impl Truth {
    fn change(&mut self, random: &mut Random) {
        let index = random.below(self.rows.len() as u64) as usize;
        let is_merge = random.below(2) == 0 && index + 1 < self.rows.len();
        let mut id = || {
            self.last_id += 1;
            self.last_id
        };
        let old = self.rows[index].clone();
        if is_merge {
            let merged = row(id(), old.start, self.rows[index + 1].end);
            self.rows.splice(index..=index + 1, [merged]);
        } else if old.start < old.end {
            let middle = old.start + (old.end - old.start) / 2;
            let parts = [row(id(), old.start, middle), row(id(), middle + 1, old.end)];
            self.rows.splice(index..=index, parts);
        }
    }

    fn row_of(&self, place: u128) -> &ShardRow {
        self.rows.iter().find(|row| row.start <= place && place <= row.end).unwrap()
    }

    /// The page that is asked for, of the table as it is now: it may not fit to the one before.
    fn answer(&self, world: &World, random: &mut Random) {
        let count = 1 + random.below(4) as usize;
        world.answer_with(|after| {
            let rest = self.rows.iter().filter(|row| after.is_none_or(|after| row.start > after));
            let rows: Vec<ShardRow> = rest.clone().take(count).cloned().collect();
            let is_last = rest.count() <= count;
            let next = rows.last().map(|row| row.end).filter(|_| !is_last);
            Page { rows, next }
        });
    }
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::model::shard::hash_key(&self.0.to_le_bytes())
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
