//! Which incarnations are in chains of entries. Finding out walks the whole tree, so the result is
//! kept for a while: tools ask for the nodes over and over.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::view::StateView;
use crate::model::ids::{Millis, NodeIndex};

/// How long a result is used although the tree has changed. It decides only about retired
/// incarnations, whose last entries go when others change them.
const KEPT_MS: Millis = 1_000;

/// What the last walk found.
#[derive(Default)]
pub(in crate::server) struct Standing {
    last: Mutex<Option<Found>>,
}

struct Found {
    /// Of the tree that was walked.
    version: u64,
    at: Millis,
    nodes: Arc<BTreeSet<NodeIndex>>,
}

impl Standing {
    /// The result, if it is known without a walk.
    pub(in crate::server) fn known(
        &self,
        view: &StateView,
        now: Millis,
    ) -> Option<Arc<BTreeSet<NodeIndex>>> {
        let last = self.last.lock();
        let found = last.as_ref()?;
        let is_good =
            found.version == view.tree.version() || now.saturating_sub(found.at) < KEPT_MS;
        is_good.then(|| Arc::clone(&found.nodes))
    }

    /// Walks the tree, unless that was done lately.
    pub(in crate::server) fn find(
        &self,
        view: &StateView,
        now: Millis,
    ) -> Arc<BTreeSet<NodeIndex>> {
        if let Some(nodes) = self.known(view, now) {
            return nodes;
        }
        let nodes = Arc::new(view.standing());
        let version = view.tree.version();
        let mut last = self.last.lock();
        if last.as_ref().is_none_or(|found| found.version <= version) {
            *last = Some(Found { version, at: now, nodes: Arc::clone(&nodes) });
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::batch::write_one;
    use crate::engine::{Config, Engine, Input, Outbox};
    use crate::model::ids::{Incarnation, NodeId, NodeName};
    use crate::replica::write::Write;

    fn write(engine: &mut Engine, path: &str) {
        let path: crate::model::path::Path = path.parse().unwrap();
        let write = Write::new(&path, Some(&[1]));
        write_one(engine, write, false, &mut Outbox::new()).unwrap();
    }

    #[test]
    fn the_tree_is_walked_again_only_when_it_has_changed_and_some_time_has_passed() {
        let id = NodeId { name: NodeName::new("a").unwrap(), incarnation: Incarnation(1) };
        let mut engine = Engine::new(Config::new(id, 1));
        engine.handle(Input::Found, 0, &mut Outbox::new());
        let standing = Standing::default();
        let empty = engine.view();
        assert_eq!(standing.known(&empty, 0), None);
        assert!(standing.find(&empty, 0).is_empty());
        assert!(standing.known(&empty, 1_000_000).is_some(), "the same tree");
        write(&mut engine, "a");
        let written = engine.view();
        assert!(standing.find(&written, 999).is_empty(), "as it was found a moment ago");
        assert_eq!(standing.known(&written, 1_000), None);
        assert_eq!(*standing.find(&written, 1_000), BTreeSet::from([engine.own()]));
        // A request that began before does not take that back.
        assert!(standing.find(&empty, 5_000).is_empty());
        assert!(standing.known(&written, 5_000).is_some());
    }
}
