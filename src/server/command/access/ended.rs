//! What `auth_disconnect` is answered: by what whoever asked can tell whether it still counts, and whether the peers have it.

use distkv_access::users::Disconnect;

use crate::model::entry::Entry;
use crate::model::ids::Millis;
use crate::model::value::{write_array_len, write_str};
use crate::protocol::client::MessageWriter;
use crate::protocol::client::reply::StreamTag;
use crate::protocol::client::request::ChainLength;
use crate::server::command::data::copies::{CopiesWait, Wanted};
use crate::server::connections::session::{Context, Session};

use super::change::Change;

/// Most members that are named because they are not linked; of more, how many.
const UNREACHED_NAMES_MAX: usize = 64;

impl Session {
    /// Answers that the connections of a user are ended; `confirm_ms`: once all peers that are linked have confirmed it, or
    /// after so long; who is not linked is named then. A client that has ended its own connection is answered at once, and told so: it is served
    /// no more.
    pub(super) fn answer_disconnect(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        (made, id): (&Change, Disconnect),
        confirm_ms: Option<Millis>,
        out: &mut Vec<u8>,
    ) {
        let is_open = !cx.shared.must_log_in();
        let is_last = self.has_shut_itself_out(cx);
        let entry = made.written.entry.as_ref();
        let mut begun = Vec::new();
        let mut message = MessageWriter::new(&mut begun);
        message.bool("changed", made.written.changed).bin("disconnect", &id.0);
        if let Some(entry) = entry {
            let chain = message.key("chain");
            made.names.names().write_chain(entry, ChainLength::WHOLE, chain);
        }
        if is_open {
            message.bool("open", true);
        }
        if is_last {
            message.bool("own", true);
        }
        message.tock(entry.map_or_else(|| cx.tock(), Entry::tock)).u64("seq", seq);
        let wait = confirm_ms.zip(entry.map(Entry::newest));
        let mut at_once = Vec::new();
        match wait {
            // Of a peer that has not confirmed it, nobody knows whether connections are left there.
            Some((_, event)) => {
                let unconfirmed = cx
                    .hub
                    .read(|engine| engine.link_count().saturating_sub(engine.copies_of(event)));
                write_confirmed(cx, &begun, unconfirmed, &mut at_once);
            }
            None => at_once.extend_from_slice(&begun),
        }
        self.part_if_shut_out(cx, &at_once);
        match wait.filter(|_| !is_last) {
            Some((confirm_ms, event)) => self.copies.push(CopiesWait {
                seq,
                event,
                wanted: Wanted::EveryLinked,
                deadline: cx.now.saturating_add(confirm_ms),
                reply: begun,
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

/// Ends an answer that was begun: whether all that should be linked have confirmed the change. `unconfirmed`: how many of those
/// that are linked have not. Who is not linked now is named.
pub(in crate::server::command) fn write_confirmed(
    cx: &Context<'_>,
    begun: &[u8],
    unconfirmed: usize,
    out: &mut Vec<u8>,
) {
    let unreached = cx.shared.info.unreached();
    let mut message = MessageWriter::resume(begun, out);
    message.bool("confirmed", unconfirmed == 0 && unreached.is_empty());
    if unconfirmed > 0 {
        message.u64("unconfirmed", unconfirmed as u64);
    }
    if unreached.is_empty() {
        return;
    }
    let (named, more) = unreached.split_at(unreached.len().min(UNREACHED_NAMES_MAX));
    let list = message.key("unreached");
    write_array_len(named.len(), list);
    named.iter().for_each(|name| write_str(name, list));
    if !more.is_empty() {
        message.u64("unreached_more", more.len() as u64);
    }
}
