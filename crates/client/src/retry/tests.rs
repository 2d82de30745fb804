//! Tests of the retry policy, by tables.

use ErrorClass::{
    Aborted, Busy, FateUnknown, Final, Overload, TryDeadline, Unavailable, UnknownThere,
};
use Idempotency::{Guarded, Read, Unguarded};

use super::*;

const ALL_CLASSES: [ErrorClass; 8] =
    [Unavailable, Overload, Aborted, TryDeadline, FateUnknown, UnknownThere, Busy, Final];

const CODES: [(&str, ErrorClass); 28] = [
    ("bad_request", Final),
    ("bad_message", Final),
    ("unknown_action", Final),
    ("not_implemented", Final),
    ("not_found", Final),
    ("already_exists", Final),
    ("is_new", Final),
    ("chain_mismatch", Final),
    ("data_mismatch", Final),
    ("is_root", Final),
    ("type_mismatch", Final),
    ("in_use", Final),
    ("wid_reused", Final),
    ("given_up", Final),
    ("memory_full", Final),
    ("too_large", Final),
    ("denied", Final),
    ("auth_required", Final),
    ("auth_failed", Final),
    ("not_ready", Unavailable),
    ("too_late", Unavailable),
    ("read_only", Unavailable),
    ("no_event", Unavailable),
    ("too_many", Overload),
    ("too_slow", Aborted),
    ("unknown_fate", UnknownThere),
    ("storage_failed", Unavailable),
    ("internal", FateUnknown),
];

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn server(code: Option<&str>) -> ClientError {
    let error = ServerError::new(code.map(str::to_owned), "no".to_owned());
    ClientError::Server(error)
}

#[test]
fn every_code_has_its_class() {
    for (code, class) in CODES {
        for sent in [Sent::Nothing, Sent::Maybe] {
            assert_eq!(ErrorClass::of(&server(Some(code)), sent), class, "{code}");
        }
    }
}

#[test]
fn a_change_that_the_node_has_made_is_not_made_elsewhere_as_if_it_had_not() {
    for (code, class) in CODES {
        let error =
            ServerError { is_made: true, ..ServerError::new(Some(code.into()), "no".into()) };
        let expected = match class {
            Unavailable | Overload | Aborted => FateUnknown,
            class => class,
        };
        assert_eq!(ErrorClass::of_server(&error), expected, "{code}");
    }
}

#[test]
fn every_code_that_a_node_can_send_is_classified_explicitly() {
    // From the source, so that a code that is added there must be classified here.
    let source = include_str!("../../../core/src/protocol/client/replies/error.rs");
    let words: Vec<&str> = source
        .lines()
        .filter(|line| line.trim_start().starts_with("Self::") && line.contains("=> \""))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(words.len() >= 22, "{words:?}");
    for word in words {
        assert!(ErrorClass::of_code(word).is_some(), "{word} has no class");
        assert!(CODES.iter().any(|(code, _)| *code == word), "{word} is not tested");
    }
}

#[test]
fn what_is_not_known_is_final() {
    assert_eq!(ErrorClass::of(&server(None), Sent::Maybe), Final);
    assert_eq!(ErrorClass::of(&server(Some("from_the_future")), Sent::Maybe), Final);
    assert_eq!(ErrorClass::of_code("from_the_future"), None);
}

#[test]
fn errors_of_the_connection_are_classified_by_what_was_sent() {
    let (address, reason) = (String::new, String::new);
    let resolve = ClientError::Resolve { address: address(), reason: reason() };
    let connect = ClientError::Connect { address: address(), reason: reason() };
    let lost = ClientError::Lost { address: address(), reason: reason() };
    let protocol = ClientError::Protocol { address: address(), reason: reason() };
    let words = Box::new(ServerError::new(Some(String::from("too_many")), reason()));
    let waits = ClientError::LoginWaits { address: address(), error: words };
    for (error, nothing, maybe) in [
        (resolve, Unavailable, Unavailable),
        (connect, Unavailable, Unavailable),
        (waits, Unavailable, Unavailable),
        (lost, Unavailable, FateUnknown),
        (protocol, Unavailable, FateUnknown),
        (ClientError::TooLarge(5), Final, Final),
        (ClientError::Busy(5), Busy, Busy),
    ] {
        assert_eq!(ErrorClass::of(&error, Sent::Nothing), nothing, "{error}");
        assert_eq!(ErrorClass::of(&error, Sent::Maybe), maybe, "{error}");
    }
}

#[test]
fn each_class_is_decided_by_its_row() {
    enum Row {
        Next,
        Same,
        No(Reason),
    }
    use Row::{Next, No, Same};
    const UNKNOWN: Row = No(Reason::FateUnknown);
    const FINAL: Row = No(Reason::Final);
    let policy = RetryPolicy::default();
    for (class, read, guarded, unguarded) in [
        (Unavailable, Next, Next, Next),
        (Overload, Next, Next, Next),
        (Aborted, Next, Next, Next),
        (Busy, Same, Same, Same),
        (TryDeadline, Next, Next, UNKNOWN),
        (FateUnknown, Next, Next, UNKNOWN),
        (UnknownThere, Same, Same, UNKNOWN),
        (Final, FINAL, FINAL, FINAL),
    ] {
        for (idempotency, row) in [(Read, read), (Guarded, guarded), (Unguarded, unguarded)] {
            for attempt in [1, 2, 40] {
                let decision = policy.decide(class, attempt, millis(5), idempotency, 7);
                let delay = policy.delay(attempt, 7);
                let expected = match row {
                    Next => Decision::RetryAfter { delay, other_node: true },
                    Same => Decision::RetryAfter { delay, other_node: false },
                    No(reason) => Decision::GiveUp(reason),
                };
                assert_eq!(decision, expected, "{class:?} {idempotency:?} {attempt}");
            }
        }
    }
}

#[test]
fn delays_double_up_to_their_maximum_and_jitter_is_between_half_and_all() {
    let policy = RetryPolicy::default();
    for (attempt, longest) in [
        (0, 10),
        (1, 10),
        (2, 20),
        (3, 40),
        (4, 80),
        (5, 160),
        (6, 320),
        (7, 640),
        (8, 1000),
        (9, 1000),
        (33, 1000),
        (u32::MAX, 1000),
    ] {
        assert_eq!(policy.delay(attempt, 0), millis(longest) / 2, "try {attempt}");
        assert_eq!(policy.delay(attempt, u64::MAX), millis(longest), "try {attempt}");
        let mut random = 1_u64;
        let mut sum = Duration::ZERO;
        for _ in 0..1000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let delay = policy.delay(attempt, random);
            assert!(delay >= millis(longest) / 2 && delay <= millis(longest), "{delay:?}");
            sum += delay;
        }
        let mean = sum.as_secs_f64() / 1000.0 / millis(longest).as_secs_f64();
        assert!((0.72..0.78).contains(&mean), "spread evenly: {mean}");
    }
}

#[test]
fn nothing_is_tried_again_that_would_begin_at_the_deadline_or_later() {
    let policy = RetryPolicy::default();
    // The first delay is 10 ms with this randomness.
    for (elapsed, fits) in [
        (millis(0), true),
        (millis(9_989), true),
        (millis(9_990), false),
        (millis(10_000), false),
        (Duration::MAX, false),
    ] {
        for class in ALL_CLASSES.into_iter().filter(|class| *class != Final) {
            let decision = policy.decide(class, 1, elapsed, Guarded, u64::MAX);
            assert_eq!(
                decision != Decision::GiveUp(Reason::Deadline),
                fits,
                "{class:?} {elapsed:?}"
            );
        }
        // These are not about time.
        let decision = policy.decide(Final, 1, elapsed, Guarded, 0);
        assert_eq!(decision, Decision::GiveUp(Reason::Final));
        let decision = policy.decide(FateUnknown, 1, elapsed, Unguarded, 0);
        assert_eq!(decision, Decision::GiveUp(Reason::FateUnknown));
    }
}

#[test]
fn a_request_ends_within_its_total_deadline_whatever_happens() {
    let policy = RetryPolicy::default();
    for seed in 0..50_u64 {
        let mut random = seed;
        let (mut elapsed, mut attempt) = (Duration::ZERO, 0);
        while let Some(time) = policy.time_for_try(elapsed) {
            attempt += 1;
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // A dead node refuses at once, a hanging one takes all of its time.
            elapsed += if random >> 63 == 0 { millis(1) } else { time };
            let class = if random >> 63 == 0 { Unavailable } else { TryDeadline };
            match policy.decide(class, attempt, elapsed, Read, random) {
                Decision::RetryAfter { delay, .. } => elapsed += delay,
                Decision::GiveUp(reason) => {
                    assert_eq!(reason, Reason::Deadline);
                    break;
                }
            }
        }
        assert!(elapsed <= policy.total_deadline, "{elapsed:?} after {attempt} tries");
        assert!((5..30).contains(&attempt), "{attempt}");
    }
}

#[test]
fn a_try_has_its_own_time_or_what_is_left() {
    let policy = RetryPolicy::default();
    for (elapsed, time) in [
        (0, Some(2_000)),
        (8_000, Some(2_000)),
        (8_001, Some(1_999)),
        (9_999, Some(1)),
        (10_000, None),
        (11_000, None),
    ] {
        assert_eq!(policy.time_for_try(millis(elapsed)), time.map(millis), "{elapsed}");
    }
}

#[test]
fn odd_settings_do_no_harm() {
    let no_factor = RetryPolicy { factor: 0, ..RetryPolicy::default() };
    assert_eq!(no_factor.delay(9, u64::MAX), millis(10));
    let endless = RetryPolicy {
        initial_delay: Duration::MAX,
        delay_max: Duration::MAX,
        factor: u32::MAX,
        total_deadline: Duration::MAX,
        try_deadline: Duration::MAX,
        attempts_max: None,
    };
    let decision = endless.decide(Unavailable, u32::MAX, Duration::MAX, Read, u64::MAX);
    assert_eq!(decision, Decision::GiveUp(Reason::Deadline));
    let none = RetryPolicy { total_deadline: Duration::ZERO, ..RetryPolicy::default() };
    assert_eq!(none.time_for_try(Duration::ZERO), None);
}

#[test]
fn there_are_as_many_tries_as_there_may_be() {
    let policy = RetryPolicy { attempts_max: Some(3), ..RetryPolicy::default() };
    let decide = |attempt, class| policy.decide(class, attempt, Duration::ZERO, Read, 0);
    assert!(matches!(decide(1, Unavailable), Decision::RetryAfter { .. }));
    assert!(matches!(decide(2, Unavailable), Decision::RetryAfter { .. }));
    assert_eq!(decide(3, Unavailable), Decision::GiveUp(Reason::Deadline));
    // What no other try would help is told as such.
    assert_eq!(decide(3, Final), Decision::GiveUp(Reason::Final));
    let once = RetryPolicy { attempts_max: Some(0), ..RetryPolicy::default() };
    let decision = once.decide(Unavailable, 1, Duration::ZERO, Read, 0);
    assert_eq!(decision, Decision::GiveUp(Reason::Deadline));
}
