//! The conflicts that nodes have found: each node lists those that it found itself, so all live
//! nodes are asked.

use std::collections::BTreeSet;

use futures::future::join_all;

use super::entry::{Entry, entry_of, malformed};
use super::ops::next_item;
use crate::error::ClientError;
use crate::message::{Fields, Message};
use crate::model::path::Path;
use crate::rt;
use crate::smart::error::{At, CallError, Fate};
use crate::smart::{Client, Inner};
use crate::topology::Target;

/// Two changes of an entry, neither of which knew of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Where.
    pub path: Path,
    /// The version that is kept everywhere.
    pub winner: Entry,
    /// The one that is lost.
    pub loser: Entry,
    /// The first node that reported it.
    pub node: String,
}

/// Conflicts, and the nodes that reported them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConflictsFound {
    /// Each once, however many nodes found it; of one node in the order in which it found them.
    pub conflicts: Vec<Conflict>,
    /// The nodes that answered.
    pub nodes: Vec<String>,
    /// Live nodes that did not, and why: they may have found others.
    pub missing: Vec<(String, ClientError)>,
}

impl Client {
    /// The recent conflicts at and below a path that the live nodes have found.
    ///
    /// # Errors
    /// [`CallError::Unavailable`] if no node answered.
    pub async fn conflicts(&self, path: &Path) -> Result<ConflictsFound, CallError> {
        let routing = self.inner.topology.routing();
        let live: Vec<&Target> = routing.targets.iter().filter(|target| target.is_live).collect();
        let answers = join_all(live.iter().map(|target| self.inner.conflicts_of(target, path)));
        let mut found = ConflictsFound::default();
        let mut known = BTreeSet::new();
        for (target, answer) in live.iter().zip(answers.await) {
            match answer {
                Ok(conflicts) => {
                    found.nodes.push(target.name.clone());
                    let new = conflicts.into_iter().filter(|conflict| known.insert(key(conflict)));
                    found.conflicts.extend(new);
                }
                Err(error) => found.missing.push((target.name.clone(), error)),
            }
        }
        if found.nodes.is_empty()
            && let Some((node, error)) = found.missing.pop()
        {
            let at = At { node: Some(node), attempts: 1, fate: Fate::NotDone };
            return Err(CallError::Unavailable { error, at });
        }
        Ok(found)
    }
}

impl Inner {
    /// What one node lists.
    async fn conflicts_of(
        &self,
        target: &Target,
        path: &Path,
    ) -> Result<Vec<Conflict>, ClientError> {
        let patience = self.config.retry.try_deadline;
        let listing = async {
            let used = self.pool.get(&target.address).await?;
            let mut fields = Fields::at(path);
            fields.u64("nchain", 1).bool("with_time", true);
            let mut stream = used.connection().stream("conflicts", &fields).await?;
            let mut conflicts = Vec::new();
            // A node keeps a bounded list of them.
            while let Some((below, message)) =
                next_item(&mut stream, &target.name, patience).await?
            {
                let path = path.join(&below).map_err(|_| malformed(&target.name, "path"))?;
                let conflict = conflict_of(path, &message, &target.name);
                conflicts.push(conflict.ok_or_else(|| malformed(&target.name, "conflict"))?);
            }
            Ok(conflicts)
        };
        let silent = || ClientError::Connect {
            address: target.address.to_string(),
            reason: format!("no whole list within {:?}", self.config.retry.total_deadline),
        };
        let listed = rt::timeout(self.config.retry.total_deadline, listing).await;
        listed.unwrap_or_else(|| Err(silent()))
    }
}

fn conflict_of(path: Path, message: &Message, node: &str) -> Option<Conflict> {
    let both = Message::new(message.get("conflict")?).ok()?;
    let version = |name: &str| entry_of(&Message::new(both.get(name)?).ok()?, node).ok();
    let (winner, loser) = (version("winner")?, version("loser")?);
    Some(Conflict { path, winner, loser, node: node.to_owned() })
}

/// By which a conflict is known again: the newest events of both versions.
fn key(conflict: &Conflict) -> (Path, [Option<String>; 2]) {
    let event = |entry: &Entry| entry.chain.as_ref().map(|chain| chain.newest.to_string());
    (conflict.path.clone(), [event(&conflict.winner), event(&conflict.loser)])
}
