//! Whole engines in a network of frames with a virtual clock: what arrives, what is lost, and
//! that everybody agrees in the end.

mod by_hand;
mod conflicts;
mod contents;
mod delete_group;
mod delete_list;
mod deletion;
mod digest;
mod endless;
mod hand;
mod interaction;
mod killed;
mod lists;
mod net;
mod own_order;
mod retire;
mod spread;

use hand::{Came, Hand, digest, id};
use net::Net;

use super::*;
use crate::model::mark::Mark;
use crate::model::tick_set::TickSet;
use crate::model::write_id::WriteId;
use crate::replica::write::Write;

fn write<'a>(path: &str, value: Option<&'a [u8]>) -> Write<'a> {
    Write::new(path.parse::<Path>().unwrap(), value)
}

#[test]
fn a_change_is_pushed_to_all_peers_at_once() {
    let mut net = Net::new(3);
    net.connect_all();
    net.settle();
    net.write(0, "a", Some(&[1])).unwrap();
    net.deliver_all();
    for node in 1..3 {
        assert_eq!(net.value(node, "a"), Some(vec![1]), "without any tick of the clock");
    }
}

#[test]
fn what_a_peer_has_not_answered_to_came_after_its_last_word() {
    let mut net = Net::new(2);
    net.connect_all();
    net.settle();
    let since = |net: &Net| {
        let (_, then) = net.engine(0).last_words().next().unwrap();
        net.engine(0).counters().changes() - then
    };
    net.write(0, "a", Some(&[1])).unwrap();
    net.write(1, "b", Some(&[1])).unwrap();
    net.settle();
    assert_eq!((since(&net), net.engine(0).counters().changes()), (0, 2));
    for path in ["c", "d"] {
        net.write(0, path, Some(&[1])).unwrap();
    }
    assert_eq!(since(&net), 2);
    net.settle();
    assert_eq!(since(&net), 0);
}

#[test]
fn a_fresh_node_serves_nobody_before_it_has_everything() {
    let mut net = Net::new(2);
    for i in 0..200 {
        net.write(0, &format!("k{i}"), Some(&[1])).unwrap();
    }
    net.write(0, "k7", None).unwrap();
    let joiner = net.join();
    assert_eq!(net.engine(joiner).tick(), None);
    let refused = net.write(joiner, "x", Some(&[1]));
    assert_eq!(refused.unwrap_err(), EngineWriteError::NotReady);
    net.connect(0, joiner);
    net.settle();
    assert!(net.engine(joiner).is_ready());
    assert_eq!(net.value(joiner, "k199"), Some(vec![1]));
    assert_eq!(net.value(joiner, "k7"), None);
    assert_eq!(net.content(joiner), net.content(0));
}

#[test]
fn changes_that_no_peer_has_acknowledged_are_counted() {
    let mut net = Net::new(2);
    net.connect_all();
    net.settle();
    net.write(0, "a", Some(&[1])).unwrap();
    assert_eq!(net.engine(0).unshared_changes(), 1);
    net.settle();
    assert_eq!(net.engine(0).unshared_changes(), 0);
    net.disconnect(0, 1);
    assert_eq!(net.engine(0).unshared_changes(), 0, "the end of a link takes nothing back");
    net.write(0, "b", Some(&[2])).unwrap();
    net.write(0, "b", Some(&[3])).unwrap();
    assert_eq!(net.engine(0).unshared_changes(), 2);
    assert_eq!(net.engine(1).unshared_changes(), 0);
    let config = Config::new(net.engine(0).id().clone(), 7);
    let again = Engine::restore(config, &net.engine(0).image(), &mut Outbox::new()).unwrap();
    assert_eq!(again.unshared_changes(), 0, "made before the start");
    net.connect(0, 1);
    net.settle();
    assert_eq!(net.engine(0).unshared_changes(), 0);
}

/// Nobody has lost anything with a list that a node alone has founded.
#[test]
fn what_names_a_lineage_is_no_change_that_anybody_lacks() {
    let mut net = Net::purging(1, false);
    net.write(0, "a", Some(&[1])).unwrap();
    assert_eq!(net.engine(0).unshared_changes(), 1);
    net.pass_until(|net| !net.group(0).is_empty());
    assert_eq!(net.engine(0).unshared_changes(), 1);
    net.write(0, "b", Some(&[1])).unwrap();
    assert_eq!(net.engine(0).unshared_changes(), 2);
    let ticks = net.engine(0).group().unwrap().lineage.0.clone().unwrap().1.get();
    assert_eq!(ticks, 2, "between the two changes, the list's lineage was given a tick");
    let joiner = net.join();
    net.connect(0, joiner);
    net.settle();
    assert_eq!(net.engine(0).unshared_changes(), 0);
    net.write(0, "c", Some(&[1])).unwrap();
    assert_eq!(net.engine(0).unshared_changes(), 1);
}

#[test]
fn a_hole_is_mended_by_catch_up() {
    let mut net = Net::new(3);
    net.connect_all();
    net.settle();
    net.lose_queued(0, 1, true);
    net.write(0, "lost", Some(&[1])).unwrap();
    net.lose_queued(0, 1, false);
    net.write(0, "later", Some(&[2])).unwrap();
    net.deliver_all();
    assert_eq!(net.value(1, "lost"), None);
    assert_eq!(net.value(1, "later"), Some(vec![2]));
    net.settle();
    assert_eq!(net.value(1, "lost"), Some(vec![1]));
    assert_eq!(net.content(1), net.content(0));
    assert_eq!(net.engine(1).counters().catch_ups, 1);
}

#[test]
fn the_last_change_before_silence_is_not_lost_either() {
    let mut net = Net::new(2);
    net.connect_all();
    net.settle();
    net.lose_queued(0, 1, true);
    net.write(0, "last", Some(&[1])).unwrap();
    net.lose_queued(0, 1, false);
    net.settle();
    assert_eq!(net.value(1, "last"), Some(vec![1]));
}

#[test]
fn a_split_heals_and_conflicts_are_reported() {
    let mut net = Net::new(4);
    net.connect_all();
    net.settle();
    net.write(0, "both", Some(&[0])).unwrap();
    net.settle();
    for (a, b) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
        net.disconnect(a, b);
    }
    net.write(0, "both", Some(&[1])).unwrap();
    net.write(3, "both", Some(&[2])).unwrap();
    net.write(1, "left", Some(&[3])).unwrap();
    net.write(2, "right", Some(&[4])).unwrap();
    net.settle();
    assert_eq!(net.value(3, "left"), None);
    net.connect(1, 2);
    net.connect_all();
    net.settle();
    let everybody = net.content(0);
    for node in 1..4 {
        assert_eq!(net.content(node), everybody);
    }
    assert!(net.conflicts() >= 1);
    assert_eq!(net.value(0, "right"), Some(vec![4]));
}

#[test]
fn copies_are_counted_as_peers_acknowledge() {
    let mut net = Net::new(3);
    net.connect_all();
    net.settle();
    let tick = net.write(0, "a", Some(&[1])).unwrap();
    assert_eq!(net.engine(0).copies(tick), 0);
    net.deliver_all();
    assert_eq!(net.engine(0).copies(tick), 2, "acknowledged at once, without a tick");
}

#[test]
fn a_catch_up_that_is_cut_teaches_nothing_and_another_peer_finishes_it() {
    let mut net = Net::new(2);
    net.connect_all();
    net.settle();
    for i in 0..5000 {
        net.write(0, &format!("k{i}"), Some(&[1; 1])).unwrap();
        net.write(0, &format!("k{i}"), Some(&[2; 1])).unwrap();
    }
    net.settle();
    let joiner = net.join();
    net.connect(0, joiner);
    while net.engine(joiner).tree().is_empty() {
        net.deliver_some(1);
    }
    net.disconnect(0, joiner);
    let had = net.engine(joiner).tree().len();
    assert!(had > 0 && had < 5000, "{had}");
    assert!(!net.engine(joiner).is_ready());
    let seen: u64 = net.engine(joiner).seen().iter().map(|(_, t)| t.count()).sum();
    assert_eq!(seen, 2 * had as u64, "each accounts for itself and for what it replaced, no more");
    net.connect(1, joiner);
    net.settle();
    assert_eq!(net.content(joiner), net.content(0));
}

#[test]
fn a_clone_of_an_identity_renews_and_both_go_on() {
    let mut net = Net::new(2);
    let twin = net.clone_identity(0);
    net.write(0, "a", Some(&[1])).unwrap();
    net.write(twin, "b", Some(&[2])).unwrap();
    net.write(twin, "b", Some(&[3])).unwrap();
    net.connect(1, twin);
    net.settle();
    net.connect(0, 1);
    net.settle();
    assert_eq!(net.renewals(), 1);
    net.write(0, "c", Some(&[4])).unwrap();
    net.connect(0, twin);
    net.settle();
    assert_eq!(net.value(twin, "c"), Some(vec![4]));
    assert_eq!(net.value(1, "c"), Some(vec![4]));
}

#[test]
fn acknowledgements_of_an_earlier_life_are_no_copies() {
    let mut net = Net::new(2);
    net.connect_all();
    for _ in 0..5 {
        net.write(0, "a", Some(&[1])).unwrap();
    }
    net.settle();
    let first = Tick::new(1).unwrap();
    assert_eq!(net.engine(0).copies(first), 1);
    // Somebody else made changes under this identity.
    net.forge_digest(1, 0, "n0", 1 << 40);
    net.deliver_all();
    assert_eq!(net.renewals(), 1);
    net.write(0, "b", Some(&[2])).unwrap();
    assert_eq!(net.engine(0).copies(first), 0);
    net.settle();
    assert_eq!(net.engine(0).copies(first), 1, "once the peer's digest says so");
}

#[test]
fn limits_refuse_clients_and_never_peers() {
    let mut net = Net::new(2);
    net.connect_all();
    net.settle();
    net.limit_memory(1, 0);
    let full = net.write(1, "a", Some(&[1]));
    assert_eq!(full.unwrap_err(), EngineWriteError::MemoryFull { max: 0 });
    net.write(0, "b", Some(&[1])).unwrap();
    net.settle();
    assert_eq!(net.value(1, "b"), Some(vec![1]));
    net.write(1, "b", None).unwrap();
}

#[test]
fn the_first_value_of_the_root_is_set_once_and_also_where_clients_may_not_write() {
    let mut net = Net::new(1);
    net.limit_memory(0, 0);
    assert_eq!(net.init_root(0, &[1]), Ok(true));
    assert_eq!(net.init_root(0, &[2]), Ok(false));
    assert_eq!(net.value(0, ":"), Some(vec![1]));
}

#[test]
fn a_write_that_was_made_is_not_refused_when_it_comes_again() {
    let mut net = Net::new(1);
    let engine = net.engine_mut(0);
    let again = |engine: &mut Engine, path: &str| {
        let write_id = Some(WriteId([7; 16]));
        engine.write(&mut Write { write_id, ..write(path, Some(&[1])) }, false, &mut Outbox::new())
    };
    again(engine, "a").unwrap();
    engine.config.read_only = true;
    assert!(again(engine, "a").is_ok());
    assert_eq!(net.write(0, "b", Some(&[1])), Err(EngineWriteError::ReadOnly));
}

#[test]
fn the_memory_limit_is_reached_when_the_entries_take_as_much_and_not_before() {
    let mut net = Net::new(1);
    net.write(0, "a", Some(&[1])).unwrap();
    let used = net.engine(0).tree().memory_bytes();
    net.limit_memory(0, used + 1);
    assert_eq!(net.engine(0).memory_excess(), None);
    net.write(0, "b", Some(&[1])).unwrap();
    let max = net.engine(0).tree().memory_bytes();
    net.limit_memory(0, max);
    assert_eq!(net.engine(0).memory_excess(), Some(MemoryExcess { used: max, max }));
    assert_eq!(net.write(0, "c", Some(&[1])), Err(EngineWriteError::MemoryFull { max }));
}

#[test]
fn who_is_to_ignore_that_the_data_demands_a_login_is_open() {
    let mut net = Net::new(1);
    // A value that is no map: whatever was meant, it was not "everybody".
    net.write(0, ":n.auth", Some(&[1])).unwrap();
    assert!(net.engine(0).is_closed() && net.engine(0).closed().is_some());
    net.engine_mut(0).config.ignore_auth = true;
    assert!(!net.engine(0).is_closed() && net.engine(0).closed().is_none());
}

#[test]
fn a_peer_that_names_more_lives_than_a_node_remembers_is_cut_off() {
    let mut net = Net::new(2);
    net.connect_all();
    net.settle();
    let replica = &mut net.engine_mut(0).replica;
    for incarnation in 1.. {
        let name = NodeName::new("old").unwrap();
        if replica.intern(&NodeId { name, incarnation: Incarnation(incarnation) }).is_none() {
            break;
        }
    }
    net.forge_change(1, 0, "unheard-of", 1);
    assert_eq!(net.value(0, "forged"), None);
    assert_eq!(net.closed, [(0, CloseReason::TableFull)]);
}

#[test]
fn absurd_digests_make_ticks_missing_but_never_seen() {
    let mut net = Net::new(2);
    net.connect_all();
    net.settle();
    net.forge_digest(1, 0, "ghost", 1 << 61);
    net.settle();
    let view = net.engine(0).view();
    let ghost = view.table.find("ghost", Incarnation(1)).unwrap();
    assert_eq!(view.seen.get(ghost), None);
    assert_eq!(view.missing().get(&ghost).map(|t| t.count()), Some(1 << 61));
    net.write(0, "a", Some(&[1])).unwrap();
    net.settle();
    assert_eq!(net.value(1, "a"), Some(vec![1]));
}

#[test]
fn while_a_peer_cannot_read_arrays_in_paths_clients_make_none() {
    let (mut engine, mut out) = (Hand::with_peers(0).engine, Outbox::new());
    engine.bar_array_paths(true);
    let refused = engine.write(&mut write("a:'t',1.b", Some(&[1])), false, &mut out);
    assert_eq!(refused.unwrap_err(), EngineWriteError::OlderPeers);
    assert!(!engine.tree().has_array_paths());
    engine.write(&mut write("a.t:1.b", Some(&[1])), false, &mut out).unwrap();
    engine.bar_array_paths(false);
    engine.write(&mut write("a:'t',1.b", Some(&[1])), false, &mut out).unwrap();
    assert!(engine.tree().has_array_paths());
}

#[test]
fn who_meets_itself_asks_for_a_new_incarnation_once_each_time() {
    let mut me = Hand::new(Config::new(id("n1"), 1));
    let asks = |came: Came| {
        came.0.iter().filter(|output| matches!(output, Output::NeedIncarnation)).count()
    };
    assert_eq!(asks(me.input(Input::Found)), 0);
    for life in 1..3 {
        assert_eq!(asks(me.link_up(life)), 0);
        // Another life of the node has made changes, says a peer.
        let own = NodeId { incarnation: Incarnation(life), ..id("n1") };
        let seen = vec![(own, TickSet::range(1, 6).unwrap())];
        let digest = PeerMessage::Digest(digest(seen, Mark::default()));
        assert_eq!(asks(me.hear(life, digest)), 1);
        assert_eq!(asks(me.input(Input::Tick)), 0, "it waits for the one");
        assert_eq!(asks(me.input(Input::Renewed { incarnation: Incarnation(life + 1) })), 0);
        assert_eq!(asks(me.input(Input::LinkDown { link: LinkId(life) })), 0);
    }
}

#[test]
fn who_founds_or_has_caught_up_says_once_that_it_is_ready() {
    let mut net = Net::new(1);
    net.write(0, "a", Some(&[1])).unwrap();
    let joiner = net.join();
    assert_eq!(net.ready, [0]);
    net.connect(0, joiner);
    net.settle();
    assert_eq!(net.ready, [0, joiner]);
    net.handle(0, Input::Found);
    assert_eq!(net.ready, [0, joiner]);
}

#[test]
fn copies_of_another_s_change_are_those_of_its_maker_and_of_who_said_that_it_has_it() {
    let mut net = Net::new(4);
    net.connect_all();
    net.settle();
    net.write(0, "a", Some(&[1])).unwrap();
    net.deliver_all();
    let event = net.engine(1).get("a".parse::<Path>().unwrap().as_bytes()).unwrap().newest();
    assert_eq!(net.engine(1).copies_of(event), 1, "its maker; the others have said nothing yet");
    net.settle();
    assert_eq!(net.engine(1).copies_of(event), 3);
}

#[test]
fn who_is_to_stop_makes_no_more_changes() {
    let mut net = Net::new(1);
    net.write(0, "a", Some(&[1])).unwrap();
    net.engine_mut(0).handle(changes::StopMakingEvents, 2, &mut Outbox::new());
    assert!(net.write(0, "a", Some(&[2])).is_err());
    assert_eq!((net.value(0, "a"), net.engine(0).tick().map(Tick::get)), (Some(vec![1]), Some(1)));
}

#[test]
fn an_incarnation_that_is_in_use_is_no_renewal() {
    let mut net = Net::new(2);
    net.connect_all();
    net.settle();
    let id = net.engine(0).id().clone();
    net.handle(0, Input::Renewed { incarnation: id.incarnation });
    assert_eq!(*net.engine(0).id(), id);
    assert!(!net.reports.iter().any(|(_, report)| matches!(report, Report::Renewed { .. })));
}
