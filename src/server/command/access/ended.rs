//! What `auth_disconnect` is answered: by what whoever asked can tell whether it still counts, and whether the peers have it.

use distkv_access::users::Disconnect;

use crate::model::entry::Entry;
use crate::model::ids::Millis;
use crate::protocol::client::MessageWriter;
use crate::protocol::client::reply::StreamTag;
use crate::protocol::client::request::ChainLength;
use crate::server::command::data::copies::{CopiesWait, Wanted};
use crate::server::connections::session::{Context, Session};

use super::change::Change;

impl Session {
    /// Answers that the connections of a user are ended; `confirm_ms`: once all peers that are linked have confirmed it, or
    /// after so long. A client that has ended its own connection is answered at once: it is served no more.
    pub(super) fn answer_disconnect(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        (made, id): (&Change, Disconnect),
        confirm_ms: Option<Millis>,
        out: &mut Vec<u8>,
    ) {
        let is_open = !cx.shared.must_log_in();
        let entry = made.written.entry.as_ref();
        let write = |is_confirmed: Option<bool>| {
            let mut reply = Vec::new();
            let mut message = MessageWriter::new(&mut reply);
            message.bool("changed", made.written.changed).bin("disconnect", &id.0);
            if let Some(entry) = entry {
                let chain = message.key("chain");
                made.names.names().write_chain(entry, ChainLength::WHOLE, chain);
            }
            if is_open {
                message.bool("open", true);
            }
            if let Some(is_confirmed) = is_confirmed {
                message.bool("confirmed", is_confirmed);
            }
            message.tock(entry.map_or_else(|| cx.tock(), Entry::tock)).u64("seq", seq);
            reply
        };
        let wait = confirm_ms.zip(entry.map(Entry::newest));
        // Of a peer that has not confirmed it, nobody knows whether connections are left there.
        let at_once = write(wait.map(|_| false));
        let is_last = self.part_if_shut_out(cx, &at_once);
        match wait.filter(|_| !is_last) {
            Some((confirm_ms, event)) => self.copies.push(CopiesWait {
                seq,
                event,
                wanted: Wanted::EveryLinked { late: at_once },
                deadline: cx.now.saturating_add(confirm_ms),
                reply: write(Some(true)),
                number: made.number,
            }),
            None => {
                let from = out.len();
                out.extend_from_slice(&at_once);
                let tag = StreamTag { seq, wseq: None };
                self.unsynced.note(from, out.len(), made.number, tag);
            }
        }
    }
}
