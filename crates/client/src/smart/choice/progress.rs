//! How far a call has come: what its tries have left in doubt, whether there is another one, and the error that it ends with.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::call::{Plan, Round, Served, fate_of, final_error, worse};
use super::refusals::Refusals;
use super::tries::{Failed, TryTime};
use crate::error::ClientError;
use crate::model::host_port::HostPort;
use crate::pool::PooledConnection;
use crate::retry::deviations::{Rule, is_broken};
use crate::retry::{Decision, Idempotency, Reason, RetryPolicy};
use crate::rt;
use crate::smart::error::{At, CallError, Fate};
use crate::topology::{Routing, Target};

/// A call that has not ended.
pub(super) struct Progress<'a> {
    plan: Plan<'a>,
    policy: RetryPolicy,
    /// By [`rt::now_us`].
    started_us: u64,
    pub(super) round: Round,
    /// Tries so far.
    pub(super) attempts: u32,
    /// What they have left in doubt.
    fate: Fate,
    /// Where it may have been carried out.
    in_doubt: SmallVec<[HostPort; 2]>,
    /// What a node said of a change that it has made.
    unconfirmed: Option<ClientError>,
    refusals: Refusals,
}

/// What comes behind a try that has failed.
pub(super) enum Next {
    /// Another one, after this pause.
    TryAgain(Duration),
    /// None.
    End(End),
}

/// Why there is no other try.
pub(super) struct End {
    pub(super) reason: Reason,
    /// What all nodes say that can be reached, and one that says so.
    pub(super) refusal: Option<(String, ClientError)>,
}

impl<'a> Progress<'a> {
    pub(super) fn begin(plan: Plan<'a>, policy: RetryPolicy) -> Progress<'a> {
        Progress {
            plan,
            policy,
            started_us: rt::now_us(),
            round: Round::default(),
            attempts: 0,
            fate: Fate::NotDone,
            in_doubt: SmallVec::new(),
            unconfirmed: None,
            refusals: Refusals::default(),
        }
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(rt::now_us().saturating_sub(self.started_us))
    }

    /// Whether there is no time for another try.
    pub(super) fn is_late(&self) -> bool {
        self.elapsed() >= self.policy.total_deadline
    }

    /// Where the call stands; `target`: the node that was tried last.
    pub(super) fn at(&self, target: Option<&Target>) -> At {
        let node = target.map(|target| target.name.clone());
        At { node, attempts: self.attempts, fate: self.fate }
    }

    /// One more try begins, and may take so long.
    pub(super) fn begin_try(&mut self) -> TryTime {
        self.attempts = self.attempts.saturating_add(1);
        let (plan, policy) = (&self.plan, &self.policy);
        // The first try begins with the call.
        let started_us = if self.attempts == 1 { self.started_us } else { rt::now_us() };
        let waited = Duration::from_micros(started_us.saturating_sub(self.started_us));
        let (patience, longest) = match plan.goes_on {
            true => (Duration::MAX, Duration::MAX),
            false => {
                let left = policy.total_deadline.saturating_sub(waited);
                (plan.try_deadline.unwrap_or(policy.try_deadline).min(left), left)
            }
        };
        let counts_for = match plan.idempotency {
            Idempotency::Read => None,
            _ if is_broken(Rule::TryTime) => None,
            _ if plan.begins_soon => Some(policy.try_deadline),
            _ => Some(Duration::MAX),
        };
        TryTime { started_us, patience, longest, bytes: plan.bytes, counts_for }
    }

    /// The last try, at this node, has succeeded.
    pub(super) fn served<T>(
        self,
        value: T,
        used: Arc<PooledConnection>,
        target: &Target,
    ) -> Served<T> {
        let is_other = |other: &HostPort| *other != target.address;
        let maybe_twice = self.in_doubt.iter().any(is_other) && !is_broken(Rule::Maybe);
        Served { value, used, attempts: self.attempts, maybe_twice, earlier: self.fate }
    }

    /// The last try, at this node, has failed: what it leaves in doubt, and what comes next.
    pub(super) fn on_failed(
        &mut self,
        target: &Target,
        routing: &Routing,
        failed: &Failed,
        is_closed: bool,
    ) -> Next {
        self.round.on_failed(target);
        self.refusals.on_failed(target, &failed.error, failed.class);
        let heeds_no_id = failed.is_old && self.plan.needs_id && !is_broken(Rule::OldServers);
        let idempotency = match heeds_no_id {
            true => Idempotency::Unguarded,
            false => self.plan.idempotency,
        };
        self.note_doubt(target, failed, idempotency);
        let had_no_room = matches!(failed.error, ClientError::TooManyStreams { .. });
        let refusal = match had_no_room {
            true => self.refusals.no_room(&routing.targets),
            false => self.refusals.verdict(&routing.targets),
        };
        // What the deadline, or the client's end, has cut off says nothing of the nodes.
        if let Some(refusal) = refusal.filter(|_| !self.is_late() && !is_closed) {
            return Next::End(End { reason: Reason::Final, refusal: Some(refusal) });
        }
        let (elapsed, random) = (self.elapsed(), rt::random_u64());
        match self.policy.decide(failed.class, self.attempts, elapsed, idempotency, random) {
            Decision::GiveUp(reason) => Next::End(End { reason, refusal: None }),
            Decision::RetryAfter { delay, other_node } => {
                if !other_node {
                    self.round.again_at(target);
                }
                // Where there was no room, no node was asked, and the next one may be at once.
                Next::TryAgain(if had_no_room { Duration::ZERO } else { delay })
            }
        }
    }

    fn note_doubt(&mut self, target: &Target, failed: &Failed, idempotency: Idempotency) {
        let is_made = failed.error.server().is_some_and(|error| error.is_made);
        let this = fate_of(failed.class, is_made, idempotency);
        if this != Fate::NotDone && !self.in_doubt.contains(&target.address) {
            self.in_doubt.push(target.address.clone());
        }
        if this == Fate::Unconfirmed {
            self.unconfirmed = Some(failed.error.clone());
        }
        self.fate = worse(self.fate, this);
    }

    /// The error of a call that ends with this failure of its last try, at this node.
    pub(super) fn error(self, end: End, target: &Target, failed: Failed) -> CallError {
        let mut at = self.at(Some(target));
        let error = match end.refusal {
            Some((node, error)) => {
                at.node = Some(node);
                error
            }
            None => failed.error,
        };
        // That says more than that the deadline has cut off the last try.
        let error = match (error, self.unconfirmed) {
            (error @ ClientError::Server(_), _) | (error, None) => error,
            (_, Some(error)) => error,
        };
        final_error(error, at, end.reason)
    }
}
