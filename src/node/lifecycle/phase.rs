//! How far a node's start has come, for whoever ends the process meanwhile: until the start is done there is no node that
//! could say that it stops.

use std::sync::Arc;

use parking_lot::Mutex;

/// What a start is doing. Clones are one, so that who starts a node can keep one.
#[derive(Clone, Debug)]
pub struct StartPhase(Arc<Mutex<&'static str>>);

impl Default for StartPhase {
    fn default() -> Self {
        Self(Arc::new(Mutex::new("looking at its settings")))
    }
}

impl StartPhase {
    /// It does this now, as in "it was …".
    pub(in crate::node) fn note(&self, doing: &'static str) {
        *self.0.lock() = doing;
    }

    /// What it was doing last.
    #[must_use]
    pub(crate) fn doing(&self) -> &'static str {
        *self.0.lock()
    }
}
