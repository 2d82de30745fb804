//! Whether a failed request is retried, when, and at which node: pure decisions. Time and
//! randomness are passed in; the caller carries out the decision.
//!
//! A request is retried only if that can help (another node, a moment later) and can do no harm.
//! Harm is a write that is made twice: so if it is unknown whether a write was made, it is retried
//! only if it carries something that keeps the second one from counting ([`Idempotency::Guarded`]).

pub(crate) mod deviations;
#[cfg(test)]
pub(crate) mod vectors;

use std::time::Duration;

use super::error::{ClientError, ServerError};
use deviations::{Rule, is_broken};

/// What an error means for trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// That node cannot do it now, and did not. Another one can.
    Unavailable,
    /// The node has too much to do, and did not do it.
    Overload,
    /// It was ended in its middle, and can be started anew.
    Aborted,
    /// One try has used up its time. Whether it was carried out is unknown.
    TryDeadline,
    /// Whether it was carried out is not known.
    FateUnknown,
    /// The same, but the node that was asked knows more than others do: that one is asked again.
    UnknownThere,
    /// This connection has too many open requests. Nothing was sent, and the node is fine.
    Busy,
    /// The answer would be the same at every node, at any time.
    Final,
}

/// How much of a request may have reached the node when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sent {
    /// Nothing, for certain: there was no connection to write to.
    Nothing,
    /// Some or all of it.
    Maybe,
}

/// What happens if a request is carried out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Idempotency {
    /// It changes nothing.
    Read,
    /// A write with a chain precondition, a write id, or `idem`: the second one changes nothing.
    Guarded,
    /// A write that would be made twice.
    Unguarded,
}

/// What to do about a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Wait, then try again.
    RetryAfter {
        /// How long to wait.
        delay: Duration,
        /// Whether the next node in the order is tried, or the same one.
        other_node: bool,
    },
    /// The request has failed.
    GiveUp(Reason),
}

/// Why a request is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Trying again would not help. Not done, unless an earlier try's fate is unknown.
    Final,
    /// It is unknown whether the write was made, and another try could make it twice.
    FateUnknown,
    /// Another try would not fit into the total deadline, or be one more than there may be.
    Deadline,
}

impl ErrorClass {
    /// What this error means.
    #[must_use]
    pub fn of(error: &ClientError, sent: Sent) -> ErrorClass {
        match error {
            ClientError::Server(error) => ErrorClass::of_server(error),
            ClientError::Resolve { .. }
            | ClientError::Connect { .. }
            | ClientError::NoDescriptor { .. }
            | ClientError::TooManyStreams { .. }
            | ClientError::NoTime => ErrorClass::Unavailable,
            ClientError::Silent { .. } => ErrorClass::TryDeadline,
            ClientError::Lost { .. } | ClientError::Protocol { .. } => match sent {
                Sent::Nothing => ErrorClass::Unavailable,
                Sent::Maybe => ErrorClass::FateUnknown,
            },
            ClientError::TooLarge(_) => ErrorClass::Final,
            // One node alone may be mistaken, or not have heard of a new user.
            ClientError::NoAccess { .. }
            | ClientError::LoginWaits { .. }
            | ClientError::OtherNetwork { .. } => ErrorClass::Unavailable,
            ClientError::Busy(_) => ErrorClass::Busy,
        }
    }

    /// What a node's error means. An error without a code, or with an unknown one, is final: the
    /// effect of another try is unknown.
    #[must_use]
    pub fn of_server(error: &ServerError) -> ErrorClass {
        match error.code.as_deref().and_then(ErrorClass::of_code) {
            // It did it, or part of it: another node would do it again.
            Some(ErrorClass::Unavailable | ErrorClass::Overload | ErrorClass::Aborted)
                if error.is_made =>
            {
                ErrorClass::FateUnknown
            }
            class => class.unwrap_or(ErrorClass::Final),
        }
    }

    /// What an error's code means where the node does not say that the change is made; none for a code that is not
    /// known. A test sees to it that all the codes of our own nodes are.
    #[must_use]
    pub fn of_code(code: &str) -> Option<ErrorClass> {
        Some(match code {
            // About the request: the same everywhere.
            "bad_request" | "bad_message" | "unknown_action" | "not_implemented" | "too_large"
            | "wid_reused" | "given_up" | "denied" | "auth_required" | "auth_failed"
            | "is_root" => ErrorClass::Final,
            // Not there, or a precondition that does not hold.
            "not_found" | "already_exists" | "is_new" | "chain_mismatch" | "data_mismatch"
            | "type_mismatch" | "in_use" => ErrorClass::Final,
            // All nodes hold all data, so the others are as full.
            "memory_full" => ErrorClass::Final,
            // About this node.
            "not_ready" if is_broken(Rule::NotReady) => ErrorClass::Final,
            "not_ready" | "read_only" | "no_event" | "storage_failed" | "too_late" => {
                ErrorClass::Unavailable
            }
            "too_many" => ErrorClass::Overload,
            // A stream that was not read in time: a new one can be read.
            "too_slow" if is_broken(Rule::TooSlow) => ErrorClass::Final,
            "too_slow" => ErrorClass::Aborted,
            // Made at that node, which recognises it by its write id.
            "unknown_fate" => ErrorClass::UnknownThere,
            // A bug, before or after the change.
            "internal" => ErrorClass::FateUnknown,
            _ => return None,
        })
    }

    /// As a word, the same in all languages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorClass::Unavailable => "unavailable",
            ErrorClass::Overload => "overload",
            ErrorClass::Aborted => "aborted",
            ErrorClass::TryDeadline => "try_deadline",
            ErrorClass::FateUnknown => "fate_unknown",
            ErrorClass::UnknownThere => "unknown_there",
            ErrorClass::Busy => "busy",
            ErrorClass::Final => "final",
        }
    }

    /// Whether the request may have been carried out.
    #[must_use]
    pub fn is_fate_unknown(self) -> bool {
        match self {
            ErrorClass::TryDeadline | ErrorClass::FateUnknown | ErrorClass::UnknownThere => true,
            ErrorClass::Unavailable
            | ErrorClass::Overload
            | ErrorClass::Aborted
            | ErrorClass::Busy
            | ErrorClass::Final => false,
        }
    }

    /// Whether another node is more likely to do it.
    fn wants_other_node(self) -> bool {
        !matches!(self, ErrorClass::UnknownThere | ErrorClass::Busy) || is_broken(Rule::SameNode)
    }
}

/// When a request is tried again, and for how long in all.
///
/// The delay before try n + 1 is `initial_delay` * `factor`^(n - 1), at most `delay_max`, of which a random
/// part between half and all is waited: callers that failed together do not come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The delay before the second try.
    pub initial_delay: Duration,
    /// By how much each delay is longer than the one before it, at least 1.
    pub factor: u32,
    /// No delay is longer.
    pub delay_max: Duration,
    /// How long all tries and delays of a request may take together.
    pub total_deadline: Duration,
    /// How long one try may take, where there is not much to send: 2 s more for each 1,000,000 bytes that its connection has sent
    /// and that have no answer yet, and as long as an answer is still arriving, but not beyond `total_deadline`.
    pub try_deadline: Duration,
    /// Most tries of a request, at least 1; none: only the deadlines count.
    pub attempts_max: Option<u32>,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            initial_delay: Duration::from_millis(10),
            factor: 2,
            delay_max: Duration::from_secs(1),
            total_deadline: Duration::from_secs(10),
            try_deadline: Duration::from_secs(2),
            attempts_max: None,
        }
    }
}

impl RetryPolicy {
    /// What to do when try number `attempt` (the first is 1) has failed, `elapsed` after the request was
    /// begun. `random`: 64 random bits, new ones for each call.
    #[must_use]
    pub fn decide(
        &self,
        class: ErrorClass,
        attempt: u32,
        elapsed: Duration,
        idempotency: Idempotency,
        random: u64,
    ) -> Decision {
        if class == ErrorClass::Final {
            return Decision::GiveUp(Reason::Final);
        }
        let is_unguarded = idempotency == Idempotency::Unguarded && !is_broken(Rule::Unguarded);
        if class.is_fate_unknown() && is_unguarded {
            return Decision::GiveUp(Reason::FateUnknown);
        }
        if self.attempts_max.is_some_and(|most| attempt >= most) {
            return Decision::GiveUp(Reason::Deadline);
        }
        let delay = self.delay(attempt, random);
        match elapsed.saturating_add(delay) < self.total_deadline {
            true => Decision::RetryAfter { delay, other_node: class.wants_other_node() },
            // Waiting for a try that would have no time left is useless.
            false => Decision::GiveUp(Reason::Deadline),
        }
    }

    /// How long to wait after try number `attempt` (the first is 1) has failed.
    #[must_use]
    pub fn delay(&self, attempt: u32, random: u64) -> Duration {
        backoff(self.initial_delay, self.factor, self.delay_max, attempt, random)
    }

    /// How much time a try has that begins `elapsed` after the request; none if the time is used
    /// up.
    #[must_use]
    pub fn time_for_try(&self, elapsed: Duration) -> Option<Duration> {
        let left = self.total_deadline.checked_sub(elapsed).filter(|left| !left.is_zero())?;
        Some(left.min(self.try_deadline))
    }
}

/// Exponential backoff: `first` * `factor`^(failures - 1), at most `longest`, of which a random part
/// between half and all counts.
pub(super) fn backoff(
    first: Duration,
    factor: u32,
    longest: Duration,
    failures: u32,
    random: u64,
) -> Duration {
    let factor = factor.max(1).saturating_pow(failures.saturating_sub(1));
    let all = first.saturating_mul(factor).min(longest);
    // 584 years, where it is cut.
    let all = u64::try_from(all.as_nanos()).unwrap_or(u64::MAX);
    let half = all / 2;
    let part = u128::from(all - half) * u128::from(random) / u128::from(u64::MAX);
    Duration::from_nanos(half + part as u64)
}

#[cfg(test)]
mod tests;
