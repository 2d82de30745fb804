//! The lock around the engine: many readers at once, or one writer.
//!
//! A write waits for the readers that are inside, and for nobody who comes later: those see that one waits and let it
//! go first, for the few microseconds that it takes, without falling asleep. Writers wait for each other before the lock
//! and not in it, so that one of them at a time stops the readers. With many cores that is worth a quarter of the
//! requests where a tenth of them are writes; with two it makes no difference (docs/performance.md, "More cores").

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock};

use crate::model::invariant::invariant;

/// How often a reader looks whether the writer has gone before it waits in the lock: 10 to 20 µs, which is more than
/// most writes take.
const LOOKS_MAX: u32 = 400;

/// See the module.
pub(crate) struct Guard<T> {
    data: RwLock<T>,
    /// The turn of those that write.
    writers: Mutex<()>,
    /// Somebody writes, or is about to. Readers may miss it: it is a hint.
    is_writing: CachePadded<AtomicBool>,
    /// A writer is inside, or has panicked there. Invariant: written under the exclusive lock; so who holds the lock and
    /// finds it set comes after a panic.
    is_open: AtomicBool,
}

impl<T> Guard<T> {
    pub(crate) fn new(data: T) -> Self {
        Self {
            data: RwLock::new(data),
            writers: Mutex::new(()),
            is_writing: CachePadded::new(AtomicBool::new(false)),
            is_open: AtomicBool::new(false),
        }
    }

    /// Reads, beside others that do. Does not return if a writer has panicked.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        for _ in 0..LOOKS_MAX {
            if !self.is_writing.load(Ordering::Relaxed) {
                break;
            }
            spin_loop();
        }
        let data = self.data.read();
        self.check();
        read(&data)
    }

    /// Writes, alone. Does not return if a writer has panicked.
    pub(crate) fn write<R>(&self, write: impl FnOnce(&mut T) -> R) -> R {
        let _turn = self.writers.lock();
        self.is_writing.store(true, Ordering::Relaxed);
        let mut data = self.data.write();
        self.check();
        self.is_open.store(true, Ordering::Relaxed);
        let result = write(&mut data);
        self.is_open.store(false, Ordering::Relaxed);
        drop(data);
        self.is_writing.store(false, Ordering::Relaxed);
        result
    }

    /// Whoever panics under the exclusive guard leaves an engine of which nobody can say what holds: nobody enters it
    /// again. The program of a node ends at once (`cli/run/fail_stop.rs`). Under the lock, which orders what is read here.
    fn check(&self) {
        let is_open = self.is_open.load(Ordering::Relaxed);
        invariant!(!is_open, "nothing has panicked under the exclusive guard");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;

    #[test]
    fn nobody_enters_after_a_panic_of_a_writer() {
        let guard = Guard::new(1);
        let panics = |run: &dyn Fn()| catch_unwind(AssertUnwindSafe(run)).is_err();
        assert!(panics(&|| guard.read(|_| panic!("a reader changes nothing"))));
        assert_eq!(guard.read(|number| *number), 1);
        assert!(panics(&|| guard.write(|number| {
            *number = 2;
            panic!("half done")
        })));
        assert!(panics(&|| guard.read(|_| ())), "a reader sees what is half done");
        assert!(panics(&|| guard.write(|_| ())), "a writer goes on from what is half done");
    }

    #[test]
    fn no_write_is_lost_and_no_reader_sees_half_of_one() {
        const WRITERS: u32 = 3;
        const WRITES: u32 = 5_000;
        let guard = Guard::new((0, 0));
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    for _ in 0..WRITES {
                        guard.write(|(a, b)| {
                            *a += 1;
                            *b += 1;
                        });
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while guard.read(|(a, b)| {
                        assert_eq!(a, b);
                        *a < WRITERS * WRITES
                    }) {}
                });
            }
        });
        assert_eq!(guard.read(|both| *both), (WRITERS * WRITES, WRITERS * WRITES));
    }
}
