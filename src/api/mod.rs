//! The HTTP API: what is at `/v1/` (docs/http-api.md). Each request becomes one or a few of a client in the same
//! process, so nothing here decides what is allowed, checks a precondition or changes the tree.
//!
//! | file | what |
//! |---|---|
//! | this one | what is at which path |
//! | `client` | asking the node as a client does; errors |
//! | `rights` | who asks, and whether that may be |

mod client;
mod rights;

use std::net::IpAddr;
use std::sync::Arc;

use distkv_http::{Event, Reply, Request, StatusCode};
use futures::stream::BoxStream;

pub use client::{Client, Failure};
pub use rights::Token;

use crate::server::local_client::LocalClient;

/// The node, as its API sees it.
pub trait Host: Send + Sync {
    /// A client in the same process, which has come from this address.
    ///
    /// # Errors
    /// There is none to be had.
    fn client(&self, address: IpAddr) -> Result<LocalClient, Failure>;

    /// `/v1/live`: what the page shows, as it happens. `query` is what stands behind `?`, as it was sent; `client` is
    /// whoever asks, logged in if that is needed: what it may not see it must not be told.
    ///
    /// # Errors
    /// The answer, if it is no stream.
    fn live(&self, query: &str, client: Client) -> Result<BoxStream<'static, Event>, Reply>;
}

/// Answers what is asked at `/v1/`.
#[derive(Clone)]
pub struct Api {
    /// The node.
    pub host: Arc<dyn Host>,
    /// Lets programs change data at an open node; none: nobody does there.
    pub token: Option<Token>,
}

impl Api {
    /// The answer to a request.
    pub async fn answer(self, request: Request) -> Reply {
        self.of_path(request).await.unwrap_or_else(|refused| refused)
    }

    async fn of_path(&self, request: Request) -> Result<Reply, Reply> {
        match request.path.as_str() {
            "/v1/live" => {
                let client = self.enter(&request, false).await?;
                let query = request.query.as_deref().unwrap_or_default();
                Ok(Reply::events(self.host.live(query, client)?))
            }
            _ => {
                let text = "there is nothing at this path; /v1/ lists what there is";
                Err(Reply::error(StatusCode::NOT_FOUND, "not_found", text))
            }
        }
    }
}
