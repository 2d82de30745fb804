//! Replication rule 6: when a re-issue is a deletion, and when it carries its value on.

use super::*;

fn reissued(replica: &mut Replica, at: &str, floor: u64, origin_seen: bool) -> Entry {
    replica.reissue(&path(at), Tock::new(floor).unwrap(), origin_seen).entry
}

#[test]
fn only_a_value_that_was_re_issued_before_and_whose_origin_was_seen_dies() {
    let mut a = node("a");
    let origin = write(&mut a, "k", Some(&[1])).unwrap().entry.newest();
    let first = reissued(&mut a, "k", 100, true);
    assert_eq!((first.value(), first.reissue_of()), (Some(&[1][..]), Some(origin)));
    let second = reissued(&mut a, "k", 200, false);
    assert_eq!((second.value(), second.reissue_of()), (Some(&[1][..]), Some(origin)));
    assert!(second.tock().get() > 200 && second.compare(&first, a.table()).is_gt());
    let third = reissued(&mut a, "k", 300, true);
    assert_eq!((third.value(), third.reissue_of()), (None, None));
}

#[test]
fn a_tombstone_that_is_re_issued_again_stays_the_same_deletion() {
    let mut a = node("a");
    write(&mut a, "k", Some(&[1]));
    let origin = write(&mut a, "k", None).unwrap().entry.newest();
    for floor in [100, 200] {
        let entry = reissued(&mut a, "k", floor, true);
        assert_eq!((entry.value(), entry.reissue_of()), (None, Some(origin)));
    }
}

/// "a" has deleted and purged a value, and "b" has the re-issue of it.
fn reissue_of_what_was_purged() -> (Replica, Replica, Path, Entry) {
    let (mut a, mut b) = (node("a"), node("b"));
    write(&mut a, "k", Some(&[1]));
    catch_up(&mut b, &mut a);
    a.hear_tock(Tock::new(99).unwrap());
    write(&mut a, "k", None);
    purge(&mut a);
    let reissue = b.reissue(&path("k"), Tock::new(9).unwrap(), false);
    let entry = translate(&b, &mut a, &reissue.entry);
    (a, b, reissue.path, entry)
}

#[test]
fn on_another_s_behalf_a_re_issue_dies_where_its_origin_was_seen_and_nothing_is_undone() {
    let (mut a, b, path, entry) = reissue_of_what_was_purged();
    let applied = a.apply_on_behalf(&path, &entry, b.mark());
    let Applied::Reissued(committed, None) = applied else { panic!("{applied:?}") };
    assert!(committed.entry.is_tombstone() && committed.entry.reissue_of().is_none());
}

#[test]
fn a_re_issue_whose_origin_was_never_seen_survives_the_next_purge_too() {
    let (mut a, mut b) = (node("a"), node("b"));
    for top in [50, 100] {
        write(&mut a, "old", Some(&[1]));
        a.hear_tock(Tock::new(top).unwrap());
        write(&mut a, "old", None);
        purge(&mut a);
        if top == 50 {
            write(&mut b, "k", Some(&[2]));
        }
        let across = catch_up(&mut b, &mut a);
        let [reissue] = &across.reissued[..] else { panic!("one at {top}") };
        assert_eq!(reissue.entry.value(), Some(&[2][..]), "at {top}");
    }
}
