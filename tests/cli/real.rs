//! Whole networks of real processes.
