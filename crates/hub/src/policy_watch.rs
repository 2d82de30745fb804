//! Which policies the data states at present (who may do what, which values are good), for every
//! connection to compare without taking the engine's lock.

use std::sync::atomic::{AtomicU64, Ordering};

use event_listener::Event;

use crate::engine::{Engine, Policies};

/// See the module.
pub struct PolicyWatch {
    /// [`Engine::policies`]. Invariant: written under the exclusive guard, before the change that caused it
    /// can be read. So a task that has read any later state finds it here, or a later one.
    access: AtomicU64,
    types: AtomicU64,
    /// Fires when one is another than before.
    pub changed: Event,
}

impl PolicyWatch {
    pub(super) fn of(engine: &Engine) -> Self {
        let Policies { access, types } = engine.policies();
        Self { access: AtomicU64::new(access), types: AtomicU64::new(types), changed: Event::new() }
    }

    /// The present ones.
    #[must_use]
    pub fn now(&self) -> Policies {
        Policies {
            access: self.access.load(Ordering::Acquire),
            types: self.types.load(Ordering::Acquire),
        }
    }

    /// Under the exclusive guard: returns whether one changed.
    pub(super) fn note(&self, engine: &Engine) -> bool {
        let Policies { access, types } = engine.policies();
        let is_news = self.access.load(Ordering::Relaxed) != access
            || self.types.load(Ordering::Relaxed) != types;
        if is_news {
            self.access.store(access, Ordering::Release);
            self.types.store(types, Ordering::Release);
        }
        is_news
    }
}
