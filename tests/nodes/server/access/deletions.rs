//! deletions
