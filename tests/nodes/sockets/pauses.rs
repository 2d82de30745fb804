//! For how long a test's process got no turn. A test that shows that something comes in time allows for that: on a
//! busy machine the nodes had no turn either.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(5);
/// A nap that lasts so much longer was a pause.
const LATE: Duration = Duration::from_millis(20);

/// Looks for pauses until it is dropped.
pub struct Pauses {
    lost_us: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Pauses {
    pub fn watch() -> Self {
        let (lost_us, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let found = Self { lost_us: Arc::clone(&lost_us), is_over: Arc::clone(&is_over) };
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                std::thread::sleep(NAP);
                let late = began.elapsed().saturating_sub(NAP);
                if late > LATE {
                    let late = u64::try_from(late.as_micros()).unwrap();
                    lost_us.fetch_add(late, Ordering::Relaxed);
                }
            }
        });
        found
    }

    /// All pauses so far together.
    pub fn lost(&self) -> Duration {
        Duration::from_micros(self.lost_us.load(Ordering::Relaxed))
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
