//! `verify`: whether two nodes hold the same. Their 1024 shards' hashes are compared; only where
//! they differ the entries are, and what the nodes know to lack: a node that is catching up does not differ.

mod entries;
mod lag;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use futures::future::try_join;
use serde_json::{Value as Json, json};

use super::shards::SUMS_TIMEOUT;
use super::shards::table::{Row, read_rows};
use crate::cli::error::{CliError, EXIT_UNREACHABLE};
use crate::cli::remote::{Remote, RemoteArgs, no_greeting};
use crate::cli::terminal::interrupt::Interrupt;
use crate::cli::terminal::output::{Output, printable};
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::terminal::units::{parse_duration, show_millis};
use crate::client::{Access, ChainEvent, Connection, Fields, HostPort, Message, Options};
use crate::model::ids::Millis;
use crate::model::shard::SHARD_COUNT;
use crate::node::config::CLIENT_PORT;
use crate::rt;
use entries::{Difference, Lister};
use lag::Knowledge;
use verdict::Verdict;

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(250);
/// Nodes that differ and have not changed for so long have nothing under way: what they lack they
/// ask for well before that.
const QUIET_MS: Millis = 2_000;
/// How long to look again while changes are under way, unless --patience says it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same while a node is known to lack changes that the other one has: to catch up with what came while it stood still, or
/// was restarted, takes longer.
const LAG_PATIENCE: Duration = Duration::from_secs(30);
/// What to wait for instead, and how that is typed.
const SUGGESTED: (Duration, &str) = (Duration::from_secs(60), "1m");

/// What is said of a comparison that was interrupted before it began.
const NOTHING_COMPARED: &str = "nothing was compared yet";

/// Check whether two nodes hold the same
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node verify n1.example.org n2.example.org
  distkv-node verify 127.0.0.1:27586 127.0.0.1:27596 --patience 1m
  distkv-node verify n1.example.org n2.example.org --json | jq .equal

A and B are the client ports of two nodes; two addresses of one node are refused. Each node keeps a hash per shard over its \
entries: paths, values, changes and tocks, deleted entries included. If all 1024 hashes \
agree, the nodes hold the same. If not, the entries of the shards that differ are compared, \
and each difference is printed with what either node has.

Two nodes cannot be asked at exactly the same moment. While changes are under way, those \
that differ are asked again for the time that --patience gives, or for 5s. A shard counts as equal once \
it was found equal.

A node that is catching up, because it stood still or its link was slow, does not differ. Both nodes are asked \
which changes they have. While one lacks some that the other has, it is asked again for the time that --patience \
gives, or for 30s. If the nodes do not see each other, a line on standard error says so at once. If it still lacks some then, the first line says how many, and the exit code is 6, unless there are \
entries that differ for another reason.

--timeout is how long a node may take to be connected to, and then for each answer; here its \
default is 15s, since the first answer may have to wait for a walk over all entries.

With --json, one object per entry that differs (path, shard, a, b), then one for the whole: equal, comparable (false \
with exit code 6), a, b, looks, changing, shards, differing, differing_until_then (entries that differ because of \
changes that are still to come), lacks (a, b: how many changes each lacks).

Exit code: 0 they are equal, 1 they are not, 2 usage, 6 one was not reached or still lacks changes, 8 the answer cannot \
be written, 130 interrupted.")]
pub(in crate::cli) struct VerifyArgs {
    /// One node's client port
    #[arg(value_name = "A", value_parser = parse_address)]
    a: HostPort,

    /// The other one's
    #[arg(value_name = "B", value_parser = parse_address)]
    b: HostPort,

    /// How long to look again while changes are under way, like 500ms, 10s, 2m [default: 5s; 30s for changes that a node
    /// is known to lack]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    patience: Option<Duration>,

    /// How many of the entries that differ to print
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

fn parse_address(text: &str) -> Result<HostPort, String> {
    HostPort::parse_remote(text, Some(CLIENT_PORT)).map_err(|error| error.to_string())
}

pub(in crate::cli) async fn run(args: VerifyArgs) -> Result<(), CliError> {
    if args.remote.has_address() {
        let text = "verify takes the addresses of both nodes as A and B, not with --connect";
        return Err(CliError::Usage(text.to_owned()));
    }
    let (timeout, access) = (args.remote.timeout.unwrap_or(SUMS_TIMEOUT), args.remote.access()?);
    let interrupt = Interrupt::heed()?;
    let connecting = try_join(
        Side::connect(&args.a, &access, timeout),
        Side::connect(&args.b, &access, timeout),
    );
    let connected = interrupt.or(connecting).await;
    let (a, b) = connected.map_err(|error| error.left(NOTHING_COMPARED))?;
    let is_one = interrupt.or(is_one_node(&a, &b)).await;
    if is_one.map_err(|error| error.left(NOTHING_COMPARED))? {
        let text = format!("{} and {} are one node, {}: give two nodes", args.a, args.b, a.node);
        return Err(CliError::Usage(text));
    }
    let mut comparison = Comparison::new(a, b, args.patience);
    let mut bar = ProgressBar::new("waiting for changes", args.remote.json);
    let looked = interrupt.or(comparison.look_until(&mut bar)).await;
    drop(bar);
    looked.map_err(|error| error.left(&comparison.left()))?;
    let mut output = Output::of_verdict(args.remote.json);
    let mut found = Found::default();
    if !comparison.open.is_empty() {
        let listed = comparison.list_entries(args.limit, &mut output, &interrupt).await;
        output.flush()?;
        found = listed.map_err(|error| error.left(&comparison.left()))?;
        if !comparison.open.iter().any(|shard| found.by_shard.contains_key(shard)) {
            // Nothing to show for it: perhaps it was on its way.
            let looked = interrupt.or(comparison.look()).await;
            looked.map_err(|error| error.left(&comparison.left()))?;
        }
    }
    comparison.print_verdict(&found, &mut output)?;
    output.flush()?;
    match comparison.verdict(&found) {
        Verdict::Equal => Ok(()),
        Verdict::Differ => Err(CliError::Told),
        Verdict::NotYet => Err(CliError::ToldAs(EXIT_UNREACHABLE)),
    }
}

/// One of the two nodes.
pub(in crate::cli) struct Side {
    node: String,
    /// The name, with the address where both have the same name.
    name: String,
    address: String,
    remote: Remote,
    /// As of the last look, by shard: entries, and the hash over them.
    sums: BTreeMap<u16, (u64, u64)>,
    /// Which changes it had accounted for by then, if it tells that.
    knowledge: Option<Knowledge>,
}

impl Side {
    async fn connect(
        address: &HostPort,
        access: &Access,
        timeout: Duration,
    ) -> Result<Side, CliError> {
        // One stream at a time: that the socket is not read is all the flow control it needs.
        let options = Options {
            connect_timeout: timeout,
            window: None,
            nowait: true,
            access: access.clone(),
        };
        let connection = Connection::connect(address, options).await.map_err(no_greeting)?;
        let node = printable(&connection.greeting().node).into_owned();
        let address = connection.address().to_owned();
        let remote = Remote::over(connection, timeout);
        Ok(Side {
            name: node.clone(),
            node,
            address,
            remote,
            sums: BTreeMap::new(),
            knowledge: None,
        })
    }

    async fn read(&self) -> Result<BTreeMap<u16, (u64, u64)>, CliError> {
        let rows = read_rows(&self.remote).await.map_err(|error| self.blame(error))?;
        let has_entries = |row: &Row| row.entries > 0;
        Ok(rows.iter().filter(|r| has_entries(r)).map(|r| (r.shard, (r.entries, r.hash))).collect())
    }

    async fn ask_knowledge(&self) -> Result<Option<Knowledge>, CliError> {
        Knowledge::ask(&self.remote).await.map_err(|error| self.blame(error))
    }

    /// How many changes it lacks that the other node has, and will be sent.
    fn lacks(&self, other: &Side) -> u64 {
        match (&self.knowledge, &other.knowledge) {
            (Some(own), Some(theirs)) => own.lacks(theirs),
            _ => 0,
        }
    }

    /// Whether it lacks the change that the other one's version comes from.
    fn lacks_change(&self, change: &ChainEvent, other: &Side) -> bool {
        match (&self.knowledge, &other.knowledge) {
            (Some(own), Some(theirs)) => own.lacks_change(change, theirs),
            _ => false,
        }
    }

    /// Whether it sees that the other node is down.
    fn sees_down(&self, other: &Side) -> bool {
        match (&self.knowledge, &other.knowledge) {
            (Some(own), Some(theirs)) => own.sees_down(theirs),
            _ => false,
        }
    }

    /// Says which of the two it is about.
    fn blame(&self, error: CliError) -> CliError {
        match error {
            CliError::Failure(text) => CliError::Failure(format!("{}: {text}", self.address)),
            error => error,
        }
    }

    fn entries(&self) -> u64 {
        self.sums.values().map(|(entries, _)| entries).sum()
    }

    fn entries_in(&self, shard: u16) -> u64 {
        self.sums.get(&shard).map_or(0, |(entries, _)| *entries)
    }

    fn json(&self) -> Json {
        json!({"node": self.node, "address": self.address, "entries": self.entries()})
    }
}

/// Whether both are the same node, reached by two addresses: it would be equal to itself. Where a node does not say, they
/// are taken for two.
async fn is_one_node(a: &Side, b: &Side) -> Result<bool, CliError> {
    if a.node != b.node {
        return Ok(false);
    }
    let life = |reply: Message| reply.str("life").map(str::to_owned);
    let nothing = Fields::new();
    let (a, b) = try_join(
        a.remote.try_request("status", &nothing),
        b.remote.try_request("status", &nothing),
    )
    .await?;
    Ok(match (a.ok().and_then(life), b.ok().and_then(life)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    })
}

async fn open_lister<'a>(
    side: &'a Side,
    is_system: bool,
    shards: &'a BTreeSet<u16>,
) -> Result<Lister<'a>, CliError> {
    let lister = Lister::open(&side.remote, is_system, shards).await;
    lister.map_err(|error| side.blame(error))
}

/// Looks at both nodes until they were the same.
struct Comparison {
    a: Side,
    b: Side,
    /// As it was typed.
    patience: Option<Duration>,
    /// Shards that were not the same at any look.
    open: BTreeSet<u16>,
    looks: u64,
    /// Whether one of them changed between two looks.
    is_changing: bool,
    changed_at: Millis,
}

/// What listing the entries found.
#[derive(Default)]
struct Found {
    /// Entries that differ, and not because one of the nodes lacks the change that the other's version comes from.
    by_shard: BTreeMap<u16, u64>,
    /// Entries that differ because of that.
    until_then_by_shard: BTreeMap<u16, u64>,
    printed: u64,
}

impl Found {
    fn count(&self) -> u64 {
        self.by_shard.values().sum()
    }

    fn until_then(&self) -> u64 {
        self.until_then_by_shard.values().sum()
    }
}

impl Comparison {
    fn new(mut a: Side, mut b: Side, patience: Option<Duration>) -> Comparison {
        if a.name == b.name {
            for side in [&mut a, &mut b] {
                side.name = format!("{} ({})", side.node, side.address);
            }
        }
        let open = (0..SHARD_COUNT).collect();
        Comparison { a, b, patience, open, looks: 0, is_changing: false, changed_at: 0 }
    }

    /// Asks both at about the same time.
    async fn look(&mut self) -> Result<(), CliError> {
        let (a, b) = try_join(self.a.read(), self.b.read()).await?;
        let has_changed = self.looks > 0 && (a != self.a.sums || b != self.b.sums);
        if has_changed || self.looks == 0 {
            self.changed_at = rt::now();
        }
        self.is_changing |= has_changed;
        self.looks += 1;
        self.open.retain(|shard| a.get(shard) != b.get(shard));
        (self.a.sums, self.b.sums) = (a, b);
        if !self.open.is_empty() {
            // Before any entry is looked at: what a node has accounted for by now is in what it lists later.
            let asked = try_join(self.a.ask_knowledge(), self.b.ask_knowledge()).await?;
            (self.a.knowledge, self.b.knowledge) = asked;
        }
        Ok(())
    }

    /// How many changes the nodes lacked at the last look.
    fn lag(&self) -> u64 {
        match self.open.is_empty() {
            true => 0,
            false => self.a.lacks(&self.b).saturating_add(self.b.lacks(&self.a)),
        }
    }

    /// Which of the nodes do not see the other one, for people; nothing if they see each other. As of the last look.
    fn apart(&self) -> Option<String> {
        let (a, b) = (&self.a, &self.b);
        match (a.sees_down(b), b.sees_down(a)) {
            (true, true) => Some(format!("{} and {} do not see each other", a.name, b.name)),
            (true, false) => Some(format!("{} does not see {}", a.name, b.name)),
            (false, true) => Some(format!("{} does not see {}", b.name, a.name)),
            (false, false) => None,
        }
    }

    /// Looks until they are equal, or nothing changes and no node lacks anything, or the time is over.
    async fn look_until(&mut self, bar: &mut ProgressBar) -> Result<(), CliError> {
        let began = rt::now();
        let end = |default| began.saturating_add(rt::millis(self.patience.unwrap_or(default)));
        let (mut deadline, lag_deadline) = (end(PATIENCE), end(LAG_PATIENCE));
        let (mut most_lag, mut lagged_at) = (0, 0);
        let mut is_apart_told = false;
        loop {
            self.look().await?;
            let now = rt::now();
            let lag = self.lag();
            most_lag = lag.max(most_lag);
            if lag > 0 {
                bar.changes(most_lag - lag, most_lag);
                // When it has come, the hashes are asked for once more.
                lagged_at = now;
                deadline = deadline.max(now.saturating_add(QUIET_MS)).min(lag_deadline);
            }
            let is_quiet = now.saturating_sub(self.changed_at.max(lagged_at)) >= QUIET_MS;
            if self.open.is_empty() || is_quiet || now >= deadline {
                return Ok(());
            }
            if let Some(apart) = self.apart().filter(|_| lag > 0 && !is_apart_told) {
                is_apart_told = true;
                let most = show_millis(lag_deadline - began);
                bar.say(&format!(
                    "{apart}: what one of them lacks comes when they meet again; waiting for that, up to {most} (--patience)"
                ));
            }
            let rest = Duration::from_millis(deadline - now);
            rt::sleep(INTERVAL.min(rest)).await;
        }
    }

    /// How far it is, for one who interrupts it.
    fn left(&self) -> String {
        let equal = usize::from(SHARD_COUNT).saturating_sub(self.open.len());
        match self.looks {
            0 => String::from(NOTHING_COMPARED),
            _ => format!("found equal so far: {equal} of {SHARD_COUNT} shards"),
        }
    }

    /// Prints the entries that differ, in the shards that do, as they are found.
    async fn list_entries(
        &self,
        limit: u64,
        output: &mut Output,
        interrupt: &Interrupt,
    ) -> Result<Found, CliError> {
        let mut found = Found::default();
        let total = self.open.iter().map(|shard| self.a.entries_in(*shard)).sum();
        let mut bar = ProgressBar::new("comparing entries", output.json);
        let mut compared = 0;
        // What is below nil is no part of the rest, but of the shards.
        for is_system in [false, true] {
            let open = |side| open_lister(side, is_system, &self.open);
            let (mut a, mut b) = try_join(open(&self.a), open(&self.b)).await?;
            while let Some(difference) = entries::next_difference(&mut a, &mut b, || {
                compared += 1;
                bar.entries(compared, total);
                interrupt.check()
            })
            .await?
            {
                if self.is_still_to_come(&difference) {
                    *found.until_then_by_shard.entry(difference.shard).or_default() += 1;
                    continue;
                }
                if found.count() == 0 && !output.json {
                    self.print_head(output)?;
                }
                *found.by_shard.entry(difference.shard).or_default() += 1;
                if found.printed < limit {
                    found.printed += 1;
                    self.print_entry(&difference, output)?;
                }
            }
        }
        Ok(found)
    }

    /// Whether one of the nodes lacks the change that the other's version comes from. Both were asked what they have before they
    /// listed their entries, so what they had accounted for is in them.
    fn is_still_to_come(&self, difference: &Difference) -> bool {
        let [of_a, of_b] = difference.changes();
        of_a.is_some_and(|change| self.b.lacks_change(&change, &self.a))
            || of_b.is_some_and(|change| self.a.lacks_change(&change, &self.b))
    }
}
