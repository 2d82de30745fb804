//! Trees that stream, children, conflicts as they come, shards, write ids of texts, numbers of tries.

use std::collections::BTreeSet;
use std::time::Duration;

use distkv::client::pool::PoolConfig;
use distkv::client::retry::RetryPolicy;
use distkv::client::splitter::Splitter;
use distkv::client::*;
use distkv::rt::{self, TcpListener, TcpStream};
use distkv::testing::{PATIENCE, TestCluster, block_on, free_addrs};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};

use super::ops::{connect, fill, path};
use super::topology::scripted::Scripted;

#[test]
fn a_tree_comes_entry_by_entry_whatever_its_size() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        fill(&client).await;
        let mut tree = client.tree_stream(&path("t"), TreeOptions::default()).await.unwrap();
        assert_eq!(tree.node(), "n0");
        let mut count = 0;
        loop {
            // Giving up a wait loses nothing.
            let given_up = distkv::rt::timeout(Duration::ZERO, tree.next()).await;
            let next = match given_up {
                Some(next) => next,
                None => tree.next().await,
            };
            let Some(found) = next.unwrap() else { break };
            assert_eq!(found.path, path("t").push(count).unwrap());
            assert_eq!(found.entry.get::<i64>().unwrap(), count);
            count += 1;
        }
        assert_eq!(count, 1000);
        assert_eq!(tree.next().await.unwrap(), None);
        // What is not read is no load, and what is dropped is stopped.
        let tree = client.tree_stream(&path("t"), TreeOptions::default()).await.unwrap();
        let mut tree = std::pin::pin!(tree.into_stream().take(3));
        while let Some(found) = tree.next().await {
            found.unwrap();
        }
        let options = TreeOptions { max_depth: Some(0), ..TreeOptions::default() };
        let mut none = client.tree_stream(&path("t"), options).await.unwrap();
        assert_eq!(none.next().await.unwrap(), None);
        cluster.shutdown().await;
    });
}

#[test]
fn a_tree_whose_node_is_lost_says_so() {
    block_on(async {
        let mut cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        fill(&client).await;
        let mut tree = client.tree_stream(&path("t"), TreeOptions::default()).await.unwrap();
        tree.next().await.unwrap().unwrap();
        drop(cluster.take(0));
        let error = loop {
            match tree.next().await {
                Ok(found) => assert!(found.is_some(), "the tree has ended as if it were whole"),
                Err(error) => break error,
            }
        };
        assert_eq!((error.code(), error.fate()), (Some("unavailable"), Fate::NotDone));
        assert_eq!(error.node(), Some("n0"));
        assert!(error.to_string().starts_with("it broke off before its end: "), "{error}");
        // It has not come to its end, however often it is asked.
        assert_eq!(tree.next().await.unwrap_err(), error);
        let rest: Vec<_> = tree.into_stream().collect().await;
        assert_eq!(rest, [Err(error)]);
    });
}

/// What a node as old as the original says first.
async fn greet(stream: &mut TcpStream) {
    let mut greeting = Fields::new();
    greeting.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "slow");
    stream.write_all(&greeting.u64("tock", 2).encode()).await.unwrap();
}

/// A node as old as the original, that begins to delete a tree: from then on it is silent, or goes on answering, and says
/// how many it has deleted once it was asked so often whether it is alive.
async fn node_that_deletes(listener: TcpListener, answers: Option<usize>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        greet(&mut stream).await;
        rt::spawn(delete_slowly(stream, answers));
    }
}

async fn delete_slowly(mut stream: TcpStream, answers: Option<usize>) {
    let (mut splitter, mut chunk) = (Splitter::new(), [0; 4096]);
    let (mut deleting, mut asked) = (None, 0);
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        splitter.push(&chunk[..count]);
        while let Some(value) = splitter.next_value().unwrap() {
            let request = Message::new(value).unwrap();
            let seq = request.u64("seq").unwrap();
            match request.str("action") {
                // An acknowledgement, or what the client wants of the connection.
                None => {}
                Some("delete_tree") => deleting = Some(seq),
                _ if deleting.is_some() && answers.is_none() => {}
                Some(action) => {
                    asked += usize::from(action == "auth_info");
                    let mut error = Fields::new();
                    error.u64("seq", seq).str("error", "no").str("code", "unknown_action");
                    stream.write_all(&error.encode()).await.unwrap();
                }
            }
            if let Some(seq) = deleting.take_if(|_| Some(asked) == answers) {
                let reply = Fields::new().u64("seq", seq).u64("changed", 9).encode();
                stream.write_all(&reply).await.unwrap();
            }
        }
    }
}

#[test]
fn a_silent_node_is_given_up_by_who_deletes_a_tree_and_a_slow_one_is_not() {
    block_on(async {
        // Without the question whether it is alive, the call would wait for as long as it may.
        let retry = RetryPolicy {
            try_deadline: Duration::from_secs(3),
            total_deadline: 10 * PATIENCE,
            ..RetryPolicy::default()
        };
        for answers in [None, Some(3)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let seed: HostPort = listener.local_addr().unwrap().into();
            let script = rt::spawn(node_that_deletes(listener, answers));
            // No node is asked whether it is alive by anything else.
            let config = ClientConfig::new()
                .retry(retry)
                .pool(PoolConfig { probe_after: 20 * PATIENCE, ..PoolConfig::default() });
            let client = Client::connect([seed], config).await.unwrap();
            let at = path("t");
            let deleting = client.delete_tree(&at, DeleteTreeOptions::default());
            let done = rt::timeout(2 * PATIENCE, deleting).await.expect("it is still waited for");
            match answers {
                Some(_) => assert_eq!(done.unwrap(), 9),
                None => {
                    let error = done.unwrap_err();
                    assert_eq!((error.fate(), error.attempts()), (Fate::Unknown, 1), "{error}");
                    assert!(error.to_string().contains("it sent nothing for 3s"), "{error}");
                }
            }
            script.cancel().await;
        }
    });
}

#[test]
fn a_tree_that_is_deleted_in_part_is_not_told_as_not_done() {
    block_on(async {
        let node = Scripted::start("s1");
        node.change(|state| state.told = vec![("s1".into(), node.address.clone())]);
        let client = Client::connect([node.seed()], ClientConfig::new()).await.unwrap();
        let at = path("t");
        for again_if_unknown in [false, true] {
            for (code, is_made, fate) in [
                ("denied", true, Fate::Unknown),
                ("memory_full", true, Fate::Unknown),
                ("of_a_later_version", true, Fate::Unknown),
                ("denied", false, Fate::NotDone),
            ] {
                node.change(|state| (state.refuses, state.is_made) = (vec![code], is_made));
                let options = DeleteTreeOptions { again_if_unknown };
                let error = client.delete_tree(&at, options).await.unwrap_err();
                assert!(matches!(error, CallError::Refused { .. }), "{error:?}");
                let told = (error.code(), error.fate(), error.attempts());
                assert_eq!(told, (Some(code), fate, 1), "{error}");
                assert_eq!(error.to_string().contains("done in part"), is_made, "{error}");
            }
        }
        // What is done in part is not done further by whoever has not said that it may be.
        for code in ["too_many", "too_slow", "not_ready"] {
            node.change(|state| (state.refuses, state.is_made) = (vec![code], true));
            let error = client.delete_tree(&at, DeleteTreeOptions::default()).await.unwrap_err();
            assert!(matches!(error, CallError::FateUnknown { .. }), "{error:?}");
            assert_eq!((error.fate(), error.attempts()), (Fate::Unknown, 1), "{error}");
            node.change(|state| state.refuses = vec![code]);
            let again = DeleteTreeOptions { again_if_unknown: true };
            client.delete_tree(&at, again).await.unwrap();
        }
        client.close().await;
    });
}

/// A node as old as the original, that sends a tree of so many entries with a pause before each, and then is silent, or
/// says that it is whole.
async fn node_with_slow_tree(listener: TcpListener, count: u64, pause: Duration, is_whole: bool) {
    while let Ok((mut stream, _)) = listener.accept().await {
        greet(&mut stream).await;
        rt::spawn(send_tree_slowly(stream, count, pause, is_whole));
    }
}

async fn send_tree_slowly(mut stream: TcpStream, count: u64, pause: Duration, is_whole: bool) {
    let (mut splitter, mut chunk) = (Splitter::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        splitter.push(&chunk[..read]);
        while let Some(value) = splitter.next_value().unwrap() {
            let request = Message::new(value).unwrap();
            let seq = request.u64("seq").unwrap();
            let mut reply = Fields::new();
            reply.u64("seq", seq);
            if request.str("action") != Some("get_tree") {
                if request.str("action").is_some() {
                    reply.str("error", "no").str("code", "unknown_action");
                    stream.write_all(&reply.encode()).await.unwrap();
                }
                continue;
            }
            stream.write_all(&reply.str("state", "start").encode()).await.unwrap();
            for number in 0..count {
                rt::sleep(pause).await;
                let mut entry = Fields::new();
                entry.u64("seq", seq).raw("path", &[0x91, 0xcd, (number >> 8) as u8, number as u8]);
                entry.u64("depth", 0).u64("value", number).u64("tock", 1).u64("wseq", number + 2);
                // The client may have given up.
                if stream.write_all(&entry.encode()).await.is_err() {
                    return;
                }
            }
            if is_whole {
                let end = Fields::new().u64("seq", seq).str("state", "end").encode();
                stream.write_all(&end).await.unwrap();
            }
        }
    }
}

#[test]
fn a_tree_that_keeps_coming_may_take_longer_than_a_call_and_one_that_stops_may_not() {
    block_on(async {
        let retry = RetryPolicy {
            try_deadline: Duration::from_secs(4),
            total_deadline: Duration::from_secs(2),
            ..RetryPolicy::default()
        };
        for is_whole in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let seed: HostPort = listener.local_addr().unwrap().into();
            let pause = Duration::from_millis(50);
            let script = rt::spawn(node_with_slow_tree(listener, 60, pause, is_whole));
            let client = Client::connect([seed], ClientConfig::new().retry(retry)).await.unwrap();
            let at = path("t");
            let reading = client.tree(&at, TreeOptions::default());
            let tree = rt::timeout(PATIENCE, reading).await.expect("it is still waited for");
            match is_whole {
                true => assert_eq!(tree.unwrap().len(), 60),
                false => {
                    let error = tree.unwrap_err();
                    assert_eq!((error.code(), error.attempts()), (Some("unavailable"), 1));
                    assert!(error.to_string().contains("nothing came for 4s"), "{error}");
                }
            }
            script.cancel().await;
        }
    });
}

#[test]
fn children_are_what_is_directly_below_and_has_a_value() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        for text in ["t.a", "t:5", "t.b.c", "t.a.d", "t.x:.y"] {
            client.put(&path(text), &1).await.unwrap();
        }
        let told: BTreeSet<_> = client.children(&path("t")).await.unwrap().into_iter().collect();
        assert_eq!(told, BTreeSet::from([path("t.a"), path("t:5"), path("t.x:.y")]));
        assert_eq!(client.children(&path("nothing")).await.unwrap(), []);
        let root = client.children(&Path::root()).await.unwrap();
        assert_eq!(root, [], "nothing at the top has a value of its own");
        cluster.shutdown().await;
    });
}

#[test]
fn a_text_names_one_write() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let order = PutOptions::new().write_id("order 17");
        let first = client.put_with(&path("a"), &1, &order).await.unwrap();
        let second = client.put_with(&path("a"), &1, &order).await.unwrap();
        assert_eq!((first.repeated, second.repeated), (Repeated::No, Repeated::Yes));
        assert_eq!(second.chain.unwrap().newest, first.chain.unwrap().newest);
        let error = client.put_with(&path("a"), &2, &order).await.unwrap_err();
        assert_eq!(error.code(), Some("wid_reused"));
        cluster.shutdown().await;
    });
}

#[test]
fn a_call_makes_as_many_tries_as_it_may_and_takes_as_long() {
    block_on(async {
        let dead: HostPort = free_addrs::<1>()[0].into();
        let cluster = TestCluster::start(1).await.unwrap();
        let retry = RetryPolicy { attempts_max: Some(3), ..RetryPolicy::default() };
        let config = ClientConfig::new().retry(retry);
        let seeds = [cluster.seeds()[0].clone(), dead];
        let client = Client::connect(seeds, config).await.unwrap();
        client.put(&path("a"), &1).await.unwrap();
        let options = GetOptions::new().read_mode(ReadMode::Any).deadline(Duration::from_secs(5));
        assert_eq!(client.get_with(&path("a"), options).await.unwrap(), Some(1));
        assert_eq!(client.get_with(&path("a"), ReadMode::Freshest).await.unwrap(), Some(1));
        cluster.shutdown().await;
        let error = client.get::<u8>(&path("a")).await.unwrap_err();
        assert_eq!((error.attempts(), error.code()), (3, Some("unavailable")), "{error}");
        assert_eq!(client.stats().retry.deadlines, 1);
        // A deadline of its own counts, too: without time nothing is tried.
        let hasty = GetOptions::new().deadline(Duration::ZERO);
        let error = client.get_with::<u8>(&path("a"), hasty).await.unwrap_err();
        assert_eq!((error.attempts(), error.code()), (0, Some("unavailable")), "{error}");
    });
}

#[test]
fn shards_are_listed_and_moved() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        let (at, shard) = (path("hello.world"), shard_of(&path("hello.world")));
        assert_eq!(client.list_shards().await.unwrap().len(), 1);
        let before = client.preferred(&at).unwrap();
        let other = if before == "n0" { "n1" } else { "n0" };
        client.prefer_shard(shard, Some(other)).await.unwrap();
        assert_eq!(client.preferred(&at).as_deref(), Some(other));
        assert_eq!(client.put(&at, &1).await.unwrap().node, other);
        let rows = client.list_shards().await.unwrap();
        let place = place_of(&at);
        let own = rows.iter().find(|row| row.start <= place && place <= row.end).unwrap();
        assert_eq!((own.first, own.last, own.prefer.as_deref()), (shard, shard, Some(other)));
        client.prefer_shard(shard, None).await.unwrap();
        assert_eq!(client.preferred(&at), Some(before));
        let error = client.prefer_shard(SHARD_COUNT, None).await.unwrap_err();
        assert_eq!(error.code(), Some("usage"));
        cluster.shutdown().await;
    });
}
