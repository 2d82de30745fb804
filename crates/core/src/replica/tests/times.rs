//! When a change was made goes with its value, and no rule asks for it.

use super::*;
use crate::model::change_time::ChangeTime;
use crate::replica::contents::{ContentsApplied, ListedVersion};

fn write_at(replica: &mut Replica, at: &str, value: Option<&[u8]>, ms: u64) -> Committed {
    let mut write = Write { time: ChangeTime::new(ms), ..Write::new(path(at), value) };
    replica.write(&mut write).unwrap().committed.unwrap()
}

fn time(entry: &Entry) -> Option<u64> {
    entry.time().map(ChangeTime::ms)
}

#[test]
fn a_change_and_a_deletion_have_the_time_that_their_maker_told() {
    let mut a = node("a");
    assert_eq!(time(&write_at(&mut a, "k", Some(&[1]), 5).entry), Some(5));
    assert_eq!(time(&write_at(&mut a, "k", Some(&[1]), 4).entry), Some(4), "also an earlier one");
    assert_eq!(time(&write_at(&mut a, "k", None, 7).entry), Some(7));
    assert_eq!(time(&write(&mut a, "k", Some(&[2])).unwrap().entry), None, "nobody told it");
    let late =
        Write { time: ChangeTime::new(9), idempotent: true, ..Write::new(path("k"), Some(&[2])) };
    let unmade = a.write(&mut late.clone()).unwrap();
    assert_eq!(time(&unmade.entry.unwrap()), None, "no change was made");
}

#[test]
fn a_re_issue_keeps_the_time_of_its_value_and_one_that_dies_has_none() {
    let mut a = node("a");
    write_at(&mut a, "k", Some(&[1]), 5);
    let mut reissue = |floor: u64| a.reissue(&path("k"), Tock::new(floor).unwrap(), true).entry;
    let first = reissue(100);
    assert_eq!((first.value(), time(&first)), (Some(&[1][..]), Some(5)));
    let died = reissue(200);
    assert_eq!((died.value(), time(&died)), (None, None));
}

#[test]
fn a_value_that_is_put_on_top_again_keeps_its_time() {
    let (mut a, mut b, mut c) = (node("a"), node("b"), node("c"));
    let first = write_at(&mut a, "k", Some(&[1]), 5);
    let _ = take(&a, &mut b, &first);
    let _ = take(&a, &mut c, &first);
    write_at(&mut b, "k", Some(&[2]), 6);
    let reissue = c.reissue(&path("k"), Tock::new(50).unwrap(), false);
    assert_eq!(time(&reissue.entry), Some(5));
    let applied = take(&c, &mut b, &reissue);
    let Applied::OnTopAgain(again, None) = applied else { panic!("{applied:?}") };
    assert_eq!((again.entry.value(), time(&again.entry)), (Some(&[2][..]), Some(6)));
}

#[test]
fn a_deletion_that_follows_from_a_copy_has_no_time() {
    let (mut a, mut b) = (node("a"), node("b"));
    let value = Some(&[1][..]);
    let copy = |replica: &mut Replica| {
        let time = ChangeTime::new(5);
        let mut write = Write { time, write_id: Some(ID), ..Write::new(path("k"), value) };
        replica.write(&mut write).unwrap().committed.unwrap()
    };
    copy(&mut a);
    let theirs = copy(&mut b);
    write_at(&mut a, "k", None, 6);
    purge(&mut a);
    let entry = translate(&b, &mut a, &theirs.entry);
    let applied = a.apply(&path("k"), &entry, &a.mark().clone());
    let Applied::OnTopAgain(deleted, None) = applied else { panic!("{applied:?}") };
    assert_eq!((deleted.entry.value(), time(&deleted.entry)), (None, None));
}

#[test]
fn one_version_with_and_without_its_time_is_the_same_to_every_rule() {
    let (mut a, mut b) = (node("a"), node("b"));
    let first = write_at(&mut a, "k", Some(&[1]), 5);
    let timed = translate(&a, &mut b, &first.entry);
    let bare = Entry::new(&EntryParts {
        value: timed.value(),
        chain: &timed.chain(),
        tock: timed.tock(),
        origin: timed.reissue_of(),
        time: None,
        extra: timed.extra(),
    });
    assert!(matches!(b.apply(&path("k"), &bare, &Mark::default()), Applied::Taken(_)));
    assert_eq!(a.contents().total(), b.contents().total());
    assert_eq!(a.contents().buckets(), b.contents().buckets());
    // It is known, and held; nothing is fetched for its time.
    assert!(matches!(b.apply(&path("k"), &timed, &Mark::default()), Applied::AlreadyKnown));
    let (newest, tock) = (timed.newest(), timed.tock());
    let hash = b.contents.hash_of(&b.table, path("k").as_bytes(), &timed);
    let mark = b.mark().clone();
    assert!(!b.lacks(&path("k"), ListedVersion { newest, tock, hash }, &mark));
    let applied = b.apply_contents(&path("k"), &timed, &mark);
    assert!(matches!(applied, ContentsApplied::Nothing));
    assert_eq!(bare.compare(&timed, b.table()), std::cmp::Ordering::Equal);
    assert_eq!(content(&a), content(&b));
}
