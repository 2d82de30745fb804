//! A watch of one node that goes on when the connection is lost: it connects again for as long as that takes, has the
//! node tell what there is now, and gives of that what is new.
//!
//! An entry that was given is new if it has another version. Of one that was not, more must be known: with `fetch`, all that
//! there was has been given, as long as [`PATHS_MAX`] are enough, so it is new. Without, everything up to a certain tock was
//! there: the node's own tock when it greeted, or that of a later change. A change that another node made at about that time
//! may have a smaller tock, and is missed then: only a watch of several nodes, which knows each version
//! ([`crate::client::smart`]), gives that, too. What is gone is found if it was given before.
//!
//! A node that lost changes makes new ones with the tocks of those: one in memory that started again alone, or one to which an
//! old copy of its data directory was put back. So where tocks are needed, and the node's tock is less than it was, or its new
//! life has made an entry with a tock that the old one had reached, the watch begins anew.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cli::error::{CliError, Outcome};
use crate::cli::following::Following;
use crate::cli::remote::{Remote, RemoteArgs, whole_path};
use crate::cli::say;
use crate::cli::terminal::output::{printable, shown_path};
use crate::client::message::{as_str, as_u64, map_items};
use crate::client::{Chain, ChainEvent, Fields, Message, StreamEvent, WRONG_TIME};
use crate::model::ids::{Incarnation, NodeId, NodeName};
use crate::model::path::Path;
use crate::rt;

/// The pause before it is connected again; it doubles, up to the other.
pub(in crate::cli) const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Why a watch begins anew.
const LACKS: &str = "the node lacks changes that it had before";
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
    known: Past,
    given: Given,
    /// How long to wait before it is connected again, if that is the next thing; short again once something came.
    pause: Duration,
}

enum Phase {
    /// All that there is comes, because it was asked for.
    Fetching,
    /// Changes come.
    Live,
    /// All that there is comes, after a loss; what has a greater tock than this past is new.
    CatchingUp {
        since: Past,
        /// What was given before, and has not come yet.
        missing: BTreeMap<String, Version>,
    },
    /// It has come; these are gone.
    Telling(Vec<String>),
}

/// What is made of an event of the stream.
enum Heard {
    Told(Told),
    Nothing,
    /// The node has lost changes, and which of the others are new cannot be said.
    OtherPast,
}

/// Whether an entry that the node tells of was given before, or was there.
enum Look {
    New,
    Known,
    OtherPast,
}

/// How far the node's changes are known.
struct Past {
    /// All up to this tock.
    tock: u64,
    /// The node's life then, if it says which that is.
    life: Option<NodeId>,
}

impl Past {
    /// The life that the node has now, if it began after this. What that life made was not there before.
    fn later_life<'a>(&self, now: &'a Past) -> Option<&'a NodeId> {
        let (before, now) = (self.life.as_ref()?, now.life.as_ref()?);
        // An address may lead to several nodes, and of another one it is not known when it began.
        (before.name == now.name && before != now).then_some(now)
    }
}

/// A version of an entry. The tock alone would not do: a node that has lost changes uses tocks again.
#[derive(Clone, PartialEq, Eq)]
struct Version {
    tock: u64,
    event: Option<ChainEvent>,
}

impl Version {
    fn of(message: &Message) -> Version {
        let chain = message.get("chain").map(Chain::decode).and_then(Result::ok).flatten();
        let tock = message.u64("tock").unwrap_or_default();
        Version { tock, event: chain.map(|chain| chain.newest) }
    }

    fn is_by(&self, life: &NodeId) -> bool {
        self.event.as_ref().and_then(|event| event.node.parse().ok()).as_ref() == Some(life)
    }
}

/// The entries that were given and are there, with their versions.
#[derive(Default)]
struct Given {
    entries: BTreeMap<String, Version>,
    /// There are others.
    is_partial: bool,
}

impl Given {
    fn note(&mut self, path: &str, message: &Message, version: Version) {
        if message.get("value").is_none() {
            self.entries.remove(path);
        } else if self.entries.len() < PATHS_MAX || self.entries.contains_key(path) {
            self.entries.insert(path.to_owned(), version);
        } else {
            self.is_partial = true;
        }
    }
}

impl<'a> NodeWatch<'a> {
    /// Begins one. `fields`: what is asked, but for `fetch`; where it is to go on after a loss, the newest event of each
    /// entry is part of that.
    pub(super) async fn begin(
        path: &'a Path,
        fields: Fields,
        (fetch, reconnects): (bool, bool),
        args: &'a RemoteArgs,
    ) -> Result<NodeWatch<'a>, CliError> {
        let opened = open(args, &fields, (fetch, reconnects)).await?;
        let Opened { remote, stream, past: known } = opened;
        let phase = if fetch { Phase::Fetching } else { Phase::Live };
        // Without, nobody knows which of the others were there.
        let given = Given { is_partial: !fetch, ..Given::default() };
        let pause = PAUSE;
        let watch = NodeWatch {
            path,
            fields,
            args,
            reconnects,
            remote,
            stream,
            phase,
            known,
            given,
            pause,
        };
        watch.tell_where("");
        Ok(watch)
    }

    fn tell_where(&self, more: &str) {
        let (address, node) = (self.remote.connection.address(), self.remote.connection.greeting());
        let node = printable(&node.node);
        say::line(&format!("watching {} at {address} (node {node}){more}", shown_path(self.path)));
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
                    Heard::Told(told) => return Ok(told),
                    Heard::Nothing => continue,
                    Heard::OtherPast => {
                        self.phase = Phase::Fetching;
                        CliError::Failure(String::from(LACKS))
                    }
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

    fn on_event(&mut self, event: StreamEvent) -> Heard {
        match event {
            StreamEvent::Item { path, message } => {
                self.pause = PAUSE;
                let path = whole_path(self.path, path.as_ref());
                match self.look(&path, &message) {
                    Look::New => Heard::Told(Told::Entry { path, message }),
                    Look::Known => Heard::Nothing,
                    Look::OtherPast => Heard::OtherPast,
                }
            }
            StreamEvent::UpToDate => match self.on_up_to_date() {
                true => Heard::Told(Told::UpToDate),
                false => Heard::Nothing,
            },
            StreamEvent::State(state, _) => Heard::Told(Told::State(state)),
            StreamEvent::Start => Heard::Nothing,
        }
    }

    fn look(&mut self, path: &str, message: &Message) -> Look {
        let version = Version::of(message);
        if let Phase::CatchingUp { since, missing } = &mut self.phase {
            match missing.remove(path) {
                // One of a catch-up that was lost itself was given already.
                Some(before) if before == version => return Look::Known,
                None if self.given.is_partial && version.tock <= since.tock => {
                    let later = since.later_life(&self.known);
                    let is_new = later.is_some_and(|life| version.is_by(life));
                    return if is_new { Look::OtherPast } else { Look::Known };
                }
                Some(_) | None => {}
            }
        }
        self.known.tock = self.known.tock.max(version.tock);
        self.given.note(path, message, version);
        Look::New
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

    /// Connects until that works. Whether everything comes again: not all had come the first time, or the node has lost
    /// changes and what was given is not enough to say what is new.
    async fn connect_again(&mut self, lost: &CliError) -> Result<bool, CliError> {
        say::line(&format!("{lost}; connecting again until that works (Ctrl-C ends it)"));
        let (args, fields) = (self.args, &self.fields);
        let opened = open_again(&mut self.pause, async || {
            let opened = open(args, fields, (true, true)).await?;
            match opened.remote.connection.greeting().is_catching_up {
                // It has begun to serve since it greeted, and its tock is not what it said.
                true => Err(not_ready()),
                false => Ok(opened),
            }
        });
        let Opened { remote, stream, past } = opened.await?;
        (self.remote, self.stream) = (remote, stream);
        let known = std::mem::replace(&mut self.known, past);
        let since = match std::mem::replace(&mut self.phase, Phase::Fetching) {
            Phase::Fetching => None,
            Phase::CatchingUp { since, .. } => Some(since),
            Phase::Live | Phase::Telling(_) => Some(known),
        };
        let Some(since) = since else {
            self.given = Given::default();
            self.tell_where(" again, from the beginning");
            return Ok(true);
        };
        if self.given.is_partial && self.known.tock < since.tock {
            self.given = Given::default();
            self.tell_where(&format!(" again, from the beginning: {LACKS}"));
            return Ok(true);
        }
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

/// A watch that has begun, and how far the node's changes were known before.
struct Opened {
    remote: Remote,
    stream: Following,
    past: Past,
}

async fn open(
    args: &RemoteArgs,
    fields: &Fields,
    (fetch, reconnects): (bool, bool),
) -> Result<Opened, CliError> {
    let remote = args.connect().await?;
    // Before the stream: nobody reads that meanwhile, and an answer behind it would have to wait.
    let told = match reconnects {
        true => Some(remote.try_request("cluster", &Fields::new()).await?),
        false => None,
    };
    let (life, refusal) = match told {
        Some(Ok(told)) => (life_of(&told), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let past = Past { tock: remote.connection.greeting().tock, life };
    let mut fields = fields.clone();
    fields.bool("fetch", fetch);
    let stream = match (remote.follow("watch", &fields).await, refusal) {
        // A node that lets nobody in says so once, and closes the connection. One of an older version does not know what it was
        // asked first, and a lost one has refused nothing.
        (Err(lost), Some(refusal))
            if may_pass(&lost)
                && (refusal.has_code("too_many") || refusal.has_code("auth_required")) =>
        {
            return Err(refusal.into());
        }
        (stream, _) => stream?,
    };
    Ok(Opened { remote, stream, past })
}

/// The life of the node that tells this of its cluster; none of a node that does not tell it.
fn life_of(told: &Message) -> Option<NodeId> {
    let id = told.get("id")?;
    let of =
        |name| map_items(id).find(|(key, _)| as_str(key) == Some(name)).map(|(_, value)| value);
    let name = NodeName::new(as_str(of("name")?)?).ok()?;
    Some(NodeId { name, incarnation: Incarnation(as_u64(of("incarnation")?)?) })
}

fn not_ready() -> CliError {
    let text = String::from("the node was catching up");
    CliError::Request { outcome: Outcome::Unreachable, code: None, text }
}

/// Tries until it works, with longer and longer pauses, or until it is clear that it never will. A clock that is wrong is waited
/// for, and told of once.
pub(in crate::cli) async fn open_again<T>(
    pause: &mut Duration,
    mut open: impl AsyncFnMut() -> Result<T, CliError>,
) -> Result<T, CliError> {
    let mut is_told = false;
    loop {
        rt::sleep(*pause).await;
        *pause = (*pause * 2).min(PAUSE_MAX);
        match open().await {
            Err(error) if may_pass(&error) => {}
            Err(error) if is_wrong_clock(&error) => {
                if !std::mem::replace(&mut is_told, true) {
                    say::line(&format!(
                        "{error}; connecting again until that works (Ctrl-C ends it)"
                    ));
                }
            }
            done => return done,
        }
    }
}

/// Whether it may work later: no node was reached, it is not ready yet, or the connection was lost.
pub(in crate::cli) fn may_pass(error: &CliError) -> bool {
    matches!(error, CliError::Request { outcome: Outcome::Unreachable, .. })
}

/// Whether the node's certificate is not valid at this time: its clock is wrong, or this one, and somebody sets it right.
fn is_wrong_clock(error: &CliError) -> bool {
    matches!(error, CliError::Request { code: Some(code), .. } if code == WRONG_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(life: Option<&str>) -> Past {
        Past { tock: 7, life: life.map(|life| life.parse().unwrap()) }
    }

    #[test]
    fn only_another_life_of_the_same_node_has_begun_since() {
        for (before, now, expected) in [
            (Some("n1~ab"), Some("n1~cd"), Some("n1~cd")),
            (Some("n1~ab"), Some("n1~ab"), None),
            (Some("n1~ab"), Some("n2~cd"), None),
            (Some("n1~ab"), None, None),
            (None, Some("n1~ab"), None),
        ] {
            let now = past(now);
            let later = past(before).later_life(&now).map(ToString::to_string);
            assert_eq!(later.as_deref(), expected, "{before:?} {now:?}", now = now.life);
        }
    }

    #[test]
    fn a_node_tells_which_life_it_has_by_its_name_and_a_number() {
        let told = |id: &Fields| {
            let mut fields = Fields::new();
            life_of(&Message::new(&fields.raw("id", &id.encode()).encode()).unwrap())
        };
        let mut id = Fields::new();
        assert_eq!(told(id.str("name", "n1")), None);
        assert_eq!(told(id.u64("incarnation", 0xab)), "n1~ab".parse().ok());
        assert_eq!(life_of(&Message::new(&Fields::new().encode()).unwrap()), None);
    }

    #[test]
    fn versions_of_equal_tocks_differ_by_their_events() {
        let version = |node: &str, tick| {
            let mut chain = Vec::new();
            Chain::of(node, tick).encode(&mut chain);
            let mut fields = Fields::new();
            fields.raw("chain", &chain).u64("tock", 7);
            Version::of(&Message::new(&fields.encode()).unwrap())
        };
        assert!(version("n1~ab", 1) == version("n1~ab", 1));
        assert!(version("n1~ab", 1) != version("n1~cd", 1));
        assert!(version("n1~ab", 1) != version("n1~ab", 2));
        let life = "n1~ab".parse().unwrap();
        assert!(version("n1~ab", 2).is_by(&life) && !version("n1~cd", 2).is_by(&life));
    }
}
