//! What is not about entries as they are: the list of requests, an entry's changes, the node's state, its network, and
//! the description of this API.

use distkv_http::{JSON, Reply, StatusCode};
use serde_json::Map;

use super::client::{Client, Failure};
use super::entry;
use super::place::Parameters;
use super::told::{Pace, Told};
use super::value::charged;
use crate::client::message::array_items;
use crate::client::{Fields, Message};
use crate::model::path::Path;

/// The description of this API for programs (OpenAPI).
const OPENAPI: &str = include_str!("../../docs/openapi.json");

/// What is at `/v1/`.
const INDEX: &str = r#"{
  "requests": [
    "GET /v1/kv/PATH",
    "GET /v1/kv/PATH?children",
    "GET /v1/kv/PATH?tree",
    "GET /v1/kv/PATH?watch",
    "PUT /v1/kv/PATH",
    "DELETE /v1/kv/PATH",
    "DELETE /v1/kv/PATH?tree",
    "GET /v1/status",
    "GET /v1/members",
    "GET /v1/conflicts",
    "GET /v1/history",
    "GET /v1/shards",
    "GET /v1/live",
    "GET /v1/openapi.json"
  ]
}
"#;

/// Most changes in one answer.
const HISTORY_MAX: u64 = 1_000;

/// `GET /v1/`.
pub(super) fn index() -> Reply {
    Reply::new(StatusCode::OK, JSON, INDEX)
}

/// `GET /v1/openapi.json`.
pub(super) fn openapi() -> Reply {
    Reply::new(StatusCode::OK, JSON, OPENAPI)
}

/// `GET /v1/status` and the like: the reply to an action of that name.
pub(super) async fn reply(
    mut client: Client,
    action: &str,
    mut parameters: Parameters,
) -> Result<Reply, Failure> {
    let mut fields = Fields::new();
    if action == "list_shards" {
        fields.bool("detail", parameters.flag("detail")?);
    }
    parameters.end()?;
    let message = client.call(action, &fields).await?;
    let text = format!("{}\n", entry::whole(&message)?);
    let mut reply = Reply::new(StatusCode::OK, JSON, Vec::new());
    reply.content = charged(client, text.into_bytes());
    Ok(reply)
}

/// `GET /v1/history`: the changes of one entry, from this node's snapshots and logs.
pub(super) async fn history(
    mut client: Client,
    mut parameters: Parameters,
    pace: Pace,
) -> Result<Reply, Failure> {
    let path = parameters.take("path").map(|path| path.parse::<Path>()).transpose();
    let path = path.map_err(|error| Failure::bad_request(error.to_string()))?;
    let path = path.ok_or_else(|| Failure::bad_request("\"path\" is missing: whose changes"))?;
    let mut fields = Fields::at(&path);
    if let Some(limit) = parameters.number("limit")? {
        if !(1..=HISTORY_MAX).contains(&limit) {
            let text = format!("\"limit\" must be from 1 to {HISTORY_MAX}");
            return Err(Failure::bad_request(text));
        }
        fields.u64("limit", limit);
    }
    if let Some(since) = parameters.moment("since")? {
        let since = u64::try_from(since.as_millisecond());
        let bad = |_| Failure::bad_request("\"since\" must be a time after 1970");
        fields.u64("since", since.map_err(bad)?);
    }
    parameters.end()?;
    let message = client.call("history", &fields).await?;
    let within = |name| message.get(name).and_then(|bytes| Message::new(bytes).ok());
    let mut told = Told::default();
    told.text("{").name("items").text("[");
    for row in array_items(message.get("result").unwrap_or_default()) {
        let row = Message::new(row).map_err(|_| entry::broken("a change"))?;
        change(&row, told.comma());
    }
    told.text("]").name("before");
    match within("before") {
        Some(before) => change(&before, &mut told),
        None => drop(told.text("null")),
    }
    let mut reach = Map::new();
    if let Some(told) = within("reach") {
        reach.extend(entry::time_of(&told, "time").map(|time| ("time".into(), time.into())));
        reach.extend(told.u64("tock").map(|tock| ("tock".into(), entry::number(tock))));
    }
    told.field("reach", &reach.into());
    told.field("cut", &message.bool("cut").unwrap_or_default().into());
    told.field("gaps", &message.bool("gaps").unwrap_or_default().into());
    if let Some(holes) = message.get("holes") {
        told.field("holes", &entry::value(holes)?);
        if let Some(more) = message.u64("more_holes") {
            told.field("more_holes", &entry::number(more));
        }
    }
    told.text("}\n");
    drop(message);
    let mut reply = Reply::new(StatusCode::OK, JSON, Vec::new());
    reply.content = told.content(client, pace).await?;
    Ok(reply)
}

/// A change, in the words of this API.
fn change(row: &Message, told: &mut Told) {
    told.text("{");
    if let Some(bytes) = row.get("value") {
        told.name("value").value(bytes);
    }
    if let Some(event) = row.str("event") {
        if let Some(label) = entry::etag_of(event) {
            told.field("etag", &label.into());
        }
        told.field("event", &event.into());
    }
    if let Some(tock) = row.u64("version_tock") {
        told.field("tock", &entry::number(tock));
    }
    for (name, field) in [("time", "made"), ("came", "time")] {
        if let Some(time) = entry::time_of(row, field) {
            told.field(name, &time.into());
        }
    }
    for flag in ["purged", "before_unknown"] {
        if row.bool(flag) == Some(true) {
            told.field(flag, &true.into());
        }
    }
    told.text("}");
}
