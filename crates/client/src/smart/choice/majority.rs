//! A read of a majority: all nodes are asked, until a majority of those in the view has answered. While no answer has
//! what this client wrote, further ones are asked for, as patiently as by any other read.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};

use super::call::final_error;
use super::own_writes::Freshness;
use super::read_modes::newer_of;
use super::refusals::Refusals;
use super::tries::{Failed, Try, TryTime};
use crate::connection::Use;
use crate::error::ClientError;
use crate::message::Fields;
use crate::model::ids::Millis;
use crate::model::path::Path;
use crate::pool::NodeIdentity;
use crate::retry::{Decision, ErrorClass, Idempotency, Reason, RetryPolicy};
use crate::rt;
use crate::smart::Inner;
use crate::smart::error::{At, CallError, Fate};
use crate::smart::observer::Observed;
use crate::smart::operations::entry::{self, Entry};
use crate::topology::{Routing, Target};

/// One read, as far as it has come.
struct MajorityRead<'a> {
    path: &'a Path,
    /// Rounds in which nodes were asked.
    attempt: u32,
    newest: Option<Entry>,
    /// The nodes that have answered, by their names.
    answered: BTreeSet<String>,
    /// Those that have refused it for good: they would again.
    refused: BTreeSet<String>,
    /// Those that have been asked, and have not answered yet.
    open: BTreeSet<String>,
    /// The tock of the own write that is looked for; none: there is none.
    sought: Option<u64>,
    /// Whether one of the answers has what this client wrote, or something newer.
    has_own: bool,
    /// Since when that has been missed.
    missed_since: Option<Millis>,
}

/// A node, the round in which it was asked, and its answer.
type Answer = (Target, u32, Result<(Entry, NodeIdentity), Failed>);

/// Questions that have no answer yet, over all rounds: at most one to each node.
type Asking<'a> = FuturesUnordered<BoxFuture<'a, Answer>>;

/// How nodes have failed in one round.
#[derive(Default)]
struct Failures {
    /// The first final one, and the node's name.
    refusal: Option<(String, ClientError)>,
    refusals: Refusals,
}

impl MajorityRead<'_> {
    /// The nodes to ask next: those that have not answered; once a majority has, which means that it lacks the own
    /// write, the others as well, since they may have heard of it meanwhile.
    ///
    /// One that has left is not asked: it would be dialled by each read, in vain, and avoided for a while when it is back.
    fn asked(&self, routing: &Routing, needed: usize) -> Vec<Target> {
        let is_free = |target: &&Target| {
            let name = &target.name;
            counts(routing, name) && !self.refused.contains(name) && !self.open.contains(name)
        };
        let free = || routing.targets.iter().filter(is_free);
        let unheard: Vec<Target> =
            free().filter(|target| !self.answered.contains(&target.name)).cloned().collect();
        match unheard.is_empty() || self.answered.len() >= needed {
            true => free().cloned().collect(),
            false => unheard,
        }
    }
}

/// Whether this is one of the nodes of which a majority is a majority.
fn counts(routing: &Routing, name: &str) -> bool {
    routing.view.nodes.iter().any(|node| node.name == name && node.counts())
}

impl Inner {
    /// Asks all nodes until a majority of those in the view has answered.
    pub(super) async fn read_freshest(
        &self,
        path: &Path,
        deadline: Option<Duration>,
    ) -> Result<Entry, CallError> {
        let _open = self.open_call()?;
        let mut observed = self.config.observer.begin("get_value");
        let sought = self.own_writes.tock(path);
        let mut read = MajorityRead {
            path,
            attempt: 0,
            newest: None,
            answered: BTreeSet::new(),
            refused: BTreeSet::new(),
            open: BTreeSet::new(),
            sought,
            has_own: sought.is_none(),
            missed_since: None,
        };
        let result = self.ask_majority(&mut read, deadline, &mut observed).await;
        if let Some(observed) = observed {
            observed.on_end(read.attempt, result.as_ref().err());
        }
        result
    }

    async fn ask_majority(
        &self,
        read: &mut MajorityRead<'_>,
        deadline: Option<Duration>,
        observed: &mut Option<Observed<'_>>,
    ) -> Result<Entry, CallError> {
        let policy = self.policy(deadline)?;
        let started = rt::now();
        let elapsed = || Duration::from_millis(rt::now().saturating_sub(started));
        self.counts.call();
        let mut asking = Asking::new();
        loop {
            read.attempt = read.attempt.saturating_add(1);
            let attempt = read.attempt;
            let routing = self.topology.routing();
            if routing.view.source.is_none() {
                let text = "this client does not know which nodes there are, so not what a majority of \
                            them is, which read mode 'freshest' needs: nodes of old versions cannot \
                            tell it, and with 'only_seeds' they are not asked";
                return Err(CallError::Usage(String::from(text)));
            }
            let nodes = routing.view.nodes.iter().filter(|node| node.counts()).count();
            let needed = nodes / 2 + 1;
            read.answered.retain(|name| counts(&routing, name));
            let asked = read.asked(&routing, needed);
            let left = policy.total_deadline.saturating_sub(elapsed());
            let times = (policy.time_for_try(elapsed()).unwrap_or_default(), left);
            if let Some(observed) = observed {
                asked.iter().for_each(|target| observed.on_try(&target.name, attempt));
            }
            for target in &asked {
                read.open.insert(target.name.clone());
                asking.push(self.ask_one(target.clone(), attempt, read.path, times).boxed());
            }
            let mut failures = Failures::default();
            while read.answered.len() < needed {
                let Some(answer) = asking.next().await else { break };
                self.take_answer(read, &routing, answer, &mut failures, observed);
            }
            let Failures { refusal, refusals } = failures;
            let at = At { node: None, attempts: attempt, fate: Fate::NotDone };
            if read.answered.len() >= needed && read.newest.is_some() {
                let goes_on = !self.is_found(read)
                    && self
                        .listen(read, &routing, &mut asking, (&policy, elapsed()), observed)
                        .await;
                let is_found = self.is_found(read);
                if let Some(entry) = read.newest.take_if(|_| is_found || !goes_on) {
                    return Ok(match is_found {
                        true => entry,
                        false => self.take_stale(read.path, entry, self.missed_since(read)),
                    });
                }
                if self.pool.is_closed() {
                    return Err(CallError::Closed(at));
                }
                continue;
            }
            if self.pool.is_closed() {
                return Err(CallError::Closed(at));
            }
            // Of those that have not answered, whoever can be reached does not let this client in.
            let silent = || asked.iter().filter(|target| !read.answered.contains(&target.name));
            let has_answers = !read.answered.is_empty();
            let shut_out = || refusals.verdict_beside(has_answers, silent());
            if let Some((node, error)) = refusal.or_else(shut_out) {
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
                    let answered = read.answered.len();
                    let refusal = refusals.reason(silent()).map(Box::new);
                    return Err(CallError::NoMajority { answered, needed, nodes, refusal, at });
                }
            }
        }
    }

    /// Whether an answer has the own write, or nobody looks for it any more.
    fn is_found(&self, read: &MajorityRead<'_>) -> bool {
        read.has_own || !self.own_writes.knows(read.path)
    }

    /// Pauses before nodes are asked again, since a majority lacks the own write; those that were asked may answer
    /// meanwhile: they are all that is waited for where there is to be no other round. Whether there is time for one.
    /// `elapsed`: how much time the read has taken.
    async fn listen(
        &self,
        read: &mut MajorityRead<'_>,
        routing: &Routing,
        asking: &mut Asking<'_>,
        (policy, elapsed): (&RetryPolicy, Duration),
        observed: &mut Option<Observed<'_>>,
    ) -> bool {
        let (class, random) = (ErrorClass::Unavailable, rt::random_u64());
        let pause = match policy.decide(class, read.attempt, elapsed, Idempotency::Read, random) {
            Decision::RetryAfter { delay, .. } => Some(delay),
            Decision::GiveUp(_) => None,
        };
        let time = self.patience(self.missed_since(read));
        let time = time.min(policy.total_deadline.saturating_sub(elapsed));
        let wait = pause.map_or(time, |pause| pause.min(time));
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let ends_us = rt::now_us().saturating_add(wait_us);
        let left = || Duration::from_micros(ends_us.saturating_sub(rt::now_us()));
        while !asking.is_empty() && !left().is_zero() {
            let Some(answer) = rt::timeout(left(), asking.next()).await.flatten() else { break };
            self.take_answer(read, routing, answer, &mut Failures::default(), observed);
            if read.has_own {
                return false;
            }
        }
        if pause.is_none() || time.is_zero() {
            return false;
        }
        self.pause(left()).await;
        true
    }

    /// What one node has answered.
    fn take_answer(
        &self,
        read: &mut MajorityRead<'_>,
        routing: &Routing,
        (target, attempt, answer): Answer,
        failures: &mut Failures,
        observed: &mut Option<Observed<'_>>,
    ) {
        self.counts.on_try(attempt, false);
        read.open.remove(&target.name);
        match answer {
            // It has left meanwhile.
            Ok(_) if !counts(routing, &target.name) => {}
            Ok((entry, node)) => {
                match self.judge(read.path, read.sought, &entry, &node) {
                    Freshness::Enough => read.has_own = true,
                    // One that finds it gives the others no more time.
                    Freshness::Stale(since) => {
                        read.missed_since =
                            Some(read.missed_since.map_or(since, |before| before.min(since)));
                    }
                }
                read.answered.insert(target.name);
                read.newest = Some(newer_of(read.newest.take(), entry));
            }
            Err(Failed { error, class, .. }) => {
                self.counts.on_failure(class);
                if let Some(observed) = observed {
                    observed.on_failure(&target.name, attempt, class, &error);
                }
                failures.refusals.on_failed(&target, &error, class);
                if class == ErrorClass::Final {
                    read.refused.insert(target.name.clone());
                    failures.refusal.get_or_insert((target.name, error));
                }
            }
        }
    }

    /// Since when the own write is missed.
    fn missed_since(&self, read: &MajorityRead<'_>) -> Millis {
        read.missed_since.unwrap_or_else(rt::now)
    }

    /// One node's answer. `longest`: for one that is arriving when the patience is over.
    async fn ask_one(
        &self,
        target: Target,
        attempt: u32,
        path: &Path,
        (patience, longest): (Duration, Duration),
    ) -> Answer {
        let mut fields = Fields::at(path);
        fields.u64("nchain", 1).bool("with_time", true);
        let (started_us, bytes, name) = (rt::now_us(), fields.byte_len(), &target.name);
        let time = TryTime { started_us, patience, longest, bytes, counts_for: None };
        let ask = |this: Try| {
            let fields = &fields;
            async move {
                let reply = this.request("get_value", fields).await?;
                entry::entry_of(&reply, name)
            }
        };
        let answer = self.try_at(&target, Use::Call, time, &ask).await;
        let answer = answer.map(|(entry, used)| (entry, used.identity().clone()));
        (target, attempt, answer)
    }
}
