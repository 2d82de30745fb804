//! What nodes call the makers of events, completed with their lives.

use std::collections::HashMap;
use std::sync::Arc;

use crate::client::pool::NodeIdentity;
use crate::client::topology::{ClusterView, NODES_MAX};

/// Labels of one node, as they were completed. A label that has its life is left as it is.
#[derive(Debug, Default)]
pub(super) struct Labels {
    known: HashMap<String, String>,
}

impl Labels {
    /// Another node tells now, which may call others otherwise.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// Completes a label, where the life is known: of the node that tells it, else from the view.
    pub(super) fn complete(
        &mut self,
        label: &mut String,
        told_by: &NodeIdentity,
        view: impl Fn() -> Arc<ClusterView>,
    ) {
        if label.contains('~') {
            return;
        }
        if let Some(known) = self.known.get(label) {
            label.clone_from(known);
            return;
        }
        let life = match *label == told_by.name {
            true => told_by.incarnation,
            false => {
                let view = view();
                let node = view.nodes.iter().find(|node| node.name == *label);
                node.and_then(|node| node.incarnation)
            }
        };
        let Some(life) = life else { return };
        let whole = format!("{label}~{life:016x}");
        if self.known.len() < NODES_MAX {
            self.known.insert(std::mem::replace(label, whole.clone()), whole);
        } else {
            *label = whole;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_gets_the_life_of_the_node_that_tells_it() {
        let told_by = NodeIdentity { name: "a".into(), incarnation: Some(0x1_5678) };
        let mut labels = Labels::default();
        for _ in 0..2 {
            let mut label = String::from("a");
            labels.complete(&mut label, &told_by, Arc::default);
            assert_eq!(label, "a~0000000000015678");
            let mut short = String::from("a~5678");
            labels.complete(&mut short, &told_by, Arc::default);
            assert_eq!(short, "a~5678");
            let mut unknown = String::from("b");
            labels.complete(&mut unknown, &told_by, Arc::default);
            assert_eq!(unknown, "b");
        }
    }
}
