//! `conflicts`: changes that met without knowing of each other, and which of them was kept.

mod follow;
mod node;
mod told;

use clap::Args;
use futures::stream::{self, StreamExt as _};

use self::node::Node;
use self::told::{Printer, Told};
use super::roster::Roster;
use crate::cli::error::CliError;
use crate::cli::remote::{RemoteArgs, parse_path};
use crate::cli::say;
use crate::cli::terminal::output::{count_of, end_with_reader, printable, shown_path};
use crate::model::path::Path;

/// Most nodes that are asked: as many as a network is made for.
const NODES_MAX: usize = 1_024;
/// Nodes that are asked at once.
const AT_ONCE_MAX: usize = 64;

/// Print conflicts: concurrent changes of one entry, and which of them was kept
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node conflicts                 # the recent ones, oldest first
  distkv-node conflicts site --limit 5  # the last five below site
  distkv-node conflicts --follow        # the recent ones, then each new one
  distkv-node conflicts --all           # as all nodes found them
  distkv-node conflicts --json | jq -r .path

When two nodes change an entry before either has heard of the other's change, only one \
version can stay. Every node keeps the same one; the other is lost. That is a conflict. It \
is printed with both values, the events that made them (newest first), their tocks, and when \
they were made, where that is known. The greater tock wins; of equal tocks, the greater node name:

  3  site.lamp
     kept  {\"on\":true}   n2~c36f00112233:5  tock 17  2026-11-21T09:14:42.123Z
     lost  {\"on\":false}  n3~9a0b1c2d3e4f:2  tock 16  2026-11-21T09:14:41.950Z

'(deleted)' stands for a version without a value. A change that a node made while it was cut \
off also wins against a deletion that was purged meanwhile, which has no tock any more.

To bring the lost value back, set it again: that is a new change, made in the knowledge of \
the other.

A node finds a conflict when it holds one of the two versions and receives the other. Nodes \
that only ever saw the winner list nothing; --all asks every member, at the client address \
that it announces, and prints each conflict once. A node keeps the last 1024 conflicts (and \
16 MiB) since its start. Its log has a line for the first 64 a minute of one subtree (128 of \
all), and one with the count of the others; with --log debug each has a line.

An admin is also shown conflicts in the system's own tree (users, access lists), below ':n': \
if two admins changed one list on two sides of a split, only one of the changes counts, and \
both are there. Others are shown what they may read, so none below ':n'.

With --json, one object per line: node, number, path, changed (whether the conflict changed \
that node's value), winner and loser with value (or \"deleted\": true), chain, tock (0: none), \
and time, where it is known.

With --follow, a node that is lost is connected to again, for as long as that takes, and what it found meanwhile \
is printed: of a node that was restarted, all that it lists and that was not printed. So is one whose certificate \
is not valid at this time when it is back, because one of the two clocks is wrong.

Exit code: 0 done, 1 a node could not be asked (with --all) or ended its answer, 2 usage, 3 \
refused, 6 no node was reached, or, with --no-reconnect, the connection was lost; 8 it cannot be written.")]
pub(in crate::cli) struct ConflictsArgs {
    /// Below which path; ':' is the root
    #[arg(value_parser = parse_path, default_value = ":")]
    path: Path,

    /// Then print each new conflict as it is found
    #[arg(short, long)]
    follow: bool,

    /// Print only this many of the recent ones, the latest
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// End after this many conflicts
    #[arg(long, value_name = "N", requires = "follow")]
    count: Option<u64>,

    /// Ask all nodes of the network, not only this one
    #[arg(long)]
    all: bool,

    /// With --follow, end with exit code 1 when the node stops and 6 when the connection is lost, instead of connecting again
    #[arg(long, requires = "follow")]
    no_reconnect: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: ConflictsArgs) -> Result<(), CliError> {
    let first = Node::named(&args.remote, &args.path).await?;
    let mut asking = Asking { nodes: vec![first], is_complete: true };
    if args.all {
        asking.add_members(&args).await?;
    }
    if args.follow {
        end_with_reader(args.count.is_some())?;
        // Before the lists are asked for, so that none is missed between the two.
        asking.watch().await?;
        let address = asking.nodes.first().map(|node| node.remote.connection.address());
        let (address, names) = (address.unwrap_or_default(), asking.names());
        let path = shown_path(&args.path);
        say::line(&format!("following conflicts below {path} at {address} (node {names})"));
    }
    let mut printer = Printer::new(&args);
    let recent = asking.list(&args).await?;
    printer.print_recent(recent)?;
    if args.follow {
        return follow::follow(asking.nodes, &args, &mut printer).await;
    }
    if printer.printed == 0 {
        let place = match args.path.is_root() {
            true => String::new(),
            false => format!(" below {}", shown_path(&args.path)),
        };
        // It must not seem that there are none of those which the session is not told of.
        let others = match asking.nodes.iter().all(Node::tells_all) {
            true => "",
            false => " (those of users and access lists, below :n, are told to admins only)",
        };
        let names = asking.names();
        say::line(&format!("no conflicts were found at {names} since the start{place}{others}"));
    }
    if asking.is_complete { Ok(()) } else { Err(CliError::Told) }
}

/// Does this at so many nodes at once as may be: silent ones are waited for together. What came of it is in their order.
async fn at_once<T>(work: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    stream::iter(work).buffered(AT_ONCE_MAX).collect().await
}

/// The nodes that are asked, first the one that was named.
struct Asking {
    nodes: Vec<Node>,
    /// All that should have been asked could be.
    is_complete: bool,
}

impl Asking {
    fn names(&self) -> String {
        let names: Vec<_> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        names.join(", ")
    }

    /// A node cannot be asked; the first one must be.
    fn leave_out(&mut self, name: &str, is_first: bool, error: CliError) -> Result<(), CliError> {
        match error {
            CliError::Usage(why) | CliError::Failure(why) | CliError::Request { text: why, .. }
                if !is_first =>
            {
                self.is_complete = false;
                say::line(&format!("{name} is left out: {}", printable(&why)));
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Adds the other members of the first node's network.
    async fn add_members(&mut self, args: &ConflictsArgs) -> Result<(), CliError> {
        let first = self.nodes.first().map(|node| node.remote.connection.greeting().node.clone());
        let mut roster = Roster::new(NODES_MAX, first);
        let mut asked = 0;
        while asked < self.nodes.len() {
            let told = at_once(self.nodes.iter().skip(asked).map(Node::members)).await;
            for (index, reply) in told.into_iter().enumerate() {
                match reply {
                    Ok(reply) => roster.note(&reply),
                    Err(error) if asked + index == 0 => return Err(error),
                    // It is asked for its conflicts all the same, which tells what is wrong.
                    Err(_) => {}
                }
            }
            asked = self.nodes.len();
            // To wait for one that is down is in vain; but another node may know better.
            let new = roster.take_new(|member| member.state != "down");
            let connecting = new.into_iter().map(async |(name, address)| {
                let name = printable(&name).into_owned();
                (Node::connect(&name, address, (&args.remote, &args.path)).await, name)
            });
            for (connected, name) in at_once(connecting).await {
                match connected {
                    Ok(node) => self.nodes.push(node),
                    Err(error) => self.leave_out(&name, false, error)?,
                }
            }
        }
        for (name, member) in roster.not_asked() {
            let why = match member.state.as_str() {
                "down" => "it is down",
                _ => "no node that could be asked is linked to it, so its address is unknown",
            };
            self.leave_out(&printable(name), false, CliError::Failure(why.to_owned()))?;
        }
        if roster.left_out() > 0 {
            self.is_complete = false;
            let more = count_of(roster.left_out() as u64, "node is", "nodes are");
            say::line(&format!("{more} left out: no more than {NODES_MAX} are asked"));
        }
        Ok(())
    }

    /// Opens a watch at each.
    async fn watch(&mut self) -> Result<(), CliError> {
        let watching = std::mem::take(&mut self.nodes).into_iter().map(async |mut node| {
            let watched = node.watch().await;
            (node, watched)
        });
        for (index, (node, watched)) in at_once(watching).await.into_iter().enumerate() {
            match watched {
                Ok(()) => self.nodes.push(node),
                Err(error) => self.leave_out(&node.name, index == 0, error)?,
            }
        }
        Ok(())
    }

    /// What their lists have.
    async fn list(&mut self, args: &ConflictsArgs) -> Result<Vec<Told>, CliError> {
        let mut all = Vec::new();
        let listing = std::mem::take(&mut self.nodes).into_iter().map(async |mut node| {
            let list = node.list(args.limit).await;
            (node, list)
        });
        for (index, (node, list)) in at_once(listing).await.into_iter().enumerate() {
            match list {
                Ok(mut list) => {
                    all.append(&mut list);
                    self.nodes.push(node);
                }
                Err(error) => self.leave_out(&node.name, index == 0, error)?,
            }
        }
        Ok(all)
    }
}
