//! `conflicts`: changes that met without knowing of each other, and which of them was kept.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use clap::Args;
use futures::StreamExt;
use futures::stream::{BoxStream, select_all, unfold};
use serde_json::{Map, Value as Json};

use crate::cli::data::entry::{add_chain_and_tock, ask_for_chain, chain_text};
use crate::cli::error::CliError;
use crate::cli::following::Following;
use crate::cli::remote::{Remote, RemoteArgs, parse_path, whole_path};
use crate::cli::say;
use crate::cli::terminal::output::{Output, count_of, json_of, printable, text_of};
use crate::cli::terminal::times::show_time;
use crate::client::message::array_items;
use crate::client::{
    Access, ClientError, Connection, Fields, HostPort, Message, Options, StreamEvent,
};
use crate::model::path::Path;

/// So many conflicts are remembered, so that what several nodes tell is printed once.
const REMEMBERED_MAX: usize = 1 << 14;

/// Print conflicts: changes made in ignorance of each other, and which was kept
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
16 MiB) since its start; its log has all of them. Conflicts in the system's own tree are \
below ':n'.

With --json, one object per line: node, number, path, changed (whether the conflict changed \
that node's value), winner and loser with value (or \"deleted\": true), chain, tock (0: none), \
and time, where it is known.

Exit code: 0 done, 1 a node could not be asked (with --all) or ended its answer, 2 usage, 3 \
refused, 6 no node was reached, or with --follow the connection was lost.")]
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

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

/// A node that is asked.
struct Node {
    name: String,
    remote: Remote,
    /// Of those to come.
    watch: Option<Following>,
    /// The number of the last one in its list.
    last: u64,
}

pub(in crate::cli) async fn run(args: ConflictsArgs) -> Result<(), CliError> {
    let (timeout, access) = (args.remote.timeout_or_default(), args.remote.access()?);
    let mut asking = Asking {
        nodes: vec![Node::at(args.remote.connect_for_streams().await?)],
        is_complete: true,
    };
    if args.all {
        asking.add_members(&access, timeout).await?;
    }
    if args.follow {
        // Before the lists are asked for, so that none is missed between the two.
        asking.watch(&args.path).await?;
        let address = asking.nodes.first().map(|node| node.remote.connection.address());
        let (address, names) = (address.unwrap_or_default(), asking.names());
        say::line(&format!("following conflicts below {} at {address} (node {names})", args.path));
    }
    let mut printer = Printer::new(&args);
    let recent = asking.list(&args).await?;
    printer.print_recent(recent)?;
    if args.follow {
        return follow(asking.nodes, &mut printer).await;
    }
    if printer.printed == 0 {
        // A list of the root lacks the system's own tree, as `tree` does.
        let place = match args.path.is_root() {
            true => String::from(" (the system's own, of users and access lists, are below :n)"),
            false => format!(" below {}", args.path),
        };
        say::line(&format!("no conflicts were found at {} since the start{place}", asking.names()));
    }
    if asking.is_complete { Ok(()) } else { Err(CliError::Told) }
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
    async fn add_members(&mut self, access: &Access, timeout: Duration) -> Result<(), CliError> {
        let Some(first) = self.nodes.first() else { return Ok(()) };
        let reply = first.remote.request("members", &Fields::new()).await?;
        let members = array_items(reply.get("result").unwrap_or_default());
        for member in members.filter_map(|member| Message::new(member).ok()) {
            if matches!(member.str("state"), Some("self" | "left")) {
                continue;
            }
            let name = printable(member.str("name").unwrap_or("?")).into_owned();
            match connect_member(&name, &member, access, timeout).await {
                Ok(node) => self.nodes.push(node),
                Err(error) => self.leave_out(&name, false, error)?,
            }
        }
        Ok(())
    }

    /// Opens a watch at each.
    async fn watch(&mut self, path: &Path) -> Result<(), CliError> {
        let mut fields = asked(path);
        fields.str("conflicts", "only");
        for (index, mut node) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            match node.remote.follow("watch", &fields).await {
                Ok(watch) => {
                    node.watch = Some(watch);
                    self.nodes.push(node);
                }
                Err(error) => self.leave_out(&node.name, index == 0, error)?,
            }
        }
        Ok(())
    }

    /// What their lists have.
    async fn list(&mut self, args: &ConflictsArgs) -> Result<Vec<Told>, CliError> {
        let mut all = Vec::new();
        for (index, mut node) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            match node.list(args).await {
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

impl Node {
    fn at(remote: Remote) -> Self {
        let name = printable(&remote.connection.greeting().node).into_owned();
        Self { name, remote, watch: None, last: 0 }
    }

    async fn list(&mut self, args: &ConflictsArgs) -> Result<Vec<Told>, CliError> {
        let mut fields = asked(&args.path);
        if let Some(limit) = args.limit {
            fields.u64("limit", limit);
        }
        let mut stream = self.remote.stream("conflicts", &fields).await?;
        let mut list = Vec::new();
        while let Some(event) = self.remote.next(&mut stream).await? {
            let StreamEvent::Item { path, message } = event else { continue };
            tell_dropped(&self.name, &message);
            list.extend(Told::new(&self.name, &args.path, path.as_ref(), &message));
        }
        self.last = list.last().map_or(0, Told::number);
        Ok(list)
    }
}

async fn connect(address: &HostPort, access: &Access, timeout: Duration) -> Result<Node, CliError> {
    // Two streams are open at once where it is followed: so with flow control.
    let options = Options {
        connect_timeout: timeout,
        nowait: true,
        access: access.clone(),
        ..Options::default()
    };
    let connection = Connection::connect(address, options).await?;
    Ok(Node::at(Remote::over(connection, timeout)))
}

async fn connect_member(
    name: &str,
    member: &Message,
    access: &Access,
    timeout: Duration,
) -> Result<Node, CliError> {
    let failure = |text: String| Err(CliError::Failure(text));
    let client = match (member.str("state"), member.str("client")) {
        (Some("down"), _) => return failure(String::from("it is down")),
        (_, None) => return failure(String::from("it is not linked, so its address is unknown")),
        (_, Some(client)) => client,
    };
    let address =
        HostPort::parse(client, None).map_err(|error| CliError::Failure(error.to_string()))?;
    let node = connect(&address, access, timeout).await?;
    if node.name == name {
        return Ok(node);
    }
    failure(format!("at its client address {client} another node answers, {}", node.name))
}

fn asked(path: &Path) -> Fields {
    let mut fields = Fields::at(path);
    ask_for_chain(&mut fields);
    fields
}

/// A conflict as a node tells it.
struct Told {
    node: String,
    path: String,
    message: Message,
    winner: Message,
    loser: Message,
}

impl Told {
    /// `None` where a node tells something else.
    fn new(node: &str, asked: &Path, below: Option<&Path>, message: &Message) -> Option<Told> {
        let conflict = Message::new(message.get("conflict")?).ok()?;
        let version = |name| Message::new(conflict.get(name)?).ok();
        let (winner, loser) = (version("winner")?, version("loser")?);
        let path = whole_path(asked, below);
        Some(Told { node: node.to_owned(), path, winner, loser, message: conflict })
    }

    fn number(&self) -> u64 {
        self.message.u64("number").unwrap_or(0)
    }

    /// What tells it from other conflicts, whichever node tells it.
    fn key(&self) -> (String, String, String) {
        (self.path.clone(), chain_text(&self.winner), chain_text(&self.loser))
    }

    fn json(&self) -> Json {
        let mut out = Map::new();
        out.insert("node".into(), self.node.as_str().into());
        out.insert("number".into(), self.number().into());
        out.insert("path".into(), self.path.as_str().into());
        out.insert("changed".into(), self.message.bool("changed").into());
        out.insert("winner".into(), version_json(&self.winner));
        out.insert("loser".into(), version_json(&self.loser));
        Json::Object(out)
    }

    fn lines(&self, shows_node: bool) -> [String; 3] {
        let node = if shows_node { format!("{} ", self.node) } else { String::new() };
        let head = format!("{node}{}  {}", self.number(), printable(&self.path));
        let values = [&self.winner, &self.loser].map(|version| match version.get("value") {
            Some(value) => text_of(value),
            None => String::from("(deleted)"),
        });
        let chains =
            [&self.winner, &self.loser].map(|version| printable(&chain_text(version)).into_owned());
        let width = |texts: &[String; 2]| {
            texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).min(WIDTH_MAX)
        };
        let (value_width, chain_width) = (width(&values), width(&chains));
        let line = |word, value: &str, chain: &str, version: &Message| {
            // A deletion that was purged has none.
            let tock = version.u64("tock").filter(|tock| *tock > 0);
            let tock = tock.map(|tock| format!("tock {tock}")).unwrap_or_default();
            let time = version.u64("time").map(show_time).unwrap_or_default();
            format!("   {word}  {value:value_width$}  {chain:chain_width$}  {tock}  {time}")
        };
        let [(kept, kept_chain), (lost, lost_chain)] =
            [(&values[0], &chains[0]), (&values[1], &chains[1])];
        [
            head,
            line("kept", kept, kept_chain, &self.winner),
            line("lost", lost, lost_chain, &self.loser),
        ]
    }
}

/// Values longer than this do not push what is behind shorter ones to the right.
const WIDTH_MAX: usize = 60;

fn version_json(version: &Message) -> Json {
    let mut out = Map::new();
    match version.get("value") {
        Some(value) => out.insert("value".into(), json_of(value)),
        None => out.insert("deleted".into(), true.into()),
    };
    add_chain_and_tock(version, &mut out);
    Json::Object(out)
}

/// Says how many a node had dropped before they were read.
fn tell_dropped(node: &str, message: &Message) {
    if let Some(dropped) = message.u64("dropped") {
        let are = count_of(dropped, "before this is", "before this are");
        say::line(&format!("({are} not listed at {node} any more; see its log)"));
    }
}

/// Prints what is found, until there are enough.
async fn follow(nodes: Vec<Node>, printer: &mut Printer) -> Result<(), CliError> {
    type Next = (usize, Result<Option<StreamEvent>, ClientError>);
    let mut names = Vec::new();
    let mut streams: Vec<BoxStream<'_, Next>> = Vec::new();
    // The connections must outlive their streams.
    let mut remotes = Vec::new();
    for (index, node) in nodes.into_iter().enumerate() {
        names.push((node.name, node.last));
        remotes.push(node.remote);
        // Ends after the first error, or when the node ends it.
        streams.push(Box::pin(unfold(node.watch, move |watch| async move {
            let mut watch = watch?;
            let next = watch.next().await;
            let rest = matches!(next, Ok(Some(_))).then_some(watch);
            Some(((index, next), rest))
        })));
    }
    let mut all = select_all(streams);
    while !printer.is_done() {
        let Some((index, next)) = all.next().await else {
            return Err(CliError::Failure(String::from("no node is left to follow")));
        };
        let Some((name, last)) = names.get(index) else { continue };
        match next {
            Ok(Some(StreamEvent::Item { path, message })) => {
                tell_dropped(name, &message);
                let told = Told::new(name, &printer.asked, path.as_ref(), &message);
                // What came while the list was asked for is in both.
                if let Some(told) = told.filter(|told| told.number() > *last) {
                    printer.print(&told)?;
                }
            }
            Ok(Some(_)) => {}
            Ok(None) if names.len() == 1 => {
                return Err(CliError::Failure(String::from("the node ended the watch")));
            }
            Err(error) if names.len() == 1 => return Err(CliError::of_stream(error)),
            Ok(None) => say::line(&format!("{name} has ended the watch")),
            Err(error) => say::line(&format!("{name}: {}", printable(&error.to_string()))),
        }
    }
    Ok(())
}

/// Prints each conflict once.
struct Printer {
    output: Output,
    asked: Path,
    shows_node: bool,
    limit: Option<u64>,
    left: Option<u64>,
    printed: u64,
    known: HashSet<(String, String, String)>,
    /// The same, oldest first.
    order: VecDeque<(String, String, String)>,
}

impl Printer {
    fn new(args: &ConflictsArgs) -> Printer {
        Printer {
            output: Output::new(args.remote.json),
            asked: args.path.clone(),
            shows_node: args.all,
            limit: args.limit,
            left: args.count,
            printed: 0,
            known: HashSet::new(),
            order: VecDeque::new(),
        }
    }

    fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    /// Prints the lists of all nodes, as one.
    fn print_recent(&mut self, mut recent: Vec<Told>) -> Result<(), CliError> {
        let mut known = HashSet::new();
        recent.retain(|told| known.insert(told.key()));
        if self.shows_node {
            // The nodes' numbers say nothing of each other; the winners' tocks do.
            recent.sort_by_key(|told| told.winner.u64("tock"));
            let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
            let left_out = limit.map_or(0, |limit| recent.len().saturating_sub(limit));
            recent.drain(..left_out);
        }
        recent.iter().try_for_each(|told| self.print(told))
    }

    fn print(&mut self, told: &Told) -> Result<(), CliError> {
        if self.is_done() || !self.known.insert(told.key()) {
            return Ok(());
        }
        self.order.push_back(told.key());
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.left = self.left.map(|left| left - 1);
        self.printed += 1;
        if self.output.json {
            self.output.json_line(told.json())?;
        } else {
            for line in told.lines(self.shows_node) {
                self.output.line(line.trim_end())?;
            }
        }
        self.output.flush()
    }
}
