//! The wires: connections between nodes, with the data that waits at their ends and is under way,
//! and the pairs of nodes between which nothing gets through.
//!
//! A connection keeps its order (TCP) while it stands. When it breaks, the data under way is cut
//! somewhere, and each end notices in its own time; until then its writes are lost, and data for an
//! end that has closed is dropped.

use super::endless_talk::Talk;
use crate::flight::Flight;
use crate::hub::link_queue::LinkQueue;
use crate::model::defects::Defects;
use crate::model::ids::Millis;
use crate::virtual_net::Cuts;

/// One end of a connection; the other one has the number that differs in the last bit.
pub(crate) struct End {
    pub(crate) node: usize,
    /// Whether the node here believes that the link stands.
    pub(crate) open: bool,
    /// What waits to be written; the node's own code.
    pub(crate) queue: Option<LinkQueue>,
    /// Data on its way to the other end.
    pub(crate) flight: Flight,
    /// How long a frame takes from here, at least and at most.
    pub(crate) delay_ms: (Millis, Millis),
    /// The connection is broken: writes from now on are lost.
    pub(crate) broken: bool,
    /// Nothing is written before this time.
    pub(crate) stalled_until: Millis,
    /// The next piece of a catch-up is not written before this time.
    pub(crate) serve_due: Millis,
    /// Whether a catch-up is being answered here.
    pub(crate) serving: bool,
    /// The writer will look again.
    pub(crate) look_planned: bool,
    /// What has arrived here.
    pub(crate) talk: Talk,
}

/// All connections that ever were, and which nodes are cut off from which.
#[derive(Default)]
pub(crate) struct Network {
    ends: Vec<End>,
    pub(super) cuts: Cuts,
}

impl Network {
    /// The other end of a connection.
    pub(crate) fn other(end: u32) -> u32 {
        end ^ 1
    }

    pub(crate) fn end(&self, end: u32) -> &End {
        &self.ends[end as usize]
    }

    pub(super) fn end_mut(&mut self, end: u32) -> &mut End {
        &mut self.ends[end as usize]
    }

    pub(crate) fn ends(&self) -> std::ops::Range<u32> {
        0..self.ends.len() as u32
    }

    /// The node at the other end.
    pub(crate) fn peer(&self, end: u32) -> usize {
        self.end(Self::other(end)).node
    }

    /// Makes a connection; gives back the first node's end.
    pub(crate) fn connect(
        &mut self,
        (a, b): (usize, usize),
        queue_bytes: usize,
        defects: Defects,
        mut delay: impl FnMut() -> (Millis, Millis),
    ) -> u32 {
        let first = self.ends.len() as u32;
        for node in [a, b] {
            self.ends.push(End {
                node,
                open: true,
                queue: Some(LinkQueue::bounded(queue_bytes, defects)),
                flight: Flight::default(),
                delay_ms: delay(),
                broken: false,
                stalled_until: 0,
                serve_due: 0,
                serving: false,
                look_planned: false,
                talk: Talk::default(),
            });
        }
        first
    }

    /// Whether nothing gets through in one of the two directions.
    pub(crate) fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cuts.is_cut_somehow(a, b)
    }
}
