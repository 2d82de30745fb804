//! The small tasks of a node: time for the engine, its reports for the log, stalled links.

mod meetings;

use std::sync::Arc;
use std::time::Duration;

use super::durable::Durable;
use super::link::Links;
use super::monitoring::conflicts::ConflictLog;
use super::monitoring::isolation::Isolation;
use super::monitoring::memory::MemoryWatch;
use super::monitoring::plaintext::PlaintextWatch;
use crate::engine::{CatchUpFailure, Engine, Input, Report, TICK_INTERVAL_MS};
use crate::hub::Hub;
use crate::model::count::count_of;
use crate::model::ids::{Incarnation, Millis, NodeId, NodeName, NodeTable};
use crate::rt;
use meetings::Meetings;

/// Links without progress are looked for this often.
const STALL_CHECK_INTERVAL_MS: Millis = 1_000;
/// A node renews its incarnation at most this often: each one is remembered for ever.
const RENEW_INTERVAL_MS: Millis = 1_000;

/// Tells the engine that time passes, until the node ends.
pub(super) async fn keep_time(
    links: Arc<Links>,
    durable: Option<Arc<Durable>>,
    isolation: Arc<Isolation>,
) {
    let interval = Duration::from_millis(TICK_INTERVAL_MS);
    let (mut check_due, mut last) = (0, rt::now());
    let mut memory = MemoryWatch::default();
    let mut plaintext = PlaintextWatch::default();
    let takes_plaintext = links.keys.as_ref().is_some_and(|keys| keys.takes_plaintext());
    while links.stop.or(rt::sleep(interval)).await.is_some() {
        let now = rt::now();
        links.observed.note_tick(now, now.saturating_sub(last).saturating_sub(TICK_INTERVAL_MS));
        links.hub.handle(Input::Tick, now);
        if now.saturating_sub(last) >= STALL_CHECK_INTERVAL_MS {
            // This process stood still. The peers' messages of that time must be read first.
            check_due = now + STALL_CHECK_INTERVAL_MS;
            durable.iter().for_each(|durable| durable.forgive());
        }
        last = now;
        if now >= check_due {
            check_due = now + STALL_CHECK_INTERVAL_MS;
            links.close_stalled();
            links.keep_told();
            links.keep_known();
            memory.look(links.hub.read(Engine::memory_excess), now);
            plaintext.look(takes_plaintext, now);
            let is_alone = links.count() == 0 && !links.addresses().is_empty();
            let is_behind = || links.hub.read(Engine::lacks_anything);
            isolation.look(is_alone, is_behind, now);
            durable.iter().for_each(|durable| durable.watch(now));
        }
    }
}

/// Writes the engine's reports to the log, and gives it fresh incarnations, until the node
/// ends.
pub(super) async fn report(links: Arc<Links>) {
    let mut renewed_at = None::<Millis>;
    // Progress that is none is not logged again: on a slow line it is reported for long.
    let mut progress = None;
    let mut meetings = Meetings::default();
    let mut conflicts = ConflictLog::default();
    loop {
        let listener = links.hub.attention.listen();
        let (reports, dropped) = links.hub.take_reports();
        if !reports.is_empty() {
            let table = links.hub.read(|e| Arc::clone(e.table()));
            for report in &reports {
                match report {
                    Report::CatchUpFailed { .. } => links.observed.note_failed_catch_up(),
                    Report::GroupChanged { config } => {
                        links.observed.note_group(config.members().iter().map(|m| m.name.clone()));
                    }
                    Report::CatchUpDone { entries, .. } => {
                        links.observed.live.note_caught_up(*entries);
                    }
                    Report::ResyncDone { entries, lasted_ms } => {
                        let conflicts = links.hub.read(|e| e.counters().conflicts);
                        links.observed.live.note_healed(*entries, *lasted_ms, conflicts);
                        progress = None;
                    }
                    _ => {}
                }
                let is_of_split = match report {
                    Report::ResyncStarted { theirs, .. } => {
                        meetings.on_met(theirs, &links.swim.roster().members, rt::now())
                    }
                    Report::ResyncDone { entries, .. } => meetings.on_healed(*entries),
                    _ => true,
                };
                if let Some((kind, text)) = for_pages(report).filter(|_| is_of_split) {
                    links.observed.live.note(kind, text);
                }
                if let Report::ResyncProgress { entries, remaining } = report
                    && progress.replace((*entries, *remaining)) == Some((*entries, *remaining))
                {
                    continue;
                }
                match report {
                    Report::Conflict(conflict) => conflicts.log(conflict, &table, rt::now()),
                    _ => log(&links.hub, report, is_of_split, &table),
                }
            }
        }
        if dropped > 0 {
            conflicts.note_dropped(dropped, rt::now());
        }
        conflicts.tell(rt::now());
        if links.hub.take_incarnation_need() {
            let since = renewed_at.map_or(RENEW_INTERVAL_MS, |at| rt::now().saturating_sub(at));
            let wait = RENEW_INTERVAL_MS.saturating_sub(since);
            if links.stop.or(rt::sleep(Duration::from_millis(wait))).await.is_none() {
                conflicts.tell(Millis::MAX);
                return;
            }
            renewed_at = Some(rt::now());
            let incarnation = Incarnation::of_random(rt::random_u64());
            links.hub.handle(Input::Renewed { incarnation }, rt::now());
            links.on_renewed();
        }
        let news = async {
            match conflicts.due_in(rt::now()) {
                Some(wait_ms) => drop(rt::timeout(Duration::from_millis(wait_ms), listener).await),
                None => listener.await,
            }
        };
        if links.stop.or(news).await.is_none() {
            conflicts.tell(Millis::MAX);
            return;
        }
    }
}

/// `is_of_split`: not only lists of housekeepers have met.
fn log(hub: &Hub, report: &Report, is_of_split: bool, table: &NodeTable) {
    match report {
        // They have a log of their own.
        Report::Conflict(_) => {}
        Report::CatchUpStarted { peer, missing } => {
            tracing::info!(%peer, missing, "catching up");
        }
        Report::CatchUpDone { peer, entries } => {
            let total = hub.read(|e| e.tree().len());
            tracing::info!(%peer, entries, total, "caught up");
        }
        Report::CatchUpFailed { peer, reason } => match reason {
            CatchUpFailure::Refused(reason) => {
                tracing::info!(%peer, ?reason, "the peer does not answer the catch-up; retrying");
            }
            CatchUpFailure::AcrossPurge | CatchUpFailure::Silent | CatchUpFailure::TooMuch => {
                tracing::warn!(%peer, ?reason, "the catch-up failed; retrying");
            }
            CatchUpFailure::LinkDown => {
                tracing::info!(%peer, "the link broke during the catch-up; retrying");
            }
        },
        Report::HousekeepersChanged { list } => {
            tracing::info!(list = names(list), "housekeepers elected");
        }
        Report::ResyncStarted { ours, theirs } if !is_of_split => tracing::debug!(
            ours = names(ours),
            theirs = names(theirs),
            "two lists of housekeepers have met, and nobody was away: a link was made anew, or a node stood still"
        ),
        Report::ResyncStarted { ours, theirs } => tracing::info!(
            ours = names(ours),
            theirs = names(theirs),
            "two sides of a split have met; the first housekeeper of each asks the other side"
        ),
        Report::ResyncProgress { entries, remaining } => {
            tracing::info!(entries, remaining, "fetching what the other side has");
        }
        Report::ResyncDone { lasted_ms, .. } if !is_of_split => {
            tracing::debug!(lasted_ms, "nothing was missing here");
        }
        Report::ResyncDone { entries, lasted_ms } => {
            tracing::info!(entries, lasted_ms, "the split is healed: nothing is missing here");
        }
        Report::Purged { tombstones, to } => {
            tracing::debug!(tombstones, %to, "dropped deleted entries that all have agreed on");
        }
        Report::GroupChanged { config } => tracing::info!(
            version = config.version,
            members =
                config.members().iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join(" "),
            "the Delete group has these members now"
        ),
        Report::ContentsDiffer { peer } => tracing::error!(
            %peer,
            "this node and the peer have accounted for the same changes and hold different entries; \
             was a data directory set back, or copied? The entries are compared and repaired"
        ),
        Report::ContentsMended { peer, path, event } => {
            tracing::error!(
                %peer, %path, event = %table.spell_event(*event),
                "this change had another content at the peer; the entry was repaired, and \
                 `conflicts` shows what lost"
            );
        }
        Report::Renewed { incarnation } => {
            let own = hub.read(|e| e.id().clone());
            tracing::warn!(
                life = %NodeId { incarnation: *incarnation, ..own },
                "somebody else uses this node's identity (a copied disk?); going on under a new \
                 incarnation"
            );
        }
    }
}

/// A report for pages, if it is one: its kind, and a line without paths or values.
fn for_pages(report: &Report) -> Option<(&'static str, String)> {
    Some(match report {
        // Conflicts are many, and have a view of their own; progress is shown while there is some.
        Report::Conflict(_)
        | Report::ResyncProgress { .. }
        | Report::ResyncDone { .. }
        | Report::Purged { .. } => return None,
        // As where only a purge has not come here: no change is missing.
        Report::CatchUpStarted { peer, missing: 0 } => {
            ("catch-up", format!("asked {peer} whether it knows more"))
        }
        Report::CatchUpStarted { peer, missing } => {
            let missing = count_of(*missing, "change that is", "changes that are");
            ("catch-up", format!("asked {peer} for {missing} missing here"))
        }
        Report::CatchUpDone { peer, entries } => {
            ("catch-up", format!("{} came from {peer}", count_of(*entries, "entry", "entries")))
        }
        Report::CatchUpFailed { peer, .. } => {
            ("catch-up", format!("{peer} did not answer in full; asking again"))
        }
        Report::HousekeepersChanged { list } => {
            ("keepers", format!("the housekeepers are {}", names(list)))
        }
        Report::ResyncStarted { ours, theirs } => {
            ("met", format!("two sides of a split have met: {} and {}", names(ours), names(theirs)))
        }
        Report::GroupChanged { config } => {
            let count = count_of(config.members().len() as u64, "member", "members");
            ("group", format!("the Delete group has {count} now"))
        }
        Report::ContentsDiffer { peer } => {
            ("contents", format!("{peer} holds other entries for the same changes"))
        }
        Report::ContentsMended { peer, .. } => {
            ("contents", format!("an entry was repaired from {peer}"))
        }
        Report::Renewed { .. } => {
            ("renewed", String::from("somebody else used this node's identity; it has a new one"))
        }
    })
}

fn names(list: &[NodeName]) -> String {
    list.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_told_of_no_changes_that_are_missing_only_where_some_are() {
        let told = |missing| {
            let peer = NodeName::new("n2").unwrap();
            for_pages(&Report::CatchUpStarted { peer, missing }).unwrap().1
        };
        assert_eq!(told(0), "asked n2 whether it knows more");
        assert_eq!(told(1), "asked n2 for 1 change that is missing here");
        assert_eq!(told(2), "asked n2 for 2 changes that are missing here");
    }
}
