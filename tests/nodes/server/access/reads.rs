//! reads
