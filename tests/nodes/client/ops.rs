//! Reading and writing through the smart client, also while nodes die.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distkv::client::smart::{
    Batch, DeleteTreeOptions, GetOptions, ReadMode, Repeated, TreeOptions, WatchOptions, WriteId,
};
use distkv::client::{
    CallError, Client, ClientConfig, Fate, Fields, HostPort, Idempotency, PutOptions, RawRequest,
    RetryPolicy,
};
use distkv::model::path::Path;
use distkv::rt::{self, TcpListener};
use distkv::testing::{PATIENCE, TestCluster, block_on, free_addrs, wait_until};
use serde::{Deserialize, Serialize};

pub(crate) fn seeds(cluster: &TestCluster) -> Vec<HostPort> {
    cluster.nodes().iter().map(|node| node.client_addr().into()).collect()
}

/// A client that knows all nodes.
pub(crate) async fn connect(cluster: &TestCluster, config: ClientConfig) -> Client {
    let client = Client::connect(seeds(cluster), config).await.unwrap();
    let count = cluster.nodes().len();
    let knows_all =
        || client.cluster_view().nodes.iter().filter(|node| node.is_live()).count() == count;
    assert!(wait_until(PATIENCE, knows_all).await, "{:?}", client.cluster_view());
    client
}

/// Sets a thousand entries below `t`.
pub(crate) async fn fill(client: &Client) {
    let mut batch = Batch::new();
    for i in 0..1000 {
        batch.put(&path("t").push(i).unwrap(), &i).unwrap();
    }
    client.batch(&batch).await.unwrap();
}

pub(crate) fn path(text: &str) -> Path {
    text.parse().unwrap()
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Lamp {
    on: bool,
    name: String,
    levels: Vec<u8>,
}

#[test]
fn values_go_in_and_come_out_as_types() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let lamp = Lamp { on: true, name: "kitchen".into(), levels: vec![1, 2, 250] };
        let written = client.put(&path("lamp.kitchen"), &lamp).await.unwrap();
        assert!(written.changed && written.chain.is_some());
        assert_eq!(written.repeated, Repeated::No);
        assert_eq!(client.get(&path("lamp.kitchen")).await.unwrap(), Some(lamp));
        // Names, not places: others can read it.
        let map: BTreeMap<String, serde_json::Value> =
            client.get(&path("lamp.kitchen")).await.unwrap().unwrap();
        assert_eq!(map["name"], "kitchen");
        assert_eq!(client.get::<u64>(&path("nothing")).await.unwrap(), None);
        let error = client.get::<u64>(&path("lamp.kitchen")).await.unwrap_err();
        assert!(matches!(error, CallError::Value(_)), "{error}");
        let deleted = client.delete(&path("lamp.kitchen")).await.unwrap();
        assert!(deleted.changed);
        assert_eq!(client.get::<Lamp>(&path("lamp.kitchen")).await.unwrap(), None);
        assert!(!client.delete(&path("lamp.kitchen")).await.unwrap().changed);
        let entry = client.get_entry(&path("lamp.kitchen")).await.unwrap().unwrap();
        assert_eq!(entry.value, None);
        cluster.shutdown().await;
    });
}

#[test]
fn preconditions_hold_or_are_told_as_such() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let (at, new) = (path("a"), PutOptions::new().must_be_new());
        let first = client.put_with(&at, "one", &new).await.unwrap();
        let error = client.put_with(&at, "two", &new).await.unwrap_err();
        assert!(error.is_precondition(), "{error}");
        assert_eq!(error.code(), Some("already_exists"));
        assert_eq!((error.fate(), error.attempts()), (Fate::NotDone, 1));
        assert_eq!(error.node(), Some("n0"));
        let with_chain = PutOptions::new().chain(first.chain.unwrap());
        client.put_with(&at, "three", &with_chain).await.unwrap();
        let error = client.put_with(&at, "four", &with_chain).await.unwrap_err();
        assert_eq!(error.code(), Some("chain_mismatch"));
        assert_eq!(client.get::<String>(&at).await.unwrap().as_deref(), Some("three"));
        assert_eq!(client.stats().retry.refused, 2);
        assert_eq!(client.stats().retry.retries, 0);
        cluster.shutdown().await;
    });
}

#[test]
fn the_version_of_a_deleted_entry_is_a_precondition() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        client.put(&path("k"), &1).await.unwrap();
        client.delete(&path("k")).await.unwrap();
        let chain = client.get_entry(&path("k")).await.unwrap().unwrap().chain.unwrap();
        let if_this = PutOptions::new().chain(chain);
        client.put_with(&path("k"), &2, &if_this).await.unwrap();
        let error = client.put_with(&path("k"), &3, &if_this).await.unwrap_err();
        assert_eq!(error.code(), Some("chain_mismatch"), "{error}");
        assert_eq!(client.get::<u8>(&path("k")).await.unwrap(), Some(2));
        cluster.shutdown().await;
    });
}

#[test]
fn a_short_deadline_ends_unconfirmed_and_not_unknown() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        // The node says in time that nobody else has it.
        let options = PutOptions::new().copies(1).deadline(Duration::from_secs(8));
        let error = client.put_with(&path("k"), &1, &options).await.unwrap_err();
        assert_eq!(error.fate(), Fate::Unconfirmed, "{error}");
        cluster.shutdown().await;
    });
}

#[test]
fn the_same_write_id_counts_once_and_never_for_another_value() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let options = PutOptions::new().write_id(WriteId::random()).must_be_new();
        let first = client.put_with(&path("a"), &1, &options).await.unwrap();
        let second = client.put_with(&path("a"), &1, &options).await.unwrap();
        assert!(second.repeated == Repeated::Yes && second.changed);
        assert_eq!(second.chain.unwrap().newest, first.chain.unwrap().newest);
        let error = client.put_with(&path("a"), &2, &options).await.unwrap_err();
        assert_eq!(error.code(), Some("wid_reused"));
        cluster.shutdown().await;
    });
}

#[test]
fn a_tree_comes_whole_and_goes_whole() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        for i in 0..300 {
            client.put(&path("t").push(i).unwrap(), &i).await.unwrap();
        }
        let tree = client.tree(&path("t"), TreeOptions::default()).await.unwrap();
        assert_eq!(tree.len(), 300);
        for (i, entry) in tree.iter().enumerate() {
            assert_eq!(entry.path, path("t").push(i as i64).unwrap());
            assert_eq!(entry.entry.get::<usize>().unwrap(), i);
        }
        let options = TreeOptions { with_chains: true, ..TreeOptions::default() };
        assert!(client.tree(&path("t"), options).await.unwrap()[0].entry.chain.is_some());
        let deleted = client.delete_tree(&path("t"), DeleteTreeOptions::default()).await.unwrap();
        assert_eq!(deleted, 300);
        assert!(client.tree(&path("t"), TreeOptions::default()).await.unwrap().is_empty());
        cluster.shutdown().await;
    });
}

#[test]
fn a_node_that_dies_costs_no_call_and_no_acknowledged_write() {
    block_on(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let copies = PutOptions::new().copies(1);
        for i in 0..200_i64 {
            let at = path("k").push(i).unwrap().push("v").unwrap();
            let at = Path::root().push(i).unwrap().join(&at).unwrap();
            client.put_with(&at, &i, &copies).await.unwrap();
            if i == 50 {
                drop(cluster.take(1));
            }
            assert_eq!(client.get::<i64>(&at).await.unwrap(), Some(i));
        }
        for i in 0..200_i64 {
            let at = path("k").push(i).unwrap().push("v").unwrap();
            let at = Path::root().push(i).unwrap().join(&at).unwrap();
            assert_eq!(client.get::<i64>(&at).await.unwrap(), Some(i));
        }
        let stats = client.stats();
        assert_eq!(stats.retry.deadlines, 0, "{stats:?}");
        assert_eq!(stats.reads.stale_taken, 0, "{stats:?}");
        cluster.shutdown().await;
    });
}

#[test]
fn without_a_node_the_deadline_is_kept_and_the_fate_is_told() {
    block_on(async {
        let mut cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        client.put(&path("a"), &1).await.unwrap();
        drop(cluster.take(0));
        let gone = || client.stats().pool.connections == 0;
        assert!(wait_until(PATIENCE, gone).await);
        let options = PutOptions::new().deadline(Duration::from_secs(3));
        let error = client.put_with(&path("a"), &2, &options).await.unwrap_err();
        assert_eq!((error.code(), error.fate()), (Some("unavailable"), Fate::NotDone), "{error}");
        assert!(error.attempts() > 1);
        assert_eq!(client.stats().retry.deadlines, 1);
    });
}

#[test]
fn a_request_that_is_answered_with_a_stream_is_refused_before_it_is_sent() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let at = path("a");
        client.put(&at, &1).await.unwrap();
        let request = async |action: &str, fields: &Fields| {
            let (idempotency, needs_id) = (Idempotency::Read, false);
            let (path, try_deadline) = (&at, None);
            let request = RawRequest { action, fields, path, idempotency, needs_id, try_deadline };
            client.request(request).await
        };
        let plain = Fields::at(&at);
        for action in [
            "get_tree",
            "get_tree_internal",
            "watch",
            "msg_monitor",
            "conflicts",
            "watch_cluster",
            "get_snapshot",
            "auth",
            "auth_list",
        ] {
            let error = request(action, &plain).await.unwrap_err();
            let told = format!("{action} is answered with a stream, which `request` does not read");
            assert_eq!((error.code(), error.to_string()), (Some("usage"), told));
        }
        // With versions, it tells each entry.
        let mut versions = plain.clone();
        let error = request("delete_tree", versions.u64("nchain", 2)).await.unwrap_err();
        assert_eq!(error.code(), Some("usage"), "{error}");
        assert_eq!(client.get::<u8>(&at).await.unwrap(), Some(1));
        // What is answered with one message is not.
        assert_eq!(request("get_value", &plain).await.unwrap().u64("value"), Some(1));
        let mut count = plain.clone();
        let deleted = request("delete_tree", count.u64("nchain", 0)).await.unwrap();
        assert_eq!(deleted.u64("changed"), Some(1));
        cluster.shutdown().await;
    });
}

#[test]
fn a_call_without_time_sends_nothing() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let no_time = PutOptions::new().deadline(Duration::ZERO);
        for _ in 0..20 {
            let error = client.put_with(&path("a"), &1, &no_time).await.unwrap_err();
            assert!(matches!(error, CallError::Unavailable { .. }), "{error}");
            assert_eq!((error.attempts(), error.fate()), (0, Fate::NotDone), "{error}");
        }
        assert_eq!(client.get::<u64>(&path("a")).await.unwrap(), None);
        let freshest = GetOptions::new().read_mode(ReadMode::Freshest).deadline(Duration::ZERO);
        let error = client.get_with::<u64>(&path("a"), freshest).await.unwrap_err();
        assert_eq!((error.attempts(), error.code()), (0, Some("unavailable")), "{error}");
        cluster.shutdown().await;
    });
}

#[test]
fn what_a_node_says_of_copies_counts_more_than_that_the_last_try_is_cut_off() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        let policy = RetryPolicy { try_deadline: Duration::from_secs(5), ..Default::default() };
        let client = connect(&cluster, ClientConfig::new().retry(policy)).await;
        // There is one other node only.
        let copies = PutOptions::new().copies(2).deadline(Duration::from_secs(12));
        let error = client.put_with(&path("a"), &1, &copies).await.unwrap_err();
        assert_eq!(
            (error.fate(), error.code()),
            (Fate::Unconfirmed, Some("unknown_fate")),
            "{error}"
        );
        assert!(error.to_string().contains("1 of 2"), "{error}");
        cluster.shutdown().await;
    });
}

/// A node as old as the original, that dies in the middle of some requests: `last_words` has what it sends before, for
/// a request's bytes and number.
pub(crate) async fn frail_node(
    listener: TcpListener,
    last_words: impl Fn(&[u8], u64) -> Option<Vec<u8>> + Clone + Send + 'static,
) {
    use futures::{AsyncReadExt, AsyncWriteExt};
    while let Ok((mut stream, _)) = listener.accept().await {
        let last_words = last_words.clone();
        rt::spawn(async move {
            let mut fields = distkv::client::Fields::new();
            fields.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "frail");
            stream.write_all(&fields.u64("tock", 2).u64("qlen", 0).encode()).await.unwrap();
            let (mut seq, mut chunk) = (0, [0; 4096]);
            while let Ok(count @ 1..) = stream.read(&mut chunk).await {
                seq += 1;
                if let Some(last) = last_words(&chunk[..count], seq) {
                    return stream.write_all(&last).await.unwrap();
                }
                let mut error = distkv::client::Fields::new();
                error.u64("seq", seq).str("error", "No such action").str("code", "unknown_action");
                stream.write_all(&error.encode()).await.unwrap();
            }
        });
    }
}

/// Whether a request is of this action.
pub(crate) fn is_of(request: &[u8], action: &str) -> bool {
    request.windows(action.len()).any(|word| word == action.as_bytes())
}

#[test]
fn a_write_that_may_have_been_made_is_retried_only_if_it_is_guarded() {
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let frail: HostPort = listener.local_addr().unwrap().into();
        // How many the node has had. A try that finds its connection closed comes to no node.
        let writes = Arc::new(AtomicUsize::new(0));
        let had = || writes.load(Ordering::SeqCst);
        let counted = Arc::clone(&writes);
        let script = rt::spawn(frail_node(listener, move |request, _| {
            let is_write = is_of(request, "set_value");
            is_write.then(|| counted.fetch_add(1, Ordering::SeqCst));
            is_write.then(Vec::new)
        }));
        let client = Client::connect([frail], ClientConfig::new()).await.unwrap();
        let options = PutOptions::new().without_write_id();
        let error = client.put_with(&path("a"), &1, &options).await.unwrap_err();
        assert_eq!((error.fate(), had()), (Fate::Unknown, 1), "{error}");
        assert_eq!((error.code(), error.node()), (Some("fate_unknown"), Some("frail")));
        assert_eq!(client.stats().retry.unsafe_to_retry, 1);
        // An old node heeds no ids.
        let error = client.put(&path("a"), &1).await.unwrap_err();
        assert_eq!((error.fate(), had()), (Fate::Unknown, 2), "{error}");
        let options = PutOptions::new().must_be_new().deadline(Duration::from_secs(3));
        let error = client.put_with(&path("a"), &1, &options).await.unwrap_err();
        assert_eq!(error.fate(), Fate::Unknown, "{error}");
        assert!(had() > 3);
        script.cancel().await;
    });
}

#[test]
fn a_closed_client_does_nothing_and_seeds_are_needed() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let clone = client.clone();
        client.close();
        let error = clone.get::<u64>(&path("a")).await.unwrap_err();
        assert_eq!(error.code(), Some("closed"), "{error}");
        assert!(clone.is_closed());
        let error = Client::connect([], ClientConfig::new()).await.unwrap_err();
        assert_eq!(error.code(), Some("usage"));
        let dead: HostPort = free_addrs::<1>()[0].into();
        let quick = ClientConfig::new().connect_deadline(Duration::from_secs(3));
        let error = Client::connect([dead.clone()], quick).await.unwrap_err();
        assert_eq!(error.code(), Some("unavailable"));
        assert!(error.to_string().contains("refused"), "{error}");
        cluster.shutdown().await;
    });
}

#[test]
fn a_call_that_is_dropped_at_any_await_leaves_the_client_usable() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        for i in 0..400_u64 {
            let at = path("a").push(i as i64 % 7).unwrap();
            let writing = client.put(&at, &i);
            let _ = rt::timeout(Duration::from_micros(i * 3), writing).await;
        }
        assert!(wait_until(PATIENCE, || client.stats().pool.open_requests <= 1).await);
        client.put(&path("a.b"), &1).await.unwrap();
        cluster.shutdown().await;
    });
}

#[test]
fn plain_threads_with_another_executor_use_one_client() {
    let cluster = block_on(TestCluster::start(2)).unwrap();
    let client = distkv_client::block_on(Client::connect(seeds(&cluster), ClientConfig::new()));
    let client = client.unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_i64 {
            let client = client.clone();
            scope.spawn(move || {
                distkv_client::block_on(async {
                    for i in 0..50_i64 {
                        let at = path("t").push(thread).unwrap().push(i).unwrap();
                        client.put(&at, &i).await.unwrap();
                        assert_eq!(client.get::<i64>(&at).await.unwrap(), Some(i));
                    }
                });
            });
        }
    });
    block_on(cluster.shutdown());
}

#[test]
fn futures_of_the_client_are_send() {
    fn is_send<T: Send>(_: &T) {}
    let cluster = block_on(TestCluster::start(1)).unwrap();
    let client = block_on(Client::connect(seeds(&cluster), ClientConfig::new())).unwrap();
    let (at, options) = (path("a"), PutOptions::default());
    is_send(&client.get::<u64>(&at));
    is_send(&client.get_entry(&at));
    is_send(&client.put_with(&at, &5_u64, &options));
    is_send(&client.delete(&at));
    is_send(&client.delete_tree(&at, DeleteTreeOptions::default()));
    is_send(&client.tree(&at, TreeOptions::default()));
    is_send(&client.conflicts(&at));
    is_send(&client.batch(&Batch::new()));
    is_send(&client.send(&at, &5_u64));
    is_send(&client.monitor(&at));
    is_send(&client.watch(&at, WatchOptions::default()));
    let mut watch = block_on(client.watch(&at, WatchOptions::default())).unwrap();
    is_send(&watch.next());
    is_send(&watch.into_stream());
    is_send(&Client::connect(seeds(&cluster), ClientConfig::new()));
    block_on(cluster.shutdown());
}
