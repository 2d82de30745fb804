//! The end of a client, and of calls that are given up: nothing is left behind.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use async_channel::Receiver;
use distkv::client::splitter::Splitter;
use distkv::client::*;
use distkv::rt::{self, TcpListener, TcpStream};
use distkv::testing::{PATIENCE, TestCluster, block_on, wait_until};
use futures::{AsyncReadExt, AsyncWriteExt};

use super::ops::{connect, fill, path};

/// Open sockets of this process.
fn sockets() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let target = std::fs::read_link(entry.ok()?.path()).ok()?;
        target.to_str()?.starts_with("socket:").then_some(())
    });
    open.count()
}

/// A node as old as the original, which answers `get_value` only when it is told to.
async fn slow_node(listener: TcpListener, gate: Receiver<()>) {
    while let Ok((stream, _)) = listener.accept().await {
        rt::spawn(serve_slowly(stream, gate.clone()));
    }
}

async fn serve_slowly(mut stream: TcpStream, gate: Receiver<()>) {
    let mut fields = Fields::new();
    fields.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "slow");
    fields.u64("tock", 2).u64("qlen", 0);
    stream.write_all(&fields.encode()).await.unwrap();
    let (mut splitter, mut chunk) = (Splitter::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        splitter.push(&chunk[..count]);
        while let Some(value) = splitter.next_value().unwrap() {
            let request = Message::new(value).unwrap();
            let mut reply = Fields::new();
            reply.u64("seq", request.u64("seq").unwrap());
            if request.str("action") == Some("get_value") {
                let _ = gate.recv().await;
                reply.u64("value", 5).u64("tock", 3);
            } else {
                reply.str("error", "No such action");
            }
            if stream.write_all(&reply.encode()).await.is_err() {
                return;
            }
        }
    }
}

/// A client with one read that is open at such a node, and what opens the gate.
async fn with_open_call() -> (Client, rt::Task<Result<Option<u8>, CallError>>, impl FnOnce()) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let seed: HostPort = listener.local_addr().unwrap().into();
    let (open, gate) = async_channel::bounded::<()>(1);
    rt::spawn(slow_node(listener, gate));
    let client = Client::connect([seed], ClientConfig::new()).await.unwrap();
    let own = client.clone();
    let call = rt::spawn(async move { own.get::<u8>(&path("a")).await });
    let is_open = || client.stats().pool.open_requests == 1 && client.stats().retry.calls == 1;
    assert!(wait_until(PATIENCE, is_open).await, "{:?}", client.stats());
    (client, call, move || drop(open))
}

#[test]
fn open_calls_may_end_when_the_client_is_closed() {
    block_on(async {
        let (client, call, open_gate) = with_open_call().await;
        let closing = client.close().grace(PATIENCE);
        let closing = rt::spawn(closing.into_future());
        let error = client.get::<u8>(&path("a")).await.unwrap_err();
        assert_eq!((error.code(), error.attempts()), (Some("closed"), 0));
        assert!(client.is_closed() && client.stats().tasks > 0);
        open_gate();
        assert_eq!(call.await.unwrap(), Some(5));
        closing.await;
        assert_eq!(client.stats().tasks, 0);
        // Again is no harm.
        client.close().await;
    });
}

#[test]
fn calls_that_do_not_end_are_closed() {
    block_on(async {
        let (client, call, _open_gate) = with_open_call().await;
        client.close().grace(Duration::from_millis(20)).await;
        assert_eq!(client.stats().tasks, 0);
        assert_eq!(call.await.unwrap_err().code(), Some("closed"));
    });
}

#[test]
fn a_close_that_nobody_waits_for_ends_everything_at_once() {
    block_on(async {
        let (client, call, _open_gate) = with_open_call().await;
        client.close();
        assert_eq!(call.await.unwrap_err().code(), Some("closed"));
        assert!(wait_until(PATIENCE, || client.stats().tasks == 0).await);
        let (client, call, _open_gate) = with_open_call().await;
        // Who waits may give up.
        let waiting = client.close().grace(PATIENCE);
        assert!(rt::timeout(Duration::ZERO, waiting.into_future()).await.is_none());
        assert_eq!(call.await.unwrap_err().code(), Some("closed"));
        assert!(wait_until(PATIENCE, || client.stats().tasks == 0).await);
    });
}

/// A call that pauses between two tries, for longer than the test.
#[test]
fn calls_that_pause_are_closed_at_once() {
    block_on(async {
        let mut cluster = TestCluster::start(1).await.unwrap();
        let pause = 100 * PATIENCE;
        let retry = RetryPolicy {
            initial_delay: pause,
            delay_max: pause,
            total_deadline: 10 * pause,
            ..RetryPolicy::default()
        };
        let client = connect(&cluster, ClientConfig::new().retry(retry)).await;
        client.put(&path("a"), &1).await.unwrap();
        drop(cluster.take(0));
        let (one, other) = (client.clone(), client.clone());
        let calls = [
            rt::spawn(async move { one.put(&path("a"), &2).await.map(drop) }),
            rt::spawn(async move {
                let found = other.get_with::<u8>(&path("a"), ReadMode::Freshest).await;
                found.map(drop)
            }),
        ];
        let failed = || {
            let retry = client.stats().retry;
            retry.unavailable + retry.fate_unknown
        };
        assert!(wait_until(PATIENCE, || failed() >= 2).await, "{:?}", client.stats().retry);
        client.close().grace(Duration::ZERO).await;
        for call in calls {
            let ended = rt::timeout(PATIENCE, call).await.expect("it is still waited for");
            let error = ended.unwrap_err();
            assert_eq!((error.code(), error.attempts()), (Some("closed"), 1), "{error}");
        }
    });
}

#[test]
fn what_the_client_asks_by_itself_does_not_hold_up_its_end() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        // Nothing that it asks is ever answered in time.
        let retry = RetryPolicy {
            try_deadline: Duration::from_nanos(1),
            total_deadline: 100 * PATIENCE,
            ..RetryPolicy::default()
        };
        let client = connect(&cluster, ClientConfig::new().retry(retry)).await;
        assert!(wait_until(PATIENCE, || client.stats().shards.fetches == 1).await);
        let closing = client.close().grace(100 * PATIENCE);
        assert!(rt::timeout(PATIENCE, closing.into_future()).await.is_some());
        assert_eq!(client.stats().tasks, 0);
        assert_eq!(client.list_shards().await.unwrap_err().code(), Some("closed"));
        cluster.shutdown().await;
    });
}

#[test]
fn watches_end_at_once_and_trees_may_come_to_their_end() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let before = sockets();
        let client = connect(&cluster, ClientConfig::new()).await;
        for i in 0..300 {
            client.put(&path("t").push(i).unwrap(), &i).await.unwrap();
        }
        let mut watch = client.watch(&path("t"), WatchOptions::default()).await.unwrap();
        let mut monitor = client.monitor(&path("topic")).await.unwrap();
        let mut tree = client.tree_stream(&path("t"), TreeOptions::default()).await.unwrap();
        let closing = rt::spawn(client.close().grace(PATIENCE).into_future());
        loop {
            match watch.next().await {
                Ok(WatchEvent::UpToDate | WatchEvent::Change(_)) => {}
                Ok(event) => panic!("{event:?}"),
                Err(error) => {
                    assert_eq!(error.code(), Some("closed"), "{error}");
                    break;
                }
            }
        }
        assert_eq!(monitor.next().await.unwrap_err().code(), Some("closed"));
        let mut count = 0;
        while tree.next().await.unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 300);
        drop(tree);
        closing.await;
        assert_eq!(client.stats().tasks, 0);
        assert!(wait_until(PATIENCE, || sockets() <= before).await, "{} > {before}", sockets());
        let refused = client.watch(&path("t"), WatchOptions::default()).await;
        assert_eq!(refused.unwrap_err().code(), Some("closed"));
        cluster.shutdown().await;
    });
}

#[test]
fn streams_that_have_ended_do_not_hold_up_the_end_while_somebody_has_them() {
    block_on(async {
        let mut cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        fill(&client).await;
        let mut tree = client.tree_stream(&path("t"), TreeOptions::default()).await.unwrap();
        while tree.next().await.unwrap().is_some() {}
        let none = client.tree_stream(&path("none"), TreeOptions::default()).await.unwrap();
        let mut conflicts = client.conflict_stream(&Path::root()).unwrap();
        assert_eq!(conflicts.next().await, Ok(None));
        // So is it with those that have broken off.
        let mut broken = client.tree_stream(&path("t"), TreeOptions::default()).await.unwrap();
        let mut unlisted = client.conflict_stream(&Path::root()).unwrap();
        drop(cluster.take(0));
        while broken.next().await.is_ok() {}
        unlisted.next().await.unwrap_err();
        let closing = client.close().grace(100 * PATIENCE);
        assert!(rt::timeout(PATIENCE, closing.into_future()).await.is_some());
        drop((tree, none, conflicts, broken, unlisted));
    });
}

/// How often an operation is begun until it could be cancelled.
const ROUNDS: usize = 100;

/// Drops what `begin` makes at its first await, then at its second, and so on, until it ends by itself. Returns at
/// how many awaits it was dropped. Where another thread was faster, the answer is there at the first look and nothing
/// is dropped: then it is tried again, [`ROUNDS`] times at most.
async fn cancel_everywhere<T, Fut: Future<Output = T>>(mut begin: impl FnMut() -> Fut) -> usize {
    for _ in 0..ROUNDS {
        let dropped = cancel_until_it_ends(&mut begin).await;
        if dropped > 0 {
            return dropped;
        }
    }
    0
}

/// One round of [`cancel_everywhere`].
async fn cancel_until_it_ends<T, Fut: Future<Output = T>>(
    begin: &mut impl FnMut() -> Fut,
) -> usize {
    for waits in 0.. {
        let mut future = Box::pin(begin());
        let mut waited = 0;
        let ended = poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if waited == waits => Poll::Ready(false),
            Poll::Pending => {
                waited += 1;
                Poll::Pending
            }
        });
        if ended.await {
            return waits;
        }
    }
    unreachable!("it ends by itself");
}

#[test]
fn every_operation_cancelled_at_every_await_leaves_nothing() {
    block_on(async {
        let cluster = TestCluster::start(2).await.unwrap();
        cluster.settled().await.unwrap();
        let before = sockets();
        let connect_to = || Client::connect(cluster.seeds(), ClientConfig::new());
        assert!(cancel_everywhere(connect_to).await > 0);
        assert!(wait_until(PATIENCE, || sockets() <= before).await, "{} > {before}", sockets());

        let client = connect(&cluster, ClientConfig::new()).await;
        let (a, top) = (path("a"), Path::root());
        client.put(&a, &1).await.unwrap();
        // The view of the cluster is a stream, and the table of shards may be asked for.
        client.refresh_shards().await;
        let is_quiet = || client.stats().pool.open_requests == 1;
        assert!(wait_until(PATIENCE, is_quiet).await, "{:?}", client.stats().pool);
        let copies = PutOptions::new().copies(1);
        let mut batch = Batch::new();
        batch.get(&a).put(&a, &3).unwrap();
        for action in 0..16 {
            let dropped = match action {
                0 => cancel_everywhere(|| client.get::<u8>(&a)).await,
                1 => cancel_everywhere(|| client.get_with::<u8>(&a, ReadMode::Any)).await,
                2 => cancel_everywhere(|| client.get_with::<u8>(&a, ReadMode::Freshest)).await,
                3 => cancel_everywhere(|| client.put(&a, &2)).await,
                4 => cancel_everywhere(|| client.put_with(&a, &2, &copies)).await,
                5 => cancel_everywhere(|| client.delete(&a)).await,
                6 => cancel_everywhere(|| client.batch(&batch)).await,
                7 => cancel_everywhere(|| client.tree(&top, TreeOptions::default())).await,
                8 => cancel_everywhere(|| client.children(&top)).await,
                9 => cancel_everywhere(|| client.conflicts(&top)).await,
                10 => cancel_everywhere(|| client.send(&a, &1)).await,
                11 => cancel_everywhere(|| client.list_shards()).await,
                12 => cancel_everywhere(|| client.prefer_shard(1, None)).await,
                13 => {
                    let all = || async {
                        let mut tree = client.tree_stream(&top, TreeOptions::default()).await?;
                        while tree.next().await?.is_some() {}
                        let mut conflicts = client.conflict_stream(&top)?;
                        while conflicts.next().await?.is_some() {}
                        Ok::<(), CallError>(())
                    };
                    cancel_everywhere(all).await
                }
                14 => {
                    let begin = || async {
                        let options = WatchOptions { fetch: true, ..WatchOptions::default() };
                        let mut watch = client.watch(&top, options).await?;
                        while watch.next().await? != WatchEvent::UpToDate {}
                        Ok::<(), CallError>(())
                    };
                    cancel_everywhere(begin).await
                }
                _ => {
                    let begin = || async {
                        let mut monitor = client.monitor(&a).await?;
                        client.send(&a, &1).await?;
                        monitor.next().await
                    };
                    cancel_everywhere(begin).await
                }
            };
            assert!(dropped > 0, "{action}");
            assert!(wait_until(PATIENCE, is_quiet).await, "{action}: {:?}", client.stats().pool);
        }
        client.put(&a, &7).await.unwrap();
        assert_eq!(client.get::<u8>(&a).await.unwrap(), Some(7));
        let connections = client.stats().pool.connections;
        assert!(connections <= 4 && client.stats().pool.lost == 0, "{:?}", client.stats().pool);
        client.close().await;
        assert_eq!(client.stats().tasks, 0);
        assert!(wait_until(PATIENCE, || sockets() <= before).await, "{} > {before}", sockets());
        cluster.shutdown().await;
    });
}
