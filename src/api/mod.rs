//! The HTTP API: what is at `/v1/` (docs/http-api.md). Each request becomes one or a few of a client in the same
//! process, so nothing here decides what is allowed, checks a precondition or changes the tree.
//!
//! | file | what |
//! |---|---|
//! | this one | what is at which path |
//! | `client` | asking the node as a client does; errors |
//! | `rights` | who asks, and whether that may be |
//! | `place` | paths and parameters, as URLs have them |
//! | `value` | one entry |
//! | `trees` | children, trees, event streams, conflicts |
//! | `lists` | an entry's changes, the node's state, its network, the description of this API |
//! | `entry` | how an entry is told |
//! | `told` | values as JSON, made piece by piece |

mod client;
mod entry;
mod lists;
mod place;
mod rights;
mod told;
mod trees;
mod value;

use std::net::SocketAddr;
use std::sync::Arc;

use distkv_http::{Event, Method, Reply, Request, StatusCode};
use futures::stream::BoxStream;

pub use client::{Client, Failure};
use place::Parameters;
pub use rights::Token;
use told::Pace;

use crate::model::path::Path;
use crate::server::local_client::LocalClient;

/// The node, as its API sees it.
pub(crate) trait Host: Send + Sync {
    /// A client in the same process, which has come from this address.
    ///
    /// # Errors
    /// There is none to be had.
    fn client(&self, address: SocketAddr) -> Result<LocalClient, Failure>;

    /// `/v1/live`: what the page shows, as it happens. `query` is what stands behind `?`, as it was sent; `client` is
    /// whoever asks, logged in if that is needed: what it may not see it must not be told.
    ///
    /// # Errors
    /// The answer, if it is no stream.
    fn live(&self, query: &str, client: Client) -> Result<BoxStream<'static, Event>, Reply>;
}

/// Answers what is asked at `/v1/`.
#[derive(Clone)]
pub(crate) struct Api {
    /// The node.
    pub(crate) host: Arc<dyn Host>,
    /// Lets programs change data at an open node; none: nobody does there.
    pub(crate) token: Option<Token>,
}

impl Api {
    /// The answer to a request.
    pub(crate) async fn answer(self, request: Request) -> Reply {
        self.of_path(request).await.unwrap_or_else(|refused| refused)
    }

    async fn of_path(&self, request: Request) -> Result<Reply, Reply> {
        let segments = request.path.strip_prefix("/v1/kv");
        if let Some(segments) = segments.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            let path = place::path(segments)?;
            return self.of_entry(request, &path).await;
        }
        let parameters = Parameters::of(&request)?;
        let action = match request.path.as_str() {
            "/v1" | "/v1/" => {
                parameters.end()?;
                return Ok(lists::index());
            }
            "/v1/openapi.json" => {
                parameters.end()?;
                return Ok(lists::openapi());
            }
            "/v1/live" => {
                let client = self.enter(&request, false).await?;
                let query = request.query.as_deref().unwrap_or_default();
                let holder = client.holder();
                return Ok(Reply::events(self.host.live(query, client)?, holder));
            }
            "/v1/conflicts" => {
                let client = self.enter(&request, false).await?;
                let pace = Pace::of(&client);
                return Ok(trees::conflicts(client, parameters, pace).await?);
            }
            "/v1/history" => {
                let client = self.enter(&request, false).await?;
                let pace = Pace::of(&client);
                return Ok(lists::history(client, parameters, pace).await?);
            }
            "/v1/status" => "status",
            "/v1/members" => "members",
            "/v1/shards" => "list_shards",
            _ => {
                let text = "there is nothing at this path; /v1/ lists what there is";
                return Err(Reply::error(StatusCode::NOT_FOUND, "not_found", text));
            }
        };
        let client = self.enter(&request, false).await?;
        Ok(lists::reply(client, action, parameters).await?)
    }

    async fn of_entry(&self, request: Request, path: &Path) -> Result<Reply, Reply> {
        let mut parameters = Parameters::of(&request)?;
        let writes = matches!(request.method, Method::PUT | Method::DELETE);
        let client = self.enter(&request, writes).await?;
        if writes {
            if request.method == Method::DELETE && parameters.flag("tree")? {
                parameters.end()?;
                return Ok(value::delete_tree(client, &request, path).await?);
            }
            return value::write(client, request, path, parameters).await;
        }
        let pace = Pace::of(&client);
        let asked = ["children", "tree", "watch"].map(|view| parameters.flag(view));
        let [children, tree, watch] = asked;
        Ok(match (children?, tree?, watch?) {
            (false, false, false) => {
                parameters.end()?;
                value::get(client, &request, path, pace).await?
            }
            (true, false, false) => trees::children(client, path, parameters).await?,
            (false, true, false) => trees::tree(client, path, parameters, pace).await?,
            (false, false, true) => trees::watch(client, path, parameters, pace).await?,
            _ => {
                let text = "ask for one of children, tree and watch";
                return Err(Failure::bad_request(text).reply());
            }
        })
    }
}
