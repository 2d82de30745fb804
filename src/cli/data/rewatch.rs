//! A watch of one node that goes on when the connection is lost: it connects again for as long as that takes, has the
//! node tell what there is now, and gives of that what is new.
//!
//! What is new is found by tocks. An entry that was given is new if it has another tock. Of one that was not, more must be
//! known: with `fetch`, all that there was has been given, as long as [`PATHS_MAX`] are enough, so it is new. Without,
//! everything up to a certain tock was there: the node's own tock when it greeted, or that of a later change. A change that
//! another node made at about that time may have a smaller tock, and is missed then: only a watch of several nodes, which
//! knows each version ([`crate::client::smart`]), gives that, too. What is gone is found if it was given before.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cli::error::{CliError, Outcome};
use crate::cli::following::Following;
use crate::cli::remote::{Remote, RemoteArgs, whole_path};
use crate::cli::say;
use crate::cli::terminal::output::printable;
use crate::client::{Fields, Message, StreamEvent};
use crate::model::path::Path;
use crate::rt;

/// The pause before it is connected again; it doubles, up to the other.
pub(in crate::cli) const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// So many paths that were given are remembered, to tell which of them are gone.
const PATHS_MAX: usize = 65_536;

/// What a watch gives.
pub(super) enum Told {
    /// An entry, or that it is deleted.
    Entry {
        /// Its whole path.
        path: String,
        /// What the node says of it.
        message: Message,
    },
    /// An entry that was given is not there any more.
    Gone(String),
    /// All that was asked for at the beginning has come.
    UpToDate,
    /// All that there is follows: what came before does not count.
    Restart,
    /// Something else happened to the stream.
    State(String),
}

/// The watch.
pub(super) struct NodeWatch<'a> {
    path: &'a Path,
    fields: Fields,
    args: &'a RemoteArgs,
    /// Whether it goes on when the connection is lost.
    reconnects: bool,
    remote: Remote,
    stream: Following,
    phase: Phase,
    /// All up to this tock is known.
    tock: u64,
    given: Given,
    /// How long to wait before it is connected again, if that is the next thing; short again once something came.
    pause: Duration,
}

enum Phase {
    /// All that there is comes, because it was asked for.
    Fetching,
    /// Changes come.
    Live,
    /// All that there is comes, after a loss; what is newer than the tock is new.
    CatchingUp {
        since: u64,
        /// What was given before, and has not come yet.
        missing: BTreeMap<String, u64>,
    },
    /// It has come; these are gone.
    Telling(Vec<String>),
}

/// The entries that were given and are there, with their tocks.
#[derive(Default)]
struct Given {
    entries: BTreeMap<String, u64>,
    /// There are others.
    is_partial: bool,
}

impl Given {
    fn note(&mut self, path: &str, message: &Message, tock: u64) {
        if message.get("value").is_none() {
            self.entries.remove(path);
        } else if self.entries.len() < PATHS_MAX || self.entries.contains_key(path) {
            self.entries.insert(path.to_owned(), tock);
        } else {
            self.is_partial = true;
        }
    }
}

impl<'a> NodeWatch<'a> {
    /// Begins one. `fields`: what is asked, but for `fetch`.
    pub(super) async fn begin(
        path: &'a Path,
        fields: Fields,
        (fetch, reconnects): (bool, bool),
        args: &'a RemoteArgs,
    ) -> Result<NodeWatch<'a>, CliError> {
        let (remote, stream) = open(args, &fields, fetch).await?;
        let tock = remote.connection.greeting().tock;
        let phase = if fetch { Phase::Fetching } else { Phase::Live };
        // Without, nobody knows which of the others were there.
        let given = Given { is_partial: !fetch, ..Given::default() };
        let pause = PAUSE;
        let watch =
            NodeWatch { path, fields, args, reconnects, remote, stream, phase, tock, given, pause };
        watch.tell_where("");
        Ok(watch)
    }

    fn tell_where(&self, more: &str) {
        let (address, node) = (self.remote.connection.address(), self.remote.connection.greeting());
        let node = printable(&node.node);
        say::line(&format!("watching {} at {address} (node {node}){more}", self.path));
    }

    /// The next. Waits for as long as that takes.
    pub(super) async fn next(&mut self) -> Result<Told, CliError> {
        loop {
            if let Phase::Telling(gone) = &mut self.phase {
                match gone.pop() {
                    Some(path) => return Ok(Told::Gone(path)),
                    None => self.phase = Phase::Live,
                }
            }
            let lost = match self.stream.next().await.map_err(CliError::of_stream) {
                Ok(Some(event)) => match self.on_event(event) {
                    Some(told) => return Ok(told),
                    None => continue,
                },
                // As it does when it stops.
                Ok(None) => CliError::Failure(String::from("the node ended the watch")),
                Err(error) if may_pass(&error) => error,
                Err(error) => return Err(error),
            };
            if !self.reconnects {
                return Err(lost);
            }
            if self.connect_again(&lost).await? {
                return Ok(Told::Restart);
            }
        }
    }

    fn on_event(&mut self, event: StreamEvent) -> Option<Told> {
        match event {
            StreamEvent::Item { path, message } => {
                self.pause = PAUSE;
                let path = whole_path(self.path, path.as_ref());
                self.is_new(&path, &message).then_some(Told::Entry { path, message })
            }
            StreamEvent::UpToDate => self.on_up_to_date().then_some(Told::UpToDate),
            StreamEvent::State(state, _) => Some(Told::State(state)),
            StreamEvent::Start => None,
        }
    }

    /// Whether an entry that the node tells of was not given before.
    fn is_new(&mut self, path: &str, message: &Message) -> bool {
        let tock = message.u64("tock").unwrap_or_default();
        self.tock = self.tock.max(tock);
        if let Phase::CatchingUp { since, missing } = &mut self.phase {
            let before = missing.remove(path);
            // One of a catch-up that was lost itself was given already.
            let is_known = match before {
                Some(before) => before == tock,
                None => self.given.is_partial && tock <= *since,
            };
            if is_known {
                return false;
            }
        }
        self.given.note(path, message, tock);
        true
    }

    /// All that there is has come. Whether that was asked for.
    fn on_up_to_date(&mut self) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Live) {
            Phase::CatchingUp { missing, .. } => {
                let mut gone: Vec<String> = missing.into_keys().collect();
                self.given.entries.retain(|path, _| gone.binary_search(path).is_err());
                gone.reverse();
                self.phase = Phase::Telling(gone);
                false
            }
            Phase::Fetching | Phase::Live | Phase::Telling(_) => true,
        }
    }

    /// Connects until that works. Whether everything comes again, because not all had come the first time.
    async fn connect_again(&mut self, lost: &CliError) -> Result<bool, CliError> {
        say::line(&format!("{lost}; connecting again until that works (Ctrl-C ends it)"));
        let (args, fields) = (self.args, &self.fields);
        (self.remote, self.stream) =
            open_again(&mut self.pause, || open(args, fields, true)).await?;
        let known = std::mem::replace(&mut self.tock, self.remote.connection.greeting().tock);
        let since = match std::mem::replace(&mut self.phase, Phase::Live) {
            Phase::Fetching => {
                self.given = Given::default();
                self.phase = Phase::Fetching;
                self.tell_where(" again, from the beginning");
                return Ok(true);
            }
            Phase::CatchingUp { since, .. } => since,
            Phase::Live | Phase::Telling(_) => known,
        };
        let missing = self.given.entries.clone();
        self.phase = Phase::CatchingUp { since, missing };
        let more = if self.given.is_partial {
            " again: what changed meanwhile follows, but not all that was deleted"
        } else {
            " again: what changed meanwhile follows"
        };
        self.tell_where(more);
        Ok(false)
    }
}

async fn open(
    args: &RemoteArgs,
    fields: &Fields,
    fetch: bool,
) -> Result<(Remote, Following), CliError> {
    let remote = args.connect().await?;
    let mut fields = fields.clone();
    fields.bool("fetch", fetch);
    let stream = remote.follow("watch", &fields).await?;
    Ok((remote, stream))
}

/// Tries until it works, with longer and longer pauses, or until it is clear that it never will.
pub(in crate::cli) async fn open_again<T>(
    pause: &mut Duration,
    mut open: impl AsyncFnMut() -> Result<T, CliError>,
) -> Result<T, CliError> {
    loop {
        rt::sleep(*pause).await;
        *pause = (*pause * 2).min(PAUSE_MAX);
        match open().await {
            Err(error) if may_pass(&error) => {}
            done => return done,
        }
    }
}

/// Whether it may work later: no node was reached, it is not ready yet, or the connection was lost.
pub(in crate::cli) fn may_pass(error: &CliError) -> bool {
    matches!(error, CliError::Request { outcome: Outcome::Unreachable, .. })
}
