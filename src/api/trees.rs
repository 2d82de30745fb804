//! More than one entry: the children of a path, whole trees, what happens below a path, and conflicts.

use std::io;

use bytes::Bytes;
use distkv_http::{Event, EventPart, JSON, JSON_LINES, Reply, StatusCode};
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::{Map, Value as Json, json};

use super::client::{Client, Failure};
use super::entry;
use super::place::{self, Parameters};
use super::told::{self, PIECE_BYTES, Pace, Told};
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
    match told::shown(bytes, SHOWN_BYTES)? {
        Ok(value) => out.insert("value".into(), value),
        Err(start) => out.insert("start".into(), start.into()),
    };
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
    pace: Pace,
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
    let holder = pace.holder();
    Ok(Reply::parts(JSON_LINES, lines(entries, entry::entry, pace), holder))
}

/// `GET /v1/conflicts`.
pub(super) async fn conflicts(
    client: Client,
    mut parameters: Parameters,
    pace: Pace,
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
    let holder = pace.holder();
    Ok(Reply::parts(JSON_LINES, lines(entries, entry::conflict, pace), holder))
}

/// Tells a message as an object.
type Shape = fn(&Path, &Message, &mut Told) -> Result<(), Failure>;

/// What makes a stream's text: its entries, and what was begun and is not all written.
struct Telling {
    entries: Entries,
    begun: Option<Told>,
    pace: Pace,
}

impl Telling {
    /// Goes on with what was begun, until `text` has [`PIECE_BYTES`] or that is over: then it is true.
    ///
    /// # Errors
    /// A value cannot be read, or the client must end.
    async fn go_on(&mut self, text: &mut String) -> Result<bool, Failure> {
        let Some(told) = &mut self.begun else { return Ok(true) };
        if told.is_long() {
            self.entries.client.keep(told.kept_bytes());
        }
        let is_over = told.fill(text, &self.pace).await?;
        if self.entries.client.is_closing() {
            return Err(self.entries.client.closed().await);
        }
        if is_over {
            self.begun = None;
        }
        Ok(is_over)
    }
}

/// A line of JSON for each message. A failure cuts it, so that nobody takes a part for all.
fn lines(entries: Entries, shape: Shape, pace: Pace) -> BoxStream<'static, io::Result<Bytes>> {
    let telling = Telling { entries, begun: None, pace };
    let parts = stream::unfold(Some(telling), move |telling| async move {
        let mut telling = telling?;
        let mut text = String::new();
        let failure = loop {
            match telling.go_on(&mut text).await {
                Ok(_) if text.len() >= PIECE_BYTES => {
                    return Some((Ok(Bytes::from(text)), Some(telling)));
                }
                Ok(true) => {}
                Ok(false) => continue,
                Err(failure) => break failure,
            }
            let mut told = Told::default();
            let shaped = match telling.entries.next().await {
                Ok(Some(Said::Of(path, message))) => shape(&path, &message, &mut told),
                Ok(Some(Said::State(..))) => continue,
                Ok(None) if text.is_empty() => return None,
                Ok(None) => return Some((Ok(Bytes::from(text)), None)),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = shaped {
                break failure;
            }
            told.text("\n");
            telling.begun = Some(told);
        };
        Some((Err(io::Error::other(failure.text)), None))
    });
    parts.boxed()
}

/// `GET …?watch`.
pub(super) async fn watch(
    client: Client,
    top: &Path,
    mut parameters: Parameters,
    pace: Pace,
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
    let holder = pace.holder();
    Ok(Reply::event_parts(events(entries, pace), holder))
}

/// An event for each message; the last one says why there are no further ones. One that has begun and fails is cut.
fn events(entries: Entries, pace: Pace) -> BoxStream<'static, EventPart> {
    let telling = Telling { entries, begun: None, pace };
    let parts = stream::unfold(Some(telling), |telling| async move {
        let mut telling = telling?;
        loop {
            if telling.begun.is_some() {
                let mut text = String::new();
                return match telling.go_on(&mut text).await {
                    Ok(is_end) => {
                        Some((EventPart { bytes: Bytes::from(text), is_end }, Some(telling)))
                    }
                    Err(_) => None,
                };
            }
            match telling.entries.next().await {
                Ok(Some(Said::Of(path, message))) => match event(&path, &message) {
                    Ok(told) => telling.begun = Some(told),
                    Err(failure) => return Some((failed(&failure), None)),
                },
                Ok(Some(Said::State(state, message))) => {
                    let name = match state.as_str() {
                        "uptodate" => "uptodate",
                        "restart" => "restart",
                        _ => continue,
                    };
                    let tock = message.u64("tock").map_or(Json::Null, entry::number);
                    let event = Event { name, data: json!({"tock": tock}).to_string() };
                    return Some((event.into(), Some(telling)));
                }
                Ok(None) => return Some((failed(&Failure::ended()), None)),
                Err(failure) => return Some((failed(&failure), None)),
            }
        }
    });
    parts.boxed()
}

/// As it is sent. JSON text has no raw line ends, so its data is one line.
fn event(path: &Path, message: &Message) -> Result<Told, Failure> {
    let (name, shape) = if message.get("conflict").is_some() {
        ("conflict", entry::conflict as Shape)
    } else if message.get("value").is_some() {
        ("entry", entry::entry as Shape)
    } else {
        ("deleted", entry::entry as Shape)
    };
    let mut told = Told::default();
    told.text("event: ").text(name).text("\ndata: ");
    shape(path, message, &mut told)?;
    told.text("\n\n");
    Ok(told)
}

/// The event that ends a stream before its time.
fn failed(failure: &Failure) -> EventPart {
    let data = json!({"code": failure.code, "error": failure.text}).to_string();
    Event { name: "failed", data }.into()
}
