//! Tests of the router: spread, stability, overrides, order.

use std::collections::HashMap;

use super::*;

fn nodes(names: &[&str]) -> Vec<Candidate> {
    names.iter().map(|name| Candidate { name: (*name).to_owned(), is_live: true }).collect()
}

fn numbered(count: usize) -> Vec<Candidate> {
    (0..count).map(|n| Candidate { name: format!("node-{n}"), is_live: true }).collect()
}

fn router(nodes: &[Candidate]) -> Router {
    Router::new(nodes, &|_| None)
}

#[test]
fn shards_spread_evenly_over_the_nodes() {
    for count in [2, 3, 5, 16, 48] {
        let router = router(&numbered(count));
        let mut counts = vec![0_u32; count];
        for shard in 0..SHARD_COUNT {
            counts[router.preferred(shard).unwrap()] += 1;
        }
        let share = 1.0 / count as f64;
        let expected = f64::from(SHARD_COUNT) * share;
        let deviation = (expected * (1.0 - share)).sqrt();
        for of_node in counts {
            let off = (f64::from(of_node) - expected).abs();
            assert!(off < 4.0 * deviation, "{of_node} instead of {expected} of {count} nodes");
        }
    }
}

#[test]
fn a_node_that_goes_moves_its_own_shards_and_no_others() {
    let before = numbered(5);
    let old = router(&before);
    for (gone, node) in before.iter().enumerate() {
        let mut dead = before.clone();
        dead[gone].is_live = false;
        let removed: Vec<_> = before.iter().filter(|n| *n != node).cloned().collect();
        for newer in [router(&dead), router(&removed)] {
            let moved: HashMap<u16, _> =
                old.moved(&newer).map(|(shard, from, to)| (shard, (from, to))).collect();
            for shard in 0..SHARD_COUNT {
                let was_its = old.preferred(shard) == Some(gone);
                assert_eq!(moved.contains_key(&shard), was_its, "shard {shard}");
            }
            for (from, to) in moved.values() {
                assert_eq!(*from, Some(node.name.as_str()));
                assert!(to.is_some_and(|to| to != node.name));
            }
        }
    }
}

#[test]
fn the_shards_of_a_node_that_goes_go_to_the_next_in_their_order() {
    let before = numbered(4);
    let old = router(&before);
    let mut after = before.clone();
    after[2].is_live = false;
    let new = router(&after);
    for shard in (0..SHARD_COUNT).filter(|shard| old.preferred(*shard) == Some(2)) {
        assert_eq!(new.preferred(shard), old.order(shard).nth(1));
    }
}

#[test]
fn a_node_that_comes_takes_its_share_and_moves_nothing_else() {
    let (old, new) = (router(&numbered(4)), router(&numbered(5)));
    let moved: Vec<_> = old.moved(&new).collect();
    assert!(moved.iter().all(|(_, _, to)| *to == Some("node-4")));
    // 1024 / 5, four deviations either way.
    assert!((153..=256).contains(&moved.len()), "{}", moved.len());
}

#[test]
fn the_rank_is_the_documented_one_and_does_not_depend_on_the_order_of_nodes() {
    // Computed by hand with the published constants: other clients must come to the same.
    let mix = |hash: u64, shard: u64| {
        let mut x = u128::from(hash) + u128::from(shard + 1) * 0x9e37_79b9_7f4a_7c15;
        let cut = |x: u128| x & u128::from(u64::MAX);
        x = cut(x);
        x = cut((x ^ (x >> 30)) * 0xbf58_476d_1ce4_e5b9);
        x = cut((x ^ (x >> 27)) * 0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) as u64
    };
    let mut list = nodes(&["one", "two", "three"]);
    let forward = router(&list);
    list.reverse();
    let backward = router(&list);
    for shard in 0..SHARD_COUNT {
        let best = ["one", "two", "three"]
            .into_iter()
            .max_by_key(|name| mix(hash_key(name.as_bytes()), u64::from(shard)))
            .unwrap();
        assert_eq!(forward.preferred_name(shard), Some(best));
        assert_eq!(backward.preferred_name(shard), Some(best));
    }
}

#[test]
fn an_override_counts_while_its_node_is_live() {
    let mut list = numbered(3);
    let prefer = |shard: u16| match shard {
        5 => Some("node-1"),
        6 => Some("stranger"),
        _ => None,
    };
    let plain = router(&list);
    let with = Router::new(&list, &prefer);
    assert_eq!(with.preferred(5), Some(1));
    assert_eq!(with.order(5).next(), Some(1));
    for shard in (0..SHARD_COUNT).filter(|shard| *shard != 5) {
        assert_eq!(with.preferred(shard), plain.preferred(shard), "also for unknown nodes");
    }
    list[1].is_live = false;
    let dead = Router::new(&list, &prefer);
    assert_eq!(dead.preferred(5), router(&list).preferred(5));
    assert_eq!(dead.order(5).last(), Some(1), "tried last");
}

#[test]
fn an_order_has_each_node_once_the_live_ones_first_each_part_by_rank() {
    let mut list = numbered(7);
    list[1].is_live = false;
    list[4].is_live = false;
    let router = Router::new(&list, &|shard| (shard % 2 == 0).then_some("node-3"));
    for shard in 0..SHARD_COUNT {
        let order: Vec<usize> = router.order(shard).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6], "each once");
        assert_eq!(Some(order[0]), router.preferred(shard));
        let is_live: Vec<bool> = order.iter().map(|index| list[*index].is_live).collect();
        assert_eq!(is_live, [true, true, true, true, true, false, false]);
        let ranks: Vec<u64> =
            order.iter().map(|index| rank(router.nodes[*index].hash, shard)).collect();
        assert!(ranks[1..5].is_sorted_by(|a, b| a > b) && ranks[5] > ranks[6], "{ranks:?}");
    }
    let mut order = router.order(0);
    assert_eq!(order.by_ref().count(), 7);
    assert_eq!(order.next(), None, "over is over");
}

#[test]
fn the_load_of_a_node_that_goes_is_shared_by_the_others() {
    let router = router(&numbered(5));
    let mut second = HashMap::new();
    for shard in (0..SHARD_COUNT).filter(|shard| router.preferred(*shard) == Some(0)) {
        *second.entry(router.order(shard).nth(1).unwrap()).or_insert(0) += 1;
    }
    assert_eq!(second.len(), 4, "{second:?}");
    assert!(second.values().all(|count| *count > 25), "{second:?}");
}

#[test]
fn nobody_is_preferred_where_nobody_is_live() {
    let none = router(&[]);
    assert_eq!(none.preferred(0), None);
    assert_eq!(none.order(0).next(), None);
    let dead = router(&[Candidate { name: "one".to_owned(), is_live: false }]);
    assert_eq!(dead.preferred(0), None);
    assert_eq!(dead.order(0).collect::<Vec<_>>(), [0]);
    assert_eq!(dead.preferred(SHARD_COUNT), None, "there is no such shard");
    let alive = router(&nodes(&["one"]));
    assert_eq!(dead.moved(&alive).count(), usize::from(SHARD_COUNT));
    assert_eq!(dead.moved(&alive).next(), Some((0, None, Some("one"))));
}

#[test]
fn two_nodes_of_one_name_are_visited_once_each() {
    let router = router(&nodes(&["one", "one", "two"]));
    for shard in 0..SHARD_COUNT {
        let mut order: Vec<usize> = router.order(shard).collect();
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2]);
    }
}

#[test]
fn more_nodes_than_are_looked_at_are_left_out() {
    let router = router(&numbered(NODES_MAX + 3));
    assert_eq!(router.nodes.len(), NODES_MAX);
    assert!((0..SHARD_COUNT).all(|shard| router.preferred(shard).is_some()));
}

#[test]
fn a_path_goes_where_its_first_element_goes() {
    let shard = |text: &str| Router::shard(&text.parse().unwrap());
    assert_eq!(shard("hello"), 309);
    assert_eq!(shard("hello.below.it"), 309);
}

#[test]
fn routing_allocates_nothing() {
    let router = router(&numbered(5));
    let path: Path = "hello.world".parse().unwrap();
    let mut visited = 0;
    let counted = allocation_counter::measure(|| {
        let shard = Router::shard(&path);
        assert!(router.preferred(shard).is_some());
        visited = router.order(shard).count();
    });
    assert_eq!((counted.count_total, visited), (0, 5));
    // So that this can fail: making a path does allocate.
    let counted = allocation_counter::measure(|| drop(path.parent()));
    assert!(counted.count_total > 0);
}
