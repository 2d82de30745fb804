//! Streams that are nothing but an error.

use super::{Emit, Garbage, Progress, Source};
use crate::model::ids::Tock;
use crate::protocol::client::reply::{StreamTag, write_state, write_stream_error, write_what};
use crate::protocol::client::{Action, ClientError};
use crate::server::access::authorise::Target;
use crate::server::connections::session::Context;

/// Writes a whole stream that is an error: start, error, end. Used if no other can be opened; its
/// messages count in no window.
pub(in crate::server) fn write_failed_stream(
    error: &ClientError,
    seq: u64,
    has_window: bool,
    tock: Tock,
    out: &mut Vec<u8>,
) {
    let tag = |number| StreamTag { seq, wseq: has_window.then_some(number) };
    write_state("start", tag(1), tock, out);
    write_stream_error(error, tag(2), tock, out);
    write_state("end", tag(3), tock, out);
}

/// A stream that is an error: start, error, end, as clients of some actions need it.
pub(in crate::server) struct FailedSource(pub(in crate::server) Option<ClientError>);

impl Source for FailedSource {
    fn asks(&self) -> Option<(Action, Target<'_>)> {
        None
    }

    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        match self.0.take() {
            None => Progress::Finished,
            Some(error) => {
                cx.shared.counts.note_error(&error);
                let tock = emit.tock();
                let (mut message, tag) = emit.begin();
                write_what(&error, &mut message);
                message.tag(tag).tock(tock);
                Progress::Wrote
            }
        }
    }

    fn close(self: Box<Self>, _: &Context<'_>) -> Option<Garbage> {
        None
    }
}
