//! A node that is asked for its conflicts.

use crate::cli::data::entry::ask_for_chain;
use crate::cli::error::CliError;
use crate::cli::following::Following;
use crate::cli::remote::{Remote, RemoteArgs, no_greeting_as_told};
use crate::cli::terminal::output::printable;
use crate::client::{Connection, Fields, HostPort, Message, Options, StreamEvent};
use crate::model::path::Path;

use super::told::{Told, tell_dropped};

/// See the module.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) remote: Remote,
    /// Where it is; none for the one that was named by the command's options.
    address: Option<HostPort>,
    /// Of those to come.
    pub(super) watch: Option<Following>,
    /// The number of the last one in its list.
    pub(super) last: u64,
    /// Its name and incarnation, as it tells them: numbers count from its start. None of a node that cannot be asked.
    pub(super) life: Option<Vec<u8>>,
}

impl Node {
    /// The one that the command's options name; of several, the first that answers.
    pub(super) async fn named(args: &RemoteArgs) -> Result<Self, CliError> {
        Ok(Self::at(args.connect_for_streams().await?, None))
    }

    /// All members of its network, as it sees them.
    pub(super) async fn members(&self) -> Result<Message, CliError> {
        self.remote.request("members", &Fields::new()).await
    }

    /// Another member of its network, at its address.
    pub(super) async fn connect(
        name: &str,
        address: HostPort,
        args: &RemoteArgs,
    ) -> Result<Self, CliError> {
        let timeout = args.timeout_or_default();
        // Two streams are open at once where it is followed: so with flow control.
        let options = Options {
            connect_timeout: timeout,
            nowait: true,
            access: args.access()?,
            ..Options::default()
        };
        let connection = Connection::connect_again(&address, options, args.shut_out()).await;
        let connection = connection.map_err(no_greeting_as_told)?;
        let node = Self::at(Remote::over(connection, timeout), Some(address.clone()));
        if node.name == name {
            return Ok(node);
        }
        let other = &node.name;
        Err(CliError::Failure(format!(
            "at its client address {address} another node answers, {other}"
        )))
    }

    fn at(remote: Remote, address: Option<HostPort>) -> Self {
        let name = printable(&remote.connection.greeting().node).into_owned();
        Self { name, remote, address, watch: None, last: 0, life: None }
    }

    /// Connects to it again.
    pub(super) async fn again(&self, args: &RemoteArgs) -> Result<Self, CliError> {
        match &self.address {
            None => Self::named(args).await,
            Some(address) => Self::connect(&self.name, address.clone(), args).await,
        }
    }

    /// Begins to watch for those to come.
    pub(super) async fn watch(&mut self, path: &Path) -> Result<(), CliError> {
        let mut fields = asked(path);
        fields.str("conflicts", "only");
        self.watch = Some(self.remote.follow("watch", &fields).await?);
        let reply = self.remote.try_request("cluster", &Fields::new()).await?;
        self.life = reply.ok().and_then(|reply| reply.get("id").map(<[u8]>::to_vec));
        Ok(())
    }

    /// What its list has: all of it, or the latest.
    pub(super) async fn list(
        &mut self,
        path: &Path,
        limit: Option<u64>,
    ) -> Result<Vec<Told>, CliError> {
        let mut fields = asked(path);
        if let Some(limit) = limit {
            fields.u64("limit", limit);
        }
        let mut stream = self.remote.stream("conflicts", &fields).await?;
        let mut list = Vec::new();
        while let Some(event) = self.remote.next(&mut stream).await? {
            let StreamEvent::Item { path: below, message } = event else { continue };
            tell_dropped(&self.name, &message);
            list.extend(Told::new(&self.name, path, below.as_ref(), &message));
        }
        self.last = list.last().map_or(0, Told::number);
        Ok(list)
    }
}

fn asked(path: &Path) -> Fields {
    let mut fields = Fields::at(path);
    ask_for_chain(&mut fields);
    fields
}
