//! The Delete group and the housekeepers, for operators: their part in `members` and `status`,
//! `get_state`'s `delete_group` and `resync`, and `forget_member`.

use super::admin::LongMap;
use crate::engine::changes::ForgetMember;
use crate::engine::delete::{ForgetError, GroupView};
use crate::engine::{Engine, ResyncView};
use crate::model::count::count_of;
use crate::model::group::Member;
use crate::model::ids::{Incarnation, Millis, NodeName, Tick};
use crate::model::seen::Mark;
use crate::model::value::{write_array_len, write_map_len, write_nil, write_str, write_u64};
use crate::protocol::client::reply::StreamTag;
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::access::authorise::Target;
use crate::server::connections::session::{Context, Session, Then};
use crate::server::error_text::shown;
use crate::server::info::{MemberInfo, MemberState};
use crate::server::purge_block::PurgeBlock;

/// The roles of nodes in the network.
pub(in crate::server::command) struct Roles {
    housekeepers: Vec<NodeName>,
    group: GroupView,
    pub(in crate::server::command) purge_block: Option<PurgeBlock>,
}

impl Roles {
    pub(in crate::server::command) fn of(engine: &Engine, now: Millis) -> Self {
        let group = engine.group_view(now);
        let purge_block = PurgeBlock::of(&group);
        Self { housekeepers: engine.housekeepers(), group, purge_block }
    }

    fn listed(&self) -> &[Member] {
        self.group.config.as_ref().map_or(&[], |config| config.members())
    }

    /// Whether a member of the network is this member of the Delete group. Of a node without a
    /// data directory another life is another member.
    fn is_it(listed: &Member, member: &MemberInfo) -> bool {
        listed.name.as_str() == member.name
            && (listed.durable || Incarnation(listed.store) == member.incarnation)
    }

    fn away_ms_of(&self, name: &NodeName) -> Option<Millis> {
        self.group.away.iter().find(|(m, _)| m.name == *name).map(|(_, ms)| *ms)
    }

    /// Its place on the list of housekeepers, from 1.
    pub(super) fn place_of(&self, member: &MemberInfo) -> Option<u64> {
        let at = self.housekeepers.iter().position(|name| name.as_str() == member.name)?;
        Some(at as u64 + 1)
    }

    /// Each node has one row, and whether it is up has no part in this: a node with a data directory that has
    /// gone is waited for.
    pub(super) fn is_delete_member(&self, member: &MemberInfo) -> bool {
        self.listed().iter().any(|listed| Self::is_it(listed, member))
    }

    /// For how long a member of the Delete group has been missed.
    pub(in crate::server::command) fn away_ms(&self, member: &MemberInfo) -> Option<u64> {
        let listed = self.listed().iter().find(|listed| Self::is_it(listed, member))?;
        self.away_ms_of(&listed.name)
    }

    /// Members of the Delete group of which nothing else is known are members, too.
    pub(super) fn add_who_is_away(&self, members: &mut Vec<MemberInfo>) {
        for listed in self.listed() {
            // One row each, even if another life of the node is here.
            if members.iter().any(|member| listed.name.as_str() == member.name) {
                continue;
            }
            let incarnation = if listed.durable { 0 } else { listed.store };
            members.push(MemberInfo {
                name: listed.name.to_string(),
                incarnation: Incarnation(incarnation),
                gossip: String::new(),
                client: None,
                state: MemberState::Away,
                linked: false,
                secured: false,
                ready: false,
                lagging: false,
                acked: Tick::default(),
                since_ms: self.away_ms_of(&listed.name).unwrap_or(0),
                software: None,
            });
        }
    }
}

impl Session {
    /// `forget_member`: by force, because the member cannot agree any more.
    pub(in crate::server) fn forget_member(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        node: &str,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::ForgetMember, Target::Node)?;
        let name = NodeName::new(node).map_err(|error| {
            ClientError::bad_request(format!("bad field 'node', '{}': {error}", shown(node)))
        })?;
        let (forgotten, number) = cx.hub.handle_logged(ForgetMember(&name), cx.now);
        let tock = cx.tock();
        // Its keys do not keep those of the network from being changed any more.
        let was_known = !matches!(forgotten, Err(ForgetError::IsHere | ForgetError::IsThis))
            && cx.shared.info.forget_keys_of(&name);
        let was_listed = forgotten != Err(ForgetError::NotAMember);
        let is_changed = match forgotten {
            Ok(()) => true,
            Err(ForgetError::NotAMember) if was_known => true,
            Err(ForgetError::NotAMember) => {
                check_is_gone(cx, &name)?;
                false
            }
            Err(error) => return Err(not_forgotten(&name, error)),
        };
        // Also one that was never on the list.
        cx.shared.info.give_up(&name);
        let from = out.len();
        let mut reply = MessageWriter::new(out);
        reply.bool("result", is_changed);
        if !was_listed {
            reply.bool("was_listed", false);
        }
        reply.u64("seq", seq).tock(tock);
        self.unsynced.note(from, out.len(), number, StreamTag { seq, wseq: None });
        Ok(Then::Continue)
    }
}

/// Nothing is to be done for a node that is not on the list, whatever membership says of it: a node that was killed counts as
/// up for some seconds more.
///
/// # Errors
/// It is linked, or nothing is known of it.
fn check_is_gone(cx: &Context<'_>, name: &NodeName) -> Result<(), ClientError> {
    let members = cx.shared.info.members();
    let mut rows = members.iter().filter(|member| member.name == name.as_str());
    let (is_linked, was_heard_of) = cx.hub.read(|engine| {
        let is_linked = engine.peer_views().iter().any(|peer| peer.id.name == *name);
        let has_lived = !engine.table().incarnations(name.as_str()).is_empty();
        (is_linked, has_lived || engine.was_listed(name))
    });
    if is_linked || rows.clone().any(|row| row.linked || row.state == MemberState::Myself) {
        let text = format!(
            "{name}: that node is up, and not in the Delete group, so there is nothing to forget; a node that keeps its \
             data on disk joins the group within seconds, if there is room"
        );
        return Err(ClientError::new(ErrorCode::InUse, text));
    }
    match was_heard_of || rows.next().is_some() {
        true => Ok(()),
        false => Err(not_forgotten(name, ForgetError::NotAMember)),
    }
}

fn not_forgotten(name: &NodeName, error: ForgetError) -> ClientError {
    let code = match error {
        ForgetError::NotReady => ErrorCode::NotReady,
        ForgetError::NotAMember => ErrorCode::NotFound,
        ForgetError::IsHere | ForgetError::IsThis => ErrorCode::InUse,
        ForgetError::NoEvent => ErrorCode::NoEvent,
    };
    ClientError::new(code, format!("{name}: {error}"))
}

/// An array of texts.
pub(super) fn write_texts<'a>(texts: impl ExactSizeIterator<Item = &'a str>, out: &mut Vec<u8>) {
    write_array_len(texts.len(), out);
    texts.for_each(|text| write_str(text, out));
}

/// What replication rule 10 has found.
pub(super) fn contents_warnings(engine: &Engine) -> Vec<String> {
    let mut warnings = Vec::new();
    let differing = engine.contents_differ();
    if !differing.is_empty() {
        let names: Vec<&str> = differing.iter().map(NodeName::as_str).collect();
        warnings.push(format!(
            "this node and {} know the same changes and hold different entries; they are being \
             repaired",
            names.join(", ")
        ));
    }
    let mended = engine.counters().contents_mended;
    if mended > 0 {
        warnings.push(format!(
            "{} repaired since the start: one change had two contents, so a data \
             directory was set back or copied; `conflicts` shows what lost",
            count_of(mended, "entry was", "entries were")
        ));
    }
    warnings
}

pub(super) fn write_warnings(warnings: &[String], out: &mut Vec<u8>) {
    write_texts(warnings.iter().map(String::as_str), out);
}

/// Nil while purging continues.
pub(super) fn write_purge_block(block: Option<&PurgeBlock>, out: &mut Vec<u8>) {
    let Some(block) = block else { return write_nil(out) };
    let mut map = LongMap::default();
    map.size("tombstones", block.tombstones);
    write_nodes(&block.away, "away_ms", map.key("members"));
    write_nodes(&block.unanswered, "since_ms", map.key("unanswered"));
    map.finish(out);
}

/// Nodes, and for how long each has been missed.
fn write_nodes(nodes: &[(NodeName, Millis)], for_ms: &str, out: &mut Vec<u8>) {
    write_array_len(nodes.len(), out);
    for (name, ms) in nodes {
        let mut member = LongMap::default();
        member.str("name", name.as_str());
        member.u64(for_ms, *ms);
        member.finish(out);
    }
}

/// `get_state`'s part `delete_group`; nil while there is no list.
pub(super) fn write_delete_group(view: &GroupView, mark: &Mark, out: &mut Vec<u8>) {
    let Some(config) = &view.config else { return write_nil(out) };
    let mut map = LongMap::default();
    map.u64("version", config.version);
    map.str("lineage", &config.lineage.to_string());
    let members = map.key("members");
    write_array_len(config.members().len(), members);
    for listed in config.members() {
        let away = view.away.iter().find(|(m, _)| m == listed);
        let mut member = LongMap::default();
        member.str("name", listed.name.as_str());
        member.bool("durable", listed.durable);
        member.optional_u64("away_ms", away.map(|(_, ms)| *ms));
        member.finish(members);
    }
    map.size("tombstones", view.tombstones);
    write_nodes(&view.awaited, "away_ms", map.key("awaited"));
    write_texts(view.left_out.iter().map(|(name, _)| name.as_str()), map.key("left_out"));
    let tocks = map.key("mark");
    write_map_len(mark.iter().count(), tocks);
    for (lineage, tock) in mark.iter() {
        write_str(&lineage.to_string(), tocks);
        write_u64(tock.get(), tocks);
    }
    map.finish(out);
}

/// `get_state`'s part `resync`; nil while no split is healing.
pub(super) fn write_resync(view: Option<&ResyncView>, out: &mut Vec<u8>) {
    let Some(view) = view else { return write_nil(out) };
    let mut map = LongMap::default();
    map.u64("lasts_ms", view.lasts_ms);
    write_texts(view.ours.iter().map(NodeName::as_str), map.key("ours"));
    match &view.driver {
        Some(name) => map.str("driver", name.as_str()),
        None => write_nil(map.key("driver")),
    }
    map.u64("driver_remaining", view.driver_remaining);
    map.u64("driver_entries", view.driver_entries);
    map.u64("remaining", view.remaining);
    map.u64("entries", view.entries);
    map.finish(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::group::GroupConfig;
    use crate::model::ids::NodeId;
    use crate::model::seen::Lineage;
    use rmpv::Value;

    fn decode(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes);
        let mut rest = bytes.as_slice();
        let value: Value = rmpv::decode::read_value(&mut rest).unwrap();
        assert!(rest.is_empty());
        value.to_string()
    }

    fn name(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn member(of: &str, store: u64, durable: bool) -> Member {
        Member { name: name(of), store, durable }
    }

    fn info(of: &str, incarnation: u64) -> MemberInfo {
        let mut members = Vec::new();
        let group = view(vec![member(of, incarnation, false)], Vec::new());
        roles(group).add_who_is_away(&mut members);
        MemberInfo { state: MemberState::Up, ..members.remove(0) }
    }

    fn view(members: Vec<Member>, away: Vec<(Member, Millis)>) -> GroupView {
        let id = NodeId { name: name("n1"), incarnation: Incarnation(0xab) };
        let lineage = Lineage(Some((id, Tick::new(4).unwrap())));
        let config = GroupConfig::new(3, lineage, members);
        GroupView { config, away, tombstones: 7, ..GroupView::default() }
    }

    fn roles(group: GroupView) -> Roles {
        let housekeepers = vec![name("n2"), name("n1")];
        Roles { housekeepers, purge_block: PurgeBlock::of(&group), group }
    }

    #[test]
    fn a_members_row_tells_its_roles() {
        let (n1, n3) = (member("n1", 5, true), member("n3", 9, false));
        let n4 = member("n4", 9, false);
        let away = vec![(n3.clone(), 700), (n4.clone(), 1_500)];
        let roles = roles(view(vec![n1, n3, n4], away));
        let mut members = vec![info("n1", 77), info("n2", 2), info("n3", 8)];
        roles.add_who_is_away(&mut members);
        let told: Vec<_> = members
            .iter()
            .map(|m| {
                (m.name.as_str(), m.state.word(), roles.place_of(m), roles.is_delete_member(m))
            })
            .collect();
        let expected = [
            ("n1", "up", Some(2), true),
            ("n2", "up", Some(1), false),
            // Back without its state, it is another member; it still has one row.
            ("n3", "up", None, false),
            ("n4", "away", None, true),
        ];
        assert_eq!(told, expected);
        assert_eq!((members[3].since_ms, members[3].incarnation), (1_500, Incarnation(9)));
        assert_eq!((roles.away_ms(&members[2]), roles.away_ms(&members[3])), (None, Some(1_500)));
    }

    #[test]
    fn a_member_with_data_that_has_just_gone_is_a_member_all_the_same() {
        let listed = vec![member("n1", 5, true), member("n3", 9, true), member("n4", 4, false)];
        // Nobody has noted yet that they are away.
        let roles = roles(view(listed, Vec::new()));
        let gone =
            |of, incarnation| MemberInfo { state: MemberState::Down, ..info(of, incarnation) };
        assert!(roles.is_delete_member(&gone("n3", 7)) && roles.is_delete_member(&gone("n4", 4)));
        assert!(
            !roles.is_delete_member(&gone("n4", 3)),
            "without data, another life is another member"
        );
        assert!(!roles.is_delete_member(&gone("n5", 4)));
    }

    #[test]
    fn the_delete_group_is_told_with_its_mark() {
        let (n1, n3) = (member("n1", 5, true), member("n3", 9, false));
        let mut view = view(vec![n1, n3.clone()], vec![(n3, 1_500)]);
        (view.awaited, view.left_out) = (vec![(name("n9"), 20)], vec![(name("n4"), 30)]);
        view.unanswered = vec![(name("n9"), 60_000)];
        let lineage = view.config.as_ref().unwrap().lineage.clone();
        let tock = |t| crate::model::ids::Tock::new(t).unwrap();
        let mark = Mark::from_components([(Lineage(None), tock(2)), (lineage, tock(9))]);
        assert_eq!(
            decode(|out| write_delete_group(&view, &mark, out)),
            r#"{"version": 3, "lineage": "n1~ab:4", "members": [{"name": "n1", "durable": true, "away_ms": nil}, {"name": "n3", "durable": false, "away_ms": 1500}], "tombstones": 7, "awaited": [{"name": "n9", "away_ms": 20}], "left_out": ["n4"], "mark": {"first": 2, "n1~ab:4": 9}}"#
        );
        let none = GroupView::default();
        assert_eq!(decode(|out| write_delete_group(&none, &Mark::default(), out)), "nil");
        assert_eq!(
            decode(|out| write_purge_block(PurgeBlock::of(&view).as_ref(), out)),
            r#"{"tombstones": 7, "members": [{"name": "n3", "away_ms": 1500}], "unanswered": [{"name": "n9", "since_ms": 60000}]}"#
        );
    }

    #[test]
    fn a_resync_is_told_with_its_driver() {
        let mut view = ResyncView {
            lasts_ms: 1,
            ours: vec![name("n1"), name("n2")],
            driver: Some(name("n1")),
            driver_remaining: 2,
            driver_entries: 3,
            remaining: 4,
            entries: 5,
        };
        assert_eq!(
            decode(|out| write_resync(Some(&view), out)),
            r#"{"lasts_ms": 1, "ours": ["n1", "n2"], "driver": "n1", "driver_remaining": 2, "driver_entries": 3, "remaining": 4, "entries": 5}"#
        );
        view.driver = None;
        assert!(decode(|out| write_resync(Some(&view), out)).contains(r#""driver": nil"#));
        assert_eq!(decode(|out| write_resync(None, out)), "nil");
    }
}
