//! Reminds operators of `--plaintext-peers`, which is for the hours in which a network moves to a key, and easily
//! forgotten: at once, and every hour while the node runs with it.

use crate::model::ids::Millis;

/// The warning is repeated this often.
const WARN_AGAIN_MS: Millis = 3_600_000;

/// See the module.
#[derive(Default)]
pub(in crate::node) struct PlaintextWatch {
    warned_at: Option<Millis>,
}

impl PlaintextWatch {
    /// To be called about every second. `is_taken`: whether nodes without a key are spoken to.
    pub(in crate::node) fn look(&mut self, is_taken: bool, now: Millis) {
        if self.is_due(is_taken, now) {
            tracing::warn!(
                "--plaintext-peers: links and datagrams of nodes without a key are taken, too, so nothing is \
                 protected yet; restart without it once `distkv-node members` shows every link as secured"
            );
        }
    }

    fn is_due(&mut self, is_taken: bool, now: Millis) -> bool {
        let is_due =
            is_taken && self.warned_at.is_none_or(|at| now.saturating_sub(at) >= WARN_AGAIN_MS);
        if is_due {
            self.warned_at = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_warns_at_once_and_every_hour_and_never_without_the_option() {
        let minutes = |is_taken| {
            let mut watch = PlaintextWatch::default();
            (5..200_u64).filter(|m| watch.is_due(is_taken, m * 60_000)).collect::<Vec<_>>()
        };
        assert_eq!(minutes(true), [5, 65, 125, 185]);
        assert!(minutes(false).is_empty());
    }
}
