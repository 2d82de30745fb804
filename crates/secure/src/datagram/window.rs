//! Which counters of one sender were taken already: the newest and the 1,023 before it.

/// How far behind the newest counter a datagram may come.
pub(super) const WINDOW: u64 = 1_024;
const WORDS: usize = WINDOW as usize / 64;

/// What a counter is to a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Never taken: take it.
    New,
    /// Taken before.
    Repeated,
    /// Too far behind to tell.
    TooOld,
}

/// The counters that were taken, as a ring of bits.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    /// 0 before the first; counters begin at 1.
    newest: u64,
    /// Bit `counter % WINDOW`: of the counters within the window only.
    bits: [u64; WORDS],
}

impl Window {
    /// What a counter is; nothing is changed, because its datagram may be forged.
    pub(super) fn look(&self, counter: u64) -> Seen {
        if self.is_ahead(counter) {
            return Seen::New;
        }
        if self.newest - counter >= WINDOW || counter == 0 {
            return Seen::TooOld;
        }
        let (word, bit) = place(counter);
        let is_set = self.bits.get(word).is_some_and(|word| word & bit != 0);
        if is_set { Seen::Repeated } else { Seen::New }
    }

    /// Whether a counter is later than all that were taken.
    pub(super) fn is_ahead(&self, counter: u64) -> bool {
        counter > self.newest
    }

    /// Notes a counter as taken.
    pub(super) fn take(&mut self, counter: u64) {
        if self.is_ahead(counter) {
            // Bits of counters that the window leaves become those that it reaches.
            if counter - self.newest >= WINDOW {
                self.bits = [0; WORDS];
            } else {
                for skipped in self.newest + 1..counter {
                    self.set(skipped, false);
                }
            }
            self.newest = counter;
        }
        self.set(counter, true);
    }

    fn set(&mut self, counter: u64, to: bool) {
        let (word, bit) = place(counter);
        if let Some(word) = self.bits.get_mut(word) {
            *word = if to { *word | bit } else { *word & !bit };
        }
    }
}

fn place(counter: u64) -> (usize, u64) {
    let at = counter % WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_edges_of_the_window() {
        let mut window = Window::default();
        assert_eq!(window.look(0), Seen::TooOld);
        window.take(1);
        assert_eq!(window.look(1), Seen::Repeated);
        window.take(WINDOW);
        // 1 is the last one inside.
        assert_eq!((window.look(1), window.look(2)), (Seen::Repeated, Seen::New));
        window.take(WINDOW + 1);
        assert_eq!((window.look(1), window.look(2)), (Seen::TooOld, Seen::New));
        window.take(2);
        assert_eq!(window.look(2), Seen::Repeated);
        window.take(u64::MAX);
        assert_eq!(window.look(u64::MAX), Seen::Repeated);
        assert_eq!(window.look(u64::MAX - WINDOW + 1), Seen::New);
        assert_eq!(window.look(u64::MAX - WINDOW), Seen::TooOld);
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_the_last_1024(steps in prop::collection::vec(-1_300i64..1_300, 1..300)) {
            let (mut window, mut model, mut at) = (Window::default(), BTreeSet::new(), 5_000i64);
            for step in steps {
                at = (at + step).max(1);
                let counter = at as u64;
                let newest = model.last().copied().unwrap_or(0);
                let expected = match counter {
                    _ if counter + WINDOW <= newest => Seen::TooOld,
                    _ if model.contains(&counter) => Seen::Repeated,
                    _ => Seen::New,
                };
                prop_assert_eq!(window.look(counter), expected);
                if expected == Seen::New {
                    window.take(counter);
                    model.insert(counter);
                }
            }
        }
    }
}
