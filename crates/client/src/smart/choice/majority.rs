//! A read of a majority: all nodes are asked, until a majority of those in the view has answered. While no answer has
//! what this client wrote, further ones are asked for, as patiently as by any other read.

use std::collections::BTreeSet;
use std::time::Duration;

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
use crate::retry::{Decision, ErrorClass, Idempotency, Reason};
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
    /// Whether one of the answers has what this client wrote, or something newer.
    has_own: bool,
}

/// How nodes have failed in one round.
#[derive(Default)]
struct Failures {
    /// The first final one, and the node's name.
    refusal: Option<(String, ClientError)>,
    refusals: Refusals,
}

impl MajorityRead<'_> {
    /// The nodes to ask next: those that have not answered; if all have, which means that all lack the own write, all again.
    ///
    /// One that has left is not asked: it would be dialled by each read, in vain, and avoided for a while when it is back.
    fn asked(&self, routing: &Routing) -> Vec<Target> {
        let is_member = |target: &&Target| {
            counts(routing, &target.name) && !self.refused.contains(&target.name)
        };
        let members = || routing.targets.iter().filter(is_member);
        let open: Vec<Target> =
            members().filter(|target| !self.answered.contains(&target.name)).cloned().collect();
        match open.is_empty() {
            true => members().cloned().collect(),
            false => open,
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
        let mut read = MajorityRead {
            path,
            attempt: 0,
            newest: None,
            answered: BTreeSet::new(),
            refused: BTreeSet::new(),
            has_own: !self.own_writes.knows(path),
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
            let asked = read.asked(&routing);
            let left = policy.total_deadline.saturating_sub(elapsed());
            let times = (policy.time_for_try(elapsed()).unwrap_or_default(), left);
            let Failures { refusal, refusals } =
                self.ask_all(&asked, read, needed, times, observed).await;
            let at = At { node: None, attempts: attempt, fate: Fate::NotDone };
            if read.answered.len() >= needed
                && let Some(entry) = read.newest.take()
            {
                // Another read may have given it up.
                if read.has_own || !self.own_writes.knows(read.path) {
                    return Ok(entry);
                }
                let missed_since = self.missed_since(read.path);
                let time = self.patience(missed_since);
                let class = ErrorClass::Unavailable;
                let (idempotency, random) = (Idempotency::Read, rt::random_u64());
                match policy.decide(class, attempt, elapsed(), idempotency, random) {
                    Decision::RetryAfter { delay, .. } if !time.is_zero() => {
                        read.newest = Some(entry);
                        self.pause(delay.min(time)).await;
                    }
                    _ => return Ok(self.take_stale(read.path, entry, missed_since)),
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

    /// One round: asks these nodes at once, until enough of all nodes have answered. `times`: as of [`Self::ask_one`].
    async fn ask_all(
        &self,
        asked: &[Target],
        read: &mut MajorityRead<'_>,
        needed: usize,
        times: (Duration, Duration),
        observed: &mut Option<Observed<'_>>,
    ) -> Failures {
        let (path, attempt) = (read.path, read.attempt);
        if let Some(observed) = observed {
            asked.iter().for_each(|target| observed.on_try(&target.name, attempt));
        }
        let asking = asked.iter().map(|target| self.ask_one(target, path, times));
        let mut answers: FuturesUnordered<_> = asking.collect();
        let mut failures = Failures::default();
        loop {
            let next = if read.answered.len() < needed {
                answers.next().await
            } else if read.has_own {
                break;
            } else {
                // More are waited for only because this client knows that there is something newer, and not for long.
                let time = self.patience(self.missed_since(path));
                rt::timeout(time, answers.next()).await.flatten()
            };
            let Some((target, answer)) = next else { break };
            self.counts.on_try(attempt, false);
            match answer {
                Ok((entry, node)) => {
                    read.answered.insert(target.name.clone());
                    read.has_own |= self.judge(path, &entry, &node) == Freshness::Enough;
                    read.newest = Some(newer_of(read.newest.take(), entry));
                }
                Err(Failed { error, class, .. }) => {
                    self.counts.on_failure(class);
                    if let Some(observed) = observed {
                        observed.on_failure(&target.name, attempt, class, &error);
                    }
                    failures.refusals.on_failed(target, &error, class);
                    if class == ErrorClass::Final {
                        read.refused.insert(target.name.clone());
                        failures.refusal.get_or_insert((target.name.clone(), error));
                    }
                }
            }
        }
        failures
    }

    /// Since when an own write is missed; since now, if another read has just found it.
    fn missed_since(&self, path: &Path) -> Millis {
        self.own_writes.missed_since(path).unwrap_or_else(rt::now)
    }

    /// One node's answer. `longest`: for one that is arriving when the patience is over.
    async fn ask_one<'t>(
        &self,
        target: &'t Target,
        path: &Path,
        (patience, longest): (Duration, Duration),
    ) -> (&'t Target, Result<(Entry, NodeIdentity), Failed>) {
        let mut fields = Fields::at(path);
        fields.u64("nchain", 1).bool("with_time", true);
        let (started_us, bytes) = (rt::now_us(), fields.byte_len());
        let time = TryTime { started_us, patience, longest, bytes, counts_for: None };
        let ask = |this: Try| {
            let fields = &fields;
            async move {
                let reply = this.request("get_value", fields).await?;
                entry::entry_of(&reply, &target.name)
            }
        };
        let answer = self.try_at(target, Use::Call, time, &ask).await;
        (target, answer.map(|(entry, used)| (entry, used.identity().clone())))
    }
}
