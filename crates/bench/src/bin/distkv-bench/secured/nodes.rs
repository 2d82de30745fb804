//! The nodes that are started, and how clients get into them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use distkv_client::{Access, Connection, HostPort, Options};
use distkv_command::error::CliError;
use distkv_command::remote::access_by_key;
use distkv_runtime as rt;

use crate::compare::lab::{Cores, Lab, PATIENCE, Server};
use crate::stores::distkv::start_command;
use crate::stores::{Kind, Store};

/// What nodes are started with.
pub(super) struct Nodes {
    lab: Lab,
    store: Store,
    network: String,
    key: PathBuf,
}

/// How a node takes its peers and clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// Without a key.
    Open,
    /// With a key; plain text is taken, too, and clients need not log in, as while a network moves to a key. What
    /// nodes with a key say to each other is sealed.
    Sealed,
    /// With a key. Clients must log in.
    Secured,
}

impl Nodes {
    pub(super) fn new(lab: &Lab) -> Result<Self, CliError> {
        let store = Store::ours()?;
        let (network, key) = (lab.network(), lab.folder("key")?.join("key"));
        let mut command = lab.command(&store.program, Cores::All);
        command.args(["key", "new", "--network", &network, "--to"]).arg(&key);
        let status = command.stdout(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(store.failed("it makes no key"));
        }
        Ok(Self { lab: lab.clone(), store, network, key })
    }

    /// The store of these nodes, or of another program.
    pub(super) fn store(&self, program: Option<&Path>) -> Store {
        let own = || self.store.clone();
        program.map_or_else(own, |program| Store { kind: Kind::Ours, program: program.to_owned() })
    }

    /// A network of so many nodes. `own`: a name that no other of this run has.
    pub(super) fn start(
        &self,
        store: &Store,
        own: &str,
        count: usize,
        guard: Guard,
        cores: Cores,
    ) -> Result<Vec<Server>, CliError> {
        let mut servers: Vec<Server> = Vec::new();
        for number in 1..=count {
            let mut command = self.lab.command(&store.program, cores);
            match servers.first() {
                None => command.args(["run", "--peer-wait", "0s"]),
                Some(first) => command.args(["join", &first.inner]),
            };
            command.args(["--name", &format!("{own}{number}")]);
            match guard {
                Guard::Open => command.args(["--network", &format!("{}-{own}", self.network)]),
                Guard::Sealed => command.arg("--plaintext-peers").arg("--key").arg(&self.key),
                Guard::Secured => command.arg("--key").arg(&self.key),
            };
            servers.push(start_command(store, command, &self.lab)?);
        }
        Ok(servers)
    }

    /// As an admin.
    pub(super) fn admin(&self) -> Result<Access, CliError> {
        access_by_key(&self.key)
    }

    /// A connection that is logged in so.
    pub(super) fn connect(server: &Server, access: &Access) -> Result<Connection, CliError> {
        let options = Options {
            connect_timeout: PATIENCE,
            window: None,
            nowait: true,
            access: access.clone(),
        };
        let address = HostPort::from(server.address);
        Ok(rt::block_on(Connection::connect(&address, options))?)
    }
}
