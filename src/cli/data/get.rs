//! `get`: one entry's value.

use std::fs;
use std::io::{self, IsTerminal, Write as _};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value as Json};

use super::entry::{add_chain_and_tock, ask_for_chain, chain_and_time_text};
use super::nothing::no_wildcards;
use crate::cli::error::CliError;
use crate::cli::files::cannot;
use crate::cli::files::new_file::{Existing, NewFile, is_special};
use crate::cli::remote::{RemoteArgs, RequestKind, address_entry, parse_path};
use crate::cli::terminal::output::{Output, json_of, printable, printable_lines, shown_path};
use crate::client::{Fields, Message};
use crate::model::path::Path;
use crate::model::value::{Kind, Reader};
use crate::protocol::json::{JsonPieces, make_integers_safe};

/// A value of more bytes of MessagePack is printed without indentation: of one of 4 MiB, 63 levels deep, that would be
/// 0.5 GB of spaces. It is written piece by piece, so it is never in memory as text.
const INDENTED_BYTES: usize = 64 << 10;
/// Parts of such a value that are written at once, and the length of their text, about.
const PIECE: (usize, usize) = (4_096, 64 << 10);

/// Print the value of one entry
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node get site.lamp
  distkv-node get site.lamp --connect n1,n2,n3  # from whichever is up
  distkv-node get site.name --raw               # a string as it is
  distkv-node get site.plan --raw > copy.png    # what `set --raw-file` stored
  distkv-node get site.lamp --chain             # where it was changed last
  distkv-node get site.lamp --json --chain      # with path, tock, time, chain
  distkv-node get site.lamp --msgpack lamp.bin  # the exact bytes

The value is JSON, with indentation. One of more than 64 KiB (as MessagePack) is one line, like the value in \
--json.

It takes one path; `tree` prints all entries at and below one, \
with --json one object per line. There are no wildcards.

The time is what the clock of the node said that made the change; it is not shown for changes that were made \
by programs from before times were kept.

--raw prints a string byte by byte, as `set --string -` read it, and a byte string as `set --raw-file` did; on a \
terminal a line break follows. The file that --msgpack writes is for `set --msgpack`; one that is there already is \
replaced with --force only.

Exit code: 0 there is a value, 1 there is none, 2 usage, 3 refused, 6 no node was \
reached, 8 it cannot be written.")]
pub(in crate::cli) struct GetArgs {
    /// The entry's path, like a.b:1.c
    #[arg(value_parser = parse_path)]
    path: Path,

    /// Show the events that last changed it, newest first, and when that was
    #[arg(long)]
    chain: bool,

    /// Print a string or a byte string as it is: byte by byte, without quotes
    #[arg(short, long, conflicts_with_all = ["json", "msgpack", "chain"])]
    raw: bool,

    /// Write the value's MessagePack bytes to a file; '-' is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    msgpack: Option<PathBuf>,

    /// With --msgpack: replace the file if there is one
    #[arg(long, requires = "msgpack")]
    force: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: GetArgs) -> Result<(), CliError> {
    let existing = Existing::of_force(args.force);
    if let Some(file) = args.msgpack.as_ref().filter(|file| !is_special(file)) {
        existing.check(file)?;
    }
    let (action, path) = address_entry(&args.path, "get_value", "get_internal")?;
    let mut fields = Fields::at(&path);
    if args.chain {
        ask_for_chain(&mut fields);
    } else if args.remote.json {
        fields.bool("with_time", true);
    }
    let reach = args.remote.reach().await?;
    let reply = reach.request(action, fields, &args.path, RequestKind::Read).await?;
    let Some(value) = reply.get("value") else {
        return Err(CliError::not_found(format!(
            "{} has no value{}",
            shown_path(&args.path),
            no_wildcards(&args.path)
        )));
    };
    let mut output = Output::of_read(args.remote.json);
    match &args.msgpack {
        Some(file) if file.as_os_str() == "-" => output.bytes(value)?,
        Some(file) if is_special(file) => {
            fs::write(file, value).map_err(|error| cannot("write", file, error))?;
        }
        Some(file) => {
            let mut new = NewFile::create(file, existing)?;
            new.file.write_all(value).map_err(|error| new.give_up(&error))?;
            new.finish()?;
        }
        None => print(&args, &reply, value, &mut output)?,
    }
    output.flush()
}

fn print(
    args: &GetArgs,
    reply: &Message,
    value: &[u8],
    output: &mut Output,
) -> Result<(), CliError> {
    if output.json {
        return print_entry(&args.path, reply, value, output);
    }
    match raw_bytes(value).filter(|_| args.raw) {
        // Raw is what was asked for: also what a terminal would take as a command.
        Some(bytes) => {
            output.bytes(bytes)?;
            if io::stdout().is_terminal() {
                output.line("")?;
            }
        }
        None if value.len() > INDENTED_BYTES => {
            print_value(value, output)?;
            output.line("")?;
        }
        // JSON's own text has no line break inside of strings.
        None => output.line(&printable_lines(&format!("{:#}", json_of(value))))?,
    }
    if args.chain {
        output.line(&format!("# {}", chain_and_time_text(reply)))?;
    }
    Ok(())
}

/// One line of JSON, for programs: `path`, `value`, `chain` and `time` if they were asked for, `tock`.
fn print_entry(
    path: &Path,
    reply: &Message,
    value: &[u8],
    output: &mut Output,
) -> Result<(), CliError> {
    let mut others = Map::new();
    add_chain_and_tock(reply, &mut others);
    // It begins behind the value, so the object's own `{` is left out.
    let comma = if others.is_empty() { "" } else { "," };
    let mut others = Json::Object(others);
    make_integers_safe(&mut others);
    let path = Json::from(path.to_string()).to_string();
    output.bytes(printable(&format!("{{\"path\":{path},\"value\":")).as_bytes())?;
    print_value(value, output)?;
    let others = others.to_string();
    let others = others.strip_prefix('{').unwrap_or_default();
    output.line(&printable(&format!("{comma}{others}")))
}

/// JSON without line breaks, made and written piece by piece.
fn print_value(value: &[u8], output: &mut Output) -> Result<(), CliError> {
    let (parts, room) = PIECE;
    let mut pieces = JsonPieces::new(value);
    let mut text = String::new();
    loop {
        let is_over = pieces.go_on(&mut text, parts, room);
        let is_over = is_over.map_err(|error| CliError::Failure(error.to_string()))?;
        output.bytes(printable(&text).as_bytes())?;
        text.clear();
        if is_over {
            return Ok(());
        }
    }
}

/// What a string or a byte string is made of.
fn raw_bytes(value: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(value);
    match reader.peek_kind().ok()? {
        Kind::Str => reader.read_str_bytes().ok(),
        Kind::Bin => reader.read_bin().ok(),
        _ => None,
    }
}
