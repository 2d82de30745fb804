//! Tests of the shard map, in virtual time: nothing here sleeps.

mod flows;
mod listings;
mod world;

use std::sync::Barrier;

use super::closed::CLOSED_MAX;
use super::*;
use world::{Map, World};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A row over the places from `start` to `end`.
fn row(id: u64, start: u128, end: u128) -> ShardRow {
    ShardRow { id, start, end, first: 0, last: 0, prefer: None }
}

/// A table of two rows: 1 below 1000, 2 from there.
fn two_rows() -> Vec<ShardRow> {
    vec![row(1, 0, 999), row(2, 1000, u128::MAX)]
}

/// The ids of the rows, in order.
fn ids(map: &Map) -> Vec<u64> {
    map.snapshot().map_or(Vec::new(), |table| table.rows().iter().map(|row| row.id).collect())
}

fn predicted(map: &Map, place: u128) -> Option<u64> {
    map.predict(place).map(|row| row.id)
}

#[test]
fn a_map_does_nothing_before_it_is_started() {
    let (world, map) = World::new(ShardMapConfig::default());
    map.invalidate(map.now(), None);
    world.advance(seconds(100));
    assert_eq!(map.state(), ShardMapState::Invalid);
    assert_eq!((map.predict(0), map.hashrange(1), map.snapshot().is_none()), (None, None, true));
    assert!(world.fetches().is_empty());
}

#[test]
fn a_map_goes_from_invalid_by_updating_to_ready() {
    let (world, map) = World::new(ShardMapConfig::default());
    assert_eq!(map.state(), ShardMapState::Invalid);
    map.start().unwrap();
    assert_eq!(map.state(), ShardMapState::Updating);
    world.settle();
    assert_eq!((map.state(), map.predict(0)), (ShardMapState::Updating, None));
    world.answer_all(two_rows());
    assert_eq!(map.state(), ShardMapState::Ready);
    assert_eq!(predicted(&map, 999), Some(1));
    assert_eq!(predicted(&map, 1000), Some(2));
    map.start().unwrap();
    world.advance(seconds(1000));
    assert_eq!(world.fetches().len(), 1, "a second start does nothing, nor does time");
}

#[test]
fn pages_are_fetched_one_after_the_other_each_behind_the_one_before() {
    let (world, map) = World::new(ShardMapConfig::default());
    map.start().unwrap();
    world.settle();
    let page = |rows, next| Ok(Page { rows, next });
    assert_eq!(world.answer(page(vec![row(1, 0, 9)], Some(9))), None);
    assert_eq!(world.answer(page(vec![row(2, 10, 19), row(3, 20, 29)], Some(29))), Some(9));
    assert_eq!(map.state(), ShardMapState::Updating);
    assert_eq!(map.predict(5), None, "half a table is none");
    assert_eq!(world.answer(page(vec![row(4, 30, u128::MAX)], None)), Some(29));
    assert_eq!((map.state(), ids(&map)), (ShardMapState::Ready, vec![1, 2, 3, 4]));
}

#[test]
fn predicting_is_a_binary_search_that_finds_every_place() {
    let count = 1000_u64;
    let rows: Vec<ShardRow> = (0..count)
        .map(|n| {
            let end = if n + 1 == count { u128::MAX } else { u128::from(n) * 7 + 6 };
            row(n + 1, u128::from(n) * 7, end)
        })
        .collect();
    let (_world, map) = World::ready(rows.clone());
    for row in &rows {
        for place in [row.start, row.start + 3, row.end] {
            assert_eq!(predicted(&map, place), Some(row.id), "{place}");
            let mut looks = 0;
            let table = map.snapshot().unwrap();
            let found = table.search(|row| {
                looks += 1;
                row.end < place
            });
            assert_eq!(found.unwrap().id, row.id);
            assert!(looks <= 11, "{looks} looks at rows, of 1000");
        }
        assert_eq!(map.hashrange(row.id), Some((row.start, row.end)));
    }
}

#[test]
fn the_old_table_answers_while_a_new_one_is_fetched() {
    let (world, map) = World::ready(two_rows());
    world.advance(seconds(5));
    map.invalidate(map.now(), Some(1));
    assert_eq!(map.state(), ShardMapState::Updating);
    world.advance(seconds(5));
    assert_eq!((predicted(&map, 0), map.state()), (Some(1), ShardMapState::Updating));
    world.answer_all(vec![row(3, 0, u128::MAX)]);
    assert_eq!((predicted(&map, 0), map.state()), (Some(3), ShardMapState::Ready));
}

#[test]
fn nothing_is_invalidated_by_what_was_seen_before_the_table() {
    let (world, map) = World::ready(two_rows());
    let refreshed = map.stats().refreshed_at.unwrap();
    assert_eq!(refreshed, seconds(1));
    world.advance(seconds(5));
    map.invalidate(millis(999), Some(1));
    map.invalidate(Duration::ZERO, None);
    assert_eq!(map.state(), ShardMapState::Ready);
    // At the same moment: it is unknown which was first.
    map.invalidate(refreshed, Some(1));
    assert_eq!(map.state(), ShardMapState::Updating);
}

#[test]
fn nothing_is_invalidated_by_a_row_that_is_gone_already() {
    let (world, map) = World::ready(two_rows());
    world.advance(seconds(5));
    map.invalidate(map.now(), Some(77));
    assert_eq!(map.state(), ShardMapState::Ready);
    map.invalidate(map.now(), Some(2));
    assert_eq!(map.state(), ShardMapState::Updating);
    assert_eq!(map.stats().invalidations, 2);
    assert_eq!(map.stats().invalidations_heard, 1);
}

#[test]
fn a_table_is_from_the_moment_at_which_its_fetch_was_begun() {
    let (world, map) = World::new(ShardMapConfig::default());
    map.start().unwrap();
    world.settle();
    // The fetch takes from 1 s to 6 s.
    world.advance(seconds(5));
    world.answer_all(two_rows());
    assert_eq!(map.snapshot().unwrap().refreshed_at, seconds(1));
    // Seen at 3 s, said at 6 s: the fetch was running, and may have read before the change.
    map.invalidate(seconds(3), Some(1));
    world.settle();
    assert_eq!(world.fetches(), [seconds(1), seconds(6)]);
}

#[test]
fn what_is_seen_in_the_middle_of_a_fetch_causes_one_more_after_it() {
    let (world, map) = World::ready(two_rows());
    world.advance(seconds(4));
    map.invalidate(map.now(), None);
    world.advance(seconds(1));
    assert_eq!(world.fetches(), [seconds(1), seconds(5)]);
    for _ in 0..100 {
        map.invalidate(map.now(), Some(1));
    }
    world.advance(seconds(1));
    assert_eq!(world.fetches().len(), 2, "one at a time");
    let ready = world.run({
        let map = Arc::clone(&map);
        async move { map.ready().await }
    });
    world.answer_all(vec![row(3, 0, u128::MAX)]);
    assert_eq!(predicted(&map, 0), Some(3), "newer than nothing");
    assert_eq!((map.state(), *ready.lock()), (ShardMapState::Updating, None));
    assert_eq!(world.fetches(), [seconds(1), seconds(5), seconds(7)]);
    world.answer_all(vec![row(4, 0, u128::MAX)]);
    assert_eq!((map.state(), *ready.lock()), (ShardMapState::Ready, Some(Ok(()))));
    world.advance(seconds(100));
    assert_eq!(world.fetches().len(), 3, "one more, not one for each");
}

#[test]
fn what_was_seen_before_a_fetch_is_in_it() {
    let (world, map) = World::ready(two_rows());
    world.advance(seconds(4));
    let seen_at = map.now();
    world.advance(millis(1));
    map.invalidate(seen_at, Some(1));
    world.advance(seconds(1));
    for _ in 0..100 {
        map.invalidate(seen_at, Some(1));
    }
    world.answer_all(two_rows());
    world.advance(seconds(100));
    assert_eq!((map.state(), world.fetches().len()), (ShardMapState::Ready, 2));
}

#[test]
fn a_thousand_concurrent_invalidations_cause_one_fetch() {
    const THREADS: usize = 20;
    let (world, map) = World::ready(two_rows());
    world.advance(seconds(4));
    let seen_at = map.now();
    world.advance(millis(1));
    let barrier = Barrier::new(THREADS + 1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                for n in 0..50 {
                    map.invalidate(seen_at, [None, Some(1), Some(2)][n % 3]);
                }
            });
        }
        // The fetch begins in the middle of them.
        barrier.wait();
        world.settle();
    });
    world.settle();
    assert_eq!(map.stats().invalidations, 1000);
    assert_eq!(map.stats().invalidations_heard, 1);
    assert_eq!(world.open_questions(), 1);
    world.answer_all(two_rows());
    world.advance(seconds(100));
    assert_eq!((map.state(), world.fetches().len()), (ShardMapState::Ready, 2));
}

#[test]
fn a_thousand_tasks_that_invalidate_and_wait_cause_one_fetch() {
    let (world, map) = World::ready(two_rows());
    world.advance(seconds(4));
    let seen_at = map.now();
    world.advance(millis(1));
    let results: Vec<_> = (0..1000)
        .map(|_| {
            let map = Arc::clone(&map);
            world.run(async move {
                map.invalidate(seen_at, Some(1));
                map.ready().await
            })
        })
        .collect();
    assert!(results.iter().all(|result| result.lock().is_none()));
    world.answer_all(vec![row(3, 0, u128::MAX)]);
    assert!(results.iter().all(|result| *result.lock() == Some(Ok(()))));
    assert_eq!(world.fetches().len(), 2);
}

#[test]
fn an_old_table_is_fetched_anew_by_itself_if_that_is_asked_for() {
    let config = ShardMapConfig { refresh_every: Some(seconds(60)), ..Default::default() };
    let (world, map) = World::new(config);
    map.start().unwrap();
    world.settle();
    world.advance(seconds(5));
    world.answer_all(two_rows());
    world.advance(seconds(54));
    assert_eq!(map.state(), ShardMapState::Ready);
    world.advance(seconds(1));
    assert_eq!(world.fetches(), [seconds(1), seconds(61)], "from the beginning of the fetch");
    world.answer_all(two_rows());
    world.advance(seconds(30));
    map.invalidate(map.now(), None);
    world.settle();
    world.answer_all(two_rows());
    world.advance(seconds(59));
    assert_eq!(world.fetches().len(), 3);
    world.advance(seconds(1));
    assert_eq!(world.fetches().len(), 4);
}

#[test]
fn ready_waits_and_can_be_given_up() {
    let (world, map) = World::new(ShardMapConfig::default());
    // Also before the start.
    let wait = |map: &Arc<Map>| {
        let map = Arc::clone(map);
        async move { map.ready().await }
    };
    let early = world.run(wait(&map));
    let mut given_up = Box::pin(wait(&map));
    assert_eq!(futures::FutureExt::now_or_never(&mut given_up), None);
    drop(given_up);
    map.start().unwrap();
    world.settle();
    assert_eq!(*early.lock(), None);
    world.answer_all(two_rows());
    assert_eq!(*early.lock(), Some(Ok(())));
    assert_eq!(*world.run(wait(&map)).lock(), Some(Ok(())));
}

#[test]
fn changed_gives_each_newer_table() {
    let (world, map) = World::ready(two_rows());
    let wait = |number| {
        let map = Arc::clone(&map);
        world.run(async move { map.changed(number).await.map(|table| table.number) })
    };
    assert_eq!(*wait(0).lock(), Some(Ok(1)));
    let second = wait(1);
    assert_eq!(*second.lock(), None);
    world.advance(seconds(1));
    map.invalidate(map.now(), None);
    world.settle();
    world.answer_all(two_rows());
    assert_eq!(*second.lock(), Some(Ok(2)));
    let third = wait(2);
    map.close();
    world.settle();
    assert_eq!(*third.lock(), Some(Err(ShardMapClosed)));
}

#[test]
fn a_closed_map_stays_closed() {
    let (world, map) = World::ready(two_rows());
    map.close();
    world.settle();
    let check = || {
        assert_eq!(map.state(), ShardMapState::Closed);
        assert_eq!(map.start(), Err(ShardMapClosed));
        assert_eq!(
            (map.predict(0), map.hashrange(1), map.snapshot().is_none()),
            (None, None, true)
        );
        let map = Arc::clone(&map);
        assert_eq!(*world.run(async move { map.ready().await }).lock(), Some(Err(ShardMapClosed)));
    };
    check();
    assert_eq!(world.tasks(), 0, "its task has ended");
    map.invalidate(map.now(), None);
    map.close();
    world.advance(seconds(100));
    check();
    assert_eq!(world.fetches().len(), 1);
}

#[test]
fn closing_before_the_start_in_a_fetch_and_in_a_wait_is_for_ever() {
    let (world, map) = World::new(ShardMapConfig::default());
    map.close();
    assert_eq!(map.start(), Err(ShardMapClosed));
    assert_eq!(world.tasks(), 0);

    let (world, map) = World::new(ShardMapConfig::default());
    map.start().unwrap();
    map.close();
    world.settle();
    assert_eq!((world.fetches().len(), world.tasks()), (0, 0), "before the task came to it");

    let (world, map) = World::new(ShardMapConfig::default());
    map.start().unwrap();
    world.settle();
    let ready = world.run({
        let map = Arc::clone(&map);
        async move { map.ready().await }
    });
    map.close();
    world.settle();
    assert_eq!((world.open_questions(), world.tasks()), (0, 0), "the fetch was given up");
    assert_eq!(*ready.lock(), Some(Err(ShardMapClosed)));
    world.answer_all(two_rows());
    assert_eq!((map.state(), map.predict(0)), (ShardMapState::Closed, None));

    let (world, map) = World::new(ShardMapConfig::default());
    map.start().unwrap();
    world.settle();
    world.answer(Err("no".to_owned()));
    map.close();
    world.settle();
    assert_eq!(world.tasks(), 0, "it does not wait for its next try");
    world.advance(seconds(100));
    assert_eq!(world.fetches().len(), 1);
}

#[test]
fn dropping_a_map_closes_it() {
    let (world, map) = World::ready(two_rows());
    drop(map);
    world.settle();
    assert_eq!(world.tasks(), 0);
}

#[test]
fn the_real_clock_and_tasks_do_as_well() {
    // In one function, as the façade will: any executor, a closure as the lister.
    let lister = |after: Option<u128>| async move {
        match after {
            None => Ok(Page { rows: vec![row(1, 0, 9)], next: Some(9) }),
            Some(9) => Ok(Page { rows: vec![row(2, 10, u128::MAX)], next: None }),
            Some(other) => Err(format!("no page behind {other}")),
        }
    };
    let map = ShardMap::new(lister, SystemClock, ShardMapConfig::default());
    map.start().unwrap();
    crate::rt::block_on(map.ready()).unwrap();
    assert_eq!(map.predict(10).map(|row| row.id), Some(2));
    map.close();
    assert_eq!(crate::rt::block_on(map.ready()), Err(ShardMapClosed));
}
