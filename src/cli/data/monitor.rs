//! `monitor`: messages about a topic, as they come.

use clap::Args;
use serde_json::{Map, Value as Json};

use super::rewatch::{PAUSE, may_pass, open_again};
use crate::cli::error::CliError;
use crate::cli::following::Following;
use crate::cli::remote::{Remote, RemoteArgs, parse_path, topic_bytes};
use crate::cli::say;
use crate::cli::terminal::output::{
    Output, count_of, end_with_reader, json_of, printable, printable_path, shown_path, text_of,
};
use crate::client::{Fields, Message, StreamEvent};
use crate::model::path::Path;

/// Print the messages about a topic as they come, from any node
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node monitor                 # everything
  distkv-node monitor alarm.door      # this topic alone
  distkv-node monitor 'alarm.#'       # all topics below alarm
  distkv-node monitor 'alarm.+.open'  # with any one part in the middle
  distkv-node monitor alarm.door --count 1 --json
  distkv-node monitor --connect n1,n2,n3  # goes on at another node

A line on standard error says when the monitor has begun. With --json, one object per line: \
topic and data, or raw for what cannot be decoded.

Messages are not kept. Nobody is told of those that were sent on the other side of a split, or that were lost between two \
nodes; they do not come later. Those of one sender about one topic come in order, unless the sender or the monitor changes its \
node. Use `set` and `watch` for what must arrive.

When the connection is lost, the monitor connects again, for as long as that takes, to whichever \
node is up; messages that are sent meanwhile are missed. Those that come faster than they are read, or than the line carries \
them, are lost, too: a line on standard error says how many, where they are missing, and with --json also \"dropped\" in the \
first message behind them. --no-reconnect is for scripts that \
want to know of the loss. A node that has said nothing for as long as --timeout is asked whether it is there, and is lost \
when it does not answer in that time.

Exit code: 0 --count was reached, 2 usage, 3 refused, 6 no node was reached at the beginning, 8 it cannot be \
written; with --no-reconnect also 1 the node stopped, 6 the connection was lost.")]
pub(in crate::cli) struct MonitorArgs {
    /// What the messages are about, written like a path; '+' stands for any one part of it, '#'
    /// at the end for one or more of them
    #[arg(value_parser = parse_path, default_value = "#")]
    topic: Path,

    /// Do not decode the messages
    #[arg(long)]
    raw: bool,

    /// End after this many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// End with exit code 1 when the node stops and 6 when the connection is lost, instead of connecting again
    #[arg(long)]
    no_reconnect: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: MonitorArgs) -> Result<(), CliError> {
    end_with_reader(args.count.is_some())?;
    let (mut remote, mut stream) = open(&args).await?;
    tell_where(&args, &remote, "");
    let mut output = Output::of_read(args.remote.json);
    let mut left = args.count;
    let mut pause = PAUSE;
    while left != Some(0) {
        let lost = match stream.next().await.map_err(CliError::of_stream) {
            Ok(Some(StreamEvent::Item { message, .. })) => {
                pause = PAUSE;
                print(&message, &mut output)?;
                output.flush()?;
                left = left.map(|left| left - 1);
                continue;
            }
            Ok(Some(StreamEvent::Start | StreamEvent::UpToDate | StreamEvent::State(..))) => {
                continue;
            }
            // As it does when it stops.
            Ok(None) => CliError::Failure(String::from("the node ended the monitor")),
            Err(error) if may_pass(&error) => error,
            Err(error) => return Err(error),
        };
        if args.no_reconnect {
            return Err(lost);
        }
        say::line(&format!(
            "{lost}; messages are missed until it is connected again, which is tried until that works (Ctrl-C ends it)"
        ));
        (remote, stream) = open_again(&mut pause, || open(&args)).await?;
        tell_where(&args, &remote, " again");
    }
    Ok(())
}

/// At the first of the nodes that answers. The connection lasts as long as what is returned.
async fn open(args: &MonitorArgs) -> Result<(Remote, Following), CliError> {
    let mut fields = Fields::new();
    fields.raw("topic", &topic_bytes(&args.topic)).bool("raw", args.raw);
    let remote = args.remote.connect().await?;
    let stream = remote.follow("msg_monitor", &fields).await?;
    Ok((remote, stream))
}

fn tell_where(args: &MonitorArgs, remote: &Remote, more: &str) {
    let node = printable(&remote.connection.greeting().node);
    let (topic, address) = (shown_path(&args.topic), remote.connection.address());
    say::line(&format!("monitoring {topic} at {address} (node {node}){more}"));
}

fn print(message: &Message, output: &mut Output) -> Result<(), CliError> {
    let dropped = message.u64("dropped").unwrap_or_default();
    if dropped > 0 {
        let were = count_of(dropped, "message was", "messages were");
        say::warning(&format!("{were} lost here: this command or the network did not keep up"));
    }
    let topic = message.get("topic").map(Path::from_msgpack_value);
    let topic = match topic {
        Some(Ok(topic)) => topic.to_string(),
        Some(Err(_)) | None => String::from("?"),
    };
    if output.json {
        let mut out = Map::new();
        out.insert("topic".into(), topic.into());
        for name in ["data", "raw", "error", "dropped"] {
            if let Some(value) = message.get(name) {
                out.insert(name.into(), json_of(value));
            }
        }
        return output.json_line(Json::Object(out));
    }
    let data = message.get("data").or_else(|| message.get("raw"));
    output.line(&format!("{}  {}", printable_path(&topic), data.map(text_of).unwrap_or_default()))
}
