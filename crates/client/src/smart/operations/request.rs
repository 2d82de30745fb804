//! Any request that has one reply: for actions that have no operation of their own.

use std::time::Duration;

use crate::message::{Fields, Message, as_bool, as_u64};
use crate::model::path::Path;
use crate::model::shard::shard_of;
use crate::retry::Idempotency;
use crate::smart::Client;
use crate::smart::choice::call::Plan;
use crate::smart::error::CallError;

/// Nil as MessagePack.
const NIL: u8 = 0xc0;

/// The actions that are answered with a stream.
const STREAMING: [&str; 9] = [
    "get_tree",
    "get_tree_internal",
    "watch",
    "msg_monitor",
    "conflicts",
    "watch_cluster",
    "get_snapshot",
    "auth",
    "auth_list",
];

/// A request by its fields.
#[derive(Debug, Clone, Copy)]
pub struct RawRequest<'a> {
    /// The action's name.
    pub action: &'a str,
    /// Its fields, the path among them if it has one.
    pub fields: &'a Fields,
    /// The path that it is about, from the root: its preferred node is asked first.
    pub path: &'a Path,
    /// Whether executing it twice has the effect of once: only then is a request of unknown fate
    /// retried.
    pub idempotency: Idempotency,
    /// Whether its write id is all that keeps a second one from counting: then it is not tried again
    /// where nodes are so old that they heed none.
    pub needs_id: bool,
    /// How long one try may take, instead of what the client's policy says.
    pub try_deadline: Option<Duration>,
}

impl Client {
    /// Makes a request, at the node that is preferred for its path, and at others if that fails.
    /// Its writes are not remembered for this client's reads; but they come after all that it knows.
    ///
    /// # Errors
    /// [`CallError`]; its [`CallError::fate`] says whether it may have been carried out. [`CallError::Usage`] where the
    /// action is answered with a stream, which has operations of its own.
    pub async fn request(&self, request: RawRequest<'_>) -> Result<Message, CallError> {
        let RawRequest { action, fields, path, idempotency, needs_id, try_deadline } = request;
        if is_streaming(action, fields) {
            let text = format!("{action} is answered with a stream, which `request` does not read");
            return Err(CallError::Usage(text));
        }
        let plan = Plan {
            try_deadline,
            needs_id,
            begins_soon: action == "delete_tree",
            ..Plan::new(action, shard_of(path), idempotency)
        };
        if idempotency == Idempotency::Read {
            return Ok(self.inner.request(plan, fields).await?.value);
        }
        // What the caller says comes later, and counts.
        let mut all = Fields::new();
        self.inner.order_into(path, false, &mut all);
        Ok(self.inner.request(plan, all.append(fields)).await?.value)
    }
}

fn is_streaming(action: &str, fields: &Fields) -> bool {
    // With versions, it tells each entry.
    let has_versions = || {
        let fields = Message::new(&fields.encode()).ok();
        let counted = fields.as_ref().and_then(|fields| fields.get("nchain"));
        counted.is_some_and(|count| {
            as_u64(count) != Some(0) && as_bool(count) != Some(false) && *count != [NIL]
        })
    };
    STREAMING.contains(&action) || action == "delete_tree" && has_versions()
}
