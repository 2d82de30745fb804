//! What a node says of an entry, and of a write.

use std::cmp::Ordering;

use serde::de::DeserializeOwned;

use super::error::CallError;
use crate::client::chain::{Chain, ChainEvent};
use crate::client::error::ClientError;
use crate::client::message::Message;
use crate::model::path::Path;
use crate::model::value::Value;

/// An entry as a node has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its value; none where it was deleted.
    pub value: Option<Value>,
    /// Its newest event, as a chain, for a precondition; none from an operation that does not tell.
    pub chain: Option<Chain>,
    /// Its tock.
    pub tock: u64,
    /// The node that told it.
    pub node: String,
}

impl Entry {
    /// The value, as a type of yours.
    ///
    /// # Errors
    /// [`CallError::Value`]: there is none, or it is not of this type.
    pub fn get<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        let value = self.value.as_ref();
        decode(value.ok_or_else(|| CallError::Value(String::from("the entry was deleted")))?)
    }

    /// Which version it is, as far as that was told.
    pub(super) fn version(&self) -> Option<Version> {
        let chain = self.chain.as_ref()?;
        Some(Version { tock: self.tock, event: chain.newest.clone() })
    }
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Its whole path.
    pub path: Path,
    /// The rest.
    pub entry: Entry,
}

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Whether the value is another one than before. False for the same value again, and for a
    /// deletion of what was not there.
    pub changed: bool,
    /// The entry's newest event from then on; a chain for the next write's precondition. None where
    /// nothing was there to delete.
    pub chain: Option<Chain>,
    /// The entry's tock.
    pub tock: u64,
    /// The value before, if there was one and no precondition was given.
    pub prev: Option<Value>,
    /// An earlier try had made the change already.
    pub repeated: bool,
    /// The node that answered.
    pub node: String,
    /// Tries, the successful one included.
    pub attempts: u32,
}

/// A version of an entry: the greater one wins, everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) tock: u64,
    pub(super) event: ChainEvent,
}

impl Version {
    /// By (tock, node name, incarnation, tick), as nodes decide. Labels say little of incarnations: of
    /// two lives of one node with the same tock at one path, which nearly never happens, the
    /// labels' text decides.
    pub(super) fn compare(&self, other: &Version) -> Ordering {
        let (name, life) = parts(&self.event.node);
        let (other_name, other_life) = parts(&other.event.node);
        let lives = match (life, other_life) {
            // Where only one life is known, a node does not name it.
            (None, _) | (_, None) => Ordering::Equal,
            (Some(life), Some(other)) if life.ends_with(other) || other.ends_with(life) => {
                Ordering::Equal
            }
            (Some(life), Some(other)) => life.cmp(other),
        };
        self.tock
            .cmp(&other.tock)
            .then_with(|| name.cmp(other_name))
            .then(lives)
            .then_with(|| self.event.tick.cmp(&other.event.tick))
    }
}

/// A label's name, and its life where that is named.
fn parts(label: &str) -> (&str, Option<&str>) {
    match label.split_once('~') {
        Some((name, life)) => (name, Some(life)),
        None => (label, None),
    }
}

/// A value from a type of yours: MessagePack, structs as maps with names.
pub(super) fn encode<T: serde::Serialize + ?Sized>(value: &T) -> Result<Value, CallError> {
    let bytes =
        rmp_serde::to_vec_named(value).map_err(|error| CallError::Value(error.to_string()))?;
    Value::new(&bytes).map_err(|error| CallError::Value(error.to_string()))
}

/// The other way.
pub(super) fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, CallError> {
    rmp_serde::from_slice(value.as_bytes()).map_err(|error| CallError::Value(error.to_string()))
}

/// What does not fit the protocol in a message that came.
pub(super) fn malformed(node: &str, what: &str) -> ClientError {
    let reason = format!("{what} in its answer is not what it must be");
    ClientError::Protocol { address: node.to_owned(), reason }
}

/// The value in a message, if it has one.
pub(super) fn value_of(
    message: &Message,
    name: &str,
    node: &str,
) -> Result<Option<Value>, ClientError> {
    let value = message.get(name).map(Value::new).transpose();
    value.map_err(|_| malformed(node, name))
}

/// The chain in a message, if it has one that is not nil.
pub(super) fn chain_of(message: &Message, node: &str) -> Result<Option<Chain>, ClientError> {
    let chain = message.get("chain").map(Chain::decode).transpose();
    chain.map(Option::flatten).map_err(|_| malformed(node, "chain"))
}

/// The entry in a message; none where nothing was ever there, as far as the message tells.
pub(super) fn entry_of(message: &Message, node: &str) -> Result<Entry, ClientError> {
    Ok(Entry {
        value: value_of(message, "value", node)?,
        chain: chain_of(message, node)?,
        tock: message.u64("tock").unwrap_or(0),
        node: node.to_owned(),
    })
}

/// What a write's reply says.
pub(super) fn written_of(message: &Message, node: &str) -> Result<Written, ClientError> {
    Ok(Written {
        changed: message.bool("changed").unwrap_or(true),
        chain: chain_of(message, node)?,
        tock: message.u64("tock").unwrap_or(0),
        prev: value_of(message, "prev", node)?,
        repeated: message.bool("repeated").unwrap_or(false),
        node: node.to_owned(),
        attempts: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(tock: u64, node: &str, tick: u64) -> Version {
        Version { tock, event: ChainEvent { node: node.into(), tick: Some(tick) } }
    }

    #[test]
    fn versions_compare_by_tock_name_life_and_tick() {
        let order = [
            version(1, "z", 9),
            version(2, "a", 1),
            version(2, "a", 2),
            version(2, "b~1111", 5),
            version(2, "b~2222", 1),
            version(3, "a", 1),
        ];
        for (i, a) in order.iter().enumerate() {
            for (j, b) in order.iter().enumerate() {
                assert_eq!(a.compare(b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_label_with_and_without_its_life_is_the_same_node() {
        let (plain, short) = (version(2, "a", 1), version(2, "a~5678", 1));
        let long = version(2, "a~0000000000015678", 1);
        assert_eq!(plain.compare(&short), Ordering::Equal);
        assert_eq!(long.compare(&short), Ordering::Equal);
    }
}
