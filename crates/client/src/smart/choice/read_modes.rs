//! Whose answer a read takes.

use std::cmp::Ordering;
use std::time::Duration;

use super::call::{Plan, Served};
use super::own_writes::Freshness;
use crate::message::Fields;
use crate::model::host_port::HostPort;
use crate::model::ids::Millis;
use crate::model::path::Path;
use crate::model::shard::shard_of;
use crate::pool::NodeIdentity;
use crate::retry::deviations::{Rule, is_broken};
use crate::router::Router;
use crate::rt;
use crate::smart::error::CallError;
use crate::smart::operations::entry::{self, Entry};
use crate::smart::operations::options::GetOptions;
use crate::smart::{Inner, ReadMode};
use crate::stats::count;

/// What to read.
#[derive(Debug, Clone, Copy)]
pub(in crate::smart) struct ReadRequest<'a> {
    pub(in crate::smart) path: &'a Path,
    pub(in crate::smart) with_chain: bool,
}

/// How long a read waits before it looks for a write of its own again, once all nodes were asked.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Inner {
    /// Reads in a mode. An entry without value and chain: there is none.
    pub(in crate::smart) async fn read(
        &self,
        request: ReadRequest<'_>,
        options: GetOptions,
    ) -> Result<Entry, CallError> {
        let deadline = options.deadline;
        let entry = match options.read_mode.unwrap_or(self.config.read_mode) {
            ReadMode::Preferred => self.read_preferred(request, deadline).await?,
            ReadMode::Any => {
                let first = self.any_live();
                let plan = Plan::read("get_value", shard_of(request.path));
                let plan = Plan { first: first.as_deref(), deadline, ..plan };
                self.read_once(request, plan).await?.value
            }
            ReadMode::Freshest => self.read_freshest(request.path, deadline).await?,
        };
        self.note_answer(request.path, &entry.node);
        Ok(entry)
    }

    /// An answer of this node about a path counts.
    pub(in crate::smart) fn note_answer(&self, path: &Path, node: &str) {
        let is_apart = self.topology.routing().is_apart(node);
        if is_apart || self.own_writes.has_apart() {
            self.own_writes.on_answer(path, is_apart.then_some(node));
        }
    }

    /// The node that the last answer about a path came from, if it is not live: what it has, the live ones may not have
    /// heard of, so a change that has a condition goes there.
    pub(in crate::smart) fn apart(&self, path: &Path) -> Option<String> {
        let name = self.own_writes.apart(path).filter(|_| !is_broken(Rule::Apart))?;
        self.topology.routing().is_apart(&name).then_some(name)
    }

    /// From the node that took this client's last write, else from the preferred one, else from the
    /// next. A version older than an own write is not accepted while there is hope for a newer one.
    async fn read_preferred(
        &self,
        request: ReadRequest<'_>,
        deadline: Option<Duration>,
    ) -> Result<Entry, CallError> {
        let (path, shard) = (request.path, Router::shard(request.path));
        let total = deadline.unwrap_or(self.config.retry.total_deadline);
        // Only for a read that may take more than one call, or has a deadline of its own.
        let mut started: Option<Millis> = None;
        let left = |started: Option<Millis>| {
            let waited = started.map_or(0, |at| rt::now().saturating_sub(at));
            total.saturating_sub(Duration::from_millis(waited))
        };
        let mut stale: Vec<HostPort> = Vec::new();
        // The newest answer without the own write, and since when that is missed: it counts where the time ends.
        let mut in_hand: Option<(Entry, Millis)> = None;
        let sought = self.own_writes.tock(path);
        let mut has_own = sought.is_some();
        loop {
            if started.is_none() && (has_own || deadline.is_some()) {
                started = Some(rt::now());
            }
            let home = self.home(shard);
            let time = in_hand.as_ref().map_or(Duration::MAX, |(_, since)| self.patience(*since));
            let plan = Plan {
                first: home.as_deref(),
                last: &stale,
                deadline: started.map(|_| left(started).min(time)),
                ..Plan::read("get_value", shard)
            };
            let request = ReadRequest { path, with_chain: request.with_chain || has_own };
            let (entry, served) = match self.read_once(request, plan).await {
                Ok(served) => served.split(),
                Err(error) => {
                    // No other answer comes in that time.
                    let is_late = matches!(error, CallError::Unavailable { .. });
                    let (taken, missed_since) = in_hand.filter(|_| is_late).ok_or(error)?;
                    return Ok(self.take_stale(path, taken, missed_since));
                }
            };
            if !has_own {
                return Ok(entry);
            }
            let missed_since = match self.judge(path, sought, &entry, served.node()) {
                Freshness::Enough => return Ok(entry),
                // One that finds it gives the others no more time.
                Freshness::Stale(since) => {
                    in_hand.as_ref().map_or(since, |(_, before)| since.min(*before))
                }
            };
            count(&self.counts.stale_answers);
            let entry = newer_of(in_hand.take().map(|(known, _)| known), entry);
            if self.patience(missed_since).is_zero() || left(started).is_zero() {
                return Ok(self.take_stale(path, entry, missed_since));
            }
            in_hand = Some((entry, missed_since));
            if stale.contains(served.address()) {
                // All nodes were asked.
                stale.clear();
                rt::sleep(LOOK_AGAIN.min(left(started))).await;
            }
            stale.push(served.address().clone());
            // Another read may have given it up.
            has_own = self.own_writes.knows(path);
        }
    }

    async fn read_once(
        &self,
        request: ReadRequest<'_>,
        plan: Plan<'_>,
    ) -> Result<Served<Entry>, CallError> {
        let mut fields = Fields::at(request.path);
        if request.with_chain {
            fields.u64("nchain", 1).bool("with_time", true);
        }
        let fields = &fields;
        self.call(plan, |used| async move {
            let reply = used.request("get_value", fields).await?;
            entry::entry_of(&reply, &used.identity().name)
        })
        .await
    }

    /// The name of any live node.
    fn any_live(&self) -> Option<String> {
        let routing = self.topology.routing();
        let live = || routing.targets.iter().filter(|target| target.is_live);
        let index = rt::random_u64().checked_rem(live().count() as u64)?;
        live().nth(usize::try_from(index).ok()?).map(|target| target.name.clone())
    }

    /// How an answer compares with the own write that a read looks for.
    pub(super) fn judge(
        &self,
        path: &Path,
        sought: Option<u64>,
        entry: &Entry,
        node: &NodeIdentity,
    ) -> Freshness {
        let there = entry.value.is_some() || entry.chain.is_some();
        self.own_writes.judge(path, sought, there.then_some(entry.tock), node, rt::now())
    }

    /// An answer counts that lacks the own write; that is not looked for any more if the patience for it is over.
    pub(super) fn take_stale(&self, path: &Path, entry: Entry, missed_since: Millis) -> Entry {
        count(&self.counts.stale_taken);
        if self.patience(missed_since).is_zero() {
            self.own_writes.give_up(path, missed_since);
        }
        entry
    }

    /// How long an own write that has been looked for since then is still looked for.
    pub(super) fn patience(&self, missed_since: Millis) -> Duration {
        let missed = Duration::from_millis(rt::now().saturating_sub(missed_since));
        self.config.own_write_patience.saturating_sub(missed)
    }
}

/// The newer of two nodes' answers. Nothing at all is older than anything.
pub(super) fn newer_of(known: Option<Entry>, entry: Entry) -> Entry {
    let Some(known) = known else { return entry };
    match (known.version(), entry.version()) {
        (Some(one), Some(other)) if one.compare(&other) == Ordering::Less => entry,
        (None, Some(_)) => entry,
        (_, _) => known,
    }
}
