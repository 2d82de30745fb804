//! What one member makes of single pings: whose silence counts, what it passes on, and when it speaks
//! out of turn.

use super::super::*;
use super::names;
use super::single::{
    CONFIG, GROUP, TAGGED, UNTAGGED, actor, changed, claim, hear, name, recover, run, tick,
};
use crate::model::ping::Meeting;

/// What `a` claims as turn 14 of the list a, b, c and x, in which x never has a turn. After each turn x
/// sends what `says` gives for it.
fn turn_14(value: Option<u64>, says: impl Fn(u64, &str) -> Option<Ping>) -> ActorOutput {
    let mut a = actor("a");
    a.set_ready(value.is_some());
    let (mut now, mut last) = (1_000, None);
    let histories = ["b a c x", "c b a x", "a c b x", "b a c x", "c b a x", "a c b x"];
    for (turn, history) in (9..).zip(histories) {
        if history.starts_with('a') {
            now = a.next_deadline().unwrap();
            let mut sent = tick(&mut a, now).into_iter();
            last = sent.rfind(|output| matches!(output, ActorOutput::Send(_)));
            assert_eq!(a.turn(), turn);
        } else {
            now += 1_000;
            hear(&mut a, &claim(turn, value, history), now);
        }
        if let Some(ping) = says(turn, history) {
            hear(&mut a, &ping, now + 10);
            // It may answer that.
            run(&mut a, now + 500);
        }
    }
    last.expect("it is a's turn")
}

#[test]
fn who_lets_turns_pass_comes_off_the_list_though_it_is_heard_and_though_nobody_is_ready() {
    let without = |value| ActorOutput::Send(claim(14, value, "a c b"));
    assert_eq!(turn_14(Some(5), |_, _| None), without(Some(5)));
    assert_eq!(turn_14(None, |_, _| None), without(None));
    // What x passes on is no claim of its own.
    let greets =
        |turn, history: &str| Some(Ping { sender: name("x"), ..claim(turn, Some(5), history) });
    assert_eq!(turn_14(Some(5), greets), without(Some(5)));
}

#[test]
fn who_claims_turns_and_loses_stays_on_the_list() {
    let loses = |turn, _: &str| Some(claim(turn, Some(1), "x a b c"));
    assert_eq!(turn_14(Some(5), loses), ActorOutput::Send(claim(14, Some(5), "a c b x")));
}

#[test]
fn a_lesser_claim_is_contested_with_who_makes_it_and_not_with_who_passes_it_on() {
    for (sender, answers) in [("c", 1), ("e", 0)] {
        let mut d = actor("d");
        hear(&mut d, &claim(9, Some(5), "a b c d"), 1_000);
        tick(&mut d, 2_000);
        hear(&mut d, &Ping { sender: name(sender), ..claim(10, Some(5), "c a b d") }, 2_010);
        let sent = run(&mut d, 2_500).into_iter();
        assert_eq!(sent.filter(|(_, o)| matches!(o, ActorOutput::Send(_))).count(), answers);
    }
}

#[test]
fn an_older_configuration_is_answered_unless_somebody_else_does_it_first() {
    let newer = ConfigVersion { version: 1, cycle_ms: 2_000, ..CONFIG };
    let ping = |config| Ping { config, ..claim(5, Some(5), "a b") };
    for told in [false, true] {
        let mut b = actor("b");
        hear(&mut b, &ping(newer), 1_000);
        // The same claim, so the configuration alone calls for an answer.
        assert_eq!(hear(&mut b, &ping(CONFIG), 1_100), []);
        if told {
            hear(&mut b, &ping(newer), 1_101);
        }
        let sent = run(&mut b, 2_000);
        assert_eq!(sent.len(), usize::from(!told), "{sent:?}");
        assert!(sent.iter().all(|(_, o)| matches!(o, ActorOutput::Send(p) if p.config == newer)));
    }
}

#[test]
fn a_meeting_is_told_unless_another_ping_has_told_it() {
    for told in [false, true] {
        let mut b = actor("b");
        hear(&mut b, &claim(90, Some(5), "a b c"), 1_000);
        hear(&mut b, &claim(40, Some(9), "x y z"), 1_500);
        let meetings = if told { b.greeting().meetings } else { Vec::new() };
        let joint = Ping { meetings, ..claim(91, Some(5), "a x b y") };
        assert_eq!(hear(&mut b, &joint, 1_501), []);
        let sent = run(&mut b, 1_800);
        assert_eq!(sent.len(), usize::from(!told), "{sent:?}");
        assert!(
            sent.iter().all(|(_, o)| matches!(o, ActorOutput::Send(p) if p.meetings.len() == 1))
        );
    }
}

#[test]
fn who_meets_another_history_passes_on_what_that_one_had_met() {
    let mut b = actor("b");
    hear(&mut b, &claim(90, Some(5), "a b c"), 1_000);
    let before = Meeting { turn: 40, sides: [names("x y z"), names("p q")] };
    hear(&mut b, &Ping { meetings: vec![before], ..claim(40, Some(9), "x y z") }, 1_500);
    let told = [
        Meeting { turn: 91, sides: [names("x y z"), names("p q")] },
        Meeting { turn: 91, sides: [names("a b c"), names("x y z")] },
    ];
    assert_eq!(b.greeting().meetings, told);
}

#[test]
fn of_reported_meetings_one_may_make_another_clear_that_was_named_before_it() {
    let met = |left, right| Meeting { turn: 91, sides: [names(left), names(right)] };
    let meetings = vec![met("x y", "p q"), met("a b c", "x y")];
    let merged = Ping { meetings, ..claim(91, Some(5), "a x b y") };
    let mut c = actor("c");
    hear(&mut c, &claim(89, Some(5), "b c a"), 1_000);
    let expected =
        [recover(Some(2), "a b c", "x y"), recover(None, "x y", "p q"), changed("a x b y")];
    assert_eq!(hear(&mut c, &merged, 1_500), expected);
}

#[test]
fn who_has_only_started_has_nothing_to_recover_of_a_reported_meeting() {
    let told = Meeting { turn: 6, sides: [names("a b c"), names("x y")] };
    let merged = Ping { meetings: vec![told], ..claim(6, Some(5), "a b c x") };
    let mut c = actor("c");
    hear(&mut c, &claim(5, Some(5), "b c a"), 1_000);
    assert_eq!(hear(&mut c, &merged, 1_500), [changed("a b c x")]);
}

#[test]
fn who_stood_still_for_longer_than_a_cycle_listens_before_it_claims_a_turn() {
    for (now, is_late) in [(3_000, false), (3_001, true)] {
        let mut b = actor("b");
        hear(&mut b, &claim(9, Some(5), "a d c b"), 1_000);
        assert_eq!(b.next_deadline(), Some(2_000));
        let sent = ActorOutput::Send(claim(10, Some(5), "b a d c"));
        let expected = if is_late { Vec::new() } else { vec![sent] };
        assert_eq!(tick(&mut b, now), expected);
        if is_late {
            assert_eq!(b.next_deadline(), Some(now + 1_000));
        }
    }
}

#[test]
fn who_becomes_ready_while_it_listens_waits_from_its_start() {
    for seed in 0..20 {
        let config = ActorConfig { group: GROUP, shared: CONFIG };
        let mut a = Actor::new(config, name("a"), Role::Active, seed);
        tick(&mut a, 0);
        a.set_ready(true);
        tick(&mut a, 900);
        let claims = a.next_deadline().unwrap();
        assert!((1_000..2_000).contains(&claims), "{claims} with seed {seed}");
    }
}

#[test]
fn who_becomes_ready_when_the_turn_is_long_overdue_claims_it_at_once() {
    let mut b = actor("b");
    b.set_ready(false);
    hear(&mut b, &claim(9, Some(5), "a"), 1_000);
    assert!(b.next_deadline().unwrap() > 4_500);
    b.set_ready(true);
    let expected = [ActorOutput::Send(claim(10, Some(5), "b a")), changed("b a")];
    assert_eq!(tick(&mut b, 4_500), expected);
}

#[test]
fn one_that_is_not_ready_and_alone_keeps_the_tag() {
    let mut a = actor("a");
    a.set_ready(false);
    tick(&mut a, 0);
    let outputs = run(&mut a, 60_000).into_iter().map(|(_, output)| output);
    let tags: Vec<_> = outputs.filter(|o| [TAGGED, UNTAGGED].contains(o)).collect();
    assert_eq!(tags, [TAGGED]);
}

#[test]
fn who_becomes_passive_loses_the_tag_at_once() {
    let mut d = actor("d");
    hear(&mut d, &claim(9, Some(5), "a b c d"), 1_000);
    tick(&mut d, 2_000);
    assert_eq!(tick(&mut d, 2_200), [TAGGED]);
    d.set_role(Role::Passive);
    assert_eq!(tick(&mut d, 2_250), [UNTAGGED]);
}

#[test]
fn a_list_of_as_many_others_is_another_list() {
    let mut b = actor("b");
    assert_eq!(hear(&mut b, &claim(9, Some(5), "a b c"), 1_000), [changed("a b c")]);
    assert_eq!(hear(&mut b, &claim(10, Some(5), "x a b"), 2_000), [changed("x a b")]);
    assert_eq!(hear(&mut b, &claim(11, Some(5), "a b x"), 3_000), [], "in another order only");
}
