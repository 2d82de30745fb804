//! Warns before the certificate for clients expires, and while it has expired: from then on every client that checks it
//! goes away, and nothing else at the node tells why. A node renews its own certificates long before; the operator's
//! (`--cert`) are for the operator to renew.

use distkv_tls::error::date;
use distkv_tls::server::Period;

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

/// The warning of a certificate, if it is time for one. `name`: what it is called; `now`: in seconds since 1970.
pub(in crate::node) fn warning(name: &str, period: Period, now: u64) -> Option<String> {
    let at = date(i64::try_from(period.to).unwrap_or(i64::MAX));
    if now > period.to {
        return Some(format!(
            "the certificate for clients, {name}, expired at {at}: clients that use TLS cannot connect until it is \
             renewed"
        ));
    }
    let part = period.to.saturating_sub(period.from) / WARN_IN_LAST;
    let left = period.to - now;
    (left < part.min(WARN_BEFORE_SECS)).then(|| {
        format!(
            "the certificate for clients, {name}, expires at {at}, in {}: renew it, or clients that use TLS cannot \
             connect from then on",
            length(left)
        )
    })
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
    /// When it was warned of which end of a certificate, and whether that had come.
    warned: Option<(Millis, u64, bool)>,
}

impl ExpiryWatch {
    /// To be called now and then. `now`: by the clock of [`crate::rt::now`], and in seconds since 1970.
    pub(in crate::node) fn look(&mut self, name: &str, period: Period, now: (Millis, u64)) {
        let text = warning(name, period, now.1);
        if self.is_due(text.is_some(), period.to, now) {
            tracing::warn!("{}", text.unwrap_or_default());
        }
    }

    fn is_due(&mut self, is_warning: bool, to: u64, (now, wall): (Millis, u64)) -> bool {
        if !is_warning {
            self.warned = None;
            return false;
        }
        let state = (to, wall > to);
        let is_due = self.warned.is_none_or(|(at, to, is_over)| {
            (to, is_over) != state || now.saturating_sub(at) >= WARN_AGAIN_MS
        });
        if is_due {
            self.warned = Some((now, state.0, state.1));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn it_begins_two_weeks_before_the_end_and_of_short_ones_in_the_last_third() {
        for (days, first) in [(365, 14), (90, 14), (42, 14), (30, 10), (6, 2)] {
            let period = Period { from: NOW, to: NOW + days * DAY };
            let begin = period.to - first * DAY;
            assert_eq!(warning("x", period, begin), None, "{days}");
            assert!(warning("x", period, begin + 1).is_some(), "{days}");
        }
        let odd = Period { from: NOW, to: NOW - DAY };
        assert!(warning("x", odd, NOW).is_some());
    }

    #[test]
    fn it_says_which_when_and_what_then() {
        let period = Period { from: NOW - 365 * DAY, to: NOW };
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
            told(NOW + 1),
            "the certificate for clients, node.pem, expired at 2027-01-15 08:00 UTC: clients that use TLS cannot \
             connect until it is renewed"
        );
    }

    #[test]
    fn the_log_has_it_at_once_every_day_and_at_the_end_and_no_more_once_it_is_renewed() {
        let mut watch = ExpiryWatch::default();
        let end = NOW + 36 * HOUR;
        let mut said = |hours: std::ops::Range<u64>, is_warning, to| {
            let at = |hour: &u64| (hour * HOUR * 1_000, NOW + hour * HOUR);
            hours.filter(|hour| watch.is_due(is_warning, to, at(hour))).collect::<Vec<_>>()
        };
        assert_eq!(said(5..90, true, end), [5, 29, 37, 61, 85]);
        assert!(said(90..200, false, end + 365 * DAY).is_empty());
        assert_eq!(said(200..210, true, end + 300 * HOUR), [200]);
        assert_eq!(said(210..220, true, end + 301 * HOUR), [210], "another one");
    }
}
