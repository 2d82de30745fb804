//! What is tried with every operation of a client at once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use distkv::client::smart::{Batch, TreeOptions};
use distkv::client::{CallError, Client, Path, PutOptions, ReadMode, WatchEvent, WatchOptions};
use distkv::rt;
use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value as Json, json};

use crate::shown::Failed;

/// More polls than any operation takes.
const POLLS_MAX: usize = 400;

/// Open sockets of this process.
pub(crate) fn sockets() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let is_socket = |link: std::path::PathBuf| link.to_string_lossy().starts_with("socket:");
    open.filter(|file| std::fs::read_link(file.path()).is_ok_and(is_socket)).count()
}

type Operation<'a> =
    (&'static str, Box<dyn Fn() -> BoxFuture<'a, Result<(), CallError>> + Send + Sync + 'a>);

/// Everything that a client does.
fn operations<'a>(client: &'a Client, path: &'a Path) -> Vec<Operation<'a>> {
    vec![
        ("get", Box::new(move || async move { client.get_raw(path).await.map(drop) }.boxed())),
        ("entry", Box::new(move || async move { client.get_entry(path).await.map(drop) }.boxed())),
        (
            "freshest",
            Box::new(move || {
                async move { client.get_entry_with(path, ReadMode::Freshest).await.map(drop) }
                    .boxed()
            }),
        ),
        (
            "put",
            Box::new(move || {
                async move {
                    client.put_with(path, &2, &PutOptions::new().copies(1)).await.map(drop)
                }
                .boxed()
            }),
        ),
        ("delete", Box::new(move || async move { client.delete(path).await.map(drop) }.boxed())),
        (
            "batch",
            Box::new(move || {
                async move {
                    let mut batch = Batch::new();
                    batch.put(path, &1)?.get(path);
                    client.batch(&batch).await.map(drop)
                }
                .boxed()
            }),
        ),
        (
            "tree",
            Box::new(move || {
                async move { client.tree(path, TreeOptions::default()).await.map(drop) }.boxed()
            }),
        ),
        (
            "watch",
            Box::new(move || {
                async move {
                    let options = WatchOptions { fetch: true, ..WatchOptions::default() };
                    let mut watch = client.watch(path, options).await?;
                    while watch.next().await? != WatchEvent::UpToDate {}
                    Ok(())
                }
                .boxed()
            }),
        ),
        (
            "conflicts",
            Box::new(move || async move { client.conflicts(path).await.map(drop) }.boxed()),
        ),
        (
            "shards",
            Box::new(move || {
                async move {
                    client.refresh_shards().await;
                    Ok(())
                }
                .boxed()
            }),
        ),
    ]
}

/// Begins each operation again and again, and gives it up at its first await, at its second, and so on to its end.
pub(crate) async fn cancel_everywhere(client: &Client, path: &Path) -> Result<Json, Failed> {
    let (mut names, mut places) = (Vec::new(), 0);
    for (name, operation) in operations(client, path) {
        for polls in 0..=POLLS_MAX {
            if polls == POLLS_MAX {
                return Err(Failed::Order(format!("{name} never ends")));
            }
            match give_up_after(polls, operation()).await {
                Some(result) => {
                    result?;
                    break;
                }
                None => places += 1,
            }
        }
        // And after a while, wherever it is then.
        for _ in 0..20 {
            let patience = Duration::from_micros(rt::random_u64() % 2_000);
            let _ = rt::timeout(patience, operation()).await;
        }
        names.push(name);
    }
    Ok(json!({ "operations": names.len(), "is_many": places >= names.len() }))
}

/// Polls a future at most so many times.
async fn give_up_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
