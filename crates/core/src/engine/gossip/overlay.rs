//! Which links a node wants. Up to [`FULL_MESH_MAX`] nodes, all are linked with all; above that,
//! each has a few neighbours, so that the cost of a link is paid a bounded number of times per
//! node. Pure: it looks at names only, so every node that knows the same members computes the same
//! graph.
//!
//! Names are put on [`RINGS`] rings, each in an order of its own (a hash of ring and name), and a
//! node's neighbours are the ones before and after it on each ring. One ring alone connects all;
//! several in unrelated orders make a graph in which all nodes are near each other: its diameter
//! grows with the logarithm of the number of nodes. A node that comes or goes changes two links per
//! ring.

use std::collections::BTreeSet;

use xxhash_rust::xxh64::xxh64;

use crate::model::ids::NodeName;

/// Most nodes, this one included, of a network in which all are linked with all. Measured
/// (docs/scale.md): with 48 nodes a full mesh is still the fastest, and costs the maker of a change 47
/// copies of it.
pub const FULL_MESH_MAX: usize = 48;
/// On how many rings a node has its neighbours: at most two on each.
pub const RINGS: u64 = 4;

/// A network that was above the bound returns to a full mesh only when it has shrunk to this share
/// of it (5/6), so that one node that comes and goes does not rebuild the whole network.
const AGAIN: (usize, usize) = (5, 6);

/// How a node is linked with the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mesh {
    /// With every node; changes go from their maker to all.
    #[default]
    Full,
    /// With some; changes are passed on, see [`super::spread`].
    Tree,
}

impl Mesh {
    /// The mesh for this number of nodes, this one included, after having been `self`.
    #[must_use]
    pub(crate) fn next(self, nodes: usize, full_max: usize) -> Self {
        let bound = match self {
            Self::Full => full_max,
            Self::Tree => full_max * AGAIN.0 / AGAIN.1,
        };
        if nodes <= bound { Self::Full } else { Self::Tree }
    }
}

/// A node's neighbours: 1 to 2 × [`RINGS`] of the others, none if there are no others. Being
/// neighbours is mutual.
pub(crate) fn neighbours<'a>(
    own: &NodeName,
    others: impl Iterator<Item = &'a NodeName> + Clone,
) -> BTreeSet<NodeName> {
    let mut found = BTreeSet::new();
    for ring in 0..RINGS {
        let from = place(own, ring);
        // Names at the same place, which chance does not bring about, stand in their order.
        let distance = |name: &&NodeName| (place(name, ring).wrapping_sub(from), *name < own);
        let others = || others.clone().filter(|name| *name != own);
        found.extend(others().min_by_key(|name| (distance(name), *name)).cloned());
        found.extend(others().max_by_key(|name| (distance(name), *name)).cloned());
    }
    found
}

fn place(name: &NodeName, ring: u64) -> u64 {
    xxh64(name.as_str().as_bytes(), ring)
}

#[cfg(test)]
mod tests {
    use crate::engine::overlay::*;
    use std::collections::{BTreeMap, VecDeque};

    type Graph = BTreeMap<NodeName, BTreeSet<NodeName>>;

    fn graph(nodes: usize) -> Graph {
        let names: Vec<_> =
            (0..nodes).map(|at| NodeName::new(&format!("node-{at}")).unwrap()).collect();
        names.iter().map(|own| (own.clone(), neighbours(own, names.iter()))).collect()
    }

    /// The longest of the shortest ways, from one node; none if it does not reach all.
    fn eccentricity(graph: &Graph, from: &NodeName) -> Option<usize> {
        let mut far = BTreeMap::from([(from, 0)]);
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for next in &graph[at] {
                if !far.contains_key(next) {
                    far.insert(next, far[at] + 1);
                    queue.push_back(next);
                }
            }
        }
        (far.len() == graph.len()).then(|| far.values().copied().max().unwrap())
    }

    #[test]
    fn neighbours_are_mutual_few_and_near_to_everybody() {
        for (nodes, diameter) in [(1, 0), (2, 1), (3, 1), (49, 4), (200, 5), (1_000, 6)] {
            let graph = graph(nodes);
            for (name, near) in &graph {
                assert!(near.len() <= 2 * RINGS as usize && !near.contains(name));
                assert!(near.iter().all(|other| graph[other].contains(name)));
            }
            for from in graph.keys().take(20) {
                let found = eccentricity(&graph, from).expect("all are reached");
                assert!(found <= diameter, "{nodes} nodes: {found}");
            }
        }
    }

    #[test]
    fn who_comes_changes_a_few_links_only() {
        let (before, after) = (graph(500), graph(501));
        let changed: usize =
            before.iter().map(|(name, near)| near.symmetric_difference(&after[name]).count()).sum();
        // On each ring two nodes lose each other and get the newcomer instead.
        assert!(changed <= 4 * RINGS as usize, "{changed}");
    }

    #[test]
    fn one_node_more_or_less_does_not_turn_the_mesh_over_twice() {
        let mut mesh = Mesh::Full;
        let mut seen = Vec::new();
        for nodes in [48, 49, 48, 49, 41, 40, 41, 48] {
            mesh = mesh.next(nodes, FULL_MESH_MAX);
            seen.push(mesh);
        }
        use Mesh::{Full, Tree};
        assert_eq!(seen, [Full, Tree, Tree, Tree, Tree, Full, Full, Full]);
    }
}
