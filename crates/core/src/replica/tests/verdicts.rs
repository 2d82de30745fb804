//! Replication rule 4, what the answerer says of the paths that it is asked about: a tombstone is
//! something.

use super::*;
use crate::model::defects::{Defect, Defects};

/// The state of a node after it has crossed a purge, and its re-issues; its answerer holds
/// tombstones at or below its own mark: they were not in V, because it made them where no member
/// saw them.
fn cross(defects: Defects) -> ((Replica, Replica), Vec<String>) {
    let (mut member, mut s, mut x) = (node("m"), node("s"), node("x"));
    s.defects = defects;
    for path in ["greater", "lesser"] {
        write(&mut s, path, Some(&[1]));
        write(&mut s, path, None);
    }
    // The lesser one loses to the tombstone, the greater one wins; neither was seen at s.
    write(&mut x, "lesser", Some(&[2]));
    for value in 0..9 {
        write(&mut x, "greater", Some(&[value]));
        write(&mut member, "purged", Some(&[value]));
    }
    write(&mut member, "purged", Some(&[9]));
    write(&mut member, "purged", None);
    catch_up(&mut s, &mut member);
    let pair = purge(&mut member);
    let pair = TockPair { seen: moved(&member, &mut s, &pair.seen), ..pair };
    assert_eq!(s.decide_purge(&pair), PurgeDecision::Apply);
    let _ = s.apply_purge(&pair);
    let greatest = x.tree().get(path("greater").as_bytes()).unwrap().tock();
    assert!(greatest <= pair.to, "all of it lies below the mark");
    let across = catch_up(&mut x, &mut s);
    ((x, s), across.reissued.iter().map(|c| c.path.to_string()).collect())
}

#[test]
fn a_path_with_a_tombstone_is_not_empty_to_who_crosses_a_purge() {
    let ((mut x, mut s), reissued) = cross(Defects::default());
    assert!(reissued.is_empty(), "{reissued:?}");
    let is_tombstone =
        |of: &Replica| of.tree().get(path("lesser").as_bytes()).unwrap().is_tombstone();
    assert!(is_tombstone(&x) && is_tombstone(&s));
    catch_up(&mut s, &mut x);
    assert_eq!(content(&s), content(&x));
    assert_eq!(s.tree().get(path("greater").as_bytes()).unwrap().value(), Some(&[8][..]));
}

/// The simulator does not find this one: it takes a tombstone at or below the mark that is not in V, so
/// one that its maker has hidden from every member and from every node that was here lately.
#[test]
fn a_tombstone_taken_for_nothing_in_a_verdict_would_be_found() {
    let ((mut x, mut s), reissued) = cross(Defects::default().with(Defect::TombstoneIsEmpty));
    assert_eq!(reissued, ["greater"], "a needless event");
    catch_up(&mut s, &mut x);
    // The tombstone was dropped that came in the stream, and s still holds it: for good.
    assert!(x.tree().get(path("lesser").as_bytes()).is_none());
    assert_ne!(content(&s).0, content(&x).0);
    assert_eq!(content(&s).1, content(&x).1);
}
