//! What the judge reads in an engine, spelled so that nodes can be compared.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeId, NodeTable, Tick};
use crate::model::path::Path;
use crate::tree::Tree;

/// An event, as all nodes spell it.
pub(in crate::whole) type EventId = (NodeId, u64);

/// A version of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::whole) struct Version {
    pub(in crate::whole) event: EventId,
    pub(in crate::whole) tock: u64,
    pub(in crate::whole) value: Option<Vec<u8>>,
}

impl Version {
    /// Whether it beats another one: the greater tock, of equal ones the greater name.
    pub(in crate::whole) fn beats(&self, other: &Self) -> bool {
        (self.tock, &self.event) > (other.tock, &other.event)
    }
}

/// An event of a table; unknown ones, which there are none of, as one of nobody.
pub(in crate::whole) fn event_id(table: &NodeTable, event: Event) -> EventId {
    let id = table.get(event.node).cloned().expect("its events are in the table");
    (id, event.tick.get())
}

pub(in crate::whole) fn version(table: &NodeTable, entry: &Entry) -> Version {
    Version {
        event: event_id(table, entry.newest()),
        tock: entry.tock().get(),
        value: entry.value().map(<[u8]>::to_vec),
    }
}

/// All that a tree holds.
pub(in crate::whole) fn contents(table: &NodeTable, tree: &Tree) -> BTreeMap<Path, Version> {
    tree.all().map(|(path, entry)| (path, version(table, &entry))).collect()
}

/// Whether an engine has accounted for an event.
pub(in crate::whole) fn knows(engine: &Engine, id: &NodeId, tick: u64) -> bool {
    let node = engine.table().find(id.name.as_str(), id.incarnation);
    let event = node.zip(Tick::new(tick)).map(|(node, tick)| Event { node, tick });
    event.is_some_and(|event| engine.seen().contains(event))
}
