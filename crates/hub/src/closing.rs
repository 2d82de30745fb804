//! Whether clients are served, as every connection must know it without taking the engine's lock.

use std::sync::atomic::{AtomicBool, Ordering};

use event_listener::Event;

use crate::engine::Engine;

/// See the module.
pub struct Closing {
    /// [`Engine::is_closed`]. Invariant: written under the exclusive guard, before whatever changed it
    /// can be read. So who has read something of the state that came after it finds it here.
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

    /// Under the exclusive guard: tells whether it is another than before.
    pub(super) fn note(&self, engine: &Engine) -> bool {
        let is_closed = engine.is_closed();
        let is_news = self.is_closed.load(Ordering::Relaxed) != is_closed;
        if is_news {
            self.is_closed.store(is_closed, Ordering::Release);
        }
        is_news
    }
}
