//! Linked members from which membership's datagrams (UDP) do not come through, or only now and then. A link says that a
//! member is there; so one that membership calls down meanwhile, again and again, is not: datagrams go astray. One that
//! comes up in between ends no warning: a single datagram, of one direction, can do that. Pure; time comes in.

use std::collections::{BTreeMap, BTreeSet};

use super::{News, SAY_AGAIN_MS};
use crate::membership::{MemberInfo, MemberState};
use crate::model::count::count_of;
use crate::model::ids::{Incarnation, Millis, NodeName};
use crate::node::link::LinkInfo;
use crate::server::info::names_text;
use crate::server::purge_block::show_ms;

/// Datagrams that get through take seconds. Only after this time is it worth a warning that none has come; and who was up
/// for so long without a doubt is heard again.
const UNHEARD_WARN_MS: Millis = 60_000;
/// So long after somebody came on the list of those to be warned of, one line names all who are on it by then: when a port is
/// closed, they come within seconds of each other.
const GATHER_MS: Millis = 10_000;
/// Who went down so often, and was never up for long in between, is warned of, too.
const LOSSES_WARN: u64 = 3;

/// A link, as far as it counts here.
pub(in crate::node) struct LinkSince {
    pub(in crate::node) name: NodeName,
    pub(in crate::node) incarnation: Incarnation,
    pub(in crate::node) since: Millis,
}

impl LinkSince {
    pub(super) fn of(link: LinkInfo) -> Self {
        Self { name: link.peer.name, incarnation: link.peer.incarnation, since: link.since }
    }
}

/// One linked member.
struct Heard {
    incarnation: Incarnation,
    /// When membership last had it up, or since when it is linked.
    last: Millis,
    /// It is not up, and not suspected either.
    is_silent: bool,
    /// Since when it is up, as membership says, if it is.
    up: Option<Millis>,
    /// When it was last suspected or silent: it is well once it was up for long after that.
    unwell: Millis,
    /// Since when it has not been well, and how often it went silent since.
    trouble: Option<(Millis, u64)>,
    is_warned_of: bool,
}

/// See the module.
#[derive(Default)]
pub(in crate::node) struct Unheard {
    /// At most as many as there are links.
    linked: BTreeMap<NodeName, Heard>,
    /// When the log said so, and of whom.
    said: Option<(Millis, BTreeSet<NodeName>)>,
    /// Since when there is somebody of whom the log has not said so.
    unsaid: Option<Millis>,
}

impl Unheard {
    /// To be called about every half second, with all links and all members.
    pub(in crate::node) fn look(
        &mut self,
        links: &[LinkSince],
        members: &[MemberInfo],
        now: Millis,
    ) -> Option<News> {
        // Who is not linked has failed, perhaps; others tell that.
        self.linked.retain(|name, heard| {
            let is_it = |l: &LinkSince| l.name == *name && l.incarnation == heard.incarnation;
            links.iter().any(is_it)
        });
        for link in links {
            let is_it = |m: &&MemberInfo| m.name == link.name && m.incarnation == link.incarnation;
            // Of several addresses of one life, the one at which it is most here counts.
            let member = members.iter().filter(is_it).min_by_key(|m| rank(m.state));
            let heard = self.linked.entry(link.name.clone()).or_insert_with(|| Heard::of(link));
            heard.look(member, now);
        }
        let lasting: BTreeSet<NodeName> = self.warned_of().map(|(name, _)| name.clone()).collect();
        if lasting.is_empty() {
            self.unsaid = None;
            let (_, names) = self.said.take()?;
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            return Some(News::Over(format!(
                "datagrams come through again; the last of which they did not: {}",
                names_text(&names)
            )));
        }
        let is_said = self.said.as_ref().is_some_and(|(_, names)| names.is_superset(&lasting));
        self.unsaid = (!is_said).then(|| self.unsaid.unwrap_or(now));
        let is_gathered = self.unsaid.is_some_and(|at| now.saturating_sub(at) >= GATHER_MS);
        let is_again = |(at, _): &(Millis, _)| now.saturating_sub(*at) >= SAY_AGAIN_MS;
        if !(is_gathered || (is_said && self.said.as_ref().is_some_and(is_again))) {
            return None;
        }
        self.unsaid = None;
        self.said = Some((now, lasting));
        self.text(now).map(News::Silent)
    }

    /// A line for people about those from which datagrams do not come through, as of the last look: whether these have
    /// failed is then seen late.
    pub(in crate::node) fn text(&self, now: Millis) -> Option<String> {
        let names = |list: &[(&NodeName, &Heard)]| {
            let names: Vec<String> = list.iter().map(|(name, _)| name.to_string()).collect();
            names_text(&names)
        };
        let is_unheard = |(_, heard): &(&NodeName, &Heard)| heard.is_unheard(now);
        let (silent, at_times): (Vec<_>, Vec<_>) = self.warned_of().partition(is_unheard);
        let mut parts = Vec::new();
        if let Some(last) = silent.iter().map(|(_, heard)| heard.last).min() {
            let since = show_ms(now.saturating_sub(last));
            let names = names(&silent);
            parts.push(format!("linked, but for {since} no datagrams have come through: {names}"));
        }
        let trouble = at_times.iter().filter_map(|(_, heard)| heard.trouble);
        let losses = trouble.clone().map(|(_, losses)| losses).max();
        if let (Some((since, _)), Some(losses)) = (trouble.min(), losses) {
            let since = show_ms(now.saturating_sub(since));
            let times = count_of(losses, "time", "times");
            let names = names(&at_times);
            parts.push(format!(
                "linked, but datagrams come through only now and then, or one way only: {names} (down {times} within {since}, and not up for a minute since)"
            ));
        }
        (!parts.is_empty()).then(|| {
            format!(
                "{}; let UDP through to the gossip ports, both ways, and give all of them addresses of one kind (IPv4 or \
                 IPv6)",
                parts.join("; ")
            )
        })
    }

    /// When membership last had a linked member up; since when it is linked, if never.
    pub(in crate::node) fn last_heard(&self, name: &NodeName) -> Option<Millis> {
        self.linked.get(name).map(|heard| heard.last)
    }

    fn warned_of(&self) -> impl Iterator<Item = (&NodeName, &Heard)> {
        self.linked.iter().filter(|(_, heard)| heard.is_warned_of)
    }
}

impl Heard {
    fn of(link: &LinkSince) -> Self {
        Self {
            incarnation: link.incarnation,
            last: link.since,
            is_silent: false,
            up: None,
            unwell: link.since,
            trouble: None,
            is_warned_of: false,
        }
    }

    fn look(&mut self, member: Option<&MemberInfo>, now: Millis) {
        match member.map(|member| (member.state, member.since)) {
            Some((MemberState::Up, since)) => {
                // It went down and came up between two looks.
                if self.up.is_some_and(|up| up != since) && !self.is_silent {
                    self.note_loss(now);
                }
                (self.up, self.last, self.is_silent) = (Some(since), now, false);
            }
            Some((MemberState::Suspect, since)) => {
                (self.up, self.unwell) = (Some(since), now);
            }
            // It says farewell.
            Some((MemberState::Left, _)) => {}
            Some((MemberState::Down, _)) | None => {
                if !self.is_silent {
                    self.note_loss(now);
                }
                (self.is_silent, self.unwell) = (true, now);
            }
        }
        if now.saturating_sub(self.unwell) >= UNHEARD_WARN_MS {
            self.trouble = None;
        }
        let is_flapping = self.trouble.is_some_and(|(since, losses)| {
            losses >= LOSSES_WARN && now.saturating_sub(since) >= UNHEARD_WARN_MS
        });
        self.is_warned_of =
            self.trouble.is_some() && (self.is_warned_of || is_flapping || self.is_unheard(now));
    }

    fn note_loss(&mut self, now: Millis) {
        self.unwell = now;
        let (_, losses) = self.trouble.get_or_insert((self.last, 0));
        *losses += 1;
    }

    fn is_unheard(&self, now: Millis) -> bool {
        self.is_silent && now.saturating_sub(self.last) >= UNHEARD_WARN_MS
    }
}

/// The more it is here, the less.
fn rank(state: MemberState) -> u8 {
    match state {
        MemberState::Up => 0,
        MemberState::Suspect => 1,
        MemberState::Down => 2,
        MemberState::Left => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP_MS: Millis = 500;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    fn link(of: &str, since: Millis) -> LinkSince {
        LinkSince { name: name(of), incarnation: Incarnation(7), since }
    }

    fn member(of: &str, state: MemberState, since: Millis) -> MemberInfo {
        let addr = "10.0.0.5:7".parse().unwrap();
        MemberInfo { name: name(of), incarnation: Incarnation(7), addr, state, since }
    }

    /// Looks from `from` until before `to` while n5 is like that; none: membership does not know it. What the log gets.
    fn during(
        unheard: &mut Unheard,
        state: Option<(MemberState, Millis)>,
        from: Millis,
        to: Millis,
    ) -> Vec<News> {
        let members: Vec<_> =
            state.map(|(state, since)| member("n5", state, since)).into_iter().collect();
        let looks = (from..to).step_by(usize::try_from(STEP_MS).unwrap());
        looks.filter_map(|now| unheard.look(&[link("n5", 0)], &members, now)).collect()
    }

    #[test]
    fn who_is_linked_and_not_heard_for_a_minute_is_told_of_with_the_time_since_it_was_heard() {
        let mut unheard = Unheard::default();
        // It is linked for 17 minutes when datagrams begin to be lost.
        let lost = 17 * 60_000;
        assert_eq!(during(&mut unheard, Some((MemberState::Up, 0)), 0, lost), []);
        let last = lost - STEP_MS;
        assert_eq!(during(&mut unheard, None, lost, last + UNHEARD_WARN_MS), []);
        assert_eq!(
            (unheard.text(last + 45_000), unheard.last_heard(&name("n5"))),
            (None, Some(last))
        );
        let (late, back) = (last + UNHEARD_WARN_MS, last + UNHEARD_WARN_MS + GATHER_MS + 5_000);
        assert_eq!(during(&mut unheard, None, late, late + STEP_MS), []);
        assert!(unheard.text(late).is_some(), "whoever looks sees it at once");
        let told = during(&mut unheard, None, late + STEP_MS, back);
        let [News::Silent(told)] = told.as_slice() else { panic!("once: {told:?}") };
        assert!(
            told.starts_with("linked, but for 70 s no datagrams have come through: n5; let UDP"),
            "{told}"
        );
        // It is heard again, and well for a minute.
        let up = Some((MemberState::Up, back));
        assert_eq!(during(&mut unheard, up, back, back + UNHEARD_WARN_MS - STEP_MS), []);
        let told = unheard.text(back + 1_000).unwrap();
        assert!(
            told.contains("only now and then, or one way only: n5 (down 1 time within"),
            "{told}"
        );
        let over = during(
            &mut unheard,
            up,
            back + UNHEARD_WARN_MS - STEP_MS,
            back + UNHEARD_WARN_MS + 5_000,
        );
        assert!(
            matches!(over.as_slice(), [News::Over(text)] if text.ends_with(": n5")),
            "{over:?}"
        );
        assert_eq!(unheard.text(back + UNHEARD_WARN_MS + 5_000), None);
    }

    #[test]
    fn who_was_never_heard_is_told_of_with_the_age_of_its_link() {
        let mut unheard = Unheard::default();
        assert_eq!(during(&mut unheard, None, 0, UNHEARD_WARN_MS), []);
        let told = during(&mut unheard, None, UNHEARD_WARN_MS, 5 * UNHEARD_WARN_MS);
        assert_eq!(told.len(), 1, "{told:?}");
        let told = unheard.text(5 * UNHEARD_WARN_MS).unwrap();
        assert!(
            told.starts_with("linked, but for 5 min no datagrams have come through: n5; "),
            "{told}"
        );
    }

    /// Up and down as a node is that can call others at one of their addresses, and answer them at none.
    fn flap(
        unheard: &mut Unheard,
        from: Millis,
        times: u64,
        up_ms: Millis,
        down_ms: Millis,
    ) -> Vec<News> {
        let mut news = Vec::new();
        for at in (0..times).map(|n| from + n * (up_ms + down_ms)) {
            let doubted = at + up_ms / 2;
            news.extend(during(unheard, Some((MemberState::Up, at)), at, doubted));
            news.extend(during(unheard, Some((MemberState::Suspect, at)), doubted, at + up_ms));
            let lost = at + up_ms;
            news.extend(during(unheard, Some((MemberState::Down, lost)), lost, lost + down_ms));
        }
        news
    }

    #[test]
    fn who_goes_up_and_down_is_warned_of_once_and_for_as_long_as_it_does() {
        for (up_ms, down_ms) in [(4_000, 1_000), (4_000, 26_000), (15_000, 10_000), (4_000, 70_000)]
        {
            let mut unheard = Unheard::default();
            let period = up_ms + down_ms;
            during(&mut unheard, Some((MemberState::Up, 0)), 0, 200_000);
            // It takes a minute, three times, and the time in which others may come.
            let first = (UNHEARD_WARN_MS / period + 1).max(LOSSES_WARN) + GATHER_MS / period + 1;
            let news = flap(&mut unheard, 200_000, first, up_ms, down_ms);
            assert!(matches!(news.as_slice(), [News::Silent(_)]), "{news:?}");
            let from = 200_000 + first * period;
            for n in 0..5 {
                let at = from + n * period;
                assert_eq!(flap(&mut unheard, at, 1, up_ms, down_ms), [], "it was said");
                for now in [at, at + up_ms, at + period] {
                    assert!(unheard.text(now).is_some_and(|text| text.contains(": n5")));
                }
            }
        }
    }

    #[test]
    fn who_comes_up_between_two_looks_was_down_all_the_same() {
        let mut unheard = Unheard::default();
        let mut news = Vec::new();
        for at in (0..40).map(|n| n * 4_000) {
            news.extend(during(&mut unheard, Some((MemberState::Up, at)), at, at + 4_000));
        }
        let [News::Silent(told)] = news.as_slice() else { panic!("{news:?}") };
        assert!(told.contains("n5 (down 18 times within 70 s, and not"), "{told}");
    }

    /// Looks at a node with links to these, of which membership knows nobody, since those times. When the log says what.
    fn never_heard(
        unheard: &mut Unheard,
        since: &[(&str, Millis)],
        to: Millis,
    ) -> Vec<(Millis, News)> {
        let links = |now| -> Vec<LinkSince> {
            let here = since.iter().filter(|(_, since)| *since <= now);
            here.map(|(name, since)| link(name, *since)).collect()
        };
        let looks = (0..to).step_by(usize::try_from(STEP_MS).unwrap());
        looks.filter_map(|now| Some((now, unheard.look(&links(now), &[], now)?))).collect()
    }

    #[test]
    fn those_that_fall_silent_at_about_the_same_time_are_told_of_together() {
        let mut unheard = Unheard::default();
        let since = [("n2", 0), ("n3", 400), ("n4", 900), ("n5", 30_000), ("n6", 31_000)];
        let said = never_heard(&mut unheard, &since, 5 * UNHEARD_WARN_MS);
        let names = |news: &News| match news {
            News::Silent(text) => text.split([':', ';']).nth(1).unwrap().trim().to_owned(),
            news => panic!("{news:?}"),
        };
        let told: Vec<String> = said.iter().map(|(_, news)| names(news)).collect();
        assert_eq!(told, ["n2, n3 and n4", "n2, n3, n4, n5 and n6"], "{said:?}");
    }

    #[test]
    fn a_short_cut_a_suspicion_and_a_member_that_is_gone_are_no_reason_to_warn() {
        let mut unheard = Unheard::default();
        let up = |since| Some((MemberState::Up, since));
        assert_eq!(during(&mut unheard, up(0), 0, 10_000), []);
        assert_eq!(during(&mut unheard, Some((MemberState::Down, 10_000)), 10_000, 55_000), []);
        assert_eq!(during(&mut unheard, up(55_000), 55_000, 300_000), []);
        assert_eq!(
            during(&mut unheard, Some((MemberState::Suspect, 55_000)), 300_000, 500_000),
            []
        );
        assert_eq!(during(&mut unheard, Some((MemberState::Left, 500_000)), 500_000, 700_000), []);
        assert_eq!(unheard.text(700_000), None);
        // Its link ends while it is warned of.
        during(&mut unheard, None, 700_000, 800_000);
        assert!(unheard.text(800_000).is_some());
        assert!(matches!(unheard.look(&[], &[], 800_500), Some(News::Over(_))));
        assert_eq!((unheard.text(800_500), unheard.last_heard(&name("n5"))), (None, None));
    }
}
