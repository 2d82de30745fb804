//! The children of a path, page by page: each with whatever is below it, whatever the page's size.

use serde_json::Value as Json;

use super::asking::{ALONE, Connection};
use crate::cli::command::ok;
use crate::processes::{NodeProcess, array};

/// Children of each kind: of its own value, of one of it and of more below, only of what is below, and of what was deleted.
const OF_EACH_KIND: u64 = 4;

/// A child: its name, whether it has a value, and whether there is something below it.
type Child = (String, bool, bool);

fn fill(node: &NodeProcess) {
    let mut client = node.connect();
    for number in 0..OF_EACH_KIND {
        let name = |kind: &str| format!("c{number}{kind}");
        client.set(&[&name("a-value")], number.into());
        client.set(&[&name("both")], number.into());
        for below in ["x", "y", "z"] {
            client.set(&[&name("both"), below], number.into());
            client.set(&[&name("below"), below, "deep"], number.into());
        }
        client.set(&[&name("gone")], number.into());
        client.set(&[&name("gone-below"), "x"], number.into());
        client.set(&[&name("gone-above")], number.into());
        client.set(&[&name("gone-above"), "x"], number.into());
        for gone in [&[&*name("gone")][..], &[&*name("gone-below"), "x"], &[&*name("gone-above")]] {
            client.call("delete_value", &[("path", array(gone))]);
        }
    }
}

/// The children of the root, as the command line lists them.
fn listed(node: &NodeProcess) -> Vec<Child> {
    let lines = ok(node, &["ls", "--json"]);
    let child = |line: &str| {
        let line: Json = serde_json::from_str(line).unwrap();
        let name = line["path"].as_str().unwrap().to_owned();
        let has_more = !ok(node, &["ls", &name]).is_empty();
        (name, line["has_value"].as_bool().unwrap(), has_more)
    };
    lines.lines().map(child).collect()
}

/// The children of the root, in pages of at most so many.
fn in_pages(connection: &mut Connection, limit: usize) -> Vec<Child> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = connection.get(&format!("/v1/kv/?children&limit={limit}{after}")).json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit, "{page}");
        found.extend(items.iter().map(|item| {
            let name = item["name"].as_str().unwrap().to_owned();
            (name, item.get("value").is_some(), item["more"].as_bool().unwrap())
        }));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", as_in_a_form(next)),
            None => return found,
        }
    }
}

/// As forms are encoded, and so by URLSearchParams, Python's urlencode and Go's url.Values: a space is a plus.
fn as_in_a_form(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b' ' => String::from("+"),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

#[test]
fn pages_have_all_children_for_who_encodes_their_names_as_in_a_form() {
    let node = NodeProcess::start("n1", &ALONE);
    let names = ["a b", "a!b", "a+b", "a", "a  b", "a b c", "a#b", "a%20b", "+", "ü +"];
    for name in names {
        node.connect().set(&[name], 1.into());
    }
    let mut connection = Connection::open(node.http.unwrap());
    let found: Vec<String> =
        in_pages(&mut connection, 1).into_iter().map(|(name, ..)| name).collect();
    let mut expected = names.map(String::from).to_vec();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn pages_of_each_size_have_all_children_and_say_what_is_below_them() {
    let node = NodeProcess::start("n1", &ALONE);
    fill(&node);
    let expected = listed(&node);
    assert_eq!(expected.len() as u64, 4 * OF_EACH_KIND, "{expected:?}");
    let mut connection = Connection::open(node.http.unwrap());
    for limit in 1..=expected.len() + 1 {
        assert_eq!(in_pages(&mut connection, limit), expected, "pages of {limit}");
    }
}
