//! `set`: one entry's new value.

use std::borrow::Cow;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value as Json};

use super::entry::{add_chain_and_tock, chain_text};
use super::system::SystemArgs;
use super::value_input::{ValueArgs, parse_json_option, read_byte_string};
use crate::cli::error::CliError;
use crate::cli::remote::{Reach, RemoteArgs, RequestKind, address_entry, parse_path};
use crate::cli::terminal::output::{Output, json_of, printable_path};
use crate::client::{Chain, Fields, Message};
use crate::model::path::Path;
use crate::model::spelling::{NamedEvent, SpellingError};
use crate::model::value::Value;

/// Give an entry a value
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node set site.lamp '{\"on\": true}'
  distkv-node set site.name --string 'Main street'
  echo '[1, 2]' | distkv-node set site.list -
  distkv-node set site.plan --raw-file plan.png # its bytes, as a byte string
  distkv-node set site.lamp --msgpack lamp.bin
  distkv-node set site.lock true --if-new     # only if it has no value
  distkv-node set site.count 6 --if-value 5   # only if it is 5 now
  distkv-node set site.lamp false --copies 2  # wait until 2 others have it
  # only if this event, as `get --chain` prints it, is the entry's newest:
  distkv-node set site.count 6 --chain n1~e9001b2c3d4e:17

Encoded as MessagePack, a value has at most 4 MiB (4194304 bytes), so a string or byte string has at most 4194299.

Exit code: 0 done, 1 failed, 2 usage, 3 refused (the text says why), 5 a \
precondition does not hold, 6 no node was reached, 7 it may have been done.")]
pub(in crate::cli) struct SetArgs {
    /// The entry's path, like a.b:1.c
    #[arg(value_parser = parse_path)]
    path: Path,

    #[command(flatten)]
    value: ValueArgs,

    /// Take a file's bytes as they are, as a byte string; '-' is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["value", "string", "msgpack"])]
    raw_file: Option<PathBuf>,

    /// Do nothing if the entry has this value already
    #[arg(long)]
    idem: bool,

    #[command(flatten)]
    system: SystemArgs,

    #[command(flatten)]
    copies: CopiesArgs,

    #[command(flatten)]
    condition: ConditionArgs,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

/// Under which condition something is changed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Conditions")]
pub(in crate::cli) struct ConditionArgs {
    /// Only if this is its newest event, as `get --chain` shows it; `new`: only if nothing is there
    #[arg(long, value_name = "new|EVENT", value_parser = parse_chain)]
    chain: Option<ChainCondition>,

    /// Only if nothing is there; the same as `--chain new`
    #[arg(long, conflicts_with = "chain")]
    if_new: bool,

    /// Only if its value is this one now
    #[arg(long, value_name = "JSON", value_parser = parse_json_option, allow_hyphen_values = true)]
    if_value: Option<Value>,
}

/// Until when a write waits.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct CopiesArgs {
    /// Wait until this many other nodes have the change, for as long as --timeout, and 5 s more for
    /// the node to say so; a change that has too few copies by then is not undone, and its fate is
    /// unknown
    #[arg(long, value_name = "N")]
    copies: Option<u64>,
}

/// What an entry's chain must be.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ChainCondition {
    New,
    Newest(Chain),
}

impl ConditionArgs {
    /// Adds the fields.
    pub(super) fn add_to(&self, fields: &mut Fields) {
        match &self.chain {
            Some(ChainCondition::New) => {
                fields.nil("chain");
            }
            Some(ChainCondition::Newest(chain)) => {
                let mut bytes = Vec::new();
                chain.encode(&mut bytes);
                fields.raw("chain", &bytes);
            }
            None if self.if_new => {
                fields.nil("chain");
            }
            None => {}
        }
        if let Some(value) = &self.if_value {
            fields.raw("prev", value.as_bytes());
        }
    }
}

impl CopiesArgs {
    /// Connects. Where there are copies to wait for, the node tells when their time is over.
    pub(in crate::cli) async fn reach(&self, remote: &RemoteArgs) -> Result<Reach, CliError> {
        let connected = remote.reach().await?;
        Ok(if self.copies.is_some() { connected.patient() } else { connected })
    }

    /// Adds the fields.
    pub(super) fn add_to(&self, remote: &RemoteArgs, fields: &mut Fields) {
        if let Some(copies) = self.copies {
            fields.u64("copies", copies);
            fields.f64("timeout", remote.timeout_or_default().as_secs_f64());
        }
    }
}

pub(in crate::cli) async fn run(args: SetArgs) -> Result<(), CliError> {
    args.system.check(&args.path)?;
    let value = match &args.raw_file {
        Some(file) => read_byte_string(file)?,
        None => args.value.read()?,
    };
    let (action, path) = address_entry(&args.path, "set_value", "set_internal")?;
    let mut fields = Fields::at(&path);
    fields.raw("value", value.as_bytes()).u64("nchain", 1);
    args.condition.add_to(&mut fields);
    if args.idem {
        fields.bool("idem", true);
    }
    args.copies.add_to(&args.remote, &mut fields);
    let reach = args.copies.reach(&args.remote).await?;
    let reply = reach.request(action, fields, &args.path, RequestKind::Write).await?;

    let path = args.path.to_string();
    let mut output = Output::new(args.remote.json);
    let text = || match reply.bool("changed") {
        Some(false) => change_text(&path, "the same value as before", &reply),
        Some(true) | None => change_text(&path, "set", &reply),
    };
    output.either(|| change_json(&path, &reply), text)?;
    output.flush()
}

/// What a write did, for people.
pub(super) fn change_text(path: &str, done: &str, reply: &Message) -> String {
    let path = named(path);
    match chain_text(reply).split(' ').next().unwrap_or_default() {
        "" => format!("{path}: {done}"),
        event => format!("{path}: {done} ({event})"),
    }
}

/// A path at the beginning of a line. The root's text is a colon, which nobody would take for a path there.
pub(super) fn named(path: &str) -> Cow<'_, str> {
    if path == ":" { Cow::Borrowed("the root") } else { printable_path(path) }
}

/// What a write did, for programs.
pub(super) fn change_json(path: &str, reply: &Message) -> Json {
    let mut out = Map::new();
    out.insert("path".into(), path.into());
    for name in ["changed", "prev"] {
        if let Some(value) = reply.get(name) {
            out.insert(name.into(), json_of(value));
        }
    }
    add_chain_and_tock(reply, &mut out);
    Json::Object(out)
}

fn parse_chain(text: &str) -> Result<ChainCondition, String> {
    if text == "new" {
        return Ok(ChainCondition::New);
    }
    let event: NamedEvent = text.parse().map_err(|error: SpellingError| {
        format!("{error}; write new, or an event as `get --chain` shows it")
    })?;
    Ok(ChainCondition::Newest(Chain::of(&event.life.to_string(), event.tick.get())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_new_or_an_event() {
        assert_eq!(parse_chain("new"), Ok(ChainCondition::New));
        let newest = ChainCondition::Newest(Chain::of("n1~e9001b2c3d4e", 17));
        assert_eq!(parse_chain("n1~e9001b2c3d4e:17"), Ok(newest));
        for text in ["", "n1", "n1:", ":5", "n1:5", "n1~ab:x", "n1~ab:-1", "n1~00ab:5"] {
            assert!(parse_chain(text).is_err(), "{text:?}");
        }
        let error = parse_chain("n1:5").unwrap_err();
        assert!(error.contains("n1~LIFE"), "{error}");
    }
}
