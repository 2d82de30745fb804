//! `type`: the types that values can be asked to have, each a JSON Schema with examples that prove it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{connect, delete, done, list, parse_below, set};
use crate::cli::data::value_input::{parse_json_option, read_input};
use crate::cli::error::CliError;
use crate::cli::files::read::without_mark;
use crate::cli::remote::RemoteArgs;
use crate::cli::terminal::output::{Output, text_of};
use crate::client::{Fields, Message};
use crate::model::limits::VALUE_BYTES_MAX;
use crate::model::path::Path;
use crate::model::value::Value;
use crate::model::value::write::{write_array_len, write_map_len, write_str};
use crate::protocol::json::value_from_text;

/// Examples that must fit a type's schema.
const GOOD_MIN: usize = 2;
/// Examples that must not.
const BAD_MIN: usize = 1;

/// Print the types of values, or make and remove one
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node type set percent \\
    --schema '{\"type\": \"number\", \"minimum\": 0, \"maximum\": 100}' \\
    --good 0 --good 99.5 --bad -1 --bad '\"a lot\"'
  distkv-node match set 'lamps.+.level' percent
  distkv-node type                        # all types
  distkv-node type show percent
  distkv-node type set percent.whole --schema '{\"type\": \"integer\"}' \\
    --good 0 --good 100 --bad 0.5         # must fit `percent`, too
  distkv-node type delete percent.whole

A type is a JSON Schema (draft 2020-12). It is stored only if at least two good examples fit \
and at least one bad example does not. By itself it checks nothing: `match` says where it \
must be obeyed. Every node checks what its clients write; what is stored already, deletions, \
and what other nodes send are not checked.

Exit code: 0 done, 1 failed, 2 usage, 3 refused (the text says why), 6 no \
node was reached, 7 it may have been done, 8 what is only read cannot be written.")]
pub(in crate::cli) struct TypeArgs {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Print all types; the same as `type` alone
    List(ListArgs),
    /// Print one type
    Show(NameArgs),
    /// Make a type, or replace it
    Set(SetArgs),
    /// Remove a type; entries that were asked to have it may have any value then
    Delete(NameArgs),
}

#[derive(Debug, Clone, Args)]
struct ListArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Debug, Clone, Args)]
struct NameArgs {
    /// The type's name, like percent or percent.whole
    #[arg(value_parser = parse_below)]
    name: Path,

    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Debug, Clone, Args)]
struct SetArgs {
    /// The type's name, like percent or percent.whole
    #[arg(value_parser = parse_below)]
    name: Path,

    /// The JSON Schema
    #[arg(long, value_name = "JSON", value_parser = parse_json_option, required_unless_present = "schema_file")]
    schema: Option<Value>,

    /// A file with the JSON Schema; '-' is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "schema")]
    schema_file: Option<PathBuf>,

    /// A value that fits; at least two
    #[arg(long, value_name = "JSON", value_parser = parse_json_option, allow_hyphen_values = true)]
    good: Vec<Value>,

    /// A value that does not fit; at least one
    #[arg(long, value_name = "JSON", value_parser = parse_json_option, allow_hyphen_values = true)]
    bad: Vec<Value>,

    #[command(flatten)]
    remote: RemoteArgs,
}

impl SetArgs {
    /// The type as it is stored.
    fn record(&self) -> Result<Vec<u8>, CliError> {
        let (good, bad) = (self.good.len(), self.bad.len());
        if good < GOOD_MIN || bad < BAD_MIN {
            return Err(CliError::Usage(format!(
                "a type needs at least {GOOD_MIN} values that fit (--good) and {BAD_MIN} that does not (--bad), which \
                 prove its schema; {good} and {bad} were given"
            )));
        }
        let from_file = match &self.schema_file {
            Some(file) => {
                let bytes = read_input(file, VALUE_BYTES_MAX)?;
                let place = file.display();
                let text = std::str::from_utf8(&bytes)
                    .map_err(|_| CliError::Usage(format!("{place} is not UTF-8 text")))?;
                let schema = value_from_text(without_mark(text))
                    .map_err(|error| CliError::Usage(format!("{place} is {error}")))?;
                Some(schema)
            }
            None => None,
        };
        let Some(schema) = from_file.as_ref().or(self.schema.as_ref()) else {
            return Err(CliError::Usage(String::from("give the type's --schema")));
        };
        let mut out = Vec::new();
        write_map_len(3, &mut out);
        write_str("schema", &mut out);
        out.extend_from_slice(schema.as_bytes());
        for (name, examples) in [("good", &self.good), ("bad", &self.bad)] {
            write_str(name, &mut out);
            write_array_len(examples.len(), &mut out);
            examples.iter().for_each(|example| out.extend_from_slice(example.as_bytes()));
        }
        Ok(out)
    }
}

pub(in crate::cli) async fn run(args: TypeArgs) -> Result<(), CliError> {
    let before = args.remote;
    let what = args.what.unwrap_or(What::List(ListArgs { remote: RemoteArgs::default() }));
    match what {
        What::List(args) => {
            let (remote, output) = connect(args.remote, before, Output::of_read).await?;
            let shown = |value: &Message| match value.get("schema") {
                Some(schema) => text_of(schema),
                None => String::from("(no schema: any value)"),
            };
            list(&remote, ("type", "type"), ["TYPE", "SCHEMA"], shown, output).await
        }
        What::Show(args) => {
            let (remote, mut output) = connect(args.remote, before, Output::of_read).await?;
            let fields = Fields::at(&super::below("type", &args.name)?);
            let reply = remote.request("get_internal", &fields).await?;
            let Some(value) = reply.get("value") else {
                let text = format!("there is no type {}", args.name);
                return Err(CliError::Failure(text));
            };
            output.line(&text_of(value))?;
            output.flush()
        }
        What::Set(args) => {
            let record = args.record()?;
            let (remote, output) = connect(args.remote, before, Output::new).await?;
            set(&remote, "type", &args.name, &record).await?;
            done(output, "type", &args.name, "set")
        }
        What::Delete(args) => {
            let (remote, output) = connect(args.remote, before, Output::new).await?;
            delete(&remote, "type", "type", &args.name).await?;
            done(output, "type", &args.name, "deleted")
        }
    }
}
