//! Which node is preferred for which shard, and where each node is: one view combined with one
//! table of overrides.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ClusterView;
use crate::model::host_port::HostPort;
use crate::model::shard::SHARD_COUNT;
use crate::router::{Candidate, Router};
use crate::stats::{NodeCounts, NodeTable};

/// The overrides: by virtual shard, the name of the node that is preferred for it.
pub type Preferences = BTreeMap<u16, String>;

/// A node that requests can go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name; of a seed that was never reached, its address.
    pub name: String,
    /// Its life, if it is known.
    pub incarnation: Option<u64>,
    /// Its address.
    pub address: HostPort,
    /// Whether it should be asked before those that are not live.
    pub is_live: bool,
    /// Nobody says which node is there: it has the name that was heard there last, if any.
    pub(crate) is_seed: bool,
    /// What went there.
    pub(crate) counts: NodeCounts,
}

impl Target {
    /// The node that must answer at the address; none: any.
    pub(crate) fn expected(&self) -> Option<&str> {
        (!self.is_seed).then_some(self.name.as_str())
    }

    /// Of a seed, nobody says whether it is live.
    fn is_apart(&self) -> bool {
        !self.is_live && !self.is_seed
    }
}

/// A shard whose preferred node is another one than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreferenceMove {
    /// Which.
    pub shard: u16,
    /// The name of the one before, if there was one.
    pub from: Option<String>,
    /// The name of the one now.
    pub to: Option<String>,
}

/// See the module. Never changed, only replaced.
pub struct Routing {
    /// The view that it was made from.
    pub view: Arc<ClusterView>,
    /// The router, whose indices are those of `targets`.
    pub router: Router,
    /// The nodes with a known address, in the order of names; then the seeds whose address none of
    /// them has, as nodes that are not live.
    pub targets: Vec<Target>,
    /// One of these is a node that the view calls not live.
    some_apart: bool,
}

impl Routing {
    pub(super) fn new(
        view: Arc<ClusterView>,
        seeds: &[HostPort],
        preferences: Arc<Preferences>,
        counted: &NodeTable,
    ) -> Routing {
        let with_address = view.nodes.iter().filter_map(|node| {
            Some(Target {
                name: node.name.clone(),
                incarnation: node.incarnation,
                address: node.client.clone()?,
                is_live: node.is_live(),
                is_seed: node.is_seed(),
                counts: counted.of(&node.name),
            })
        });
        let mut targets: Vec<Target> = with_address.collect();
        for seed in seeds {
            if targets.iter().all(|target| target.address != *seed) {
                targets.push(as_target(seed, false, counted));
            }
        }
        Routing::made_of(view, targets, &preferences)
    }

    /// Before the first view.
    pub(super) fn of_seeds(seeds: &[HostPort], counted: &NodeTable) -> Routing {
        let targets = seeds.iter().map(|seed| as_target(seed, true, counted)).collect();
        Routing::made_of(Arc::default(), targets, &Preferences::new())
    }

    fn made_of(view: Arc<ClusterView>, targets: Vec<Target>, preferences: &Preferences) -> Routing {
        let candidates: Vec<Candidate> = targets
            .iter()
            .map(|target| Candidate { name: target.name.clone(), is_live: target.is_live })
            .collect();
        let prefer = |shard: u16| preferences.get(&shard).map(String::as_str);
        let router = Router::new(&candidates, &prefer);
        let some_apart = targets.iter().any(Target::is_apart);
        Routing { view, router, targets, some_apart }
    }

    /// Whether this is the address of a node or a seed.
    pub(super) fn knows(&self, address: &HostPort) -> bool {
        self.targets.iter().any(|target| target.address == *address)
    }

    /// How many shards each node is preferred for, by its name.
    pub(crate) fn shards_by_node(&self) -> BTreeMap<String, u64> {
        let mut shards = BTreeMap::new();
        for preferred in (0..SHARD_COUNT).filter_map(|shard| self.router.preferred(shard)) {
            if let Some(target) = self.targets.get(preferred) {
                *shards.entry(target.name.clone()).or_default() += 1;
            }
        }
        shards
    }

    /// The node of this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Target> {
        self.targets.iter().find(|target| target.name == name)
    }

    /// Whether the view calls the node of this name not live, wherever clients reach it all the same.
    pub(crate) fn is_apart(&self, name: &str) -> bool {
        self.some_apart && self.by_name(name).is_some_and(Target::is_apart)
    }

    /// Whether this is the address of the node that is preferred for a shard.
    pub(crate) fn prefers(&self, shard: u16, target: &Target) -> bool {
        let preferred = self.router.preferred(shard).and_then(|index| self.targets.get(index));
        preferred.is_some_and(|node| node.address == target.address)
    }

    /// What moved from this one to a newer one.
    pub(super) fn moves_to(&self, newer: &Routing) -> Vec<PreferenceMove> {
        let moved = self.router.moved(&newer.router);
        moved
            .map(|(shard, from, to)| PreferenceMove {
                shard,
                from: from.map(str::to_owned),
                to: to.map(str::to_owned),
            })
            .collect()
    }
}

fn as_target(seed: &HostPort, is_live: bool, counted: &NodeTable) -> Target {
    let name = seed.to_string();
    let counts = counted.of(&name);
    Target { name, incarnation: None, address: seed.clone(), is_live, is_seed: true, counts }
}
