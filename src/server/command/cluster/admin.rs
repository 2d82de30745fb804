//! `status`, `members`, `leave`: ours, for operators and their tools.

use std::sync::Arc;

use super::delete_group::{Roles, write_purge_block, write_texts, write_warnings};
use crate::engine::Engine;
use crate::hub::client_memory::ClientMemoryView;
use crate::model::ids::Incarnation;
use crate::model::meta::Login;
use crate::model::spelling::LifeRef;
use crate::model::value::{
    write_array_len, write_bool, write_map_len, write_nil, write_str, write_u64,
};
use crate::protocol::client::chain::write_life;
use crate::protocol::client::reply::{write_error, write_result};
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::access::Identity;
use crate::server::access::authorise::Target;
use crate::server::command::files::storage::write_storage;
use crate::server::connections::session::{Context, Purpose, Session, Then};
use crate::server::info::{LeaveRefusal, MemberInfo, NodeStatus, ScheduledStatus, SilentInfo};

/// Writes a map with more fields than [`crate::protocol::client::MessageWriter`] can: counts
/// them, and puts the head in front at the end.
#[derive(Default)]
pub(in crate::server::command) struct LongMap {
    count: usize,
    fields: Vec<u8>,
}

impl LongMap {
    pub(in crate::server::command) fn key(&mut self, key: &str) -> &mut Vec<u8> {
        self.count += 1;
        write_str(key, &mut self.fields);
        &mut self.fields
    }

    pub(in crate::server::command) fn u64(&mut self, key: &str, value: u64) {
        write_u64(value, self.key(key));
    }

    pub(in crate::server::command) fn size(&mut self, key: &str, value: usize) {
        self.u64(key, value as u64);
    }

    pub(in crate::server::command) fn str(&mut self, key: &str, value: &str) {
        write_str(value, self.key(key));
    }

    pub(in crate::server::command) fn bool(&mut self, key: &str, value: bool) {
        write_bool(value, self.key(key));
    }

    pub(in crate::server::command) fn optional_u64(&mut self, key: &str, value: Option<u64>) {
        match value {
            Some(value) => self.u64(key, value),
            None => write_nil(self.key(key)),
        }
    }

    pub(super) fn optional_str(&mut self, key: &str, value: Option<&str>) {
        match value {
            Some(value) => self.str(key, value),
            None => write_nil(self.key(key)),
        }
    }

    pub(in crate::server::command) fn finish(&self, out: &mut Vec<u8>) {
        write_map_len(self.count, out);
        out.extend_from_slice(&self.fields);
    }
}

impl Session {
    /// `status`.
    pub(in crate::server) fn status(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::Status, Target::Node)?;
        let status = cx.shared.info.status();
        let mut map = LongMap::default();
        cx.hub.read(|engine| {
            let tree = engine.tree();
            map.str("name", engine.id().name.as_str());
            write_life(engine.id().as_life(), map.key("life"));
            map.str("network", &status.network);
            map.str("version", &status.version);
            map.bool("ready", engine.is_ready());
            map.bool("read_only", engine.is_read_only());
            map.u64("uptime_ms", status.uptime_ms);
            map.u64("time", status.time_ms);
            match engine.tick() {
                Some(tick) => map.u64("tick", tick.get()),
                None => write_nil(map.key("tick")),
            }
            map.u64("tock", engine.tock().get());
            map.size("entries", tree.len());
            map.size("live_entries", tree.live_len());
            map.size("tombstones", tree.len() - tree.live_len());
            map.size("memory_bytes", tree.memory_bytes());
            match status.memory_max {
                Some(max) => map.size("memory_max", max),
                None => write_nil(map.key("memory_max")),
            }
            map.size("connections", cx.shared.connections());
            map.size("connections_max", cx.shared.config.connections_max);
            map.size("connections_kept", cx.shared.kept_connections());
            map.size("watches", engine.watch_count());
        });
        self.write_rest_of_status(&status, cx, &mut map);
        self.write_logins(cx, map.key("logins"));
        map.u64("seq", seq);
        map.finish(out);
        Ok(Then::Continue)
    }

    fn write_rest_of_status(&self, status: &NodeStatus, cx: &Context<'_>, map: &mut LongMap) {
        map.size("members", status.members);
        map.size("links", status.links);
        write_client_memory(&cx.hub.client_memory().view(), map.key("client_memory"));
        match &status.catching_up {
            None => write_nil(map.key("catching_up")),
            Some((peer, entries)) => {
                let mut inner = LongMap::default();
                inner.str("peer", peer);
                inner.u64("entries", *entries);
                inner.finish(map.key("catching_up"));
            }
        }
        let mut counters = LongMap::default();
        for (name, count) in &status.counters {
            counters.u64(name, *count);
        }
        for (name, count) in cx.shared.counters() {
            counters.u64(name, count);
        }
        counters.finish(map.key("counters"));
        let (housekeepers, roles) =
            cx.hub.read(|engine| (Engine::housekeepers(engine), Roles::of(engine, cx.now)));
        write_texts(housekeepers.iter().map(|name| name.as_str()), map.key("housekeepers"));
        write_warnings(&self.warnings(cx), map.key("warnings"));
        write_purge_block(roles.purge_block.as_ref(), map.key("purge_blocked"));
        write_silent(cx.shared.info.silent().as_ref(), map.key("silent"));
        match &status.client_log {
            None => write_nil(map.key("client_log")),
            Some(log) => {
                let mut inner = LongMap::default();
                inner.str("file", &log.file);
                inner.optional_str("failed", log.failure.as_deref());
                inner.finish(map.key("client_log"));
            }
        }
        write_storage(cx.shared.info.storage().as_ref(), map.key("storage"));
        write_scheduled(cx.shared.info.scheduled().as_ref(), map.key("scheduled"));
    }

    /// Whether clients must log in, how, and who has not: `{method, secured, grace_ms, without_login}`. This connection
    /// does not count.
    fn write_logins(&self, cx: &Context<'_>, out: &mut Vec<u8>) {
        let directory = cx.shared.policy_data.directory(cx.hub);
        let mut map = LongMap::default();
        map.optional_str("method", directory.login().map(Login::name));
        map.bool("secured", cx.shared.is_secured());
        map.optional_u64("grace_ms", cx.shared.grace_ms());
        let others = cx.shared.logins.present.without_login().saturating_sub(self.asking());
        map.size("without_login", others);
        map.finish(out);
    }

    /// How many this connection counts for among those without a login.
    fn asking(&self) -> usize {
        usize::from(self.identity == Identity::Unknown && self.guest.was_admitted())
    }

    /// What this client is warned of.
    fn warnings(&self, cx: &Context<'_>) -> Vec<String> {
        let all = cx.shared.warnings(cx.now, self.asking()).into_iter();
        all.filter(|warning| warning.is_told(cx.access.role)).map(|warning| warning.text).collect()
    }

    /// `members`.
    pub(in crate::server) fn members(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::Members, Target::Node)?;
        let mut members = cx.shared.info.members();
        let (roles, tock) = cx.hub.read(|engine| (Roles::of(engine, cx.now), engine.tock()));
        roles.add_who_is_away(&mut members);
        let mut message = MessageWriter::new(out);
        let list = message.key("result");
        write_array_len(members.len(), list);
        members.iter().for_each(|member| write_member(member, &roles, list));
        write_warnings(&self.warnings(cx), message.key("warnings"));
        write_purge_block(roles.purge_block.as_ref(), message.key("purge_blocked"));
        message.u64("seq", seq).tock(tock);
        Ok(Then::Continue)
    }

    /// `leave`.
    pub(in crate::server) fn leave(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::Leave, Target::Node)?;
        // The answer is in the output, which is written before the connection ends.
        write_result(&[0xc3], seq, cx.tock(), out);
        self.sent_away = true;
        cx.shared.info.leave();
        Ok(Then::Continue)
    }
}

impl Session {
    /// `leave` with `for_good`: answered when the others have agreed, or have not.
    pub(in crate::server) fn leave_for_good(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        patience_ms: u64,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::Leave, Target::Node)?;
        let (info, hub) = (Arc::clone(&cx.shared.info), Arc::clone(&cx.shared.hub));
        // If it stays, this only keeps the connection open when the node ends for another reason.
        self.sent_away = true;
        let counts = Arc::clone(&cx.shared.counts);
        Ok(Then::heavy(cx, seq, Purpose::to_change(Action::Leave), move || {
            let left = info.leave_for_good(patience_ms);
            let (tock, mut reply) = (hub.read(Engine::tock), Vec::new());
            match left {
                Ok(()) => write_result(&[0xc3], seq, tock, &mut reply),
                Err(refusal) => {
                    let error = not_left(refusal);
                    counts.note_error(&error);
                    write_error(&error, Some(seq), tock, &mut reply);
                }
            }
            reply
        }))
    }
}

fn not_left(refusal: LeaveRefusal) -> ClientError {
    let (code, text) = match refusal {
        LeaveRefusal::NotReady(text) => (ErrorCode::NotReady, text),
        LeaveRefusal::Alone(text) => (ErrorCode::Denied, text),
        LeaveRefusal::NotAgreed(text) => (ErrorCode::InUse, text),
        LeaveRefusal::Unsettled(text) => (ErrorCode::UnknownFate, text),
    };
    ClientError::new(code, text)
}

/// The snapshots that the node makes by itself: nil, or `{schedule, directory, file, time_ms, bytes, entries, due_ms,
/// failed, overdue_ms}`.
fn write_scheduled(scheduled: Option<&ScheduledStatus>, out: &mut Vec<u8>) {
    let Some(scheduled) = scheduled else { return write_nil(out) };
    let mut map = LongMap::default();
    map.str("schedule", &scheduled.schedule);
    map.str("directory", &scheduled.directory);
    map.optional_str("file", scheduled.file.as_deref());
    map.optional_u64("time_ms", scheduled.time_ms);
    map.optional_u64("bytes", scheduled.bytes);
    map.optional_u64("entries", scheduled.entries);
    map.u64("due_ms", scheduled.due_ms);
    map.optional_str("failed", scheduled.failure.as_deref());
    map.optional_u64("overdue_ms", scheduled.overdue_ms);
    map.finish(out);
}

/// The members that have gone silent: nil, or `{together: [{names, since_ms, changes}], with}`.
fn write_silent(silent: Option<&SilentInfo>, out: &mut Vec<u8>) {
    let Some(silent) = silent else { return write_nil(out) };
    let mut map = LongMap::default();
    let together = map.key("together");
    write_array_len(silent.together.len(), together);
    for members in &silent.together {
        let mut inner = LongMap::default();
        write_texts(members.names.iter().map(String::as_str), inner.key("names"));
        inner.u64("since_ms", members.since_ms);
        inner.u64("changes", members.changes);
        inner.finish(together);
    }
    write_texts(silent.with.iter().map(String::as_str), map.key("with"));
    map.finish(out);
}

/// What clients cost in memory: `{used, pinned, max, closed}`.
pub(super) fn write_client_memory(view: &ClientMemoryView, out: &mut Vec<u8>) {
    let mut map = LongMap::default();
    map.size("used", view.used);
    map.size("pinned", view.pinned);
    map.size("max", view.max);
    map.u64("closed", view.closed);
    map.finish(out);
}

fn write_member(member: &MemberInfo, roles: &Roles, out: &mut Vec<u8>) {
    let mut map = LongMap::default();
    map.str("name", &member.name);
    match member.incarnation {
        // It is not known which life it is.
        Incarnation(0) => write_nil(map.key("life")),
        incarnation => write_life(LifeRef { name: &member.name, incarnation }, map.key("life")),
    }
    map.u64("incarnation", member.incarnation.0);
    map.str("gossip", &member.gossip);
    map.optional_str("client", member.client.as_deref());
    map.str("state", member.state.word());
    map.bool("linked", member.linked);
    map.bool("secured", member.secured);
    map.bool("ready", member.ready);
    map.bool("lagging", member.lagging);
    map.u64("acked", member.acked.get());
    map.u64("since_ms", member.since_ms);
    map.optional_str("software", member.software.as_deref());
    map.optional_u64("housekeeper", roles.place_of(member));
    map.bool("delete_member", roles.is_delete_member(member));
    map.optional_u64("away_ms", roles.away_ms(member));
    map.finish(out);
}
