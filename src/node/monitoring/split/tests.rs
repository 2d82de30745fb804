//! Who is told of as silent, since when, and when that is over.

use super::*;
use Presence::{Doubtful, Here, Left, Silent};

const FORGET_MS: Millis = 600_000;

fn members(list: &[(&str, Presence)]) -> BTreeMap<NodeName, Presence> {
    list.iter().map(|(name, is)| (NodeName::new(name).unwrap(), *is)).collect()
}

fn look(watch: &mut SplitWatch, list: &[(&str, Presence)], known: u64, now: Millis) -> Vec<News> {
    let network = Network { present: members(list), known, ..Network::default() };
    watch.look(&network, FORGET_MS, now)
}

#[test]
fn who_is_taken_off_the_delete_group_is_forgotten() {
    let mut watch = SplitWatch::default();
    let listed = |name: &str| BTreeSet::from([NodeName::new(name).unwrap()]);
    let present = members(&[("b", Here), ("c", Here)]);
    let linked = members(&[("b", Here), ("c", Here)]).into_keys().collect();
    let mut network =
        Network { present, known: 1, listed: listed("b"), linked, ..Network::default() };
    watch.look(&network, FORGET_MS, 0);
    // While it is linked, another one has just taken its place.
    network.listed = listed("c");
    watch.look(&network, FORGET_MS, 1_000);
    network.listed = listed("b");
    watch.look(&network, FORGET_MS, 1_500);
    network.linked = BTreeSet::new();
    network.present = members(&[("b", Silent), ("c", Silent)]);
    assert_eq!(watch.look(&network, FORGET_MS, 2_000).len(), 1);
    network.listed = listed("d");
    assert_eq!(watch.look(&network, FORGET_MS, 3_000), []);
    let told = watch.silent(3_000).unwrap();
    assert_eq!(told.together[0].names, ["c"]);
}

#[test]
fn who_an_operator_gives_up_is_not_missed_from_that_moment_on_whether_it_was_listed_or_not() {
    let name = |text: &str| NodeName::new(text).unwrap();
    let mut watch = SplitWatch::default();
    watch.expect(Unseen::new(BTreeSet::from([name("d")]), 0, 0));
    look(&mut watch, &[("b", Here), ("c", Here), ("e", Here)], 1, 0);
    let without_b = [("b", Silent), ("c", Here), ("e", Here)];
    assert_eq!(look(&mut watch, &without_b, 1, 1_000).len(), 1);
    watch.give_up(&name("b"));
    watch.give_up(&name("d"));
    // Membership does not know yet that it is gone.
    watch.give_up(&name("c"));
    assert_eq!((watch.silent(1_000), watch.unmet()), (None, BTreeSet::new()));
    assert!(watch.given_up().contains(&name("b")) && watch.given_up().contains(&name("d")));
    assert_eq!(look(&mut watch, &without_b, 1, 1_500), [], "nor is it told of as back");
    let all_gone = [("b", Silent), ("c", Silent), ("e", Here)];
    assert_eq!(look(&mut watch, &all_gone, 1, 5_000), []);
    let given_up = watch.given_up();
    assert_eq!(given_up, ["b", "c", "d"].map(name).into(), "until they are back");
    look(&mut watch, &[("b", Here), ("c", Silent), ("e", Here)], 1, 6_000);
    assert_eq!(watch.given_up(), ["c", "d"].map(name).into());
    assert_eq!(look(&mut watch, &all_gone, 1, 7_000).len(), 1, "then it is missed again");
}

#[test]
fn who_was_forgotten_before_its_silence_is_noticed_is_not_missed() {
    let mut watch = SplitWatch::default();
    let mut network = Network {
        present: members(&[("b", Here), ("c", Here)]),
        listed: BTreeSet::from([NodeName::new("b").unwrap()]),
        ..Network::default()
    };
    watch.look(&network, FORGET_MS, 0);
    network.listed = BTreeSet::new();
    watch.look(&network, FORGET_MS, 1_000);
    network.present = members(&[("b", Doubtful), ("c", Here)]);
    watch.look(&network, FORGET_MS, 2_000);
    network.present = members(&[("b", Silent), ("c", Here)]);
    assert_eq!(watch.look(&network, FORGET_MS, 3_000), []);
    assert_eq!(watch.silent(3_000), None);
    // It comes again, and is missed again.
    network.present = members(&[("b", Here), ("c", Here)]);
    watch.look(&network, FORGET_MS, 4_000);
    network.present = members(&[("b", Silent), ("c", Here)]);
    assert_eq!(watch.look(&network, FORGET_MS, 5_000).len(), 1);
}

fn started_with(list: &[&str]) -> SplitWatch {
    let names = list.iter().map(|name| NodeName::new(name).unwrap()).collect();
    let mut watch = SplitWatch::default();
    watch.expect(Unseen::new(names, 0, 0));
    watch
}

fn missed(watch: &SplitWatch, now: Millis) -> Vec<Vec<String>> {
    let told = watch.silent(now);
    told.into_iter().flat_map(|told| told.together).map(|split| split.names).collect()
}

#[test]
fn who_was_known_before_the_start_is_missed_until_it_is_back_or_has_left() {
    let mut watch = started_with(&["b", "c", "d"]);
    let listed = members(&[("b", Here), ("c", Here), ("d", Here)]).into_keys().collect();
    let mut network = Network { known_at_ready: Some(0), listed, ..Network::default() };
    network.refusing.insert(NodeName::new("c").unwrap(), "no".into());
    assert_eq!(watch.look(&network, FORGET_MS, 9_999), []);
    let news = watch.look(&network, FORGET_MS, 10_000);
    let News::Silent(text) = &news[0] else { panic!("{news:?}") };
    assert!(
        text.starts_with("b, c and d have not been seen since this node started, 10 s ago"),
        "{text}"
    );
    assert!(text.ends_with("; no link to c: no"), "{text}");
    assert_eq!(watch.count(), 1);
    network.present = members(&[("b", Here), ("d", Left)]);
    watch.look(&network, FORGET_MS, 11_000);
    assert_eq!(missed(&watch, 11_000), [["c"]]);
    // One that goes now has not gone at the start.
    network.present = members(&[("b", Silent), ("d", Left)]);
    watch.look(&network, FORGET_MS, 12_000);
    assert_eq!(missed(&watch, 12_000), [["c"], ["b"]]);
    network.present = members(&[("b", Here), ("c", Here)]);
    let news = watch.look(&network, FORGET_MS, 13_000);
    assert!(news.iter().all(|news| matches!(news, News::Back(_))), "{news:?}");
    assert_eq!(watch.silent(13_000), None);
}

#[test]
fn who_has_no_say_is_missed_from_the_start_only_while_nobody_is_here() {
    let mut watch = started_with(&["b", "c"]);
    let mut network = Network { known_at_ready: Some(0), ..Network::default() };
    watch.look(&network, FORGET_MS, 10_000);
    assert_eq!(missed(&watch, 10_000), [["b", "c"]]);
    network.present = members(&[("b", Here)]);
    watch.look(&network, FORGET_MS, 11_000);
    assert_eq!(watch.silent(11_000), None, "b knows whether c has left");
}

#[test]
fn who_is_not_missed_any_more_is_known_as_such_until_it_is_here() {
    let mut watch = started_with(&["b", "c"]);
    let mut network = Network {
        known_at_ready: Some(0),
        listed: BTreeSet::from([NodeName::new("c").unwrap()]),
        ..Network::default()
    };
    watch.look(&network, FORGET_MS, 10_000);
    network.listed = BTreeSet::new();
    watch.look(&network, FORGET_MS, 11_000);
    assert_eq!(missed(&watch, 11_000), [["b"]], "an operator has forgotten c");
    let given_up = |watch: &SplitWatch| -> Vec<String> {
        watch.given_up().iter().map(ToString::to_string).collect()
    };
    assert_eq!(given_up(&watch), ["c"]);
    watch.look(&network, FORGET_MS, MISSED_TOGETHER_MS);
    assert_eq!((watch.silent(MISSED_TOGETHER_MS), given_up(&watch).len()), (None, 2));
    network.present = members(&[("c", Doubtful)]);
    watch.look(&network, FORGET_MS, MISSED_TOGETHER_MS + 1);
    assert_eq!(given_up(&watch), ["b"]);
}

#[test]
fn a_split_is_noticed_told_counted_and_its_end_told() {
    let mut watch = SplitWatch::default();
    assert_eq!(look(&mut watch, &[("b", Here), ("c", Here), ("d", Here)], 10, 0), []);
    assert_eq!(look(&mut watch, &[("b", Here), ("c", Doubtful), ("d", Here)], 11, 1_000), []);
    assert_eq!(watch.silent(1_000), None);
    let news = look(&mut watch, &[("b", Here), ("c", Silent), ("d", Doubtful)], 15, 4_000);
    assert_eq!(news.len(), 1, "{news:?}");
    // The second one of the same split.
    let news = look(&mut watch, &[("b", Here), ("c", Silent), ("d", Silent)], 20, 6_000);
    let News::Silent(text) = &news[0] else { panic!("{news:?}") };
    assert!(text.starts_with("c and d have been silent together for 5 s"), "{text}");
    assert!(text.ends_with("this node goes on with b, 9 changes since"), "{text}");
    assert_eq!(watch.count(), 1);
    assert_eq!(look(&mut watch, &[("b", Here), ("c", Silent), ("d", Silent)], 30, 7_000), []);
    let told = watch.silent(7_000).unwrap();
    assert_eq!((told.together[0].since_ms, told.together[0].changes), (6_000, 19));
    assert_eq!(told.with, ["b"]);
    assert_eq!(look(&mut watch, &[("b", Here), ("c", Here), ("d", Silent)], 31, 8_000), []);
    let news = look(&mut watch, &[("b", Here), ("c", Here), ("d", Here)], 32, 9_000);
    let News::Back(text) = &news[0] else { panic!("{news:?}") };
    assert!(text.starts_with("all 2 members that were silent are back"), "{text}");
    assert!(text.contains("after 8 s; 21 changes"), "{text}");
    assert_eq!(watch.silent(9_000), None);
}

#[test]
fn who_is_the_only_one_left_goes_on_alone_and_says_so_again() {
    let mut watch = SplitWatch::default();
    look(&mut watch, &[("b", Here)], 1, 0);
    let mut said = Vec::new();
    for second in 1..=1_000 {
        // SWIM forgets it at some time.
        let list: &[_] = if second < 300 { &[("b", Silent)] } else { &[] };
        let news = look(&mut watch, list, 1, second * 1_000);
        if let Some(News::Silent(text)) = news.first() {
            assert!(text.contains("this node goes on alone, 0 changes since"), "{text}");
            said.push(second);
        }
    }
    assert_eq!(said, [1], "it is forgotten before it would be said again");
    assert_eq!(watch.silent(1_001_000), None);
}

#[test]
fn who_leaves_is_not_missed_and_several_are_missed_for_long() {
    let mut watch = SplitWatch::default();
    look(&mut watch, &[("b", Here), ("c", Here), ("d", Here)], 1, 0);
    assert_eq!(look(&mut watch, &[("b", Left), ("c", Here), ("d", Here)], 1, 1_000), []);
    assert_eq!(look(&mut watch, &[("c", Silent), ("d", Silent)], 1, 2_000).len(), 1);
    let told =
        |watch: &SplitWatch, now| watch.silent(now).map(|told| told.together[0].names.clone());
    look(&mut watch, &[], 1, FORGET_MS * 3);
    assert_eq!(told(&watch, FORGET_MS * 3).unwrap(), ["c", "d"]);
    // One of them says farewell after all.
    look(&mut watch, &[("c", Left)], 1, FORGET_MS * 3 + 1);
    assert_eq!(told(&watch, FORGET_MS * 3 + 1).unwrap(), ["d"]);
    look(&mut watch, &[], 1, MISSED_TOGETHER_MS + 2_000);
    assert_eq!(watch.silent(MISSED_TOGETHER_MS + 2_000), None);
}

#[test]
fn who_says_farewell_over_its_link_is_not_missed_and_its_next_life_is() {
    let name = |text: &str| NodeName::new(text).unwrap();
    let life = |number| (name("b"), Incarnation(number));
    let mut watch = SplitWatch::default();
    let mut network = Network {
        present: members(&[("b", Here), ("c", Here)]),
        lives: BTreeSet::from([life(1)]),
        ..Network::default()
    };
    watch.look(&network, FORGET_MS, 0);
    // Its link ends a moment later, or membership has not heard of it.
    watch.note_farewell(name("b"), Incarnation(1));
    assert_eq!(watch.look(&network, FORGET_MS, 500), []);
    network.present = members(&[("b", Silent), ("c", Here)]);
    network.lives.clear();
    assert_eq!(watch.look(&network, FORGET_MS, 1_000), []);
    assert_eq!((watch.count(), watch.silent(1_000)), (0, None));
    assert_eq!(watch.parted(), BTreeSet::from([name("b")]));
    network.present = members(&[("b", Here), ("c", Here)]);
    network.lives.insert(life(2));
    watch.look(&network, FORGET_MS, 2_000);
    assert_eq!(watch.parted(), BTreeSet::new());
    network.present = members(&[("c", Here)]);
    network.lives.clear();
    assert_eq!(watch.look(&network, FORGET_MS, 3_000).len(), 1);
    // The one before says so late.
    watch.note_farewell(name("b"), Incarnation(2));
    watch.look(&network, FORGET_MS, 3_500);
    assert_eq!(watch.silent(3_500), None);
}

/// Its datagrams do not come through, and the link does.
#[test]
fn who_is_linked_again_is_not_silent_and_is_missed_when_that_link_ends() {
    let b = NodeName::new("b").unwrap();
    let mut watch = SplitWatch::default();
    look(&mut watch, &[("b", Here)], 1, 0);
    assert_eq!(look(&mut watch, &[("b", Silent)], 1, 60_000).len(), 1);
    let present = members(&[("b", Doubtful)]);
    let network = Network { present, known: 1, linked: BTreeSet::from([b]), ..Network::default() };
    let news = watch.look(&network, FORGET_MS, 70_000);
    assert!(matches!(&news[..], [News::Back(_)]), "{news:?}");
    for now in (71_000..400_000).step_by(1_000) {
        assert_eq!(watch.look(&network, FORGET_MS, now), []);
        assert_eq!(watch.silent(now), None);
    }
    assert_eq!(look(&mut watch, &[("b", Silent)], 1, 400_000).len(), 1);
    let since_ms = watch.silent(400_000).unwrap().together[0].since_ms;
    assert!(since_ms <= TOGETHER_MS + 1_000, "{since_ms}");
}

#[test]
fn losses_at_different_times_are_different_ones_and_newcomers_are_not_missed() {
    let mut watch = SplitWatch::default();
    look(&mut watch, &[("b", Here), ("c", Here)], 1, 0);
    look(&mut watch, &[("b", Silent), ("c", Here), ("d", Silent), ("e", Doubtful)], 1, 1_000);
    look(&mut watch, &[("b", Silent), ("c", Silent)], 1, 20_000);
    let told = watch.silent(20_000).unwrap();
    assert_eq!(told.together.len(), 2);
    assert_eq!(told.with, Vec::<String>::new());
    assert_eq!(watch.count(), 2);
}
