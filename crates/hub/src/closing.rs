//! Whether clients are served, for every connection to see without taking the engine's lock.

use std::sync::atomic::{AtomicBool, Ordering};

use event_listener::Event;

use crate::engine::Engine;

/// See the module.
pub struct Closing {
    /// [`Engine::is_closed`]. Invariant: written under the exclusive guard, before the change that
    /// caused it can be read. So a task that has read any later state finds it here.
    is_closed: AtomicBool,
    /// Fires when it is another than before.
    pub changed: Event,
}

impl Closing {
    pub(super) fn of(engine: &Engine) -> Self {
        Self { is_closed: AtomicBool::new(engine.is_closed()), changed: Event::new() }
    }

    /// Whether no client is served.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Under the exclusive guard: returns whether it changed.
    pub(super) fn note(&self, engine: &Engine) -> bool {
        let is_closed = engine.is_closed();
        let is_news = self.is_closed.load(Ordering::Relaxed) != is_closed;
        if is_news {
            self.is_closed.store(is_closed, Ordering::Release);
        }
        is_news
    }
}
