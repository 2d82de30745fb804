//! Rings change only as a rotation needs it, and any two orders of merges end in the same set of keys.

use proptest::prelude::*;

use super::handed::{Handed, Merged};
use super::*;
use crate::rotation::{Next, Plan};

fn key(byte: u8) -> Key {
    Key::new([byte; 32])
}

fn ring(bytes: &[u8]) -> KeyRing {
    let (first, others) = bytes.split_first().unwrap();
    let mut ring = KeyRing::new(NetworkName::new("plant").unwrap(), key(*first));
    for byte in others {
        ring.add(key(*byte)).unwrap();
    }
    ring
}

fn ids(ring: &KeyRing) -> Vec<KeyId> {
    let mut ids = ring.summary().ids;
    ids.sort_unstable();
    ids
}

#[test]
fn a_rotation_adds_uses_and_removes_and_each_step_may_be_repeated() {
    let (old, new) = (key(1).id(), key(2).id());
    let mut ring = ring(&[1]);
    assert_eq!(ring.add(key(2)), Ok(Applied::Changed));
    assert_eq!(ring.add(key(2)), Ok(Applied::Already));
    assert_eq!(ring.primary_id(), old);
    assert_eq!(ring.make_primary(new), Ok(Applied::Changed));
    assert_eq!(ring.make_primary(new), Ok(Applied::Already));
    assert_eq!(ring.primary(), &key(2));
    assert_eq!(ring.remove(old), Ok(Applied::Changed));
    assert_eq!(ring.remove(old), Ok(Applied::Already));
    assert_eq!(ring.summary(), RingSummary { ids: vec![new], primary: new });
}

#[test]
fn what_would_lock_a_node_out_is_refused_and_changes_nothing() {
    let mut of_one = ring(&[1]);
    assert_eq!(of_one.remove(key(1).id()), Err(RingError::Last(key(1).id())));
    assert_eq!(of_one.make_primary(key(2).id()), Err(RingError::Unknown(key(2).id())));
    let mut full = ring(&[1, 2, 3, 4]);
    let before = full.clone();
    assert_eq!(full.remove(key(1).id()), Err(RingError::Primary(key(1).id())));
    assert_eq!(full.remove(key(9).id()), Err(RingError::Unknown(key(9).id())));
    assert_eq!(full.add(key(5)), Err(RingError::Full));
    assert_eq!(full.merge(&ordered(&[1, 5]).handed()), Err(RingError::Full));
    let other = KeyRing::new(NetworkName::new("other").unwrap(), key(1));
    assert_eq!(full.merge(&other.handed()), Err(RingError::OtherNetwork));
    assert_eq!(full, before);
}

/// A ring whose keys but the first were ordered over the network.
fn ordered(bytes: &[u8]) -> KeyRing {
    let (first, others) = bytes.split_first().unwrap();
    let mut ring = ring(&[*first]);
    for byte in others {
        ring.order_add(key(*byte)).unwrap();
    }
    ring
}

#[test]
fn a_removed_key_does_not_come_back_by_itself() {
    let mut mine = ordered(&[2, 1]);
    mine.order_remove(key(1).id()).unwrap();
    assert_eq!(mine.add(key(1)), Err(RingError::Removed(key(1).id())));
    assert_eq!(mine.merge(&ordered(&[2, 1]).handed()).unwrap(), Merged::default());
    assert_eq!(ids(&mine), [key(2).id()]);
    let mut theirs = ring(&[2, 1]);
    let merged = theirs.merge(&mine.handed()).unwrap();
    assert_eq!(merged.removed, [key(1).id()]);
    assert_eq!(ids(&theirs), ids(&mine));
}

#[test]
fn what_is_ordered_over_the_network_is_handed_and_what_a_hand_changes_is_not() {
    let (old, new) = (key(1).id(), key(2).id());
    let mut mine = ring(&[1]);
    assert_eq!(mine.add(key(2)), Ok(Applied::Changed));
    mine.make_primary(new).unwrap();
    mine.remove(old).unwrap();
    assert!(mine.handed().is_empty());

    let (mut mine, mut theirs) = (ring(&[1]), ring(&[1]));
    mine.add(key(2)).unwrap();
    assert_eq!(mine.order_add(key(2)), Ok(Applied::Changed), "now it is handed");
    assert_eq!(mine.order_add(key(2)), Ok(Applied::Already));
    let merged = theirs.merge(&mine.handed()).unwrap();
    assert_eq!((merged.added, merged.primary), (vec![new], None));
    assert_eq!(mine.order_use(new), Ok(Applied::Changed));
    assert_eq!(mine.order_use(new), Ok(Applied::Already));
    assert_eq!(theirs.merge(&mine.handed()).unwrap().primary, Some(new));
    assert_eq!(mine.order_remove(old), Ok(Applied::Changed));
    assert_eq!(mine.order_remove(old), Ok(Applied::Already));
    assert_eq!(theirs.merge(&mine.handed()).unwrap().removed, [old]);
    assert_eq!(theirs, mine);
    // One that was away all the time.
    let mut stale = ring(&[1]);
    stale.merge(&theirs.handed()).unwrap();
    assert_eq!(stale, mine);
}

#[test]
fn a_key_that_only_another_ring_has_is_removed_there_by_an_order() {
    let (stray, mut mine, mut theirs) = (key(3).id(), ordered(&[1, 2]), ordered(&[1, 2]));
    theirs.add(key(3)).unwrap();
    assert_eq!(mine.order_remove(stray), Err(RingError::Unknown(stray)));
    assert_eq!(mine.order_remove_elsewhere(stray), Ok(Applied::Changed));
    assert_eq!(mine.order_remove_elsewhere(stray), Ok(Applied::Already));
    assert_eq!(theirs.merge(&mine.handed()).unwrap().removed, [stray]);
    assert_eq!(theirs, mine);
    // What this ring has itself is under the same rules as ever.
    let (first, second) = (key(1).id(), key(2).id());
    assert_eq!(mine.order_remove_elsewhere(first), Err(RingError::Primary(first)));
    assert_eq!(mine.order_remove_elsewhere(second), Ok(Applied::Changed));
    assert_eq!(mine.order_remove_elsewhere(first), Err(RingError::Last(first)));
}

#[test]
fn of_two_orders_the_later_one_counts_and_a_hand_s_primary_stays_until_the_next() {
    let mut mine = ordered(&[1, 2, 3]);
    let mut theirs = mine.clone();
    mine.order_use(key(2).id()).unwrap();
    theirs.merge(&mine.handed()).unwrap();
    theirs.make_primary(key(1).id()).unwrap();
    assert_eq!(theirs.merge(&mine.handed()).unwrap().primary, None);
    assert_eq!(mine.merge(&theirs.handed()).unwrap().primary, None);
    assert_eq!((mine.primary(), theirs.primary()), (&key(2), &key(1)));
    mine.order_use(key(3).id()).unwrap();
    assert_eq!(mine.used(), Some(Used { count: 2, id: key(3).id() }));
    assert_eq!(theirs.merge(&mine.handed()).unwrap().primary, Some(key(3).id()));
    // On both sides of a split at once: all choose the same.
    let (mut one, mut other) = (mine.clone(), mine.clone());
    one.order_use(key(1).id()).unwrap();
    other.order_use(key(2).id()).unwrap();
    one.merge(&other.handed()).unwrap();
    other.merge(&one.handed()).unwrap();
    assert_eq!(one, other);
    // An order to use a key that is not there says nothing.
    let used = Some(Used { count: 9, id: key(9).id() });
    let unknown = Handed { used, ..one.handed() };
    assert_eq!(one.merge(&unknown), Ok(Merged::default()));
    assert_eq!(one, other);
}

/// By default, two rotations on two sides of a split stop before their keys are used; whoever repeats one of them then ends both.
#[test]
fn of_two_keys_that_were_added_on_two_sides_one_is_used_and_the_other_is_old_on_both() {
    for first in [0, 1] {
        let mut sides = [ordered(&[1, 2]), ordered(&[1, 3])];
        let meet = |sides: &mut [KeyRing; 2]| {
            let handed = sides.each_ref().map(KeyRing::handed);
            sides[0].merge(&handed[1]).unwrap();
            sides[1].merge(&handed[0]).unwrap();
        };
        meet(&mut sides);
        let Next::GoOn(used) = Plan::of(&sides[first].summary()).next else { panic!("{sides:?}") };
        sides[first].order_use(used).unwrap();
        meet(&mut sides);
        for side in &sides {
            let plan = Plan::of(&side.summary());
            assert_eq!(plan.next, Next::InUse(used), "{side:?}");
            let mut unused = [1, 2, 3].map(|byte| key(byte).id()).to_vec();
            unused.retain(|id| *id != used);
            unused.sort_unstable();
            assert_eq!(plan.old, unused, "{side:?}");
        }
    }
}

#[test]
fn what_a_hand_has_added_is_not_superseded_and_a_key_that_was_in_use_is() {
    let mut ring = ordered(&[1, 2]);
    ring.add(key(9)).unwrap();
    ring.order_use(key(2).id()).unwrap();
    assert_eq!(
        Plan::of(&ring.summary()).next,
        Next::GoOn(key(9).id()),
        "somebody is about to use it"
    );
    // Back to the first one, which nobody has added over the network, and once more to the second.
    ring.remove(key(9).id()).unwrap();
    for byte in [1, 2] {
        ring.order_use(key(byte).id()).unwrap();
        assert_eq!(Plan::of(&ring.summary()).next, Next::InUse(key(byte).id()), "{ring:?}");
    }
}

#[test]
fn rings_that_removed_each_others_keys_stay_as_they_are() {
    let mut one = ordered(&[1, 2]);
    one.order_remove(key(2).id()).unwrap();
    let mut other = ordered(&[2, 1]);
    other.order_remove(key(1).id()).unwrap();
    let before = one.clone();
    assert_eq!(one.merge(&other.handed()), Err(RingError::Disjoint));
    assert_eq!(one, before);
}

#[test]
fn removed_ids_are_forgotten_from_the_oldest_on() {
    let mut ring = ring(&[200]);
    for byte in 0..=REMOVED_MAX as u8 {
        ring.add(key(byte)).unwrap();
        ring.remove(key(byte).id()).unwrap();
    }
    assert_eq!(ring.removed().len(), REMOVED_MAX);
    assert_eq!(ring.add(key(0)), Ok(Applied::Changed));
    assert_eq!(ring.add(key(1)), Err(RingError::Removed(key(1).id())));
}

#[test]
fn a_removed_key_stays_removed_however_many_were_removed_before() {
    let (mut one, mut other, mut away) = (ring(&[0]), ring(&[0]), ring(&[0]));
    for byte in 1..=3 * REMOVED_MAX as u8 {
        one.order_add(key(byte)).unwrap();
        other.merge(&one.handed()).unwrap();
        one.order_use(key(byte).id()).unwrap();
        other.merge(&one.handed()).unwrap();
        one.order_remove(key(byte - 1).id()).unwrap();
        // Each has handed over what it had when they met.
        let (of_one, of_other) = (one.handed(), other.handed());
        one.merge(&of_other).unwrap();
        other.merge(&of_one).unwrap();
        assert_eq!((ids(&one), ids(&other)), (vec![key(byte).id()], vec![key(byte).id()]));
        assert_eq!(one.removed(), other.removed());
        // One that comes back now and then forgets the oldest, too, and brings nothing back.
        if byte % 10 == 0 {
            let before = away.handed();
            away.merge(&one.handed()).unwrap();
            assert_eq!(away.removed(), one.removed());
            let settled = one.clone();
            one.merge(&before).unwrap();
            assert_eq!(one, settled);
        }
    }
}

#[test]
fn a_member_that_lacks_the_key_or_is_unknown_blocks_a_rotation() {
    let (old, new) = (key(1).id(), key(2).id());
    let (both, only_old) = (ring(&[1, 2]).summary(), ring(&[1]).summary());
    let members = [("n1", Some(&both)), ("n2", Some(&only_old)), ("n3", None)];
    assert_eq!(blocks_use(new, members), ["n2", "n3"]);
    assert_eq!(blocks_use(new, members[..1].iter().copied()), Vec::<&str>::new());
    let uses_new = RingSummary { primary: new, ..both.clone() };
    let members = [("n1", Some(&uses_new)), ("n2", Some(&both)), ("n3", None)];
    assert_eq!(blocks_removal(old, members), ["n2", "n3"]);
}

/// What can happen to a ring: an addition, a removal, another primary. What is refused does nothing.
fn changed(mut ring: KeyRing, steps: &[(u8, u8)]) -> KeyRing {
    for (step, byte) in steps {
        let _ = match step % 3 {
            0 => ring.order_add(key(*byte)),
            1 => ring.order_remove(key(*byte).id()),
            _ => ring.order_use(key(*byte).id()),
        };
    }
    ring
}

proptest! {
    #[test]
    fn merges_in_any_order_end_alike(
        steps in prop::collection::vec(prop::collection::vec((0u8..3, 0u8..4), 0..12), 3)
    ) {
        // Four possible keys, so that a ring is never too full, and all know key 3.
        let rings: Vec<_> = steps.iter().map(|steps| changed(ring(&[3]), steps)).collect();
        let merge_all = |order: [usize; 3]| {
            let mut all = rings[order[0]].clone();
            for at in &order[1..] {
                all.merge(&rings[*at].handed())?;
            }
            Ok::<_, RingError>(ids(&all))
        };
        let orders = [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]];
        let results: Vec<_> = orders.iter().map(|order| merge_all(*order)).collect();
        if results.iter().all(Result::is_ok) {
            prop_assert!(results.iter().all(|ids| *ids == results[0]), "{results:?}");
        }
        for mut mine in rings.clone() {
            for theirs in &rings {
                if mine.merge(&theirs.handed()).is_ok() {
                    prop_assert!(mine.lookup(mine.primary_id()).is_some());
                    let before = mine.clone();
                    prop_assert_eq!(mine.merge(&theirs.handed()), Ok(Merged::default()));
                    prop_assert_eq!(&mine, &before);
                }
            }
        }
    }
}
