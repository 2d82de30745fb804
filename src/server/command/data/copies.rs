//! Changes whose replies wait until peers have confirmed them.

use crate::engine::Engine;
use crate::model::count::count_of;
use crate::model::ids::{Event, Millis, Tock};
use crate::model::invariant::OrBroken;
use crate::protocol::client::reply::write_error;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::server::command::access::ended::write_confirmed;
use crate::server::connections::session::{Context, Session};

/// How often a change that waits for another node's change to spread looks again; this node's own
/// changes wake it at once.
const COPIES_POLL_MS: Millis = 200;

/// A change whose reply waits for copies.
pub(in crate::server) struct CopiesWait {
    pub(in crate::server::command) seq: u64,
    pub(in crate::server::command) event: Event,
    pub(in crate::server::command) wanted: Wanted,
    pub(in crate::server::command) deadline: Millis,
    /// The reply: ready to be sent, or for [`Wanted::EveryLinked`] begun.
    pub(in crate::server::command) reply: Vec<u8>,
    /// Of the log's batch with the change.
    pub(in crate::server::command) number: u64,
}

/// Who has to confirm it.
pub(in crate::server::command) enum Wanted {
    /// So many peers; if they do not in time, the reply is the error `unknown_fate`.
    Peers(usize),
    /// All peers that are linked when it is looked at; the reply says whether they have, and who is not linked.
    EveryLinked,
}

impl CopiesWait {
    /// Its size in memory.
    pub(in crate::server) fn bytes(&self) -> usize {
        size_of::<Self>() + self.reply.capacity()
    }

    /// How many peers have confirmed it, and how many must.
    fn count(&self, engine: &Engine) -> (usize, usize) {
        let wanted = match self.wanted {
            Wanted::Peers(wanted) => wanted,
            Wanted::EveryLinked => engine.link_count(),
        };
        (engine.copies_of(self.event), wanted)
    }
}

impl Session {
    /// Answers the changes whose copies are confirmed, or that have waited for them long enough.
    pub(in crate::server) fn answer_copies(&mut self, cx: &Context<'_>, out: &mut Vec<u8>) {
        if self.copies.is_empty() {
            return;
        }
        let counts: Vec<(usize, usize)> =
            cx.hub.read(|engine| self.copies.iter().map(|wait| wait.count(engine)).collect());
        let mut counts = counts.into_iter();
        let tock = cx.tock();
        let unsynced = &mut self.unsynced;
        self.copies.retain(|wait| {
            let counted = counts.next().or_broken("each change that waits was counted");
            let (copies, wanted) = counted;
            if copies < wanted && cx.now < wait.deadline {
                return true;
            }
            let from = out.len();
            match wait.wanted {
                Wanted::Peers(_) if copies < wanted => {
                    unknown_fate(cx, wait.seq, counted, tock, out);
                    return false;
                }
                Wanted::Peers(_) => out.extend_from_slice(&wait.reply),
                Wanted::EveryLinked => {
                    write_confirmed(cx, &wait.reply, wanted.saturating_sub(copies), out);
                }
            }
            unsynced.note_reply(from, out.len(), wait.number, Some(wait.seq));
            false
        });
    }

    /// Answers all changes that wait for copies, because the connection ends.
    pub(in crate::server) fn give_up_copies(
        &mut self,
        cx: &Context<'_>,
        tock: Tock,
        out: &mut Vec<u8>,
    ) {
        for wait in self.copies.drain(..) {
            let text = "the node ends the connection; the change is made here, but not confirmed";
            let error = ClientError::of_made(ErrorCode::UnknownFate, text);
            cx.shared.counts.note_error(&error);
            write_error(&error, Some(wait.seq), tock, out);
        }
    }

    /// When changes that wait for copies must be looked at again.
    pub(in crate::server) fn copies_deadline(&self, now: Millis) -> Option<Millis> {
        let deadline = self.copies.iter().map(|wait| wait.deadline).min()?;
        Some(deadline.min(now + COPIES_POLL_MS))
    }
}

fn unknown_fate(
    cx: &Context<'_>,
    seq: u64,
    (copies, wanted): (usize, usize),
    tock: Tock,
    out: &mut Vec<u8>,
) {
    // Not for how long: a client that tried before has waited for longer than this node knows.
    let text = format!(
        "the change is made here, but only {copies} of {} confirmed it in time; \
         it will spread by itself when they can be reached",
        count_of(wanted as u64, "peer has", "peers have"),
    );
    let error = ClientError::of_made(ErrorCode::UnknownFate, text);
    cx.shared.counts.note_error(&error);
    write_error(&error, Some(seq), tock, out);
}
