//! `key`: the cluster's keys: making a key file, changing its keys, and changing those of a running network.

mod cert;
mod end;
mod file;
mod last_step;
mod left;
mod network;
mod rotate;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::error::CliError;
use super::remote::RemoteArgs;
use super::terminal::units::parse_duration;
use crate::rt;
use crate::secure::key::KeyId;
use crate::secure::key_ring::KeyRing;

/// Make and change a network's key file, or the keys of a running network
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key new --network plant --to key
  distkv-node key list key  # what is in a file
  distkv-node key list --key key  # which keys the running nodes have
  distkv-node key rotate --key key  # a new key for all of them
  distkv-node key cert joe --key key

With the key, nodes encrypt what they send each other, and shut everybody else out. \
Whoever has it is a full member of the network. Copy the file to every node over a channel \
that nobody else can read (scp), readable only by the user of the node (chmod 600), and start \
every node with --key FILE.

`list`, `add`, `use` and `remove` work on the FILE that is named. Without one they work on the running \
network: what is changed there goes from node to node, and into the key file of each.

If somebody may have stolen the file, do not rotate: whoever has the old key would be handed the new one. \
And the file has the CA with its private key, which no rotation changes: with it, the thief makes \
certificates for any user, admins included. What helps:
  1. `key new` on one machine; carry the file to all nodes by hand (scp)
  2. stop all nodes, and start them with it
  3. make all tickets anew; docs/security.md has the rest

To change the key alone by hand, do each step on every node before the next:
  1. `key add FILE` on one node; copy it to the others; SIGHUP on every node
  2. `key use NEW FILE` on every node, and SIGHUP
  3. `key remove OLD FILE` on every node, and SIGHUP

A running node reads its key file again at SIGHUP. Links that are sealed with a key that is gone end then. \
What was changed over the network (`key rotate`) stays in force, also where the file is an older copy; a file with \
none of the keys that the node knows replaces them all. \
It takes another CA only when it is started.")]
pub(super) struct KeyArgs {
    #[command(subcommand)]
    what: What,

    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    New(NewArgs),
    List(ListArgs),
    Rotate(RotateArgs),
    Add(AddArgs),
    Use(UseArgs),
    Remove(RemoveArgs),
    Cert(CertArgs),
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

/// List the keys of a key file, or of the running nodes: their ids, never the secrets
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key list key
  distkv-node key list --key key --connect n1.example.org
  distkv-node key list --key key --json

A node seals with its primary key, and opens with any of its keys. Without FILE, a node is asked \
for the keys of all members, also of those that are away: as they said last. NOTE says what keeps a \
node from storing its keys: after a restart it would not have them.")]
struct ListArgs {
    /// The key file; without it, a running node is asked
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Give all running nodes a new key, without a stop
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key rotate --key key
  distkv-node key rotate --key key --connect n1.example.org --remove-old
  distkv-node key rotate --key key --wait 5m

It adds a new key at every node, uses it once every member has it, and, with --remove-old, removes \
the old one once every member uses the new one. Keys go over the links between the nodes, and into the \
key file of each. The file of --key is changed, too.

If a member is away, it stops before it would shut that member out, and says who is missing. The \
same command goes on from there; members that come back get the key meanwhile. Interrupt it when you like.

A rotation ends when its old key is removed. Until then the command makes no other key; so where it is run by \
a timer, it needs --remove-old. A file beside that of --key, FILE.last-step, is there until the old key is removed \
everywhere: if that was interrupted, or a member that was away still has it (exit code 1, and it is named), the same \
command only goes on with that. A member removes it when it is back; `members forget NAME` is for one that does not \
come back.

Do not rotate after a theft: whoever has the old key would be handed the new one, and could still make \
certificates with the CA in the file, which stays. `key --help` says what to do then.

Old keys that only other nodes have are removed, too. One that somebody has added there by hand since \
then may be about to be used: it is named, with the command that removes it.

Exit code: 0 done, 1 it has stopped at a step or another key is left, also at one member, 2 usage.")]
struct RotateArgs {
    /// Remove the old keys, too; until then, they open what is sealed with them, and log in
    #[arg(long)]
    remove_old: bool,

    /// How long to wait for members at each step
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10s")]
    wait: Duration,

    /// Go on without members that are away, or that do not follow within --wait: they are shut out until
    /// they get the new key file by hand
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Add a new key, which nothing is sealed with yet
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key add key
  distkv-node key add --key key  # at all running nodes

To a FILE: do this on one node, copy the file to the others, and send every node SIGHUP. When all \
have read it, go on with `key use`.")]
struct AddArgs {
    /// The key file; without it, the key is added at the running nodes
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Seal with another key from now on
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key use 2ab3cf64 key
  distkv-node key use 2ab3cf64 --key key  # at all running nodes

Every node must have the key before: those that lack it cannot open what is sealed with it. Running nodes \
refuse while a member is known that lacks it, unless --force is given.")]
struct UseArgs {
    /// The key's id
    #[arg(value_name = "ID")]
    id: KeyId,

    /// The key file; without it, the running nodes use the key
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Also if members lack it: they are shut out until they get the new key file by hand
    #[arg(long, conflicts_with = "file")]
    force: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Remove a key that nothing is sealed with any more
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key remove 4db59c1b key
  distkv-node key remove 4db59c1b --key key  # at all running nodes

Every node must use another key before. A node that was away meanwhile and has only the removed key \
needs the new file. Running nodes refuse while a member is known that uses the key, unless --force is given.

The CA in the key file stays. After a theft that is not enough: `key --help` says what to do.")]
struct RemoveArgs {
    /// The key's id
    #[arg(value_name = "ID")]
    id: KeyId,

    /// The key file; without it, the running nodes remove the key
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Also if members use it: they are shut out until they get the new key file by hand
    #[arg(long, conflicts_with = "file")]
    force: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Make a certificate that is signed by the CA of the key file
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node key cert joe --key key  # joe.pem and joe.key
  distkv-node key cert joe --key key --days 30 --to joe-2
  distkv-node key cert --server lb.example.org --server 10.0.0.9 --key key
  distkv-node key cert --ca --key key  # ca.pem: the CA itself, for clients

A user's certificate is a client's: with it, a program is logged in as that user, without a secret, at all \
nodes of the network. It ends with the user: `user remove` takes the right away. `ticket new --cert` puts it \
into a ticket. A server's certificate has these names, and is valid for 30 days; nodes make their own, so it is \
for what stands before them.

Written are NAME.pem (the certificate and its CA) and NAME.key (the private key, readable by you \
only). Files that are there are replaced with --force only, the key first.")]
struct CertArgs {
    /// The user's name
    #[arg(value_name = "USER", required_unless_present_any = ["servers", "ca"])]
    user: Option<String>,

    /// A server's host name or IP address; may be given again
    #[arg(long = "server", value_name = "NAME", conflicts_with = "user")]
    servers: Vec<String>,

    /// The CA's own certificate, without a key
    #[arg(long, conflicts_with_all = ["user", "servers", "days"])]
    ca: bool,

    /// For how many days a user's certificate is valid
    #[arg(long, value_name = "N", default_value_t = 365, conflicts_with = "servers")]
    days: u32,

    /// Where to write it, with or without `.pem` or `.key`; by default the name, in this directory
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,

    /// Replace files that are there
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) fn run(args: KeyArgs) -> Result<(), CliError> {
    let before = args.remote;
    match args.what {
        What::New(_) if before != RemoteArgs::default() => {
            let text = "`key new` works on a file; put its options after it";
            Err(CliError::Usage(text.to_owned()))
        }
        What::New(args) => file::new(&args),
        What::List(args) => match on(args.file, args.remote.or(before))? {
            On::File(path, json) => file::list(&path, json),
            On::Network(remote) => rt::block_on(network::list(&remote)),
        },
        What::Rotate(args) => {
            let remote = args.remote.clone().or(before);
            rt::block_on(rotate::run(&args, &remote))
        }
        What::Add(args) => match on(args.file, args.remote.or(before))? {
            On::File(path, json) => file::add(&path, json),
            On::Network(remote) => rt::block_on(network::add(&remote)),
        },
        What::Use(args) => match on(args.file, args.remote.or(before))? {
            On::File(path, json) => {
                file::change(&path, args.id, json, "in use", None, KeyRing::make_primary)
            }
            On::Network(remote) => {
                rt::block_on(network::change(&remote, network::Step::Use, args.id, args.force))
            }
        },
        What::Remove(args) => match on(args.file, args.remote.or(before))? {
            On::File(path, json) => {
                let ca = cert::ca_stays(Some(&path));
                file::change(&path, args.id, json, "removed", ca, KeyRing::remove)
            }
            On::Network(remote) => {
                rt::block_on(network::change(&remote, network::Step::Remove, args.id, args.force))
            }
        },
        What::Cert(args) => {
            let remote = args.remote.clone().or(before);
            cert::run(&args, &remote)
        }
    }
}

/// What a command works on.
enum On {
    /// A file; whether to print JSON.
    File(PathBuf, bool),
    Network(Box<RemoteArgs>),
}

fn on(file: Option<PathBuf>, mut remote: RemoteArgs) -> Result<On, CliError> {
    let Some(path) = file else { return Ok(On::Network(Box::new(remote))) };
    let json = std::mem::take(&mut remote.json);
    if remote == RemoteArgs::default() {
        return Ok(On::File(path, json));
    }
    let text = format!(
        "{} is a file to work on, and the other options are for a running node; leave out the one or the \
         other (the file that shows who you are is --key FILE)",
        path.display()
    );
    Err(CliError::Usage(text))
}
