//! `clients` and `history`: ours, for operators: who is connected, what is asked for most, and the past of an entry.

use std::sync::Arc;

use distkv_access::acl::Letters;

use super::admin::LongMap;
use crate::engine::Engine;
use crate::model::meta::shown;
use crate::model::path::Path;
use crate::model::value::{write_array_len, write_map_len, write_nil, write_str, write_u64};
use crate::protocol::client::operator::{HistoryOf, ListClients};
use crate::protocol::client::reply::write_error;
use crate::protocol::client::{Action, ClientError, MessageWriter};
use crate::server::access::Identity;
use crate::server::access::authorise::Target;
use crate::server::access::present::Guest;
use crate::server::command::files::snapshot::not_recalled;
use crate::server::connections::session::{Context, Purpose, Session, Then};
use crate::server::counts::RequestKind;
use crate::storage::history::{History, Version};

impl Session {
    /// `clients`.
    pub(in crate::server) fn clients(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        asked: ListClients,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::Clients, Target::Node)?;
        let mut message = MessageWriter::new(out);
        match asked {
            ListClients::Connections { after, limit } => {
                let (page, has_more) = cx.shared.logins.present.page(after, limit);
                let list = message.key("result");
                write_array_len(page.len(), list);
                for (number, guest) in &page {
                    write_client(*number, guest, cx, list);
                }
                match page.last().filter(|_| has_more) {
                    Some((last, _)) => message.u64("next", *last),
                    None => message.nil("next"),
                };
            }
            ListClients::Prefixes { limit } => {
                let mut busiest = cx.shared.shards.prefixes.busiest();
                let rights = &cx.access.rights;
                busiest.retain(|(path, _)| {
                    rights.is_everything() || rights.letters(path).has(Letters::ENUM)
                });
                busiest.truncate(limit);
                let list = message.key("result");
                write_array_len(busiest.len(), list);
                for (path, count) in &busiest {
                    let mut row = LongMap::default();
                    let path = Path::from_canonical(path).unwrap_or_else(|_| Path::root());
                    path.encode_array(row.key("path"));
                    row.u64("requests", count.requests);
                    row.u64("over", count.over);
                    row.finish(list);
                }
            }
        }
        message.u64("seq", seq).tock(cx.tock());
        Ok(Then::Continue)
    }

    /// `history`.
    pub(in crate::server) fn history(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        asked: &HistoryOf<'_>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::History, Target::Path(asked.path.as_bytes()))?;
        Self::check_ready(cx)?;
        let (path, since_ms, limit) = (asked.path.to_path(), asked.since_ms, asked.limit);
        let (info, hub) = (Arc::clone(&cx.shared.info), Arc::clone(&cx.shared.hub));
        let counts = Arc::clone(&cx.shared.counts);
        let purpose = Purpose::to_read_at(Action::History, path.clone());
        Ok(Then::heavy(cx, seq, purpose, move || {
            let history = info.history(&path, since_ms, limit);
            let (tock, mut reply) = (hub.read(Engine::tock), Vec::new());
            match history {
                Ok(history) => {
                    let mut message = MessageWriter::new(&mut reply);
                    write_history(&path, &history, &mut message);
                    message.u64("seq", seq).tock(tock);
                }
                Err(refusal) => {
                    let error = not_recalled(refusal);
                    counts.note_error(&error);
                    write_error(&error, Some(seq), tock, &mut reply);
                }
            }
            reply
        }))
    }
}

fn write_client(number: u64, guest: &Guest, cx: &Context<'_>, out: &mut Vec<u8>) {
    let about = guest.about();
    let mut row = LongMap::default();
    row.u64("number", number);
    row.str("address", &about.address.to_string());
    let (method, user) = match guest.identity() {
        Identity::Unknown => (None, None),
        Identity::KeyHolder => (Some("key".into()), None),
        Identity::User { method, name, .. } => (Some(method), Some(name)),
    };
    row.optional_str("method", method.as_deref());
    row.optional_str("user", user.as_deref());
    row.bool("tls", guest.is_in_tls());
    row.u64("since_ms", cx.now.saturating_sub(about.since));
    row.u64("silent_ms", about.account.silent_ms(cx.now));
    let requests = about.traffic.requests();
    row.u64("asked", requests.iter().sum());
    let requests: Vec<_> =
        RequestKind::ALL.iter().zip(requests).filter(|(_, count)| *count > 0).collect();
    let by_kind = row.key("requests");
    write_map_len(requests.len(), by_kind);
    for (kind, count) in requests {
        write_str(kind.word(), by_kind);
        write_u64(count, by_kind);
    }
    let (watches, streams) = about.traffic.streams();
    row.size("watches", watches);
    row.size("streams", streams);
    let (received, sent) = about.traffic.bytes();
    row.u64("received", received);
    row.u64("sent", sent);
    let (waiting, memory) = about.account.bytes();
    row.size("waiting", waiting);
    row.size("memory", memory);
    row.finish(out);
}

/// `{result: [{time, event, version_tock, made, value, purged, before_unknown}], before, reach: {time, tock}, cut, gaps, holes, more_holes}`.
fn write_history(path: &Path, history: &History, message: &mut MessageWriter<'_>) {
    let list = message.key("result");
    write_array_len(history.steps.len(), list);
    for step in &history.steps {
        let mut row = LongMap::default();
        row.optional_u64("time", step.time_ms);
        write_version(path, step.after.as_ref(), &mut row);
        row.bool("purged", step.after.is_none());
        if step.is_before_unknown {
            row.bool("before_unknown", true);
        }
        row.finish(list);
    }
    match &history.before {
        None => write_nil(message.key("before")),
        Some(before) => {
            let mut row = LongMap::default();
            write_version(path, Some(before), &mut row);
            row.finish(message.key("before"));
        }
    }
    let mut reach = LongMap::default();
    reach.u64("time", history.reach.time_ms);
    reach.u64("tock", history.reach.tock.get());
    reach.finish(message.key("reach"));
    let has_gaps = history.has_gaps || !history.holes.is_empty();
    message.bool("cut", history.is_cut).bool("gaps", has_gaps);
    if history.holes.is_empty() {
        return;
    }
    let holes = message.key("holes");
    write_array_len(history.holes.len(), holes);
    history.holes.iter().for_each(|hole| write_str(hole, holes));
    if history.more_holes > 0 {
        message.u64("more_holes", history.more_holes as u64);
    }
}

fn write_version(path: &Path, version: Option<&Version>, row: &mut LongMap) {
    let Some(version) = version else { return };
    row.str("event", &version.event);
    row.u64("version_tock", version.tock);
    if let Some(made) = version.made_ms {
        row.u64("made", made);
    }
    if let Some(value) = &version.value {
        row.key("value").extend_from_slice(shown(path.as_bytes(), value));
    }
}
