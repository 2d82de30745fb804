//! The conflicts that nodes have found: each node lists those that it found itself, so all live
//! nodes are asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use futures::stream::{self, BoxStream, SelectAll, Stream, StreamExt, select_all};

use super::entry::{Entry, entry_of, malformed};
use super::tree::next_item;
use crate::connection::ReplyStream;
use crate::connection::Use;
use crate::connection::group::Member;
use crate::error::ClientError;
use crate::message::{Fields, Message};
use crate::model::path::Path;
use crate::retry::{Reason, RetryPolicy};
use crate::rt;
use crate::smart::choice::call::final_error;
use crate::smart::choice::tries::{Try, TryTime};
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

/// Conflicts as they come, of all live nodes at once. Dropping it ends it.
pub struct ConflictStream {
    client: Arc<Inner>,
    /// Closing the client waits for it, until it has ended.
    open: Option<Member>,
    listings: SelectAll<BoxStream<'static, Told>>,
    /// Of those that were given: at most as many as all nodes list.
    known: BTreeSet<Key>,
    nodes: Vec<String>,
    missing: Vec<(String, ClientError)>,
}

/// What a node said next, and which: a conflict, or that there are no more.
type Told = (String, Result<Option<Conflict>, ClientError>);

impl std::fmt::Debug for ConflictStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("ConflictStream");
        debug.field("nodes", &self.nodes).field("missing", &self.missing).finish_non_exhaustive()
    }
}

impl Client {
    /// The recent conflicts at and below a path that the live nodes have found. A node lists the last 1,024.
    ///
    /// # Errors
    /// If no node answered: [`CallError::Refused`] or [`CallError::NoAccess`], if the last one refused it for good, else
    /// [`CallError::Unavailable`].
    pub async fn conflicts(&self, path: &Path) -> Result<ConflictsFound, CallError> {
        let _open = self.inner.open_call()?;
        let listings = self.listings(path);
        let patience = self.inner.config.retry.total_deadline;
        let answers = join_all(listings.into_iter().map(|mut listing| async move {
            let name = listing.target.name.clone();
            let all = rt::timeout(patience, listing.all()).await;
            let silent = || ClientError::Silent {
                address: listing.target.address.to_string(),
                reason: format!("no whole list of conflicts within {patience:?}"),
            };
            (name, all.unwrap_or_else(|| Err(silent())))
        }));
        let mut found = ConflictsFound::default();
        let mut known = BTreeSet::new();
        for (name, answer) in answers.await {
            match answer {
                Ok(conflicts) => {
                    found.nodes.push(name);
                    let new = conflicts.into_iter().filter(|conflict| known.insert(key(conflict)));
                    found.conflicts.extend(new);
                }
                Err(error) => found.missing.push((name, error)),
            }
        }
        if found.nodes.is_empty()
            && let Some((node, error)) = found.missing.pop()
        {
            return Err(nobody(node, error));
        }
        Ok(found)
    }

    /// The same conflicts as they come: each once, however many nodes found it; of one node in the
    /// order in which it found them. It ends when all nodes have listed theirs.
    ///
    /// ```
    /// # use distkv::testing::{TestCluster, block_on};
    /// use distkv_client::{Client, ClientConfig};
    ///
    /// # block_on(async {
    /// # let cluster = TestCluster::start(1).await?;
    /// # let seeds = cluster.seeds();
    /// let client = Client::connect(seeds, ClientConfig::new()).await?;
    /// let mut conflicts = client.conflict_stream(&"site".parse()?)?;
    /// while let Some(conflict) = conflicts.next().await? {
    ///     println!("{}: {:?} was lost", conflict.path, conflict.loser.value);
    /// }
    /// for (node, error) in conflicts.missing() {
    ///     println!("{node} may know more: {error}");
    /// }
    /// # cluster.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`CallError::Closed`].
    pub fn conflict_stream(&self, path: &Path) -> Result<ConflictStream, CallError> {
        let open = self.inner.open_call()?;
        let listings = self.listings(path);
        Ok(ConflictStream {
            client: Arc::clone(&self.inner),
            open: Some(open),
            listings: select_all(listings.into_iter().map(Listing::into_stream)),
            known: BTreeSet::new(),
            nodes: Vec::new(),
            missing: Vec::new(),
        })
    }

    /// One of each live node.
    fn listings(&self, path: &Path) -> Vec<Listing> {
        let routing = self.inner.topology.routing();
        let live = routing.targets.iter().filter(|target| target.is_live);
        let listing = |target: &Target| Listing {
            client: Arc::clone(&self.inner),
            target: target.clone(),
            path: path.clone(),
            stream: None,
        };
        live.map(listing).collect()
    }
}

impl ConflictStream {
    /// The next conflict; `None` when all nodes have listed theirs. Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`Client::conflicts`], at the end.
    pub async fn next(&mut self) -> Result<Option<Conflict>, CallError> {
        while let Some((node, told)) = self.listings.next().await {
            match told {
                Ok(Some(conflict)) if self.known.insert(key(&conflict)) => {
                    return Ok(Some(conflict));
                }
                Ok(Some(_)) => {}
                Ok(None) => self.nodes.push(node),
                Err(error) => self.missing.push((node, error)),
            }
        }
        self.open = None;
        match (self.nodes.is_empty(), self.missing.last()) {
            (true, Some((node, _))) if self.client.pool.is_closed() => {
                let at = At { node: Some(node.clone()), attempts: 1, fate: Fate::NotDone };
                Err(CallError::Closed(at))
            }
            (true, Some((node, error))) => Err(nobody(node.clone(), error.clone())),
            (_, _) => Ok(None),
        }
    }

    /// The same as a stream, which ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Conflict, CallError>> + Send {
        stream::unfold(Some(self), |conflicts| async move {
            let mut conflicts = conflicts?;
            let next = conflicts.next().await.transpose()?;
            let rest = next.is_ok().then_some(conflicts);
            Some((next, rest))
        })
    }

    /// The nodes that have listed all of theirs so far.
    #[must_use]
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Live nodes that could not list all of theirs, and why: they may have found others.
    #[must_use]
    pub fn missing(&self) -> &[(String, ClientError)] {
        &self.missing
    }
}

/// What one node lists: a bounded number.
struct Listing {
    client: Arc<Inner>,
    target: Target,
    path: Path,
    /// None before it has begun.
    stream: Option<ReplyStream>,
}

impl Listing {
    async fn next(&mut self) -> Result<Option<Conflict>, ClientError> {
        let patience = self.client.config.retry.try_deadline;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(self.client.begin_listing(&self.target, &self.path).await?),
        };
        let name = &self.target.name;
        let Some((below, message)) = next_item(stream, name, patience).await? else {
            return Ok(None);
        };
        let path = self.path.join(&below).map_err(|_| malformed(name, "path"))?;
        let conflict = conflict_of(path, &message, name);
        conflict.map(Some).ok_or_else(|| malformed(name, "conflict"))
    }

    async fn all(&mut self) -> Result<Vec<Conflict>, ClientError> {
        let mut conflicts = Vec::new();
        while let Some(conflict) = self.next().await? {
            conflicts.push(conflict);
        }
        Ok(conflicts)
    }

    fn into_stream(self) -> BoxStream<'static, Told> {
        let listing = stream::unfold(Some(self), |listing| async move {
            let mut listing = listing?;
            let next = listing.next().await;
            let told = (listing.target.name.clone(), next);
            let rest = matches!(told.1, Ok(Some(_))).then_some(listing);
            Some((told, rest))
        });
        listing.boxed()
    }
}

impl Inner {
    async fn begin_listing(
        &self,
        target: &Target,
        path: &Path,
    ) -> Result<ReplyStream, ClientError> {
        let RetryPolicy { try_deadline: patience, total_deadline, .. } = self.config.retry;
        let mut fields = Fields::at(path);
        fields.u64("nchain", 1).bool("with_time", true);
        let time = TryTime {
            started_us: rt::now_us(),
            patience,
            longest: patience.max(total_deadline),
            bytes: fields.byte_len(),
            counts_for: None,
        };
        let begin = |this: Try| {
            let fields = &fields;
            async move { this.connection().stream("conflicts", fields).await }
        };
        let begun = self.try_at(target, Use::Stream, time, &begin).await;
        begun.map(|(stream, _)| stream).map_err(|failed| failed.error)
    }
}

fn nobody(node: String, error: ClientError) -> CallError {
    let at = At { node: Some(node), attempts: 1, fate: Fate::NotDone };
    final_error(error, at, Reason::Final)
}

fn conflict_of(path: Path, message: &Message, node: &str) -> Option<Conflict> {
    let both = Message::new(message.get("conflict")?).ok()?;
    let version = |name: &str| entry_of(&Message::new(both.get(name)?).ok()?, node).ok();
    let (winner, loser) = (version("winner")?, version("loser")?);
    Some(Conflict { path, winner, loser, node: node.to_owned() })
}

/// By which a conflict is known again: the newest events of both versions.
type Key = (Path, [Option<String>; 2]);

fn key(conflict: &Conflict) -> Key {
    let event = |entry: &Entry| entry.chain.as_ref().map(|chain| chain.newest.to_string());
    (conflict.path.clone(), [event(&conflict.winner), event(&conflict.loser)])
}
