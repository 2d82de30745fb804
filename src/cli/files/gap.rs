//! A time of which a node has logged nothing, as it tells of it with a state of its past: the state is older than the moment
//! that was asked for, and may lack what came in between.

use serde_json::{Value as Json, json};

use crate::cli::terminal::times::show_time;
use crate::client::Message;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) struct Gap {
    /// When something was logged for the last time, by the node's clock, milliseconds since 1970.
    from_ms: u64,
    /// When logging began anew; none if it has not yet.
    to_ms: Option<u64>,
}

impl Gap {
    /// The gap that a part of a snapshot tells of.
    pub(in crate::cli) fn of(part: &Message) -> Option<Self> {
        let gap = Message::new(part.get("gap")?).ok()?;
        Some(Self { from_ms: gap.u64("from")?, to_ms: gap.u64("to") })
    }

    /// What people should know who see the state.
    pub(in crate::cli) fn note(&self) -> String {
        let from = show_time(self.from_ms);
        let when = match self.to_ms {
            Some(to_ms) => {
                format!("did not run, or could not log, from {from} to {}", show_time(to_ms))
            }
            None => format!("could not log since {from}, and still cannot"),
        };
        format!(
            "this node {when}: this is its state of {from}, without what came to the network after that"
        )
    }

    /// The same for programs.
    pub(in crate::cli) fn json(&self) -> Json {
        json!({"from": show_time(self.from_ms), "to": self.to_ms.map(show_time)})
    }
}
