//! Flow control, and how streams share a connection.

use crate::harness::{Client, Node, encode, path, text};

fn plant(client: &mut Client, count: usize) {
    for i in 0..count {
        client.set(&format!("f.k{i:04}"), i as i64);
    }
}

fn tree() -> crate::harness::Value {
    map! {"action": "get_tree", "path": path("f")}
}

#[test]
fn a_stream_pauses_one_short_of_qlen() {
    let node = Node::found("n1");
    plant(&mut node.connect(), 40);
    for qlen in [4, 5, 10] {
        let mut client = node.connect_with_qlen(qlen);
        let seq = client.start(tree());
        let mut wseq = 0;
        for _ in 0..4 {
            for _ in 0..qlen - 1 {
                wseq += 1;
                assert_eq!(client.reply(seq)["wseq"].as_u64(), Some(wseq));
            }
            client.silence(seq);
            client.ack(seq, wseq);
        }
    }
}

#[test]
fn an_acknowledgement_opens_the_window_by_what_it_acknowledges() {
    let node = Node::found("n1");
    plant(&mut node.connect(), 40);
    let mut client = node.connect_with_qlen(5);
    let seq = client.start(tree());
    let take = |client: &mut Client, count| {
        (0..count).map(|_| client.reply(seq)["wseq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(take(&mut client, 4), [1, 2, 3, 4]);
    client.ack(seq, 2);
    assert_eq!(take(&mut client, 2), [5, 6]);
    client.silence(seq);
    client.ack(seq, 1);
    client.silence(seq);
    // More than was sent is no more than what was sent.
    client.ack(seq, 1000);
    assert_eq!(take(&mut client, 4), [7, 8, 9, 10]);
    client.silence(seq);
}

#[test]
fn the_clients_length_counts_also_where_it_is_greater_than_the_one_offered() {
    let node = Node::found("n1");
    plant(&mut node.connect(), 40);
    let mut client = node.connect_with_qlen(30);
    let seq = client.start(tree());
    for wseq in 1..30 {
        assert_eq!(client.reply(seq)["wseq"].as_u64(), Some(wseq));
    }
    client.silence(seq);
    client.ack(seq, 29);
    assert_eq!(client.reply(seq)["wseq"].as_u64(), Some(30));
}

#[test]
fn without_qlen_nothing_is_counted_and_nothing_waits() {
    let node = Node::found("n1");
    plant(&mut node.connect(), 300);
    let mut client = node.connect();
    client.send(map! {"seq": 0, "qlen": 0});
    let messages = client.stream(tree());
    assert_eq!(messages.len(), 300);
    assert!(messages.iter().all(|m| m["wseq"].is_nil()));
}

#[test]
fn acknowledgements_of_what_is_over_or_never_was_are_ignored() {
    let node = Node::found("n1");
    plant(&mut node.connect(), 3);
    let mut client = node.connect_with_qlen(10);
    let seq = client.start(tree());
    client.reply(seq);
    client.rest(seq);
    for stray in [seq, 1000, 0] {
        client.ack(stray, 3);
    }
    client.send(map! {"seq": 1001, "state": "end"});
    assert_eq!(client.start(map! {"action": "get_tock"}), 2);
    assert_eq!(client.receive().unwrap()["seq"].as_u64(), Some(2), "and nothing before");
}

#[test]
fn a_paused_stream_can_be_stopped() {
    let node = Node::found("n1");
    plant(&mut node.connect(), 40);
    let mut client = node.connect_with_qlen(5);
    let seq = client.start(tree());
    (0..4).for_each(|_| drop(client.reply(seq)));
    assert_eq!(client.ok(map! {"action": "stop", "task": seq})["result"].as_bool(), Some(true));
    assert_eq!(text(&client.reply(seq), "state"), "end");
}

/// What has come of it would look like all.
#[test]
fn a_tree_that_is_cut_off_has_an_error_before_its_end() {
    let node = Node::found("n1");
    plant(&mut node.connect(), 40);
    let paused = || {
        let mut client = node.connect_with_qlen(5);
        let seq = client.start(tree());
        (0..4).for_each(|_| drop(client.reply(seq)));
        (client, seq)
    };
    let assert_cut_off = |(mut client, seq): (Client, u64), code| {
        let error = client.reply(seq);
        assert_eq!(text(&error, "code"), code);
        assert!(text(&error, "error").contains("this is not all"));
        assert_eq!(text(&client.reply(seq), "state"), "end");
    };
    // Its client can acknowledge nothing any more.
    let (mut client, seq) = paused();
    client.finish();
    assert_cut_off((client, seq), "too_slow");
    let (tree, mut watch) = (paused(), node.connect());
    let watching = watch.start(map! {"action": "watch", "path": path("f")});
    assert_eq!(text(&watch.reply(watching), "state"), "start");
    drop(node);
    assert_cut_off(tree, "not_ready");
    assert_eq!(text(&watch.reply(watching), "state"), "end", "it has no end of its own");
}

#[test]
fn many_streams_share_a_connection_fairly() {
    let node = Node::found("n1");
    plant(&mut node.connect(), 2000);
    let mut client = node.connect();
    let batch: Vec<u8> = (1..=10u64)
        .flat_map(|seq| encode(&map! {"action": "get_tree", "path": path("f"), "seq": seq}))
        .collect();
    client.send_bytes(&batch);
    // When the first stream is through, the others are nearly: none had to wait for it.
    let mut counts = [0; 11];
    loop {
        let message = client.receive().unwrap();
        if message["state"].as_str() == Some("end") {
            break;
        }
        counts[message["seq"].as_u64().unwrap() as usize] += 1;
    }
    assert!(counts[1..].iter().all(|count| *count > 1500), "{counts:?}");
}

#[test]
fn a_stream_whose_client_never_acknowledges_gives_up_its_snapshot() {
    let config = distkv::server::ServerConfig { snapshot_stall_ms: 100, ..Default::default() };
    let node = Node::found_with("n1", config);
    plant(&mut node.connect(), 40);
    let mut client = node.connect_with_qlen(5);
    let seq = client.start(tree());
    (0..4).for_each(|_| drop(client.reply(seq)));
    assert_eq!(text(&client.reply(seq), "code"), "too_slow");
    assert_eq!(text(&client.reply(seq), "state"), "end");
    // A watch that is up to date keeps none, and waits as long as it takes.
    let seq = client.start(map! {"action": "watch", "path": path("f")});
    client.reply(seq);
    for i in 0..10 {
        client.set("f.k0001", i);
    }
    (0..3).for_each(|_| drop(client.reply(seq)));
    client.silence(seq);
}
