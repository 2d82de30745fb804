//! The other ends of clients' connections: programs that read and write, and programs that watch.

mod late;
pub(super) mod requests;
pub(super) mod watches;
