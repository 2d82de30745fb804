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
