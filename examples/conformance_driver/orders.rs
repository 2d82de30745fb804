//! What the runner may order, and how the client does it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distkv::client::chain::Chain;
use distkv::client::smart::{Batch, GetOptions, TreeOptions};
use distkv::client::topology::TopologyListener;
use distkv::client::{
    CallError, Client, Path, PutOptions, Router, Watch, WatchEvent, WatchOptions,
};
use distkv::model::path::Element;
use distkv::model::value::Value;
use distkv::rt;
use futures::future::join_all;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use crate::settings::{config, seconds};
use crate::shown::{self, Failed};
use crate::storm::Storm;
use crate::trials;

/// The clients of one scenario, by their names.
#[derive(Default)]
pub(crate) struct Driver {
    clients: HashMap<String, Client>,
    /// Those of this scenario that were closed.
    closed: Vec<Client>,
    watches: HashMap<String, Watch>,
    listeners: HashMap<String, Heard>,
    storms: HashMap<String, Storm>,
    /// Sockets that were open before the first client.
    sockets: Option<usize>,
}

/// How long the next event of a watch is waited for.
const EVENT_PATIENCE: Duration = Duration::from_secs(60);

impl Driver {
    /// Carries one order out.
    pub(crate) async fn obey(&mut self, order: &Json) -> Result<Json, Failed> {
        let name = order.get("client").and_then(Json::as_str).unwrap_or("a").to_owned();
        let todo = text(order, "do")?;
        match todo {
            "connect" => {
                self.sockets.get_or_insert_with(trials::sockets);
                if self.clients.is_empty() {
                    self.closed.clear();
                }
                let seeds = order.get("seeds").and_then(Json::as_array).into_iter().flatten();
                let seeds: Vec<_> = seeds.filter_map(|seed| seed.as_str()?.parse().ok()).collect();
                let config = config(order.get("config").unwrap_or(&Json::Null))?;
                self.clients.insert(name, Client::connect(seeds, config).await?);
                return Ok(json!({}));
            }
            "close" => {
                self.watches.remove(&name);
                self.listeners.remove(&name);
                if let Some(client) = self.clients.remove(&name) {
                    client.close().await;
                    self.closed.push(client);
                }
                return Ok(json!({}));
            }
            "left" => {
                let before = self.sockets.unwrap_or_default();
                let tasks: usize = self.closed.iter().map(|client| client.stats().tasks).sum();
                let sockets = trials::sockets().saturating_sub(before);
                return Ok(json!({ "sockets": sockets, "tasks": tasks }));
            }
            _ => {}
        }
        let client = self.clients.get(&name).cloned();
        let client = client.ok_or_else(|| Failed::Order(format!("there is no client {name}")))?;
        let path = path_of(order)?;
        match todo {
            "watch" => {
                let watch =
                    client.watch(&path, WatchOptions { fetch: true, ..WatchOptions::default() });
                self.watches.insert(name, watch.await?);
                Ok(json!({}))
            }
            "next" => {
                let next = rt::timeout(EVENT_PATIENCE, self.watch(&name)?.next()).await;
                shown::event(&next.ok_or_else(|| Failed::Order(String::from("no event came")))??)
            }
            "collect" => collect(self.watch(&name)?, order).await,
            "unwatch" => {
                self.watches.remove(&name);
                Ok(json!({}))
            }
            "listen" => {
                self.listeners.insert(name, Heard::listen(&client)?);
                Ok(json!({}))
            }
            "changes" => {
                let heard = self.listeners.get(&name);
                Ok(heard.ok_or_else(|| Failed::Order(String::from("nobody listens")))?.shown())
            }
            "storm_begin" => {
                self.storms.insert(name, Storm::begin(&client, order).await?);
                Ok(json!({}))
            }
            "storm_end" => {
                let storm = self.storms.remove(&name);
                let storm =
                    storm.ok_or_else(|| Failed::Order(String::from("there is no storm")))?;
                storm.end(&client).await
            }
            "cancel_everywhere" => trials::cancel_everywhere(&client, &path).await,
            _ => simple(&client, &path, todo, order).await,
        }
    }

    fn watch(&mut self, name: &str) -> Result<&mut Watch, Failed> {
        let watch = self.watches.get_mut(name);
        watch.ok_or_else(|| Failed::Order(format!("{name} watches nothing")))
    }
}

/// What needs the client and nothing else.
async fn simple(client: &Client, path: &Path, todo: &str, order: &Json) -> Result<Json, Failed> {
    match todo {
        "preferred" => Ok(json!(client.preferred(path))),
        "get" => get(client, path, order).await,
        "get_raw" => {
            let value = client.get_raw(path).await?.ok_or(Failed::Missing)?;
            Ok(json!({ "hex": shown::hex(value.as_bytes()) }))
        }
        "get_bytes" => {
            let value = client.get_raw(path).await?.ok_or(Failed::Missing)?;
            let size = rmpv::decode::read_value(&mut value.as_bytes()).ok();
            let size = size.as_ref().and_then(rmpv::Value::as_slice).map(<[u8]>::len);
            Ok(json!({ "size": size }))
        }
        "entry" => {
            let entry = client.get_entry(path).await?;
            entry.as_ref().map_or(Ok(Json::Null), shown::entry)
        }
        "put" => {
            let value = order.get("value").unwrap_or(&Json::Null);
            let written = client.put_with(path, value, &options(order)?).await?;
            Ok(shown::written(&written))
        }
        "put_raw" => {
            let value = value_of(&shown::unhex(text(order, "hex")?)?)?;
            Ok(shown::written(&client.put_raw(path, &value, &options(order)?).await?))
        }
        "put_bytes" => {
            let value = Bytes(vec![0; count(order, "size")?]);
            Ok(shown::written(&client.put_with(path, &value, &options(order)?).await?))
        }
        "puts" => {
            for number in 1..=count(order, "count")? {
                client.put(path, &number).await?;
            }
            Ok(json!({}))
        }
        "gets" => {
            let calls = (0..count(order, "count")?).map(|_| client.get_raw(path));
            let good = join_all(calls).await;
            let good = good.iter().filter(|found| matches!(found, Ok(Some(_)))).count();
            Ok(json!({ "good": good }))
        }
        "delete" => Ok(shown::written(&client.delete_with(path, &options(order)?).await?)),
        "tree" => {
            let entries = client.tree(path, TreeOptions::default()).await?;
            let shown = entries.iter().map(|found| {
                Ok(json!([found.path.to_string(), shown::value(found.entry.value.as_ref())?]))
            });
            Ok(Json::Array(shown.collect::<Result<_, Failed>>()?))
        }
        "children" => children(client, path).await,
        "batch" => batch(client, order).await,
        "prefer" => {
            client.prefer_shard(Router::shard(path), Some(text(order, "node")?)).await?;
            Ok(json!({}))
        }
        "refresh" => {
            client.refresh_shards().await;
            Ok(json!({}))
        }
        "view" => {
            let view = client.cluster_view();
            let nodes: BTreeMap<_, _> =
                view.nodes.iter().map(|node| (node.name.clone(), node.is_live())).collect();
            let live: Vec<_> =
                nodes.iter().filter(|(_, is_live)| **is_live).map(|(name, _)| name).collect();
            Ok(json!({ "epoch": view.epoch, "nodes": nodes, "live": live }))
        }
        "stats" => Ok(shown::stats(&client.stats())),
        _ => Err(Failed::Order(format!("there is no order {todo}"))),
    }
}

async fn get(client: &Client, path: &Path, order: &Json) -> Result<Json, Failed> {
    let mut options = GetOptions::new();
    if let Some(mode) = order.get("read").and_then(Json::as_str) {
        options = options.read_mode(mode.parse().map_err(CallError::ReadMode)?);
    }
    if let Some(time) = order.get("timeout").and_then(seconds) {
        options = options.deadline(time);
    }
    let value: Json = client.get_with(path, options).await?.ok_or(Failed::Missing)?;
    Ok(json!({ "value": value }))
}

/// The values of so many changes; each wait is given up soon.
async fn collect(watch: &mut Watch, order: &Json) -> Result<Json, Failed> {
    let count = count(order, "count")?;
    let patience = order.get("patience").and_then(seconds).unwrap_or(EVENT_PATIENCE);
    let mut seen = Vec::new();
    while seen.len() < count {
        if let Some(event) = rt::timeout(patience, watch.next()).await
            && let WatchEvent::Change(change) = event?
        {
            seen.push(shown::value(change.value.as_ref())?);
        }
    }
    Ok(Json::Array(seen))
}

/// The names of what is directly below.
async fn children(client: &Client, path: &Path) -> Result<Json, Failed> {
    let children = client.children(path).await?;
    let names = children.iter().map(|child| match child.last() {
        Some(Element::Str(name)) => json!(name),
        Some(Element::Bool(value)) => json!(value),
        Some(Element::Int(number)) => json!(i64::try_from(number).ok()),
        Some(Element::Float(number)) => json!(number),
        _ => json!(child.to_string()),
    });
    Ok(names.collect())
}

async fn batch(client: &Client, order: &Json) -> Result<Json, Failed> {
    let mut batch = Batch::new();
    for op in order.get("ops").and_then(Json::as_array).into_iter().flatten() {
        let path = path_of(op)?;
        match text(op, "do")? {
            "put" => {
                let value = encoded(&from_json(op.get("value").unwrap_or(&Json::Null)))?;
                batch.put_raw(&path, &value, &options(op)?);
            }
            "get" => drop(batch.get(&path)),
            "delete" => drop(batch.delete(&path)),
            other => return Err(Failed::Order(format!("a batch cannot {other}"))),
        }
    }
    let replies = client.batch(&batch).await?;
    Ok(Json::Array(replies.iter().map(shown::reply).collect::<Result<_, Failed>>()?))
}

/// What a listener has heard.
struct Heard {
    told: Arc<Mutex<Vec<Json>>>,
    _listener: TopologyListener,
}

impl Heard {
    fn listen(client: &Client) -> Result<Heard, Failed> {
        let told = Arc::<Mutex<Vec<Json>>>::default();
        let to = Arc::clone(&told);
        let listener = client.on_topology_change(move |change| {
            let added: Vec<_> = change.added.iter().map(|node| &node.name).collect();
            let changed = change.changed.iter().map(|one| &one.after);
            let dead: Vec<_> =
                changed.filter(|node| !node.is_live()).map(|node| &node.name).collect();
            let moved: BTreeSet<_> =
                change.moved.iter().filter_map(|one| one.from.as_ref()).collect();
            let epochs = change.epoch - change.previous_epoch;
            let shown = json!({ "epochs": epochs, "added": added, "dead": dead, "moved": moved });
            to.lock().unwrap_or_else(PoisonError::into_inner).push(shown);
        })?;
        Ok(Heard { told, _listener: listener })
    }

    fn shown(&self) -> Json {
        Json::Array(self.told.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn options(order: &Json) -> Result<PutOptions, Failed> {
    let mut options = PutOptions::new();
    let is_set = |name: &str| order.get(name) == Some(&Json::Bool(true));
    if let Some(version) = order.get("if_version").and_then(Json::as_str) {
        let chain = Chain::decode(&shown::unhex(version)?).ok().flatten();
        options = options.chain(chain.ok_or_else(|| unreadable(version))?);
    }
    if is_set("if_new") {
        options = options.must_be_new();
    }
    if let Some(value) = order.get("if_value") {
        options = options.prev(encoded(&from_json(value))?);
    }
    if let Some(id) = order.get("write_id").and_then(Json::as_str) {
        options = options.write_id(id);
    }
    if is_set("no_id") {
        options = options.without_write_id();
    }
    if is_set("idempotent") {
        options = options.idempotent();
    }
    if let Some(copies) = order.get("copies").and_then(Json::as_u64) {
        options = options.copies(copies);
    }
    if let Some(time) = order.get("timeout").and_then(seconds) {
        options = options.deadline(time);
    }
    Ok(options)
}

/// Bytes as a value; a plain vector would be an array of numbers.
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

fn text<'a>(order: &'a Json, name: &str) -> Result<&'a str, Failed> {
    order.get(name).and_then(Json::as_str).ok_or_else(|| unreadable(name))
}

fn count(order: &Json, name: &str) -> Result<usize, Failed> {
    let number = order.get(name).and_then(Json::as_u64);
    number.and_then(|number| usize::try_from(number).ok()).ok_or_else(|| unreadable(name))
}

/// The path of an order; without one it is the root.
fn path_of(order: &Json) -> Result<Path, Failed> {
    let text = order.get("path").and_then(Json::as_str).unwrap_or(":");
    text.parse().map_err(|error| Failed::Call(CallError::Usage(format!("{error}"))))
}

fn unreadable(what: &str) -> Failed {
    Failed::Order(format!("{what} is missing or is not what it must be"))
}

fn value_of(bytes: &[u8]) -> Result<Value, Failed> {
    Value::new(bytes).map_err(|error| Failed::Order(format!("no value: {error}")))
}

fn encoded(value: &rmpv::Value) -> Result<Value, Failed> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value)
        .map_err(|error| Failed::Order(error.to_string()))?;
    value_of(&bytes)
}

fn from_json(value: &Json) -> rmpv::Value {
    match value {
        Json::Null => rmpv::Value::Nil,
        Json::Bool(value) => (*value).into(),
        Json::String(text) => text.as_str().into(),
        Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), ..) => number.into(),
            (None, Some(number), _) => number.into(),
            (None, None, number) => number.unwrap_or_default().into(),
        },
        Json::Array(items) => rmpv::Value::Array(items.iter().map(from_json).collect()),
        Json::Object(fields) => rmpv::Value::Map(
            fields.iter().map(|(name, value)| (name.as_str().into(), from_json(value))).collect(),
        ),
    }
}
