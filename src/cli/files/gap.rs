//! Why a state of a node's past may not be that of the moment that was asked for, as the node tells of it. Either it has logged
//! nothing around the moment, and the state is older, and may lack what came in between. Or its clock was set back, and it is
//! not clear which state is meant.

use serde_json::{Value as Json, json};

use crate::cli::terminal::times::show_time;
use crate::client::Message;
use crate::storage::recover::PastGap;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) struct Gap(pub(in crate::cli) PastGap);

impl Gap {
    /// The gap that a part of a snapshot tells of.
    pub(in crate::cli) fn of(part: &Message) -> Option<Self> {
        let gap = Message::new(part.get("gap")?).ok()?;
        let (from_ms, to_ms) = (gap.u64("from")?, gap.u64("to"));
        let is_set_back = gap.bool("clock").unwrap_or_default();
        Some(Self(PastGap { from_ms, to_ms, is_set_back }))
    }

    /// What people should know who see the state.
    pub(in crate::cli) fn note(&self) -> String {
        let from = show_time(self.0.from_ms);
        let when = match self.0.to_ms.map(show_time) {
            Some(to) if self.0.is_set_back => {
                return format!(
                    "this node's clock was set back from {to} to {from}, so it is not clear which state is that of a moment \
                     between the two: this is the last that can be meant"
                );
            }
            Some(to) => {
                format!(
                    "did not run, or could not log, or its clock leapt ahead, from {from} to {to}"
                )
            }
            None => format!("could not log since {from}, and still cannot"),
        };
        format!(
            "this node {when}: this is its state of {from}, without what came to the network after that"
        )
    }

    /// Which moment to take instead.
    pub(in crate::cli) fn other_moment(&self) -> String {
        match self.0.to_ms.map(show_time).filter(|_| self.0.is_set_back) {
            Some(to) => format!("a moment before {} or after {to}", show_time(self.0.from_ms)),
            None => String::from("another moment"),
        }
    }

    /// The same as [`Self::note`] for programs.
    pub(in crate::cli) fn json(&self) -> Json {
        let (from, to) = (show_time(self.0.from_ms), self.0.to_ms.map(show_time));
        let mut told = json!({"from": from, "to": to});
        if let Some(told) = told.as_object_mut().filter(|_| self.0.is_set_back) {
            told.insert("clock".into(), true.into());
        }
        told
    }
}
