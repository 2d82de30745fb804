//! Whose answer a read takes.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};

use super::call::{Plan, Refusals, Served, final_error};
use super::own_writes::Freshness;
use crate::error::ClientError;
use crate::message::Fields;
use crate::model::host_port::HostPort;
use crate::model::ids::Millis;
use crate::model::path::Path;
use crate::model::shard::shard_of;
use crate::pool::NodeIdentity;
use crate::retry::{Decision, ErrorClass, Idempotency, Reason, Sent};
use crate::router::Router;
use crate::rt;
use crate::smart::error::{At, CallError, Fate};
use crate::smart::observer::Observed;
use crate::smart::operations::entry::{self, Entry};
use crate::smart::operations::options::GetOptions;
use crate::smart::{Inner, ReadMode};
use crate::stats::count;
use crate::topology::Target;

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
        match options.read_mode.unwrap_or(self.config.read_mode) {
            ReadMode::Preferred => self.read_preferred(request, deadline).await,
            ReadMode::Any => {
                let first = self.any_live();
                let plan = Plan::read("get_value", shard_of(request.path));
                let plan = Plan { first: first.as_deref(), deadline, ..plan };
                Ok(self.read_once(request, plan).await?.value)
            }
            ReadMode::Freshest => self.read_freshest(request.path, deadline).await,
        }
    }

    /// From the node that took this client's last write, else from the preferred one, else from the
    /// next. A version older than an own write is not accepted while there is hope for a newer one.
    async fn read_preferred(
        &self,
        request: ReadRequest<'_>,
        deadline: Option<Duration>,
    ) -> Result<Entry, CallError> {
        let (path, shard) = (request.path, Router::shard(request.path));
        // Only for a read that may take more than one call, or has a deadline of its own.
        let mut started: Option<Millis> = None;
        let waited = |started: Option<Millis>| {
            started.map_or(Duration::ZERO, |at| Duration::from_millis(rt::now().saturating_sub(at)))
        };
        let is_late =
            |started| deadline.is_some_and(|deadline: Duration| waited(started) >= deadline);
        let mut stale: Vec<HostPort> = Vec::new();
        // The newest answer without the own write: it counts where the time ends.
        let mut in_hand: Option<Entry> = None;
        loop {
            let has_own = self.own_writes.knows(path);
            if started.is_none() && (has_own || deadline.is_some()) {
                started = Some(rt::now());
            }
            let home = self.home(shard);
            let plan = Plan {
                first: home.as_deref(),
                last: &stale,
                deadline: deadline.map(|deadline| deadline.saturating_sub(waited(started))),
                ..Plan::read("get_value", shard)
            };
            let request = ReadRequest { path, with_chain: request.with_chain || has_own };
            let (entry, served) = match self.read_once(request, plan).await {
                Ok(served) => served.split(),
                Err(error) => {
                    let taken = in_hand.filter(|_| is_late(started)).ok_or(error)?;
                    count(&self.counts.stale_taken);
                    return Ok(taken);
                }
            };
            if !has_own {
                return Ok(entry);
            }
            let missed_since = match self.judge(path, &entry, served.node()) {
                Freshness::Enough => return Ok(entry),
                Freshness::Stale(since) => since,
            };
            count(&self.counts.stale_answers);
            let is_given_up = self.patience(missed_since).is_zero();
            if is_given_up {
                self.own_writes.give_up(path, missed_since);
            }
            let entry = newer_of(in_hand.take(), entry);
            if is_given_up || is_late(started) {
                count(&self.counts.stale_taken);
                return Ok(entry);
            }
            in_hand = Some(entry);
            if stale.contains(served.address()) {
                // All nodes were asked.
                stale.clear();
                rt::sleep(LOOK_AGAIN).await;
            }
            stale.push(served.address().clone());
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
            let reply = used.connection().request("get_value", fields).await?;
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

    /// Asks all live nodes until a majority of those in the view has answered.
    async fn read_freshest(
        &self,
        path: &Path,
        deadline: Option<Duration>,
    ) -> Result<Entry, CallError> {
        let _open = self.open_call()?;
        let mut observed = self.config.observer.begin("get_value");
        let mut attempts = 0;
        let result = self.ask_majority(path, deadline, &mut attempts, &mut observed).await;
        if let Some(observed) = observed {
            observed.on_end(attempts, result.as_ref().err());
        }
        result
    }

    async fn ask_majority(
        &self,
        path: &Path,
        deadline: Option<Duration>,
        attempts: &mut u32,
        observed: &mut Option<Observed<'_>>,
    ) -> Result<Entry, CallError> {
        let policy = self.policy(deadline)?;
        let started = rt::now();
        let elapsed = || Duration::from_millis(rt::now().saturating_sub(started));
        let mut newest: Option<Entry> = None;
        let mut answered: BTreeSet<String> = BTreeSet::new();
        // Whether one of the answers has what this client wrote, or something newer.
        let mut has_own = !self.own_writes.knows(path);
        self.counts.call();
        loop {
            *attempts = attempts.saturating_add(1);
            let attempt = *attempts;
            let routing = self.topology.routing();
            if routing.view.source.is_none() {
                let text = "the nodes cannot tell which nodes there are, so none knows what a \
                            majority of them is; read mode 'freshest' needs that";
                return Err(CallError::Usage(String::from(text)));
            }
            let nodes = routing.view.nodes.iter().filter(|node| node.counts()).count();
            let needed = nodes / 2 + 1;
            answered.retain(|name| routing.view.nodes.iter().any(|node| node.name == *name));
            let is_asked = |target: &&Target| {
                routing.view.nodes.iter().any(|node| node.name == target.name)
                    && !answered.contains(&target.name)
            };
            let asked: Vec<Target> = routing.targets.iter().filter(is_asked).cloned().collect();
            let patience = policy.time_for_try(elapsed()).unwrap_or_default();
            if let Some(observed) = observed {
                asked.iter().for_each(|target| observed.on_try(&target.name, attempt));
            }
            let asking = asked.iter().map(|target| self.ask_one(target, path, patience));
            let mut answers: FuturesUnordered<_> = asking.collect();
            let (mut refusal, mut refusals) = (None, Refusals::default());
            loop {
                let next = if answered.len() < needed {
                    answers.next().await
                } else if has_own {
                    break;
                } else {
                    // More are waited for only because this client knows that there is something newer, and not for long.
                    let missed_since = self.own_writes.missed_since(path).unwrap_or_else(rt::now);
                    let patience = self.patience(missed_since);
                    match rt::timeout(patience, answers.next()).await {
                        Some(next) => next,
                        None => {
                            count(&self.counts.stale_taken);
                            self.own_writes.give_up(path, missed_since);
                            break;
                        }
                    }
                };
                let Some((target, answer)) = next else { break };
                self.counts.on_try(attempt, false);
                match answer {
                    Ok((entry, node)) => {
                        answered.insert(target.name.clone());
                        has_own |= self.judge(path, &entry, &node) == Freshness::Enough;
                        newest = Some(newer_of(newest, entry));
                    }
                    Err(error) => {
                        let class = ErrorClass::of(&error, Sent::Maybe);
                        self.counts.on_failure(class);
                        if let Some(observed) = observed {
                            observed.on_failure(&target.name, attempt, class, &error);
                        }
                        refusals.on_failed(target, &error, class);
                        if class == ErrorClass::Final && refusal.is_none() {
                            refusal = Some((target.name.clone(), error));
                        }
                    }
                }
            }
            drop(answers);
            if let Some(entry) = newest.take_if(|_| answered.len() >= needed) {
                return Ok(entry);
            }
            let at = At { node: None, attempts: attempt, fate: Fate::NotDone };
            if self.pool.is_closed() {
                return Err(CallError::Closed(at));
            }
            // Of those that have not answered, whoever can be reached does not let this client in.
            let silent = asked.iter().filter(|target| !answered.contains(&target.name));
            let shut_out = refusals.verdict(silent).map(|error| {
                let node = error.address().unwrap_or_default().to_owned();
                (node, error)
            });
            if let Some((node, error)) = refusal.or(shut_out) {
                self.counts.give_up(Reason::Final);
                let at = At { node: Some(node), ..at };
                return Err(final_error(error, at, Reason::Final));
            }
            let (class, random) = (ErrorClass::Unavailable, rt::random_u64());
            match policy.decide(class, attempt, elapsed(), Idempotency::Read, random) {
                Decision::RetryAfter { delay, .. } => {
                    self.pause(delay).await;
                    if self.pool.is_closed() {
                        return Err(CallError::Closed(at));
                    }
                }
                Decision::GiveUp(reason) => {
                    self.counts.give_up(reason);
                    let answered = answered.len();
                    return Err(CallError::NoMajority { answered, needed, nodes, at });
                }
            }
        }
    }

    /// How an answer compares with what this client wrote.
    fn judge(&self, path: &Path, entry: &Entry, node: &NodeIdentity) -> Freshness {
        let there = entry.value.is_some() || entry.chain.is_some();
        self.own_writes.judge(path, there.then_some(entry.tock), node, rt::now())
    }

    /// How long an own write that has been looked for since then is still looked for.
    fn patience(&self, missed_since: Millis) -> Duration {
        let missed = Duration::from_millis(rt::now().saturating_sub(missed_since));
        self.config.own_write_patience.saturating_sub(missed)
    }

    /// One node's answer.
    async fn ask_one<'t>(
        &self,
        target: &'t Target,
        path: &Path,
        patience: Duration,
    ) -> (&'t Target, Result<(Entry, NodeIdentity), ClientError>) {
        let asking = async {
            let used = self.pool.get_named(&target.address, target.expected()).await?;
            let mut fields = Fields::at(path);
            fields.u64("nchain", 1).bool("with_time", true);
            let reply = used.connection().request("get_value", &fields).await?;
            Ok((entry::entry_of(&reply, &target.name)?, used.identity().clone()))
        };
        let silent = || ClientError::Connect {
            address: target.address.to_string(),
            reason: format!("no answer within {patience:?}"),
        };
        target.counts.on_try();
        let begun_us = rt::now_us();
        let answer = rt::timeout(patience, asking).await.unwrap_or_else(|| Err(silent()));
        match &answer {
            Ok(_) => target.counts.on_answer(rt::now_us().saturating_sub(begun_us)),
            Err(_) => target.counts.on_failure(),
        }
        (target, answer)
    }
}

/// The newer of two nodes' answers. Nothing at all is older than anything.
fn newer_of(known: Option<Entry>, entry: Entry) -> Entry {
    let Some(known) = known else { return entry };
    match (known.version(), entry.version()) {
        (Some(one), Some(other)) if one.compare(&other) == Ordering::Less => entry,
        (None, Some(_)) => entry,
        (_, _) => known,
    }
}
