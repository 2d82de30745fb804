//! `start`: a node that starts by what there is, for service managers: the same command line at the first start and
//! at every other one.

use std::path::PathBuf;

use clap::Args;

use super::node_args::{NodeArgs, Prepared, long_help, some};
use super::settings::{Settings, StartKind};
use crate::cli::data::value_input::parse_json_option;
use crate::cli::error::CliError;
use crate::model::value::Value;

/// What `start -h` ends with.
macro_rules! start_help {
    () => {
        "\
Examples:
  distkv-node start --config /etc/distkv/node.toml
  distkv-node start --name n1 --data-dir /var/lib/distkv/n1 --found
  distkv-node start --name n2 --data-dir /var/lib/distkv/n2 \\
    --peer n1.example.org --key key --gossip 0.0.0.0:27587

How it starts:
  it has data         it continues with it and joins its network; if no peer
                      answers within --peer-wait, it serves what it has
  no data, knows      it joins them, and waits for them as long as that takes
  peers               it founds a network only with --found, once one of them
                      has answered and all that answer wait for one, too
  no data, knows      with --found it founds a network; without, it ends with
  nobody, or only     exit code 2 (3 if it knows itself)
  its own address

It knows the peers of --peer, of the configuration file, and of its peer file. So a node that has lost \
its disk never begins a second network while its peers are out of reach, and the same configuration \
serves the first start and every other one."
    };
}

/// Start a node for a service manager: continue with its data, join its peers, or found a network
#[derive(Debug, Clone, Args)]
#[command(after_help = start_help!(), after_long_help = concat!(start_help!(), long_help!()))]
pub(in crate::cli) struct StartArgs {
    /// Found the network if this node has no data; of a network's nodes, one has this
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    found: Option<bool>,

    /// With --found: set the root to this value, if it has none
    #[arg(long, value_name = "JSON", value_parser = parse_json_option, allow_hyphen_values = true)]
    init: Option<Value>,

    /// With --found: read a saved state or a change log before a network is founded
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,

    /// A node of the network: its --gossip address; may be repeated
    #[arg(long = "peer", value_name = "ADDR[:PORT]")]
    peers: Vec<String>,

    #[command(flatten)]
    node: NodeArgs,
}

impl StartArgs {
    /// Puts together what options, environment and file say, and starts logging.
    ///
    /// # Errors
    /// What makes no sense, and what would.
    pub(in crate::cli) fn prepare(self) -> Result<Prepared, CliError> {
        let own = Settings {
            peers: some(self.peers),
            found: self.found,
            init: self.init,
            load: self.load,
            ..Settings::default()
        };
        self.node.prepare(StartKind::Start, own)
    }
}
