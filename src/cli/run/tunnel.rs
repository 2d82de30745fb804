//! `tunnel`: clients on this machine that cannot do TLS reach nodes by TLS. It takes connections on loopback only, and
//! passes bytes on as they are: what a client says to the node, its login included, is its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use futures::future::select;
use futures::io::{AsyncReadExt, AsyncWriteExt};
use parking_lot::Mutex;
use serde_json::json;

mod liveness;

use self::liveness::{Held, Liveness};
use super::signals::on_ends;
use crate::cli::error::CliError;
use crate::cli::remote::RemoteArgs;
use crate::cli::say;
use crate::cli::terminal::output::Output;
use crate::client::wire::Wire;
use crate::client::{Access, ClientError, Fields, HostPort};
use crate::node::config::CLIENT_PORT;
use crate::rt::{self, TcpListener, TcpStream};

/// Clients at once; each costs two sockets. Further ones wait in the system's queue.
const CLIENTS_MAX: usize = 1_024;
/// Bytes that are read at a time, in each direction of each client.
const CHUNK_BYTES: usize = 64 << 10;
/// How long to wait after the system could not give another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Let clients on this machine that cannot do TLS reach nodes by TLS
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node tunnel --ticket @joe.ticket
  distkv-node tunnel --ticket @joe.ticket --listen 127.0.0.1:27600
  distkv-node tunnel --key key --connect n1.example.org
  DISTKV_TICKET=@joe.ticket distkv-node tunnel &
  distkv client data site.lamp get    # Python, as if the node were here

The ticket says where the nodes are and by which CA they are known; a key file has the CA, too, \
and --connect says where. Each client of the tunnel is connected to one of them: the one that \
answered last or, if that is gone, the next. A node that goes ends its clients' connections; \
they connect again as they would without the tunnel, and get another node. If there is none, \
they are told so, with the error `not_ready`. A node that goes without a word, or stands still, is \
noticed, too: once nothing has come from it for 10 s, the tunnel asks it, by a connection of its \
own, and ends its clients' connections if it does not answer within 4 s.

The tunnel listens on loopback only, because what comes to it is in plain text: everybody on \
this machine can use it. Clients log in by themselves, as without the tunnel. Neither the \
ticket's user and secret nor the key's right to do everything is used for them; a client \
certificate in the ticket is, for all clients of the tunnel.

The Python DistKV's library works as it is installed. Its command line (the last example) \
needs a wrapper (docs/client-protocol.md), and prints only CancelledError when a node is not ready.

Once it listens, it prints one line to standard output; what goes wrong later goes to standard \
error. Ctrl-C, SIGTERM and closing the terminal end it; begun with nohup, it outlives the terminal.

Exit code: 0 ended by a signal, 1 it cannot listen, 2 usage, 3 the ticket is not accepted.")]
pub(in crate::cli) struct TunnelArgs {
    /// Where clients connect; port 0 takes a free one
    #[arg(long, value_name = "ADDR[:PORT]", default_value_t = default_listen(), value_parser = parse_listen)]
    listen: SocketAddr,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

fn default_listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, CLIENT_PORT).into()
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let at = HostPort::parse(text, Some(CLIENT_PORT)).map_err(|error| error.to_string())?;
    let port = at.port;
    at.numeric()
        .or((at.host == "localhost").then_some((Ipv4Addr::LOCALHOST, port).into()))
        .ok_or_else(|| format!("give a loopback address, like 127.0.0.1:{CLIENT_PORT}"))
}

pub(in crate::cli) async fn run(args: TunnelArgs) -> Result<(), CliError> {
    if !args.listen.ip().is_loopback() {
        return Err(CliError::Usage(format!(
            "--listen {}: a tunnel takes clients of its own machine only, because they speak plain text; use a loopback \
             address like 127.0.0.1:{CLIENT_PORT}",
            args.listen
        )));
    }
    let tunnel = Arc::new(Tunnel {
        nodes: args.remote.addresses()?,
        access: args.remote.access()?,
        timeout: args.remote.timeout_or_default(),
        first: AtomicUsize::new(0),
        said: Mutex::default(),
        turns: Arc::new(async_lock::Semaphore::new(CLIENTS_MAX)),
        liveness: Arc::default(),
    });
    if !tunnel.access.is_secured() {
        return Err(CliError::Usage(String::from(
            "a tunnel needs a ticket with a CA, for TLS: give --ticket, or DISTKV_TICKET; or a --key file",
        )));
    }
    let (end, ended) = async_channel::bounded(1);
    on_ends(move |_| {
        let _ = end.try_send(());
    })?;
    let failed = |error| CliError::Failure(format!("cannot listen at {}: {error}", args.listen));
    let listener = TcpListener::bind(&args.listen.to_string()).await.map_err(failed)?;
    let listen = listener.local_addr().map_err(failed)?;
    tunnel.check().await?;
    let nodes: Vec<String> = tunnel.nodes.iter().map(ToString::to_string).collect();
    let mut output = Output::new(args.remote.json);
    output.either(
        || json!({"listen": listen.to_string(), "nodes": nodes}),
        || format!("tunnel at {listen} to {}", nodes.join(", ")),
    )?;
    output.flush()?;
    let accepting = std::pin::pin!(tunnel.accept(&listener));
    let ended = std::pin::pin!(ended.recv());
    select(accepting, ended).await;
    Ok(())
}

struct Tunnel {
    nodes: Vec<HostPort>,
    access: Access,
    timeout: Duration,
    /// The node that is tried first: the one that answered last.
    first: AtomicUsize,
    /// The last complaint, so that it is not repeated.
    said: Mutex<String>,
    turns: Arc<async_lock::Semaphore>,
    liveness: Arc<Liveness>,
}

impl Tunnel {
    /// Whether a node accepts the ticket; one that is down now may come.
    async fn check(&self) -> Result<(), CliError> {
        match self.connect().await {
            Ok((mut wire, _)) => {
                wire.close().await;
                Ok(())
            }
            Err(error @ ClientError::NoAccess { .. }) => Err(error.into()),
            Err(error) => {
                self.complain(&format!(
                    "{error}; clients of the tunnel are served once a node answers"
                ));
                Ok(())
            }
        }
    }

    async fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let turn = self.turns.acquire_arc().await;
            match listener.accept().await {
                Ok((client, _)) => {
                    let tunnel = Arc::clone(self);
                    let _detached = rt::spawn(async move {
                        tunnel.serve(client).await;
                        drop(turn);
                    });
                }
                Err(error) => {
                    self.complain(&format!("the system has no room for another client: {error}"));
                    rt::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// A connection to the node that answered last, or the next that answers, and which of them it is.
    async fn connect(&self) -> Result<(Wire, usize), ClientError> {
        let first = self.first.load(Ordering::Relaxed);
        let share = self.timeout / u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).max(1);
        let mut failed = None;
        for offset in 0..self.nodes.len() {
            let index = (first + offset) % self.nodes.len();
            let Some(node) = self.nodes.get(index) else { continue };
            let connecting = Wire::connect(node, &self.access, share);
            let error = match rt::timeout(share, connecting).await {
                Some(Ok(wire)) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok((wire, index));
                }
                Some(Err(error)) => error,
                None => {
                    let (address, reason) =
                        (node.to_string(), format!("no answer within {share:?}"));
                    ClientError::Connect { address, reason }
                }
            };
            // A ticket that is wrong says more than a node that is down.
            if !matches!(failed, Some(ClientError::NoAccess { .. })) {
                failed = Some(error);
            }
        }
        let none =
            || ClientError::Connect { address: String::new(), reason: String::from("no node") };
        Err(failed.unwrap_or_else(none))
    }

    async fn serve(self: &Arc<Self>, mut client: TcpStream) {
        let _ = client.set_nodelay(true);
        match self.connect().await {
            Ok((wire, index)) => {
                let held = self.hold(&wire, index);
                pass_on(client, wire, held).await;
            }
            Err(error) => {
                self.complain(&error.to_string());
                let mut fields = Fields::new();
                fields.str("error", &format!("the tunnel reaches no node: {error}"));
                // Clients try again, or elsewhere, as at a node that is not ready.
                fields.str("code", "not_ready");
                let _ = client.write_all(&fields.encode()).await;
                let _ = client.shutdown(std::net::Shutdown::Both);
            }
        }
    }

    /// Has the node of this connection asked whether it is alive, as long as the connection is open.
    fn hold(self: &Arc<Self>, wire: &Wire, index: usize) -> Option<Held> {
        let name = self.nodes.get(index)?;
        let tunnel = Arc::clone(self);
        let lost = move || {
            // Whoever connects again need not wait for it.
            let next = (index + 1) % tunnel.nodes.len().max(1);
            let relaxed = Ordering::Relaxed;
            let _ = tunnel.first.compare_exchange(index, next, relaxed, relaxed);
        };
        let at = SocketAddr::new(wire.peer(), name.port);
        Some(self.liveness.hold(at, name, &self.access, lost))
    }

    /// Says it, unless it was the last thing that was said.
    fn complain(&self, what: &str) {
        let mut said = self.said.lock();
        if *said != what {
            say::warning(what);
            what.clone_into(&mut said);
        }
    }
}

/// Passes bytes on in both directions until the node has ended, or does not answer any more, or the client has ended and
/// was answered.
async fn pass_on(client: TcpStream, wire: Wire, held: Option<Held>) {
    let up = {
        let (mut client, mut wire) = (client.clone(), wire.clone());
        async move {
            let mut chunk = vec![0; CHUNK_BYTES];
            while let Ok(count @ 1..) = client.read(&mut chunk).await {
                if wire.write_all(chunk.get(..count).unwrap_or_default()).await.is_err() {
                    return;
                }
            }
            // The client sends nothing more; the node may still answer, and then ends.
            wire.finish().await;
            std::future::pending::<()>().await;
        }
    };
    let down = {
        let (mut client, mut wire, held) = (client.clone(), wire.clone(), &held);
        async move {
            let mut chunk = vec![0; CHUNK_BYTES];
            while let Ok(count @ 1..) = wire.read(&mut chunk).await {
                if let Some(held) = held {
                    held.note_heard();
                }
                if client.write_all(chunk.get(..count).unwrap_or_default()).await.is_err() {
                    return;
                }
            }
        }
    };
    let lost = async {
        match &held {
            Some(held) => held.ended().await,
            None => std::future::pending().await,
        }
    };
    let (up, down, lost) = (std::pin::pin!(up), std::pin::pin!(down), std::pin::pin!(lost));
    select(select(up, down), lost).await;
    let mut wire = wire;
    wire.close().await;
    let _ = client.shutdown(std::net::Shutdown::Both);
}
