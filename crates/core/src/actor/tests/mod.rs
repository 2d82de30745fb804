//! Tests of the election as a whole: one actor at a time, and networks of them.
//!
//! The networks run some seeds each; `DISTKV_ACTOR_SEEDS=5000` makes them run 5,000 (in release:
//! `cargo test --release --lib actor::tests -- --nocapture`), and `=144..145` a single one.

mod hostile;
mod inside;
mod net;
mod pings;
mod rough;
mod single;
mod splits;
mod start;

use std::ops::Range;

use crate::model::ids::NodeName;

/// Names from a text, between blanks.
pub(in crate::actor) fn names(text: &str) -> Vec<NodeName> {
    text.split_whitespace().map(|name| NodeName::new(name).unwrap()).collect()
}

/// The other way round.
pub(in crate::actor) fn text(names: impl IntoIterator<Item = NodeName>) -> String {
    names.into_iter().map(|name| name.to_string()).collect::<Vec<_>>().join(" ")
}

/// The seeds to run: so many, or those that were asked for.
fn seeds(count: u64) -> Range<u64> {
    let Ok(asked) = std::env::var("DISTKV_ACTOR_SEEDS") else { return 0..count };
    let number = |text: &str| text.parse().expect("DISTKV_ACTOR_SEEDS is no number");
    match asked.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(&asked),
    }
}
