//! How our own nodes are started, and what they are asked for. Their protocol is the load generator's.

use std::process::{Command, Stdio};
use std::time::Duration;

use distkv_bench::distkv::STREAM_SEQ;
use distkv_client::message::array_items;
use distkv_client::{Fields, Message};
use distkv_command::error::CliError;
use distkv_model::path::Path;
use distkv_runtime as rt;

use super::Store;
use crate::compare::lab::{Cores, Goodbye, Lab, PATIENCE, PATIENCE_WITH_FETCH, Server, Wait};
use crate::compare::talk::Talk;
use crate::store_protocol::StoreProtocol;

/// Lists all entries, of which so many are expected.
pub(super) fn list(talk: &mut Talk, expected: u64) -> Result<u64, CliError> {
    let mut fields = Fields::at(&Path::root());
    talk.send(&fields.u64("nchain", 0).encode_request(STREAM_SEQ, "get_tree"))?;
    talk.until_counted(StoreProtocol::Distkv.mark_of_change(), expected)
}

/// One node, or several of a network; the first one founds it.
pub(super) fn start(
    store: &Store,
    count: usize,
    lab: &Lab,
    cores: Cores,
) -> Result<Vec<Server>, CliError> {
    let mut servers: Vec<Server> = Vec::new();
    for n in 1..=count {
        let gossip = servers.first().map(|server| server.inner.clone());
        servers.push(start_one(store, &format!("n{n}"), gossip.as_deref(), lab, cores)?);
    }
    Ok(servers)
}

/// A node that joins, and has so many entries.
pub(super) fn join(
    store: &Store,
    to: &Server,
    entries: u64,
    lab: &Lab,
    cores: Cores,
) -> Result<Server, CliError> {
    let server = start_one(store, "fresh", Some(&to.inner), lab, cores)?;
    let mut talk = Talk::connect(StoreProtocol::Distkv, server.address)?;
    let until = rt::now_ns() + PATIENCE.as_nanos() as u64;
    while asks(&mut talk, "status")?.u64("entries") != Some(entries) {
        if rt::now_ns() > until {
            return Err(store.failed("the fresh node does not get everything"));
        }
    }
    Ok(server)
}

/// How a node sees another one: up, suspect, down, and so on.
pub(crate) fn state_of(talk: &mut Talk, name: &str) -> Result<String, CliError> {
    let reply = asks(talk, "members")?;
    let members = array_items(reply.get("result").unwrap_or_default());
    let mut members = members.filter_map(|member| Message::new(member).ok());
    let member = members.find(|member| member.str("name") == Some(name));
    Ok(member.and_then(|member| member.str("state").map(str::to_owned)).unwrap_or_default())
}

fn asks(talk: &mut Talk, action: &str) -> Result<Message, CliError> {
    let reply = talk.asks(|tag, out| {
        out.extend_from_slice(&Fields::new().encode_request(tag.seq, action));
    })?;
    Message::new(&reply).map_err(|error| CliError::Failure(error.to_string()))
}

/// One node of a network of its own, or, with a node's gossip address, of that node's; returns when it serves
/// clients.
fn start_one(
    store: &Store,
    name: &str,
    gossip: Option<&str>,
    lab: &Lab,
    cores: Cores,
) -> Result<Server, CliError> {
    let mut command = lab.command(&store.program, cores);
    match gossip {
        // Nobody is there who could call it.
        None => command.args(["run", "--peer-wait", "0s"]),
        Some(gossip) => command.args(["join", gossip]),
    };
    command.args(["--name", name, "--network", &lab.network()]);
    start_command(store, command, lab)
}

/// A node that joins a network that is there already, through `peer`, and leaves it when it is dropped; returns when it
/// serves clients. What it says last is in the error. `look`: see [`Wait`].
pub(crate) fn start_fresh(
    store: &Store,
    name: &str,
    network: &str,
    peer: &str,
    lab: &Lab,
    (patience, look): (Duration, &dyn Fn() -> Result<(), CliError>),
) -> Result<Server, CliError> {
    let mut command = lab.command(&store.program, Cores::All);
    command.args(["join", peer, "--name", name, "--network", network]).stderr(Stdio::piped());
    // The part that looks for the network says whom it does not reach.
    let log = "warn,distkv::node::lifecycle::start=info";
    let wait = Wait { patience, look, goodbye: Goodbye::Said };
    start_logging(store, command, log, lab, &wait)
}

/// A node that is started so; returns when it serves clients.
pub(crate) fn start_command(
    store: &Store,
    command: Command,
    lab: &Lab,
) -> Result<Server, CliError> {
    start_logging(store, command, "error", lab, &Wait::of(PATIENCE_WITH_FETCH))
}

fn start_logging(
    store: &Store,
    mut command: Command,
    log: &str,
    lab: &Lab,
    wait: &Wait<'_>,
) -> Result<Server, CliError> {
    command.args(["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"]);
    command.args(["--json", "--log", log, "--log-format", "text"]);
    let said = lab.start_and_hear(store, command, wait)?;
    let part = |name: &str| said.1.get(name).and_then(|part| part.as_str()).map(str::to_owned);
    let address = part("client").and_then(|text| text.parse().ok());
    let address = address.ok_or_else(|| store.failed("it does not say where clients go"))?;
    Ok(Server { child: said.0, address, inner: part("gossip").unwrap_or_default() })
}

/// How many entries a node has.
pub(crate) fn entries_of(server: &Server) -> Result<Option<u64>, CliError> {
    let mut talk = Talk::connect(StoreProtocol::Distkv, server.address)?;
    Ok(asks(&mut talk, "status")?.u64("entries"))
}
