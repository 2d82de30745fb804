//! Streams, which continue at another node when theirs is lost: watches and messages.

mod feed;
pub(super) mod messages;
pub(super) mod watch;
