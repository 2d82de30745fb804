//! `demo`: a small network in one process, to try things out.

mod secure;

use std::env;
use std::time::Duration;

use clap::Args;
use futures::future::join_all;
use serde_json::json;

use super::fail_stop;
use super::logging::{LogFormat, Logging, level_given};
use super::node_process::{GOODBYE_MAX, end_of, listen_for_ends, start_error, unless_ended};
use super::settings::{Settings, StartKind, http_token};
use super::signals::Kept;
use crate::cli::error::CliError;
use crate::cli::open_files;
use crate::cli::terminal::output::{Output, shell_word};
use crate::node::config::{CLIENT_PORT, Token};
use crate::node::{Node, NodeError, StopReason};
use crate::rt;
use secure::Folder;

/// From the ports of one node to those of the next.
const PORTS_APART: u16 = 10;

/// Start a small network in one process, to try things out
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node demo
  distkv-node demo --nodes 5 --port 31000
  distkv-node demo --port 0  # any free ports
  distkv-node demo --secure  # with a key, and a user

Node 1 takes PORT for clients, PORT + 1 for other nodes and PORT + 2 for HTTP (a page, \
/metrics), node 2 PORT + 10 and so on, on 127.0.0.1. It prints the page's address first, and a token that lets the page \
(and curl) change data, then commands to try. Ctrl-C, and closing the terminal, stop all nodes; nothing is kept. With \
--secure, a key file and a user's ticket are in a temporary folder, which is deleted when the demo ends.")]
pub(in crate::cli) struct DemoArgs {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    nodes: u16,

    /// The first port; 0 takes any that are free
    #[arg(long, default_value_t = CLIENT_PORT)]
    port: u16,

    /// Give the nodes a key, and the network a user: shows what an admin, a user and a stranger get
    #[arg(long)]
    secure: bool,

    /// The network's name
    #[arg(long, value_name = "NAME", default_value = "demo")]
    network: String,

    /// off, error, warn, info, debug, trace, or directives like info,distkv::node=debug
    #[arg(long, value_name = "LEVEL", env = "DISTKV_LOG", default_value = "warn")]
    log: String,

    /// Print where the nodes are as JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// How people get in.
enum Access<'f> {
    /// By a ticket in this folder, or its key.
    Secure(&'f Folder),
    /// Everybody on this machine, by HTTP to change data only with this token: web pages of others reach it, too.
    Open(String),
}

/// Starts the nodes, and returns when they have ended. `kept`: signals that came since the process began.
pub(in crate::cli) fn run(args: DemoArgs, kept: Option<Kept>) -> Result<(), CliError> {
    let ending = listen_for_ends(kept)?;
    let level = level_given(Some(args.log.clone()));
    Logging::start(level.as_deref(), "warn", None, LogFormat::Text)?;
    fail_stop::install();
    open_files::raise();
    let folder = args.secure.then(|| Folder::make(&args.network)).transpose()?;
    let access = match &folder {
        Some(folder) => Access::Secure(folder),
        None => Access::Open(http_token::make_text()?),
    };
    rt::block_on(async {
        let mut nodes = Vec::new();
        let ended = unless_ended(&ending, async {
            start_all(&args, &access, &mut nodes).await?;
            if let Access::Secure(folder) = &access {
                folder.add_user(&nodes).await?;
            }
            print(&args, &access, &nodes)?;
            Ok::<_, CliError>(stopped(&nodes).await)
        })
        .await;
        let goodbye = join_all(nodes.iter().map(Node::shutdown));
        if rt::timeout(GOODBYE_MAX, goodbye).await.is_none() {
            tracing::warn!("ended before all peers were told: it took too long");
        }
        match ended {
            None => Ok(()),
            Some(reason) => end_of(&reason?),
        }
    })
}

/// Starts the nodes one by one, and waits until all serve clients.
async fn start_all(
    args: &DemoArgs,
    access: &Access<'_>,
    nodes: &mut Vec<Node>,
) -> Result<(), CliError> {
    for index in 0..args.nodes {
        let first = nodes.first().map(|node| node.gossip_addr().to_string());
        let kind = if first.is_none() { StartKind::Run } else { StartKind::Join };
        let settings = Settings {
            name: Some(format!("n{}", index + 1)),
            network: Some(args.network.clone()),
            client: Some(format!("127.0.0.1:{}", port(args.port, PORTS_APART * index)?)),
            gossip: Some(format!("127.0.0.1:{}", port(args.port, PORTS_APART * index + 1)?)),
            http: Some(format!("127.0.0.1:{}", port(args.port, PORTS_APART * index + 2)?)),
            peers: first.map(|first| vec![first]),
            peer_wait: Some(Duration::ZERO),
            key: match access {
                Access::Secure(folder) => Some(folder.key()),
                Access::Open(_) => None,
            },
            ..Settings::default()
        };
        let mut config = settings.into_config(kind, String::new)?;
        if let (Access::Open(token), Some(http)) = (access, &mut config.http) {
            http.write_token = Some(Token::new(token));
        }
        let node = Node::start(config).await.map_err(|error| {
            let is_taken = matches!(error, NodeError::InUse { .. });
            let advice = if is_taken { "; `demo --port 0` takes free ports" } else { "" };
            start_error(error).said(|text| format!("{text}{advice}"))
        })?;
        nodes.push(node);
    }
    for node in nodes.iter() {
        if let Err(reason) = node.ready().await {
            return Err(CliError::Failure(format!("{} has ended: {reason}", node.name())));
        }
    }
    Ok(())
}

/// The port so far from the first one; 0 stays 0.
fn port(first: u16, offset: u16) -> Result<u16, CliError> {
    if first == 0 {
        return Ok(0);
    }
    first.checked_add(offset).ok_or_else(|| {
        CliError::Usage(format!("--port {first} leaves no room: ports end at {}", u16::MAX))
    })
}

/// Waits until all have ended by themselves, or one has failed.
async fn stopped(nodes: &[Node]) -> StopReason {
    for node in nodes {
        let reason = node.stopped().await;
        if end_of(&reason).is_err() {
            return reason;
        }
    }
    StopReason::Left
}

/// Where the nodes are, and what to type next.
fn print(args: &DemoArgs, access: &Access<'_>, nodes: &[Node]) -> Result<(), CliError> {
    let mut output = Output::new(args.json);
    if let Some(http) = nodes.first().and_then(Node::http_addr).filter(|_| !args.json) {
        output.line(&format!("page: http://{http}/"))?;
        if let Access::Open(token) = access {
            output.line(&format!("to change data on it, log in with this token: {token}"))?;
        }
    }
    for node in nodes {
        let (name, client, gossip) = (node.name(), node.client_addr(), node.gossip_addr());
        let http = node.http_addr().map(|http| http.to_string());
        output.either(
            || {
                json!({
                    "name": name.as_str(),
                    "network": args.network,
                    "client": client.to_string(),
                    "gossip": gossip.to_string(),
                    "http": http,
                })
            },
            || {
                let http = http.as_deref().map(|http| format!(", HTTP at {http}"));
                format!(
                    "node {name} of network {}: clients at {client}, peers at {gossip}{}",
                    args.network,
                    http.unwrap_or_default()
                )
            },
        )?;
    }
    if args.json {
        let secrets = match access {
            Access::Secure(folder) => {
                json!({"key_file": folder.key(), "ticket_file": folder.ticket()})
            }
            Access::Open(token) => json!({"http_token": token}),
        };
        output.json_line(secrets)?;
    } else {
        for line in next_lines(access, nodes) {
            output.line(&line)?;
        }
    }
    output.flush()
}

/// Commands to copy.
fn next_lines(access: &Access<'_>, nodes: &[Node]) -> Vec<String> {
    let program = env::args().next().unwrap_or_else(|| String::from("distkv-node"));
    let program = shell_word(&program);
    let at = |index: usize| {
        let node = nodes.get(index).or(nodes.last());
        node.map(|node| node.client_addr().to_string()).unwrap_or_default()
    };
    if let Access::Secure(folder) = access {
        return folder.lines(&program, &at(0));
    }
    vec![
        String::new(),
        String::from("In other terminals, watch on one node, set on another, get on a third:"),
        String::new(),
        format!("  {program} watch site --connect {}", at(2)),
        format!("  {program} set site.lamp '{{\"on\": true}}' --connect {}", at(0)),
        format!("  {program} get site.lamp --connect {}", at(1)),
        format!("  {program} members --connect {}", at(0)),
        String::new(),
        String::from("Ctrl-C stops all nodes."),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_counted_from_the_first_unless_any_will_do() {
        assert_eq!(port(27586, 3), Ok(27589));
        assert_eq!(port(0, 3), Ok(0));
        assert!(port(65534, 2).is_err());
    }
}
