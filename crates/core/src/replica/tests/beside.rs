//! What a node knows beside its entries: how much memory a write takes, the tock, the login.

use super::*;

#[test]
fn a_write_grows_only_if_its_entry_takes_more_memory_than_before() {
    let mut a = node("a");
    let grows = |a: &Replica, at, value| a.would_grow(&Write::new(path(at), value));
    write(&mut a, "k", Some(&[0xa3, b'a', b'b', b'c']));
    assert!(grows(&a, "new", Some(&[1])));
    assert!(grows(&a, "k", Some(&[0xa4, b'a', b'b', b'c', b'd'])));
    assert!(!grows(&a, "k", Some(&[0xa3, b'x', b'y', b'z'])), "as long as before");
    assert!(!grows(&a, "k", Some(&[1])) && !grows(&a, "k", None));
}

#[test]
fn each_tock_that_is_minted_is_a_new_one_below_all_later_changes() {
    let mut a = node("a");
    let before = write(&mut a, "k", Some(&[1])).unwrap().entry.tock();
    let minted = [a.mint_tock(), a.mint_tock()];
    let after = write(&mut a, "k", Some(&[2])).unwrap().entry.tock();
    assert!([before, minted[0], minted[1], after].is_sorted_by(|a, b| a < b));
    a.hear_tock(Tock::MAX);
    assert_eq!(a.mint_tock(), Tock::MAX, "there is none above");
}

#[test]
fn the_login_is_always_what_the_tree_says() {
    let mut a = node("a");
    assert!(a.login().is_none());
    write(&mut a, ":n.auth", Some(&[1]));
    assert!(a.login().is_some());
    a.check();
    write(&mut a, ":n.auth", None);
    assert!(a.login().is_none());
    a.check();
}
