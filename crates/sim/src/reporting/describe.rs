//! What nodes say to each other, in words for the script.

use crate::model::group::{GroupConfig, Member};
use crate::model::ids::{NodeId, Tick, Tock};
use crate::model::seen::{Lineage, Mark, SeenById};
use crate::model::tick_set::TickSet;
use crate::protocol::peer::{Listed, PairById, PeerMessage, Unnamed};
use crate::protocol::record::{EventRef, Record};

/// One message in one line.
pub(crate) fn describe(message: &PeerMessage<'_>) -> String {
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
                Unnamed::TooLong => ", too long".to_owned(),
            },
            if digest.ready { "" } else { ", not ready" },
            mark(&digest.mark)
        ),
        PeerMessage::DigestWanted => "wants a digest of everything".to_owned(),
        PeerMessage::Ack(tick) => format!("acknowledges up to {tick}"),
        PeerMessage::CatchUpAsk(ask) => {
            let of = |(id, tick): &(NodeId, Tick)| format!("{id}:{tick}");
            let counters: Vec<String> = ask.contiguous.iter().map(of).collect();
            format!("ask {}: up to {}{}", ask.id, counters.join(" "), mark(&ask.mark))
        }
        PeerMessage::CatchUpKnown(known) => {
            let more = if known.more { " and more" } else { "" };
            format!("known {}: {}{more}{}", known.id, seen(&known.seen), mark(&known.mark))
        }
        PeerMessage::CatchUpMore { id } => format!("more {id}"),
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
            format!("passes on {} of {}", relayed.number, relayed.origin)
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
            "proposes {}: {}{}",
            proposal.round.number,
            pair(&proposal.pair),
            proposal.next.as_ref().map_or_else(String::new, |c| format!(", next {}", group(c)))
        ),
        PeerMessage::Agree { round, .. } => format!("agrees to {}", round.number),
        PeerMessage::Disagree(round) => format!("disagrees to {}", round.number),
        PeerMessage::Announce(announced) => format!("announces {}", pair(announced)),
        PeerMessage::CatchUpRefused { id, reason } => format!("refuses {id}: {reason:?}"),
        PeerMessage::Topic { topic, .. } => format!("topic {topic}"),
        PeerMessage::KillNode(name) => format!("kill {name}"),
        PeerMessage::Leave => "farewell".to_owned(),
        PeerMessage::ContentsAsk(ask) => {
            format!("asks to compare contents: {} buckets", ask.sums.len())
        }
        PeerMessage::ContentsList(list) => {
            let of = |l: &Listed| {
                let maker = list.makers.get(l.maker).map_or_else(String::new, ToString::to_string);
                format!("{maker}:{}@{} {}", l.tick, l.tock, l.path)
            };
            let entries: Vec<String> = list.entries.iter().map(of).collect();
            format!("holds {}{}", entries.join(", "), mark(&list.mark))
        }
        PeerMessage::ContentsWant(paths) => {
            let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
            format!("lacks what is at {}", paths.join(" "))
        }
        PeerMessage::ContentsVersions { mark: at, records } => {
            let records: Vec<String> = records.iter().map(record).collect();
            format!("versions: {}{}", records.join(", "), mark(at))
        }
    }
}

fn record(record: &Record<'_>) -> String {
    let events: Vec<String> = record.events.iter().map(EventRef::to_string).collect();
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
        format!("{id}:{}", ranges.join(","))
    };
    let all: Vec<String> = seen.iter().map(of).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(" ") }
}

fn lineage(lineage: &Lineage) -> String {
    match &lineage.0 {
        None => "the first".to_owned(),
        Some((id, tick)) => format!("{id}:{tick}"),
    }
}

fn pair(pair: &PairById) -> String {
    let rest = match pair.rest.count {
        0 => String::new(),
        count => format!(" and {count} others"),
    };
    let named = seen(&pair.seen);
    format!("{} {} → {} of {named}{rest}", lineage(&pair.lineage), pair.from.tock(), pair.to)
}

fn member(member: &Member) -> String {
    format!("{}/{:x}", member.name, member.store & 0xffff)
}

/// A member list in a few words.
pub(crate) fn group(config: &GroupConfig) -> String {
    let members: Vec<String> = config.members().iter().map(member).collect();
    format!("v{} {} of {}", config.version, members.join(" "), lineage(&config.lineage))
}

fn mark(mark: &Mark) -> String {
    let of = |(of, tock): (&Lineage, Tock)| format!("{}:{tock}", lineage(of));
    let all: Vec<String> = mark.iter().map(of).collect();
    if all.is_empty() { String::new() } else { format!(", mark {}", all.join(" ")) }
}
