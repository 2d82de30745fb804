//! Replies in a connection's output that say that something was changed, while that is not on disk
//! yet. Under the sync policy `every batch` they go out only when it is; and if it cannot be
//! written, they are replaced by errors.

use crate::hub::log_queue::LogFailure;
use crate::model::ids::Tock;
use crate::model::invariant::OrBroken;
use crate::protocol::client::reply::{StreamTag, write_error_result, write_stream_error};
use crate::protocol::client::{ClientError, ErrorCode};
use crate::server::counts::Counts;

/// What withdrawing replies relies on.
const NOTED: &str = "replies were noted in the order in which they stand in the output";

/// Where in the output they are, in order.
#[derive(Default)]
pub(in crate::server) struct UnsyncedReplies {
    replies: Vec<UnsyncedReply>,
}

struct UnsyncedReply {
    from: usize,
    to: usize,
    /// Of the log's batch with the change.
    number: u64,
    kind: Kind,
}

/// Its kind of output.
#[derive(Clone, Copy)]
enum Kind {
    /// A message.
    Message(StreamTag),
    /// A result within a batch's reply.
    Result,
}

impl UnsyncedReplies {
    /// Notes the reply at `from..to` of the output. Nothing is logged as number 0.
    pub(in crate::server) fn note(&mut self, from: usize, to: usize, number: u64, tag: StreamTag) {
        self.push(from, to, number, Kind::Message(tag));
    }

    /// As above, for a reply outside of streams, or, without a `seq`, for a result within a
    /// batch's.
    pub(in crate::server) fn note_reply(
        &mut self,
        from: usize,
        to: usize,
        number: u64,
        seq: Option<u64>,
    ) {
        let message = |seq| Kind::Message(StreamTag { seq, wseq: None });
        self.push(from, to, number, seq.map_or(Kind::Result, message));
    }

    fn push(&mut self, from: usize, to: usize, number: u64, kind: Kind) {
        if number > 0 && to > from {
            self.replies.push(UnsyncedReply { from, to, number, kind });
        }
    }

    /// The output goes out as it is.
    pub(in crate::server) fn forget(&mut self) {
        self.replies.clear();
    }

    /// Puts errors in the place of those whose changes were not written.
    pub(in crate::server) fn withdraw(
        &mut self,
        failure: &LogFailure,
        tock: Tock,
        counts: &Counts,
        out: &mut Vec<u8>,
    ) {
        let error = in_flight(failure);
        let mut kept = Vec::with_capacity(out.len());
        let mut at = 0;
        for UnsyncedReply { from, to, number, kind } in self.replies.drain(..) {
            if number > failure.synced {
                counts.note_error(&error);
                kept.extend_from_slice(out.get(at..from).or_broken(NOTED));
                match kind {
                    Kind::Message(tag) => write_stream_error(&error, tag, tock, &mut kept),
                    Kind::Result => write_error_result(&error, &mut kept),
                }
                at = to;
            }
        }
        kept.extend_from_slice(out.get(at..).or_broken(NOTED));
        *out = kept;
    }
}

/// The error of a change that was made when its record could not be written.
pub(in crate::server) fn in_flight(failure: &LogFailure) -> ClientError {
    let text = format!(
        "the change is made in memory, but this node could not write it to its disk: {}",
        failure.why
    );
    ClientError::of_made(ErrorCode::StorageFailed, text)
}

/// The error of a change that is not made because its record could not be written. `done`: how far it has come, as in
/// "nothing was changed".
pub(in crate::server) fn refused(failure: &LogFailure, done: &str) -> ClientError {
    let text = format!(
        "this node cannot write to its disk and takes no changes until it can: {}; {done}; try another node",
        failure.why
    );
    ClientError::new(ErrorCode::StorageFailed, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replies_to_what_was_not_written_are_replaced_each_by_one_error() {
        let mut out = b"greeting".to_vec();
        let mut unsynced = UnsyncedReplies::default();
        let mut reply = |text: &[u8], number: u64, tag: StreamTag, out: &mut Vec<u8>| {
            let from = out.len();
            out.extend_from_slice(text);
            unsynced.note(from, out.len(), number, tag);
        };
        let tag = |seq, wseq| StreamTag { seq, wseq };
        reply(b"safe", 5, tag(1, None), &mut out);
        reply(b"READ", 0, tag(2, None), &mut out);
        reply(b"lost", 6, tag(3, None), &mut out);
        reply(b"gone", 7, tag(4, Some(9)), &mut out);
        out.extend_from_slice(b"rest");
        let failure = LogFailure { why: "no room".into(), synced: 5 };
        unsynced.withdraw(&failure, Tock::default(), &Counts::default(), &mut out);
        let text = String::from_utf8_lossy(&out);
        assert!(text.starts_with("greetingsafeREAD") && text.ends_with("rest"), "{text}");
        assert_eq!(text.matches("storage_failed").count(), 2);
        let made = out.windows(6).filter(|bytes| bytes == b"\xa4made\xc3");
        assert_eq!(made.count(), 2, "programs are told that the changes are made");
        assert!(!text.contains("lost") && !text.contains("gone") && text.contains("no room"));
        assert_eq!(text.matches("wseq").count(), 1, "a stream's numbers go on");
        unsynced.withdraw(&failure, Tock::default(), &Counts::default(), &mut out);
        assert!(out.ends_with(b"rest"), "nothing is noted any more");
    }
}
