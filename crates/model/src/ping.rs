//! The messages that members of an election exchange: the vocabulary of `actor`, kept here so that
//! `protocol` can encode it. Plain data; `actor` judges its contents.

use super::ids::{Millis, NodeName};
use super::limits::COUNTER_LIMIT;

/// Most names of a history that are looked at; further ones are ignored. At most this many
/// members can be on an elected list.
pub const HISTORY_LEN_MAX: usize = 16;
/// Most meetings that a ping reports, the latest ones. Each costs two histories; a node that misses
/// one because a network healed in many pieces at once still hears the other histories themselves.
pub const PING_MEETINGS_MAX: usize = 8;
/// Turns from here on are refused. At ten turns a second it takes ten thousand million years to get
/// there; a node that a broken peer leads there starts again with an empty history.
pub const TURN_LIMIT: u64 = COUNTER_LIMIT;

/// Shortest cycle, in milliseconds: below it, pings would be a load.
pub(crate) const CYCLE_MS_MIN: Millis = 100;
/// Longest cycle, in milliseconds: ten minutes. With a longer one, the loss of a node would take
/// too long to notice.
pub(crate) const CYCLE_MS_MAX: Millis = 600_000;
/// Shortest gap, in milliseconds.
pub(crate) const GAP_MS_MIN: Millis = 10;
/// A cycle has at least this many gaps: a claim is contested for up to two.
pub(crate) const GAPS_PER_CYCLE_MIN: Millis = 3;
/// Shortest list. With one place only, each turn's history would share nothing with the last
/// one's, and every turn would look like a healed split.
pub(crate) const LIST_LEN_MIN: usize = 2;
/// Longest list: what fits into a history.
pub const LIST_LEN_MAX: usize = HISTORY_LEN_MAX;

/// Which election a ping belongs to; several run side by side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u8);

/// Why a configuration was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The cycle is too short or too long.
    #[error("a cycle of {0} ms is out of range; {CYCLE_MS_MIN} to {CYCLE_MS_MAX} are allowed")]
    Cycle(Millis),
    /// The gap is too short, or too long for the cycle.
    #[error(
        "a gap of {gap_ms} ms does not go with a cycle of {cycle_ms} ms; it has at least \
         {GAP_MS_MIN} ms and is at most 1/{GAPS_PER_CYCLE_MIN} of the cycle"
    )]
    Gap {
        /// The gap.
        gap_ms: Millis,
        /// The cycle.
        cycle_ms: Millis,
    },
    /// The list is too short or too long.
    #[error("a list of {0} is out of range; {LIST_LEN_MIN} to {LIST_LEN_MAX} are allowed")]
    ListLen(usize),
}

/// The settings that all members of an election must share. They travel in pings, and the greater
/// one, first by version, then by content, wins everywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConfigVersion {
    /// The greater version wins.
    pub version: u64,
    /// Milliseconds from one turn to the next; [`CYCLE_MS_MIN`] to [`CYCLE_MS_MAX`].
    pub cycle_ms: Millis,
    /// Milliseconds in which a ping reaches everybody and an answer comes back, with a margin: how
    /// long a silent node is waited for, and how long a claim waits to be contested. From
    /// [`GAP_MS_MIN`], at most the cycle divided by [`GAPS_PER_CYCLE_MIN`].
    pub gap_ms: Millis,
    /// Members on the list; [`LIST_LEN_MIN`] to [`LIST_LEN_MAX`].
    pub list_len: usize,
}

impl ConfigVersion {
    /// Made for housekeepers: a turn a second, and a list of four.
    pub const DEFAULT: Self = Self { version: 0, cycle_ms: 1_000, gap_ms: 200, list_len: 4 };

    /// Whether all values are in range.
    ///
    /// # Errors
    /// [`ConfigError`] names the first one that is not.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self { version: _, cycle_ms, gap_ms, list_len } = *self;
        if !(CYCLE_MS_MIN..=CYCLE_MS_MAX).contains(&cycle_ms) {
            return Err(ConfigError::Cycle(cycle_ms));
        }
        if !(GAP_MS_MIN..=cycle_ms / GAPS_PER_CYCLE_MIN).contains(&gap_ms) {
            return Err(ConfigError::Gap { gap_ms, cycle_ms });
        }
        if !(LIST_LEN_MIN..=LIST_LEN_MAX).contains(&list_len) {
            return Err(ConfigError::ListLen(list_len));
        }
        Ok(())
    }

    /// The nearest configuration of this version whose values are all in range.
    #[must_use]
    pub fn clamped(self) -> Self {
        let cycle_ms = self.cycle_ms.clamp(CYCLE_MS_MIN, CYCLE_MS_MAX);
        Self {
            version: self.version,
            cycle_ms,
            gap_ms: self.gap_ms.clamp(GAP_MS_MIN, cycle_ms / GAPS_PER_CYCLE_MIN),
            list_len: self.list_len.clamp(LIST_LEN_MIN, LIST_LEN_MAX),
        }
    }
}

impl Default for ConfigVersion {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Two histories that shared nothing have met: a split has healed. It travels in pings for some
/// turns, so that it also reaches nodes that never heard the other history themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meeting {
    /// The turn in which the two became one.
    pub turn: u64,
    /// Both, in no special order, each newest first, at most [`HISTORY_LEN_MAX`] names.
    pub sides: [Vec<NodeName>; 2],
}

/// The one message of an election. If the sender is the first of the history, it claims the turn;
/// otherwise it only repeats a claim that it knows of. A sender that knows of none says so with an
/// empty history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ping {
    /// Which election.
    pub group: GroupId,
    /// The sender.
    pub sender: NodeName,
    /// The number of the turn, from 1, below [`TURN_LIMIT`]; 0 with an empty history.
    pub turn: u64,
    /// The value of the node that claimed the turn; none: it was not ready.
    pub value: Option<u64>,
    /// The node that claimed the turn, then those of the turns before, newest first, each once; at
    /// most [`HISTORY_LEN_MAX`].
    pub history: Vec<NodeName>,
    /// Which histories have met lately; at most [`PING_MEETINGS_MAX`].
    pub meetings: Vec<Meeting>,
    /// The sender's configuration.
    pub config: ConfigVersion,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_configuration_is_in_range() {
        assert_eq!(ConfigVersion::DEFAULT.check(), Ok(()));
        assert_eq!(ConfigVersion::DEFAULT.clamped(), ConfigVersion::DEFAULT);
    }

    #[test]
    fn configurations_out_of_range_are_named_and_can_be_clamped() {
        let base = ConfigVersion::DEFAULT;
        let bad = [
            (ConfigVersion { cycle_ms: 99, ..base }, ConfigError::Cycle(99)),
            (ConfigVersion { cycle_ms: u64::MAX, ..base }, ConfigError::Cycle(u64::MAX)),
            (ConfigVersion { gap_ms: 9, ..base }, ConfigError::Gap { gap_ms: 9, cycle_ms: 1_000 }),
            (
                ConfigVersion { gap_ms: 334, ..base },
                ConfigError::Gap { gap_ms: 334, cycle_ms: 1_000 },
            ),
            (ConfigVersion { list_len: 1, ..base }, ConfigError::ListLen(1)),
            (ConfigVersion { list_len: 17, ..base }, ConfigError::ListLen(17)),
        ];
        for (config, error) in bad {
            assert_eq!(config.check(), Err(error));
            assert_eq!(config.clamped().check(), Ok(()), "{error}");
        }
    }

    #[test]
    fn the_greater_version_is_greater_whatever_it_says() {
        let old = ConfigVersion { version: 1, cycle_ms: 5_000, ..ConfigVersion::DEFAULT };
        let new = ConfigVersion { version: 2, cycle_ms: 100, ..ConfigVersion::DEFAULT };
        assert!(new > old);
        assert!(ConfigVersion { cycle_ms: 5_001, ..old } > old);
    }
}
