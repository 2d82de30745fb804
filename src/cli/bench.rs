//! `bench`: how many reads and writes nodes take, and what they cost. The load generator is the crate
//! `distkv-bench`, whose program measures more.

use clap::Args;
use distkv_bench::args::LoadArgs;

use super::error::CliError;
use super::remote::RemoteArgs;

/// Measure reads and writes: rate, latencies, what they cost the node
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node bench                       # 50 connections, 90 % reads
  distkv-node bench --depth 16 --reads 1  # 16 in flight on each, only reads
  distkv-node bench --target a --target b # connections spread over two nodes

It writes below `distkv-bench` only, and deletes that subtree at the end, also after an \
error or Ctrl-C; with --keep it stays. If the program is killed, delete it with \
`distkv-node delete distkv-bench --recursive`. Deleted entries take a little memory until \
the network purges them.

Each connection sends its next request when an answer has come, so latencies are those of \
that load. On one machine, pin the server to one core and this program to another \
(`taskset`), and look at the server's CPU seconds per million requests: the other figures \
depend on what else runs.

The program `distkv-bench` measures more: propagation, watchers, listings, catch-ups, and \
other stores.

Exit code: 0 measured, 1 something failed, 2 usage, 3 the node refuses, 6 no node was reached, 7 an \
answer did not come, 130 interrupted.")]
pub(super) struct BenchArgs {
    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

/// Measures, prints, and deletes what was written.
pub(super) fn run(args: &BenchArgs) -> Result<(), CliError> {
    args.load.run_on_nodes(&args.remote)
}
