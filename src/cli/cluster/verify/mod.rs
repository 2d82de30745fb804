//! `verify`: whether two nodes hold the same. Their 1024 shards' hashes are compared; only where
//! they differ the entries are.

mod entries;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use futures::future::try_join;
use serde_json::{Map, Value as Json, json};

use super::shards::SUMS_TIMEOUT;
use super::shards::table::{Row, read_rows};
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs, no_greeting};
use crate::cli::terminal::interrupt::Interrupt;
use crate::cli::terminal::output::{Output, count_of, printable};
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::terminal::units::{parse_duration, show_millis};
use crate::client::{Access, Connection, Fields, HostPort, Message, Options};
use crate::model::ids::Millis;
use crate::model::shard::SHARD_COUNT;
use crate::node::config::CLIENT_PORT;
use crate::rt;
use entries::{Difference, Lister};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(250);
/// Nodes that differ and have not changed for so long have nothing under way: what they lack they
/// ask for well before that.
const QUIET_MS: Millis = 2_000;

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
that differ are asked again for the time that --patience gives. A shard counts as equal once \
it was found equal.

--timeout is how long a node may take to be connected to, and then for each answer; here its \
default is 15s, since the first answer may have to wait for a walk over all entries.

With --json, one object per entry that differs (path, shard, a, b), then one for the whole \
(equal, a, b, looks, changing, shards, differing).

Exit code: 0 they are equal, 1 they are not, 2 usage, 6 one was not reached, 8 the answer cannot be written, 130 interrupted.")]
pub(in crate::cli) struct VerifyArgs {
    /// One node's client port
    #[arg(value_name = "A", value_parser = parse_address)]
    a: HostPort,

    /// The other one's
    #[arg(value_name = "B", value_parser = parse_address)]
    b: HostPort,

    /// How long to look again while changes are under way, like 500ms, 10s, 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5s")]
    patience: Duration,

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
    let mut comparison = Comparison::new(a, b);
    let looked = interrupt.or(comparison.look_until(args.patience)).await;
    looked.map_err(|error| error.left(&comparison.left()))?;
    let mut output = Output::of_verdict(args.remote.json);
    let mut found = Found::default();
    if !comparison.open.is_empty() {
        if !output.json {
            comparison.print_shards(&mut output)?;
        }
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
    if comparison.open.is_empty() { Ok(()) } else { Err(CliError::Told) }
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
        Ok(Side { name: node.clone(), node, address, remote, sums: BTreeMap::new() })
    }

    async fn read(&self) -> Result<BTreeMap<u16, (u64, u64)>, CliError> {
        let rows = read_rows(&self.remote).await.map_err(|error| self.blame(error))?;
        let has_entries = |row: &Row| row.entries > 0;
        Ok(rows.iter().filter(|r| has_entries(r)).map(|r| (r.shard, (r.entries, r.hash))).collect())
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
    /// Entries that differ.
    by_shard: BTreeMap<u16, u64>,
    printed: u64,
}

impl Found {
    fn count(&self) -> u64 {
        self.by_shard.values().sum()
    }
}

impl Comparison {
    fn new(mut a: Side, mut b: Side) -> Comparison {
        if a.name == b.name {
            for side in [&mut a, &mut b] {
                side.name = format!("{} ({})", side.node, side.address);
            }
        }
        let open = (0..SHARD_COUNT).collect();
        Comparison { a, b, open, looks: 0, is_changing: false, changed_at: 0 }
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
        Ok(())
    }

    /// Looks until they are equal, or nothing changes, or the time is over.
    async fn look_until(&mut self, patience: Duration) -> Result<(), CliError> {
        let patience = rt::millis(patience);
        let deadline = rt::now().saturating_add(patience);
        loop {
            self.look().await?;
            let now = rt::now();
            let is_quiet = now.saturating_sub(self.changed_at) >= QUIET_MS;
            if self.open.is_empty() || is_quiet || now >= deadline {
                return Ok(());
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

    fn print_shards(&self, output: &mut Output) -> Result<(), CliError> {
        let (a, b) = (&self.a, &self.b);
        let count = self.open.len();
        let head = format!("{} and {} differ in {count} of {SHARD_COUNT} shards:", a.name, b.name);
        output.line(&head)?;
        for shard in &self.open {
            let (of_a, of_b) = (a.entries_in(*shard), b.entries_in(*shard));
            let line =
                format!("  shard {shard}: entries {of_a} at {}, {of_b} at {}", a.name, b.name);
            output.line(&line)?;
        }
        output.flush()
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
                *found.by_shard.entry(difference.shard).or_default() += 1;
                if found.printed < limit {
                    found.printed += 1;
                    self.print_entry(&difference, output)?;
                }
            }
        }
        Ok(found)
    }

    fn print_entry(&self, difference: &Difference, output: &mut Output) -> Result<(), CliError> {
        if output.json {
            return output.json_line(difference.json());
        }
        for line in difference.lines(&self.a.name, &self.b.name) {
            output.line(line.trim_end())?;
        }
        Ok(())
    }

    fn print_verdict(&self, found: &Found, output: &mut Output) -> Result<(), CliError> {
        let is_equal = self.open.is_empty();
        if output.json {
            let mut verdict = Map::new();
            verdict.insert("equal".into(), is_equal.into());
            verdict.insert("a".into(), self.a.json());
            verdict.insert("b".into(), self.b.json());
            verdict.insert("looks".into(), self.looks.into());
            verdict.insert("changing".into(), self.is_changing.into());
            verdict.insert("shards".into(), self.open.iter().copied().collect());
            verdict.insert("differing".into(), found.count().into());
            return output.json_line(Json::Object(verdict));
        }
        let (a, b) = (&self.a, &self.b);
        if is_equal {
            output.line(&format!(
                "{} and {} are equal: {}",
                a.name,
                b.name,
                count_of(a.entries(), "entry", "entries")
            ))?;
        } else {
            let (count, printed) = (found.count(), found.printed);
            let left_out = if printed < count { " (--limit shows more)" } else { "" };
            output.line(&format!("entries that differ: {count}{left_out}"))?;
            let unexplained = self.open.iter().filter(|s| !found.by_shard.contains_key(s)).count();
            if unexplained > 0 {
                output.line(&format!(
                    "shards whose entries look alike: {unexplained}; they changed meanwhile"
                ))?;
            }
        }
        if self.is_changing {
            let since = show_millis(rt::now().saturating_sub(self.changed_at));
            let what = if is_equal {
                "each shard was equal at some moment"
            } else {
                "changes may still be under way; use --patience to wait longer"
            };
            output.line(&format!(
                "changes are under way (the last was noticed {since} ago, {}): {what}",
                count_of(self.looks, "look", "looks")
            ))?;
        }
        Ok(())
    }
}
