//! A node's last changes should reach another node before it stops, and its operator should know if
//! they did not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use distkv_command::output::shell_file;

use crate::engine::Engine;
use crate::model::count::count_of;
use crate::model::ids::Millis;
use crate::node::link::Links;
use crate::rt;

/// The time between two looks, besides those when an acknowledgement comes.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until another node has every change that this one has made since its start; not if no peer
/// is linked, unless one soon will be, and not beyond `deadline`.
pub(in crate::node) async fn wait_for_copies(links: &Links, for_link: bool, deadline: Millis) {
    loop {
        let acknowledged = links.hub.acknowledged.listen();
        let is_done = links.hub.read(Engine::unshared_changes) == 0;
        let has_peer = for_link || links.count() > 0;
        if is_done || !has_peer || rt::now() >= deadline {
            return;
        }
        let _ = rt::timeout(LOOK_INTERVAL, acknowledged).await;
    }
}

/// Where a node's changes are when it stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::node) enum Kept {
    /// In memory only.
    InMemory,
    /// In the data directory, all of them.
    OnDisk,
    /// In this data directory, all of them; but the network does not take the node as it is.
    Apart(PathBuf),
    /// The data directory could not be written at the end: it may lack some.
    InPart,
}

/// Says how many changes leave the network with this node. Returns whether the disk has lost some that it should have kept.
pub(in crate::node) fn tell_of_changes(links: &Links, kept: &Kept) -> bool {
    let changes = links.hub.read(Engine::unshared_changes);
    if changes == 0 {
        return false;
    }
    let are = count_of(changes, "change of this node is", "changes of this node are");
    let what = format!("{are} on no other node");
    match kept {
        Kept::OnDisk => {
            tracing::warn!("{what}: the data directory has all; start the node again to share it");
        }
        Kept::Apart(directory) => tracing::warn!(
            "{what}: the data directory has all; to bring them into the network, type: {}",
            bring_in(directory)
        ),
        Kept::InPart => tracing::warn!(
            "{what}, and the data directory may not have all, because the disk has failed: those that it lacks are lost now"
        ),
        Kept::InMemory => {
            tracing::warn!(
                "{what}, as far as this one knows: this node kept its data in memory, so what no other has received is \
                 lost now"
            );
        }
    }
    *kept == Kept::InPart
}

/// The command that takes a data directory's state into a network, as it can be pasted.
fn bring_in(directory: &Path) -> String {
    format!("distkv-node snapshot restore {}", shell_file(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_brings_changes_back_can_be_pasted() {
        for (directory, word) in [
            ("/var/lib/distkv", "/var/lib/distkv"),
            ("/srv/my data", "'/srv/my data'"),
            ("-data", "./-data"),
        ] {
            let expected = format!("distkv-node snapshot restore {word}");
            assert_eq!(bring_in(Path::new(directory)), expected);
        }
    }
}
