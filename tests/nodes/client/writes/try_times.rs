//! Until when a try counts (docs/client-behaviour.md, rule 40): a node that gets it later carries nothing out.

use std::time::Duration;

use distkv::client::smart::{Batch, DeleteTreeOptions, PutOptions, RawRequest, WriteId};
use distkv::client::{Client, ClientConfig, Fields, Idempotency, RetryPolicy};
use distkv::model::path::Path;
use distkv::testing::block_on;

use crate::client::topology::scripted::Scripted;

/// Of the played node.
const CLOCK: u64 = 1_000_000;
/// One try may take so long, milliseconds; a call more.
const TRY: u64 = 60_000;
/// No test takes longer.
const TEST: u64 = 600_000;

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

async fn one_node(clock: Option<u64>) -> (Scripted, Client) {
    let node = Scripted::start("s1");
    node.change(|state| {
        (state.told, state.clock) = (vec![("s1".into(), node.address.clone())], clock);
    });
    let retry = RetryPolicy {
        try_deadline: Duration::from_millis(TRY),
        total_deadline: Duration::from_millis(100 * TRY),
        initial_delay: Duration::from_millis(1),
        ..RetryPolicy::default()
    };
    let client = Client::connect([node.seed()], ClientConfig::new().retry(retry)).await.unwrap();
    (node, client)
}

async fn raw(client: &Client, action: &str, idempotency: Idempotency) {
    let (fields, path) = (Fields::at(&path("a")), &path("a"));
    let (needs_id, try_deadline) = (false, None);
    let request = RawRequest { action, fields: &fields, path, idempotency, needs_id, try_deadline };
    client.request(request).await.unwrap();
}

#[test]
fn each_kind_of_change_says_until_when_it_counts_and_no_read_does() {
    block_on(async {
        let (node, client) = one_node(Some(CLOCK)).await;
        let at = path("a");
        client.get::<String>(&at).await.unwrap();
        raw(&client, "get_state", Idempotency::Read).await;
        client.put(&at, &1).await.unwrap();
        let own_id = PutOptions::new().write_id(WriteId(*b"order-0000000017"));
        client.put_with(&at, &1, &own_id).await.unwrap();
        client.delete(&at).await.unwrap();
        let mut batch = Batch::new();
        batch.put(&at, &1).unwrap();
        client.batch(&batch).await.unwrap();
        // It may take as long as a call, but it begins within the time of a try.
        client.delete_tree(&at, DeleteTreeOptions::default()).await.unwrap();
        client.send(&path("t"), &1).await.unwrap();
        raw(&client, "set_internal", Idempotency::Unguarded).await;
        for (action, count) in [
            ("set_value", 2),
            ("delete_value", 1),
            ("batch", 1),
            ("delete_tree", 1),
            ("msg_send", 1),
            ("set_internal", 1),
        ] {
            let times = node.times(action);
            let fits = |by: &Option<u64>| {
                by.is_some_and(|by| (CLOCK + TRY / 2..=CLOCK + TRY + TEST).contains(&by))
            };
            assert!(times.len() == count && times.iter().all(fits), "{action}: {times:?}");
        }
        for action in ["get_value", "get_state", "watch_cluster"] {
            let times = node.times(action);
            assert!(!times.is_empty() && times.iter().all(Option::is_none), "{action}: {times:?}");
        }
    });
}

#[test]
fn who_has_less_time_than_a_try_may_take_says_so() {
    block_on(async {
        let (node, client) = one_node(Some(CLOCK)).await;
        let options = PutOptions::new().deadline(Duration::from_millis(TRY / 2));
        client.put_with(&path("a"), &1, &options).await.unwrap();
        client.put(&path("a"), &2).await.unwrap();
        let [Some(soon), Some(later)] = node.times("set_value")[..] else { panic!() };
        assert!(later - soon >= TRY / 4, "{soon}, {later}");
    });
}

#[test]
fn a_node_that_tells_no_clock_is_told_no_time() {
    block_on(async {
        let (node, client) = one_node(None).await;
        client.put(&path("a"), &1).await.unwrap();
        assert_eq!(node.times("set_value"), [None]);
    });
}
