//! Which entries of some shards differ between two nodes: both are listed in the same order, side by
//! side, so neither is held in memory.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use crate::cli::data::entry::{add_chain_and_tock, chain_text};
use crate::cli::error::CliError;
use crate::cli::remote::Remote;
use crate::cli::terminal::output::{json_of, printable, shown_path, text_of};
use crate::client::{Chain, ChainEvent, Fields, Message, ReplyStream, StreamEvent};
use crate::model::path::Path;
use crate::model::shard::shard_of;

/// The entries of one node, in the order of their paths.
pub(super) struct Lister<'a> {
    remote: &'a Remote,
    stream: ReplyStream,
    /// Where the paths begin.
    top: Path,
    /// Only those in these shards.
    shards: &'a BTreeSet<u16>,
    /// The next one.
    next: Option<(Path, Message)>,
}

impl<'a> Lister<'a> {
    /// Of the system's own tree, or of all others.
    pub(super) async fn open(
        remote: &'a Remote,
        is_system: bool,
        shards: &'a BTreeSet<u16>,
    ) -> Result<Lister<'a>, CliError> {
        let mut fields = Fields::at(&Path::root());
        // Also what is deleted; and who has made each version.
        fields.bool("empty", true).u64("nchain", 1);
        let (action, top) = match is_system {
            true => ("get_tree_internal", Path::system_root()),
            false => ("get_tree", Path::root()),
        };
        let stream = remote.stream(action, &fields).await?;
        let mut lister = Lister { remote, stream, top, shards, next: None };
        lister.advance().await?;
        Ok(lister)
    }

    async fn advance(&mut self) -> Result<(), CliError> {
        self.next = None;
        while let Some(event) = self.remote.next(&mut self.stream).await? {
            let StreamEvent::Item { path, message } = event else { continue };
            // A place with only something below it is no entry.
            let is_entry = matches!(message.get("chain"), Some(chain) if chain != [0xc0]);
            let below = path.unwrap_or_default();
            let Ok(path) = self.top.join(&below) else { continue };
            if is_entry && self.shards.contains(&shard_of(&path)) {
                self.next = Some((path, message));
                return Ok(());
            }
        }
        Ok(())
    }

    async fn take(&mut self) -> Result<Option<(Path, Message)>, CliError> {
        let taken = self.next.take();
        self.advance().await?;
        Ok(taken)
    }
}

/// An entry of which the two nodes have other versions, or only one of them any.
pub(super) struct Difference {
    pub(super) path: Path,
    pub(super) shard: u16,
    a: Option<Message>,
    b: Option<Message>,
}

/// The next difference; none at the end of both.
pub(super) async fn next_difference(
    a: &mut Lister<'_>,
    b: &mut Lister<'_>,
    mut look: impl FnMut() -> Result<(), CliError>,
) -> Result<Option<Difference>, CliError> {
    loop {
        look()?;
        let order = match (&a.next, &b.next) {
            (None, None) => return Ok(None),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let of_a = if order.is_le() { a.take().await? } else { None };
        let of_b = if order.is_ge() { b.take().await? } else { None };
        if let (Some((_, a)), Some((_, b))) = (&of_a, &of_b)
            && is_same(a, b)
        {
            continue;
        }
        let Some(path) = of_a.as_ref().or(of_b.as_ref()).map(|(path, _)| path.clone()) else {
            return Ok(None);
        };
        let (shard, message) = (shard_of(&path), |side: Option<(Path, Message)>| side.map(|s| s.1));
        return Ok(Some(Difference { path, shard, a: message(of_a), b: message(of_b) }));
    }
}

/// Whether two versions are the same, as far as clients can see.
fn is_same(a: &Message, b: &Message) -> bool {
    if a.u64("tock") != b.u64("tock") || a.get("value") != b.get("value") {
        return false;
    }
    newest(a) == newest(b)
}

/// The change that has made this version.
fn newest(message: &Message) -> Option<ChainEvent> {
    Some(Chain::decode(message.get("chain")?).ok()??.newest)
}

impl Difference {
    /// The change that the version of each node comes from, if it has any.
    pub(super) fn changes(&self) -> [Option<ChainEvent>; 2] {
        [&self.a, &self.b].map(|side| newest(side.as_ref()?))
    }

    pub(super) fn json(&self) -> Json {
        let side = |message: &Option<Message>| match message {
            None => Json::Null,
            Some(message) => {
                let mut out = Map::new();
                match message.get("value") {
                    Some(value) => out.insert("value".into(), json_of(value)),
                    None => out.insert("deleted".into(), true.into()),
                };
                add_chain_and_tock(message, &mut out);
                Json::Object(out)
            }
        };
        let mut out = Map::new();
        out.insert("path".into(), self.path.to_string().into());
        out.insert("shard".into(), self.shard.into());
        out.insert("a".into(), side(&self.a));
        out.insert("b".into(), side(&self.b));
        Json::Object(out)
    }

    /// For people; the arguments are the nodes' names.
    pub(super) fn lines(&self, a: &str, b: &str) -> [String; 3] {
        let width = a.chars().count().max(b.chars().count());
        let line = |name: &str, message: &Option<Message>| match message {
            None => format!("   {name:width$}  (nothing)"),
            Some(message) => {
                let value = message.get("value").map_or_else(|| "(deleted)".into(), text_of);
                let (chain, tock) = (chain_text(message), message.u64("tock").unwrap_or(0));
                format!("   {name:width$}  {value}  {}  tock {tock}", printable(&chain))
            }
        };
        let head = format!("{}  (shard {})", shown_path(&self.path), self.shard);
        [head, line(a, &self.a), line(b, &self.b)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(node: &str, tick: u64, tock: u64, value: Option<&[u8]>) -> Message {
        let (mut fields, mut chain) = (Fields::new(), Vec::new());
        Chain::of(node, tick).encode(&mut chain);
        if let Some(value) = value {
            fields.raw("value", value);
        }
        Message::new(&fields.raw("chain", &chain).u64("tock", tock).encode()).unwrap()
    }

    #[test]
    fn versions_are_the_same_if_event_tock_and_value_are() {
        let one = version("n1~ab", 5, 9, Some(&[1]));
        assert!(is_same(&one, &version("n1~ab", 5, 9, Some(&[1]))));
        for other in [
            version("n1~ac", 5, 9, Some(&[1])),
            version("n2~ab", 5, 9, Some(&[1])),
            version("n1~ab", 6, 9, Some(&[1])),
            version("n1~ab", 5, 8, Some(&[1])),
            version("n1~ab", 5, 9, Some(&[2])),
            version("n1~ab", 5, 9, None),
        ] {
            assert!(!is_same(&one, &other));
        }
    }
}
