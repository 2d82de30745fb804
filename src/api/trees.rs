//! More than one entry: the children of a path, whole trees, what happens below a path, and conflicts.

use std::io;

use bytes::Bytes;
use distkv_http::{Event, JSON, JSON_LINES, Reply, StatusCode};
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::{Map, Value as Json, json};

use super::client::{Client, Failure};
use super::entry;
use super::place::{self, Parameters};
use super::value::charged;
use crate::client::message::encode_settings;
use crate::client::{Fields, Message};
use crate::model::lengthen::Lengthener;
use crate::model::path::Path;

/// Most children in one answer.
const CHILDREN_MAX: u64 = 1_000;
/// Children in one answer unless the request says how many.
const CHILDREN: u64 = 200;
/// A child's value is shown if its JSON text has at most so many bytes; of a longer one the beginning.
const SHOWN_BYTES: usize = 200;
/// Lines are sent together until they have so many bytes.
const PART_BYTES: usize = 32 << 10;
/// The window of the streams that find out whether there is something below a child: their start, and one entry.
const PEEK_WINDOW: u64 = 3;

/// The action for a path, and the path that it takes: the system's own tree has actions of its own.
pub(super) fn address<'a>(
    path: &Path,
    action: &'a str,
    internal: &'a str,
) -> Result<(&'a str, Path), Failure> {
    let Some(below) = path.strip_prefix(&Path::system_root()) else {
        return Ok((action, path.clone()));
    };
    let below = Path::from_canonical(below);
    Ok((internal, below.map_err(|error| Failure::bad_request(error.to_string()))?))
}

/// A stream of entries that has begun.
pub(super) struct Entries {
    client: Client,
    seq: u64,
    top: Path,
    lengthener: Lengthener,
    /// The first message, if it has come already.
    first: Option<Message>,
}

/// What a stream says.
enum Said {
    /// Of an entry.
    Of(Path, Message),
    /// A change of state.
    State(String, Message),
}

impl Entries {
    /// Begins, and finds out whether it may.
    async fn begin(
        mut client: Client,
        top: &Path,
        action: &str,
        fields: &Fields,
    ) -> Result<Self, Failure> {
        let seq = client.begin(action, fields);
        let (top, lengthener) = (top.clone(), Lengthener::default());
        let mut entries = Self { client, seq, top, lengthener, first: None };
        let start = entries.client.next().await?.ok_or_else(Failure::ended)?;
        if start.str("state") != Some("start") {
            entries.first = Some(start);
        } else {
            // A refusal comes with the start.
            entries.first = entries.client.next_now()?;
        }
        Ok(entries)
    }

    /// The next message; none at the end.
    async fn next(&mut self) -> Result<Option<Said>, Failure> {
        let message = match self.first.take() {
            Some(message) => message,
            None => self.client.next().await?.ok_or_else(Failure::ended)?,
        };
        match message.str("state") {
            Some("end") => Ok(None),
            Some(state) => Ok(Some(Said::State(state.to_owned(), message))),
            None => {
                let path = self.path(&message)?;
                Ok(Some(Said::Of(path, message)))
            }
        }
    }

    /// Ends it, if it has not ended; the client may ask for something else then.
    async fn stop(mut self) -> Result<Client, Failure> {
        self.client.stop(self.seq).await?;
        Ok(self.client)
    }

    fn path(&mut self, message: &Message) -> Result<Path, Failure> {
        let broken = || Failure { code: "internal".into(), text: "a path cannot be read".into() };
        let (path, depth) = (message.get("path"), message.u64("depth").unwrap_or(0));
        let below =
            self.lengthener.lengthen(path.ok_or_else(broken)?, depth).map_err(|_| broken())?;
        let below = Path::from_canonical(below).map_err(|_| broken())?;
        self.top.join(&below).map_err(|_| broken())
    }
}

/// `GET …?children`.
pub(super) async fn children(
    mut client: Client,
    top: &Path,
    mut parameters: Parameters,
) -> Result<Reply, Failure> {
    let limit = parameters.number("limit")?.unwrap_or(CHILDREN);
    let after = parameters.take("after");
    parameters.end()?;
    if !(1..=CHILDREN_MAX).contains(&limit) {
        return Err(Failure::bad_request(format!("\"limit\" must be from 1 to {CHILDREN_MAX}")));
    }
    let (action, place) = address(top, "get_tree", "get_tree_internal")?;
    let mut fields = Fields::at(&place);
    fields.u64("min_depth", 1).u64("max_depth", 1).u64("nchain", 1).bool("empty", true);
    fields.bool("with_time", true);
    if let Some(after) = after {
        let after = place::element(&after);
        let after = after.map_err(|why| Failure::bad_request(format!("\"after\": {why}")))?;
        fields.raw("after", after.as_bytes());
    }
    let mut entries = Entries::begin(client, top, action, &fields).await?;
    let mut found: Vec<(Path, Map<String, Json>)> = Vec::new();
    let mut is_whole = false;
    while (found.len() as u64) < limit {
        match entries.next().await? {
            None => {
                is_whole = true;
                break;
            }
            Some(Said::Of(path, message)) => found.push((path, child(&message)?)),
            Some(Said::State(..)) => {}
        }
    }
    if !is_whole {
        is_whole = entries.next().await?.is_none();
    }
    client = entries.stop().await?;
    let mut items = Vec::with_capacity(found.len());
    let mut last = None;
    for (path, shown) in found {
        let more = has_below(&mut client, &path).await?;
        if shown.get("deleted").is_some() && !more {
            // Nobody who asks for children wants to know what was deleted.
            last = path.last().map(place::segment);
            continue;
        }
        let name = path.last().map(place::segment).unwrap_or_default();
        let mut item = Map::new();
        item.insert("name".into(), name.clone().into());
        item.extend(shown);
        item.remove("deleted");
        item.insert("more".into(), more.into());
        items.push(Json::Object(item));
        last = Some(name);
    }
    let next = if is_whole { Json::Null } else { last.map_or(Json::Null, Json::from) };
    let text = format!("{}\n", json!({"items": items, "next": next}));
    let mut reply = Reply::new(StatusCode::OK, JSON, Vec::new());
    reply.content = charged(client, text.into_bytes());
    Ok(reply)
}

/// What is shown of a child: `value`, or `start` of a long one; and the labels of its version.
fn child(message: &Message) -> Result<Map<String, Json>, Failure> {
    let mut out = Map::new();
    let Some(bytes) = message.get("value") else {
        out.insert("deleted".into(), true.into());
        return Ok(out);
    };
    // A long MessagePack value is no short text.
    let value = entry::value(bytes)?;
    let text = value.to_string();
    if text.len() <= SHOWN_BYTES {
        out.insert("value".into(), value);
    } else {
        let end = text.floor_char_boundary(SHOWN_BYTES);
        out.insert("start".into(), text.get(..end).unwrap_or_default().into());
    }
    entry::add_labels(message, &mut out);
    out.remove("chain");
    Ok(out)
}

/// Whether the client may see something below a path.
async fn has_below(client: &mut Client, path: &Path) -> Result<bool, Failure> {
    let (action, place) = address(path, "get_tree", "get_tree_internal")?;
    let mut fields = Fields::at(&place);
    fields.u64("min_depth", 1);
    client.settings(&encode_settings(PEEK_WINDOW, true));
    let seq = client.begin(action, &fields);
    let mut found = false;
    loop {
        match client.next().await {
            Ok(Some(message)) => match message.str("state") {
                Some("start") => {}
                Some(_) => break,
                None => {
                    found = true;
                    break;
                }
            },
            Ok(None) => return Err(Failure::ended()),
            // It may not be listed. Of a stream that had begun, the end follows, and is skipped.
            Err(failure) if failure.code == "denied" => break,
            Err(failure) => return Err(failure),
        }
    }
    if found {
        client.stop(seq).await?;
    }
    Ok(found)
}

/// `GET …?tree`.
pub(super) async fn tree(
    client: Client,
    top: &Path,
    mut parameters: Parameters,
) -> Result<Reply, Failure> {
    let depth = parameters.number("depth")?;
    parameters.end()?;
    let (action, place) = address(top, "get_tree", "get_tree_internal")?;
    let mut fields = Fields::at(&place);
    entry::ask_for_chain(&mut fields);
    if let Some(depth) = depth {
        fields.u64("max_depth", depth);
    }
    let entries = Entries::begin(client, top, action, &fields).await?;
    let holder = entries.client.holder();
    Ok(Reply::parts(JSON_LINES, lines(entries, entry::entry), holder))
}

/// `GET /v1/conflicts`.
pub(super) async fn conflicts(
    client: Client,
    mut parameters: Parameters,
) -> Result<Reply, Failure> {
    let mut fields = Fields::new();
    for name in ["since", "limit"] {
        if let Some(number) = parameters.number(name)? {
            fields.u64(name, number);
        }
    }
    let path = parameters.take("path").map(|path| path.parse::<Path>()).transpose();
    let path = path.map_err(|error| Failure::bad_request(error.to_string()))?;
    let path = path.unwrap_or_else(Path::root);
    parameters.end()?;
    fields.path("path", &path);
    entry::ask_for_chain(&mut fields);
    let entries = Entries::begin(client, &path, "conflicts", &fields).await?;
    let holder = entries.client.holder();
    Ok(Reply::parts(JSON_LINES, lines(entries, entry::conflict), holder))
}

/// A message as the fields of a line.
type Shape = fn(&Path, &Message) -> Result<Map<String, Json>, Failure>;

/// A line of JSON for each message. A failure cuts it, so that nobody takes a part for all.
fn lines(entries: Entries, shape: Shape) -> BoxStream<'static, io::Result<Bytes>> {
    let parts = stream::unfold(Some(entries), move |entries| async move {
        let mut entries = entries?;
        let mut text = String::new();
        loop {
            let line = match entries.next().await {
                Ok(Some(Said::Of(path, message))) => shape(&path, &message),
                Ok(Some(Said::State(..))) => continue,
                Ok(None) if text.is_empty() => return None,
                Ok(None) => return Some((Ok(Bytes::from(text)), None)),
                Err(failure) => Err(failure),
            };
            match line {
                Ok(line) => text.push_str(&format!("{}\n", Json::Object(line))),
                Err(failure) => return Some((Err(io::Error::other(failure.text)), None)),
            }
            if text.len() >= PART_BYTES {
                return Some((Ok(Bytes::from(text)), Some(entries)));
            }
        }
    });
    parts.boxed()
}

/// `GET …?watch`.
pub(super) async fn watch(
    client: Client,
    top: &Path,
    mut parameters: Parameters,
) -> Result<Reply, Failure> {
    let mut fields = Fields::at(top);
    let fetches = parameters.flag("fetch")?;
    fields.bool("fetch", fetches).bool("restart", true);
    entry::ask_for_chain(&mut fields);
    match parameters.take("conflicts").as_deref() {
        None => {}
        Some("") => drop(fields.bool("conflicts", true)),
        Some("only") if fetches => {
            let text = "\"fetch\" asks for entries, and \"conflicts=only\" for none";
            return Err(Failure::bad_request(text));
        }
        Some("only") => drop(fields.str("conflicts", "only")),
        Some(_) => return Err(Failure::bad_request("\"conflicts\" takes nothing but =only")),
    }
    if let Some(depth) = parameters.number("depth")? {
        fields.u64("max_depth", depth);
    }
    parameters.end()?;
    let entries = Entries::begin(client, top, "watch", &fields).await?;
    let holder = entries.client.holder();
    Ok(Reply::events(events(entries), holder))
}

/// An event for each message; the last one says why there are no further ones.
fn events(entries: Entries) -> BoxStream<'static, Event> {
    let events = stream::unfold(Some(entries), |entries| async move {
        let mut entries = entries?;
        loop {
            let event = match entries.next().await {
                Ok(Some(Said::Of(path, message))) => event(&path, &message),
                Ok(Some(Said::State(state, message))) => {
                    let name = match state.as_str() {
                        "uptodate" => "uptodate",
                        "restart" => "restart",
                        _ => continue,
                    };
                    let tock = message.u64("tock").map_or(Json::Null, entry::number);
                    Ok(Event { name, data: json!({"tock": tock}).to_string() })
                }
                Ok(None) => Err(Failure::ended()),
                Err(failure) => Err(failure),
            };
            return Some(match event {
                Ok(event) => (event, Some(entries)),
                Err(failure) => (failed(&failure), None),
            });
        }
    });
    events.boxed()
}

fn event(path: &Path, message: &Message) -> Result<Event, Failure> {
    let (name, fields) = if message.get("conflict").is_some() {
        ("conflict", entry::conflict(path, message)?)
    } else if message.get("value").is_some() {
        ("entry", entry::entry(path, message)?)
    } else {
        ("deleted", entry::entry(path, message)?)
    };
    Ok(Event { name, data: Json::Object(fields).to_string() })
}

/// The event that ends a stream before its time.
fn failed(failure: &Failure) -> Event {
    Event { name: "failed", data: json!({"code": failure.code, "error": failure.text}).to_string() }
}
