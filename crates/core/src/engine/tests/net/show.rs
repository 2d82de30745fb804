//! Engine states and messages as text: `x=1 @3 [a.2 b.1]` is path, value, tock and chain.

use crate::engine::{Engine, Output, Report};
use crate::model::change_time::ChangeTime;
use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeId, NodeName, NodeTable};
use crate::model::path::Path;
use crate::model::seen::{Lineage, Mark, SeenById, export_seen};
use crate::model::tick_set::TickSet;
use crate::protocol::peer::PeerMessage;
use crate::protocol::record::{EventRef, Record};

/// A node's life: the first has incarnation 1 and no suffix.
pub(crate) fn id(id: &NodeId) -> String {
    life(id.name.as_str(), id.incarnation.0)
}

fn life(name: &str, incarnation: u64) -> String {
    if incarnation == 1 { name.to_owned() } else { format!("{name}~{incarnation}") }
}

fn event(event: Event, table: &NodeTable) -> String {
    format!("{}.{}", id(table.get(event.node).unwrap()), event.tick)
}

fn event_ref(event: &EventRef<'_>) -> String {
    format!("{}.{}", life(event.name, event.incarnation.0), event.tick)
}

fn value(value: Option<&[u8]>) -> String {
    match value {
        None => "(deleted)".into(),
        Some([small]) if *small < 0x80 => format!("{small}"),
        Some(bytes) => bytes.escape_ascii().to_string(),
    }
}

pub(crate) fn entry(path: &Path, entry: &Entry, table: &NodeTable) -> String {
    let chain: Vec<String> = entry.events().map(|e| event(e, table)).collect();
    let origin = entry.reissue_of().map(|o| format!(" re-issue of {}", event(o, table)));
    format!(
        "{path}={} @{} [{}]{}{}",
        value(entry.value()),
        entry.tock(),
        chain.join(" "),
        origin.unwrap_or_default(),
        time(entry.time())
    )
}

fn time(time: Option<ChangeTime>) -> String {
    time.map(|time| format!(" at {}", time.ms())).unwrap_or_default()
}

fn record(record: &Record<'_>) -> String {
    let chain: Vec<String> = record.events.iter().map(event_ref).collect();
    let origin = record.origin.as_ref().map(|o| format!(" re-issue of {}", event_ref(o)));
    format!(
        "{}={} @{} [{}]{}{}",
        record.path,
        value(record.value),
        record.tock,
        chain.join(" "),
        origin.unwrap_or_default(),
        time(record.time)
    )
}

pub(crate) fn seen(seen: &SeenById) -> String {
    let mut parts = Vec::new();
    for (node, ticks) in seen {
        for (from, to) in ticks.ranges() {
            let range =
                if to == from + 1 { format!("{from}") } else { format!("{from}-{}", to - 1) };
            parts.push(format!("{}.{range}", id(node)));
        }
    }
    if parts.is_empty() { "nothing".into() } else { parts.join(" ") }
}

pub(crate) fn mark(mark: &Mark) -> String {
    let parts: Vec<String> =
        mark.iter().map(|(l, tock)| format!("{}:{tock}", lineage(l))).collect();
    if parts.is_empty() { "none".into() } else { parts.join(" ") }
}

fn lineage(lineage: &Lineage) -> String {
    match &lineage.0 {
        None => "first".into(),
        Some((node, tick)) => format!("{}.{tick}", id(node)),
    }
}

/// All of a node, several lines.
pub(crate) fn node(engine: &Engine) -> Vec<String> {
    let table = engine.table();
    let mut lines: Vec<String> = engine
        .tree()
        .subtree(&Path::root())
        .map(|(path, e)| format!("  {}", entry(path, e, table)))
        .collect();
    lines.push(format!(
        "  seen {}; mark {}; tock {}",
        seen(&export_seen(table, engine.seen())),
        mark(engine.mark()),
        engine.tock()
    ));
    lines
}

/// Names in alphabetical order: who is whose turn it is does not matter.
pub(crate) fn names(list: &[NodeName]) -> String {
    let mut names: Vec<&str> = list.iter().map(NodeName::as_str).collect();
    names.sort_unstable();
    names.join("+")
}

/// What an output of a node tells of it, in lines; messages are told when they arrive.
pub(crate) fn output(at: &str, output: &Output, table: &NodeTable) -> Vec<String> {
    match output {
        Output::NeedIncarnation => vec![format!("{at} renews its identity")],
        Output::Gone { purged, dropped } => {
            let gone = purged.iter().map(|change| ("purges", change));
            let gone = gone.chain(dropped.iter().map(|change| ("drops", change)));
            gone.map(|(what, change)| {
                format!("{at} {what} {}", entry(&change.path, &change.entry, table))
            })
            .collect()
        }
        Output::Report(Report::Conflict(conflict)) => {
            let [winner, loser] = [&conflict.winner, &conflict.loser]
                .map(|version| entry(&conflict.path, version, table));
            vec![format!("{at} reports a conflict: {winner} stays, {loser} is lost")]
        }
        Output::Report(Report::ResyncStarted { ours, theirs }) => {
            vec![format!("{at}: the split of {} and {} has healed", names(ours), names(theirs))]
        }
        Output::Report(Report::ResyncDone { entries, .. }) => {
            vec![format!("{at}: nothing is missing any more, {entries} fetched")]
        }
        _ => Vec::new(),
    }
}

/// A message in one line; none for those that only say how far one is.
pub(crate) fn message(message: &PeerMessage<'_>) -> Option<String> {
    Some(match message {
        PeerMessage::Change(change) => {
            format!("change {}, mark {}", record(&change.record), mark(&change.mark))
        }
        PeerMessage::Digest(_)
        | PeerMessage::DigestWanted
        | PeerMessage::Ack(_)
        | PeerMessage::Ping(_) => return None,
        PeerMessage::CatchUpAsk(ask) => {
            let counters: Vec<String> =
                ask.contiguous.iter().map(|(node, tick)| format!("{}.{tick}", id(node))).collect();
            format!("1 counters {}, mark {}", counters.join(" "), mark(&ask.mark))
        }
        PeerMessage::CatchUpKnown(known) => {
            let more = if known.more { ", and more" } else { "" };
            format!("2 known {}{more}, mark {}", seen(&known.seen), mark(&known.mark))
        }
        PeerMessage::CatchUpMore { .. } => "2 more".into(),
        PeerMessage::CatchUpMissing { missing, .. } => format!("3 missing {}", seen(missing)),
        PeerMessage::CatchUpPart { records, mark: at, .. } => {
            let records: Vec<String> = records.iter().map(record).collect();
            format!("4 data {}, mark {}", records.join("; "), mark(at))
        }
        PeerMessage::CatchUpEnd { entries, .. } => format!("4 end, {entries} entries"),
        PeerMessage::CatchUpNames(names) => {
            let paths: Vec<String> = names.paths.iter().map(Path::to_string).collect();
            format!("names events {}, paths [{}]", seen(&names.events), paths.join(" "))
        }
        PeerMessage::CatchUpVerdict(verdict) => {
            format!("verdict gone {}, empty {:?}", seen(&verdict.gone), verdict.empty)
        }
        PeerMessage::CatchUpDone { .. } => "done".into(),
        PeerMessage::ContentsAsk(_) => "compare contents".into(),
        PeerMessage::ContentsList(list) => {
            let entries = list.entries.iter().map(|l| {
                let maker = id(&list.makers[l.maker]);
                format!("{} @{} [{maker}.{}]", l.path, l.tock, l.tick)
            });
            format!("holds {}, mark {}", entries.collect::<Vec<_>>().join("; "), mark(&list.mark))
        }
        PeerMessage::ContentsWant(paths) => {
            let paths: Vec<String> = paths.iter().map(Path::to_string).collect();
            format!("lacks {}", paths.join(" "))
        }
        PeerMessage::ContentsVersions { records, .. } => {
            let records: Vec<String> = records.iter().map(record).collect();
            format!("versions {}", records.join("; "))
        }
        PeerMessage::CatchUpInvite => "invite: there are re-issues".into(),
        PeerMessage::CatchUpRefused { reason, .. } => format!("refused: {reason:?}"),
        PeerMessage::Group(hello) => match &hello.config {
            None => return None,
            Some(config) => {
                let names: Vec<&str> = config.members().iter().map(|m| m.name.as_str()).collect();
                let (version, lineage) = (config.version, lineage(&config.lineage));
                format!("group {version} of lineage {lineage}: {}", names.join(" "))
            }
        },
        PeerMessage::Propose(proposal) => {
            let pair = &proposal.pair;
            let holes =
                |(id, ticks): &(NodeId, TickSet)| (id.clone(), ticks.missing_below(ticks.max()));
            let lost: SeenById =
                pair.seen.iter().map(holes).filter(|(_, t)| !t.is_empty()).collect();
            let lost =
                if lost.is_empty() { String::new() } else { format!(", lost {}", seen(&lost)) };
            let next = proposal.next.as_ref().map(|c| {
                let names: Vec<&str> = c.members().iter().map(|m| m.name.as_str()).collect();
                format!(", then members {}", names.join(" "))
            });
            format!(
                "propose {}->{} V {}{lost}{}",
                pair.from.tock(),
                pair.to,
                seen(&pair.seen),
                next.unwrap_or_default()
            )
        }
        PeerMessage::Agree { .. } => "agree".into(),
        PeerMessage::Disagree(_) => "disagree".into(),
        PeerMessage::Announce(pair) => {
            let lineage = lineage(&pair.lineage);
            format!("purge {lineage}: {}->{} V {}", pair.from.tock(), pair.to, seen(&pair.seen))
        }
        PeerMessage::Resync(status) => {
            let done = if status.is_done { ", done" } else { "" };
            format!("resync {} entries, {} remain{done}", status.entries, status.remaining)
        }
        PeerMessage::Topic { .. } => "topic".into(),
        PeerMessage::KillNode(name) => format!("kill_node {name}"),
        PeerMessage::Leave => "leave".into(),
        PeerMessage::Edge(edge) => format!("edge, wanted {}, eager {}", edge.wanted, edge.eager),
        PeerMessage::Relayed(relayed) => format!("passed on for {}", relayed.origin.name),
    })
}
