//! Warns before the certificate for clients expires, and while it has expired or is not valid yet: then every client that
//! checks it goes away, and nothing else at the node tells why. A node renews its own certificates long before; the operator's
//! (`--cert`) are for the operator to renew.

use distkv_tls::Period;
use distkv_tls::error::date;

use crate::model::count::count_of;
use crate::model::ids::Millis;

/// The warning begins so many seconds before the certificate expires: two weeks.
const WARN_BEFORE_SECS: u64 = 14 * 24 * 3_600;
/// Of a certificate that is valid for a short time only, it begins in the last part of that time: one in so many.
/// Otherwise one that is renewed every week would be warned of always.
const WARN_IN_LAST: u64 = 3;
/// The warning is repeated in the log this often.
const WARN_AGAIN_MS: Millis = 24 * 3_600_000;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// What there is to warn of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// It is not valid yet, or this machine's clock is behind.
    NotYet,
    /// It expires soon.
    Ends,
    /// It has expired.
    Over,
}

impl Trouble {
    fn of(period: Period, now: u64) -> Option<Self> {
        if now > period.to {
            return Some(Self::Over);
        }
        if now < period.from {
            return Some(Self::NotYet);
        }
        let part = period.lasts / WARN_IN_LAST;
        (period.to - now < part.min(WARN_BEFORE_SECS)).then_some(Self::Ends)
    }
}

/// The warning of a certificate, if it is time for one. `name`: what it is called; `now`: in seconds since 1970.
pub(in crate::node) fn warning(name: &str, period: Period, now: u64) -> Option<String> {
    let at = text_of(period.to);
    Some(match Trouble::of(period, now)? {
        Trouble::NotYet => format!(
            "the certificate for clients, {name}, is valid from {} on, and this machine's clock says {}: clients that \
             have the same time cannot connect by TLS; is the clock right?",
            text_of(period.from),
            text_of(now)
        ),
        Trouble::Ends => format!(
            "the certificate for clients, {name}, expires at {at}, in {}: renew it, or clients that use TLS cannot \
             connect from then on",
            length(period.to - now)
        ),
        Trouble::Over => format!(
            "the certificate for clients, {name}, expired at {at}, and this machine's clock says {}: clients that have \
             the same time cannot connect by TLS until it is renewed; is the clock right?",
            text_of(now)
        ),
    })
}

/// Why a certificate must not take the place of another one now, if so. It says the same each time.
pub(in crate::node) fn untimely(period: Period, now: u64) -> Option<String> {
    match Trouble::of(period, now)? {
        Trouble::NotYet => {
            let from = text_of(period.from);
            Some(format!("by this machine's clock it is not valid yet, but from {from} on"))
        }
        Trouble::Over => Some(format!("it expired at {}", text_of(period.to))),
        Trouble::Ends => None,
    }
}

fn text_of(seconds: u64) -> String {
    date(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// A time for people, rounded down.
fn length(seconds: u64) -> String {
    match seconds {
        0..MINUTE => String::from("less than a minute"),
        MINUTE..HOUR => count_of(seconds / MINUTE, "minute", "minutes"),
        HOUR..DAY => count_of(seconds / HOUR, "hour", "hours"),
        _ => count_of(seconds / DAY, "day", "days"),
    }
}

/// Says it in the log.
#[derive(Default)]
pub(in crate::node) struct ExpiryWatch {
    /// When it was warned of what, and of which period.
    warned: Option<(Millis, Period, Trouble)>,
}

impl ExpiryWatch {
    /// To be called now and then. `now`: by the clock of [`crate::rt::now`], and in seconds since 1970.
    pub(in crate::node) fn look(&mut self, name: &str, period: Period, now: (Millis, u64)) {
        let text = warning(name, period, now.1);
        if self.is_due(period, now) {
            tracing::warn!("{}", text.unwrap_or_default());
        }
    }

    fn is_due(&mut self, period: Period, (now, wall): (Millis, u64)) -> bool {
        let Some(trouble) = Trouble::of(period, wall) else {
            self.warned = None;
            return false;
        };
        let is_due = self.warned.is_none_or(|(at, of, was)| {
            (of, was) != (period, trouble) || now.saturating_sub(at) >= WARN_AGAIN_MS
        });
        if is_due {
            self.warned = Some((now, period, trouble));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn of(from: u64, to: u64) -> Period {
        Period { from, to, lasts: to.saturating_sub(from) }
    }

    #[test]
    fn it_begins_two_weeks_before_the_end_and_of_short_ones_in_the_last_third() {
        for (days, first) in [(365, 14), (90, 14), (42, 14), (30, 10), (6, 2)] {
            let period = of(NOW, NOW + days * DAY);
            let begin = period.to - first * DAY;
            assert_eq!(warning("x", period, begin), None, "{days}");
            assert!(warning("x", period, begin + 1).is_some(), "{days}");
        }
        let odd = of(NOW, NOW - DAY);
        assert!(warning("x", odd, NOW).is_some());
    }

    #[test]
    fn it_says_which_when_and_what_then() {
        let period = of(NOW - 365 * DAY, NOW);
        let told = |now| warning("node.pem", period, now).unwrap();
        assert_eq!(
            told(NOW - 6 * DAY - 1),
            "the certificate for clients, node.pem, expires at 2027-01-15 08:00 UTC, in 6 days: renew it, or clients \
             that use TLS cannot connect from then on"
        );
        for (left, text) in [
            (DAY, "in 1 day:"),
            (DAY - 1, "in 23 hours:"),
            (2 * MINUTE, "in 2 minutes:"),
            (MINUTE - 1, "in less than a minute:"),
            (0, "in less than a minute:"),
        ] {
            assert!(told(NOW - left).contains(text), "{}", told(NOW - left));
        }
        assert_eq!(
            told(NOW + DAY),
            "the certificate for clients, node.pem, expired at 2027-01-15 08:00 UTC, and this machine's clock says \
             2027-01-16 08:00 UTC: clients that have the same time cannot connect by TLS until it is renewed; is the \
             clock right?"
        );
        let later = of(NOW, NOW + 365 * DAY);
        assert_eq!(
            warning("node.pem", later, NOW - 365 * DAY).unwrap(),
            "the certificate for clients, node.pem, is valid from 2027-01-15 08:00 UTC on, and this machine's clock says \
             2026-01-15 08:00 UTC: clients that have the same time cannot connect by TLS; is the clock right?"
        );
        assert_eq!(warning("node.pem", later, NOW), None);
    }

    #[test]
    fn one_that_is_not_valid_now_takes_no_other_one_s_place_and_the_reason_stays_the_same() {
        let period = of(NOW, NOW + 30 * DAY);
        assert_eq!(untimely(period, NOW), None);
        assert_eq!(untimely(period, period.to), None, "one that expires soon is taken");
        for (first, second) in [(NOW - DAY, NOW - 1), (period.to + 1, period.to + DAY)] {
            let why = untimely(period, first);
            assert!(why.is_some() && why == untimely(period, second), "{why:?}");
        }
    }

    #[test]
    fn the_log_has_it_at_once_every_day_and_at_the_end_and_no_more_once_it_is_renewed() {
        let mut watch = ExpiryWatch::default();
        let end = NOW + 36 * HOUR;
        let mut said = |hours: std::ops::Range<u64>, to| {
            let period = of(to - 90 * DAY, to);
            let at = |hour: &u64| (hour * HOUR * 1_000, NOW + hour * HOUR);
            hours.filter(|hour| watch.is_due(period, at(hour))).collect::<Vec<_>>()
        };
        assert_eq!(said(5..90, end), [5, 29, 37, 61, 85]);
        assert!(said(90..200, end + 60 * DAY).is_empty());
        assert_eq!(said(200..210, end + 300 * HOUR), [200]);
        assert_eq!(said(210..220, end + 301 * HOUR), [210], "another one");
        assert_eq!(said(220..250, NOW + 91 * DAY + 240 * HOUR), [220, 244], "not valid yet");
    }
}
