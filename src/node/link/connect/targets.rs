//! Whom to dial, and when: configured peers, peers of earlier runs, and members. Pure; time and
//! jitter come in.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::trouble::{Refused, Trouble};
use crate::model::ids::{Millis, NodeName};

/// The first pause after an attempt that failed.
pub(super) const BACKOFF_MIN_MS: Millis = 200;
/// The longest pause for a peer that should be there: configured, or alive as SWIM says.
pub(super) const BACKOFF_MAX_MS: Millis = 5_000;
/// The longest for one that is near and cannot be reached: when the cable is back, it should not
/// wait for us. An attempt costs a packet or two.
pub(super) const BACKOFF_NEAR_MAX_MS: Millis = 800;
/// A peer is near for this long after its link was lost, and while SWIM says that it is alive.
/// Later, SWIM's calls, which do not become rarer, have to find it first.
pub(super) const NEAR_MS: Millis = 600_000;
/// The shortest pause between the end of an attempt and the next; else they are counted from
/// start to start.
const PAUSE_MIN_MS: Millis = 100;
/// An attempt at a near peer without a result for this long may hang in a connection that was cut
/// on the way: another is made beside it.
const ATTEMPT_HANGS_MS: Millis = 2_000;
/// The longest pause for one that SWIM does not see. It costs nothing: when SWIM sees it, or it
/// dials us, that is at once.
pub(super) const BACKOFF_ABSENT_MAX_MS: Millis = 30_000;
/// How long a fresh member has to link by itself: a joining node dials in the same moment.
pub(super) const FRESH_MS: Millis = 100;
/// How much longer the node with the larger name waits, so that usually only one of the two
/// dials.
pub(super) const COURTESY_MS: Millis = 300;
/// The same while this node joins: it is the fresh one, and must not serve clients before it hears what they tell others.
pub(super) const JOINING_COURTESY_MS: Millis = 20;
/// An address that turned out to be this node's own is looked at again after this time: the
/// name may mean another host by then.
const SELF_AGAIN_MS: Millis = 60_000;
/// A link that stood this long was a good one: its peer is dialled again without a pause.
const GOOD_LINK_MS: Millis = 1_000;
/// Most addresses; an order of magnitude above the largest network aimed at.
pub(super) const TARGETS_MAX: usize = 1024;
/// Most dials under way at once.
pub(super) const DIALS_MAX: usize = 32;

/// Where an address comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) enum Origin {
    /// From the options, a configuration file, or the peer file: kept for good.
    Configured,
    /// From SWIM or another node.
    Learned,
}

/// The result of a dial.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::node::link) enum Dialled {
    /// A link stands, with that peer; or one stood already.
    Linked(NodeName),
    /// Our own address.
    Myself,
    /// No answer, for this reason.
    Unreachable(String),
    /// Its host name does not exist, as the name service says.
    Unknown(String),
    /// Somebody is there, and nothing came of it, for this reason.
    Failed(String),
    /// The node there refuses this one as long as neither is configured otherwise; or it is not a
    /// node.
    Refused(String),
}

/// How things stand with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node::link) enum Standing {
    /// It has no link.
    Unlinked,
    /// It has none and needs none: others pass on its messages.
    Unwanted,
    /// Its link is in doubt, see [`crate::node::link::liveness`].
    Doubtful,
    /// It has a link, and needs no other.
    Linked,
}

struct Target {
    origin: Origin,
    /// The node that answered there last, or that is there as SWIM says.
    name: Option<NodeName>,
    /// SWIM sees it.
    live: bool,
    /// When a link to it was lost that had been a good one.
    lost_at: Option<Millis>,
    dialling: bool,
    /// When the last attempt began.
    started: Millis,
    due: Millis,
    failures: u32,
    /// Why the last attempt failed, if it did.
    trouble: Option<Arc<str>>,
    /// Since when every attempt has been refused for good.
    refused_since: Option<Millis>,
    /// Since when its host name has not existed.
    unknown_since: Option<Millis>,
    /// Since when it has been found to be this node's own address.
    own_since: Option<Millis>,
}

/// All addresses.
pub(in crate::node::link) struct Targets {
    own: NodeName,
    targets: BTreeMap<String, Target>,
}

impl Targets {
    pub(in crate::node::link) fn new(own: NodeName) -> Self {
        Self { own, targets: BTreeMap::new() }
    }

    /// Adds an address; does nothing if it is known or there are too many.
    pub(in crate::node::link) fn add(
        &mut self,
        address: &str,
        origin: Origin,
        name: Option<NodeName>,
        now: Millis,
    ) {
        if let Some(target) = self.targets.get_mut(address) {
            if target.name.is_none() {
                target.name = name;
            }
            if origin == Origin::Configured {
                target.origin = origin;
            }
            return;
        }
        if self.targets.len() >= TARGETS_MAX && !self.make_room() {
            return;
        }
        let target = Target {
            origin,
            name,
            live: false,
            lost_at: None,
            dialling: false,
            started: now,
            due: now,
            failures: 0,
            trouble: None,
            refused_since: None,
            unknown_since: None,
            own_since: None,
        };
        self.targets.insert(address.to_owned(), target);
    }

    /// Gives up a learned address that SWIM does not see.
    fn make_room(&mut self) -> bool {
        let useless = self
            .targets
            .iter()
            .filter(|(_, t)| t.origin == Origin::Learned && !t.live && !t.dialling)
            .max_by_key(|(_, t)| t.failures)
            .map(|(address, _)| address.clone());
        useless.is_some_and(|address| self.targets.remove(&address).is_some())
    }

    /// SWIM reports that a member is up. `is_joining`: this node has not caught up yet.
    pub(in crate::node::link) fn on_member_up(
        &mut self,
        address: &str,
        name: &NodeName,
        is_joining: bool,
        now: Millis,
    ) {
        self.add(address, Origin::Learned, Some(name.clone()), now);
        let wait = match (is_joining, self.own > *name) {
            (true, false) => 0,
            (true, true) => JOINING_COURTESY_MS,
            (false, false) => FRESH_MS,
            (false, true) => FRESH_MS + COURTESY_MS,
        };
        if let Some(target) = self.targets.get_mut(address) {
            let due = now + wait;
            // One that was being called need not wait longer, because it is there now.
            target.due = if target.failures > 0 { target.due.min(due) } else { due };
            target.name = Some(name.clone());
            target.live = true;
            target.failures = 0;
        }
    }

    /// SWIM says that a member is gone; `left` on purpose.
    pub(in crate::node::link) fn on_member_down(&mut self, address: &str, left: bool) {
        let Some(target) = self.targets.get_mut(address) else { return };
        target.live = false;
        if left && target.origin == Origin::Learned {
            self.targets.remove(address);
        }
    }

    /// The addresses to dial now, which count as being dialled from here on, and when to ask
    /// again (none: nothing is waiting for its time).
    pub(in crate::node::link) fn take_due(
        &mut self,
        standing: impl Fn(&NodeName) -> Standing,
        now: Millis,
    ) -> (Vec<String>, Option<Millis>) {
        let under_way = self.targets.values().filter(|t| t.dialling).count();
        let (mut waiting, mut next) = (Vec::new(), None::<Millis>);
        for (address, target) in &mut self.targets {
            match target.name.as_ref().map_or(Standing::Unlinked, &standing) {
                Standing::Linked | Standing::Unwanted => continue,
                Standing::Doubtful => target.lost_at = Some(now),
                Standing::Unlinked => {}
            }
            if target.dialling && !target.hangs(now) {
                continue;
            }
            if target.due <= now {
                // Those that should be there come first: many dead addresses must not delay them.
                let absent = !target.is_near(now) && target.origin == Origin::Learned;
                waiting.push((absent, target.due, address, target));
            } else {
                next = Some(next.map_or(target.due, |n| n.min(target.due)));
            }
        }
        waiting.sort_by_key(|(absent, due, ..)| (*absent, *due));
        let due = waiting
            .into_iter()
            .take(DIALS_MAX.saturating_sub(under_way))
            .map(|(_, _, address, target)| {
                target.dialling = true;
                target.started = now;
                address.clone()
            })
            .collect();
        (due, next)
    }

    /// A dial has come to something. `random`: any 64 bits.
    pub(super) fn on_dialled(&mut self, address: &str, outcome: Dialled, now: Millis, random: u64) {
        let Some(target) = self.targets.get_mut(address) else { return };
        target.dialling = false;
        target.trouble = None;
        let refused_since = target.refused_since.take();
        let unknown_since = target.unknown_since.take();
        let own_since = target.own_since.take();
        match outcome {
            Dialled::Linked(name) => {
                target.name = Some(name);
                // If that link is not there when the time comes, it is dialled again.
                target.due = now + backoff(target.failures, target.backoff_max(), random);
            }
            Dialled::Myself => {
                target.due = now + SELF_AGAIN_MS;
                target.own_since = own_since.or(Some(now));
                target.trouble = Some("that is this node itself".into());
            }
            Dialled::Unreachable(why) => {
                let near = target.is_near(now);
                let max = if near { BACKOFF_NEAR_MAX_MS } else { target.backoff_max() };
                target.on_failure(why, max, now, random);
            }
            Dialled::Unknown(why) => {
                target.unknown_since = unknown_since.or(Some(now));
                target.on_failure(why, target.backoff_max(), now, random);
            }
            Dialled::Failed(why) => target.on_failure(why, target.backoff_max(), now, random),
            Dialled::Refused(why) => {
                target.refused_since = refused_since.or(Some(now));
                target.on_failure(why, target.backoff_max(), now, random);
            }
        }
    }

    /// Whether this node was given no address but its own. Returns the one found out last.
    pub(in crate::node::link) fn only_own(&self) -> Option<Refused> {
        let configured = self.targets.iter().filter(|(_, t)| t.origin == Origin::Configured);
        let own: Option<Vec<Refused>> = configured
            .map(|(address, target)| {
                let why = "it is this node itself; start the first node of a network with `run`, or with \
                           `start --found` and no peers"
                    .into();
                Some(Refused { since: target.own_since?, address: address.clone(), why })
            })
            .collect();
        own?.into_iter().max_by_key(|own| own.since)
    }

    /// Since when it is known that this node was given no address but its own, where those are IP addresses: so there is
    /// nobody else. (A name may stand for several nodes, of which this one answered.)
    pub(in crate::node::link) fn knows_nobody_since(&self) -> Option<Millis> {
        let is_ip = |address: &str| address.parse::<SocketAddr>().is_ok();
        let configured = || self.targets.iter().filter(|(_, t)| t.origin == Origin::Configured);
        match configured().all(|(address, _)| is_ip(address)) {
            true => self.only_own().map(|own| own.since),
            false => None,
        }
    }

    /// Whether each address that this node was given, besides its own, refuses it for good; none if
    /// it was given none. Returns the last one to refuse.
    pub(in crate::node::link) fn refused_by_all(&self) -> Option<Refused> {
        let is_other = |t: &Target| t.origin == Origin::Configured && t.own_since.is_none();
        let configured = self.targets.iter().filter(|(_, t)| is_other(t));
        let refusals: Option<Vec<Refused>> = configured
            .map(|(address, target)| {
                let (since, why) = (target.refused_since?, target.trouble.clone()?);
                Some(Refused { since, address: address.clone(), why })
            })
            .collect();
        refusals?.into_iter().max_by_key(|refused| refused.since)
    }

    /// Whether there is nobody to be called: of the addresses that this node was told of, besides its own,
    /// each has a host name that does not exist, or refuses it for good. One with such a name.
    pub(in crate::node::link) fn unknown_by_all(&self) -> Option<Refused> {
        let is_other = |t: &Target| t.origin == Origin::Configured && t.own_since.is_none();
        let others = self.targets.iter().filter(|(_, t)| is_other(t));
        let mut hopeless_since = 0;
        let mut unknown = None;
        for (address, target) in others {
            hopeless_since = hopeless_since.max(target.unknown_since.or(target.refused_since)?);
            if target.unknown_since.is_some() {
                unknown = Some((address, target.trouble.clone()?));
            }
        }
        let (address, why) = unknown?;
        Some(Refused { since: hopeless_since, address: address.clone(), why })
    }

    /// A link to that peer is gone after `lived_ms`.
    pub(in crate::node::link) fn on_link_end(
        &mut self,
        name: &NodeName,
        lived_ms: Millis,
        now: Millis,
        random: u64,
    ) {
        let courtesy = if self.own > *name { COURTESY_MS } else { 0 };
        for target in self.targets.values_mut().filter(|t| t.name.as_ref() == Some(name)) {
            if lived_ms >= GOOD_LINK_MS {
                target.failures = 0;
                target.lost_at = Some(now);
                target.due = now + courtesy + random % 100;
            } else {
                target.failures = target.failures.saturating_add(1);
                let pause = backoff(target.failures, target.backoff_max(), random);
                target.due = now + courtesy + pause;
            }
        }
    }

    /// That peer went away on purpose. If it comes back, it calls, or SWIM sees it.
    pub(in crate::node::link) fn on_farewell(&mut self, name: &NodeName, now: Millis) {
        for target in self.targets.values_mut().filter(|t| t.name.as_ref() == Some(name)) {
            target.lost_at = None;
            target.due = now + BACKOFF_MAX_MS;
        }
    }

    /// What keeps the addresses that were tried from answering.
    pub(in crate::node::link) fn troubles(&self) -> Vec<Trouble> {
        self.targets.iter().filter_map(|(address, target)| target.trouble_at(address)).collect()
    }

    /// What keeps that node from answering, at one of its addresses.
    pub(in crate::node::link) fn trouble_with(&self, name: &NodeName) -> Option<Trouble> {
        let mut of_it = self.targets.iter().filter(|(_, t)| t.name.as_ref() == Some(name));
        of_it.find_map(|(address, target)| target.trouble_at(address))
    }

    /// The nodes with which there is no link as long as neither side is configured otherwise, and why.
    pub(in crate::node::link) fn refusing(&self) -> BTreeMap<NodeName, Arc<str>> {
        let refusing = self.targets.values().filter(|t| t.refused_since.is_some());
        refusing.filter_map(|t| Some((t.name.clone()?, t.trouble.clone()?))).collect()
    }

    /// All addresses, for the log.
    pub(in crate::node::link) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.targets.keys().map(String::as_str)
    }
}

impl Target {
    fn trouble_at(&self, address: &str) -> Option<Trouble> {
        let is_lasting = self.refused_since.is_some();
        Some(Trouble { address: address.to_owned(), why: self.trouble.clone()?, is_lasting })
    }

    fn is_near(&self, now: Millis) -> bool {
        self.live || self.lost_at.is_some_and(|at| now.saturating_sub(at) < NEAR_MS)
    }

    /// Whether the present attempt has taken so long that it should not hold up others.
    fn hangs(&self, now: Millis) -> bool {
        self.is_near(now) && now.saturating_sub(self.started) >= ATTEMPT_HANGS_MS
    }

    fn backoff_max(&self) -> Millis {
        if self.live || self.origin == Origin::Configured {
            BACKOFF_MAX_MS
        } else {
            BACKOFF_ABSENT_MAX_MS
        }
    }

    fn on_failure(&mut self, why: String, backoff_max: Millis, now: Millis, random: u64) {
        self.failures = self.failures.saturating_add(1);
        let pause = backoff(self.failures, backoff_max, random);
        self.due = (self.started + pause).max(now + PAUSE_MIN_MS);
        self.trouble = Some(why.into());
    }
}

/// Doubles from [`BACKOFF_MIN_MS`], plus or minus a quarter.
fn backoff(failures: u32, max: Millis, random: u64) -> Millis {
    let doublings = failures.saturating_sub(1).min(16);
    let pause = (BACKOFF_MIN_MS << doublings).min(max);
    pause - pause / 4 + random % (pause / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    fn due(targets: &mut Targets, now: Millis) -> Vec<String> {
        targets.take_due(|_| Standing::Unlinked, now).0
    }

    fn next(targets: &mut Targets, now: Millis) -> Millis {
        targets.take_due(|_| Standing::Unlinked, now).1.unwrap()
    }

    fn fail(targets: &mut Targets, now: Millis) {
        targets.on_dialled("x:1", Dialled::Failed("refused".into()), now, 0);
    }

    #[test]
    fn an_address_that_fails_is_dialled_ever_less_often_up_to_a_bound() {
        let mut targets = Targets::new(name("m"));
        targets.add("x:1", Origin::Configured, None, 0);
        let (mut now, mut pauses) = (0, Vec::new());
        for _ in 0..12 {
            assert_eq!(due(&mut targets, now), ["x:1"]);
            assert_eq!(due(&mut targets, now), [""; 0], "it is being dialled");
            fail(&mut targets, now);
            let due = next(&mut targets, now);
            pauses.push(due - now);
            now = due;
        }
        assert_eq!(pauses[..3], [150, 300, 600]);
        assert_eq!(*pauses.last().unwrap(), BACKOFF_MAX_MS * 3 / 4);
        assert_eq!(targets.troubles().len(), 1);
    }

    #[test]
    fn a_node_is_refused_for_good_only_if_all_that_it_was_told_of_refuse_it() {
        let mut targets = Targets::new(name("m"));
        assert_eq!(targets.refused_by_all(), None, "nobody was asked");
        targets.add("x:1", Origin::Configured, None, 0);
        targets.add("y:1", Origin::Configured, None, 0);
        targets.add("z:1", Origin::Learned, None, 0);
        let refuse = |targets: &mut Targets, address, now| {
            targets.on_dialled(address, Dialled::Refused("other network".into()), now, 0);
        };
        refuse(&mut targets, "x:1", 5);
        assert_eq!(targets.refused_by_all(), None, "y has not answered");
        refuse(&mut targets, "y:1", 7);
        refuse(&mut targets, "x:1", 9);
        let refused = targets.refused_by_all().unwrap();
        assert_eq!((refused.since, refused.address.as_str()), (7, "y:1"));
        assert!(targets.troubles().iter().all(|trouble| trouble.is_lasting));
        assert_eq!(targets.refusing(), BTreeMap::new(), "whose addresses they are is not known");
        targets.add("y:1", Origin::Configured, Some(name("y")), 8);
        assert_eq!(targets.refusing().into_keys().collect::<Vec<_>>(), [name("y")]);
        targets.on_dialled("x:1", Dialled::Unreachable("down".into()), 11, 0);
        assert_eq!(targets.refused_by_all(), None, "x may come back as another");
        assert_eq!(targets.only_own(), None);
        refuse(&mut targets, "x:1", 12);
        targets.on_dialled("y:1", Dialled::Myself, 13, 0);
        assert_eq!(targets.refused_by_all().unwrap().address, "x:1", "y does not count");
        targets.on_dialled("x:1", Dialled::Myself, 14, 0);
        targets.on_dialled("y:1", Dialled::Myself, 15, 0);
        assert_eq!(targets.refused_by_all(), None);
        assert_eq!(targets.only_own().unwrap().since, 14, "since both were found out");
        assert_eq!(targets.knows_nobody_since(), None, "a name may be others', too");
        let mut by_ip = Targets::new(name("m"));
        assert_eq!(by_ip.knows_nobody_since(), None);
        by_ip.add("192.0.2.1:1", Origin::Configured, None, 0);
        by_ip.add("[2001:db8::1]:1", Origin::Configured, None, 0);
        by_ip.on_dialled("192.0.2.1:1", Dialled::Myself, 5, 0);
        assert_eq!(by_ip.knows_nobody_since(), None, "the other has not answered");
        by_ip.on_dialled("[2001:db8::1]:1", Dialled::Myself, 6, 0);
        assert_eq!(by_ip.knows_nobody_since(), Some(6));
    }

    #[test]
    fn nobody_can_be_called_only_if_no_name_exists_and_nobody_else_is_there() {
        let mut targets = Targets::new(name("m"));
        assert_eq!(targets.unknown_by_all(), None);
        targets.add("x:1", Origin::Configured, None, 0);
        targets.add("y:1", Origin::Configured, None, 0);
        targets.add("z:1", Origin::Learned, None, 0);
        let unknown = || Dialled::Unknown("no such name".into());
        targets.on_dialled("x:1", unknown(), 5, 0);
        assert_eq!(targets.unknown_by_all(), None, "y was not called");
        targets.on_dialled("y:1", Dialled::Unreachable("down".into()), 6, 0);
        assert_eq!(targets.unknown_by_all(), None, "y may come");
        targets.on_dialled("y:1", unknown(), 7, 0);
        targets.on_dialled("x:1", unknown(), 8, 0);
        assert_eq!(targets.unknown_by_all().unwrap().since, 7);
        assert_eq!(targets.refused_by_all(), None);
        targets.on_dialled("y:1", Dialled::Refused("other network".into()), 9, 0);
        let found = targets.unknown_by_all().unwrap();
        assert_eq!((found.since, found.address.as_str()), (9, "x:1"));
        targets.on_dialled("x:1", Dialled::Failed("no answer in time".into()), 10, 0);
        assert_eq!(targets.unknown_by_all(), None, "the name service may be down");
    }

    #[test]
    fn a_fresh_member_is_dialled_soon_by_the_smaller_name_only() {
        let mut targets = Targets::new(name("m"));
        targets.on_member_up("a:1", &name("a"), false, 0);
        targets.on_member_up("z:1", &name("z"), false, 0);
        assert_eq!(due(&mut targets, FRESH_MS - 1), [""; 0]);
        assert_eq!(due(&mut targets, FRESH_MS), ["z:1"]);
        assert_eq!(due(&mut targets, FRESH_MS + COURTESY_MS), ["a:1"]);
    }

    #[test]
    fn who_joins_dials_all_members_at_once() {
        let mut targets = Targets::new(name("m"));
        targets.on_member_up("a:1", &name("a"), true, 7);
        targets.on_member_up("z:1", &name("z"), true, 7);
        assert_eq!(due(&mut targets, 7), ["z:1"]);
        assert_eq!(due(&mut targets, 7 + JOINING_COURTESY_MS), ["a:1"]);
    }

    #[test]
    fn who_is_linked_is_not_dialled_whatever_its_address_is_called() {
        let mut targets = Targets::new(name("m"));
        targets.add("host:1", Origin::Configured, None, 0);
        targets.on_member_up("10.0.0.1:1", &name("z"), false, 0);
        assert_eq!(due(&mut targets, FRESH_MS).len(), 2);
        targets.on_dialled("host:1", Dialled::Linked(name("z")), 0, 0);
        targets.on_dialled("10.0.0.1:1", Dialled::Linked(name("z")), 0, 0);
        let (none, next) = targets.take_due(
            |n| if *n == name("z") { Standing::Linked } else { Standing::Unlinked },
            60_000,
        );
        assert_eq!((none.len(), next), (0, None));
        targets.on_link_end(&name("z"), GOOD_LINK_MS, 60_000, 0);
        assert_eq!(due(&mut targets, 60_000).len(), 2);
    }

    #[test]
    fn a_link_that_breaks_at_once_is_not_dialled_in_a_tight_loop() {
        let mut targets = Targets::new(name("m"));
        targets.add("x:1", Origin::Configured, None, 0);
        let mut now = 0;
        for round in 0..8 {
            assert_eq!(due(&mut targets, now), ["x:1"], "{round}");
            targets.on_dialled("x:1", Dialled::Linked(name("z")), now, 0);
            targets.on_link_end(&name("z"), 1, now, 0);
            now = next(&mut targets, now);
        }
        assert!(now > 2 * BACKOFF_MAX_MS, "{now}");
    }

    /// The dials up to a time if nobody answers and attempts take `attempt_ms`.
    fn dialled_until(targets: &mut Targets, attempt_ms: Millis, until: Millis) -> Vec<Millis> {
        let (mut now, mut starts) = (0, Vec::new());
        while now < until {
            if due(targets, now).is_empty() {
                now = next(targets, now);
            } else {
                starts.push(now);
                now += attempt_ms;
                targets.on_dialled("x:1", Dialled::Unreachable("no answer".into()), now, now);
            }
        }
        starts
    }

    fn longest_pause(starts: &[Millis]) -> Millis {
        starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
    }

    #[test]
    fn a_peer_whose_link_was_lost_is_dialled_about_every_second_at_first() {
        let mut targets = Targets::new(name("m"));
        targets.add("x:1", Origin::Learned, Some(name("x")), 0);
        targets.on_link_end(&name("x"), GOOD_LINK_MS, 0, 0);
        let starts = dialled_until(&mut targets, 0, NEAR_MS);
        assert!(longest_pause(&starts) <= BACKOFF_NEAR_MAX_MS * 5 / 4, "refused at once");
        targets.on_link_end(&name("x"), GOOD_LINK_MS, 0, 0);
        let starts = dialled_until(&mut targets, 1_500, NEAR_MS);
        assert!(longest_pause(&starts) <= 1_500 + PAUSE_MIN_MS, "no answer");
        let starts = dialled_until(&mut targets, 0, 3 * NEAR_MS);
        assert!(longest_pause(&starts) > BACKOFF_ABSENT_MAX_MS / 2, "not for ever");
        assert!(longest_pause(&starts) <= BACKOFF_ABSENT_MAX_MS * 5 / 4);
    }

    #[test]
    fn a_peer_whose_link_is_in_doubt_is_dialled_beside_it() {
        let mut targets = Targets::new(name("m"));
        targets.add("x:1", Origin::Learned, None, 0);
        assert_eq!(due(&mut targets, 0), ["x:1"]);
        targets.on_dialled("x:1", Dialled::Linked(name("x")), 0, 0);
        assert_eq!(targets.take_due(|_| Standing::Linked, 60_000).0, [""; 0]);
        assert_eq!(targets.take_due(|_| Standing::Doubtful, 60_000).0, ["x:1"]);
        targets.on_dialled("x:1", Dialled::Unreachable("no answer".into()), 61_500, 0);
        let (_, next) = targets.take_due(|_| Standing::Doubtful, 61_500);
        assert_eq!(next, Some(61_500 + PAUSE_MIN_MS), "it counts as near");
    }

    #[test]
    fn an_attempt_that_hangs_does_not_hold_up_the_next_one_at_a_near_peer() {
        let mut targets = Targets::new(name("m"));
        targets.add("far:1", Origin::Configured, None, 0);
        targets.on_member_up("x:1", &name("x"), false, 0);
        assert_eq!(due(&mut targets, 1_000).len(), 2);
        assert_eq!(due(&mut targets, 1_000 + ATTEMPT_HANGS_MS - 1), [""; 0]);
        assert_eq!(due(&mut targets, 1_000 + ATTEMPT_HANGS_MS), ["x:1"]);
    }

    #[test]
    fn a_member_that_comes_up_is_not_dialled_later_than_it_would_have_been() {
        let mut targets = Targets::new(name("m"));
        targets.on_member_up("a:1", &name("a"), false, 0);
        assert_eq!(due(&mut targets, 1_000), ["a:1"]);
        targets.on_dialled("a:1", Dialled::Unreachable("no answer".into()), 2_500, 0);
        targets.on_member_up("a:1", &name("a"), false, 2_550);
        assert_eq!(due(&mut targets, 2_500 + PAUSE_MIN_MS), ["a:1"]);
    }

    #[test]
    fn who_said_farewell_is_not_called_back_at_once() {
        let mut targets = Targets::new(name("m"));
        targets.add("x:1", Origin::Configured, None, 0);
        assert_eq!(due(&mut targets, 0), ["x:1"]);
        targets.on_dialled("x:1", Dialled::Linked(name("x")), 0, 0);
        targets.on_farewell(&name("x"), 100_000);
        assert_eq!(due(&mut targets, 100_000 + BACKOFF_MAX_MS - 1), [""; 0]);
        assert_eq!(due(&mut targets, 100_000 + BACKOFF_MAX_MS), ["x:1"]);
        targets.on_dialled("x:1", Dialled::Failed("refused".into()), 106_000, 0);
        targets.on_member_up("x:1", &name("x"), false, 106_000);
        assert_eq!(due(&mut targets, 106_000 + FRESH_MS + COURTESY_MS), ["x:1"]);
    }

    #[test]
    fn members_that_leave_are_forgotten_and_configured_peers_are_not() {
        let mut targets = Targets::new(name("m"));
        targets.add("x:1", Origin::Configured, None, 0);
        targets.on_member_up("x:1", &name("x"), false, 0);
        targets.on_member_up("z:1", &name("z"), false, 0);
        targets.on_member_down("x:1", true);
        targets.on_member_down("z:1", true);
        assert_eq!(targets.addresses().collect::<Vec<_>>(), ["x:1"]);
    }

    #[test]
    fn invented_addresses_do_not_push_out_real_ones() {
        let mut targets = Targets::new(name("m"));
        targets.add("x:1", Origin::Configured, None, 0);
        targets.on_member_up("z:1", &name("z"), false, 0);
        for n in 0..3 * TARGETS_MAX {
            targets.add(&format!("bad{n}:1"), Origin::Learned, None, 0);
        }
        assert_eq!(targets.addresses().count(), TARGETS_MAX);
        assert!(targets.addresses().any(|a| a == "x:1") && targets.addresses().any(|a| a == "z:1"));
        assert!(due(&mut targets, 0).len() <= DIALS_MAX);
    }
}
