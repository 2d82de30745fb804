//! Networks in which not all are linked with all: changes reach everybody over a tree, which
//! repairs itself. Small ones, with fixed seeds; `examples/cluster_scale` measures large ones.

use distkv_core::engine::EngineCounters;
use distkv_core::engine::overlay::{Mesh, RINGS};
use distkv_model::ids::{NodeName, Tick};
use distkv_sim::scale::{Class, Scale, ScaleOptions};

/// How many nodes.
const NODES: usize = 30;
/// How long anything may take, virtual milliseconds.
const PATIENCE_MS: u64 = 30_000;

/// A network that has formed and written a little, so that the tree is there.
fn formed(seed: u64) -> Scale {
    let mut net = Scale::new(ScaleOptions { seed, full_mesh_max: 12, ..ScaleOptions::default() });
    net.grow(NODES);
    assert!(net.run(PATIENCE_MS, Scale::all_see_all));
    assert!(net.run(PATIENCE_MS, Scale::all_linked));
    for at in 0..20 {
        net.write_at(at);
        net.run(20, |_| false);
    }
    assert!(net.run(PATIENCE_MS, Scale::all_agree));
    net.run(3_000, |_| false);
    net
}

fn sum(net: &Scale, get: fn(&EngineCounters) -> u64) -> u64 {
    net.engines().map(|(_, engine)| get(&engine.counters())).sum()
}

/// Makes changes at all nodes in turn; how long each took to each other node, microseconds.
fn latencies(net: &mut Scale, changes: usize) -> Vec<u32> {
    net.take_latencies();
    net.measure(true);
    for change in 0..changes {
        net.write_at(change * 7 % net.len());
        net.run(20, |_| false);
    }
    net.measure(false);
    net.run(1_000, |_| false);
    net.take_latencies()
}

#[test]
fn changes_reach_everybody_over_a_tree_without_second_copies() {
    for seed in 0..2 {
        let mut net = formed(seed);
        for (_, engine) in net.engines() {
            assert_eq!(engine.spread_view().mesh, Mesh::Tree);
            assert!(engine.link_count() <= 2 * RINGS as usize);
        }
        let (catch_ups, copies) = (sum(&net, |c| c.catch_ups), sum(&net, |c| c.duplicates));
        let changes = 200;
        let took = latencies(&mut net, changes);
        assert_eq!(took.len(), changes * (NODES - 1), "each change reaches each node");
        let longest = took.iter().max().unwrap();
        assert!(*longest < 20_000, "seed {seed}: {longest} us");
        assert_eq!(sum(&net, |c| c.catch_ups), catch_ups, "nothing had to be fetched");
        let copies = (sum(&net, |c| c.duplicates) - copies) as f64 / (changes * NODES) as f64;
        assert!(copies < 0.01, "seed {seed}: {copies} second copies per change and node");
        let (eager, lazy) = net
            .engines()
            .map(|(_, engine)| engine.spread_view())
            .fold((0, 0), |sum, view| (sum.0 + view.eager, sum.1 + view.lazy));
        assert_eq!(eager, 2 * (NODES - 1), "the eager links are a tree");
        assert!(lazy > eager);
    }
}

#[test]
fn lost_frames_are_fetched_and_all_agree() {
    for seed in 0..1 {
        let mut net = formed(seed);
        net.drop_frames(10);
        net.write(40, 20);
        net.run(5_000, |_| false);
        net.drop_frames(0);
        net.write(0, 0);
        assert!(net.run(PATIENCE_MS, Scale::all_agree), "seed {seed}");
        assert!(sum(&net, |c| c.catch_ups) > 0);
        net.run(10_000, |_| false);
        let took = latencies(&mut net, 50);
        assert_eq!(took.len(), 50 * (NODES - 1));
        assert!(*took.iter().max().unwrap() < 1_500_000, "the tree is whole again");
    }
}

#[test]
fn after_a_crash_changes_find_their_way_round() {
    for seed in 0..2 {
        let mut net = formed(seed);
        net.write(100, NODES);
        net.run(1_000, |_| false);
        // Half of them have many eager links.
        for dead in [5, 12, 17, 28] {
            net.kill(dead);
            net.run(200, |_| false);
        }
        net.write(20, NODES);
        net.run(8_000, |_| false);
        net.write(0, 0);
        assert!(net.run(PATIENCE_MS, Scale::all_agree), "seed {seed}");
        assert!(net.run(PATIENCE_MS, Scale::all_linked), "the dead have been replaced");
        let catch_ups = sum(&net, |c| c.catch_ups);
        let took = latencies(&mut net, 70);
        let living = NODES - 4;
        // Those that are dead write nothing.
        assert!(took.len() >= 58 * (living - 1), "{}", took.len());
        assert!(sum(&net, |c| c.catch_ups) - catch_ups <= living as u64, "a few at most");
    }
}

#[test]
fn a_split_heals_and_one_list_of_housekeepers_is_left() {
    let mut net = formed(3);
    net.cut(NODES / 2);
    net.write(100, NODES);
    let is_split = |net: &Scale| net.engines().all(|(_, e)| e.members().count() == NODES / 2 - 1);
    assert!(net.run(PATIENCE_MS, is_split));
    net.run(10_000, |_| false);
    net.heal();
    net.run(10_000, |_| false);
    net.write(0, 0);
    assert!(net.run(PATIENCE_MS, Scale::all_agree));
    assert!(net.run(PATIENCE_MS, Scale::all_see_all) && net.run(PATIENCE_MS, Scale::all_linked));
    let lists: Vec<Vec<NodeName>> = net.engines().map(|(_, e)| e.housekeepers()).collect();
    assert!(lists.iter().all(|list| list.iter().all(|name| lists[0].contains(name))), "{lists:?}");
    assert!(net.engines().any(|(_, engine)| engine.counters().resyncs > 0));
}

#[test]
fn a_network_that_grows_above_its_bound_and_shrinks_changes_its_links_and_loses_nothing() {
    let mut net = Scale::new(ScaleOptions { full_mesh_max: 12, ..ScaleOptions::default() });
    net.grow(10);
    assert!(net.run(PATIENCE_MS, Scale::all_see_all) && net.run(PATIENCE_MS, Scale::all_linked));
    assert!(net.engines().all(|(_, engine)| engine.link_count() == 9));
    net.write(100, 10);
    net.grow(10);
    net.run(15_000, |_| false);
    assert!(net.run(PATIENCE_MS, Scale::all_linked));
    assert!(net.engines().all(|(_, engine)| engine.spread_view().mesh == Mesh::Tree));
    for at in 10..20 {
        net.kill(at);
        net.run(100, |_| false);
    }
    net.run(15_000, |_| false);
    net.write(0, 0);
    assert!(net.run(PATIENCE_MS, Scale::all_agree) && net.run(PATIENCE_MS, Scale::all_linked));
    for (_, engine) in net.engines() {
        assert_eq!((engine.spread_view().mesh, engine.link_count()), (Mesh::Full, 9));
        assert_eq!(engine.spread_view().lazy, 0, "makers reach everybody themselves again");
    }
}

#[test]
fn a_node_of_an_earlier_version_keeps_its_links_and_is_pushed_nothing_twice() {
    let mut net = Scale::new(ScaleOptions { full_mesh_max: 12, ..ScaleOptions::default() });
    net.grow(30);
    net.grow_old(1);
    assert!(net.run(PATIENCE_MS, Scale::all_see_all) && net.run(PATIENCE_MS, Scale::all_linked));
    assert!(net.run(10_000, |_| false) || net.all_linked());
    // The tree is made anew where links were closed.
    let _ = latencies(&mut net, 20);
    net.take_traffic();
    let (catch_ups, copies) = (sum(&net, |c| c.catch_ups), sum(&net, |c| c.duplicates));
    let took = latencies(&mut net, 62);
    assert_eq!(took.len(), 62 * 30);
    assert_eq!(sum(&net, |c| c.catch_ups), catch_ups);
    assert_eq!(sum(&net, |c| c.duplicates), copies);
    // Each change goes once to each; and the old one's reach a few twice, from it and over the tree.
    let pushes = net.take_traffic().of(Class::Change).0;
    assert!(pushes <= 62 * 30 + 4 * 30, "{pushes}");
    let (_, old) = net.engines().nth(30).unwrap();
    assert_eq!(old.link_count(), 30);
}

#[test]
fn neighbours_acknowledge_and_more_copies_than_they_are_is_refused() {
    let mut net = formed(1);
    net.write_at(7);
    net.run(500, |_| false);
    let (_, engine) = net.engines().nth(7).unwrap();
    let tick = engine.tick().unwrap();
    assert!(tick > Tick::default());
    assert_eq!(engine.copies(tick), engine.link_count());
    assert_eq!(engine.copies_max(), Some(engine.link_count()));
}

#[test]
fn deletions_are_purged_everywhere_by_a_group_that_is_linked_with_itself() {
    for durable in [0, 5] {
        let options = ScaleOptions { seed: 4, full_mesh_max: 12, durable, ..Default::default() };
        let mut net = Scale::new(options);
        net.grow(30);
        assert!(net.run(PATIENCE_MS, Scale::all_see_all));
        // One is taken in with each round, every 10 s.
        let members = durable.max(1);
        let has_group = |net: &Scale| {
            let sizes = net.engines().map(|(_, e)| e.group().map_or(0, |g| g.members().len()));
            sizes.min() == Some(members)
        };
        assert!(net.run(90_000, has_group) && net.run(PATIENCE_MS, Scale::all_linked), "{durable}");
        for at in 0..10 {
            net.write_at(at);
            net.run(100, |_| false);
            net.delete_at(at + 20);
        }
        net.run(500, |_| false);
        assert!(
            net.run(60_000, |net| net.engines().all(|(_, e)| e.tree().is_empty())),
            "{durable}"
        );
        assert!(net.engines().all(|(_, engine)| engine.counters().purged == 10));
        assert!(net.all_agree() && net.engines().all(|(_, e)| e.group_view(0).away.is_empty()));
        for (at, engine) in net.engines().take(durable) {
            for other in (0..durable).filter(|other| *other != at) {
                assert!(engine.is_linked(&NodeName::new(&format!("node-{other}")).unwrap()));
            }
        }
    }
}

#[test]
fn at_rest_little_is_said() {
    let mut net = formed(2);
    net.run(65_000, |_| false);
    net.take_traffic();
    net.run(10_000, |_| false);
    let traffic = net.take_traffic();
    let per_node = |class| traffic.of(class).1 as f64 / NODES as f64 / 10.0;
    assert!(per_node(Class::Digest) < 200.0, "{}", per_node(Class::Digest));
    assert!(per_node(Class::Election) < 2_000.0, "{}", per_node(Class::Election));
    assert_eq!(traffic.of(Class::CatchUp).0 + traffic.of(Class::Change).0, 0);
}
