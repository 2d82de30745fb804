//! Entries by number, and what nodes know of them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use distkv::client::message::{array_items, as_str, as_u64, map_items};
use distkv::client::splitter::Splitter;
use distkv::client::{Chain, ClientError, Connection, Fields, Message, StreamEvent};
use distkv::model::path::Path;
use distkv::model::value::{write_array_len, write_str, write_u64};
use distkv::rt;
use futures::stream::{self, StreamExt, TryStreamExt};

/// Requests that wait for their replies at once, while loading.
const IN_FLIGHT: usize = 512;
/// Entries below one path.
const GROUP: u64 = 1000;
/// The longest chain.
const CHAIN: u64 = 16;

/// Where entry `number` is: `load.g12.k345`.
pub fn path(top: &str, number: u64) -> Path {
    let (group, key) = (format!("g{}", number / GROUP), format!("k{}", number % GROUP));
    let path = Path::root().push(top).and_then(|p| p.push(group.as_str()));
    path.and_then(|p| p.push(key.as_str())).unwrap_or_default()
}

/// A value of about `bytes` bytes, another one for each number and round.
pub fn value(number: u64, round: u64, bytes: usize) -> Vec<u8> {
    let mut text = format!("round {round} of entry {number}: ");
    while text.len() < bytes {
        text.push(char::from(b'a' + (text.len() % 26) as u8));
    }
    let mut value = Vec::new();
    write_str(&text, &mut value);
    value
}

/// Sets entries; returns how many bytes they have, each with its path, value, chain and tock.
pub async fn set_all(
    node: &Connection,
    top: &str,
    numbers: impl Iterator<Item = u64>,
    round: u64,
    bytes: usize,
) -> Result<u64, ClientError> {
    let set = |number| async move {
        let (path, value) = (path(top, number), value(number, round, bytes));
        let mut fields = Fields::at(&path);
        fields.raw("value", &value).u64("nchain", CHAIN);
        let reply = node.request("set_value", &fields).await?;
        Ok::<u64, ClientError>((path.as_bytes().len() + value.len()) as u64 + history_bytes(&reply))
    };
    stream::iter(numbers)
        .map(set)
        .buffer_unordered(IN_FLIGHT)
        .try_fold(0, |sum, bytes| async move { Ok(sum + bytes) })
        .await
}

/// How many bytes the chain and the tock of a reply have, written as briefly as MessagePack can.
fn history_bytes(reply: &Message) -> u64 {
    let mut brief = Vec::new();
    if let Some(Ok(Some(chain))) = reply.get("chain").map(Chain::decode) {
        write_array_len(chain.older.len() + 1, &mut brief);
        for event in chain.events() {
            write_str(&event.node, &mut brief);
            write_u64(event.tick.unwrap_or(0), &mut brief);
        }
    }
    write_u64(reply.u64("tock").unwrap_or(0), &mut brief);
    brief.len() as u64
}

/// Deletes entries.
pub async fn delete_all(
    node: &Connection,
    top: &str,
    numbers: impl Iterator<Item = u64>,
) -> Result<(), ClientError> {
    let delete = |number| async move {
        node.request("delete_value", &Fields::at(&path(top, number))).await?;
        Ok::<(), ClientError>(())
    };
    stream::iter(numbers).map(delete).buffer_unordered(IN_FLIGHT).try_collect().await
}

/// The highest tick of each node.
pub type Heads = BTreeMap<String, u64>;

/// The highest tick that a node knows of, per node.
pub async fn heads(node: &Connection) -> Result<Heads, ClientError> {
    let mut fields = Fields::new();
    fields.bool("nodes", true);
    let reply = node.request("get_state", &fields).await?;
    let nodes = map_items(reply.get("nodes").unwrap_or_default());
    let heads = nodes.filter_map(|(name, tick)| Some((as_str(name)?.to_owned(), as_u64(tick)?)));
    Ok(heads.collect())
}

/// What all of these nodes have made, put together.
pub async fn all_heads(nodes: &[&Connection]) -> Result<Heads, ClientError> {
    let mut all = Heads::new();
    for node in nodes {
        for (name, tick) in heads(node).await? {
            let known = all.entry(name).or_default();
            *known = tick.max(*known);
        }
    }
    Ok(all)
}

/// Whether a node has everything up to those ticks.
pub async fn has_all(node: &Connection, heads: &Heads) -> Result<bool, ClientError> {
    let mut fields = Fields::new();
    fields.bool("nodes", true).bool("missing", true);
    let reply = node.request("get_state", &fields).await?;
    let items = |part: &str| -> BTreeMap<String, &[u8]> {
        let items = map_items(reply.get(part).unwrap_or_default());
        items.filter_map(|(name, item)| Some((as_str(name)?.to_owned(), item))).collect()
    };
    let (known, missing) = (items("nodes"), items("missing"));
    Ok(heads.iter().all(|(name, head)| {
        let heard = known.get(name).and_then(|tick| as_u64(tick)).unwrap_or(0);
        let lacks = missing.get(name).is_some_and(|ranges| {
            array_items(ranges).any(|range| {
                let first = as_u64(range).or_else(|| array_items(range).next().and_then(as_u64));
                first.is_none_or(|first| first <= *head)
            })
        });
        heard >= *head && !lacks
    }))
}

/// Waits until all of these nodes have all that any of them has made by now.
pub async fn wait_equal(nodes: &[&Connection], patience: Duration) -> Result<(), String> {
    let heads = all_heads(nodes).await.map_err(|e| e.to_string())?;
    wait_for_heads(nodes, &heads, patience).await
}

/// Waits until all of these nodes have everything up to those ticks.
pub async fn wait_for_heads(
    nodes: &[&Connection],
    heads: &Heads,
    patience: Duration,
) -> Result<(), String> {
    let deadline = rt::now() + patience.as_millis() as u64;
    for node in nodes {
        while !has_all(node, heads).await.map_err(|e| e.to_string())? {
            if rt::now() > deadline {
                return Err(format!(
                    "{} has not got everything after {patience:?}",
                    node.address()
                ));
            }
            rt::sleep(Duration::from_millis(3)).await;
        }
    }
    Ok(())
}

/// A number of `status`.
pub async fn status(node: &Connection, key: &str) -> Result<u64, String> {
    let reply = node.request("status", &Fields::new()).await.map_err(|e| e.to_string())?;
    reply.u64(key).ok_or_else(|| format!("the node's status has no {key}"))
}

/// All entries of a node as one number, with paths, values, chains and tocks; and how many.
pub async fn fingerprint(node: &Connection) -> Result<(u64, u64), ClientError> {
    let mut fields = Fields::at(&Path::root());
    fields.u64("nchain", CHAIN);
    let mut tree = node.stream("get_tree", &fields).await?;
    let (mut sum, mut count) = (0_u64, 0);
    while let Some(event) = tree.next().await? {
        let StreamEvent::Item { path, message } = event else { continue };
        let mut item = path.map(|p| p.as_bytes().to_vec()).unwrap_or_default();
        for key in ["value", "chain", "tock"] {
            item.extend_from_slice(message.get(key).unwrap_or_default());
        }
        sum = sum.wrapping_add(xxhash_rust::xxh64::xxh64(&item, 0));
        count += 1;
    }
    Ok((sum, count))
}

/// When a write was sent, and how long it took, in microseconds.
pub type Latency = (u64, u64);

/// A thread that writes at a steady pace, one write at a time, and notes how long each takes.
pub struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<std::io::Result<Vec<Latency>>>,
}

impl Writer {
    /// Starts one that writes so often to a node, to paths of its own.
    pub fn start(node: SocketAddr, top: &str, per_second: u64, bytes: usize) -> Writer {
        Self::start_over(node, top, GROUP, per_second, bytes)
    }

    /// The same, to so many paths, all over them.
    pub fn start_over(
        node: SocketAddr,
        top: &str,
        paths: u64,
        per_second: u64,
        bytes: usize,
    ) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let (top, told) = (top.to_owned(), Arc::clone(&stop));
        let pause = Duration::from_micros(1_000_000 / per_second.max(1));
        let thread = thread::spawn(move || write_steadily(node, &top, paths, pause, bytes, &told));
        Writer { stop, thread }
    }

    /// Ends it.
    pub fn stop(self) -> Result<Vec<Latency>, String> {
        self.stop.store(true, Ordering::Relaxed);
        let latencies = self.thread.join().map_err(|_| String::from("a writer has failed"))?;
        latencies.map_err(|e| format!("a writer has failed: {e}"))
    }
}

fn write_steadily(
    node: SocketAddr,
    top: &str,
    paths: u64,
    pause: Duration,
    bytes: usize,
    stop: &AtomicBool,
) -> std::io::Result<Vec<Latency>> {
    let mut stream = TcpStream::connect(node)?;
    stream.set_nodelay(true)?;
    let (mut splitter, mut latencies) = (Splitter::new(), Vec::new());
    let mut chunk = vec![0; 4096];
    take_message(&mut stream, &mut splitter, &mut chunk)?; // the greeting
    let mut next_us = rt::now_us();
    for number in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // An odd factor: each path has its turn.
        let at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % paths;
        let mut fields = Fields::at(&path(top, at));
        fields.raw("value", &value(number, 0, bytes));
        let request = fields.encode_request(number + 1, "set_value");
        let sent = rt::now_us();
        stream.write_all(&request)?;
        take_message(&mut stream, &mut splitter, &mut chunk)?;
        latencies.push((sent, rt::now_us().saturating_sub(sent)));
        next_us = (next_us + pause.as_micros() as u64).max(sent);
        thread::sleep(Duration::from_micros(next_us.saturating_sub(rt::now_us())));
    }
    Ok(latencies)
}

fn take_message(
    stream: &mut TcpStream,
    splitter: &mut Splitter,
    chunk: &mut [u8],
) -> std::io::Result<()> {
    loop {
        let invalid = |_| std::io::Error::from(std::io::ErrorKind::InvalidData);
        if splitter.next_value().map_err(invalid)?.is_some() {
            return Ok(());
        }
        let count = stream.read(chunk)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        splitter.push(chunk.get(..count).unwrap_or_default());
    }
}
