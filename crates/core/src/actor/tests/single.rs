//! One actor, driven by hand: whole outputs compared.

use super::super::*;
use super::{names, text};
use crate::model::ping::Meeting;

pub(super) const CONFIG: ConfigVersion = ConfigVersion::DEFAULT;
pub(super) const GROUP: GroupId = GroupId(3);

pub(super) fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

pub(super) fn actor(me: &str) -> Actor {
    let mut actor =
        Actor::new(ActorConfig { group: GROUP, shared: CONFIG }, name(me), Role::Active, 1);
    actor.set_ready(true);
    actor.set_value(5);
    actor
}

/// A claim by the first of the history.
pub(super) fn claim(turn: u64, value: Option<u64>, history: &str) -> Ping {
    let history = names(history);
    Ping {
        group: GROUP,
        sender: history[0].clone(),
        turn,
        value,
        history,
        meetings: Vec::new(),
        config: CONFIG,
    }
}

fn list(actor: &Actor) -> String {
    text(actor.list().cloned())
}

pub(super) fn hear(actor: &mut Actor, ping: &Ping, now: Millis) -> Vec<ActorOutput> {
    let mut out = Vec::new();
    actor.on_ping(ping, now, &mut out);
    out
}

pub(super) fn tick(actor: &mut Actor, now: Millis) -> Vec<ActorOutput> {
    let mut out = Vec::new();
    actor.on_tick(now, &mut out);
    out
}

/// Ticks at deadlines until then.
pub(super) fn run(actor: &mut Actor, until: Millis) -> Vec<(Millis, ActorOutput)> {
    let mut found = Vec::new();
    while let Some(now) = actor.next_deadline().filter(|at| *at < until) {
        found.extend(tick(actor, now).into_iter().map(|output| (now, output)));
    }
    found
}

pub(super) fn changed(text: &str) -> ActorOutput {
    ActorOutput::Event(ActorEvent::ListChanged(names(text)))
}

pub(super) fn recover(priority: Option<usize>, ours: &str, theirs: &str) -> ActorOutput {
    let (ours, theirs) = (names(ours), names(theirs));
    ActorOutput::Event(ActorEvent::Recover { priority, ours, theirs })
}

pub(super) const TAGGED: ActorOutput = ActorOutput::Event(ActorEvent::Tagged);
pub(super) const UNTAGGED: ActorOutput = ActorOutput::Event(ActorEvent::Untagged);

#[test]
fn one_that_hears_nobody_claims_a_turn_per_cycle_and_keeps_the_tag() {
    let mut a = actor("a");
    assert_eq!(a.next_deadline(), None);
    assert_eq!(tick(&mut a, 10_000), []);
    let start = a.next_deadline().unwrap();
    assert!((11_000..12_000).contains(&start));
    let ping = |turn| ActorOutput::Send(claim(turn, Some(5), "a"));
    let expected = [
        (start, ping(1)),
        (start, changed("a")),
        (start + 200, TAGGED),
        (start + 1_400, ping(2)),
        (start + 2_800, ping(3)),
    ];
    assert_eq!(run(&mut a, start + 3_000), expected);
}

#[test]
fn a_member_takes_its_turn_after_the_cycle_and_the_next_one_after_a_gap() {
    let mut b = actor("b");
    assert_eq!(hear(&mut b, &claim(9, Some(5), "a d c b"), 1_000), [changed("a d c b")]);
    assert_eq!(b.next_deadline(), Some(2_000));
    let mut c = actor("c");
    hear(&mut c, &claim(9, Some(5), "a d c b"), 1_000);
    assert_eq!(c.next_deadline(), Some(2_200));
    assert_eq!(tick(&mut b, 2_000), [ActorOutput::Send(claim(10, Some(5), "b a d c"))]);
    assert_eq!(hear(&mut c, &claim(10, Some(5), "b a d c"), 2_010), []);
    assert_eq!(c.next_deadline(), Some(3_010));
    assert_eq!(tick(&mut b, 2_200), [TAGGED]);
    assert_eq!(hear(&mut b, &claim(11, Some(0), "c b a d"), 3_000), [UNTAGGED]);
}

#[test]
fn a_collision_ends_alike_in_whichever_order_it_is_heard() {
    let before = claim(9, Some(5), "a b c d");
    let rivals =
        [claim(10, Some(7), "b a d c"), claim(10, Some(5), "d a b c"), claim(10, None, "x a b c")];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let mut seer = actor("seer");
        hear(&mut seer, &before, 1_000);
        for at in order {
            hear(&mut seer, &rivals[at], 2_000);
        }
        assert_eq!(list(&seer), "b a d c", "the greater value, in order {order:?}");
    }
    // Of equal value: the greater name. The loser learns it, and the winner says so again.
    let mut d = actor("d");
    hear(&mut d, &before, 1_000);
    tick(&mut d, 2_000);
    assert_eq!(hear(&mut d, &claim(10, Some(5), "c a b d"), 2_010), []);
    assert_eq!(list(&d), "d a b c");
    assert_eq!(
        run(&mut d, 2_500),
        [(2_200, TAGGED), (2_200, ActorOutput::Send(claim(10, Some(5), "d a b c")))]
    );
    let mut c = actor("c");
    hear(&mut c, &before, 1_000);
    tick(&mut c, 2_200);
    hear(&mut c, &claim(10, Some(5), "d a b c"), 2_210);
    assert_eq!(list(&c), "d a b c");
    assert_eq!(run(&mut c, 3_000), [], "it never held the tag");
}

#[test]
fn pings_that_come_twice_or_late_change_nothing() {
    let mut b = actor("b");
    let turns = [claim(9, Some(5), "a d c b"), claim(10, Some(5), "c a d b")];
    hear(&mut b, &turns[0], 1_000);
    hear(&mut b, &turns[1], 2_000);
    let deadline = b.next_deadline();
    for ping in turns.iter().chain([&claim(7, Some(9), "z a d c")]) {
        assert_eq!(hear(&mut b, ping, 2_500), []);
    }
    assert_eq!(list(&b), "c a d b");
    assert_eq!(b.next_deadline(), deadline);
}

#[test]
fn histories_that_share_nothing_are_recovered_once() {
    let mut b = actor("b");
    hear(&mut b, &claim(90, Some(5), "a b c"), 1_000);
    let other = claim(40, Some(9), "x y z");
    assert_eq!(
        hear(&mut b, &other, 1_500),
        [recover(Some(1), "a b c", "x y z"), changed("a x b y")]
    );
    assert_eq!(b.turn(), 91);
    // Others of that side, who do not know of it yet.
    assert_eq!(hear(&mut b, &other, 1_510), []);
    assert_eq!(hear(&mut b, &claim(41, Some(9), "z w y"), 1_520), []);
    assert_eq!(list(&b), "a x b y");
    // Those of both sides come to the same list.
    let mut y = actor("y");
    hear(&mut y, &other, 1_000);
    let outputs = hear(&mut y, &claim(90, Some(5), "a b c"), 1_510);
    assert_eq!(outputs, [recover(Some(1), "x y z", "a b c"), changed("a x b y")]);
    assert_eq!(y.greeting().history, b.greeting().history);
    assert_eq!(y.turn(), 91);
    let told = [Meeting { turn: 91, sides: [names("a b c"), names("x y z")] }];
    assert_eq!(b.greeting().meetings, told);
}

#[test]
fn who_hears_only_of_a_meeting_recovers_too() {
    let told = Meeting { turn: 91, sides: [names("x y z"), names("a b c")] };
    let merged = Ping { meetings: vec![told], ..claim(91, Some(5), "a x b y") };
    let mut c = actor("c");
    hear(&mut c, &claim(89, Some(5), "b c a"), 1_000);
    let outputs = hear(&mut c, &merged, 1_500);
    assert_eq!(outputs, [recover(Some(2), "a b c", "x y z"), changed("a x b y")]);
    assert_eq!(hear(&mut c, &claim(40, Some(9), "z y x"), 1_500), [], "met already");
    assert_eq!(hear(&mut c, &merged, 1_600), []);
    let mut late = actor("late");
    assert_eq!(hear(&mut late, &merged, 1_600), [changed("a x b y")], "it has nothing to recover");
}

#[test]
fn a_member_that_only_started_is_no_healed_split() {
    let mut b = actor("b");
    hear(&mut b, &claim(90, Some(5), "a b"), 1_000);
    for stranger in [
        claim(1, Some(9), "x"),
        claim(7, Some(9), "x y"),
        claim(500, None, "x y z"), // waits for somebody who is ready
        Ping { turn: 0, value: None, history: Vec::new(), ..claim(1, None, "x") },
    ] {
        assert_eq!(hear(&mut b, &stranger, 1_500), []);
        assert_eq!(list(&b), "a b");
    }
    assert_eq!(hear(&mut b, &claim(8, Some(9), "x"), 1_500)[0], recover(Some(1), "a b", "x"));
    let mut young = actor("young");
    tick(&mut young, 0);
    let claimed = young.next_deadline().unwrap();
    tick(&mut young, claimed);
    let joined = hear(&mut young, &claim(90, Some(5), "a b"), claimed + 500);
    assert_eq!(joined, [changed("a b")], "not tagged yet, so not untagged");
}

#[test]
fn a_member_that_is_gone_is_met_again_by_a_history_that_it_comes_back_with() {
    let mut a = actor("a");
    hear(&mut a, &claim(90, Some(5), "b a"), 1_000);
    a.on_member_down(&name("b"));
    assert_eq!(tick(&mut a, 1_100), [changed("a")]);
    assert_eq!(a.next_deadline(), Some(1_500), "its turn is over");
    assert_eq!(tick(&mut a, 1_500), [ActorOutput::Send(claim(91, Some(5), "a"))]);
    let first = hear(&mut a, &claim(93, Some(5), "b"), 9_000);
    assert_eq!(first, [recover(Some(0), "a", "b"), changed("b a")]);
    a.on_member_down(&name("b"));
    tick(&mut a, 9_100);
    let second = hear(&mut a, &claim(96, Some(5), "b"), 12_000);
    assert_eq!(second, [changed("a"), recover(Some(0), "a", "b"), changed("b a")][1..]);
}

#[test]
fn who_is_ready_no_longer_lets_the_next_one_go_on() {
    let mut d = actor("d");
    hear(&mut d, &claim(9, Some(5), "a b c d"), 1_000);
    tick(&mut d, 2_000);
    tick(&mut d, 2_200);
    assert!(d.is_tagged());
    d.set_ready(false);
    assert_eq!(tick(&mut d, 2_250), [UNTAGGED]);
    assert!(d.next_deadline().unwrap() > 2_000 + 4 * 1_000);
    d.set_ready(true);
    tick(&mut d, 2_300);
    assert!(!d.is_tagged());
    assert_eq!(d.next_deadline(), Some(3_600), "it follows all others now");
}

#[test]
fn settings_of_others_are_taken_if_they_are_greater_and_in_range() {
    let mut b = actor("b");
    let newer = ConfigVersion { version: 1, cycle_ms: 2_000, ..CONFIG };
    let ping = |turn, config| Ping { config, ..claim(turn, Some(5), "a b") };
    let outputs = hear(&mut b, &ping(5, newer), 1_000);
    assert_eq!(outputs, [ActorOutput::Event(ActorEvent::ConfigChanged(newer)), changed("a b")]);
    for refused in [
        ConfigVersion { version: 2, cycle_ms: 0, ..CONFIG },
        ConfigVersion { version: 2, gap_ms: Millis::MAX, ..CONFIG },
        ConfigVersion { version: u64::MAX, list_len: 0, ..CONFIG },
        ConfigVersion { version: u64::MAX, list_len: usize::MAX, ..CONFIG },
    ] {
        assert_eq!(hear(&mut b, &ping(6, refused), 1_100), []);
        assert!(b.adopt_config(refused).is_err());
        assert_eq!(*b.config(), newer);
    }
    assert_eq!(b.turn(), 6, "the rest of such a ping counts");
    assert_eq!(hear(&mut b, &ping(7, CONFIG), 1_200), []);
    let told = run(&mut b, 2_000);
    assert!(matches!(&told[..], [(_, ActorOutput::Send(ping))] if ping.config == newer));
}

#[test]
fn pings_of_other_groups_and_under_the_own_name_are_ignored() {
    let mut b = actor("b");
    let other = Ping { group: GroupId(4), ..claim(9, Some(5), "a b") };
    assert_eq!(hear(&mut b, &other, 1_000), []);
    assert_eq!(hear(&mut b, &claim(9, Some(5), "b a"), 1_000), []);
    assert_eq!(b.turn(), 0);
}

#[test]
fn a_passive_member_greets_with_what_it_knows_and_forgets_what_is_long_over() {
    let mut p = actor("p");
    p.set_role(Role::Passive);
    assert_eq!(tick(&mut p, 0), []);
    assert_eq!(p.greeting().history, []);
    hear(&mut p, &claim(9, Some(5), "a b c"), 1_000);
    let greeting = p.greeting();
    assert_eq!(greeting, Ping { sender: name("p"), ..claim(9, Some(5), "a b c") });
    let outputs = run(&mut p, 60_000);
    assert_eq!(outputs[0], (1_000 + 8 * 2_200, changed("")));
    assert_eq!(outputs.len(), 1);
    assert_eq!(p.turn(), 0);
}
