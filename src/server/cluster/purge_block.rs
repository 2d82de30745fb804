//! Warnings about the Delete group: a member is away, so nothing is purged until it is back or
//! removed from the list; one is here and does not agree; a node with data is not on the list; the mark has grown.

use crate::engine::delete::GroupView;
use crate::model::count::count_of;
use crate::model::group::GROUP_MEMBERS_MAX;
use crate::model::ids::{Millis, NodeName};
use crate::model::limits::MARK_COMPONENTS_WARN;

/// A round takes five seconds, and one that fails is tried again. Only after this time is it worth a warning that a node
/// does not agree.
const UNANSWERED_MS_MIN: Millis = 60_000;

/// Deleted entries wait for being purged, and members that must agree are away, or do not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PurgeBlock {
    /// How many tombstones wait.
    pub(crate) tombstones: usize,
    /// The members that are away, and for how long, milliseconds; by name.
    pub(crate) away: Vec<(NodeName, Millis)>,
    /// Those that are here and do not agree, and for how long, milliseconds; by name.
    pub(crate) unanswered: Vec<(NodeName, Millis)>,
}

impl PurgeBlock {
    /// `None` while all that must agree are here and do, or nothing waits.
    #[must_use]
    pub(crate) fn of(view: &GroupView) -> Option<Self> {
        let away: Vec<_> = view.away.iter().map(|(m, ms)| (m.name.clone(), *ms)).collect();
        let lasting = view.unanswered.iter().filter(|(_, ms)| *ms >= UNANSWERED_MS_MIN);
        let unanswered: Vec<_> = lasting.cloned().collect();
        let blocks = !(away.is_empty() && unanswered.is_empty()) && view.tombstones > 0;
        blocks.then_some(Self { tombstones: view.tombstones, away, unanswered })
    }

    /// For how long the one is missed that is missed longest, milliseconds.
    #[must_use]
    pub(crate) fn longest_ms(&self) -> Millis {
        self.away.iter().chain(&self.unanswered).map(|(_, ms)| *ms).max().unwrap_or(0)
    }

    /// One line for people: which member, for how long, how many entries wait, and what to do.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let (away, unanswered) = (names_of(&self.away), names_of(&self.unanswered));
        let mut parts = Vec::new();
        if !away.is_empty() {
            let (is, back) = if away.len() == 1 { ("is", "it back") } else { ("are", "them back") };
            let forget: Vec<String> =
                away.iter().map(|name| format!("`distkv-node members forget {name}`")).collect();
            parts.push(format!(
                "{} of the Delete group {is} away, so {}: bring {back}, or, if that cannot be, run {}",
                show_nodes(&self.away),
                self.what_waits(),
                forget.join(" and ")
            ));
        }
        if !unanswered.is_empty() {
            let (is, does) = if unanswered.len() == 1 { ("is", "does") } else { ("are", "do") };
            parts.push(format!(
                "{} {is} here and {does} not agree to purges, so {}: see what `distkv-node status` says at {}; a \
                 node whose disk is full or has failed cannot agree",
                show_nodes(&self.unanswered),
                self.what_waits(),
                unanswered.join(" and ")
            ));
        }
        parts.join("; ")
    }

    fn what_waits(&self) -> String {
        let entries =
            count_of(self.tombstones as u64, "deleted entry waits", "deleted entries wait");
        format!("nothing is purged and {entries}")
    }
}

/// Nodes and for how long each.
fn show_nodes(nodes: &[(NodeName, Millis)]) -> String {
    let show = |(name, ms): &(NodeName, Millis)| format!("{name} (for {})", show_ms(*ms));
    nodes.iter().map(show).collect::<Vec<_>>().join(", ")
}

fn names_of(nodes: &[(NodeName, Millis)]) -> Vec<&str> {
    nodes.iter().map(|(name, _)| name.as_str()).collect()
}

/// A node with data that has come joins the Delete group within seconds. Only after this time is it
/// worth a warning that it has not.
pub(crate) const LEFT_OUT_MS_MIN: Millis = 60_000;

/// Nodes with data directories that are up and have been kept out of the Delete group for [`LEFT_OUT_MS_MIN`], although
/// there is room: one line for people.
#[must_use]
pub(crate) fn left_out_text(view: &GroupView) -> Option<String> {
    if is_full(view) {
        return None;
    }
    let names = left_out(view);
    let (have, them) = match names.len() {
        0 => return None,
        1 => ("has a data directory and is", "it"),
        _ => ("have data directories and are", "them"),
    };
    Some(format!(
        "{} {have} not in the Delete group, so deleted entries are purged without {them}: all members \
         of the group must be up and linked to take {them} in; see `distkv-node members`",
        names.join(", ")
    ))
}

/// The same where there is no room: nothing is wrong then, and one line for people says what that means.
#[must_use]
pub(crate) fn full_text(view: &GroupView) -> Option<String> {
    let names = left_out(view);
    if names.is_empty() || !is_full(view) {
        return None;
    }
    let (keep, are, they, catch) = match names.len() {
        1 => ("keeps", "is", "it", "catches"),
        _ => ("keep", "are", "they", "catch"),
    };
    Some(format!(
        "the Delete group is full, {GROUP_MEMBERS_MAX} is the most: {} {keep} data on disk and {are} not in it, so \
         deleted entries are purged also while {they} {are} away; {they} {catch} up when {they} {are} back",
        names.join(", ")
    ))
}

fn is_full(view: &GroupView) -> bool {
    view.config.as_ref().is_some_and(|config| config.members().len() >= GROUP_MEMBERS_MAX)
}

/// The names of those that have been left out for long.
fn left_out(view: &GroupView) -> Vec<&str> {
    let lasting = view.left_out.iter().filter(|(_, ms)| *ms >= LEFT_OUT_MS_MIN);
    lasting.map(|(name, _)| name.as_str()).collect()
}

/// The mark has grown: one line for people.
#[must_use]
pub(crate) fn mark_text(view: &GroupView) -> Option<String> {
    let lineages = view.lineages;
    (lineages > MARK_COMPONENTS_WARN).then(|| {
        format!(
            "the purge mark names {lineages} successions of the Delete group (usually one), and every \
             change carries them to each node until the next purge; see `distkv-node members`"
        )
    })
}

/// A duration for people; exact enough for one that continues.
pub(crate) fn show_ms(ms: Millis) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use crate::model::group::Member;
    use crate::server::purge_block::*;

    fn view(away: &[(&str, Millis)], tombstones: usize) -> GroupView {
        let member =
            |name: &str| Member { name: NodeName::new(name).unwrap(), store: 1, durable: true };
        let away = away.iter().map(|(name, ms)| (member(name), *ms)).collect();
        GroupView { away, tombstones, ..GroupView::default() }
    }

    #[test]
    fn purging_is_blocked_only_while_something_waits_and_somebody_is_away() {
        assert_eq!(PurgeBlock::of(&view(&[], 5)), None);
        assert_eq!(PurgeBlock::of(&view(&[("n3", 5)], 0)), None);
        assert!(PurgeBlock::of(&view(&[("n3", 5)], 1)).is_some());
    }

    #[test]
    fn a_node_with_data_that_has_no_say_and_a_grown_mark_are_told_of() {
        assert_eq!((left_out_text(&view(&[], 0)), mark_text(&view(&[], 0))), (None, None));
        let left_out = |ms| ["n4", "n5"].map(|name| (NodeName::new(name).unwrap(), ms)).to_vec();
        let fresh = GroupView { left_out: left_out(59_999), ..GroupView::default() };
        assert_eq!(left_out_text(&fresh), None, "they have only just come");
        let left_out = left_out(60_000);
        let two = GroupView { left_out, lineages: 64, ..GroupView::default() };
        let text = left_out_text(&two).unwrap();
        assert!(
            text.starts_with("n4, n5 have data directories and are not in the Delete"),
            "{text}"
        );
        assert_eq!(mark_text(&two), None);
        let grown = GroupView { lineages: 65, ..two };
        assert!(mark_text(&grown).unwrap().contains("names 65 successions"));
    }

    #[test]
    fn where_the_list_is_full_nothing_is_warned_of_and_it_is_said_why_a_node_is_not_on_it() {
        use crate::model::group::GroupConfig;
        use crate::model::seen::Lineage;
        let group = |members: usize, ms| {
            let name = |at: usize| NodeName::new(&format!("n{at}")).unwrap();
            let member = |at| Member { name: name(at), store: 1, durable: true };
            let config = GroupConfig::new(1, Lineage(None), (0..members).map(member).collect());
            let left_out = vec![(name(members), ms)];
            GroupView { config, left_out, ..GroupView::default() }
        };
        let full = group(64, 60_000);
        assert_eq!(left_out_text(&full), None);
        let text = full_text(&full).unwrap();
        assert!(
            text.starts_with("the Delete group is full, 64 is the most: n64 keeps data"),
            "{text}"
        );
        assert!(text.ends_with("while it is away; it catches up when it is back"), "{text}");
        assert_eq!(full_text(&group(64, 59_999)), None);
        let with_room = group(63, 60_000);
        assert_eq!(full_text(&with_room), None);
        assert!(left_out_text(&with_room).unwrap().starts_with("n63 has a data directory"));
    }

    #[test]
    fn the_text_says_who_for_how_long_and_what_to_do() {
        let one = PurgeBlock::of(&view(&[("n3", 310_000)], 42)).unwrap();
        assert_eq!(
            one.text(),
            "n3 (for 5 min) of the Delete group is away, so nothing is purged and 42 deleted entries \
             wait: bring it back, or, if that cannot be, run `distkv-node members forget n3`"
        );
        let two = PurgeBlock::of(&view(&[("n3", 7_300_000), ("n4", 9_000)], 1)).unwrap();
        assert_eq!(
            two.text(),
            "n3 (for 2 h), n4 (for 9 s) of the Delete group are away, so nothing is purged and 1 \
             deleted entry waits: bring them back, or, if that cannot be, run `distkv-node members \
             forget n3` and `distkv-node members forget n4`"
        );
        assert_eq!(two.longest_ms(), 7_300_000);
    }

    #[test]
    fn who_is_here_and_does_not_agree_is_told_of_once_it_lasts() {
        let name = |name: &str| NodeName::new(name).unwrap();
        let with = |ms, away: &[_]| GroupView {
            unanswered: vec![(name("n2"), ms), (name("n4"), 59_999)],
            ..view(away, 3)
        };
        assert_eq!(PurgeBlock::of(&with(59_999, &[])), None, "the next round may succeed");
        let block = PurgeBlock::of(&with(60_000, &[])).unwrap();
        assert_eq!(block.longest_ms(), 60_000);
        let text = "n2 (for 60 s) is here and does not agree to purges, so nothing is purged and 3 deleted entries \
                    wait: see what `distkv-node status` says at n2; a node whose disk is full or has failed cannot agree";
        assert_eq!(block.text(), text);
        let both = PurgeBlock::of(&with(60_000, &[("n3", 9_000)])).unwrap().text();
        assert!(
            both.starts_with("n3 (for 9 s) of the Delete group is away") && both.ends_with(text)
        );
    }
}
