//! What must hold: the judge, what it reads in an engine, and the end of a run, when all must agree.

mod ending;
pub(super) mod judge;
pub(super) mod view;
