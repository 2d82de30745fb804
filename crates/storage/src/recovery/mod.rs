//! What a start makes of the files: what can be trusted, and the state that they give.

pub(super) mod bulk;
mod changes;
pub(crate) mod heads;
pub mod history;
pub(crate) mod hole;
#[cfg(any(test, feature = "planted-defects"))]
pub mod listing;
pub mod moment;
pub(super) mod passes;
pub mod recover;
pub mod replay;
