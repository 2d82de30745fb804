//! One call: which node, which connection, how long, and what then. All operations go through
//! here.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select;
use smallvec::SmallVec;

use crate::connection::Use;
use crate::connection::group::Member;
use crate::error::ClientError;
use crate::model::host_port::HostPort;
use crate::pool::{NodeIdentity, PooledConnection};
use crate::retry::{ErrorClass, Idempotency, Reason, RetryPolicy};
use crate::rt;
use crate::smart::Inner;
use crate::smart::choice::progress::{End, Next, Progress};
use crate::smart::choice::tries::{Failed, Try};
use crate::smart::error::{At, CallError, Fate};
use crate::smart::observer::Observed;
use crate::smart::operations::entry::{Repeated, Written};
use crate::topology::{Routing, Target};

/// What a call wants.
#[derive(Debug, Clone, Copy)]
pub(in crate::smart) struct Plan<'a> {
    /// The protocol's word for it.
    pub(in crate::smart) action: &'a str,
    /// Whose preferred node comes first.
    pub(in crate::smart) shard: u16,
    /// Whether doing it twice is doing it once.
    pub(in crate::smart) idempotency: Idempotency,
    /// It is so only because of a write id, which old nodes ignore.
    pub(in crate::smart) needs_id: bool,
    /// A node that comes before the preferred one.
    pub(in crate::smart) first: Option<&'a str>,
    /// Nodes that come last.
    pub(in crate::smart) last: &'a [HostPort],
    /// For one try, instead of what the policy says.
    pub(in crate::smart) try_deadline: Option<Duration>,
    /// It begins within the time that the policy says for a try, however long it may take then.
    pub(in crate::smart) begins_soon: bool,
    /// So many bytes are sent, about.
    pub(in crate::smart) bytes: usize,
    /// For all tries, instead of what the policy says.
    pub(in crate::smart) deadline: Option<Duration>,
    /// A try keeps to its time by itself until something has come, and may then go on beyond it.
    pub(in crate::smart) goes_on: bool,
    /// It is the client's own: it is not in the counters, and closing does not wait for it.
    pub(in crate::smart) is_own: bool,
    /// What it takes on a connection.
    pub(in crate::smart) place: Use,
}

impl<'a> Plan<'a> {
    pub(in crate::smart) fn read(action: &'a str, shard: u16) -> Plan<'a> {
        Plan::new(action, shard, Idempotency::Read)
    }

    pub(in crate::smart) fn new(action: &'a str, shard: u16, idempotency: Idempotency) -> Plan<'a> {
        let (first, try_deadline, deadline) = (None, None, None);
        Plan {
            action,
            shard,
            idempotency,
            needs_id: false,
            first,
            last: &[],
            try_deadline,
            begins_soon: false,
            bytes: 0,
            deadline,
            goes_on: false,
            is_own: false,
            place: Use::Call,
        }
    }
}

/// The reply, and the node that sent it.
#[derive(Debug)]
pub(in crate::smart) struct Served<T> {
    pub(in crate::smart) value: T,
    /// The connection to it.
    pub(in crate::smart) used: Arc<PooledConnection>,
    pub(in crate::smart) attempts: u32,
    /// An earlier try, at another node, may have done it, too.
    pub(in crate::smart) maybe_twice: bool,
    /// What the tries before have left in doubt.
    pub(in crate::smart) earlier: Fate,
}

impl<T> Served<T> {
    /// What came back, and the rest.
    pub(in crate::smart) fn split(self) -> (T, Served<()>) {
        let Self { value, used, attempts, maybe_twice, earlier } = self;
        (value, Served { value: (), used, attempts, maybe_twice, earlier })
    }

    /// The node.
    pub(in crate::smart) fn node(&self) -> &NodeIdentity {
        self.used.identity()
    }

    /// Where it is.
    pub(in crate::smart) fn address(&self) -> &HostPort {
        self.used.address()
    }

    /// Notes in a write's answer how it came about.
    pub(in crate::smart) fn tell(&self, written: &mut Written) {
        tell(self.attempts, self.maybe_twice, written);
    }
}

/// Notes how many tries a write took, and whether an earlier one, at another node, may have made it, too.
fn tell(attempts: u32, maybe_twice: bool, written: &mut Written) {
    written.attempts = attempts;
    if maybe_twice && written.repeated == Repeated::No && written.changed {
        written.repeated = Repeated::Maybe;
    }
}

impl Failed {
    /// The error of a call that ends with this, whose class is final.
    pub(in crate::smart) fn into_refusal(self, at: At) -> CallError {
        final_error(self.error, at, Reason::Final)
    }
}

/// The nodes that were tried in vain since all were.
#[derive(Debug, Default)]
pub(in crate::smart) struct Round {
    tried: SmallVec<[Place; 4]>,
    /// The next try goes here.
    again: Option<Place>,
}

/// Where a node is to be reached.
#[derive(Debug, Clone)]
pub(super) struct Place {
    address: HostPort,
    /// The node that is meant; none: whichever is there.
    name: Option<String>,
}

impl Place {
    pub(super) fn of(target: &Target) -> Place {
        let name = target.expected().map(str::to_owned);
        Place { address: target.address.clone(), name }
    }

    /// Whether this is where that node is to be reached. A seed may have become a node of a view meanwhile.
    pub(super) fn is_of(&self, target: &Target) -> bool {
        let name = self.name.as_deref();
        self.address == target.address && (name.is_none() || name == target.expected())
    }
}

impl Round {
    /// Others come before this one.
    pub(in crate::smart) fn leave_out(&mut self, address: &HostPort) {
        self.tried.clear();
        self.tried.push(Place { address: address.clone(), name: None });
    }

    /// The next try is at this one once more.
    pub(super) fn again_at(&mut self, target: &Target) {
        self.again = Some(Place::of(target));
    }

    /// A try at this one has failed.
    pub(in crate::smart) fn on_failed(&mut self, target: &Target) {
        if !self.has(target) {
            self.tried.push(Place::of(target));
        }
    }

    fn has(&self, target: &Target) -> bool {
        self.tried.iter().any(|place| place.is_of(target))
    }
}

impl Inner {
    /// Carries a call out: `try_once` is one try on a connection. It is called again, as the policy
    /// decides, at the next node each time.
    pub(in crate::smart) async fn call<T, F, Fut>(
        &self,
        plan: Plan<'_>,
        try_once: F,
    ) -> Result<Served<T>, CallError>
    where
        F: Fn(Try) -> Fut,
        Fut: Future<Output = Result<T, ClientError>>,
    {
        // Closing does not wait for what the client asks by itself.
        let _open = match plan.is_own {
            true => self.check_open().map(|()| None),
            false => self.open_call().map(Some),
        }?;
        let mut observed = self.config.observer.begin(plan.action);
        let result = self.carry_out(plan, &try_once, &mut observed).await;
        if let Some(observed) = observed {
            match &result {
                Ok(served) => observed.on_end(served.attempts, None),
                Err(error) => observed.on_end(error.attempts(), Some(error)),
            }
        }
        result
    }

    /// Something begins for which closing waits.
    ///
    /// # Errors
    /// [`CallError::Closed`]: nothing new begins.
    pub(in crate::smart) fn open_call(&self) -> Result<Member, CallError> {
        let member = self.calls.begin();
        // In this order, so that closing either sees the call or refuses it.
        self.check_open()?;
        Ok(member)
    }

    fn check_open(&self) -> Result<(), CallError> {
        let at = At { node: None, attempts: 0, fate: Fate::NotDone };
        match self.door.is_closing() {
            true => Err(CallError::Closed(at)),
            false => Ok(()),
        }
    }

    /// Try after try, until one succeeds or the policy gives up.
    async fn carry_out<T, F, Fut>(
        &self,
        plan: Plan<'_>,
        try_once: &F,
        observed: &mut Option<Observed<'_>>,
    ) -> Result<Served<T>, CallError>
    where
        F: Fn(Try) -> Fut,
        Fut: Future<Output = Result<T, ClientError>>,
    {
        let mut progress = Progress::begin(plan, self.policy(plan.deadline)?);
        let counts = (!plan.is_own).then_some(&self.counts);
        if let Some(counts) = counts {
            counts.call();
        }
        loop {
            let routing = self.topology.routing();
            let Some(target) = self.choose(&routing, &plan, &mut progress.round) else {
                return Err(CallError::Usage(String::from("there is no node to ask")));
            };
            if self.pool.is_closed() {
                // Not at this node.
                return Err(CallError::Closed(progress.at(None)));
            }
            let time = progress.begin_try();
            if let Some(counts) = counts {
                counts.on_try(progress.attempts, routing.prefers(plan.shard, target));
            }
            if let Some(observed) = observed {
                observed.on_try(&target.name, progress.attempts);
            }
            let failed = match self.try_at(target, plan.place, time, try_once).await {
                Ok((value, used)) => return Ok(progress.served(value, used, target)),
                Err(failed) => failed,
            };
            if let Some(counts) = counts {
                counts.on_failure(failed.class);
            }
            if let Some(observed) = observed {
                let (class, error) = (failed.class, &failed.error);
                observed.on_failure(&target.name, progress.attempts, class, error);
            }
            let end = match progress.on_failed(target, &routing, &failed, self.pool.is_closed()) {
                Next::End(end) => end,
                Next::TryAgain(delay) => {
                    self.pause(delay).await;
                    if self.pool.is_closed() {
                        return Err(CallError::Closed(progress.at(Some(target))));
                    }
                    if !progress.is_late() {
                        continue;
                    }
                    // It was a longer pause than planned.
                    End { reason: Reason::Deadline, refusal: None }
                }
            };
            if let Some(counts) = counts {
                counts.give_up(end.reason);
            }
            return Err(progress.error(end, target, failed));
        }
    }

    /// Waits before the next try, but not longer than there is one.
    pub(in crate::smart) async fn pause(&self, delay: Duration) {
        select(pin!(rt::sleep(delay)), pin!(self.pool.closed())).await;
    }

    /// The policy of a call, with another total deadline.
    ///
    /// # Errors
    /// [`CallError::Unavailable`]: there is no time, so nothing is to be sent.
    pub(in crate::smart) fn policy(
        &self,
        deadline: Option<Duration>,
    ) -> Result<RetryPolicy, CallError> {
        let policy = self.config.retry;
        let total_deadline = deadline.unwrap_or(policy.total_deadline);
        if total_deadline.is_zero() {
            let at = At { node: None, attempts: 0, fate: Fate::NotDone };
            return Err(CallError::Unavailable { error: ClientError::NoTime, at });
        }
        Ok(RetryPolicy { total_deadline, ..policy })
    }

    /// The next node to try: in the router's order, each once, those that fail just now last; when
    /// all were tried, from the beginning.
    pub(in crate::smart) fn choose<'r>(
        &self,
        routing: &'r Routing,
        plan: &Plan<'_>,
        round: &mut Round,
    ) -> Option<&'r Target> {
        if let Some(again) = round.again.take()
            && let Some(target) = routing.targets.iter().find(|target| again.is_of(target))
        {
            return Some(target);
        }
        let first = plan.first.and_then(|name| routing.by_name(name));
        let order = || {
            let rest = routing.router.order(plan.shard);
            let rest = rest.filter_map(|index| routing.targets.get(index));
            first.into_iter().chain(rest)
        };
        let is_last = |target: &Target| plan.last.contains(&target.address);
        for _ in 0..2 {
            let untried = |target: &&Target| !round.has(target);
            let is_failing =
                |target: &Target| self.pool.is_failing_for(&target.address, target.expected());
            let is_good = |target: &&Target| !is_last(target) && !is_failing(target);
            let chosen = order()
                .filter(untried)
                .find(is_good)
                .or_else(|| order().filter(untried).find(|target| !is_last(target)))
                .or_else(|| order().find(untried));
            if chosen.is_some() {
                return chosen;
            }
            round.tried.clear();
        }
        None
    }
}

/// What a failed try leaves in doubt.
pub(in crate::smart) fn fate_of(
    class: ErrorClass,
    is_made: bool,
    idempotency: Idempotency,
) -> Fate {
    match class {
        _ if idempotency == Idempotency::Read => Fate::NotDone,
        ErrorClass::UnknownThere => Fate::Unconfirmed,
        // Part of a tree may be deleted, and the rest refused for good.
        _ if is_made => Fate::Unknown,
        ErrorClass::TryDeadline | ErrorClass::FateUnknown | ErrorClass::Aborted => Fate::Unknown,
        ErrorClass::Unavailable | ErrorClass::Overload | ErrorClass::Busy | ErrorClass::Final => {
            Fate::NotDone
        }
    }
}

/// What all tries together leave in doubt. A change that one node has made stays made.
pub(in crate::smart) fn worse(a: Fate, b: Fate) -> Fate {
    match (a, b) {
        (Fate::Unconfirmed, _) | (_, Fate::Unconfirmed) => Fate::Unconfirmed,
        (Fate::Unknown, _) | (_, Fate::Unknown) => Fate::Unknown,
        (Fate::NotDone, Fate::NotDone) => Fate::NotDone,
    }
}

/// The error of a stream that was read, and ends with this one.
pub(in crate::smart) fn stream_error(error: ClientError, at: At) -> CallError {
    match final_error(error, at, Reason::Final) {
        CallError::Unavailable { error, at } => CallError::BrokenOff { error, at },
        error => error,
    }
}

/// The error of a call that ends with this one.
pub(in crate::smart) fn final_error(error: ClientError, at: At, reason: Reason) -> CallError {
    match (error, reason) {
        (ClientError::TooLarge(bytes), _) => {
            CallError::Usage(ClientError::TooLarge(bytes).to_string())
        }
        // A refusal after a try of unknown fate may be that try's doing: `at` says so.
        (ClientError::Server(error), _) if ErrorClass::of_server(&error) == ErrorClass::Final => {
            CallError::Refused { error, at }
        }
        (error, _) if at.fate != Fate::NotDone => CallError::FateUnknown { error, at },
        // Others could not be asked, or may still let the client in.
        (error @ ClientError::NoAccess { .. }, Reason::Final) => CallError::NoAccess { error, at },
        (error, _) => CallError::Unavailable { error, at },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_another_node_may_have_made_too_is_told_as_such() {
        let told = |maybe_twice, repeated, changed| {
            let (chain, prev, node) = (None, None, String::from("n1"));
            let mut written =
                Written { changed, chain, tock: 1, prev, repeated, node, attempts: 1 };
            tell(2, maybe_twice, &mut written);
            assert_eq!(written.attempts, 2);
            written.repeated
        };
        assert_eq!(told(true, Repeated::No, true), Repeated::Maybe);
        assert_eq!(told(false, Repeated::No, true), Repeated::No);
        // A node that knew the write had it made before; and nothing at all was made.
        assert_eq!(told(true, Repeated::Yes, true), Repeated::Yes);
        assert_eq!(told(true, Repeated::No, false), Repeated::No);
    }
}
