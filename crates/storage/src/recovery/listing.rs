//! A state as text, line by line, for tests: two states are the same if their listings are. It
//! spells lives and events, so it does not depend on the indices of a node table.

use std::fmt::Write;

use crate::engine::{Decided, Image};
use crate::model::entry::Entry;
use crate::model::group::GroupConfig;
use crate::model::ids::{Event, NodeTable};
use crate::model::path::Path;
use crate::model::seen::{Seen, export_seen};
use crate::replica::come_back::ReplicaImage;

/// The listing of a whole state.
#[must_use]
pub fn list_image(image: &Image) -> String {
    let ReplicaImage { id, table, tree, seen, mark, tick, tock } = &image.replica;
    let mut out = String::new();
    // Writing to a text cannot fail.
    let _ = writeln!(out, "node {id}");
    let _ = writeln!(out, "tick {tick} tock {tock}");
    for (lineage, tock) in mark.iter() {
        let _ = writeln!(out, "mark {lineage} {tock}");
    }
    list_group("group", image.group.as_ref(), &mut out);
    if let Some(Decided { pair, next }) = &image.decided {
        let _ = writeln!(out, "decided {} {} {}", pair.lineage, pair.from.tock(), pair.to);
        list_group("decided next", next.as_ref(), &mut out);
        list_seen("decided seen", &pair.seen, table, &mut out);
    }
    list_seen("seen", seen, table, &mut out);
    for (path, entry) in tree.subtree(&Path::root()) {
        out.push_str(&list_entry(path, entry, table));
        out.push('\n');
    }
    out
}

/// The line of an entry.
#[must_use]
pub(crate) fn list_entry(path: &Path, entry: &Entry, table: &NodeTable) -> String {
    let mut out = format!("entry {} tock {}", hex(path.as_bytes()), entry.tock());
    match entry.value() {
        Some(value) => out.push_str(&format!(" value {}", hex(value))),
        None => out.push_str(" deleted"),
    }
    out.push_str(" chain");
    for event in entry.events() {
        out.push_str(&list_event(event, table));
    }
    if entry.is_chain_cut() {
        out.push_str(" ...");
    }
    if let Some(origin) = entry.reissue_of() {
        out.push_str(&format!(" origin{}", list_event(origin, table)));
    }
    if let Some(time) = entry.time() {
        out.push_str(&format!(" time {}", time.ms()));
    }
    if !entry.extra().is_empty() {
        out.push_str(&format!(" extra {}", hex(entry.extra())));
    }
    out
}

fn list_event(event: Event, table: &NodeTable) -> String {
    format!(" {}", table.spell_event(event))
}

fn list_group(what: &str, group: Option<&GroupConfig>, out: &mut String) {
    let Some(group) = group else { return };
    let _ = writeln!(out, "{what} version {} lineage {}", group.version, group.lineage);
    for member in group.members() {
        let _ = writeln!(
            out,
            "{what} member {} {:016x} durable {}",
            member.name, member.store, member.durable
        );
    }
}

fn list_seen(what: &str, seen: &Seen, table: &NodeTable, out: &mut String) {
    for (id, ticks) in export_seen(table, seen) {
        let _ = write!(out, "{what} {id}");
        for (from, to) in ticks.ranges() {
            let _ = write!(out, " {from}-{}", to - 1);
        }
        out.push('\n');
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
