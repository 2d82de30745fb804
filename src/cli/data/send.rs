//! `send`: a message to all who listen, on any node.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::value_input::{ValueArgs, read_input};
use crate::cli::error::CliError;
use crate::cli::remote::{RemoteArgs, parse_path, topic_bytes};
use crate::cli::terminal::output::Output;
use crate::client::Fields;
use crate::model::limits::VALUE_BYTES_MAX;
use crate::model::path::Path;

/// Send a message to all who monitor its topic, on any node
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node send alarm.door '{\"open\": true}'
  distkv-node send alarm.text --string 'the door is open'
  distkv-node send camera.still --raw-file still.jpg

Messages are not stored: only programs that monitor the topic at that moment get them. See \
`distkv-node monitor`.

Exit code: 0 sent, 1 failed, 2 usage, 3 refused, 6 no node was reached, 7 it may \
have been done.")]
pub(in crate::cli) struct SendArgs {
    /// What the message is about, written like a path
    #[arg(value_parser = parse_path)]
    topic: Path,

    #[command(flatten)]
    value: ValueArgs,

    /// Send a file's bytes as they are, whatever they are; '-' is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["value", "msgpack"])]
    raw_file: Option<PathBuf>,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: SendArgs) -> Result<(), CliError> {
    let mut fields = Fields::new();
    fields.raw("topic", &topic_bytes(&args.topic));
    match &args.raw_file {
        Some(file) => fields.bin("raw", &read_input(file, VALUE_BYTES_MAX)?),
        None => fields.raw("data", args.value.read()?.as_bytes()),
    };
    let remote = args.remote.connect_in_time().await?;
    remote.request("msg_send", &fields).await?;
    let mut output = Output::new(args.remote.json);
    let topic = args.topic.to_string();
    output.either(|| json!({"topic": topic, "sent": true}), || format!("{topic}: sent"))?;
    output.flush()
}
