//! `wait`: until a node is ready, and sees enough of the network.

use std::time::Duration;

use clap::Args;

use super::members::print_warnings;
use super::status::{is_ready, status_json};
use crate::cli::error::{CliError, Outcome};
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::terminal::output::{Output, count_of};
use crate::cli::terminal::units::show_millis;
use crate::client::{Access, Connection, Fields, HostPort, Message, Options};
use crate::rt;

/// How long is waited unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long between two looks.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Wait until a node is ready and sees enough members
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node wait                           # until the node serves clients
  distkv-node wait --members 3 --timeout 30s

The node need not run yet, and counts as a member itself. Of several in --connect, one is enough. \
--timeout limits the whole wait; here its default is 60s. What the node warns of is printed, too: for example that it has begun \
alone, because no peer has answered or takes it in. For scripts that need the network: --members.

A node that ended without a word, killed or cut off, counts as live until the others have noticed it: mostly for 3 to 5 s, \
in large networks for up to 8 s. So right after that, --members may still count it; `leave` is noticed at once.

The command ends at once if the node refuses the login, or if the node's certificate is not \
trusted: waiting does not help.

Exit code: 0 the condition is met, 1 it was not met in time, 2 usage, 3 refused, 8 it cannot be written.")]
pub(in crate::cli) struct WaitArgs {
    /// How many live members the node must see, itself included; with 2 or more, it must also be linked with
    /// one of them
    #[arg(long, value_name = "N", default_value_t = 1)]
    members: u64,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: WaitArgs) -> Result<(), CliError> {
    let (addresses, access) = (args.remote.addresses()?, args.remote.access()?);
    let timeout = args.remote.timeout.unwrap_or(TIMEOUT);
    let mut nodes: Vec<Awaited> = addresses.into_iter().map(Awaited::new).collect();
    let waiting = async {
        loop {
            for node in &mut nodes {
                if let Some(status) = node.look(&access, args.members).await? {
                    return Ok::<_, CliError>(status);
                }
            }
            rt::sleep(INTERVAL).await;
        }
    };
    let Some(waited) = rt::timeout(timeout, waiting).await else {
        let last: Vec<&str> = nodes.iter().map(|node| node.last.as_str()).collect();
        let after = show_millis(rt::millis(timeout));
        return Err(CliError::Failure(format!("timed out after {after}: {}", last.join("; "))));
    };
    let status = waited?;
    let mut output = Output::of_read(args.remote.json);
    let members = status.u64("members").unwrap_or(0);
    let name = status.str("name").unwrap_or("the node").to_owned();
    output.either(
        || status_json(&status),
        || format!("{name} is ready and sees {}", count_of(members, "member", "members")),
    )?;
    if !output.json {
        print_warnings(&status, &mut output)?;
    }
    output.flush()
}

/// One of the nodes that will do.
struct Awaited {
    address: HostPort,
    remote: Option<Remote>,
    /// What it said last, for people.
    last: String,
}

impl Awaited {
    fn new(address: HostPort) -> Self {
        let last = format!("no answer from {address}");
        Self { address, remote: None, last }
    }

    /// Asks once; the status if the node sees enough members. An error is one that waiting does not help against.
    async fn look(&mut self, access: &Access, members: u64) -> Result<Option<Message>, CliError> {
        match self.ask(access).await {
            Ok(status) if is_enough(&status, members) => return Ok(Some(status)),
            Ok(status) => self.last = lack_of(&status),
            Err(error) => {
                let remote = self.remote.take();
                // A node that catches up may not know yet whom a client certificate names.
                let may_know_soon = access.tls().is_some()
                    && error.has_code("auth_required")
                    && remote.is_some_and(|it| it.connection.greeting().is_catching_up);
                if is_final(&error) && !may_know_soon {
                    return Err(error);
                }
                self.last = error.to_string();
            }
        }
        Ok(None)
    }

    /// Over the connection that there is, or a new one.
    async fn ask(&mut self, access: &Access) -> Result<Message, CliError> {
        let current = match &mut self.remote {
            Some(remote) => remote,
            None => {
                let options = Options {
                    connect_timeout: LOOK_MAX,
                    nowait: true,
                    access: access.clone(),
                    ..Options::default()
                };
                let connection = Connection::connect(&self.address, options).await?;
                self.remote.insert(Remote::over(connection, LOOK_MAX))
            }
        };
        current.request("status", &Fields::new()).await
    }
}

/// Whether the node will say the same again. One that has too much to do refuses nothing for good.
fn is_final(error: &CliError) -> bool {
    matches!(error, CliError::Request { outcome: Outcome::Refused, .. })
        && !error.has_code("too_many")
}

fn is_enough(status: &Message, members: u64) -> bool {
    is_ready(status)
        && status.u64("members").unwrap_or(0) >= members
        && (members <= 1 || !is_unlinked(status))
}

/// Whether the node sees others and has a link to none: each refuses it, because of its version for example. So it goes on alone.
/// Older nodes do not tell how many links they have.
fn is_unlinked(status: &Message) -> bool {
    status.u64("members").is_some_and(|members| members > 1) && status.u64("links") == Some(0)
}

/// Whether the node has found its network and takes in its data.
fn is_catching_up(status: &Message) -> bool {
    status.get("catching_up").is_some_and(|value| value != [0xc0])
}

/// What a node lacks that was asked.
fn lack_of(status: &Message) -> String {
    let name = status.str("name").unwrap_or("the node");
    let members = status.u64("members").unwrap_or(0);
    let ready = match (is_ready(status), is_catching_up(status)) {
        (true, _) => "is ready",
        (false, true) => "is still catching up with its network",
        (false, false) => "is not ready (its log says which peers it waits for)",
    };
    let unlinked = match is_unlinked(status) {
        true => ", but has no link to any other; its log says why",
        false => "",
    };
    format!("{name} {ready} and sees {}{unlinked}", count_of(members, "member", "members"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClientError, ServerError};

    #[test]
    fn a_refusal_is_final_and_what_may_pass_is_not() {
        let is_final_code = |code: &str| {
            let error = ServerError::new(Some(code.to_owned()), String::from("no"));
            is_final(&ClientError::Server(error).into())
        };
        for code in ["auth_required", "denied", "unknown_action"] {
            assert!(is_final_code(code), "{code}");
        }
        for code in ["not_ready", "too_many", "internal"] {
            assert!(!is_final_code(code), "{code}");
        }
        let (address, reason) = (String::from("a:1"), String::from("no"));
        let of = |error: ClientError| is_final(&error.into());
        assert!(of(ClientError::NoAccess {
            address: address.clone(),
            reason: reason.clone(),
            code: None,
            greeted: true
        }));
        assert!(!of(ClientError::Connect { address: address.clone(), reason: reason.clone() }));
        assert!(!of(ClientError::Lost { address, reason }));
    }

    fn status(ready: bool, members: u64) -> Message {
        status_with(ready, members, None)
    }

    fn status_with(ready: bool, members: u64, links: Option<u64>) -> Message {
        let mut fields = Fields::new();
        fields.str("name", "n1").bool("ready", ready).u64("members", members);
        if let Some(links) = links {
            fields.u64("links", links);
        }
        Message::new(&fields.encode()).unwrap()
    }

    /// One whose peers all refuse it takes writes that they do not get.
    #[test]
    fn a_node_that_is_linked_with_none_of_the_others_is_not_enough_of_a_network() {
        assert!(!is_enough(&status_with(true, 3, Some(0)), 3));
        assert!(is_enough(&status_with(true, 3, Some(1)), 3));
        assert!(is_enough(&status_with(true, 3, Some(0)), 1), "nobody else is asked for");
        assert!(is_enough(&status_with(true, 1, Some(0)), 1));
        let said = lack_of(&status_with(true, 3, Some(0)));
        assert_eq!(
            said,
            "n1 is ready and sees 3 members, but has no link to any other; its log says why"
        );
    }

    #[test]
    fn enough_is_ready_and_so_many_members() {
        assert!(is_enough(&status(true, 3), 3));
        assert!(is_enough(&status(true, 4), 3));
        assert!(!is_enough(&status(true, 2), 3));
        assert!(!is_enough(&status(false, 3), 3));
        assert_eq!(
            lack_of(&status(false, 1)),
            "n1 is not ready (its log says which peers it waits for) and sees 1 member"
        );
        let mut fields = Fields::new();
        fields.str("name", "n1").bool("ready", false).u64("members", 2).str("catching_up", "n2");
        let catching_up = Message::new(&fields.encode()).unwrap();
        assert_eq!(
            lack_of(&catching_up),
            "n1 is still catching up with its network and sees 2 members"
        );
    }
}
