//! A write that comes after its client has given it up is not put on top of what that client has written since.

use super::*;
use crate::model::write_id::WritePlace;

/// A write by the client of this number at `k`; `settled`: the oldest one for which it waited then.
fn write_of(
    replica: &mut Replica,
    client: u64,
    number: u32,
    settled: u32,
) -> Result<Written, WriteError> {
    let id = WritePlace { client, number, settled }.to_id();
    let value = [u8::try_from(number).unwrap()];
    replica.write(&mut Write { write_id: Some(id), ..Write::new(path("k"), Some(&value)) })
}

fn value(replica: &Replica) -> Option<Vec<u8>> {
    replica.tree().get(path("k").as_bytes())?.value().map(<[u8]>::to_vec)
}

#[test]
fn a_late_copy_of_an_old_write_does_not_hide_the_newest_one_where_the_first_copy_is_not_known() {
    // The first write waits on its way to b, and is made at a instead; a third one is made at b.
    let (mut a, mut b) = (node("a"), node("b"));
    write_of(&mut a, 1, 1, 1).unwrap();
    let second = write_of(&mut a, 1, 2, 2).unwrap().committed.unwrap();
    let mut third = Write {
        write_id: Some(WritePlace { client: 1, number: 3, settled: 3 }.to_id()),
        above: second.entry.tock(),
        ..Write::new(path("k"), Some(&[3]))
    };
    let third = b.write(&mut third).unwrap().committed.unwrap();
    let before = (b.tick(), b.tock());
    assert_eq!(write_of(&mut b, 1, 1, 1).unwrap_err(), WriteError::GivenUp);
    assert_eq!((b.tick(), b.tock(), value(&b)), (before.0, before.1, Some(vec![3])));
    // Where it was made, it is known.
    assert!(write_of(&mut a, 1, 1, 1).unwrap().repeated.is_some());
    let _ = take(&b, &mut a, &third);
    let _ = take(&a, &mut b, &second);
    assert_eq!((value(&a), value(&b)), (Some(vec![3]), Some(vec![3])));
}

#[test]
fn what_another_node_has_told_counts_as_well_and_so_does_what_made_no_event() {
    let (mut a, mut b) = (node("a"), node("b"));
    let third = write_of(&mut a, 1, 3, 3).unwrap().committed.unwrap();
    let _ = take(&a, &mut b, &third);
    assert_eq!(write_of(&mut b, 1, 2, 2).unwrap_err(), WriteError::GivenUp);
    // Refused for its precondition; the client had given up the fourth one before.
    let refused = Write {
        write_id: Some(WritePlace { client: 1, number: 5, settled: 5 }.to_id()),
        precondition: Precondition::chain(ChainCondition::MustBeNew),
        ..Write::new(path("k"), Some(&[5]))
    };
    assert_eq!(b.write(&mut refused.clone()).unwrap_err(), WriteError::AlreadyExists);
    assert_eq!(write_of(&mut b, 1, 4, 4).unwrap_err(), WriteError::GivenUp);
}

#[test]
fn a_write_that_its_client_waits_for_is_made_however_late_it_comes() {
    let mut a = node("a");
    write_of(&mut a, 1, 9, 4).unwrap();
    for number in [4, 8, 5] {
        assert!(write_of(&mut a, 1, number, 4).unwrap().is_made);
    }
    assert_eq!(write_of(&mut a, 1, 3, 3).unwrap_err(), WriteError::GivenUp);
    assert!(write_of(&mut a, 2, 3, 3).unwrap().is_made, "another client's");
    let mut without = Write { write_id: Some(ID), ..Write::new(path("k"), Some(&[1])) };
    assert!(a.write(&mut without).unwrap().is_made, "an id that says nothing");
}
