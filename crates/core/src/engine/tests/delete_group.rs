//! Replication rule 7, one clause at a time: a member and a coordinator, each alone with what a peer says.

use super::hand::{Came, Hand, digest, id};
use crate::engine::delete::{DeleteSettings, Retirement, store_after_renewal};
use crate::engine::*;
use crate::model::group::{GroupConfig, Member, RoundId};
use crate::model::ids::NodeId;
use crate::model::limits::MARK_COMPONENTS_WARN;
use crate::model::mark::{Component, Implied, Lineage};
use crate::model::seen::{SeenById, export_seen};
use crate::model::seen_sum::SeenSum;
use crate::model::tick_set::TickSet;
use crate::protocol::peer::{GroupHello, PairById, PeerMessage, Proposal};

const LINK: LinkId = LinkId(1);
const STORE: u64 = 7;

fn member(name: &str, store: u64) -> Member {
    Member { name: id(name).name, store, durable: true }
}

fn lineage() -> Lineage {
    Lineage(Some((id("a"), Tick::new(1).unwrap())))
}

/// Node `b`, a member with a data directory, linked to `a`, which is the other member.
struct Alone {
    hand: Hand,
    /// Tokens that wait for the disk.
    persisting: Vec<u64>,
    /// What it said about rounds since the last look.
    said: Vec<&'static str>,
    proposed: Vec<Proposal>,
}

impl Alone {
    fn new(cycle_ms: Millis) -> Self {
        let delete = DeleteSettings { store: Some(STORE), cycle_ms, ..DeleteSettings::default() };
        let hand = Hand::new(Config { delete, ..Config::new(id("b"), 1) });
        let (persisting, said, proposed) = (Vec::new(), Vec::new(), Vec::new());
        let mut alone = Self { hand: Hand { now: 1, ..hand }, persisting, said, proposed };
        alone.handle(Input::Found);
        alone.handle(Input::LinkUp { link: LINK, peer: id("a") });
        let config = GroupConfig::new(3, lineage(), vec![member("a", 1), member("b", STORE)]);
        let hello = GroupHello { member: member("a", 1), config, implied: Vec::new() };
        alone.hear(PeerMessage::Group(hello));
        let seen = vec![(id("a"), TickSet::range(1, 2).unwrap())];
        alone.hear(PeerMessage::Digest(digest(seen, Mark::default())));
        alone
    }

    fn hear(&mut self, message: PeerMessage<'_>) {
        self.handle(Input::Messages { link: LINK, messages: vec![message] });
    }

    fn handle(&mut self, input: Input<'_>) {
        let came = self.hand.input(input);
        self.note(&came);
    }

    fn note(&mut self, came: &Came) {
        let tokens = came.0.iter().filter_map(|output| match output {
            Output::Persist { token } => Some(*token),
            _ => None,
        });
        self.persisting.extend(tokens);
        let said = came.sent(|_, message| match message {
            PeerMessage::Agree { .. } => Some(("agree", None)),
            PeerMessage::Disagree(_) => Some(("disagree", None)),
            PeerMessage::Announce(_) => Some(("purge", None)),
            PeerMessage::Propose(proposal) => Some(("propose", Some(proposal.clone()))),
            _ => None,
        });
        for (word, proposal) in said {
            self.said.push(word);
            self.proposed.extend(proposal);
        }
    }

    fn persisted(&mut self) {
        for token in std::mem::take(&mut self.persisting) {
            self.handle(Input::Persisted { token });
        }
    }

    fn pass(&mut self, ms: Millis) {
        let came = self.hand.pass(ms);
        self.note(&came);
    }

    fn said(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.said)
    }

    fn write(&mut self, path: &str, value: Option<&[u8]>) {
        let came = self.hand.write(path, value);
        self.note(&came);
    }

    /// What `a` would propose, had it seen what is seen here.
    fn proposal(&self, version: u64, number: u64, to: u64) -> Proposal {
        let round = RoundId { coordinator: id("a"), number, version };
        Proposal {
            pair: PairById {
                lineage: lineage(),
                from: Component::default(),
                to: Tock::new(to).unwrap(),
                id: round.purge_id(),
                base: Vec::new(),
                seen: self.seen(),
                rest: SeenSum::default(),
            },
            round,
            next: None,
        }
    }

    fn seen(&self) -> SeenById {
        export_seen(self.hand.engine.table(), self.hand.engine.seen())
    }

    /// Waits until it proposes something itself.
    fn coordinates(&mut self) -> Proposal {
        for _ in 0..1_000 {
            self.pass(TICK_INTERVAL_MS);
            if let Some(proposal) = self.proposed.pop() {
                return proposal;
            }
        }
        panic!("no proposal");
    }
}

fn with_tombstone() -> Alone {
    let mut b = Alone::new(3_000);
    b.write("k", Some(&[1]));
    b.write("k", None);
    b.said();
    b
}

#[test]
fn a_member_agrees_only_after_its_state_is_safe() {
    let mut b = with_tombstone();
    let proposal = b.proposal(3, 1, 2);
    b.hear(PeerMessage::Propose(proposal));
    assert_eq!((b.said(), b.persisting.len()), (vec![], 1));
    b.persisted();
    assert_eq!(b.said(), ["agree"]);
}

#[test]
fn a_member_disagrees_to_a_round_of_another_list() {
    let mut b = with_tombstone();
    for version in [2, 4] {
        let proposal = b.proposal(version, 1, 2);
        b.hear(PeerMessage::Propose(proposal));
        assert_eq!((b.said(), b.persisting.len()), (vec!["disagree"], 0), "version {version}");
    }
}

#[test]
fn a_member_disagrees_to_a_purge_that_begins_elsewhere_or_is_misnamed() {
    let mut b = with_tombstone();
    let wrong: [fn(&mut Proposal); 4] = [
        |p| p.pair.from = Component::new(Tock::new(1).unwrap(), p.pair.id),
        |p| p.pair.lineage = Lineage(None),
        |p| p.pair.base = vec![(Lineage(None), Component::new(Tock::new(1).unwrap(), p.pair.id))],
        |p| p.round.number += 1,
    ];
    for change in wrong {
        let mut proposal = b.proposal(3, 1, 2);
        change(&mut proposal);
        b.hear(PeerMessage::Propose(proposal));
        assert_eq!((b.said(), b.persisting.len()), (vec!["disagree"], 0));
    }
}

#[test]
fn a_member_waits_for_what_it_has_not_seen_and_then_disagrees() {
    let mut b = with_tombstone();
    let mut proposal = b.proposal(3, 1, 2);
    proposal.pair.seen.push((id("c"), TickSet::range(1, 2).unwrap()));
    b.hear(PeerMessage::Propose(proposal.clone()));
    b.pass(1_000);
    assert_eq!(b.said(), [""; 0], "it may come");
    let c = b.hand.engine.replica.intern(&id("c")).unwrap();
    b.hand.engine.replica.account_for(Event { node: c, tick: Tick::new(1).unwrap() });
    b.pass(TICK_INTERVAL_MS);
    b.persisted();
    assert_eq!(b.said(), ["agree"]);
    proposal.pair.seen.push((id("d"), TickSet::range(1, 2).unwrap()));
    b.hear(PeerMessage::Propose(proposal));
    b.pass(2_050);
    assert_eq!(b.said(), ["disagree"], "it did not");
}

#[test]
fn what_was_agreed_to_is_checked_again_once_it_is_safe() {
    let mut b = with_tombstone();
    let proposal = b.proposal(3, 1, 2);
    b.hear(PeerMessage::Propose(proposal.clone()));
    // Another purge was announced meanwhile.
    let other =
        PairById { id: RoundId { number: 9, ..proposal.round }.purge_id(), ..proposal.pair };
    b.hear(PeerMessage::Announce(other));
    b.persisted();
    assert_eq!(b.said(), ["disagree"]);
}

#[test]
fn a_coordinator_agrees_to_nobody_else_until_its_own_round_is_over() {
    let mut b = with_tombstone();
    let own = b.coordinates();
    let theirs = b.proposal(3, 1, 2);
    b.said();
    b.hear(PeerMessage::Propose(theirs.clone()));
    assert_eq!(b.said(), ["disagree"], "its round is open");
    b.hear(PeerMessage::Agree { round: own.round, member: member("a", 1) });
    assert_eq!((b.said(), b.persisting.len()), (vec![], 1));
    b.hear(PeerMessage::Propose(theirs));
    assert_eq!((b.said(), b.persisting.len()), (vec!["disagree"], 1), "it decides");
    b.persisted();
    assert_eq!(b.said(), ["purge"]);
}

#[test]
fn a_coordinator_knows_who_is_here_and_does_not_agree_and_since_when() {
    let mut b = with_tombstone();
    let unanswered = |b: &Alone| b.hand.engine.group_view(b.hand.now).unanswered;
    b.coordinates();
    let began = b.hand.now;
    assert_eq!(unanswered(&b), [], "it may agree yet");
    b.pass(20_000);
    assert_eq!(unanswered(&b), [(id("a").name, b.hand.now - began)], "in no round since then");
    // Who is away is told as such.
    b.handle(Input::LinkDown { link: LINK });
    b.pass(5_000);
    assert_eq!(unanswered(&b), []);
    b.handle(Input::LinkUp { link: LINK, peer: id("a") });
    let (member, config) = (member("a", 1), b.hand.engine.group().cloned());
    b.hear(PeerMessage::Group(GroupHello { member: member.clone(), config, implied: Vec::new() }));
    assert_eq!(unanswered(&b), [], "from the next round on");
    b.proposed.clear();
    b.coordinates();
    b.pass(8_000);
    assert_eq!(unanswered(&b).len(), 1);
    b.proposed.clear();
    let round = b.coordinates().round;
    b.hear(PeerMessage::Agree { round, member });
    assert_eq!(unanswered(&b), []);
}

#[test]
fn only_the_member_that_was_asked_can_agree() {
    let mut b = with_tombstone();
    let own = b.coordinates();
    // Another data directory under the same name is another member.
    b.hear(PeerMessage::Agree { round: own.round, member: member("a", 2) });
    assert!(b.persisting.is_empty());
}

#[test]
fn a_coordinator_checks_itself_before_it_decides() {
    let mut b = with_tombstone();
    let own = b.coordinates();
    // Something is deleted at a node that has not heard of this purge, with a tock below it.
    let mut c = Hand::new(Config::new(id("c"), 1));
    c.input(Input::Found);
    c.input(Input::LinkUp { link: LINK, peer: id("b") });
    for value in [Some(&[1][..]), None] {
        for output in c.write("late", value).0 {
            if let Output::Broadcast { frame } = output {
                let came = b.hand.hear_frame(LINK.0, &frame);
                b.note(&came);
            }
        }
    }
    assert_eq!(b.hand.engine.tree().tombstone_len(), 2);
    b.hear(PeerMessage::Agree { round: own.round, member: member("a", 1) });
    assert!(b.persisting.is_empty(), "a tombstone that is not in V");
    assert_eq!(b.hand.engine.tree().tombstone_len(), 2);
}

#[test]
fn a_restart_carries_out_what_was_decided_and_safe() {
    let mut b = with_tombstone();
    let own = b.coordinates();
    b.hear(PeerMessage::Agree { round: own.round, member: member("a", 1) });
    assert_eq!(b.persisting.len(), 1);
    let image = b.hand.engine.image();
    assert_eq!(image.replica.mark, Mark::default());
    let again = NodeId { incarnation: Incarnation(2), ..id("b") };
    let restored = Engine::restore(Config::new(again, 1), &image, &mut Outbox::new()).unwrap();
    let reached = restored.mark().component(&lineage());
    assert_eq!(
        (reached.tock(), reached.ids().collect::<Vec<_>>()),
        (own.pair.to, vec![own.pair.id.unwrap()])
    );
    assert_eq!(restored.tree().tombstone_len(), 0);
}

#[test]
fn a_node_that_renews_itself_is_another_member() {
    let mut b = with_tombstone();
    let proposal = b.proposal(3, 1, 2);
    b.hear(PeerMessage::Propose(proposal));
    let incarnation = Incarnation(99);
    b.handle(Input::Renewed { incarnation });
    assert_eq!(b.hand.engine.store(), Some(store_after_renewal(incarnation)));
    b.persisted();
    assert_eq!(b.said(), [""; 0], "the member that was asked is somebody else");
}

#[test]
fn a_round_of_the_life_before_keeps_nobody_from_agreeing() {
    let mut b = with_tombstone();
    b.coordinates();
    b.handle(Input::Renewed { incarnation: Incarnation(99) });
    b.said();
    let proposal = b.proposal(3, 1, 2);
    b.hear(PeerMessage::Propose(proposal));
    b.persisted();
    assert_eq!(b.said(), ["agree"]);
}

#[test]
fn who_has_not_applied_the_purge_that_a_list_came_with_decides_nothing() {
    let mut b = with_tombstone();
    let since = Component::new(
        Tock::new(9).unwrap(),
        RoundId { coordinator: id("a"), number: 8, version: 3 }.purge_id(),
    );
    let config = GroupConfig::new(4, lineage(), vec![member("b", STORE)]).unwrap();
    let config = Some(config.from_purge_on(since));
    b.hear(PeerMessage::Group(GroupHello { member: member("a", 1), config, implied: Vec::new() }));
    let proposal = b.proposal(4, 1, 2);
    b.hear(PeerMessage::Propose(proposal));
    assert_eq!(b.said(), ["disagree"]);
    b.pass(30_000);
    assert_eq!((b.hand.engine.tree().tombstone_len(), b.hand.engine.mark().is_empty()), (1, true));
    assert_eq!(b.said(), [""; 0]);
    // Whoever made it is gone for good: the list goes on in a lineage of its own.
    b.handle(Input::LinkDown { link: LINK });
    b.pass(DeleteSettings::default().takeover_after_ms + 30_000);
    b.persisted();
    assert_eq!(b.hand.engine.tree().tombstone_len(), 0);
}

/// As above, but a node is here that has applied that purge.
#[test]
fn a_list_whose_purge_somebody_here_has_applied_is_not_made_anew() {
    let mut b = with_tombstone();
    let patience = DeleteSettings { takeover_after_ms: 10_000, ..DeleteSettings::default() };
    b.hand.engine.set_delete_patience(&patience);
    let reached = Tock::new(9).unwrap();
    let config = GroupConfig::new(4, lineage(), vec![member("b", STORE)]).unwrap();
    let config = Some(config.from_purge_on(Component::new(reached, None)));
    b.hear(PeerMessage::Group(GroupHello { member: member("a", 1), config, implied: Vec::new() }));
    b.hear(PeerMessage::Digest(digest(Vec::new(), Mark::from_components([(lineage(), reached)]))));
    b.pass(30_000);
    assert_eq!(b.hand.engine.group().unwrap().lineage, lineage());
    b.handle(Input::LinkDown { link: LINK });
    b.pass(11_000);
    assert_ne!(b.hand.engine.group().unwrap().lineage, lineage(), "nobody is here now");
}

#[test]
fn a_peer_speaks_for_itself_only() {
    let mut b = Alone::new(3_000);
    let hello =
        |name: &str| GroupHello { member: member(name, 3), config: None, implied: Vec::new() };
    b.hear(PeerMessage::Group(hello("z")));
    assert_eq!(b.hand.engine.group_view(b.hand.now).left_out, []);
    b.hear(PeerMessage::Group(hello("a")));
    assert_eq!(b.hand.engine.group_view(b.hand.now).left_out.len(), 1, "with another directory");
}

#[test]
fn what_may_be_left_out_of_marks_is_noted_for_the_log() {
    let mut b = Alone::new(3_000);
    let implied = vec![Implied {
        lineage: Lineage(None),
        component: Component::new(Tock::new(1).unwrap(), None),
        by: lineage(),
        at: Component::new(Tock::new(2).unwrap(), None),
    }];
    let hello = GroupHello { member: member("a", 1), config: None, implied };
    for is_news in [true, false] {
        let messages = vec![PeerMessage::Group(hello.clone())];
        let mut out = Outbox::new();
        b.hand.engine.handle(Input::Messages { link: LINK, messages }, b.hand.now, &mut out);
        assert_eq!(out.drain().any(|output| matches!(output, Output::Knowledge)), is_news);
    }
}

#[test]
fn only_the_end_of_its_own_link_ends_a_proposal_and_an_agreement() {
    let other = LinkId(2);
    for ended in [LINK, other] {
        let mut b = with_tombstone();
        b.handle(Input::LinkUp { link: other, peer: id("x") });
        let mut proposal = b.proposal(3, 1, 2);
        b.hear(PeerMessage::Propose(proposal.clone()));
        b.handle(Input::LinkDown { link: ended });
        b.persisted();
        let expected = if ended == other { vec!["agree"] } else { vec![] };
        assert_eq!(b.said(), expected);

        let mut b = with_tombstone();
        b.handle(Input::LinkUp { link: other, peer: id("x") });
        proposal.pair.seen.push((id("c"), TickSet::range(1, 2).unwrap()));
        b.hear(PeerMessage::Propose(proposal));
        b.handle(Input::LinkDown { link: ended });
        let c = b.hand.engine.replica.intern(&id("c")).unwrap();
        b.hand.engine.replica.account_for(Event { node: c, tick: Tick::new(1).unwrap() });
        b.pass(TICK_INTERVAL_MS);
        assert_eq!(b.persisting.len(), expected.len());
    }
}

#[test]
fn a_restart_carries_out_a_change_of_the_list_that_was_decided() {
    let mut b = Alone::new(3_000);
    let other = LinkId(2);
    b.handle(Input::LinkUp { link: other, peer: id("c") });
    let hello = GroupHello { member: member("c", 3), config: None, implied: Vec::new() };
    let digest = digest(Vec::new(), Mark::default());
    let messages = vec![PeerMessage::Group(hello), PeerMessage::Digest(digest)];
    b.handle(Input::Messages { link: other, messages });
    let own = b.coordinates();
    assert_eq!(own.next.as_ref().map(|next| next.members().len()), Some(3));
    for member in [member("a", 1), member("c", 3)] {
        b.hear(PeerMessage::Agree { round: own.round.clone(), member });
    }
    assert_eq!(b.persisting.len(), 1);
    let image = b.hand.engine.image();
    let again = NodeId { incarnation: Incarnation(2), ..id("b") };
    let restored = Engine::restore(Config::new(again, 1), &image, &mut Outbox::new()).unwrap();
    assert_eq!(restored.group(), own.next.as_ref());
}

#[test]
fn who_is_taken_off_the_list_coordinates_no_more() {
    let mut b = with_tombstone();
    b.coordinates();
    assert!(b.hand.engine.is_elected_coordinator());
    let config = GroupConfig::new(4, lineage(), vec![member("a", 1)]);
    b.said();
    b.hear(PeerMessage::Group(GroupHello { member: member("a", 1), config, implied: Vec::new() }));
    b.pass(20_000);
    assert_eq!(b.said(), [""; 0]);
}

#[test]
fn who_leaves_for_good_waits_until_all_who_are_here_have_confirmed_it() {
    let mut b = Alone::new(3_000);
    let other = LinkId(2);
    b.handle(Input::LinkUp { link: other, peer: id("c") });
    let says = |b: &mut Alone, link, name: &str, store, config| {
        let hello = GroupHello { member: member(name, store), config, implied: Vec::new() };
        let messages = vec![PeerMessage::Group(hello)];
        b.handle(Input::Messages { link, messages });
    };
    let all = [member("a", 1), member("b", STORE), member("c", 3)];
    says(&mut b, other, "c", 3, GroupConfig::new(4, lineage(), all.to_vec()));
    b.hand.engine.begin_retirement(&mut Outbox::new()).unwrap();
    let own = b.coordinates();
    for member in [member("a", 1), member("c", 3)] {
        b.hear(PeerMessage::Agree { round: own.round.clone(), member });
    }
    b.persisted();
    let spreading = |unconfirmed: &[&str]| {
        let unconfirmed = unconfirmed.iter().map(|name| id(name).name).collect();
        Some(Retirement::Spreading { unconfirmed, unshared: 0 })
    };
    let list = b.hand.engine.group().cloned();
    assert_eq!(b.hand.engine.retirement(), spreading(&["a", "c"]));
    says(&mut b, LINK, "a", 1, list.clone());
    assert_eq!(b.hand.engine.retirement(), spreading(&["c"]));
    says(&mut b, other, "c", 3, list);
    assert_eq!(b.hand.engine.retirement(), Some(Retirement::Done));
}

#[test]
fn who_has_left_for_good_agrees_to_lists_without_it_only() {
    let mut b = with_tombstone();
    b.hand.engine.begin_retirement(&mut Outbox::new()).unwrap();
    let own = b.coordinates();
    b.hear(PeerMessage::Agree { round: own.round, member: member("a", 1) });
    b.persisted();
    let list = b.hand.engine.group().unwrap().clone();
    assert_eq!(list.members(), [member("a", 1)]);
    b.said();
    let from = b.hand.engine.mark().component(&lineage());
    for (other, answer) in [(member("b", STORE), "disagree"), (member("c", 3), "agree")] {
        let mut proposal = b.proposal(list.version, 7, own.pair.to.get() + 1);
        proposal.pair.from = from.clone();
        proposal.next = GroupConfig::new(list.version + 1, lineage(), vec![member("a", 1), other]);
        b.hear(PeerMessage::Propose(proposal));
        b.persisted();
        assert_eq!(b.said(), [answer]);
    }
}

#[test]
fn a_purge_replaces_all_that_the_mark_names() {
    let mut b = with_tombstone();
    let lineages = MARK_COMPONENTS_WARN as u64 + 1;
    let many = (0..lineages).map(|n| {
        let maker = NodeId { incarnation: Incarnation(n + 1), ..id("x") };
        // Above what is deleted here.
        (Lineage(Some((maker, Tick::new(1).unwrap()))), Tock::new(1 << 40).unwrap())
    });
    b.hand.engine.replica.raise_mark_early(&Mark::from_components(many));
    assert!(b.hand.engine.group_view(b.hand.now).lineages > MARK_COMPONENTS_WARN);
    let own = b.coordinates();
    assert_eq!((own.pair.base.len(), own.pair.to.get()), (lineages as usize, (1 << 40) + 1));
    b.hear(PeerMessage::Agree { round: own.round, member: member("a", 1) });
    b.persisted();
    assert_eq!(b.hand.engine.mark().len(), 1);
}
