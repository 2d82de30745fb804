//! What a node says of an entry, and of a write.

use std::cmp::Ordering;

use serde::de::DeserializeOwned;

use crate::chain::{Chain, ChainEvent};
use crate::error::ClientError;
use crate::message::{Message, as_u64};
use crate::model::path::Path;
use crate::model::spelling::LifeRef;
use crate::model::value::Value;
use crate::smart::error::CallError;

/// An entry as a node has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its value; none if it was deleted.
    pub value: Option<Value>,
    /// Its newest event, as a chain, for a precondition; none from an operation that does not
    /// return it.
    pub chain: Option<Chain>,
    /// Its tock.
    pub tock: u64,
    /// When that version was made, by the clock of the node that made it, in milliseconds since 1970: for people, since
    /// clocks can be wrong. None if nobody told it, and from an operation that does not return the chain.
    pub time_ms: Option<u64>,
    /// The node that returned it.
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

    /// Which version it is, as far as is known.
    pub(in crate::smart) fn version(&self) -> Option<Version> {
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
    /// Whether the value changed. False if the value was the same, and for a deletion of an entry
    /// that did not exist.
    pub changed: bool,
    /// The entry's newest event from then on; a chain for the next write's precondition. None if
    /// there was nothing to delete.
    pub chain: Option<Chain>,
    /// The entry's tock.
    pub tock: u64,
    /// The value before, if there was one and no precondition was given.
    pub prev: Option<Value>,
    /// Whether an earlier try had made the change already.
    pub repeated: Repeated,
    /// The node that answered.
    pub node: String,
    /// Tries, the successful one included.
    pub attempts: u32,
}

/// Whether a write was made by an earlier try than the one that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeated {
    /// It was made now, and by no earlier try.
    No,
    /// An earlier try had made it; nothing was changed now.
    Yes,
    /// It was made now, by a node that had not heard of it; an earlier try, at another node, may have
    /// made it, too. The two are one change: there is no conflict, and neither beats a version that
    /// overwrote the other, as far as nodes still know both.
    Maybe,
}

/// A version of an entry: the greater one wins, everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::smart) struct Version {
    pub(in crate::smart) tock: u64,
    pub(in crate::smart) event: ChainEvent,
}

impl Version {
    /// By (tock, node name, incarnation, tick), as nodes decide.
    pub(in crate::smart) fn compare(&self, other: &Version) -> Ordering {
        let (node, other_node) = (&self.event.node, &other.event.node);
        let lives = match (LifeRef::parse(node), LifeRef::parse(other_node)) {
            (Ok(life), Ok(other)) => life.cmp(&other),
            // A server of the original knows names only.
            (Ok(_), Err(_)) | (Err(_), Ok(_) | Err(_)) => node.cmp(other_node),
        };
        let tocks = self.tock.cmp(&other.tock);
        tocks.then(lives).then_with(|| self.event.tick.cmp(&other.event.tick))
    }
}

/// A value from a type of yours: MessagePack, structs as maps with names.
pub(in crate::smart) fn encode<T: serde::Serialize + ?Sized>(
    value: &T,
) -> Result<Value, CallError> {
    let bytes =
        rmp_serde::to_vec_named(value).map_err(|error| CallError::Value(error.to_string()))?;
    Value::new(&bytes).map_err(|error| CallError::Value(error.to_string()))
}

/// The other way.
pub(in crate::smart) fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, CallError> {
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

/// The entry in a message; none if there never was one, as far as the message says.
pub(in crate::smart) fn entry_of(message: &Message, node: &str) -> Result<Entry, ClientError> {
    // All of them in one walk: this is what a read costs most often.
    let (mut value, mut chain, mut tock, mut time) = (None, None, None, None);
    for (key, field) in message.raw_fields() {
        let place = match key {
            b"value" => &mut value,
            b"chain" => &mut chain,
            b"tock" => &mut tock,
            b"time" => &mut time,
            _ => continue,
        };
        place.get_or_insert(field);
    }
    let value = value.map(Value::new).transpose();
    let chain = chain.map(Chain::decode).transpose().map(Option::flatten);
    Ok(Entry {
        value: value.map_err(|_| malformed(node, "value"))?,
        chain: chain.map_err(|_| malformed(node, "chain"))?,
        tock: tock.and_then(as_u64).unwrap_or(0),
        time_ms: time.and_then(as_u64),
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
        repeated: match message.bool("repeated") {
            Some(true) => Repeated::Yes,
            _ => Repeated::No,
        },
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
            version(1, "z~9", 9),
            version(2, "a~1", 1),
            version(2, "a~1", 2),
            version(2, "b~222", 9),
            version(2, "b~1111", 5),
            version(2, "b~2222", 1),
            version(3, "a~1", 1),
        ];
        for (i, a) in order.iter().enumerate() {
            for (j, b) in order.iter().enumerate() {
                assert_eq!(a.compare(b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn versions_of_a_server_that_knows_no_lives_compare_by_name() {
        assert!(version(2, "a", 9).compare(&version(2, "b", 1)).is_lt());
        assert!(version(2, "a", 1).compare(&version(2, "a", 2)).is_lt());
        assert!(version(2, "a", 1).compare(&version(2, "a", 1)).is_eq());
    }
}
