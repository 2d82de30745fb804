//! Asks all nodes of a network how they are, again and again. A node that does not answer keeps nobody waiting for
//! long.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;

use super::super::roster::Roster;
use super::rows::Look;
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs, no_greeting_as_told};
use crate::cli::terminal::output::printable;
use crate::client::{Access, Connection, Fields, HostPort, Message, Options};
use crate::model::ids::Millis;
use crate::rt;

/// Most nodes that are asked; further ones are counted.
const NODES_MAX: usize = 512;
/// A node that takes longer does not answer, for this table, unless `--timeout` says something else.
const PATIENCE: Duration = Duration::from_secs(2);

/// The nodes whose addresses are known, and the connections to them.
pub(super) struct Nodes {
    access: Access,
    patience: Duration,
    /// By name. Invariant: between two looks at most [`NODES_MAX`].
    nodes: BTreeMap<String, Node>,
    /// Nodes beyond that.
    left_out: usize,
}

/// What came of asking nodes, by name: the answer, or why there is none.
type Asked = BTreeMap<String, Result<Answer, String>>;

/// A node's status and its view of the members, and when it told them.
struct Answer {
    status: Message,
    members: Message,
    at_ms: Millis,
}

struct Node {
    remote: Option<Remote>,
    address: HostPort,
    /// How the other nodes see it.
    state: String,
}

impl Nodes {
    /// Begins with the node that is named.
    pub(super) async fn begin(args: &RemoteArgs) -> Result<Self, CliError> {
        let first = args.connect().await?;
        // Whether this client may ask is told at once.
        first.request("status", &Fields::new()).await?;
        let address = HostPort::parse(first.connection.address(), None);
        let address = address.map_err(|error| CliError::Failure(error.to_string()))?;
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
        let mut roster = Roster::new(NODES_MAX, self.nodes.keys().cloned());
        let mut told = Asked::new();
        loop {
            let came = self.ask_others(&told).await;
            if came.is_empty() {
                break;
            }
            came.values().flatten().for_each(|answer| roster.note(&answer.members));
            for (name, address) in roster.take_new(|_| true) {
                self.nodes.insert(name, Node { remote: None, address, state: String::new() });
            }
            told.extend(came);
        }
        self.take_over(&roster);
        let mut looks = BTreeMap::new();
        for (name, member) in roster.not_asked() {
            // Of one that is down nobody needs to know more.
            let state = member.state.clone();
            let look = match state.as_str() {
                "down" => Look::Silent { state, why: String::new() },
                _ => Look::NoAddress { state },
            };
            looks.insert(name.clone(), look);
        }
        for (name, node) in &self.nodes {
            let look = match told.remove(name) {
                Some(Ok(Answer { status, members, at_ms })) => {
                    Look::Answer { status, members, at_ms }
                }
                Some(Err(why)) => Look::Silent { state: node.state.clone(), why },
                None => Look::Silent { state: node.state.clone(), why: String::new() },
            };
            looks.insert(name.clone(), look);
        }
        looks
    }

    /// Keeps what is to be known at the next look.
    fn take_over(&mut self, roster: &Roster) {
        self.left_out = roster.left_out();
        let members = roster.members();
        if members.is_empty() {
            return;
        }
        // One that none of the others knows any more has left.
        self.nodes.retain(|name, node| members.contains_key(name) || node.remote.is_some());
        for (name, node) in &mut self.nodes {
            let Some(member) = members.get(name) else { continue };
            member.state.clone_into(&mut node.state);
            if let (None, Some(address)) = (&node.remote, &member.address) {
                node.address = address.clone();
            }
        }
    }

    /// Asks at once all that are known, without those that were asked.
    async fn ask_others(&mut self, asked: &Asked) -> Asked {
        let (access, patience) = (&self.access, self.patience);
        let others = self.nodes.iter_mut().filter(|(name, _)| !asked.contains_key(*name));
        let others = others.map(|(name, node)| async move {
            let told = rt::timeout(patience, node.ask(name, access, patience)).await;
            let told = told.unwrap_or_else(|| Err(silent_for(patience)));
            if told.is_err() {
                node.remote = None;
            }
            (name.clone(), told.map_err(|error| printable(&error.to_string()).into_owned()))
        });
        join_all(others).await.into_iter().collect()
    }
}

impl Node {
    /// Its status and its view of the members.
    ///
    /// # Errors
    /// It does not answer, or another node does in its place.
    async fn ask(
        &mut self,
        name: &str,
        access: &Access,
        patience: Duration,
    ) -> Result<Answer, CliError> {
        if self.remote.is_none() {
            let options = Options {
                connect_timeout: patience,
                window: None,
                nowait: true,
                access: access.clone(),
            };
            let connection = Connection::connect(&self.address, options).await;
            let connection = connection.map_err(no_greeting_as_told)?;
            let other = &connection.greeting().node;
            if other != name {
                return Err(CliError::Failure(format!(
                    "at its client address {} another node answers, {other}",
                    self.address
                )));
            }
            self.remote = Some(Remote::over(connection, patience));
        }
        let Some(remote) = &self.remote else { return Err(silent_for(patience)) };
        let status = remote.request("status", &Fields::new()).await?;
        let members = remote.request("members", &Fields::new()).await?;
        Ok(Answer { status, members, at_ms: rt::now() })
    }
}

fn silent_for(patience: Duration) -> CliError {
    CliError::Failure(format!("it did not answer within {patience:?}"))
}
