//! What the page shows, as it happens: `/v1/live`.

use std::sync::Weak;

use distkv_http::{Event, Reply, StatusCode};
use futures::stream::BoxStream;

use crate::api::Client;
use crate::node::Inner;

/// The events that `query` asks for, as far as the client may know of them. They end with the node: `_inner` must not be
/// kept in the stream as anything but weak.
pub(super) fn events(
    _inner: &Weak<Inner>,
    _query: &str,
    _client: Client,
) -> Result<BoxStream<'static, Event>, Reply> {
    let text = "this version tells nothing there";
    Err(Reply::error(StatusCode::NOT_IMPLEMENTED, "not_implemented", text))
}
