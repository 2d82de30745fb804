//! Chains as clients see them: nested maps `{node, tick, prev}`, newest event first. `prev` nil
//! ends a chain; `prev` absent means that it was cut off there. Only who asks for one event, or for more than a chain can
//! have, is told so: see [`ChainLength::always_ends`].

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeIndex, NodeName, NodeTable};
use crate::model::invariant::OrBroken;
use crate::model::limits::CHAIN_LEN_MAX;
use crate::model::spelling::LifeRef;
use crate::model::value::{Reader, write_map_len, write_nil, write_str, write_str_len, write_u64};
use crate::protocol::client::error::ClientError;
use crate::protocol::client::reply::MessageWriter;
use crate::protocol::client::request::ChainLength;
use crate::protocol::client::requests::coerce::read_natural;

/// The `chain` field of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainField<'a> {
    /// Not sent.
    Any,
    /// nil, or a chain without a node: the entry must be new.
    New,
    /// The newest event must be this one. The rest of the chain is not looked at.
    Newest {
        /// The life that made it.
        life: LifeRef<'a>,
        /// Its tick, as sent.
        tick: u64,
    },
}

impl<'a> ChainField<'a> {
    /// Decodes the field.
    ///
    /// # Errors
    /// It is neither nil nor a map with a life of a node and a tick. A bare name is none: it would
    /// stand for another life after each restart.
    pub fn decode(raw: Option<&'a [u8]>) -> Result<Self, ClientError> {
        let Some(raw) = raw else { return Ok(Self::Any) };
        let mut reader = Reader::new(raw);
        if reader.take_nil() {
            return Ok(Self::New);
        }
        let bad = |e: crate::model::value::ReadError| {
            ClientError::bad_request(format!("bad field 'chain': {e}"))
        };
        let (mut node, mut tick) = (None, None);
        for _ in 0..reader.read_map_len().map_err(bad)? {
            match reader.read_str_bytes() {
                Ok(b"node") if reader.take_nil() => node = None,
                Ok(b"node") => node = Some(reader.read_str().map_err(bad)?),
                Ok(b"tick") if reader.take_nil() => tick = None,
                Ok(b"tick") => tick = Some(read_natural(&mut reader).map_err(bad)?),
                Ok(_) => reader.skip().map_err(bad)?,
                Err(_) => {
                    reader.skip().map_err(bad)?;
                    reader.skip().map_err(bad)?;
                }
            }
        }
        match (node, tick) {
            (None, _) => Ok(Self::New),
            (Some(node), Some(tick)) => Ok(Self::Newest { life: parse_life("chain", node)?, tick }),
            (Some(_), None) => Err(ClientError::bad_request("bad field 'chain': it has no tick")),
        }
    }
}

/// Reads the life that a field of a request names.
///
/// # Errors
/// [`ClientError`] with the code `bad_request`: it names none, or a node and not one life of it.
pub fn parse_life<'a>(field: &str, text: &'a str) -> Result<LifeRef<'a>, ClientError> {
    let bad = |error| ClientError::bad_request(format!("bad field '{field}': {error}"));
    LifeRef::parse(text).map_err(bad)
}

/// The names under which clients see nodes.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// The known incarnations.
    pub table: &'a NodeTable,
    /// Nodes that were removed from what clients see: their events drop out of chains.
    pub killed: &'a BTreeSet<NodeName>,
}

/// Appends the spelling of a life in a table as a string.
pub(crate) fn write_maker(node: NodeIndex, table: &NodeTable, out: &mut Vec<u8>) {
    write_life(table.id(node).as_life(), out);
}

/// Appends a life's spelling as a string.
pub fn write_life(life: LifeRef<'_>, out: &mut Vec<u8>) {
    write_str_len(life.spelled_len(), out);
    life.spell_into(out);
}

impl Names<'_> {
    fn is_killed(&self, node: NodeIndex) -> bool {
        !self.killed.is_empty() && self.killed.contains(&self.table.id(node).name)
    }

    /// Appends a life's spelling as a string; no allocation.
    pub fn write_life(&self, node: NodeIndex, out: &mut Vec<u8>) {
        write_maker(node, self.table, out);
    }

    /// The events of an entry's chain that clients see: the newest always.
    fn visible(&self, entry: &Entry) -> SmallVec<[Event; CHAIN_LEN_MAX]> {
        entry
            .events()
            .enumerate()
            .filter(|(i, event)| *i == 0 || !self.is_killed(event.node))
            .map(|(_, event)| event)
            .collect()
    }

    /// Appends the first events of an entry's chain, as one map.
    pub fn write_chain(&self, entry: &Entry, length: ChainLength, out: &mut Vec<u8>) {
        let (cut, ends) = (entry.is_chain_cut(), length.always_ends());
        self.write_links(&self.visible(entry), cut, length.events, ends, out);
    }

    /// Appends an event, and what follows it in an entry's chain, as far as it is wanted. Where the
    /// chain does not have it any more, nothing is known of what followed it.
    pub fn write_chain_from(
        &self,
        event: Event,
        entry: Option<&Entry>,
        length: ChainLength,
        out: &mut Vec<u8>,
    ) {
        let chain = entry.iter().flat_map(|entry| entry.events()).skip_while(|e| *e != event);
        let older = chain.skip(1).filter(|event| !self.is_killed(event.node));
        let events: SmallVec<[Event; CHAIN_LEN_MAX]> = [event].into_iter().chain(older).collect();
        let is_whole =
            entry.is_some_and(|e| !e.is_chain_cut() && e.events().any(|other| other == event));
        self.write_links(&events, !is_whole, length.events, length.always_ends(), out);
    }

    /// Adds the first events of an entry's chain as fields of the message itself: `node`,
    /// `tick` and, unless the chain is cut there, `prev`.
    pub fn add_event_fields(
        &self,
        entry: &Entry,
        length: ChainLength,
        message: &mut MessageWriter<'_>,
    ) {
        let events = self.visible(entry);
        let (newest, older) = events.split_first().or_broken("a chain has a newest event");
        self.write_life(newest.node, message.key("node"));
        message.u64("tick", newest.tick.get());
        let cut = entry.is_chain_cut();
        let ends = length.always_ends();
        let is_end = older.is_empty() && (ends || !cut);
        if is_end || (length.events > 1 && !older.is_empty()) {
            self.write_links(older, cut, length.events - 1, ends, message.key("prev"));
        }
    }

    /// `length`: at most so many. `ends`: with nil at the end, whatever follows.
    fn write_links(
        &self,
        events: &[Event],
        cut: bool,
        length: usize,
        ends: bool,
        out: &mut Vec<u8>,
    ) {
        let shown = events.len().min(length);
        if shown == 0 {
            write_nil(out);
        }
        for (i, event) in events.iter().take(shown).enumerate() {
            let is_last = i + 1 == shown;
            let is_end = is_last && (ends || (shown == events.len() && !cut));
            write_map_len(if is_last && !is_end { 2 } else { 3 }, out);
            write_str("node", out);
            self.write_life(event.node, out);
            write_str("tick", out);
            write_u64(event.tick.get(), out);
            if is_end {
                write_str("prev", out);
                write_nil(out);
            } else if !is_last {
                // The next event's map follows.
                write_str("prev", out);
            }
        }
    }
}
