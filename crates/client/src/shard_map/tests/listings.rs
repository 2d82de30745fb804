//! Fetches that fail: listings that are refused, pages that do not come, and the waits after that.

use super::*;
use crate::shard_map::listing::{Listing, PAGES_MAX, ROWS_MAX};

fn page(rows: Vec<ShardRow>, next: Option<u128>) -> Page {
    Page { rows, next }
}

/// Pages of a listing, pushed one after the other; the first refusal.
fn listed(pages: Vec<Page>) -> Result<bool, ListingError> {
    let mut listing = Listing::default();
    let mut is_last = false;
    for page in pages {
        is_last = listing.push(page)?;
    }
    Ok(is_last)
}

#[test]
fn listings_with_gaps_overlaps_or_nonsense_are_refused() {
    const MAX: u128 = u128::MAX;
    let one = |rows| vec![page(rows, None)];
    for (pages, expected) in [
        (one(vec![row(1, 0, MAX)]), Ok(true)),
        (one(vec![row(1, 0, 0), row(2, 1, MAX)]), Ok(true)),
        (vec![page(vec![row(1, 0, 4)], Some(4)), page(vec![row(2, 5, MAX)], None)], Ok(true)),
        // Nodes may say `next` although nothing follows.
        (vec![page(vec![row(1, 0, MAX)], Some(MAX)), page(vec![], None)], Ok(true)),
        (one(vec![]), Err(ListingError::Gap(0))),
        (one(vec![row(1, 3, MAX)]), Err(ListingError::Gap(0))),
        (one(vec![row(1, 0, 9)]), Err(ListingError::Gap(10))),
        (one(vec![row(1, 0, MAX - 1)]), Err(ListingError::Gap(MAX))),
        (one(vec![row(1, 0, 9), row(2, 11, MAX)]), Err(ListingError::Gap(10))),
        (one(vec![row(1, 0, 9), row(2, 9, MAX)]), Err(ListingError::Overlap(9))),
        (one(vec![row(1, 0, 9), row(2, 0, MAX)]), Err(ListingError::Overlap(0))),
        (one(vec![row(1, 0, MAX), row(2, 0, 5)]), Err(ListingError::Overlap(0))),
        (one(vec![row(1, 0, MAX), row(2, MAX, MAX)]), Err(ListingError::Overlap(MAX))),
        (one(vec![row(1, 0, 9), row(2, 10, 9)]), Err(ListingError::Overlap(10))),
        (one(vec![row(1, 0, 9), row(1, 10, MAX)]), Err(ListingError::SameId(1))),
        (
            vec![page(vec![row(1, 0, 4)], Some(4)), page(vec![row(2, 7, MAX)], None)],
            Err(ListingError::Gap(5)),
        ),
        (
            vec![page(vec![row(1, 0, 4)], Some(4)), page(vec![row(2, 3, MAX)], None)],
            Err(ListingError::Overlap(3)),
        ),
        (vec![page(vec![], Some(4))], Err(ListingError::NoProgress(1))),
        (
            vec![page(vec![row(1, 0, 4)], Some(4)), page(vec![row(2, 5, 9)], Some(4))],
            Err(ListingError::NoProgress(2)),
        ),
    ] {
        let text = format!("{pages:?}");
        assert_eq!(listed(pages), expected, "{text}");
    }
}

#[test]
fn listings_are_bounded_in_rows_and_pages() {
    let rows = |from: usize, to: usize| -> Vec<ShardRow> {
        (from..to).map(|n| row(n as u64, n as u128, n as u128)).collect()
    };
    let most = vec![page(rows(0, ROWS_MAX), Some(1))];
    assert_eq!(listed(most), Ok(false));
    let too_many = vec![page(rows(0, ROWS_MAX + 1), None)];
    assert_eq!(listed(too_many), Err(ListingError::TooManyRows));
    let later = vec![page(rows(0, ROWS_MAX), Some(1)), page(rows(ROWS_MAX, ROWS_MAX + 1), None)];
    assert_eq!(listed(later), Err(ListingError::TooManyRows));
    let small = |n: usize| page(rows(n, n + 1), Some(n as u128));
    assert_eq!(listed((0..PAGES_MAX - 1).map(small).collect()), Ok(false));
    assert_eq!(listed((0..PAGES_MAX).map(small).collect()), Err(ListingError::TooManyPages));
}

#[test]
fn a_listing_with_a_gap_or_an_overlap_is_tried_again_later() {
    for bad in [vec![row(3, 0, 10)], vec![row(3, 0, 10), row(4, 5, u128::MAX)]] {
        let (world, map) = World::new(ShardMapConfig::default());
        map.start().unwrap();
        world.settle();
        world.answer_all(bad.clone());
        assert_eq!((map.state(), map.predict(0)), (ShardMapState::Invalid, None), "none at all");
        world.advance(seconds(1));
        world.answer_all(two_rows());
        assert_eq!(map.state(), ShardMapState::Ready);

        world.advance(seconds(1));
        map.invalidate(map.now(), None);
        world.settle();
        world.answer_all(bad);
        assert_eq!((map.state(), ids(&map)), (ShardMapState::Invalid, vec![1, 2]), "the old one");
        assert!(map.stats().last_failure.is_some());
        world.advance(seconds(1));
        world.answer_all(vec![row(5, 0, u128::MAX)]);
        assert_eq!((map.state(), ids(&map)), (ShardMapState::Ready, vec![5]));
    }
}

#[test]
fn when_the_second_page_fails_the_old_table_stays_and_all_is_fetched_again() {
    let (world, map) = World::ready(two_rows());
    let refreshed = map.stats().refreshed_at;
    world.advance(seconds(4));
    map.invalidate(map.now(), Some(1));
    world.settle();
    world.answer(Ok(page(vec![row(3, 0, 499)], Some(499))));
    assert_eq!(world.answer(Err("the node went".to_owned())), Some(499));
    assert_eq!((map.state(), ids(&map)), (ShardMapState::Invalid, vec![1, 2]));
    assert_eq!(map.hashrange(3), None);
    let stats = map.stats();
    assert_eq!((stats.fetches, stats.failures, stats.failures_in_row), (2, 1, 1));
    assert_eq!(stats.refreshed_at, refreshed);
    let failure = stats.last_failure.unwrap();
    assert!(failure.contains("page 2") && failure.contains("the node went"), "{failure}");
    // From the first page on: the first half may be another one by now.
    world.advance(seconds(1));
    assert_eq!(world.fetches(), [seconds(1), seconds(5), seconds(6)]);
    world.answer_all(vec![row(4, 0, u128::MAX)]);
    assert_eq!((map.state(), ids(&map)), (ShardMapState::Ready, vec![4]));
    assert_eq!(map.stats().failures_in_row, 0);
}

#[test]
fn waits_double_from_one_second_to_thirty_and_begin_anew_after_a_success() {
    let (world, map) = World::new(ShardMapConfig::default());
    map.start().unwrap();
    world.settle();
    let mut expected = vec![seconds(1)];
    for wait in [1, 2, 4, 8, 16, 30, 30, 30] {
        world.answer(Err("no".to_owned()));
        assert_eq!(map.state(), ShardMapState::Invalid);
        world.advance(seconds(wait) - millis(1));
        assert_eq!((map.state(), world.open_questions()), (ShardMapState::Invalid, 0));
        world.advance(millis(1));
        assert_eq!((map.state(), world.open_questions()), (ShardMapState::Updating, 1));
        expected.push(*expected.last().unwrap() + seconds(wait));
    }
    assert_eq!(world.fetches(), expected);
    world.answer_all(two_rows());
    map.invalidate(map.now(), None);
    world.settle();
    world.answer(Err("no".to_owned()));
    world.advance(seconds(1));
    assert_eq!(map.state(), ShardMapState::Updating);
}

#[test]
fn waits_have_jitter_between_half_and_all() {
    for (random, wait) in [(0, 500), (u64::MAX / 2, 750), (u64::MAX, 1000)] {
        let (world, map) = World::new(ShardMapConfig::default());
        world.set_random(random);
        map.start().unwrap();
        world.settle();
        world.answer(Err("no".to_owned()));
        world.advance(millis(wait - 1));
        assert_eq!(map.state(), ShardMapState::Invalid, "{random:#x}");
        world.advance(millis(1));
        assert_eq!(map.state(), ShardMapState::Updating, "{random:#x}");
    }
}

#[test]
fn invalidations_do_not_shorten_the_wait_nor_add_a_fetch() {
    let (world, map) = World::ready(two_rows());
    world.advance(seconds(4));
    map.invalidate(map.now(), None);
    world.settle();
    map.invalidate(map.now(), None);
    // The fetch that is to follow this one follows it as its next try.
    world.answer(Err("no".to_owned()));
    for _ in 0..1000 {
        map.invalidate(map.now(), Some(1));
        world.settle();
    }
    assert_eq!((map.state(), world.open_questions()), (ShardMapState::Invalid, 0));
    world.advance(seconds(1));
    assert_eq!(world.fetches(), [seconds(1), seconds(5), seconds(6)]);
    world.answer_all(two_rows());
    world.advance(seconds(100));
    assert_eq!((map.state(), world.fetches().len()), (ShardMapState::Ready, 3));
}

#[test]
fn a_lister_that_hangs_is_given_up_after_a_while() {
    let (world, map) = World::new(ShardMapConfig::default());
    map.start().unwrap();
    world.settle();
    world.advance(seconds(10));
    // The pages together, not each.
    world.answer(Ok(page(vec![row(1, 0, 9)], Some(9))));
    world.advance(seconds(20) - millis(1));
    assert_eq!((map.state(), world.open_questions()), (ShardMapState::Updating, 1));
    world.advance(millis(1));
    assert_eq!((map.state(), world.open_questions()), (ShardMapState::Invalid, 0));
    assert!(map.stats().last_failure.unwrap().contains("too long"));
    world.advance(seconds(1));
    assert_eq!(map.state(), ShardMapState::Updating);
}
