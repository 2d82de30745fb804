//! What a watch remembers, one rule after the other.

use super::*;
use crate::chain::Chain;
use crate::model::value::Value;

fn entry(value: Option<u8>, tock: u64, node: &str) -> Entry {
    Entry {
        value: value.map(|value| Value::new(&[value]).unwrap()),
        chain: Some(Chain::of(node, tock)),
        tock,
        time_ms: None,
        node: String::from("told"),
    }
}

fn version(tock: u64) -> Version {
    entry(None, tock, "a").version().unwrap()
}

/// How something compares that comes after the state.
fn look(memory: &mut Memory, number: i64, value: Option<u8>, tock: u64) -> Look {
    memory.look(&path(number), &entry(value, tock, "a"), false)
}

fn path(number: i64) -> Path {
    Path::root().push(number).unwrap()
}

#[test]
fn versions_are_new_known_or_older() {
    let mut memory = Memory::new(10, 10_000);
    assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "a~1234"), false), Look::New);
    memory.on_delivered(&path(1), &entry(Some(1), 5, "a~1234"), By::Feed);
    memory.begin_feed();
    assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "a~123"), true), Look::Older);
    assert_eq!(memory.look(&path(1), &entry(Some(1), 4, "z~1"), true), Look::Older);
    assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "a~1234"), true), Look::Known);
    assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "a~1235"), true), Look::New);
    assert_eq!(memory.look(&path(1), &entry(Some(2), 5, "a~1234"), true), Look::New);
    assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "b~1"), true), Look::New);
    memory.on_delivered(&path(1), &entry(None, 6, "a~1234"), By::Feed);
    memory.begin_feed();
    assert_eq!(memory.look(&path(1), &entry(Some(1), 5, "a~1234"), true), Look::Older);
}

#[test]
fn what_a_feed_does_not_show_is_found() {
    let mut memory = Memory::new(10, 10_000);
    memory.on_delivered(&path(1), &entry(Some(1), 1, "a"), By::Feed);
    memory.on_delivered(&path(2), &entry(Some(1), 2, "a"), By::Feed);
    memory.on_delivered(&path(3), &entry(None, 3, "a"), By::Feed);
    memory.begin_feed();
    assert_eq!(memory.look(&path(1), &entry(Some(1), 1, "a"), true), Look::Known);
    assert_eq!(memory.not_seen().collect::<Vec<_>>(), [&path(2)]);
    assert!(memory.on_gone(&path(2), version(2), 9));
    assert_eq!(memory.not_seen().count(), 0);
}

#[test]
fn forgotten_deletions_leave_doubt_and_too_many_values_end_it() {
    let mut memory = Memory::new(4, 10_000);
    for i in 0..10 {
        memory.on_delivered(&path(i), &entry(None, 100 + i as u64, "a"), By::Feed);
    }
    assert!(memory.is_whole());
    memory.begin_feed();
    assert_eq!(memory.look(&path(0), &entry(Some(1), 50, "a"), true), Look::Doubtful);
    assert_eq!(memory.look(&path(0), &entry(Some(1), 200, "a"), true), Look::New);
    for i in 0..5 {
        memory.on_delivered(&path(20 + i), &entry(Some(1), 300 + i as u64, "a"), By::Feed);
    }
    assert!(!memory.is_whole());
    memory.clear();
    assert!(memory.is_whole());
    let mut tight = Memory::new(1000, 400);
    for i in 0..3 {
        tight.on_delivered(&path(i), &entry(Some(1), 1, "a"), By::Feed);
    }
    assert!(!tight.is_whole());
}

#[test]
fn what_is_older_than_what_the_node_holds_is_the_past_of_its_stream() {
    let by: [fn(&mut Memory); 4] = [
        // It came in this feed, by an answer or by the stream.
        |memory| memory.on_delivered(&path(1), &entry(Some(3), 30, "a"), By::Answer),
        |memory| memory.on_delivered(&path(1), &entry(Some(3), 30, "a"), By::Feed),
        // It came once more.
        |memory| assert_eq!(look(memory, 1, Some(3), 30), Look::Known),
        // The node answered that it has it.
        |memory| memory.on_held(&path(1)),
    ];
    for is_seen_to_hold in by {
        let mut memory = Memory::new(10, 10_000);
        memory.on_delivered(&path(1), &entry(Some(3), 30, "a"), By::Feed);
        memory.begin_feed();
        assert_eq!(look(&mut memory, 1, Some(2), 20), Look::Older);
        is_seen_to_hold(&mut memory);
        assert_eq!(look(&mut memory, 1, Some(2), 20), Look::Known);
        assert_eq!(memory.look(&path(1), &entry(Some(2), 20, "a"), true), Look::Known);
        assert_eq!(look(&mut memory, 1, Some(4), 40), Look::New);
        // The next node may not have heard of it.
        memory.begin_feed();
        assert_eq!(look(&mut memory, 1, Some(2), 20), Look::Older);
    }
}

#[test]
fn behind_the_answer_that_it_is_gone_comes_its_past_or_what_is_created_again() {
    let mut memory = Memory::new(10, 10_000);
    memory.on_delivered(&path(1), &entry(Some(1), 10, "a"), By::Feed);
    memory.begin_feed();
    assert!(memory.on_gone(&path(1), version(10), 60));
    assert_eq!(memory.not_seen().count(), 0);
    assert_eq!(look(&mut memory, 1, Some(0), 5), Look::Known);
    assert_eq!(look(&mut memory, 1, Some(1), 10), Look::Known);
    assert_eq!(look(&mut memory, 1, Some(2), 60), Look::Doubtful);
    assert_eq!(look(&mut memory, 1, Some(2), 61), Look::New);
    // Asked again, it may say so later.
    assert!(!memory.on_gone(&path(1), version(60), 70));
    assert_eq!(look(&mut memory, 1, Some(2), 60), Look::Known);
    assert_eq!(look(&mut memory, 1, Some(2), 70), Look::Doubtful);
    // A deletion is not told again, and it need not be the last one.
    assert_eq!(look(&mut memory, 1, None, 65), Look::Known);
    assert_eq!(look(&mut memory, 1, Some(2), 64), Look::Known);
    assert_eq!(look(&mut memory, 1, Some(2), 66), Look::Doubtful);
    assert_eq!(look(&mut memory, 1, Some(2), 71), Look::New);
    memory.on_delivered(&path(1), &entry(Some(2), 71, "a"), By::Feed);
    assert_eq!(look(&mut memory, 1, Some(2), 70), Look::Known);
    assert_eq!(look(&mut memory, 1, Some(2), 72), Look::New);
}

#[test]
fn that_it_was_gone_says_nothing_of_what_comes_in_a_later_feed() {
    let mut memory = Memory::new(10, 10_000);
    for number in 1..4 {
        memory.on_delivered(&path(number), &entry(Some(1), 10, "a"), By::Feed);
    }
    memory.on_delivered(&path(3), &entry(None, 12, "a"), By::Feed);
    memory.begin_feed();
    assert!(memory.on_gone(&path(1), version(10), 60));
    assert!(memory.on_gone(&path(2), version(10), 60));
    assert_eq!(look(&mut memory, 2, None, 15), Look::Known);
    assert!(!memory.on_gone(&path(3), version(12), 60));
    memory.begin_feed();
    assert_eq!(memory.look(&path(1), &entry(Some(0), 5, "a"), true), Look::New);
    // The deletion has a version since it came, or had one before.
    assert_eq!(memory.look(&path(2), &entry(Some(0), 14, "a"), true), Look::Older);
    assert_eq!(memory.look(&path(2), &entry(Some(0), 16, "a"), true), Look::New);
    assert_eq!(memory.look(&path(3), &entry(Some(0), 11, "a"), true), Look::Older);
    assert_eq!(memory.not_seen().count(), 0);
}

#[test]
fn deletions_that_were_forgotten_leave_doubt_of_the_stream_they_are_ahead_of() {
    let mut memory = Memory::new(4, 10_000);
    // They came by the stream itself: nothing older comes behind them.
    for number in 0..10 {
        memory.on_delivered(&path(number), &entry(None, 100, "a"), By::Feed);
    }
    assert_eq!(look(&mut memory, 0, Some(1), 50), Look::New);
    memory.begin_feed();
    assert_eq!(look(&mut memory, 0, Some(1), 100), Look::Doubtful);
    assert_eq!(look(&mut memory, 0, Some(1), 101), Look::New);
    assert_eq!(look(&mut memory, 0, None, 50), Look::New);
    memory.clear();
    assert_eq!(look(&mut memory, 0, Some(1), 50), Look::New);
    // Answers are ahead of the stream.
    for number in 0..5 {
        memory.on_delivered(&path(number), &entry(None, 100, "a"), By::Answer);
    }
    assert_eq!(look(&mut memory, 0, Some(1), 100), Look::Doubtful);
    assert_eq!(look(&mut memory, 0, Some(1), 101), Look::New);
    for number in 1..5 {
        memory.on_gone(&path(number), version(100), 200);
    }
    // The next one takes the first one's place.
    assert_eq!(look(&mut memory, 9, Some(1), 101), Look::New);
    memory.on_gone(&path(5), version(50), 60);
    assert_eq!(look(&mut memory, 9, Some(1), 200), Look::Doubtful);
    assert_eq!(look(&mut memory, 9, Some(1), 201), Look::New);
}

#[test]
fn what_is_gone_counts_in_the_bounds() {
    let mut memory = Memory::new(4, 10_000);
    for number in 0..4 {
        memory.on_delivered(&path(number), &entry(Some(1), 10, "a"), By::Feed);
    }
    memory.begin_feed();
    memory.on_gone(&path(0), version(10), 60);
    memory.on_delivered(&path(4), &entry(Some(1), 70, "a"), By::Feed);
    assert!(memory.is_whole());
    assert_eq!(look(&mut memory, 0, Some(1), 60), Look::Doubtful);
    // One that came since is still found among the deletions.
    memory.on_gone(&path(1), version(10), 60);
    assert_eq!(look(&mut memory, 1, None, 80), Look::Known);
    memory.on_delivered(&path(5), &entry(Some(1), 90, "a"), By::Feed);
    assert!(memory.is_whole());
    assert_eq!(look(&mut memory, 1, Some(1), 80), Look::Doubtful);
    memory.on_delivered(&path(6), &entry(Some(1), 90, "a"), By::Feed);
    assert!(!memory.is_whole());
    assert!(memory.on_gone(&path(2), version(10), 100));
}
