//! How a node's tasks learn that it ends, and why it did.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use event_listener::Event;
use futures::future::{Either, select};
use parking_lot::Mutex;

/// Why a node ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StopReason {
    /// The program that runs the node asked for it.
    #[error("the node was asked to stop")]
    Requested,
    /// A client sent it away.
    #[error("the node left its network because a client asked for it")]
    Left,
    /// The same, and it does not come back: the others have agreed to go on without it.
    #[error("the node left its network for good because a client asked for it")]
    LeftForGood,
    /// Another live node has this node's name, and stayed alive for as long as it was tried.
    /// Starting again does not help as long as it runs.
    #[error(
        "the name {name:?} is taken in network {network:?}: {told}; choose another --name, or stop \
         the other node{}", of_copies(*has_directory)
    )]
    NameInUse {
        /// The name that both have.
        name: String,
        /// The network.
        network: String,
        /// What the network's nodes answered.
        told: String,
        /// This node has a data directory, which may be a copy.
        has_directory: bool,
    },
    /// All peers that this node was given refuse it for good. Starting again does not help unless a
    /// setting is changed.
    #[error("no peer accepts this node: {why}")]
    Refused {
        /// One of them, and its answer or its kind.
        why: String,
    },
    /// The host names of all peers that this node was told of do not exist, and it has no data to go on with.
    #[error(
        "no peer can be called: {address}: {why}; check the names of the peers, or the name service{}",
        of_first_nodes(*may_found)
    )]
    UnknownPeers {
        /// One of them.
        address: String,
        /// What the name service says.
        why: String,
        /// It is one that founds a network where there is none.
        may_found: bool,
    },
    /// The saved state that the node should start with could not be taken in.
    #[error("{0}")]
    Load(String),
    /// The system refused something that the node cannot do without.
    #[error("{0}")]
    Failed(String),
}

/// What a node does whose directory is a copy of another one's.
fn of_copies(has_directory: bool) -> &'static str {
    match has_directory {
        true => {
            ". A copy of that node's data directory keeps its name: start with an empty directory and another \
             --name; `distkv-node snapshot restore DIR` takes over what only the copy has"
        }
        false => "",
    }
}

/// What somebody may have wanted who names peers that do not exist yet.
fn of_first_nodes(may_found: bool) -> &'static str {
    match may_found {
        true => "; the first node of a new network is started without peers",
        false => "",
    }
}

/// Shared by all tasks of a node. Clones are the same signal.
#[derive(Clone, Default)]
pub(in crate::node) struct Stop {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The node is going away: nothing new is begun.
    leaving: AtomicBool,
    /// Tasks end now.
    stopped: AtomicBool,
    /// The first reason that was given.
    reason: Mutex<Option<StopReason>>,
    changed: Event,
}

impl Stop {
    /// Asks for the node's end; the first reason counts.
    pub(in crate::node) fn request(&self, reason: StopReason) {
        self.shared.reason.lock().get_or_insert(reason);
        self.shared.leaving.store(true, Ordering::Release);
        self.shared.changed.notify(usize::MAX);
    }

    /// Ends all tasks.
    pub(in crate::node) fn finish(&self) {
        self.shared.leaving.store(true, Ordering::Release);
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.changed.notify(usize::MAX);
    }

    /// Whether the node is going away.
    pub(in crate::node) fn is_requested(&self) -> bool {
        self.shared.leaving.load(Ordering::Acquire)
    }

    /// Whether tasks should end.
    pub(in crate::node) fn is_finished(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire)
    }

    /// Why the node ends, if it does.
    pub(in crate::node) fn reason(&self) -> Option<StopReason> {
        self.shared.reason.lock().clone()
    }

    /// Waits until the node is going away.
    pub(in crate::node) async fn requested(&self) {
        self.wait(Self::is_requested).await;
    }

    /// Waits until tasks should end.
    pub(in crate::node) async fn finished(&self) {
        self.wait(Self::is_finished).await;
    }

    async fn wait(&self, condition: impl Fn(&Self) -> bool) {
        loop {
            let listener = self.shared.changed.listen();
            if condition(self) {
                return;
            }
            listener.await;
        }
    }

    /// The future's output, or `None` when tasks should end before it is done; then it was
    /// dropped.
    pub(in crate::node) async fn or<F: Future>(&self, future: F) -> Option<F::Output> {
        match select(pin!(future), pin!(self.finished())).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(((), _)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt;

    #[test]
    fn who_has_no_directory_is_not_told_what_to_do_with_it() {
        let told = |has_directory| {
            let [name, network, told] = ["n1", "lab", "it is at x"].map(String::from);
            StopReason::NameInUse { name, network, told, has_directory }.to_string()
        };
        let memory = told(false);
        assert!(memory.ends_with("choose another --name, or stop the other node"), "{memory}");
        let disk = told(true);
        assert!(disk.contains("stop the other node. A copy of") && disk.contains("restore DIR"));
    }

    #[test]
    fn the_first_reason_counts_and_wakes_whoever_waits() {
        let stop = Stop::default();
        let waiting = stop.clone();
        let task = rt::spawn(async move { waiting.or(std::future::pending::<()>()).await });
        stop.request(StopReason::Left);
        stop.request(StopReason::Requested);
        assert!(stop.is_requested() && !stop.is_finished());
        rt::block_on(stop.requested());
        stop.finish();
        assert_eq!(rt::block_on(task), None);
        assert_eq!(stop.reason(), Some(StopReason::Left));
    }
}
