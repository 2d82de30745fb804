//! The HTTP API of real nodes, from outside: what is read and written, preconditions, event streams, and what is
//! refused.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use rmpv::Value;
use serde_json::{Value as Json, json};

use super::asking::{ALONE, Answer, ask, get};
use crate::processes::{NodeProcess, PROGRAM, array, wait_until};

/// A node that takes changes by HTTP, and its token.
pub struct Open {
    pub node: NodeProcess,
    token: String,
    _folder: tempfile::TempDir,
}

impl Open {
    pub fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let file = file.to_str().unwrap();
        let write = ["--http-write", "--http-token-file", file];
        let node = NodeProcess::start("n1", &[&ALONE[..], &write, more].concat());
        let token = std::fs::read_to_string(file).unwrap().trim().to_owned();
        Self { node, token, _folder: folder }
    }

    fn http(&self) -> SocketAddr {
        self.node.http.unwrap()
    }

    fn get(&self, target: &str) -> Answer {
        get(self.http(), target)
    }

    fn ask(&self, method: &'static str, target: &str) -> super::asking::Ask {
        ask(self.http(), method, target).bearer(&self.token)
    }

    pub fn put(&self, target: &str, body: impl Into<Vec<u8>>) -> Answer {
        self.ask("PUT", target).body(body).send()
    }
}

#[test]
fn what_is_put_is_got_by_its_label_and_not_twice() {
    let open = Open::start(&[]);
    let absent = open.get("/v1/kv/site/lamp");
    assert_eq!((absent.status, absent.code().as_str()), (404, "not_found"));
    let made = open.put("/v1/kv/site/lamp", r#"{"on": true}"#);
    assert_eq!(made.status, 201, "{made:?}");
    let label = made.fields["etag"].clone();
    assert_eq!(made.json()["etag"], label.as_str());
    assert_eq!(made.json()["changed"], true);
    assert_eq!(made.json()["tock"].to_string(), made.fields["distkv-tock"]);
    let got = open.get("/v1/kv/site/lamp");
    assert_eq!((got.status, got.text()), (200, "{\"on\":true}\n"));
    assert_eq!(got.fields["content-type"], "application/json");
    assert_eq!(got.fields["etag"], label);
    // When it was changed, for people; and in all that has more than one entry.
    let time: jiff::Timestamp = got.fields["distkv-time"].parse().unwrap();
    let ago = jiff::Timestamp::now().duration_since(time);
    assert!(!ago.is_negative() && ago.as_secs() < 60, "{time}");
    let time = got.fields["distkv-time"].as_str();
    assert_eq!(open.get("/v1/kv/site?children").json()["items"][0]["time"], time);
    assert_eq!(open.get("/v1/kv/site?tree").json()["time"], time);
    let chain = &got.fields["distkv-chain"];
    assert!(chain.starts_with("n1~") && !chain.contains(' '), "{chain}");
    let (incarnation, tick) = chain.strip_prefix("n1~").unwrap().split_once(':').unwrap();
    assert_eq!(label, format!("\"{incarnation}-{tick}\""));
    let known = |label: &str| {
        ask(open.http(), "GET", "/v1/kv/site/lamp").field("If-None-Match", label).send()
    };
    for label in [label.as_str(), "*", &format!("\"0-1\", W/{label}")] {
        let answer = known(label);
        assert_eq!((answer.status, answer.body.len()), (304, 0), "{label}");
        assert_eq!(answer.fields["etag"], made.fields["etag"]);
    }
    assert_eq!(known("\"0-1\"").status, 200);
    assert_eq!(known("nonsense").status, 400);
    let head = ask(open.http(), "HEAD", "/v1/kv/site/lamp").send();
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.fields["etag"], label);
    // The same as it is stored, for programs that know MessagePack.
    let raw = ask(open.http(), "GET", "/v1/kv/site/lamp")
        .field("Accept", "text/html, application/msgpack;q=0.9")
        .send();
    assert_eq!((raw.status, raw.body), (200, b"\x81\xa2on\xc3".to_vec()));
    assert_eq!(raw.fields["content-type"], "application/msgpack");
    for (accepted, kind) in [
        ("application/json, application/msgpack", "application/msgpack"),
        ("application/msgpack;q=0.1, application/json", "application/json"),
        ("application/msgpack; Q=0, */*", "application/json"),
        ("application/msgpack;q=nonsense", "application/json"),
    ] {
        let answer = ask(open.http(), "GET", "/v1/kv/site/lamp").field("Accept", accepted).send();
        assert_eq!(
            (answer.status, answer.fields["content-type"].as_str()),
            (200, kind),
            "{accepted}"
        );
    }
    // And the client port has the same.
    let value = open.node.connect().get(&["site", "lamp"]).unwrap();
    assert_eq!(value, Value::Map(vec![(Value::from("on"), Value::from(true))]));
}

#[test]
fn preconditions_hold_or_tell_what_is_there() {
    let open = Open::start(&[]);
    let put = |body: &str, field: &str, label: &str| {
        open.ask("PUT", "/v1/kv/a").field(field, label).body(body).send()
    };
    let first = put("1", "If-None-Match", "*");
    assert_eq!(first.status, 201, "{first:?}");
    let first = first.fields["etag"].clone();
    let again = put("2", "If-None-Match", "*");
    assert_eq!((again.status, again.code().as_str()), (412, "already_exists"));
    assert_eq!(again.json()["entry"]["value"], 1);
    assert_eq!(again.json()["entry"]["etag"], first.as_str());
    let second = put("2", "If-Match", &first);
    assert_eq!(second.status, 200, "{second:?}");
    let second = second.fields["etag"].clone();
    assert_ne!(first, second);
    for label in
        [first.as_str(), "\"abcdef-1\"", "\"\"", &format!("W/{second}"), "\"0-1\", \"1-1\""]
    {
        let stale = put("3", "If-Match", label);
        assert_eq!((stale.status, stale.code().as_str()), (412, "chain_mismatch"), "{label}");
        assert!(stale.text().contains("If-Match"), "{label}: it sent no chain");
        assert_eq!(stale.json()["entry"]["value"], 2);
        assert_eq!(stale.json()["entry"]["chain"].as_array().unwrap().len(), 1);
    }
    assert_eq!(put("3", "If-Match", &format!("\"0-1\", {second}")).status, 200);
    assert_eq!(put("4", "If-Match", "*").status, 200);
    assert_eq!(put("5", "If-None-Match", &first).status, 400);
    assert_eq!(put("5", "If-Match", "4").status, 400);
    let both = open.ask("PUT", "/v1/kv/a").field("If-Match", "*").field("If-None-Match", "*");
    assert_eq!(both.body("5").send().status, 400);
    // Where nothing is, no label is the right one.
    for label in [first.as_str(), "*"] {
        let absent = open.ask("PUT", "/v1/kv/none").field("If-Match", label).body("1").send();
        assert_eq!((absent.status, absent.code().as_str()), (412, "is_new"), "{label}");
        assert_eq!(absent.json()["entry"], Json::Null);
    }
    let delete = |label: &str| open.ask("DELETE", "/v1/kv/a").field("If-Match", label).send();
    assert_eq!(delete(&first).status, 412);
    assert_eq!(open.get("/v1/kv/a").text(), "4\n");
    let deleted = delete(&open.get("/v1/kv/a").fields["etag"]);
    assert_eq!((deleted.status, &deleted.json()["changed"]), (200, &json!(true)));
    assert_eq!(open.get("/v1/kv/a").status, 404);
    let nothing = open.ask("DELETE", "/v1/kv/a").send();
    assert_eq!((nothing.status, &nothing.json()["changed"]), (200, &json!(false)));
    assert_eq!(put("6", "If-None-Match", "*").status, 201, "what was deleted is not there");
}

#[test]
fn nothing_but_what_is_meant_is_deleted_by_a_target_with_a_raw_number_sign() {
    let open = Open::start(&[]);
    for (target, value) in [("/v1/kv/a", "1"), ("/v1/kv/a%23b", "2")] {
        assert_eq!(open.put(target, value).status, 201);
    }
    for method in ["DELETE", "GET", "PUT"] {
        let refused = open.ask(method, "/v1/kv/a#b").body("").send();
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad_request"), "{method}");
        assert!(refused.text().contains("%23"), "{refused:?}");
    }
    assert_eq!(open.get("/v1/kv/a").text(), "1\n");
    assert_eq!(open.get("/v1/kv/a%23b").text(), "2\n");
    let deleted = open.ask("DELETE", "/v1/kv/a").field("If-None-Match", "*").send();
    assert_eq!((deleted.status, deleted.code().as_str()), (412, "already_exists"));
    let none = open.ask("DELETE", "/v1/kv/none").field("If-None-Match", "*").send();
    assert_eq!((none.status, &none.json()["changed"]), (200, &json!(false)));
}

#[test]
fn a_write_that_comes_again_counts_once_also_with_its_precondition() {
    let open = Open::start(&[]);
    let label = open.put("/v1/kv/a", "1").fields["etag"].clone();
    let put = |wid: &str, body: &str| {
        let ask = open.ask("PUT", "/v1/kv/a").field("Distkv-Wid", wid).field("If-Match", &label);
        ask.body(body).send()
    };
    let wid = "00112233445566778899aabbccddeeff";
    let first = put(wid, "2");
    assert_eq!(first.status, 200, "{first:?}");
    open.put("/v1/kv/a", "3");
    let again = put(wid, "2");
    assert_eq!((again.status, &again.json()["repeated"]), (200, &json!(true)), "{again:?}");
    assert_eq!(again.fields["etag"], first.fields["etag"]);
    assert_eq!(open.get("/v1/kv/a").text(), "3\n", "it undoes nothing");
    let reused = put(wid, "4");
    assert_eq!((reused.status, reused.code().as_str()), (409, "wid_reused"));
    for wrong in ["00", "+0112233445566778899aabbccddeeff", &"0".repeat(33)] {
        assert_eq!(put(wrong, "5").status, 400, "{wrong}");
    }
    let two = open.ask("PUT", "/v1/kv/a").field("Distkv-Wid", wid).field("distkv-wid", wid);
    assert_eq!(two.body("2").send().status, 400, "which of them?");
    let copies = open.put("/v1/kv/a?copies=1&timeout=0", "6");
    assert_eq!((copies.status, copies.code().as_str()), (504, "unknown_fate"));
    assert_eq!(open.get("/v1/kv/a").text(), "6\n", "it is made, and says that nobody else has it");
}

#[test]
fn values_come_back_as_they_were_and_great_integers_as_text() {
    let open = Open::start(&[]);
    for text in [
        "null",
        "true",
        "1.5",
        "\"a\\nb\"",
        "[1,[2]]",
        "{\"a\":{}}",
        "9007199254740991",
        "{\"$int\":\"9007199254740992\"}",
        "{\"$int\":\"-9007199254740993\"}",
        "{\"$int\":\"18446744073709551615\"}",
        "{\"$bin\":\"aGk=\"}",
        "{\"$float\":\"nan\"}",
        "{\"$map\":[[1,2]]}",
    ] {
        assert!(open.put("/v1/kv/v", text).status < 300, "{text}");
        assert_eq!(open.get("/v1/kv/v").text().trim(), text);
    }
    // A plain number is as exact on its way in.
    assert!(open.put("/v1/kv/v", "18446744073709551615").status < 300);
    assert_eq!(open.node.connect().get(&["v"]), Some(Value::from(u64::MAX)));
    for wrong in ["", "{", "1 2", "18446744073709551616", "{\"a\":1,\"a\":2}", "nan", "\u{1}"] {
        let refused = open.put("/v1/kv/v", wrong);
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad_request"), "{wrong:?}");
    }
    assert_eq!(open.put("/v1/kv/v", b"\"\xff\"".to_vec()).status, 400);
    let raw = |body: &[u8]| {
        open.ask("PUT", "/v1/kv/v").field("Content-Type", "application/msgpack").body(body).send()
    };
    assert_eq!(raw(&[0x92, 1, 0xc4, 1, 0xff]).status, 200);
    assert_eq!(open.get("/v1/kv/v").text(), "[1,{\"$bin\":\"/w==\"}]\n");
    for wrong in [&[][..], &[0xc1], &[1, 2], &[0x92, 1]] {
        assert_eq!(raw(wrong).status, 400, "{wrong:?}");
    }
    // What Python's clients cannot read, in either form.
    for refused in [
        raw(&[0x91, 0xa1, 0xff]),
        raw(&[0x81, 0x80, 1]),
        open.put("/v1/kv/v", "{\"$str\":\"Y2Fm6Q==\"}"),
        open.put("/v1/kv/v", "{\"$ext\":[-1,\"AQID\"]}"),
    ] {
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad_request"));
        assert!(refused.text().contains("Python"), "{}", refused.text());
    }
    assert_eq!(open.get("/v1/kv/v").text(), "[1,{\"$bin\":\"/w==\"}]\n");
    // The greatest value there is, and one that is greater.
    let long = format!("\"{}\"", "x".repeat((4 << 20) - 5));
    assert!(open.put("/v1/kv/v", long.clone()).status < 300);
    assert_eq!(open.get("/v1/kv/v").text().trim(), long);
    let longer = open.put("/v1/kv/v", format!("\"{}\"", "x".repeat(4 << 20)));
    assert_eq!((longer.status, longer.code().as_str()), (413, "too_large"));
    // Nested too deep, in either form.
    let deep = format!("{}1{}", "[".repeat(1_000), "]".repeat(1_000));
    for refused in [open.put("/v1/kv/v", deep), raw(&[[0x91; 1_000].as_slice(), &[1]].concat())] {
        assert_eq!((refused.status, refused.code().as_str()), (413, "too_large"));
    }
    // It is refused before it is sent.
    let length = ((8 << 20) + 1).to_string();
    let much_longer = open.ask("PUT", "/v1/kv/v").field("Content-Length", &length).send();
    assert_eq!((much_longer.status, much_longer.code().as_str()), (413, "too_large"));
}

#[test]
fn a_body_that_is_encoded_is_refused_and_not_taken_for_what_is_in_it() {
    let open = Open::start(&[]);
    let coded =
        |field: &str| open.ask("PUT", "/v1/kv/v").field("Content-Encoding", field).body("1").send();
    for field in ["gzip", "identity, gzip", "br", "x"] {
        let refused = coded(field);
        assert_eq!((refused.status, refused.code().as_str()), (415, "encoding"), "{field}");
        assert_eq!(refused.fields["accept-encoding"], "identity");
        assert_eq!(open.get("/v1/kv/v").status, 404);
    }
    for field in ["identity", "Identity", ""] {
        assert!(coded(field).status < 300, "{field}");
    }
}

#[test]
fn paths_are_segments_of_urls() {
    let open = Open::start(&[]);
    let mut client = open.node.connect();
    for (target, path) in [
        ("/v1/kv/a.b/%C3%BC%2F", vec![Value::from("a.b"), Value::from("ü/")]),
        ("/v1/kv/a/:1", vec![Value::from("a"), Value::from(1)]),
        ("/v1/kv/a/%3A-1:.5", vec![Value::from("a"), Value::F64(-1.5)]),
        ("/v1/kv/::a/:e", vec![Value::from(":a"), Value::from("")]),
        ("/v1/kv/%00%20", vec![Value::from("\0 ")]),
    ] {
        let made = open.put(target, "7");
        assert_eq!(made.status, 201, "{target}: {made:?}");
        let reply = client.call("get_value", &[("path", Value::Array(path))]);
        assert_eq!(crate::processes::field(&reply, "value"), Some(Value::from(7)), "{target}");
    }
    assert_eq!(open.put("/v1/kv", "1").status, 201);
    assert_eq!(open.get("/v1/kv/").text(), "1\n");
    for target in [
        "/v1/kv//",
        "/v1/kv/a//b",
        "/v1/kv/a/",
        "/v1/kv/%",
        "/v1/kv/%ff",
        "/v1/kv/%c0%80",
        "/v1/kv/:",
        "/v1/kv/a/:n",
        "/v1/kv/:1:2",
        "/v1/kv/a?what",
        "/v1/kv/a?tree&tree",
        "/v1/kv/a?tree=1",
        "/v1/kv/a?tree&watch",
        "/v1/kv/a?tree&depth=-1",
        "/v1/kv/a?children&limit=0",
        "/v1/kv/a?children&limit=1001",
        "/v1/kv/a?children&after=",
        "/v1/kv/a?watch&conflicts=no",
        "/v1/kv/a?watch&fetch&conflicts=only",
        "/v1/status?x",
        "/v1/conflicts?since=x",
        "/v1/conflicts?path=",
        "/v1/kv/a?%zz",
    ] {
        let refused = open.get(target);
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad_request"), "{target}");
    }
    let deep = format!("/v1/kv{}", "/a".repeat(65));
    assert_eq!(open.get(&deep).status, 400);
    assert_eq!(open.get(&format!("/v1/kv/{}", "x".repeat(5_000))).status, 400);
    for target in ["/v1/kvs", "/v1/nothing", "/v1//", "/v2/"] {
        assert_eq!(open.get(target).status, 404, "{target}");
    }
    for (method, target) in [("POST", "/v1/kv/a"), ("PUT", "/v1/status"), ("DELETE", "/v1/")] {
        let refused = open.ask(method, target).send();
        assert_eq!(refused.status, 405, "{method} {target}");
        assert_eq!(refused.fields["allow"].contains("PUT"), target.contains("kv"));
    }
}

#[test]
fn children_come_in_pages_and_trees_as_lines_of_one_moment() {
    let open = Open::start(&[]);
    let mut client = open.node.connect();
    for number in 0..5 {
        client.call(
            "set_value",
            &[("path", Value::Array(vec!["a".into(), number.into()])), ("value", number.into())],
        );
    }
    client.set(&["a", "deep", "er"], Value::from(1));
    client.set(&["a", "gone"], Value::from(1));
    client.call("delete_value", &[("path", array(&["a", "gone"]))]);
    client.set(&["a", "long"], Value::from("é".repeat(500)));
    let names = |answer: &Json| -> Vec<String> {
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = open.get("/v1/kv/a?children").json();
    assert_eq!(names(&all), [":0", ":1", ":2", ":3", ":4", "deep", "long"]);
    assert_eq!(all["next"], Json::Null);
    let items = all["items"].as_array().unwrap();
    assert_eq!((&items[1]["value"], &items[1]["more"]), (&json!(1), &json!(false)));
    assert_eq!(items[1]["etag"], open.get("/v1/kv/a/:1").fields["etag"].as_str());
    assert_eq!((items[5].get("value"), &items[5]["more"]), (None, &json!(true)));
    let start = items[6]["start"].as_str().unwrap();
    assert!(items[6].get("value").is_none() && start.len() <= 200 && start.starts_with("\"éé"));
    // Page by page it is the same.
    let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let behind = after.map(|after| format!("&after={after}")).unwrap_or_default();
        let page = open.get(&format!("/v1/kv/a?children&limit=2{behind}")).json();
        found.extend(names(&page));
        pages += 1;
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(found, names(&all));
    assert!(pages >= 4, "{pages}");
    assert_eq!(names(&open.get("/v1/kv/?children").json()), ["a"]);
    assert_eq!(open.get("/v1/kv/none?children").json(), json!({"items": [], "next": null}));
    let tree = open.get("/v1/kv/a?tree");
    assert_eq!((tree.status, tree.fields["content-type"].as_str()), (200, "application/x-ndjson"));
    let lines = tree.lines();
    let paths: Vec<&str> = lines.iter().map(|line| line["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["a:0", "a:1", "a:2", "a:3", "a:4", "a.deep.er", "a.long"]);
    assert_eq!(lines[5]["value"], 1);
    assert_eq!(lines[5]["chain"].as_array().unwrap().len(), 1);
    assert_eq!(open.get("/v1/kv/?tree&depth=1").lines().len(), 0);
    assert_eq!(open.get("/v1/kv/a?tree&depth=1").lines().len(), 6);
    assert_eq!(open.get("/v1/kv/none?tree").text(), "");
    // And all of it can be deleted.
    let deleted = open.ask("DELETE", "/v1/kv/a?tree").send();
    assert_eq!((deleted.status, &deleted.json()["changed"]), (200, &json!(7)));
    assert_eq!(open.get("/v1/kv/a?tree").text(), "");
    let root = open.ask("DELETE", "/v1/kv/?tree").send();
    assert_eq!((root.status, root.code().as_str()), (405, "is_root"));
}

#[test]
fn a_watch_tells_what_is_there_and_what_happens() {
    let open = Open::start(&[]);
    open.put("/v1/kv/a/b", "1");
    let mut events = ask(open.http(), "GET", "/v1/kv/a?watch&fetch&conflicts").events();
    let first = events.expect("entry");
    assert_eq!((&first["path"], &first["value"]), (&json!("a.b"), &json!(1)));
    assert_eq!(first["etag"], open.get("/v1/kv/a/b").fields["etag"].as_str());
    events.expect("uptodate");
    open.put("/v1/kv/other", "1");
    let changed = open.put("/v1/kv/a/:2", "{\"x\":\"a\\n\\nevent: forged\"}");
    let second = events.expect("entry");
    assert_eq!((&second["path"], &second["etag"]), (&json!("a:2"), &changed.json()["etag"]));
    assert_eq!(second["value"]["x"], "a\n\nevent: forged");
    open.ask("DELETE", "/v1/kv/a/b").send();
    let third = events.expect("deleted");
    assert_eq!(third["path"], "a.b");
    assert!(third.get("value").is_none() && third["etag"].is_string());
    // It ends with the node, and says so.
    open.node.signal("TERM");
    let last = events.expect("failed");
    assert!(last["code"].is_string());
    assert_eq!(events.next(), None);
}

#[test]
fn one_who_reads_slowly_costs_little_and_gets_the_newest_or_is_cut_off() {
    let open = Open::start(&["--max-client-memory", "32MiB"]);
    let mut events = ask(open.http(), "GET", "/v1/kv/a?watch").events();
    let mut client = open.node.connect();
    let before = open.node.resident_bytes();
    // Far more than sockets and queues take: 200 MiB.
    let big = Value::from("x".repeat(100_000));
    for number in 0..2_000_u32 {
        let path = Value::Array(vec!["a".into(), (number % 4).into()]);
        let value = Value::Array(vec![number.into(), big.clone()]);
        client.call("set_value", &[("path", path), ("value", value)]);
    }
    let grown = open.node.resident_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown}");
    // It may have been closed, as it read nothing for 60 s. If not, it is told that it has missed something, and then
    // the newest versions.
    let mut has_restarted = false;
    let mut newest = std::collections::BTreeMap::new();
    while newest.len() < 4 || newest.values().any(|number| *number < 1_996) {
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| events.next())) {
            Ok(Some((name, data))) if name == "entry" => {
                let number = data["value"][0].as_u64().unwrap();
                let before = newest.insert(data["path"].to_string(), number);
                assert!(before.is_none_or(|before| before < number), "nothing older follows");
            }
            Ok(Some((name, _))) => has_restarted |= name == "restart",
            Ok(None) | Err(_) => return,
        }
    }
    assert!(has_restarted);
}

#[test]
fn streams_have_bounds_and_leave_room_for_others() {
    let open = Open::start(&[]);
    // Half of what there is: all of them come from one address.
    let mut streams: Vec<_> =
        (0..16).map(|_| ask(open.http(), "GET", "/v1/kv/a?watch&fetch").events()).collect();
    for stream in &mut streams {
        stream.expect("uptodate");
    }
    let refused = open.get("/v1/kv/a?watch");
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_many"));
    assert_eq!(open.get("/v1/kv/?tree").status, 429);
    // Other requests are answered. (How it is when more come than there may be: `crowds`.)
    let silent: Vec<_> =
        (0..40).map(|_| std::net::TcpStream::connect(open.http()).unwrap()).collect();
    assert_eq!(open.put("/v1/kv/a", "1").status, 201);
    assert_eq!(open.get("/livez").status, 200);
    drop(silent);
    for stream in &mut streams {
        assert_eq!(stream.expect("entry")["value"], 1, "none was closed for another one");
    }
    streams.pop();
    wait_until("its place is free", || (open.get("/v1/kv/?tree").status == 200).then_some(()));
}

#[test]
fn only_who_has_the_token_and_is_no_other_place_s_page_writes() {
    let open = Open::start(&[]);
    let put = || ask(open.http(), "PUT", "/v1/kv/a").body("1");
    let refused = put().send();
    assert_eq!((refused.status, refused.code().as_str()), (401, "auth_required"));
    assert!(refused.fields["www-authenticate"].starts_with("Bearer"));
    let wrong = open.token.replace(|c: char| c.is_ascii_digit(), "e");
    for bearer in [
        wrong.as_str(),
        "",
        &open.token[1..],
        &format!("{}0", open.token),
        "distkv1.xyz",
        "distkv2.xyz",
    ] {
        let refused = put().bearer(bearer).send();
        assert_eq!((refused.status, refused.code().as_str()), (401, "auth_failed"), "{bearer}");
        // A wrong secret is refused also where none is needed: it is a mistake.
        assert_eq!(ask(open.http(), "GET", "/v1/kv/a").bearer(bearer).send().status, 401);
    }
    assert_eq!(put().field("Authorization", "Basic YTpi").send().status, 401);
    assert_eq!(put().bearer(&open.token).bearer(&open.token).send().status, 400);
    let with_origin = |origin: &str| put().bearer(&open.token).field("Origin", origin).send();
    let own = format!("http://{}", open.http());
    for origin in [
        "http://evil.example",
        "null",
        "https://localhost",
        "http://localhost:1",
        &format!("{own}.evil.example"),
    ] {
        let refused = with_origin(origin);
        assert_eq!((refused.status, refused.code().as_str()), (403, "denied"), "{origin}");
    }
    let twice = put().bearer(&open.token).field("Origin", &own).field("Origin", &own).send();
    assert_eq!(twice.status, 403);
    assert_eq!(open.get("/v1/kv/a").status, 404, "none of them wrote anything");
    assert_eq!(with_origin(&own).status, 201);
    assert_eq!(put().bearer(&open.token).send().status, 200);
    // A proxy may speak TLS with the browser, and pass on without: that page is of this host and port, too.
    assert_eq!(with_origin(&format!("https://{}", open.http())).status, 200);
    let answer = open.get("/v1/kv/a");
    assert!(!answer.fields.keys().any(|name| name.starts_with("access-control")), "{answer:?}");
    assert!(!answer.fields.contains_key("set-cookie"));
    // A node that was not told to takes nothing.
    let closed = NodeProcess::start("n2", &ALONE);
    let put = ask(closed.http.unwrap(), "PUT", "/v1/kv/a").body("1").send();
    assert_eq!((put.status, put.code().as_str()), (403, "denied"));
}

#[test]
fn the_node_and_its_network_are_told_as_by_the_client_port() {
    let open = Open::start(&[]);
    open.put("/v1/kv/a", "1");
    let status = open.get("/v1/status").json();
    assert_eq!(
        (&status["name"], &status["ready"], &status["live_entries"]),
        (&json!("n1"), &json!(true), &json!(1))
    );
    assert!(status.get("seq").is_none());
    let members = open.get("/v1/members").json();
    assert_eq!(
        (&members["result"][0]["name"], &members["result"][0]["state"]),
        (&json!("n1"), &json!("self"))
    );
    let shards = open.get("/v1/shards").json();
    assert_eq!(
        (&shards["result"][0]["first"], &shards["result"][0]["last"]),
        (&json!(0), &json!(1023))
    );
    let shards = open.get("/v1/shards?detail").json();
    assert_eq!(shards["result"].as_array().unwrap().len(), 1);
    assert_eq!(open.get("/v1/conflicts").text(), "");
    let index = open.get("/v1/").json();
    let described = open.get("/v1/openapi.json").json();
    for request in index["requests"].as_array().unwrap() {
        let path = request.as_str().unwrap().split([' ', '?']).nth(1).unwrap();
        let path = path.strip_prefix("/v1").unwrap().replace("PATH", "{path}");
        assert!(described["paths"].get(&path).is_some(), "{path} is not described");
    }
}

#[test]
fn the_changes_of_an_entry_are_told_with_their_labels() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let open = Open::start(&["--data-dir", data.to_str().unwrap(), "--sync", "every-batch"]);
    let first = open.put("/v1/kv/site/lamp", "9007199254740993");
    // The moment of the second one is to be another, also where a disk takes no time.
    let now_ms = || jiff::Timestamp::now().as_millisecond();
    let first_ms = now_ms();
    wait_until("the clock has gone on", || (now_ms() > first_ms).then_some(()));
    let second = open.put("/v1/kv/site/lamp", "2");
    open.ask("DELETE", "/v1/kv/site/lamp").send();
    let history = open.get("/v1/history?path=site.lamp").json();
    let items = history["items"].as_array().unwrap();
    assert!(items.len() >= 3, "{history}");
    assert_eq!(items[0]["value"], json!({"$int": "9007199254740993"}));
    assert_eq!(items[1]["value"], 2);
    for (item, put) in items.iter().zip([&first, &second]) {
        assert_eq!(item["etag"], put.fields["etag"].as_str(), "{item}");
        assert!(item["event"].as_str().unwrap().starts_with("n1~"), "{item}");
        for time in ["time", "came"] {
            item[time].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        }
    }
    assert!(items[2].get("value").is_none() && items[2]["etag"].is_string(), "{history}");
    assert_eq!((&history["before"], &history["cut"]), (&Json::Null, &json!(false)));
    assert!(history["reach"]["time"].is_string(), "{history}");
    let last = open.get("/v1/history?path=site.lamp&limit=1").json();
    assert_eq!((last["items"].as_array().unwrap().len(), &last["cut"]), (1, &json!(true)));
    assert!(last["before"]["etag"].is_string(), "{last}");
    let since = items[1]["came"].as_str().unwrap();
    let since = open.get(&format!("/v1/history?path=site.lamp&since={since}")).json();
    assert_eq!(since["before"]["value"], json!({"$int": "9007199254740993"}), "{since}");
    assert_eq!(since["items"][0]["value"], 2, "{since}");
    for wrong in ["", "?path=a&since=5", "?path=a..b", "?path=a&limit=0", "?path=a&depth=1"] {
        assert_eq!(open.get(&format!("/v1/history{wrong}")).status, 400, "{wrong}");
    }
    let in_memory = Open::start(&[]).get("/v1/history?path=a");
    assert_eq!((in_memory.status, in_memory.code().as_str()), (403, "denied"));
}

#[test]
fn of_several_labels_the_answer_names_none_as_if_it_were_meant() {
    let open = Open::start(&[]);
    let now = open.put("/v1/kv/a", "1").fields["etag"].clone();
    let with =
        |labels: &str| open.ask("PUT", "/v1/kv/a").field("If-Match", labels).body("2").send();
    let unmet = with("\"abc-1\", \"abc-2\"");
    assert_eq!((unmet.status, unmet.code().as_str()), (412, "chain_mismatch"));
    let text = unmet.json()["error"].as_str().unwrap().to_owned();
    assert!(text.contains("none of the 2 labels") && !text.contains("abc"), "{text}");
    assert_eq!(unmet.json()["entry"]["etag"], now.as_str());
    assert_eq!(with(&format!("\"abc-1\", {now}")).status, 200);
}

#[test]
fn a_node_that_is_not_ready_says_so() {
    // Nobody listens there, and it waits for that peer. Its log says where it listens itself.
    let mut child = Command::new(PROGRAM)
        .args([
            "join",
            "127.0.0.1:1",
            "--peer-wait",
            "300s",
            "--name",
            "n1",
            "--http",
            "127.0.0.1:0",
        ])
        .args(["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--log-format", "json"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let http: SocketAddr = log
        .find_map(|line| {
            let line: Json = serde_json::from_str(&line.unwrap()).ok()?;
            line["fields"]["http"].as_str().or(line["http"].as_str())?.parse().ok()
        })
        .expect("the log says it");
    let answers: Vec<(&str, Answer)> =
        ["/v1/kv/a", "/v1/kv/a?tree", "/v1/kv/a?watch", "/v1/kv/a?children", "/v1/status"]
            .map(|target| (target, get(http, target)))
            .into();
    child.kill().unwrap();
    child.wait().unwrap();
    for (target, answer) in answers {
        if target == "/v1/status" {
            assert_eq!(answer.json()["ready"], false);
        } else {
            assert_eq!((answer.status, answer.code().as_str()), (503, "not_ready"), "{target}");
        }
    }
}
