//! Secrets in texts that others read. Somebody has given a ticket or a key where a file's name or a user's is wanted, say;
//! an error goes to a terminal, to a journal, and into a report, a name goes into an audit log, and neither must show it.
//!
//! What is hidden has the form of a secret that `distkv-node` makes: a ticket, a cluster key (hexadecimal or base64), a
//! token or password made at random, a private key in PEM or in a key file. Names of files and hosts hardly ever have
//! such a form, so they stay. A password that somebody has chosen has none, and is not recognised.

use std::borrow::Cow;
use std::ops::Range;

/// What stands in place of a ticket.
const TICKET: &str = "[a ticket, not shown]";
/// What stands in place of other secrets.
const SECRET: &str = "[not shown: it looks like a secret]";

/// How each ticket begins; a number, a dot and the rest follow.
const TICKET_START: &str = "distkv";
/// Shortest rest: a name of a host or a file hardly has such a part, and a ticket with a secret has more.
const TICKET_REST_MIN: usize = 32;
/// Hexadecimal digits of a password or user's token that is made at random, and of a token for HTTP.
const MADE_DIGITS: [usize; 2] = [32, 64];
/// Letters of a cluster key in base64, without the sign at its end.
const KEY_LETTERS: usize = 43;
/// How a private key begins in base64 (DER, more than 127 bytes), and the least that there is of it.
const DER_START: &str = "MI";
const DER_LETTERS_MIN: usize = 60;
/// How a private key in PEM begins and ends, around its kind.
const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";
const PEM_KEY: &str = "PRIVATE KEY-----";

/// The text without what looks like a secret.
#[must_use]
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let text = replaced(text, pem_keys(text), SECRET);
    let found = words(&text).filter_map(|(at, before, word)| secret_in(at, before, word));
    let found = found.collect();
    let hidden = replaced(&text, found, SECRET).into_owned();
    let hidden = without_tickets(&hidden).into_owned();
    if hidden == *text { text } else { Cow::Owned(hidden) }
}

/// The text without tickets. For what a node says: it tells of values, which may look like anything.
#[must_use]
pub fn without_tickets(text: &str) -> Cow<'_, str> {
    let found = words(text).filter_map(|(at, _, word)| ticket_in(at, word)).collect();
    replaced(text, found, TICKET)
}

/// Whether this is a secret by its form, and nothing else.
#[must_use]
pub fn looks_secret(text: &str) -> bool {
    [SECRET, TICKET].contains(&&*without_secrets(text.trim()))
}

fn replaced<'t>(text: &'t str, found: Vec<Range<usize>>, by: &str) -> Cow<'t, str> {
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut hidden = String::new();
    let mut from = 0;
    for range in found {
        hidden.push_str(text.get(from..range.start).unwrap_or_default());
        hidden.push_str(by);
        from = range.end;
    }
    hidden.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(hidden)
}

/// The words of a text, in letters that secrets have: where each begins, and what stands before it.
fn words(text: &str) -> impl Iterator<Item = (usize, Option<char>, &str)> {
    let is_of_word = |c: char| is_base64(c) || "=-_.".contains(c);
    let pieces = text.split_inclusive(move |c| !is_of_word(c));
    pieces.scan((0, None), move |(at, before), piece| {
        let word = piece.trim_end_matches(|c| !is_of_word(c));
        let found = (*at, *before, word);
        (*at, *before) = (*at + piece.len(), piece.chars().next_back());
        Some(found)
    })
}

fn is_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || "+/".contains(c)
}

/// Where the ticket in a word is, if there is one.
fn ticket_in(at: usize, word: &str) -> Option<Range<usize>> {
    word.match_indices(TICKET_START).find_map(|(start, _)| {
        let rest = word.get(start + TICKET_START.len()..)?;
        let (version, rest) = rest.split_once('.')?;
        let is_version = !version.is_empty() && version.bytes().all(|c| c.is_ascii_digit());
        let is_of_ticket = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let length = rest.find(|c| !is_of_ticket(c)).unwrap_or(rest.len());
        let end = start + TICKET_START.len() + version.len() + 1 + length;
        (is_version && length >= TICKET_REST_MIN).then_some(at + start..at + end)
    })
}

/// Where the other secret in a word is, if there is one: alone, or behind an option's `=`.
fn secret_in(at: usize, before: Option<char>, word: &str) -> Option<Range<usize>> {
    let bare = word.trim_end_matches('.');
    // A secret in base64 may end with such signs.
    let start = bare.trim_end_matches('=').rfind('=').map_or(0, |sign| sign + 1);
    // A hash, as in `sha256:…`.
    if start == 0 && before == Some(':') {
        return None;
    }
    let secret = bare.get(start..)?;
    is_secret(secret).then(|| at + start..at + bare.len())
}

fn is_secret(word: &str) -> bool {
    let is_hex = word.bytes().all(|c| c.is_ascii_hexdigit());
    if is_hex {
        return MADE_DIGITS.contains(&word.len());
    }
    let letters = word.trim_end_matches('=');
    if !letters.chars().all(is_base64) {
        return false;
    }
    letters.starts_with(DER_START) && letters.len() >= DER_LETTERS_MIN
        || letters.len() == KEY_LETTERS && is_mixed(letters)
}

/// Whether these are letters as they come by chance, and not a file's name of the same length.
fn is_mixed(letters: &str) -> bool {
    let has = |is: fn(&u8) -> bool| letters.bytes().any(|c| is(&c));
    let slashes = letters.matches('/').count();
    has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
        && slashes <= 3
}

/// Where private keys in PEM are.
fn pem_keys(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(rest) = text.get(from..)
        && let Some(begin) = rest.find(PEM_BEGIN)
    {
        let start = from + begin;
        from = start + PEM_BEGIN.len();
        let Some((kind, inner)) = text.get(from..).and_then(|rest| rest.split_once(PEM_KEY)) else {
            break;
        };
        // A text that only speaks of such a beginning goes on in another way.
        let letters = inner.trim_start().trim_start_matches("\\n").chars();
        if kind.contains("-----") || letters.take_while(|c| is_base64(*c)).count() < 16 {
            continue;
        }
        let end = inner.split_once(PEM_END).and_then(|(_, last)| last.split_once("-----"));
        let left = end.map_or(0, |(_, behind)| behind.len());
        from = text.len() - left;
        found.push(start..from);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "9eb2acd88a30c4d57ed91a7e6ec50537e516d0e496690153dee7de2148dc14be";
    const BASE64: &str = "1lti+xGz3Ob+wQGlZqbUTKS7mxhgGrsODB/mAkNaQG0=";
    const PLAIN: &str = "distkv1.gqlhZGRyZXNzZXORqG4xOjI3NTg2p25ldHdvcmugO9jvFg";

    #[test]
    fn secrets_of_all_forms_are_left_out_wherever_they_stand() {
        let pem = format!(
            "-----BEGIN EC PRIVATE KEY-----\n{}\nAbc=\n-----END EC PRIVATE KEY-----",
            "MIGH".repeat(16)
        );
        let der = format!("MI{}", "GHAgEAMB+/".repeat(12));
        for secret in
            [HEX, &HEX.to_uppercase(), &HEX[..32], BASE64, BASE64.trim_end_matches('='), &pem, &der]
        {
            for text in ["the key file {}: none", "'--key={}'", "{}", "(\"{}\").", "a {}, b {}"] {
                let expected = text.replace("{}", SECRET);
                assert_eq!(without_secrets(&text.replace("{}", secret)), expected);
            }
            assert!(looks_secret(secret));
        }
        let in_debug = format!("{pem:?} cannot be read");
        assert_eq!(without_secrets(&in_debug), format!("\"{SECRET}\" cannot be read"));
        let key_file = format!("network plant\nkey 1f0c3a77 {HEX} primary\nca key {der}");
        let hidden = format!("network plant\nkey 1f0c3a77 {SECRET} primary\nca key {SECRET}");
        assert_eq!(without_secrets(&key_file), hidden);
        for text in ["{}", "cannot look up {}:27586", "@{}", "a/{}/x", "--ca={}", "x{} and {}"] {
            let expected = text.replace("{}", TICKET);
            assert_eq!(without_secrets(&text.replace("{}", PLAIN)), expected);
            assert_eq!(without_tickets(&text.replace("{}", PLAIN)), expected);
        }
        assert!(looks_secret(PLAIN));
    }

    #[test]
    fn names_of_files_and_hosts_and_hashes_stay() {
        let volume = format!("/var/lib/volumes/{HEX}/data");
        let hash = format!("sha256:{HEX}");
        for text in [
            "the key file /etc/distkv/key: No such file",
            &volume,
            &hash,
            // As long as a key in base64.
            "/srv/plant/production/north/clusterkeyfile1",
            "/srv/Plant1/production/north/hall/keyfile12",
            "distkv1.example.org:27586",
            "/etc/distkv/distkv1.toml",
            "n3~e9001b2c3d4e:43",
            "no certificate in it: it must be PEM text with -----BEGIN PRIVATE KEY-----",
            "it begins with -----BEGIN CERTIFICATE----- and ends with -----END CERTIFICATE-----",
            "é …",
            "",
        ] {
            assert_eq!(without_secrets(text), text);
            assert!(!looks_secret(text));
        }
        // A node may tell of such values.
        assert_eq!(without_tickets(HEX), HEX);
    }
}
