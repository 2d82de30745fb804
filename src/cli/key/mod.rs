//! `key`: the network's key file: making one, and changing its keys.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use distkv_command::key_file::{KeyFileTrouble, create, read, replace, update};
use distkv_tls::Ca;
use serde_json::json;

use super::error::CliError;
use super::terminal::output::{Output, Table, printable, shell_word};
use crate::membership::NetworkName;
use crate::rt;
use crate::secure::key::{Key, KeyId};
use crate::secure::key_file::{CertificateAuthority, KeyFile};
use crate::secure::key_ring::{Applied, KeyRing, RingError};

/// Make and change a network's key file
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key new --network plant --to key
  distkv-node key list key

With the key, nodes encrypt what they send each other, and shut everybody else out. \
Whoever has it is a full member of the network. Copy the file to every node over a channel \
that nobody else can read (scp), readable only by the user of the node (chmod 600), and start \
every node with --key FILE.

Another key, without a stop. Do each step on every node before the next:
  1. `key add` on one node; copy that file to the others; SIGHUP on every node
  2. `key use NEW` on every node, and SIGHUP
  3. `key remove OLD` on every node, and SIGHUP

A running node reads its key file again at SIGHUP. `key list` shows the ids. If somebody may have \
stolen the key, make a new file instead (key new) and restart all nodes with it: whoever has the old \
key reads what is sealed with it until it is removed everywhere.")]
pub(super) struct KeyArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    New(NewArgs),
    List(ListArgs),
    Add(AddArgs),
    Use(UseArgs),
    Remove(RemoveArgs),
}

/// Make a key file for a new network
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key new --network plant --to key
  distkv-node key new --network plant --to new-key --force

The file can be read by you only (mode 0600). It is never overwritten without --force: it may be \
the only copy of a key that nodes use.")]
struct NewArgs {
    /// The network's name; nodes with this file belong to no other
    #[arg(long, value_name = "NAME")]
    network: String,

    /// The file to make
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// Replace the file if there is one
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// List the keys of a key file: their ids, never the secrets
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key list key
  distkv-node key list key --json

A node seals with its primary key, and opens with any of the file's.")]
struct ListArgs {
    /// The key file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print JSON, one object per key
    #[arg(long)]
    json: bool,
}

/// Add a new key, which nothing is sealed with yet
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key add key

Do this on one node, copy the file to the others, and send every node SIGHUP. When all have read \
it, go on with `key use`.")]
struct AddArgs {
    /// The key file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Seal with another key of the file from now on
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key use 2ab3cf64 key

Every node must have read a file with that key before: those that lack it cannot open what is sealed \
with it.")]
struct UseArgs {
    /// The key's id
    #[arg(value_name = "ID")]
    id: KeyId,

    /// The key file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Remove a key that nothing is sealed with any more
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key remove 4db59c1b key

Every node must use another key before. A node that was away meanwhile and has only the removed key \
needs the new file.")]
struct RemoveArgs {
    /// The key's id
    #[arg(value_name = "ID")]
    id: KeyId,

    /// The key file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: KeyArgs) -> Result<(), CliError> {
    match args.what {
        What::New(args) => new(&args),
        What::List(args) => list(&args),
        What::Add(args) => add(&args),
        What::Use(args) => change(&args.file, args.id, args.json, "in use", KeyRing::make_primary),
        What::Remove(args) => change(&args.file, args.id, args.json, "removed", KeyRing::remove),
    }
}

fn new(args: &NewArgs) -> Result<(), CliError> {
    let network = NetworkName::new(&args.network)
        .map_err(|error| CliError::Usage(format!("--network {:?}: {error}", args.network)))?;
    let ca = Ca::make(&args.network, rt::wall_clock_ms() / 1_000)
        .map_err(|error| CliError::Failure(format!("no CA could be made: {error}")))?;
    // Nodes make their certificates for clients from it.
    let ca = CertificateAuthority {
        key: ca.key().to_vec().into(),
        certificate: ca.certificate().to_vec(),
    };
    let file = KeyFile { ring: KeyRing::new(network, random_key()?), ca: Some(ca) };
    let write = if args.force { replace } else { create };
    write(&args.to, &file).map_err(failure)?;
    let (id, at) = (file.ring.primary_id(), args.to.display().to_string());
    let mut output = Output::new(args.json);
    output.either(
        || json!({"network": args.network, "key": id.to_string(), "file": at}),
        || {
            format!(
                "key {id} of network {} is in {}\nCopy the file to every node, and start each with --key {}",
                printable(&args.network),
                printable(&at),
                shell_word(&at)
            )
        },
    )?;
    output.flush()
}

fn list(args: &ListArgs) -> Result<(), CliError> {
    let file = read(&args.file).map_err(failure)?;
    let mut output = Output::new(args.json);
    let is_primary = |id: KeyId| id == file.ring.primary_id();
    let network = file.ring.network().as_str();
    if args.json {
        for key in file.ring.keys() {
            let (id, primary) = (key.id().to_string(), is_primary(key.id()));
            output.line(&json!({"network": network, "key": id, "primary": primary}).to_string())?;
        }
    } else {
        let mut table = Table::with_head(&["NETWORK", "KEY", "PRIMARY"]);
        for key in file.ring.keys() {
            let primary = if is_primary(key.id()) { "yes" } else { "no" };
            table.row([printable(network).into_owned(), key.id().to_string(), primary.to_owned()]);
        }
        table.print(&mut output)?;
    }
    output.flush()
}

fn add(args: &AddArgs) -> Result<(), CliError> {
    let key = random_key()?;
    let id = key.id();
    change(&args.file, id, args.json, "added", |ring, _| ring.add(key))
}

/// Changes a file's ring.
fn change(
    path: &Path,
    id: KeyId,
    json: bool,
    done: &str,
    change: impl FnOnce(&mut KeyRing, KeyId) -> Result<Applied, RingError>,
) -> Result<(), CliError> {
    let mut applied = Applied::Already;
    let changed = update(path, |file| change(&mut file.ring, id).map(|did| applied = did));
    changed
        .map_err(failure)?
        .map_err(|error| CliError::Failure(format!("{}: {error}", path.display())))?;
    let mut output = Output::new(json);
    output.either(
        || json!({"key": id.to_string(), "changed": applied == Applied::Changed}),
        || match applied {
            Applied::Changed => {
                format!("key {id} is {done}; a running node reads the file at SIGHUP")
            }
            Applied::Already => format!("key {id} is {done} already"),
        },
    )?;
    output.flush()
}

fn random_key() -> Result<Key, CliError> {
    let secret = rt::random_bytes();
    secret.map(Key::new).map_err(|error| {
        CliError::Failure(format!("the system gives no random numbers for a key: {error}"))
    })
}

fn failure(trouble: KeyFileTrouble) -> CliError {
    CliError::Failure(trouble.to_string())
}
