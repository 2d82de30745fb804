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
use crate::retry::deviations::{Rule, is_broken};
use crate::retry::{Decision, ErrorClass, Idempotency, Reason, RetryPolicy};
use crate::rt;
use crate::smart::Inner;
use crate::smart::choice::tries::{Failed, Try, TryTime};
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
struct Place {
    address: HostPort,
    /// The node that is meant; none: whichever is there.
    name: Option<String>,
}

impl Place {
    fn of(target: &Target) -> Place {
        let name = target.expected().map(str::to_owned);
        Place { address: target.address.clone(), name }
    }

    /// Whether this is where that node is to be reached. A seed may have become a node of a view meanwhile.
    fn is_of(&self, target: &Target) -> bool {
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

/// What the nodes said last that were tried in one call, or one search for a stream. One that does not let this client in may
/// be mistaken, or not have heard of a new user: it is as good as down. What all say that can be reached is final.
#[derive(Debug, Default)]
pub(in crate::smart) struct Refusals(SmallVec<[(Place, Said); 4]>);

#[derive(Debug)]
enum Said {
    /// It does not let this client in. Whether it had greeted: otherwise it may be anybody's.
    Refused { error: ClientError, greeted: bool, node: String },
    /// There is no room for another stream to it.
    NoRoom { error: ClientError, node: String },
    /// It cannot be reached, makes the login wait, or is of another network.
    Unreachable,
    /// It lets this client in, or may: it failed otherwise, or was slow.
    Hope,
}

impl Refusals {
    /// A try at this node has failed.
    pub(in crate::smart) fn on_failed(
        &mut self,
        at: &Target,
        error: &ClientError,
        class: ErrorClass,
    ) {
        let said = match error {
            ClientError::NoAccess { greeted, .. } => {
                let (error, node) = (error.clone(), at.name.clone());
                Said::Refused { error, greeted: *greeted, node }
            }
            ClientError::TooManyStreams { .. } => {
                Said::NoRoom { error: error.clone(), node: at.name.clone() }
            }
            // Without an answer in time there was a connection.
            _ if class == ErrorClass::TryDeadline => Said::Hope,
            // It is none of the nodes that could let this client in, or has not looked at its secret: it is no hope for the
            // others, which may be there again in a moment.
            ClientError::OtherNetwork { .. }
            | ClientError::LoginWaits { .. }
            | ClientError::Resolve { .. }
            | ClientError::Connect { .. }
            | ClientError::NoDescriptor { .. }
            | ClientError::Lost { .. } => Said::Unreachable,
            _ => Said::Hope,
        };
        self.0.retain(|(other, _)| !other.is_of(at));
        self.0.push((Place::of(at), said));
    }

    /// If none of these nodes may let this client in, the error to end with and the node that it is from: each has refused it, or cannot be reached, and
    /// one has refused it after its greeting. One without a greeting may be another network's, at a stray address: that
    /// counts only where all refuse.
    pub(in crate::smart) fn verdict<'t>(
        &self,
        targets: impl IntoIterator<Item = &'t Target>,
    ) -> Option<(String, ClientError)> {
        let (mut met, mut unmet, mut all_refuse) = (None, None, true);
        for target in targets {
            match &self.0.iter().find(|(other, _)| other.is_of(target))?.1 {
                Said::Refused { error, greeted: true, node } => met = Some((node, error)),
                Said::Refused { error, greeted: false, node } => unmet = Some((node, error)),
                Said::Unreachable => all_refuse = false,
                Said::NoRoom { .. } | Said::Hope => return None,
            }
        }
        let (node, error) = met.or(unmet.filter(|_| all_refuse))?;
        Some((node.clone(), error.clone()))
    }

    /// If this client has no room for another stream at any of these nodes, the error and the node that it is of: each was
    /// tried, and is like that, cannot be reached, or does not let the client in.
    fn no_room<'t>(
        &self,
        targets: impl IntoIterator<Item = &'t Target>,
    ) -> Option<(String, ClientError)> {
        let mut told = None;
        for target in targets {
            match &self.0.iter().find(|(other, _)| other.is_of(target))?.1 {
                Said::NoRoom { error, node } => told = Some((node.clone(), error.clone())),
                Said::Refused { .. } | Said::Unreachable => (),
                Said::Hope => return None,
            }
        }
        told
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
        let policy = self.policy(plan.deadline)?;
        let started_us = rt::now_us();
        let elapsed = || Duration::from_micros(rt::now_us().saturating_sub(started_us));
        let (mut round, mut attempts, mut fate) = (Round::default(), 0_u32, Fate::NotDone);
        let mut refusals = Refusals::default();
        // If it may have been executed.
        let mut in_doubt = SmallVec::<[HostPort; 2]>::new();
        // What a node said of a change that it has made.
        let mut unconfirmed = None;
        let counts_for = match plan.idempotency {
            Idempotency::Read => None,
            _ if is_broken(Rule::TryTime) => None,
            _ if plan.begins_soon => Some(policy.try_deadline),
            _ => Some(Duration::MAX),
        };
        let counts = (!plan.is_own).then_some(&self.counts);
        if let Some(counts) = counts {
            counts.call();
        }
        loop {
            let routing = self.topology.routing();
            let Some(target) = self.choose(&routing, &plan, &mut round) else {
                return Err(CallError::Usage(String::from("there is no node to ask")));
            };
            if self.pool.is_closed() {
                // Not at this node.
                return Err(CallError::Closed(At { node: None, attempts, fate }));
            }
            attempts = attempts.saturating_add(1);
            let at = |fate| At { node: Some(target.name.clone()), attempts, fate };
            let is_preferred = routing.router.preferred(plan.shard).is_some_and(|index| {
                routing.targets.get(index).is_some_and(|node| node.address == target.address)
            });
            if let Some(counts) = counts {
                counts.on_try(attempts, is_preferred);
            }
            if let Some(observed) = observed {
                observed.on_try(&target.name, attempts);
            }
            let patience = plan.try_deadline.unwrap_or(policy.try_deadline);
            // The first try begins with the call.
            let now_us = if attempts == 1 { started_us } else { rt::now_us() };
            let waited = Duration::from_micros(now_us.saturating_sub(started_us));
            let (patience, longest) = match plan.goes_on {
                true => (Duration::MAX, Duration::MAX),
                false => {
                    let left = policy.total_deadline.saturating_sub(waited);
                    (patience.min(left), left)
                }
            };
            let (started_us, bytes) = (now_us, plan.bytes);
            let time = TryTime { started_us, patience, longest, bytes, counts_for };
            let failed = match self.try_at(target, plan.place, time, try_once).await {
                Ok((value, used)) => {
                    let is_other = |other: &HostPort| *other != target.address;
                    let maybe_twice = in_doubt.iter().any(is_other) && !is_broken(Rule::Maybe);
                    return Ok(Served { value, used, attempts, maybe_twice, earlier: fate });
                }
                Err(failed) => failed,
            };
            round.on_failed(target);
            let idempotency = match failed.is_old && plan.needs_id && !is_broken(Rule::OldServers) {
                true => Idempotency::Unguarded,
                false => plan.idempotency,
            };
            let is_made = failed.error.server().is_some_and(|error| error.is_made);
            let this = fate_of(failed.class, is_made, idempotency);
            if this != Fate::NotDone && !in_doubt.contains(&target.address) {
                in_doubt.push(target.address.clone());
            }
            fate = worse(fate, this);
            if let Some(counts) = counts {
                counts.on_failure(failed.class);
            }
            if let Some(observed) = observed {
                observed.on_failure(&target.name, attempts, failed.class, &failed.error);
            }
            if this == Fate::Unconfirmed {
                unconfirmed = Some(failed.error.clone());
            }
            refusals.on_failed(target, &failed.error, failed.class);
            let is_over = elapsed() >= policy.total_deadline || self.pool.is_closed();
            let had_no_room = matches!(failed.error, ClientError::TooManyStreams { .. });
            let refusal = match had_no_room {
                true => refusals.no_room(&routing.targets),
                false => refusals.verdict(&routing.targets),
            };
            let refusal = refusal.filter(|_| !is_over);
            let random = rt::random_u64();
            let mut decision = match refusal {
                Some(_) => Decision::GiveUp(Reason::Final),
                None => policy.decide(failed.class, attempts, elapsed(), idempotency, random),
            };
            if let Decision::RetryAfter { delay, other_node } = decision {
                if !other_node {
                    round.again = Some(Place::of(target));
                }
                // Where there was no room, no node was asked, and the next one may be at once.
                self.pause(if had_no_room { Duration::ZERO } else { delay }).await;
                if self.pool.is_closed() {
                    return Err(CallError::Closed(at(fate)));
                }
                // It may have been a longer pause than planned.
                if elapsed() >= policy.total_deadline {
                    decision = Decision::GiveUp(Reason::Deadline);
                }
            }
            if let Decision::GiveUp(reason) = decision {
                if let Some(counts) = counts {
                    counts.give_up(reason);
                }
                let mut at = at(fate);
                let error = match refusal {
                    Some((node, error)) => {
                        at.node = Some(node);
                        error
                    }
                    None => failed.error,
                };
                // That says more than that the deadline has cut off the last try.
                let error = match (error, unconfirmed) {
                    (error @ ClientError::Server(_), _) | (error, None) => error,
                    (_, Some(error)) => error,
                };
                return Err(final_error(error, at, reason));
            }
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
    use crate::connection::OwnNetwork;

    #[test]
    fn what_all_say_that_can_be_reached_is_final_and_nothing_else() {
        let at = |port| HostPort { host: String::from("127.0.0.1"), port };
        let target = |port: u16| Target {
            name: port.to_string(),
            incarnation: None,
            address: at(port),
            is_live: true,
            is_seed: false,
            counts: Default::default(),
        };
        let all = [target(1), target(2), target(3)];
        let (address, reason) = (String::new(), String::new());
        let refused_by = |greeted| ClientError::NoAccess {
            address: String::new(),
            reason: String::new(),
            code: None,
            greeted,
        };
        let (refused, no_tls) = (refused_by(true), refused_by(false));
        let ours = Box::new(OwnNetwork::named("a").unwrap());
        let other =
            ClientError::OtherNetwork { address: address.clone(), ours, theirs: "b".into() };
        let down = ClientError::Connect { address: address.clone(), reason: reason.clone() };
        let words = crate::error::ServerError::new(Some("too_many".into()), String::from("later"));
        let full = ClientError::Server(words.clone());
        let waits = ClientError::LoginWaits { address: address.clone(), error: Box::new(words) };
        let lost = ClientError::Lost { address, reason };
        let not_ready =
            ClientError::Server(crate::error::ServerError::new(None, String::from("not ready")));
        let unavailable = ErrorClass::Unavailable;
        let mut refusals = Refusals::default();
        let mut verdict = |port, error: &ClientError, class| {
            refusals.on_failed(&target(port), error, class);
            refusals.verdict(&all).is_some()
        };
        assert!(!verdict(1, &refused, unavailable), "the others were not asked");
        assert!(!verdict(2, &down, unavailable), "nor was the third");
        assert!(verdict(3, &lost, ErrorClass::FateUnknown));
        // What a node says last counts.
        assert!(!verdict(2, &not_ready, unavailable), "it lets this client in");
        assert!(!verdict(2, &down, ErrorClass::TryDeadline), "it is slow");
        assert!(verdict(2, &refused, unavailable));
        assert!(verdict(1, &down, unavailable));
        assert!(!verdict(2, &down, unavailable), "nobody refuses any more");
        // Who makes the login wait has not looked at the secret; who is full may let it in.
        assert!(!verdict(1, &waits, unavailable), "nobody refuses");
        assert!(verdict(2, &refused, unavailable), "one refuses, and no other one gives hope");
        assert!(!verdict(1, &full, unavailable), "it may let this client in");
        assert!(!verdict(2, &down, unavailable), "nobody refuses any more");
        assert!(!verdict(1, &down, unavailable), "nobody refuses any more");
        // A stray address: the client's own nodes are only down.
        assert!(!verdict(2, &other, unavailable), "it is of another network");
        assert!(!verdict(2, &no_tls, unavailable), "it may be of another network");
        assert!(!verdict(1, &no_tls, unavailable), "the third is down");
        assert!(verdict(3, &no_tls, unavailable), "no node's certificate is believed");
        assert!(verdict(3, &refused, unavailable));
        assert!(verdict(1, &down, unavailable), "one that has greeted refuses");
        assert!(!verdict(3, &down, unavailable), "the other may be anybody's");
        refusals.on_failed(&target(2), &refused, unavailable);
        // Only those count that there are now.
        refusals.on_failed(&target(3), &not_ready, unavailable);
        assert!(refusals.verdict(&all).is_none());
        assert!(refusals.verdict(&all[..2]).is_some());
    }

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
