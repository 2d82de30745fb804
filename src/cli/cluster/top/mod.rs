//! `top`: what all nodes of a network do, live.

mod ask;
mod rows;
mod screen;

use std::collections::BTreeMap;
use std::env;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use distkv_command::signals::on_ends;
use event_listener::Event;
use futures::future::{Either, select};

use crate::cli::error::CliError;
use crate::cli::remote::RemoteArgs;
use crate::cli::terminal::output::{Output, count_of, printable};
use crate::cli::terminal::times::show_time;
use crate::cli::terminal::units::parse_duration;
use crate::rt;
use ask::Nodes;
use rows::{Look, Row, lines, rows};
use screen::Screen;

/// Between two looks whether the terminal has another size.
const GLANCE: Duration = Duration::from_millis(200);

/// Show what all nodes do, live: rates, lag, queues, conflicts
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node top
  distkv-node top --once
  distkv-node top --once --json | jq -r 'select(.answers | not) | .node'

q or Ctrl-C ends it. Every node of the network is asked, and the worst is on top: one that does \
not answer, or that cannot be asked because no node that answers is linked to it ('no address'), one \
that is not ready, one that warns, one that has found conflicts since the last look, one whose \
changes others lack.

REQ/S are requests of clients, WRITES/S changes made there, APPLIED/S changes taken from other \
nodes. CONFLICTS counts since the node's start, with what is new. BEHIND is how many of the \
node's own changes the slowest of those it is linked to has not confirmed. WAITING is what \
clients have not taken and the disk has not written; IN and OUT are bytes between nodes.

Where standard output is no terminal, or TERM is dumb, or with --once, one table is printed after two looks. \
With --json, one object per node and look, until it is ended, or once with --once; \"state\" is ok, \
warns, not ready, no answer or no address, \"why\" the reason for no answer. On a secured node, this is for operators and admins.

Exit code: 0 done, 1 failed, 2 usage, 3 refused, 6 no node was reached, 8 it cannot be written.")]
pub(in crate::cli) struct TopArgs {
    /// Print one table, and end
    #[arg(long)]
    once: bool,

    /// The time between two looks, like 500ms, 2s, 1m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1s")]
    every: Duration,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

/// Nothing is asked more often.
const EVERY_MIN: Duration = Duration::from_millis(100);

pub(in crate::cli) async fn run(args: TopArgs) -> Result<(), CliError> {
    let every = args.every.max(EVERY_MIN);
    let mut top = Top {
        nodes: Nodes::begin(&args.remote).await?,
        every,
        now: BTreeMap::new(),
        before: BTreeMap::new(),
    };
    // The first look finds the other nodes; the second is what rates begin with.
    top.look().await;
    top.look().await;
    if args.remote.json {
        return top.tell_lines(args.once).await;
    }
    if args.once || !io::stdout().is_terminal() || is_dumb() {
        rt::sleep(every).await;
        top.look().await;
        let mut output = Output::of_read(false);
        top.text(false).iter().try_for_each(|line| output.line(line))?;
        return output.flush();
    }
    top.show().await
}

/// Whether the terminal has no cursor to move.
fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}

struct Top {
    nodes: Nodes,
    /// The time between two looks.
    every: Duration,
    now: BTreeMap<String, Look>,
    before: BTreeMap<String, Look>,
}

/// That somebody wants it to end.
#[derive(Default)]
struct Quit {
    is_wanted: AtomicBool,
    wanted: Event,
}

impl Quit {
    fn request(&self) {
        self.is_wanted.store(true, Ordering::Release);
        self.wanted.notify(usize::MAX);
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// Does that, unless somebody wants it to end; returns whether it is done.
    async fn or(&self, work: impl Future<Output = ()>) -> bool {
        let wanted = self.wanted.listen();
        if self.is_wanted() {
            return false;
        }
        matches!(select(std::pin::pin!(work), wanted).await, Either::Left(_))
    }
}

impl Top {
    async fn look(&mut self) {
        let now = self.nodes.look().await;
        self.before = std::mem::replace(&mut self.now, now);
    }

    fn rows(&self) -> Vec<Row> {
        rows(&self.now, &self.before, rt::millis(self.every))
    }

    /// The whole text; `goes_on`: there will be more looks.
    fn text(&self, goes_on: bool) -> Vec<String> {
        let rows = self.rows();
        let mut text = Vec::new();
        if goes_on {
            let every = self.every;
            let (time, nodes) = (show_time(rt::wall_clock_ms()), rows.len() as u64);
            let nodes = count_of(nodes, "node", "nodes");
            text.push(format!("{time}  {nodes}, every {every:?}; q ends"));
            text.push(String::new());
        }
        text.extend(lines(&rows));
        if self.nodes.left_out() > 0 {
            let more = count_of(self.nodes.left_out() as u64, "more is", "more are");
            text.push(format!("{more} not asked"));
        }
        let warnings = rows.iter().flat_map(Row::warnings);
        let warnings = warnings.map(|warning| format!("warning: {}", printable(&warning)));
        text.extend(warnings);
        text
    }

    async fn tell_lines(&mut self, once: bool) -> Result<(), CliError> {
        let mut output = Output::of_read(true);
        loop {
            rt::sleep(self.every).await;
            self.look().await;
            let time = show_time(rt::wall_clock_ms());
            self.rows().iter().try_for_each(|row| output.json_line(row.json(&time)))?;
            output.flush()?;
            if once {
                return Ok(());
            }
        }
    }

    async fn show(&mut self) -> Result<(), CliError> {
        let failed = |error: io::Error| CliError::Failure(format!("the terminal: {error}"));
        let quit = Arc::new(Quit::default());
        let by_signal = Arc::clone(&quit);
        on_ends(move |_| by_signal.request())?;
        let screen = Screen::enter().map_err(failed)?;
        let by_key = Arc::clone(&quit);
        screen.watch_keys(move || by_key.request()).map_err(failed)?;
        while !quit.is_wanted() {
            let due = rt::now().saturating_add(rt::millis(self.every));
            let mut drawn = None;
            while !quit.is_wanted() && (drawn.is_none() || rt::now() < due) {
                let size = screen::size();
                if drawn != Some(size) || screen.take_stale() {
                    screen.show(&self.text(true), size).map_err(failed)?;
                    drawn = Some(size);
                }
                let left = Duration::from_millis(due.saturating_sub(rt::now()));
                quit.or(rt::sleep(left.min(GLANCE))).await;
            }
            quit.or(self.look()).await;
        }
        Ok(())
    }
}
