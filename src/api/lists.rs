//! What is not about entries: the list of requests, the node's state, its network, and the description of this API.

use distkv_http::{JSON, Reply, StatusCode};

use super::client::{Client, Failure};
use super::entry;
use super::place::Parameters;
use super::value::charged;
use crate::client::Fields;

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
    "GET /v1/shards",
    "GET /v1/live",
    "GET /v1/openapi.json"
  ]
}
"#;

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
