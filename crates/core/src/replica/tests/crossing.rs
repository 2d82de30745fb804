//! Replication rule 4, the asking side: in which order it re-issues, and where it takes no step.

use super::*;

/// "b" is behind "a" across a purge up to a tock of 100, and has changed these paths meanwhile.
fn cut_off(changed: impl Iterator<Item = u8>) -> (Replica, Replica) {
    let (mut a, mut b) = (node("a"), node("b"));
    write(&mut a, "old", Some(&[1]));
    catch_up(&mut b, &mut a);
    a.hear_tock(Tock::new(99).unwrap());
    write(&mut a, "old", None);
    purge(&mut a);
    for number in changed {
        write(&mut b, &format!("k{number}"), Some(&[number]));
    }
    (a, b)
}

#[test]
fn re_issues_are_made_in_the_order_of_their_paths() {
    let (mut a, mut b) = cut_off(0..40);
    let across = catch_up(&mut b, &mut a);
    let paths: Vec<&Path> = across.reissued.iter().map(|change| &change.path).collect();
    assert_eq!(paths.len(), 40);
    assert!(paths.is_sorted(), "not in the order of a hash map: {paths:?}");
}

#[test]
fn who_makes_no_more_events_crosses_a_purge_only_with_nothing_to_re_issue() {
    for changes in [0, 1] {
        let (mut a, mut b) = cut_off(0..changes);
        b.stop_making_events();
        match catch_up_with(&mut b, &mut a, |_, _| {}) {
            Ok(across) => assert_eq!((across.dropped.len(), changes), (1, 0)),
            Err(failure) => {
                assert_eq!((failure, changes), (AcrossFailure::NoEvent, 1));
                assert!(b.mark().is_empty() && b.tree().len() == 2, "nothing was changed");
            }
        }
        b.check();
    }
}

/// "x" stands below two lineages, and comes to stand at the greater one while it is answered: by an
/// announcement.
#[test]
fn what_is_above_the_purges_that_are_still_lacking_is_not_re_issued() {
    let mut x = node("x");
    let tock = |tock| Tock::new(tock).unwrap();
    for (at, before) in [("below", 4), ("above", 14)] {
        x.hear_tock(tock(before));
        write(&mut x, at, Some(&[1]));
    }
    let second = Lineage(Some((id("m"), Tick::new(1).unwrap())));
    let components = [(Lineage(None), tock(20)), (second, tock(10))];
    let mark = Mark::from_components(components.clone());
    let their = Knowledge { mark: mark.clone(), tock: tock(20), seen: Seen::new() };
    let mut crossing = x.begin_crossing(their);
    let max = NamesMax { events: 0, paths: 10, bytes: 100 };
    assert_eq!(x.next_names(&mut crossing, max).map(|names| names.len()), Some(2));
    crossing.take(&[0, 1]);
    assert!(x.next_names(&mut crossing, max).is_none());
    x.hear_tock(tock(20));
    x.raise_mark_early(&Mark::from_components(components.into_iter().take(1)));
    let across = x.end_crossing(&mut crossing).unwrap();
    let reissued: Vec<String> = across.reissued.iter().map(|c| c.path.to_string()).collect();
    assert_eq!((reissued, across.dropped.len()), (vec!["below".to_owned()], 0));
    assert_eq!(*x.mark(), mark);
}

#[test]
fn a_file_s_versions_that_win_are_told_as_taken_and_all_that_lost_as_conflicts() {
    for (ahead, taken) in [(0, 1), (9, 0)] {
        let (mut a, mut b) = (node("a"), node("b"));
        write(&mut b, "k", Some(&[1]));
        a.hear_tock(Tock::new(ahead).unwrap());
        write(&mut a, "k", Some(&[2]));
        let restored = a.take_in_image(&b.image(&id("b"))).unwrap();
        assert_eq!((restored.taken.len(), restored.made.len()), (taken, 0));
        let [conflict] = &restored.conflicts[..] else { panic!("one") };
        assert_eq!(conflict.took_theirs, taken == 1);
        let winner = if taken == 1 { &[1][..] } else { &[2][..] };
        assert!(restored.taken.iter().all(|change| change.entry.value() == Some(winner)));
        assert_eq!(a.tree().get(path("k").as_bytes()).unwrap().value(), Some(winner));
    }
}
