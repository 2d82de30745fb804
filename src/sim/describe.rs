//! What nodes say to each other, in words for the script.

use crate::model::group::{GroupConfig, Member};
use crate::model::ids::{NodeId, Tick, Tock};
use crate::model::seen::{Lineage, Mark, SeenById};
use crate::model::tick_set::TickSet;
use crate::protocol::peer::{PairById, PeerMessage, Unnamed};
use crate::protocol::record::Record;

/// One message in one line.
pub(super) fn describe(message: &PeerMessage<'_>) -> String {
    match message {
        PeerMessage::Change(change) => {
            format!("change {}{}", record(&change.record), mark(&change.mark))
        }
        PeerMessage::Digest(digest) => format!(
            "digest {}{}{}{}",
            seen(&digest.seen),
            match digest.unnamed {
                Unnamed::Unsaid => String::new(),
                Unnamed::Follows => ", part of several".to_owned(),
                Unnamed::Sum(sum) => format!(", and {} others", sum.count),
            },
            if digest.ready { "" } else { ", not ready" },
            mark(&digest.mark)
        ),
        PeerMessage::DigestWanted => "wants a digest of everything".to_owned(),
        PeerMessage::Ack(tick) => format!("acknowledges up to {tick}"),
        PeerMessage::CatchUpAsk(ask) => {
            let of = |(id, tick): &(NodeId, Tick)| format!("{}.{tick}", life(id));
            let counters: Vec<String> = ask.contiguous.iter().map(of).collect();
            format!("ask {}: up to {}{}", ask.id, counters.join(" "), mark(&ask.mark))
        }
        PeerMessage::CatchUpKnown(known) => {
            format!("known {}: {}{}", known.id, seen(&known.seen), mark(&known.mark))
        }
        PeerMessage::CatchUpMissing { id, missing } => format!("missing {id}: {}", seen(missing)),
        PeerMessage::CatchUpPart { id, mark: at, records } => {
            let records: Vec<String> = records.iter().map(record).collect();
            format!("part {id}: {}{}", records.join(", "), mark(at))
        }
        PeerMessage::CatchUpEnd { id, entries } => format!("end {id}: {entries} entries"),
        PeerMessage::CatchUpNames(names) => {
            let paths: Vec<String> = names.paths.iter().map(ToString::to_string).collect();
            format!("names {}: {}; at {}", names.id, seen(&names.events), paths.join(" "))
        }
        PeerMessage::CatchUpVerdict(verdict) => {
            format!(
                "verdict {}: gone {}; empty {:?}",
                verdict.id,
                seen(&verdict.gone),
                verdict.empty
            )
        }
        PeerMessage::CatchUpDone { id } => format!("done {id}"),
        PeerMessage::CatchUpInvite => "invites".to_owned(),
        PeerMessage::Edge(edge) => format!("edge: wanted {}, eager {}", edge.wanted, edge.eager),
        PeerMessage::Relayed(relayed) => {
            format!("passes on {} of {}", relayed.number, life(&relayed.origin))
        }
        PeerMessage::Ping(ping) => {
            let history: Vec<String> = ping.history.iter().map(ToString::to_string).collect();
            let met = if ping.meetings.is_empty() { "" } else { ", of a meeting" };
            let turn = ping.turn;
            format!("ping {} of turn {turn}: {}{met}", ping.group.0, history.join(" "))
        }
        PeerMessage::Resync(status) => format!("resync {status:?}"),
        PeerMessage::Group(hello) => format!(
            "group: is {}; {}",
            member(&hello.member),
            hello.config.as_ref().map_or_else(|| "no list".to_owned(), group)
        ),
        PeerMessage::Propose(proposal) => format!(
            "proposes {}: {}, lost {}{}",
            proposal.round.number,
            pair(&proposal.pair),
            seen(&proposal.lost),
            proposal.next.as_ref().map_or_else(String::new, |c| format!(", next {}", group(c)))
        ),
        PeerMessage::Agree { round, .. } => format!("agrees to {}", round.number),
        PeerMessage::Disagree(round) => format!("disagrees to {}", round.number),
        PeerMessage::Announce(announced) => format!("announces {}", pair(announced)),
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
    let of = |(id, ticks): &(NodeId, TickSet)| {
        let ranges: Vec<String> = ticks
            .ranges()
            .map(
                |(from, to)| {
                    if to == from + 1 { format!("{from}") } else { format!("{from}-{}", to - 1) }
                },
            )
            .collect();
        format!("{}:{}", life(id), ranges.join(","))
    };
    let all: Vec<String> = seen.iter().map(of).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(" ") }
}

fn life(id: &NodeId) -> String {
    format!("{}~{:x}", id.name, id.incarnation.0 & 0xffff)
}

fn lineage(lineage: &Lineage) -> String {
    match &lineage.0 {
        None => "the first".to_owned(),
        Some((id, tick)) => format!("{}.{tick}", life(id)),
    }
}

fn pair(pair: &PairById) -> String {
    format!("{} {} → {} of {}", lineage(&pair.lineage), pair.from, pair.to, seen(&pair.seen))
}

fn member(member: &Member) -> String {
    format!("{}/{:x}", member.name, member.store & 0xffff)
}

/// A member list in a few words.
pub(super) fn group(config: &GroupConfig) -> String {
    let members: Vec<String> = config.members().iter().map(member).collect();
    format!("v{} {} of {}", config.version, members.join(" "), lineage(&config.lineage))
}

fn mark(mark: &Mark) -> String {
    let of = |(of, tock): (&Lineage, Tock)| format!("{}:{tock}", lineage(of));
    let all: Vec<String> = mark.iter().map(of).collect();
    if all.is_empty() { String::new() } else { format!(", mark {}", all.join(" ")) }
}
