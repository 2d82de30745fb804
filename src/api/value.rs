//! One entry: reading, writing and deleting it.

use bytes::Bytes;
use distkv_http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_MATCH, IF_NONE_MATCH, VARY,
};
use distkv_http::{Content, JSON, Method, Reply, Request, StatusCode};
use serde_json::{Map, Value as Json, json};

use super::client::{Client, Failure};
use super::entry::{self, Labels};
use super::place::Parameters;
use super::told::{Held, Pace, Told};
use super::trees::address;
use crate::client::{Fields, Message};
use crate::model::path::Path;
use crate::model::value::{SkipError, Value, ValueError};
use crate::protocol::json::{JsonError, value_from_long_text};
use crate::server::local_client::Charge;

/// MessagePack, as it is stored.
const MSGPACK: &str = "application/msgpack";
/// The tock of an entry.
static TOCK: HeaderName = HeaderName::from_static("distkv-tock");
/// When the change was made, by its maker's clock.
static TIME: HeaderName = HeaderName::from_static("distkv-time");
/// The events that last changed it, newest first.
static CHAIN: HeaderName = HeaderName::from_static("distkv-chain");
/// A write id: 32 hexadecimal digits.
static WID: HeaderName = HeaderName::from_static("distkv-wid");
/// Answers longer than this are charged to the clients' memory for as long as they go out.
const CHARGED_BYTES: usize = 64 << 10;
/// A body of JSON that is longer than this is turned into a value aside, in its turn.
const LONG_JSON_BYTES: usize = 16 << 10;
/// How often a write that may meet any version is tried anew because another one came in between.
const TRIES_MAX: usize = 8;

/// `GET /v1/kv/PATH`.
pub(super) async fn get(
    mut client: Client,
    request: &Request,
    path: &Path,
    pace: Pace,
) -> Result<Reply, Failure> {
    let unless = Labels::read("If-None-Match", request.headers.get_all(IF_NONE_MATCH).iter())?;
    let Found { message, value } = read(&mut client, path).await?;
    let Some(value) = value else { return Err(nothing(path)) };
    let label = entry::chain(&message).and_then(|chain| entry::etag(&chain.newest));
    let is_known = matches!((&unless, &label), (Some(unless), Some(label)) if unless.have(label));
    let is_msgpack = !is_known && wants_msgpack(request);
    let kind = if is_msgpack { MSGPACK } else { JSON };
    let mut reply = Reply::new(StatusCode::OK, kind, Vec::new());
    for (name, field) in labels(&message) {
        reply = reply.with(name, field);
    }
    if is_known {
        reply.status = StatusCode::NOT_MODIFIED;
    } else if is_msgpack {
        reply.content = charged(client, Bytes::from_owner(value));
    } else {
        let mut told = Told::default();
        told.held(value).text("\n");
        drop(message);
        reply.content = told.content(client, pace).await?;
    }
    Ok(reply.with(VARY, HeaderValue::from_static("Accept")))
}

/// `PUT /v1/kv/PATH` and `DELETE /v1/kv/PATH`.
pub(super) async fn write(
    mut client: Client,
    mut request: Request,
    path: &Path,
    mut parameters: Parameters,
) -> Result<Reply, Reply> {
    let mut fields = Fields::new();
    if let Some(copies) = parameters.number("copies")? {
        fields.u64("copies", copies);
    }
    if let Some(timeout) = parameters.number("timeout")? {
        fields.u64("timeout", timeout);
    }
    parameters.end()?;
    if let Some(wid) = write_id(&request)? {
        fields.bin("wid", &wid);
    }
    let condition = Condition::of(&request)?;
    let (action, internal) = if request.method == Method::DELETE {
        ("delete_value", "delete_internal")
    } else {
        let is_msgpack = request.headers.get(CONTENT_TYPE).is_some_and(is_msgpack);
        check_encoding(&request)?;
        let body = std::mem::replace(&mut request.upload, distkv_http::Upload::none());
        let bytes = body.read(&client.holder()).await?;
        let value = match (is_msgpack, bytes.len()) {
            (true, _) => Value::new(&bytes).map_err(no_value)?,
            (false, 0..=LONG_JSON_BYTES) => json_value(&bytes, &mut |_| true)?,
            (false, _) => long_value(&mut client, &bytes).await?,
        };
        drop(bytes);
        fields.raw("value", value.as_bytes());
        ("set_value", "set_internal")
    };
    let (action, place) = address(path, action, internal)?;
    fields.path("path", &place).u64("nchain", 1);
    let is_new_only = matches!(condition, Condition::New);
    for last_try in (0..TRIES_MAX).rev() {
        let mut fields = fields.clone();
        condition.add_to(&mut fields, &mut client, path).await?;
        match client.call(action, &fields).await {
            Ok(message) => return Ok(written(&request.method, is_new_only, &condition, &message)),
            Err(failure)
                if failure.code == "chain_mismatch"
                    && matches!(condition, Condition::Any)
                    && last_try > 0 => {}
            Err(failure) if failure.status() == StatusCode::PRECONDITION_FAILED => {
                let pace = Pace::of(&client);
                return Ok(unmet(client, path, &condition.told(failure), pace).await?);
            }
            Err(failure) => return Err(failure.reply()),
        }
    }
    Err(Failure::ended().reply())
}

/// A body is taken as it is: one that is compressed would be taken for what it is not.
///
/// # Errors
/// It says that it is encoded.
fn check_encoding(request: &Request) -> Result<(), Reply> {
    let mut fields = request.headers.get_all(CONTENT_ENCODING).iter();
    let is_plain = |field: &HeaderValue| {
        let field = field.as_bytes().trim_ascii();
        field.is_empty() || field.eq_ignore_ascii_case(b"identity")
    };
    if fields.all(is_plain) {
        return Ok(());
    }
    let text = "a body is taken as it is, without Content-Encoding; nothing was changed";
    let reply = Reply::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoding", text);
    Err(reply.with(ACCEPT_ENCODING, HeaderValue::from_static("identity")))
}

/// `DELETE /v1/kv/PATH?tree`.
pub(super) async fn delete_tree(
    mut client: Client,
    request: &Request,
    path: &Path,
) -> Result<Reply, Failure> {
    if !matches!(Condition::of(request)?, Condition::None) || write_id(request)?.is_some() {
        let text = "a tree is deleted without preconditions and write ids";
        return Err(Failure::bad_request(text));
    }
    let message = client.call("delete_tree", &Fields::at(path)).await?;
    let changed = message.u64("changed").unwrap_or_default();
    Ok(Reply::new(
        StatusCode::OK,
        JSON,
        format!("{}\n", json!({"changed": entry::number(changed)})),
    ))
}

/// What must be so for a write to be made.
enum Condition {
    /// Nothing.
    None,
    /// There is no entry.
    New,
    /// There is one.
    Any,
    /// It has one of these labels.
    These(Vec<String>),
}

impl Condition {
    fn of(request: &Request) -> Result<Self, Failure> {
        let of = |name, field| Labels::read(name, request.headers.get_all(field).iter());
        match (of("If-Match", IF_MATCH)?, of("If-None-Match", IF_NONE_MATCH)?) {
            (None, None) => Ok(Self::None),
            (None, Some(Labels::Any)) => Ok(Self::New),
            (Some(Labels::Any), None) => Ok(Self::Any),
            (Some(Labels::These(labels)), None) => Ok(Self::These(labels)),
            (Some(_), Some(_)) => Err(Failure::bad_request("If-Match and If-None-Match are there")),
            (None, Some(Labels::These(_))) => {
                Err(Failure::bad_request("If-None-Match of a write must be *"))
            }
        }
    }

    /// What did not hold, in words of what was sent: a node is asked for one label at a time.
    fn told(&self, failure: Failure) -> Failure {
        match self {
            Self::These(labels) if failure.code == "chain_mismatch" => {
                let text = match labels.len() {
                    1 => String::from("the label in If-Match is not that of the entry"),
                    count => format!("none of the {count} labels in If-Match is that of the entry"),
                };
                Failure { text, ..failure }
            }
            _ => failure,
        }
    }

    /// As the precondition that nodes know: nothing at all, or the newest event.
    async fn add_to(
        &self,
        fields: &mut Fields,
        client: &mut Client,
        path: &Path,
    ) -> Result<(), Failure> {
        let label = match self {
            Self::None => return Ok(()),
            Self::New => {
                fields.nil("chain");
                return Ok(());
            }
            Self::These(labels) if labels.len() == 1 => labels.first().cloned(),
            Self::Any | Self::These(_) => {
                let Found { message, value } = read(client, path).await?;
                let label = entry::chain(&message).and_then(|chain| entry::etag(&chain.newest));
                let has_value = value.is_some();
                match (self, label) {
                    (Self::Any, Some(label)) if has_value => Some(label),
                    (Self::These(labels), Some(label)) if labels.contains(&label) => Some(label),
                    (Self::These(labels), _) => labels.first().cloned(),
                    _ => None,
                }
            }
        };
        // Without an entry, any label is one that there is not.
        let chain = entry::chain_of(&label.unwrap_or_default(), |life| client.node_of(life));
        let mut bytes = Vec::new();
        chain.encode(&mut bytes);
        fields.raw("chain", &bytes);
        Ok(())
    }
}

/// What is at a path.
struct Found {
    /// The reply, which has the value only if that is short.
    message: Message,
    value: Option<Held>,
}

/// What is at a path, with its whole chain. A long value is neither copied nor looked through.
async fn read(client: &mut Client, path: &Path) -> Result<Found, Failure> {
    let (action, place) = address(path, "get_value", "get_internal")?;
    let mut fields = Fields::at(&place);
    entry::ask_for_chain(&mut fields);
    let (message, apart) = client.call_apart(action, &fields).await?;
    let value = match apart {
        Some(entry) => Some(Held::Shared(entry)),
        None => message.get("value").map(|value| Held::Copied(value.to_vec())),
    };
    Ok(Found { message, value })
}

/// The answer to a write that was made.
fn written(method: &Method, is_new: bool, condition: &Condition, message: &Message) -> Reply {
    let is_repeated = message.bool("repeated").unwrap_or(false);
    let had_none = message.get("prev").is_none() && matches!(condition, Condition::None);
    let made = method == Method::PUT && !is_repeated && (is_new || had_none);
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    let mut out = Map::new();
    out.insert("changed".into(), message.bool("changed").unwrap_or(false).into());
    entry::add_labels(message, &mut out);
    out.remove("chain");
    if is_repeated {
        out.insert("repeated".into(), true.into());
    }
    let mut reply = Reply::new(status, JSON, format!("{}\n", Json::Object(out)));
    for (name, field) in labels(message).into_iter().filter(|(name, _)| *name != CHAIN) {
        reply = reply.with(name, field);
    }
    reply
}

/// The answer to a write whose precondition did not hold: with what is there, as far as the client may see it.
async fn unmet(
    mut client: Client,
    path: &Path,
    failure: &Failure,
    pace: Pace,
) -> Result<Reply, Failure> {
    let mut told = Told::default();
    told.text("{").field("code", &failure.code.as_str().into());
    told.field("error", &failure.text.as_str().into()).name("entry");
    match read(&mut client, path).await {
        Ok(Found { message, value: Some(value) }) => {
            told.text("{");
            entry::version_with(&message, Some(value), &mut told);
            told.text("}");
        }
        _ => drop(told.text("null")),
    }
    told.text("}\n");
    let mut reply = Reply::new(failure.status(), JSON, Vec::new());
    reply.content = told.content(client, pace).await?;
    Ok(reply)
}

/// `ETag`, `Distkv-Tock`, `Distkv-Time` and `Distkv-Chain`.
fn labels(message: &Message) -> Vec<(HeaderName, HeaderValue)> {
    let chain = entry::chain(message);
    let etag = chain.as_ref().and_then(|chain| entry::etag(&chain.newest));
    let events =
        chain.map(|chain| chain.events().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    let tock = message.u64("tock").map(|tock| tock.to_string());
    let time = entry::time(message);
    let fields =
        [(ETAG, etag), (TOCK.clone(), tock), (TIME.clone(), time), (CHAIN.clone(), events)];
    // A node's name may have any letters.
    let field = |text: String| HeaderValue::from_bytes(text.as_bytes()).ok();
    fields.into_iter().filter_map(|(name, text)| Some((name, field(text?)?))).collect()
}

fn nothing(path: &Path) -> Failure {
    let text = format!("there is no value at {path}");
    Failure { code: String::from("not_found"), text }
}

/// The value that a long body of JSON says. While it is worked on, other threads run the tasks of others; and only a few are
/// worked on at once.
async fn long_value(client: &mut Client, body: &[u8]) -> Result<Value, Failure> {
    // A string with escapes, or in base64, is in memory once more meanwhile.
    let text = 2 * body.len();
    client.keep(text);
    let (conversions, holder) = (client.conversions().clone(), client.holder());
    let work = || {
        json_value(body, &mut |kept| {
            client.keep(text + kept);
            !client.is_closing()
        })
    };
    match conversions.parse(&holder, work).await {
        Err(_) if client.is_closing() => Err(client.closed().await),
        told => told,
    }
}

/// The value that a body of JSON says. `keeps` is told how many bytes that takes besides the body, and may end it.
fn json_value(body: &[u8], keeps: &mut dyn FnMut(usize) -> bool) -> Result<Value, Failure> {
    let text = std::str::from_utf8(body).map_err(|_| bad_value("it is not UTF-8"))?;
    value_from_long_text(text, keeps).map_err(|error| match error {
        JsonError::Value(error) => no_value(error),
        // As in MessagePack.
        JsonError::TooDeep | JsonError::TooLarge => too_large(&error),
        JsonError::Syntax(_) => Failure::bad_request(format!("the body is {error}")),
        error => bad_value(&error.to_string()),
    })
}

fn bad_value(why: &str) -> Failure {
    Failure::bad_request(format!("the body is no value: {why}"))
}

fn no_value(error: ValueError) -> Failure {
    match error {
        ValueError::Skip(SkipError::TooLarge { .. } | SkipError::TooDeep { .. }) => {
            too_large(&error)
        }
        error => bad_value(&error.to_string()),
    }
}

fn too_large(error: &dyn std::fmt::Display) -> Failure {
    Failure { code: String::from("too_large"), text: error.to_string() }
}

fn write_id(request: &Request) -> Result<Option<[u8; 16]>, Failure> {
    let mut fields = request.headers.get_all(&WID).iter();
    let Some(field) = fields.next() else { return Ok(None) };
    if fields.next().is_some() {
        return Err(Failure::bad_request("Distkv-Wid is there twice"));
    }
    let bad = || Failure::bad_request("Distkv-Wid must be 32 hexadecimal digits");
    let text = field.to_str().map_err(|_| bad())?;
    let is_hex = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex).ok_or_else(bad)?;
    Ok(Some(number.to_be_bytes()))
}

/// Whether MessagePack is asked for, and JSON no more than that (RFC 9110, section 12.5.1).
fn wants_msgpack(request: &Request) -> bool {
    let fields = request.headers.get_all(ACCEPT).iter().filter_map(|field| field.to_str().ok());
    let (mut msgpack, mut json) = (0.0, 0.0);
    for kind in fields.flat_map(|kinds| kinds.split(',')) {
        let quality = quality_of(kind);
        if is_kind(kind, MSGPACK) {
            msgpack = quality.max(msgpack);
        } else if is_kind(kind, JSON) {
            json = quality.max(json);
        }
    }
    msgpack > 0.0 && msgpack >= json
}

/// From 0, not acceptable, to 1, which counts where nothing is said.
fn quality_of(kind: &str) -> f32 {
    let mut parameters = kind.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let quality = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    quality.map_or(1.0, |(_, value)| value.trim().parse().unwrap_or(0.0))
}

fn is_msgpack(kind: &HeaderValue) -> bool {
    kind.to_str().is_ok_and(|kind| is_kind(kind, MSGPACK))
}

fn is_kind(field: &str, kind: &str) -> bool {
    field.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(kind))
}

impl distkv_http::Charge for Charge {
    fn is_over(&mut self) -> bool {
        Charge::is_over(self)
    }
}

/// A long answer goes on to cost the clients' memory until it is out.
pub(super) fn charged(client: Client, bytes: impl Into<Bytes>) -> Content {
    let bytes = bytes.into();
    match bytes.len() {
        0..=CHARGED_BYTES => Content::Whole(bytes),
        length => Content::Charged(bytes, Box::new(client.into_charge(length))),
    }
}
