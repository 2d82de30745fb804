//! What all commands against a running node have in common: where it is, and how it is asked.

use std::env;
use std::time::Duration;

use clap::Args;

use super::error::CliError;
use super::units::parse_duration;
use crate::client::{
    ClientError, Connection, Fields, HostPort, Message, Options, ReplyStream, StreamEvent,
};
use crate::model::path::Path;
use crate::node::config::CLIENT_PORT;
use crate::rt;

/// The environment's variable for `--connect`.
const CONNECT: &str = "DISTKV_CONNECT";
/// How long a node may take for an answer unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How much longer is waited where the node itself keeps to the time, so that it is the node that
/// tells what came of the request.
const NODE_TELLS: Duration = Duration::from_secs(5);

/// Where the node is, and how it is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct RemoteArgs {
    /// The node's client port [env: DISTKV_CONNECT] [default: 127.0.0.1:27586]
    #[arg(long, value_name = "ADDR:PORT")]
    connect: Option<String>,

    /// How long the node may take, like 500ms, 10s, 2m [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(super) timeout: Option<Duration>,

    /// Print JSON, for programs: one object, or one per line
    #[arg(long)]
    pub(super) json: bool,
}

/// A connection to the node, and how long it may take.
pub(super) struct Remote {
    pub(super) connection: Connection,
    timeout: Duration,
}

impl RemoteArgs {
    /// What was said after the command, and what was said before it where that says nothing.
    pub(super) fn or(self, before: RemoteArgs) -> RemoteArgs {
        RemoteArgs {
            connect: self.connect.or(before.connect),
            timeout: self.timeout.or(before.timeout),
            json: self.json || before.json,
        }
    }

    /// Connects.
    pub(super) async fn connect(&self) -> Result<Remote, CliError> {
        let timeout = self.timeout_or_default();
        let connection = self.connect_once(timeout).await?;
        Ok(Remote { connection, timeout })
    }

    /// How long the node may take.
    pub(super) fn timeout_or_default(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT)
    }

    /// Whether an address was typed.
    pub(super) fn has_address(&self) -> bool {
        self.connect.is_some()
    }

    /// Where to connect.
    pub(super) fn address(&self) -> Result<HostPort, CliError> {
        let (what, text) = match (&self.connect, env::var(CONNECT)) {
            (Some(text), _) => ("--connect", text.clone()),
            (None, Ok(text)) => (CONNECT, text),
            (None, Err(_)) => ("", format!("127.0.0.1:{CLIENT_PORT}")),
        };
        HostPort::parse(&text, Some(CLIENT_PORT))
            .map_err(|error| CliError::Usage(format!("{what}: {error}")))
    }

    async fn connect_once(&self, connect_timeout: Duration) -> Result<Connection, CliError> {
        // One command, one stream: that the socket is not read is all the flow control it needs.
        let options = Options { connect_timeout, window: None };
        Ok(Connection::connect(&self.address()?, options).await?)
    }
}

impl Remote {
    /// A connection that is there already.
    pub(super) fn over(connection: Connection, timeout: Duration) -> Remote {
        Remote { connection, timeout }
    }

    /// The same, with time for the node to say that its time is over.
    pub(super) fn patient(self) -> Remote {
        Remote { timeout: self.timeout + NODE_TELLS, ..self }
    }

    /// Asks, and waits for the one reply.
    pub(super) async fn request(&self, action: &str, fields: &Fields) -> Result<Message, CliError> {
        self.in_time(self.connection.request(action, fields)).await
    }

    /// Asks for a stream, and waits for its start.
    pub(super) async fn stream(
        &self,
        action: &str,
        fields: &Fields,
    ) -> Result<ReplyStream, CliError> {
        self.in_time(self.connection.stream(action, fields)).await
    }

    /// The next of a stream that comes without pause.
    pub(super) async fn next(
        &self,
        stream: &mut ReplyStream,
    ) -> Result<Option<StreamEvent>, CliError> {
        self.in_time(stream.next()).await
    }

    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, CliError> {
        match rt::timeout(self.timeout, answer).await {
            Some(answer) => Ok(answer?),
            None => Err(CliError::Failure(format!(
                "{} did not answer within {:?}; --timeout gives it longer",
                self.connection.address(),
                self.timeout
            ))),
        }
    }
}

/// Reads a path in DistKV's text form.
pub(super) fn parse_path(text: &str) -> Result<Path, String> {
    text.parse::<Path>()
        .map_err(|error| format!("{error}; paths look like a.b:1.c, the root is ':'"))
}

/// A topic as messages carry it: an array of its parts.
pub(super) fn topic_bytes(topic: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    topic.encode_array(&mut bytes);
    bytes
}

/// The action for a path, and the path that it takes: the system's own tree (below `:n`) has
/// actions of its own, whose paths begin below it.
pub(super) fn address_entry<'a>(
    path: &Path,
    action: &'a str,
    internal_action: &'a str,
) -> Result<(&'a str, Path), CliError> {
    let Some(below) = path.strip_prefix(&Path::system_root()) else {
        return Ok((action, path.clone()));
    };
    let below = Path::from_canonical(below).map_err(|error| CliError::Usage(error.to_string()))?;
    Ok((internal_action, below))
}

/// The path of a stream's item as it is typed: below the path that was asked for.
pub(super) fn whole_path(asked: &Path, below: Option<&Path>) -> String {
    match below.map(|below| asked.join(below)) {
        Some(Ok(path)) => path.to_string(),
        Some(Err(_)) => below.map(ToString::to_string).unwrap_or_default(),
        None => asked.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_system_s_tree_take_other_actions() {
        let path = |text: &str| text.parse::<Path>().unwrap();
        let of = |text| address_entry(&path(text), "get_value", "get_internal").unwrap();
        assert_eq!(of("a.b"), ("get_value", path("a.b")));
        assert_eq!(of(":n.a"), ("get_internal", path("a")));
        assert_eq!(of(":n"), ("get_internal", path(":")));
    }

    #[test]
    fn what_stands_after_the_command_wins() {
        let of = |connect: Option<&str>, json| RemoteArgs {
            connect: connect.map(str::to_owned),
            timeout: None,
            json,
        };
        assert_eq!(of(Some("a"), false).or(of(Some("b"), true)), of(Some("a"), true));
        assert_eq!(of(None, true).or(of(Some("b"), false)), of(Some("b"), true));
    }

    #[test]
    fn paths_of_items_are_whole() {
        let path = |text: &str| text.parse::<Path>().unwrap();
        assert_eq!(whole_path(&path("a.b"), Some(&path("c"))), "a.b.c");
        assert_eq!(whole_path(&path(":"), Some(&path("c"))), "c");
        assert_eq!(whole_path(&path("a"), None), "a");
    }
}
