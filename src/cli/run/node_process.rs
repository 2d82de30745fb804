//! `run`, `join` and `start`: a node from its start to its end, as a process.

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::pin;
use std::process;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use distkv_command::key_file;
use futures::future::{Either, select};
use serde_json::json;

use super::fail_stop;
use super::logging::Logging;
use super::node_args::Prepared;
use super::notify::Notify;
use super::signals::{Kept, Signal};
use crate::cli::error::CliError;
use crate::cli::open_files;
use crate::cli::say;
use crate::cli::terminal::output::{Output, printable};
use crate::node::check::foreign_key;
use crate::node::config::Config;
use crate::node::security::OtherNetwork;
use crate::node::{LOG_FAREWELL_TIMEOUT, Node, NodeError, StopReason};
use crate::rt;

/// How long saying goodbye may take; then the process ends without it.
pub(super) const GOODBYE_MAX: Duration = Duration::from_millis(2800);

/// Starts a node, and returns when it has ended. `kept`: signals that came since the process began. `prepare` puts its settings
/// together.
pub(in crate::cli) fn run(
    kept: Option<Kept>,
    prepare: impl FnOnce() -> Result<Prepared, CliError>,
) -> Result<(), CliError> {
    // What has to be read may be slow, and who ends the node meanwhile is to see that it has heard.
    let prepared_logging = Arc::new(OnceLock::new());
    let (ending, hang_ups) = listen_for_signals(kept, Arc::clone(&prepared_logging))?;
    let Prepared { config, logging, json, threads } = prepare()?;
    fail_stop::install();
    rt::start(threads);
    let hang_up_means_more = config.key.is_some() || config.tls.is_some() || config.audit.is_some();
    let logging = if hang_up_means_more { logging.without_switch() } else { logging };
    let _first = prepared_logging.set(logging);
    // A node that gets too few for as many clients as there may be says so.
    open_files::raise();
    rt::block_on(serve(config, &ending, &hang_ups, json))
}

async fn serve(
    config: Config,
    ending: &Receiver<Signal>,
    hang_ups: &Receiver<()>,
    json: bool,
) -> Result<(), CliError> {
    warn_of_plain_text(&config);
    warn_of_foreign_key(&config);
    let key = config.key.as_ref().map(|key| key.file.ring.primary_id());
    let security = match &config.key {
        None => "open",
        Some(key) if key.plaintext_peers => "open, moving to a key",
        Some(_) => "secured",
    };
    let key_file = config.key.as_ref().and_then(|key| key.path.clone());
    let network = config.network.clone();
    let data = match &config.data {
        Some(data) => format!("{} (sync {})", data.dir.display(), data.sync.word()),
        None => String::from("in memory"),
    };
    let goodbye_max = match config.data {
        // What it has not written yet is worth waiting for.
        Some(_) => GOODBYE_MAX + LOG_FAREWELL_TIMEOUT,
        None => GOODBYE_MAX,
    };
    if !config.peers.is_empty() {
        tracing::info!(network, peers = config.peers.join(" "), "looking for the network");
    }
    let notify = Notify::of_environment();
    let (has_data, phase) = (config.data.is_some(), config.phase.clone());
    let started = unless_ended(ending, start(config, &notify, has_data)).await;
    let Some(node) = started else {
        let doing = phase.doing();
        tracing::info!(reason = %StopReason::Requested, "stopping before this node has started; it was {doing}");
        notify.stopping();
        return Ok(());
    };
    let node = node.map_err(start_error)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        name = %node.name(),
        network,
        client = %node.client_addr(),
        gossip = %node.gossip_addr(),
        http = node.http_addr().map(tracing::field::display),
        data = %data,
        security,
        key = key.map(tracing::field::display),
        "started"
    );
    notify.ready(&node);
    let stopped = unless_ended(ending, async {
        if let Err(reason) = node.ready().await {
            return Ok(reason);
        }
        announce(&node, &network, json)?;
        Ok(node.stopped().await)
    });
    let following = follow_hang_ups(&node, key_file, hang_ups);
    let (following, telling) = (pin!(following), pin!(notify.follow(&node)));
    let besides = select(following, telling);
    let stopped = match select(pin!(stopped), besides).await {
        Either::Left((stopped, _)) => stopped,
        Either::Right((Either::Left((never, _)) | Either::Right((never, _)), _)) => match never {},
    };
    let stopped: Result<Option<StopReason>, CliError> = stopped.transpose();
    notify.stopping();
    if rt::timeout(goodbye_max, node.shutdown()).await.is_none() {
        tracing::warn!("ended before all peers were told: it took too long");
    }
    let stopped = stopped?;
    if node.has_lost_changes() {
        return Err(CliError::Failure(String::from(
            "the disk has failed, and changes that no other node has may be lost: the log says how many",
        )));
    }
    match stopped {
        None => Ok(()),
        Some(reason) => end_of(&reason),
    }
}

/// Starts the node; as long as it reads its data, the service manager is asked for patience.
async fn start(config: Config, notify: &Notify, has_data: bool) -> Result<Node, NodeError> {
    let starting = pin!(Node::start(config));
    if !has_data {
        return starting.await;
    }
    match select(starting, pin!(notify.reading())).await {
        Either::Left((node, _)) => node,
        Either::Right((never, _)) => match never {},
    }
}

/// Reads the certificate for clients and the key file again at each SIGHUP, and opens the audit log anew.
async fn follow_hang_ups(
    node: &Node,
    key_file: Option<PathBuf>,
    hang_ups: &Receiver<()>,
) -> Infallible {
    while hang_ups.recv().await.is_ok() {
        node.reload_certificate();
        node.reopen_audit();
        if let Some(path) = key_file.clone() {
            read_keys(node, path).await;
        }
    }
    std::future::pending().await
}

async fn read_keys(node: &Node, path: PathBuf) {
    let place = path.display().to_string();
    let read = rt::spawn_blocking(move || key_file::read(&path)).await;
    let set = read.map_err(|why| why.to_string()).and_then(|file| {
        let other = |why: OtherNetwork| format!("the key file {place}: {why}");
        node.set_keys(file).transpose().map_err(other)
    });
    match set {
        Ok(Some(keys)) => {
            let ids = keys.ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            if keys.is_other_ca {
                tracing::warn!(
                    "the key file has another CA than the one that this node was started with: certificates, clients' ones \
                     included, stay of that one until the node is restarted"
                );
            }
            if keys.is_replaced {
                tracing::warn!(
                    "the key file has none of the keys before, so it replaces them all; a node with one of those, and what it \
                     says of keys, is refused from now on"
                );
            }
            if keys.is_amended {
                tracing::warn!(
                    "the key file lacks changes that were made over the network, as an old copy does; they stay in force and \
                     are written into it"
                );
            }
            match keys.is_change {
                true => tracing::warn!(
                    keys = ids, primary = %keys.primary, "the key file was read again; it has changed"
                ),
                false => tracing::info!(
                    keys = ids, primary = %keys.primary, "the key file was read again; it is as it was"
                ),
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!("the keys stay as they are: {error}"),
    }
}

/// Says which clients may send their secrets in plain text.
fn warn_of_plain_text(config: &Config) {
    for network in config.tls.iter().flat_map(|tls| &tls.plain) {
        tracing::warn!(
            "clients of {network} may connect without TLS: whoever can listen there reads what they send"
        );
    }
}

/// Only root, or who may read all files, can run a node with such a key file.
fn warn_of_foreign_key(config: &Config) {
    if let Some(path) = config.key.as_ref().and_then(|key| key.path.as_deref())
        && let Some(text) = foreign_key(path)
    {
        tracing::warn!("{text}");
    }
}

/// The one line on standard output, for those who wait for it.
fn announce(node: &Node, network: &str, json: bool) -> Result<(), CliError> {
    let (name, client, gossip) = (node.name(), node.client_addr(), node.gossip_addr());
    let http = node.http_addr();
    let mut output = Output::of_node(json);
    let written = output
        .either(
            || {
                json!({
                    "name": name.as_str(),
                    "network": network,
                    "client": client.to_string(),
                    "gossip": gossip.to_string(),
                    "http": http.map(|http| http.to_string()),
                })
            },
            || {
                let network = printable(network);
                let is_encrypted = node.ca_hash().is_some();
                let http = http.map(|at| match is_encrypted && !at.ip().is_loopback() {
                    true => format!(", HTTPS at {at}"),
                    false => format!(", HTTP at {at}"),
                });
                let http = http.unwrap_or_default();
                format!(
                    "node {name} of network {network}: clients at {client}, peers at {gossip}{http}"
                )
            },
        )
        .and_then(|()| output.flush());
    match written {
        // Nobody reads it. The node serves nevertheless.
        Err(CliError::OutputClosed) => Ok(()),
        other => other,
    }
}

/// What a node that has ended by itself makes of the process.
pub(super) fn end_of(reason: &StopReason) -> Result<(), CliError> {
    match reason {
        StopReason::Requested | StopReason::Left | StopReason::LeftForGood => Ok(()),
        StopReason::NameInUse { .. } | StopReason::Refused { .. } => {
            Err(CliError::Refused(reason.to_string()))
        }
        reason => Err(CliError::Failure(reason.to_string())),
    }
}

/// The error of a node that did not start.
pub(super) fn start_error(error: NodeError) -> CliError {
    match error.is_of_settings() {
        true => CliError::Usage(error.to_string()),
        false => CliError::Failure(error.to_string()),
    }
}

/// The future's output; `None` when a signal to end came first. Then it was dropped.
pub(super) async fn unless_ended<T>(
    ending: &Receiver<Signal>,
    future: impl Future<Output = T>,
) -> Option<T> {
    match select(pin!(future), pin!(ending.recv())).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// From now on, SIGTERM and SIGINT come over the first channel, a second one ends the process at once,
/// and SIGHUP changes the log level and comes over the second channel. As long as there is no `logging`, the settings are
/// being read: then the first one ends the process, and SIGHUP has nothing to read again. Those that were kept come first.
fn listen_for_signals(
    kept: Option<Kept>,
    logging: Arc<OnceLock<Logging>>,
) -> Result<(Receiver<Signal>, Receiver<()>), CliError> {
    let (mut ending, receiver) = Ending::new();
    let (hang_up, hang_ups) = async_channel::bounded(1);
    let kept = kept.map_or_else(Kept::signals, Ok)?;
    kept.hear(move |signal| match (signal, logging.get()) {
        (Signal::HangUp, Some(logging)) => {
            // If one waits already, what it does is yet to come.
            let _ = hang_up.try_send(());
            logging.reload();
        }
        (Signal::OfNoMeaning(name), Some(_)) => {
            tracing::info!(
                "{name} means nothing to a node; SIGHUP has it read its files again, and open its audit log anew"
            );
        }
        (Signal::HangUp | Signal::OfNoMeaning(_), None) => {}
        (end, Some(_)) => ending.end(end),
        (_, None) => {
            say::line("stopping before this node has started; it was reading its settings");
            process::exit(0);
        }
    })?;
    Ok((receiver, hang_ups))
}

/// From now on, SIGTERM, SIGINT and SIGHUP come over the channel, and a second one ends the process at once; but not a
/// second SIGHUP, because a terminal that is closed may send several. So do those that were kept.
pub(super) fn listen_for_ends(kept: Option<Kept>) -> Result<Receiver<Signal>, CliError> {
    let (mut ending, receiver) = Ending::new();
    let kept = kept.map_or_else(Kept::ends, Ok)?;
    kept.hear(move |signal| {
        if !(ending.has_begun && matches!(signal, Signal::HangUp)) {
            ending.end(signal);
        }
    })?;
    Ok(receiver)
}

/// Passes the first signal to end on.
struct Ending {
    sender: Sender<Signal>,
    has_begun: bool,
}

impl Ending {
    fn new() -> (Self, Receiver<Signal>) {
        let (sender, receiver) = async_channel::bounded(1);
        (Self { sender, has_begun: false }, receiver)
    }

    fn end(&mut self, signal: Signal) {
        if self.has_begun {
            tracing::warn!("ended at once by a second signal");
            let number = match signal {
                Signal::HangUp => 1,
                Signal::Interrupt => 2,
                Signal::Terminate => 15,
                Signal::OfNoMeaning(_) => return,
            };
            process::exit(128 + number);
        }
        self.has_begun = true;
        // There is room: this is sent once.
        let _ = self.sender.try_send(signal);
    }
}
