//! The servers that are compared: how each is started, and what it is asked for. What is said on the
//! wire is in each one's file, as `store_protocol` needs it.

pub(super) mod distkv;
pub(super) mod etcd;
pub(super) mod nats;
pub(super) mod redis;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use distkv_command::error::CliError;

use crate::compare::figures::Group;
use crate::compare::lab::{Cores, Lab, PATIENCE, Server, Wait, find, free_port};
use crate::compare::talk::Talk;
use crate::store_protocol::StoreProtocol;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// distkv-node
    #[value(skip)]
    Ours,
    /// The greatest that a server with this load generator could reach
    Echo,
    /// redis-server
    Redis,
    /// valkey-server
    Valkey,
    /// keydb-server
    Keydb,
    /// etcd, by gRPC, on a memory disk
    Etcd,
    /// nats-server with a key-value bucket in memory
    Nats,
}

/// Where a server of a network is to be.
struct Place {
    name: String,
    /// For clients.
    address: SocketAddr,
    /// For the other servers.
    inner: SocketAddr,
}

/// A server that is there.
#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) kind: Kind,
    pub(super) program: PathBuf,
}

impl Kind {
    /// All but ours, in the order of the table's columns.
    pub(super) const OTHERS: [Self; 6] =
        [Self::Redis, Self::Valkey, Self::Keydb, Self::Etcd, Self::Nats, Self::Echo];

    /// The program's name.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Ours => "distkv-node",
            Self::Echo => "echo",
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
            Self::Keydb => "keydb-server",
            Self::Etcd => "etcd",
            Self::Nats => "nats-server",
        }
    }
}

impl Store {
    /// The server, if it is installed.
    pub(super) fn find(kind: Kind) -> Option<Self> {
        let program = match kind {
            Kind::Ours => beside_this_program(kind.program()).or_else(|| find(kind.program()))?,
            Kind::Echo => std::env::current_exe().ok()?,
            _ => find(kind.program())?,
        };
        Some(Self { kind, program })
    }

    /// Our own node: the program beside this one, or else the one in PATH.
    pub(super) fn ours() -> Result<Self, CliError> {
        let text = "cannot find distkv-node, neither beside this program nor in PATH";
        Self::find(Kind::Ours).ok_or_else(|| CliError::Failure(text.to_owned()))
    }

    /// The error of a server that does not do what it should.
    pub(super) fn failed(&self, why: &str) -> CliError {
        CliError::Failure(format!("{}: {why}", self.kind.program()))
    }

    pub(super) fn protocol(&self) -> StoreProtocol {
        match self.kind {
            Kind::Ours | Kind::Echo => StoreProtocol::Distkv,
            Kind::Redis | Kind::Valkey | Kind::Keydb => StoreProtocol::Redis,
            Kind::Etcd => StoreProtocol::Etcd,
            Kind::Nats => StoreProtocol::Nats,
        }
    }

    /// What watchers of it and their writer speak.
    pub(super) fn protocol_of_watchers(&self) -> StoreProtocol {
        match self.protocol() {
            StoreProtocol::Redis => StoreProtocol::RedisChannel,
            other => other,
        }
    }

    /// Whether it is asked for that.
    pub(super) fn takes_part(&self, group: Group) -> bool {
        match self.kind {
            Kind::Ours => true,
            Kind::Echo => group == Group::Requests,
            Kind::Redis | Kind::Valkey | Kind::Keydb => group != Group::Crash,
            Kind::Etcd | Kind::Nats => matches!(
                group,
                Group::Propagation | Group::Replication | Group::Watchers | Group::Listing
            ),
        }
    }

    /// One server, or so many that are one network; writes go to the first.
    pub(super) fn start(
        &self,
        count: usize,
        lab: &Lab,
        cores: Cores,
    ) -> Result<Vec<Server>, CliError> {
        match self.kind {
            Kind::Ours => distkv::start(self, count, lab, cores),
            Kind::Echo => self.start_echo(lab, cores),
            Kind::Redis | Kind::Valkey | Kind::Keydb => redis::start(self, count, lab, cores),
            Kind::Etcd => etcd::start(self, count, lab, cores),
            Kind::Nats => nats::start(self, count, lab, cores),
        }
    }

    /// One more server, which gets what another one has; returns when it has that many entries.
    pub(super) fn join(
        &self,
        to: &Server,
        entries: u64,
        lab: &Lab,
        cores: Cores,
    ) -> Result<Server, CliError> {
        if self.protocol() == StoreProtocol::Redis {
            return redis::join(self, to, entries, lab, cores);
        }
        distkv::join(self, to, entries, lab, cores)
    }

    /// Lists all entries with their values; tells how many there are.
    pub(super) fn list(&self, talk: &mut Talk, expected: u64) -> Result<u64, CliError> {
        match self.protocol() {
            StoreProtocol::Redis | StoreProtocol::RedisChannel => redis::list(talk),
            StoreProtocol::Etcd => etcd::list(talk),
            StoreProtocol::Distkv => distkv::list(talk, expected),
            StoreProtocol::Nats => nats::list(talk, expected),
        }
    }

    /// An address that is free.
    fn free_port(&self) -> Result<SocketAddr, CliError> {
        free_port().map_err(|error| self.failed(&error.to_string()))
    }

    /// Names and addresses for so many servers of one network.
    fn places(&self, count: usize) -> Result<Vec<Place>, CliError> {
        let place = |n| {
            let (name, address, inner) = (format!("n{n}"), self.free_port()?, self.free_port()?);
            Ok(Place { name, address, inner })
        };
        (1..=count).map(place).collect()
    }

    fn start_echo(&self, lab: &Lab, cores: Cores) -> Result<Vec<Server>, CliError> {
        let mut command = lab.command(&self.program, cores);
        command.args(["echo", "--serve"]).stdin(Stdio::null());
        let (child, said) = lab.start_and_hear(self, command, &Wait::of(PATIENCE))?;
        let address = said.get("client").and_then(|text| text.as_str()?.parse().ok());
        let address = address.ok_or_else(|| self.failed("it does not get ready"))?;
        Ok(vec![Server { child, address, inner: String::new() }])
    }
}

/// The program of that name in the folder that this one is in.
fn beside_this_program(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name(name);
    program.is_file().then_some(program)
}
