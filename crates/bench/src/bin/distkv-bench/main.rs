//! `distkv-bench`: what a node, a network or another store can do, measured from outside.
//!
//! | module | what |
//! |---|---|
//! | this one | the command line |
//! | `streams` | propagation from node to node, and many watchers |
//! | `listen` | many connections over which something only comes |
//! | `tree` | how long a listing takes |
//! | `catch_up` | how long a fresh node takes until it has everything |
//! | `client` | what a read costs the Rust client's process |
//! | `echo` | a server that does nothing, to see what the load generator can do |
//! | `compare` | the same work on other stores of this machine |
//! | `secured` | what security costs, and what strangers can do |
//! | `store_protocol` | what they speak |
//! | `stores` | each of them: its protocol, and how it is started |

mod catch_up;
mod client;
mod compare;
mod echo;
mod listen;
mod secured;
mod store_protocol;
mod stores;
mod streams;
mod tree;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use distkv_bench::args::LoadArgs;
use distkv_command::error::{CliError, EXIT_OK};
use distkv_command::output::typed;
use distkv_command::remote::RemoteArgs;
use distkv_command::say;

use store_protocol::StoreProtocol;

/// What a load generator costs depends on its allocator: the one of a node.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure reads and writes, propagation, watchers, catching up; compare with other stores
///
/// Without a command: reads and writes, as `distkv-node bench` measures them.
#[derive(Debug, Parser)]
#[command(name = "distkv-bench", version)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  distkv-bench                       # 50 connections, 90 % reads
  distkv-bench --depth 16 --reads 1  # 16 in flight on each, only reads
  distkv-bench --target a --target b # connections spread over two nodes
  distkv-bench --protocol redis --target 127.0.0.1:6379
  distkv-bench propagation --connect a --watch b
  distkv-bench watchers --count 100
  distkv-bench tree                  # list all entries
  distkv-bench catch-up 127.0.0.1:27587
  distkv-bench compare               # beside Redis, etcd, NATS
  distkv-bench secured               # what TLS, sealed links, logins cost
  distkv-bench client                # what a read costs the Rust client
  distkv-bench echo                  # what the load generator can do

On a node it writes below `distkv-bench` only, and deletes that subtree at the end, also \
after an error or Ctrl-C; with --keep it stays. If the program is killed, delete it with \
`distkv-node delete distkv-bench --recursive`. Deleted entries take a little memory until \
the network purges them. On Redis, etcd and NATS the keys (key-000000000042) stay.

Each connection sends its next request when an answer has come, so latencies are those of \
that load. On one machine, pin the server to one core and this program to another \
(`taskset`), and look at the server's CPU seconds per million requests: the other figures \
depend on what else runs.

Where nodes are started (`compare`, `secured`, `catch-up`), that is the `distkv-node` beside this \
program, or else the one in PATH.

Exit code: 0 measured, 1 something failed, 2 usage, 3 a node refuses, 6 no node was reached, 7 an \
answer did not come, 130 interrupted.")]
struct Cli {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    load: LoadArgs,

    /// What the servers speak
    #[arg(long, value_enum, default_value = "distkv", help_heading = "Load")]
    protocol: StoreProtocol,

    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    Propagation(streams::PropagationArgs),
    Watchers(streams::WatchersArgs),
    Tree(tree::TreeArgs),
    CatchUp(catch_up::CatchUpArgs),
    Compare(compare::CompareArgs),
    Secured(secured::SecuredArgs),
    Client(client::ClientArgs),
    Echo(echo::EchoArgs),
}

fn main() -> ExitCode {
    let is_json = std::env::args_os().any(|arg| arg == "--json");
    say::as_json(is_json);
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        typed::note(&matches);
        Cli::from_arg_matches(&matches)
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return distkv_command::error::explain(&error, is_json).into(),
    };
    match execute(cli) {
        Ok(()) => EXIT_OK.into(),
        Err(error) => error.tell(is_json).into(),
    }
}

fn execute(cli: Cli) -> Result<(), CliError> {
    match cli.what {
        None if cli.protocol == StoreProtocol::Distkv => cli.load.run_on_nodes(&cli.remote),
        None => cli.load.run(&cli.remote, cli.protocol),
        Some(What::Propagation(args)) => streams::propagation(&args),
        Some(What::Watchers(args)) => streams::watchers(&args),
        Some(What::Tree(args)) => tree::run(&args),
        Some(What::CatchUp(args)) => catch_up::run(&args),
        Some(What::Compare(args)) => compare::run(&args),
        Some(What::Secured(args)) => secured::run(&args),
        Some(What::Client(args)) => client::run(&args),
        Some(What::Echo(args)) => echo::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_says_what_it_is() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name}");
            assert!(command.get_after_help().is_some(), "{name}");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name} {}", argument.get_id());
            }
        }
    }
}
