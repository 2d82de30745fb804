//! `monitor`: messages about a topic, as they come.

use clap::Args;
use serde_json::{Map, Value as Json};

use crate::cli::error::CliError;
use crate::cli::remote::{RemoteArgs, parse_path, topic_bytes};
use crate::cli::say;
use crate::cli::terminal::output::{Output, json_of, printable, text_of};
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

A line on standard error says when the monitor has begun. With --json, one object per line: \
topic and data, or raw for what cannot be decoded.

Exit code: 0 --count was reached, 1 the node ended it, 2 usage, 3 refused, 6 no node was \
reached.")]
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

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: MonitorArgs) -> Result<(), CliError> {
    let mut fields = Fields::new();
    fields.raw("topic", &topic_bytes(&args.topic)).bool("raw", args.raw);
    let remote = args.remote.connect().await?;
    let mut stream = remote.follow("msg_monitor", &fields).await?;
    let node = printable(&remote.connection.greeting().node);
    let (topic, address) = (&args.topic, remote.connection.address());
    say::line(&format!("monitoring {topic} at {address} (node {node})"));

    let mut output = Output::new(args.remote.json);
    let mut left = args.count;
    while left != Some(0) {
        match stream.next().await.map_err(CliError::of_stream)? {
            Some(StreamEvent::Item { message, .. }) => {
                print(&message, &mut output)?;
                left = left.map(|left| left - 1);
            }
            Some(StreamEvent::Start | StreamEvent::UpToDate | StreamEvent::State(..)) => {}
            None => return Err(CliError::Failure(String::from("the node ended the monitor"))),
        }
        output.flush()?;
    }
    Ok(())
}

fn print(message: &Message, output: &mut Output) -> Result<(), CliError> {
    let topic = message.get("topic").map(Path::from_msgpack_value);
    let topic = match topic {
        Some(Ok(topic)) => topic.to_string(),
        Some(Err(_)) | None => String::from("?"),
    };
    if output.json {
        let mut out = Map::new();
        out.insert("topic".into(), topic.into());
        for name in ["data", "raw", "error"] {
            if let Some(value) = message.get(name) {
                out.insert(name.into(), json_of(value));
            }
        }
        return output.json_line(Json::Object(out));
    }
    let data = message.get("data").or_else(|| message.get("raw"));
    output.line(&format!("{}  {}", printable(&topic), data.map(text_of).unwrap_or_default()))
}
