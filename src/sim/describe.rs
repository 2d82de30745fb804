//! What nodes say to each other, in words for the script.

use crate::model::ids::NodeId;
use crate::model::seen::{Mark, SeenById};
use crate::protocol::peer::PeerMessage;
use crate::protocol::record::Record;

/// One message in one line.
pub(super) fn describe(message: &PeerMessage<'_>) -> String {
    match message {
        PeerMessage::Change(change) => {
            format!("change {}{}", record(&change.record), mark(&change.mark))
        }
        PeerMessage::Digest(digest) => format!(
            "digest {}{}{}",
            seen(&digest.seen),
            if digest.ready { "" } else { ", not ready" },
            mark(&digest.mark)
        ),
        PeerMessage::Ack(tick) => format!("acknowledges up to {tick}"),
        PeerMessage::CatchUpAsk(ask) => {
            format!("ask {}: has {}{}", ask.id, seen(&ask.seen), mark(&ask.mark))
        }
        PeerMessage::CatchUpPart { id, mark: at, records } => {
            let records: Vec<String> = records.iter().map(record).collect();
            format!("part {id}: {}{}", records.join(", "), mark(at))
        }
        PeerMessage::CatchUpEnd(end) => {
            format!("end {}: {}{}", end.id, seen(&end.seen), mark(&end.mark))
        }
        PeerMessage::CatchUpRefused { id, reason } => format!("refuses {id}: {reason:?}"),
        PeerMessage::Topic { topic, .. } => format!("topic {topic}"),
        PeerMessage::KillNode(name) => format!("kill {name}"),
        PeerMessage::Leave => "farewell".to_owned(),
    }
}

fn record(record: &Record<'_>) -> String {
    let events: Vec<String> = record
        .events
        .iter()
        .map(|e| format!("{}~{:x}.{}", e.name, e.incarnation.0 & 0xffff, e.tick))
        .collect();
    format!(
        "{}{}@{} {}{}",
        events.join(" "),
        if record.value.is_none() { "D" } else { "" },
        record.tock,
        record.path,
        if record.origin.is_some() { " (re-issue)" } else { "" }
    )
}

fn seen(seen: &SeenById) -> String {
    let of = |(id, ticks): &(NodeId, crate::model::tick_set::TickSet)| {
        let ranges: Vec<String> = ticks
            .ranges()
            .map(|(from, to)| {
                if to == from + 1 { format!("{from}") } else { format!("{from}-{}", to - 1) }
            })
            .collect();
        format!("{}~{:x}:{}", id.name, id.incarnation.0 & 0xffff, ranges.join(","))
    };
    let all: Vec<String> = seen.iter().map(of).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(" ") }
}

fn mark(mark: &Mark) -> String {
    let of = |(lineage, tock): (&crate::model::seen::Lineage, crate::model::ids::Tock)| {
        match &lineage.0 {
            None => tock.to_string(),
            Some((id, tick)) => format!("{}.{tick}:{tock}", id.name),
        }
    };
    let all: Vec<String> = mark.iter().map(of).collect();
    if all.is_empty() { String::new() } else { format!(", mark {}", all.join(" ")) }
}
