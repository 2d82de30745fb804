//! Work that may be asked for again while it is done: by one thread at a time, and once more afterwards.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// See the module. Clones are one.
#[derive(Clone, Default)]
pub(super) struct OneAtATime {
    /// How often it was asked for and not done yet. Whoever finds none begins.
    asked: Arc<AtomicUsize>,
}

impl OneAtATime {
    /// Does it in a thread of this name, or, if that is being done (false), once more when it is.
    ///
    /// # Errors
    /// There is no thread; it is not done.
    pub(super) fn ask(&self, name: &str, work: impl Fn() + Send + 'static) -> io::Result<bool> {
        if self.asked.fetch_add(1, Ordering::AcqRel) > 0 {
            return Ok(false);
        }
        let asked = Arc::clone(&self.asked);
        let works = move || loop {
            // Those who ask from now on do not know what this one finds.
            let done = asked.load(Ordering::Acquire);
            work();
            if asked.fetch_sub(done, Ordering::AcqRel) == done {
                break;
            }
        };
        match thread::Builder::new().name(name.to_owned()).spawn(works) {
            Ok(_) => Ok(true),
            Err(error) => {
                self.asked.store(0, Ordering::Release);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn who_asks_does_not_wait_and_what_is_asked_meanwhile_is_done_once_more() {
        let (begun, begins) = channel();
        let (goes_on, waits) = channel::<()>();
        let works = OneAtATime::default();
        let waits = std::sync::Mutex::new(waits);
        let work = move || {
            begun.send(()).unwrap();
            waits.lock().unwrap().recv().unwrap();
        };
        assert!(works.ask("test", work).unwrap());
        begins.recv().unwrap();
        for _ in 0..3 {
            assert!(!works.ask("test", || panic!("another one")).unwrap());
        }
        goes_on.send(()).unwrap();
        begins.recv().unwrap();
        goes_on.send(()).unwrap();
        // The thread has ended.
        assert!(begins.recv().is_err());
        assert!(works.ask("test", || ()).unwrap());
    }
}
