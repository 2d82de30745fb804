//! Characters that nobody sees are shown by their numbers, and commands and the page have a list of them each: the same one.

use std::collections::BTreeSet;

use distkv_command::output::{printable, printable_path};

const PAGE: &str = include_str!("../../web/seen.js");

/// The characters of a class of a regular expression, as the page's source has it in the constant of this name: `\xHH`, `\uHHHH`
/// and `\u{H…}`, with `-` between the first and the last of several.
fn class(name: &str) -> BTreeSet<u32> {
    let (_, rest) = PAGE.split_once(&format!("const {name} = \"")).unwrap();
    let (class, _) = rest.split_once('"').unwrap();
    let (mut found, mut from) = (BTreeSet::new(), None);
    for part in class.split("\\\\").skip(1) {
        let is_first = part.ends_with('-');
        let digits = part.trim_matches(|c: char| !c.is_ascii_hexdigit());
        let last = u32::from_str_radix(digits, 16).unwrap();
        found.extend(from.unwrap_or(last)..=last);
        from = is_first.then_some(last);
    }
    found
}

#[test]
fn the_page_and_the_commands_show_the_same_characters_by_number() {
    let (hidden, far) = (class("HIDDEN"), class("FAR"));
    assert!(hidden.len() > 80 && far.len() > 4_000, "{} {}", hidden.len(), far.len());
    // Those before are control characters or plain; where they stand alone, both have their own rules for tabs and line ends.
    for c in (0x7f..=0x10_ffff).filter_map(char::from_u32) {
        let (text, number) = (c.to_string(), u32::from(c));
        let is_hidden = hidden.contains(&number) || far.contains(&number);
        assert_eq!(printable_path(&text) != text, is_hidden, "{number:x} in a path");
        assert_eq!(printable(&text) != text, is_hidden, "{number:x}");
    }
}
