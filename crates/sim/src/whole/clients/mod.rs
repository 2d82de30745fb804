//! The other ends of clients' connections: programs that read and write, and programs that watch.

pub(super) mod requests;
pub(super) mod watches;
