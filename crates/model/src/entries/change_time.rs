//! When a change was made, as its maker's clock said. It is for people: no rule reads it, compares it, or orders by it
//! (docs/decisions/0032-times-of-changes.md).

/// The last time that is kept: the end of the year 9998, which every calendar can show. It has 48 bits.
const LAST_MS: u64 = 253_370_764_799_999;

/// Milliseconds since 1970 on the clock of the node at which a client made a change. Clocks can be wrong, and a peer or a
/// file can say anything, so nothing follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangeTime {
    /// Invariant: at most [`LAST_MS`].
    ms: u64,
}

impl ChangeTime {
    /// A time that came from a clock, a peer or a file. None if it is beyond the year 9998: such a change has no time.
    #[must_use]
    pub const fn new(ms: u64) -> Option<Self> {
        if ms <= LAST_MS { Some(Self { ms }) } else { None }
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn ms(self) -> u64 {
        self.ms
    }

    /// The upper 16 and the lower 32 bits, as entries keep them.
    pub(super) fn parts(self) -> (u16, u32) {
        ((self.ms >> 32) as u16, self.ms as u32)
    }

    /// The time of [`Self::parts`].
    pub(super) fn of_parts(upper: u16, lower: u32) -> Self {
        Self { ms: u64::from(upper) << 32 | u64::from(lower) }
    }
}

#[cfg(test)]
mod tests {
    use crate::change_time::*;

    #[test]
    fn a_time_fits_where_entries_keep_it_and_the_absurd_is_none() {
        for ms in [0, 1, 1_795_000_000_123, LAST_MS] {
            let time = ChangeTime::new(ms).unwrap();
            let (upper, lower) = time.parts();
            assert_eq!((time.ms(), ChangeTime::of_parts(upper, lower)), (ms, time));
        }
        assert_eq!(ChangeTime::new(LAST_MS + 1), None);
        assert_eq!(ChangeTime::new(u64::MAX), None);
    }
}
