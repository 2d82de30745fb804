//! Asks all nodes of a network how they are, again and again. A node that does not answer keeps nobody waiting for
//! long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;

use super::rows::Look;
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::client::message::array_items;
use crate::client::{Access, Connection, Fields, HostPort, Message, Options};
use crate::model::ids::Millis;
use crate::rt;

/// Most nodes that are asked; of a larger network the first by name.
const NODES_MAX: usize = 512;
/// Most steps from a node to those whose addresses only it knows: in a large network a node is linked to a few others, whose
/// addresses it has, and every node is a few steps away.
const STEPS_MAX: usize = 16;
/// A node that takes longer does not answer, for this table.
const PATIENCE: Duration = Duration::from_secs(2);

/// The nodes that are known, and the connections to them.
pub(super) struct Nodes {
    access: Access,
    patience: Duration,
    /// By name. Invariant: at most [`NODES_MAX`].
    nodes: BTreeMap<String, Node>,
    /// Nodes beyond that.
    left_out: usize,
}

/// What came of asking nodes, by name.
type Asked = BTreeMap<String, Option<Answer>>;

/// A node's status and its view of the members, and when it told them.
struct Answer {
    status: Message,
    members: Message,
    at_ms: Millis,
}

#[derive(Default)]
struct Node {
    remote: Option<Remote>,
    address: Option<HostPort>,
    /// How the other nodes see it.
    state: String,
}

impl Nodes {
    /// Begins with the node that is named.
    pub(super) async fn begin(args: &RemoteArgs) -> Result<Self, CliError> {
        let first = args.connect().await?;
        // Whether this client may ask is told at once.
        first.request("status", &Fields::new()).await?;
        let address = HostPort::parse(first.connection.address(), None).ok();
        let name = first.connection.greeting().node.clone();
        let patience = args.timeout.unwrap_or(PATIENCE).min(args.timeout_or_default());
        let node = Node { remote: Some(first), address, state: String::new() };
        Ok(Self {
            access: args.access()?,
            patience,
            nodes: BTreeMap::from([(name, node)]),
            left_out: 0,
        })
    }

    /// Nodes that are not asked, because there are too many.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// Asks all nodes: those whose addresses are known at once, then those whose addresses these tell. How each is, by name.
    pub(super) async fn look(&mut self) -> BTreeMap<String, Look> {
        let mut told = BTreeMap::new();
        let mut known = BTreeSet::new();
        for _ in 0..STEPS_MAX {
            let came = self.ask_others(&told).await;
            if came.is_empty() {
                break;
            }
            for answer in came.values().flatten() {
                self.note_members(&answer.members, &mut known);
            }
            told.extend(came);
        }
        // One that none of the others knows any more has left.
        let is_known = |name: &String, node: &Node| known.contains(name) || node.remote.is_some();
        if !known.is_empty() {
            self.nodes.retain(|name, node| is_known(name, node));
        }
        self.left_out = known.iter().filter(|name| !self.nodes.contains_key(*name)).count();
        let look = |(name, node): (&String, &Node)| {
            let state = node.state.clone();
            let look = match told.remove(name) {
                Some(Some(Answer { status, members, at_ms })) => {
                    Look::Answer { status, members, at_ms }
                }
                Some(None) => Look::Silent { state },
                // Of one that is down nobody needs to know more.
                None if state == "down" => Look::Silent { state },
                None => Look::NoAddress { state },
            };
            (name.clone(), look)
        };
        self.nodes.iter().map(look).collect()
    }

    /// Asks at once all that can be asked, without those that were.
    async fn ask_others(&mut self, asked: &Asked) -> Asked {
        let (access, patience) = (&self.access, self.patience);
        let others = self.nodes.iter_mut();
        let others = others.filter(|(name, node)| !asked.contains_key(*name) && node.has_address());
        let others = others.map(|(name, node)| async move {
            let told = rt::timeout(patience, node.ask(name, access)).await.flatten();
            if told.is_none() {
                node.remote = None;
            }
            (name.clone(), told)
        });
        join_all(others).await.into_iter().collect()
    }

    /// Takes in what a node says of all.
    fn note_members(&mut self, members: &Message, known: &mut BTreeSet<String>) {
        let rows = array_items(members.get("result").unwrap_or_default());
        for row in rows.filter_map(|row| Message::new(row).ok()) {
            let (Some(name), Some(state)) = (row.str("name"), row.str("state")) else { continue };
            if state == "left" {
                continue;
            }
            known.insert(name.to_owned());
            if !self.nodes.contains_key(name) && self.nodes.len() >= NODES_MAX {
                continue;
            }
            let node = self.nodes.entry(name.to_owned()).or_default();
            if state != "self" {
                state.clone_into(&mut node.state);
            }
            let address = row.str("client").and_then(|text| HostPort::parse(text, None).ok());
            if node.remote.is_none() && address.is_some() {
                node.address = address;
            }
        }
    }
}

impl Node {
    fn has_address(&self) -> bool {
        self.remote.is_some() || self.address.is_some()
    }

    /// Its status and its view of the members; none if it does not answer, or another node does in its place.
    async fn ask(&mut self, name: &str, access: &Access) -> Option<Answer> {
        if self.remote.is_none() {
            let options = Options {
                connect_timeout: PATIENCE,
                window: None,
                nowait: true,
                access: access.clone(),
            };
            let connection = Connection::connect(self.address.as_ref()?, options).await.ok()?;
            if connection.greeting().node != name {
                return None;
            }
            self.remote = Some(Remote::over(connection, PATIENCE));
        }
        let remote = self.remote.as_ref()?;
        let status = remote.request("status", &Fields::new()).await.ok()?;
        let members = remote.request("members", &Fields::new()).await.ok()?;
        Some(Answer { status, members, at_ms: rt::now() })
    }
}
