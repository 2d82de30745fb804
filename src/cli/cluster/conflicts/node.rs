//! A node that is asked for its conflicts.

use futures::future::select_all;

use crate::cli::data::entry::ask_for_chain;
use crate::cli::error::CliError;
use crate::cli::following::Following;
use crate::cli::remote::{Remote, RemoteArgs, no_greeting_as_told};
use crate::cli::terminal::output::printable;
use crate::client::{ClientError, Connection, Fields, HostPort, Message, Options, StreamEvent};
use crate::model::path::Path;

use super::told::{Told, tell_dropped};

/// See the module.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) remote: Remote,
    /// Where it is; none for the one that was named by the command's options.
    address: Option<HostPort>,
    /// One, or two if the system's own tree is asked for, too: a list of the root lacks that.
    places: Vec<Place>,
    /// It tells this session of all conflicts below the path, those of the system's own tree included.
    tells_all: bool,
    /// Its name and incarnation, as it tells them: numbers count from its start. None of a node that cannot be asked.
    pub(super) life: Option<Vec<u8>>,
}

/// Below which path it is asked.
struct Place {
    path: Path,
    /// Of those to come.
    watch: Option<Following>,
    /// The number of the last one in its list.
    last: u64,
}

impl Node {
    /// The one that the command's options name; of several, the first that answers. It is asked for conflicts below this path.
    pub(super) async fn named(args: &RemoteArgs, path: &Path) -> Result<Self, CliError> {
        Self::at(args.connect_for_streams().await?, None, path).await
    }

    /// All members of its network, as it sees them.
    pub(super) async fn members(&self) -> Result<Message, CliError> {
        self.remote.request("members", &Fields::new()).await
    }

    /// Another member of its network, at its address.
    pub(super) async fn connect(
        name: &str,
        address: HostPort,
        (args, path): (&RemoteArgs, &Path),
    ) -> Result<Self, CliError> {
        let timeout = args.timeout_or_default();
        // Several streams are open at once where it is followed: so with flow control.
        let options = Options {
            connect_timeout: timeout,
            nowait: true,
            access: args.access()?,
            ..Options::default()
        };
        let connection = Connection::connect_again(&address, options, args.shut_out()).await;
        let connection = connection.map_err(no_greeting_as_told)?;
        let remote = Remote::over(connection, timeout);
        let node = Self::at(remote, Some(address.clone()), path).await?;
        if node.name == name {
            return Ok(node);
        }
        let other = &node.name;
        Err(CliError::Failure(format!(
            "at its client address {address} another node answers, {other}"
        )))
    }

    async fn at(remote: Remote, address: Option<HostPort>, path: &Path) -> Result<Self, CliError> {
        let name = printable(&remote.connection.greeting().node).into_owned();
        let place = |path| Place { path, watch: None, last: 0 };
        let mut places = vec![place(path.clone())];
        let has_system = path.is_root() || path.starts_with(&Path::system_root());
        let tells_all = !has_system || may_see_system(&remote).await?;
        if path.is_root() && tells_all {
            places.push(place(Path::system_root()));
        }
        Ok(Self { name, remote, address, places, tells_all, life: None })
    }

    /// Whether it tells this session of all conflicts below the path. Others than admins get an empty list of the system's
    /// own ones, and no refusal.
    pub(super) fn tells_all(&self) -> bool {
        self.tells_all
    }

    /// Connects to it again.
    pub(super) async fn again(&self, args: &RemoteArgs, path: &Path) -> Result<Self, CliError> {
        match &self.address {
            None => Self::named(args, path).await,
            Some(address) => Self::connect(&self.name, address.clone(), (args, path)).await,
        }
    }

    /// Begins to watch for those to come.
    pub(super) async fn watch(&mut self) -> Result<(), CliError> {
        for place in &mut self.places {
            let mut fields = asked(&place.path);
            fields.str("conflicts", "only");
            place.watch = Some(self.remote.follow("watch", &fields).await?);
        }
        let reply = self.remote.try_request("cluster", &Fields::new()).await?;
        self.life = reply.ok().and_then(|reply| reply.get("id").map(<[u8]>::to_vec));
        Ok(())
    }

    /// The next one that it finds; `None` where it tells something else. What came while the lists were asked for is in both.
    ///
    /// # Errors
    /// How the watch ended; `None`: the node has ended it, as it does when it stops.
    pub(super) async fn next(&mut self) -> Result<Option<Told>, Option<ClientError>> {
        let watches = self.places.iter_mut().enumerate().filter_map(|(index, place)| {
            let Place { path, watch, last } = place;
            let watch = watch.as_mut()?;
            Some(Box::pin(async move { (index, &*path, *last, watch.next().await) }))
        });
        let watches: Vec<_> = watches.collect();
        if watches.is_empty() {
            return Err(None);
        }
        // Dropping the others loses nothing.
        let ((index, path, last, next), ..) = select_all(watches).await;
        match next {
            Ok(Some(StreamEvent::Item { path: below, message })) => {
                tell_dropped(&self.name, message.u64("dropped").unwrap_or(0));
                let told = Told::new((self.name.as_str(), index), path, below.as_ref(), &message);
                Ok(told.filter(|told| told.number() > last))
            }
            Ok(Some(_)) => Ok(None),
            Ok(None) => Err(None),
            Err(error) => Err(Some(error)),
        }
    }

    /// What its lists have: all of it, or the latest.
    pub(super) async fn list(&mut self, limit: Option<u64>) -> Result<Vec<Told>, CliError> {
        let mut list = Vec::new();
        // Each of the lists tells of all that left them, wherever it was.
        let mut dropped_most = 0;
        for (index, place) in self.places.iter_mut().enumerate() {
            let mut fields = asked(&place.path);
            if let Some(limit) = limit {
                fields.u64("limit", limit);
            }
            let mut stream = self.remote.stream("conflicts", &fields).await?;
            let mut dropped = 0_u64;
            while let Some(event) = self.remote.next(&mut stream).await? {
                let StreamEvent::Item { path: below, message } = event else { continue };
                dropped = dropped.saturating_add(message.u64("dropped").unwrap_or(0));
                let of = (self.name.as_str(), index);
                let Some(told) = Told::new(of, &place.path, below.as_ref(), &message) else {
                    continue;
                };
                place.last = told.number();
                list.push(told);
            }
            dropped_most = dropped_most.max(dropped);
        }
        tell_dropped(&self.name, dropped_most);
        list.sort_by_key(Told::number);
        Ok(list)
    }

    /// Whether a conflict that the same life of the node tells was in none of these lists, nor behind them.
    pub(super) fn is_new(&self, told: &Told) -> bool {
        self.places.get(told.place).is_none_or(|place| told.number() > place.last)
    }
}

/// Whether the session may do everything. A node that cannot say so is asked for what all may see.
///
/// # Errors
/// The connection, or the login that is missing: a node closes the connection of who asks for anything without it.
async fn may_see_system(remote: &Remote) -> Result<bool, CliError> {
    match remote.try_request("auth_info", &Fields::new()).await? {
        // Where nobody logs in, it has no role.
        Ok(reply) => Ok(reply.str("role").is_none_or(|role| role == ADMIN)),
        Err(error) if error.has_code("auth_required") => Err(error.into()),
        Err(_) => Ok(false),
    }
}

/// The role that may see the system's own tree.
const ADMIN: &str = "admin";

fn asked(path: &Path) -> Fields {
    let mut fields = Fields::at(path);
    ask_for_chain(&mut fields);
    fields
}
