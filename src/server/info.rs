//! What the client port must know about the rest of the node, for the actions `status`,
//! `members` and `leave`.

use super::cluster::purge_block::show_ms;
use super::past::{PastRefusal, PastState};
pub use super::storage_status::StorageStatus;
pub(crate) use super::storage_status::{ScheduledStatus, SnapshotStatus};
use crate::model::count::{self, count_of};
use crate::model::ids::{Incarnation, NodeName, Tick};
use crate::model::path::Path;
use crate::protocol::client::request::PastMoment;
use crate::storage::history::History;

/// Implemented by the node, which knows what the hub does not.
pub trait NodeInfo: Send + Sync {
    /// The node's condition, as far as the hub does not know it. Quick: no waiting, no I/O.
    fn status(&self) -> NodeStatus;

    /// The network's name; empty while the node goes down. Quick: no waiting, no I/O.
    fn network(&self) -> String;

    /// All known members, this node first. Quick: no waiting, no I/O.
    fn members(&self) -> Vec<MemberInfo>;

    /// For how long the node has been linked to no other, although there are others, in milliseconds; none while
    /// it is linked, or there are none. Quick: no waiting, no I/O.
    fn isolated_ms(&self) -> Option<u64> {
        None
    }

    /// A client wants the node to leave the network and end. Returns at once; the leaving
    /// happens elsewhere.
    fn leave(&self);

    /// A client asks the node to leave for good: the others must agree to continue without it.
    /// Blocks for `patience_ms` and some seconds at most, so call it where that is allowed. The
    /// leaving itself happens elsewhere.
    ///
    /// # Errors
    /// [`LeaveRefusal`]; the node keeps running.
    fn leave_for_good(&self, patience_ms: u64) -> Result<(), LeaveRefusal> {
        let _ = patience_ms;
        Err(LeaveRefusal::NotReady(String::from("this node cannot leave for good")))
    }

    /// Which cluster keys the nodes have; none: this one has no key. Quick: no waiting, no I/O.
    fn keys(&self) -> Option<KeysView> {
        None
    }

    /// Changes the cluster keys of all nodes: of this one at once, of the others as they are met. Blocks for a
    /// write to a file, so call it where that is allowed. Returns the key's id, and whether anything was changed.
    ///
    /// # Errors
    /// [`KeyRefusal`]; nothing was changed.
    fn change_keys(&self, order: KeyOrder) -> Result<(String, bool), KeyRefusal> {
        let _ = order;
        Err(KeyRefusal::NoKey)
    }

    /// The id of the cluster key with these bytes, which names it; none if a key has another length. Quick: no waiting, no I/O.
    fn key_id(&self, secret: &[u8]) -> Option<String> {
        let _ = secret;
        None
    }

    /// A member does not come back; what is known of its keys does not count any more. False: it is here, or
    /// nothing is known of it.
    fn forget_keys_of(&self, name: &NodeName) -> bool {
        let _ = name;
        false
    }

    /// An operator says that a member does not come back: it is not missed any more, from now on. Nothing follows for one that
    /// is here.
    fn give_up(&self, name: &NodeName) {
        let _ = name;
    }

    /// The snapshots that it makes by itself, if it does.
    fn scheduled(&self) -> Option<ScheduledStatus> {
        None
    }

    /// One line for people, if something is wrong with the certificate for clients, or soon will be.
    fn certificate_warning(&self) -> Option<String> {
        None
    }

    /// One line for people about each link that is too slow for what goes over it.
    fn slow_links(&self) -> Vec<String> {
        Vec::new()
    }

    /// How the node keeps its data on disk, if it does. Quick: no waiting, no I/O.
    fn storage(&self) -> Option<StorageStatus> {
        None
    }

    /// The state of a past moment, at and below a path. Blocks as long as reading it takes, so call it where that
    /// is allowed.
    ///
    /// # Errors
    /// [`PastRefusal`].
    fn past(&self, at: PastMoment, below: &Path) -> Result<PastState, PastRefusal> {
        let _ = (at, below);
        Err(PastRefusal::NoDataDirectory)
    }

    /// The changes of an entry since a moment, milliseconds since 1970, the last `limit` of them. Blocks as long as
    /// reading them takes, so call it where that is allowed.
    ///
    /// # Errors
    /// [`PastRefusal`].
    fn history(&self, path: &Path, since_ms: u64, limit: usize) -> Result<History, PastRefusal> {
        let _ = (path, since_ms, limit);
        Err(PastRefusal::NoDataDirectory)
    }

    /// The members that were here and do not answer any more, without having left; none while all do. Quick:
    /// no waiting, no I/O.
    fn silent(&self) -> Option<SilentInfo> {
        None
    }

    /// The names of members that this node has no link to although it should: they are silent or down, or a link is missing.
    /// Not those that have left or are forgotten, nor, in large networks, those that are up and hear of changes by way of
    /// others. Quick: no waiting, no I/O.
    fn unreached(&self) -> Vec<String> {
        Vec::new()
    }

    /// One line for people about members that are up and have had no link for long, or about a node that began alone and
    /// that no peer has taken in since. Quick: no waiting, no I/O.
    fn unlinked(&self) -> Option<String> {
        None
    }

    /// One line for people about linked members from which no datagrams (UDP) come through, or only now and then. Quick: no
    /// waiting, no I/O.
    fn unheard(&self) -> Option<String> {
        None
    }

    /// Writes a file for a client. Blocks as long as necessary, so call it where that is allowed.
    ///
    /// # Errors
    /// [`FileRefusal`]; there is no such file.
    fn carry_out(&self, job: FileJob) -> Result<FileReport, FileRefusal> {
        let _ = job;
        Err(FileRefusal::NotAllowed)
    }
}

/// The cluster keys of the network's nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeysView {
    /// The ids of those keys of this node that were added over the network.
    pub(crate) shared: Vec<String>,
    /// The nodes, this one first.
    pub(crate) nodes: Vec<NodeKeys>,
}

/// The cluster keys of a node: no secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeKeys {
    /// The node's name.
    pub(crate) name: String,
    /// How it is.
    pub(crate) state: MemberState,
    /// The ids of its keys, the oldest first; none if it was not heard of.
    pub(crate) ids: Option<Vec<String>>,
    /// The id of the one that it seals with.
    pub(crate) primary: Option<String>,
    /// Why it cannot keep them over a restart.
    pub(crate) trouble: Option<String>,
}

/// A change of the cluster's keys.
pub enum KeyOrder {
    /// Adds a key, which nothing is sealed with yet.
    Add {
        /// The key.
        secret: [u8; 32],
    },
    /// Seals with this key from now on.
    Use {
        /// The key's id, as the client sent it.
        id: String,
        /// Also if members lack it.
        force: bool,
    },
    /// Removes a key.
    Remove {
        /// The key's id, as the client sent it.
        id: String,
        /// Also if members use it.
        force: bool,
    },
}

/// Why the keys were not changed. Each text says how to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyRefusal {
    /// This node has no key.
    NoKey,
    /// That is no id of a key.
    BadId(String),
    /// There is no such key.
    Unknown(String),
    /// The ring does not permit it, or members would be shut out.
    Blocked(String),
    /// The key file cannot be written.
    NotKept(String),
}

/// Members that were here have gone silent: they have failed, or the network is split.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SilentInfo {
    /// Those that went at the same time, together; the longest silent first.
    pub(crate) together: Vec<SilentMembers>,
    /// The members that are still here, without this node, by name.
    pub(crate) with: Vec<String>,
}

/// Members that went silent at the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SilentMembers {
    /// Their names.
    pub(crate) names: Vec<String>,
    /// For how long they have been silent, milliseconds.
    pub(crate) since_ms: u64,
    /// How many changes came to be known here since.
    pub(crate) changes: u64,
    /// They have not been seen since this node was started, which is that long ago; it knew them from before.
    pub(crate) is_from_start: bool,
    /// One of them that answers that there will be no link, and why.
    pub(crate) refusing: Option<(String, String)>,
}

impl SilentInfo {
    /// All their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.together.iter().flat_map(|silent| silent.names.iter().map(String::as_str))
    }

    /// A line for people for each group of members.
    #[must_use]
    pub(crate) fn warnings(&self) -> Vec<String> {
        let goes_on = match self.with.as_slice() {
            [] => String::from("this node goes on alone"),
            with => format!("this node goes on with {}", names_text(with)),
        };
        let text = |silent: &SilentMembers| {
            let (who, how_long) = (names_text(&silent.names), show_ms(silent.since_ms));
            let what = match (silent.is_from_start, silent.names.len()) {
                (true, 1) => {
                    "has not been seen since this node started, {} ago: it has failed or was stopped, or the network is split"
                }
                (true, _) => {
                    "have not been seen since this node started, {} ago: the network is split, or all of them have failed or \
                     were stopped"
                }
                (false, 1) => "has been silent for {}: it has failed, or the network is split",
                (false, _) => {
                    "have been silent together for {}: the network is split, or all of them have failed"
                }
            };
            let changes = count_of(silent.changes, "change", "changes");
            let refusing = silent.refusing.as_ref();
            let refusing = refusing.map(|(name, why)| format!("; no link to {name}: {why}"));
            format!(
                "{who} {}; {goes_on}, {changes} since{}",
                what.replace("{}", &how_long),
                refusing.unwrap_or_default()
            )
        };
        self.together.iter().map(text).collect()
    }
}

/// See [`count::names_text`].
pub(crate) fn names_text(names: &[String]) -> String {
    count::names_text(names, 0)
}

/// Why a node has not left for good. It runs on. Each text says how to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaveRefusal {
    /// It has not caught up yet, or is ending already. Nothing was changed.
    NotReady(String),
    /// No node is there that could keep the data. Nothing was changed.
    Alone(String),
    /// The others have not agreed in time. Nothing was changed.
    NotAgreed(String),
    /// They have agreed, and it is not certain yet that it will stay so.
    Unsettled(String),
}

/// A file that a client wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileJob {
    /// The state, in a file of that name.
    Save {
        /// The file's name.
        name: String,
        /// Its form.
        format: FileFormat,
        /// Also entries below nil.
        internal: bool,
    },
    /// A snapshot in the data directory, now.
    Snapshot,
    /// What changes from now on, in a file of that name; takes the place of another such log.
    LogStart {
        /// The file's name.
        name: String,
        /// Its form.
        format: FileFormat,
        /// First the state as it is.
        fetch: bool,
        /// In the place of a file of that name, if a client had it made.
        replaces: bool,
    },
    /// No such log any more.
    LogStop,
}

/// The form of a client's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFormat {
    /// The node's own snapshots and logs.
    Own,
    /// That of the Python DistKV.
    Distkv,
}

/// What became of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileReport {
    /// Its name; none if there was nothing to be done.
    pub name: Option<String>,
    /// Entries in it, if known.
    pub entries: Option<u64>,
    /// Entries that its form cannot hold.
    pub left_out: u64,
    /// Its length, if known.
    pub bytes: Option<u64>,
    /// Of a log that is ended now: why it had ended before.
    pub failed: Option<String>,
}

/// Why there is no file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileRefusal {
    /// The node has no directory for clients' files.
    NotAllowed,
    /// It keeps no data on disk.
    NoDataDirectory,
    /// Another file is being written for a client.
    Busy,
    /// The name cannot be used.
    Name(String),
    /// It could not be written.
    Failed(String),
}

/// What the node says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeStatus {
    /// The network's name.
    pub network: String,
    /// The software's version.
    pub version: String,
    /// Since the start.
    pub uptime_ms: u64,
    /// What the node's clock shows, in milliseconds since 1970.
    pub time_ms: u64,
    /// The memory limit for entries, if there is one.
    pub memory_max: Option<usize>,
    /// Members that are up, this node included.
    pub members: usize,
    /// Links that stand.
    pub links: usize,
    /// The catch-up under way, if there is one: from whom, and how many entries came so far.
    pub catching_up: Option<(String, u64)>,
    /// Counters by name, in the order in which they are shown.
    pub counters: Vec<(&'static str, u64)>,
    /// The log that a client has started, if there is one.
    pub client_log: Option<ClientLogStatus>,
}

/// A log that a client has started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientLogStatus {
    /// The file's name.
    pub(crate) file: String,
    /// Why it has ended, if it has.
    pub(crate) failure: Option<String>,
}

impl ClientLogStatus {
    /// One line for people, if something is wrong.
    #[must_use]
    pub(crate) fn warning(&self) -> Option<String> {
        let why = self.failure.as_ref()?;
        Some(format!("the log {} that a client has started has ended: {why}", self.file))
    }
}

/// A member as SWIM sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// This node.
    Myself,
    /// A link to it stands, but membership has not heard of it (yet): it has just come, or UDP does
    /// not get through. If it fails now, SWIM will not report it.
    Joining,
    /// It answers.
    Up,
    /// It has not answered lately.
    Suspect,
    /// It does not answer.
    Down,
    /// It went away on purpose.
    Left,
    /// Nothing is known of it but that it is on the Delete group's list.
    Away,
}

impl MemberState {
    /// The word that clients see.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Myself => "self",
            Self::Joining => "joining",
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
            Self::Left => "left",
            Self::Away => "away",
        }
    }
}

/// One member of the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberInfo {
    /// Its name.
    pub name: String,
    /// Its life.
    pub incarnation: Incarnation,
    /// Where peers reach it.
    pub gossip: String,
    /// Its address for clients, if known.
    pub client: Option<String>,
    /// How it is.
    pub state: MemberState,
    /// Whether a link to it stands.
    pub linked: bool,
    /// Whether that link is sealed with a cluster key; of this node, whether it has one.
    pub secured: bool,
    /// Whether it serves clients, as far as is known.
    pub ready: bool,
    /// Whether its link's queue overflowed and it has not fetched yet what it missed.
    pub lagging: bool,
    /// This node's changes that it has acknowledged.
    pub acked: Tick,
    /// For how long it has been in its state.
    pub since_ms: u64,
    /// Its software, if known.
    pub software: Option<String>,
}

impl MemberInfo {
    /// This, which only a link to a member tells; none where it is not known: this node is not linked to it, is not that
    /// member, and does not hold it for gone.
    #[must_use]
    pub(crate) fn if_known(&self, told: bool) -> Option<bool> {
        let is_here =
            matches!(self.state, MemberState::Joining | MemberState::Up | MemberState::Suspect);
        (self.linked || !is_here).then_some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(names: &[&str], since_ms: u64, changes: u64) -> SilentMembers {
        SilentMembers {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            since_ms,
            changes,
            is_from_start: false,
            refusing: None,
        }
    }

    #[test]
    fn who_was_not_seen_since_the_start_is_told_as_such_and_so_is_why_it_is_not_linked() {
        let one = SilentMembers { is_from_start: true, ..silent(&["n2"], 12_000, 1) };
        let why = Some((String::from("n4"), String::from("the peer refused")));
        let two =
            SilentMembers { is_from_start: true, refusing: why, ..silent(&["n3", "n4"], 1_000, 0) };
        let texts = SilentInfo { together: vec![one, two], with: Vec::new() }.warnings();
        assert_eq!(
            texts,
            [
                "n2 has not been seen since this node started, 12 s ago: it has failed or was stopped, or the network is \
                 split; this node goes on alone, 1 change since",
                "n3 and n4 have not been seen since this node started, 1 s ago: the network is split, or all of them \
                 have failed or were stopped; this node goes on alone, 0 changes since; no link to n4: the peer refused",
            ]
        );
    }

    #[test]
    fn a_split_is_told_with_who_since_when_how_many_changes_and_who_is_left() {
        let alone = SilentInfo { together: vec![silent(&["n2"], 12_000, 1)], with: Vec::new() };
        assert_eq!(
            alone.warnings(),
            [
                "n2 has been silent for 12 s: it has failed, or the network is split; this node goes on alone, \
              1 change since"
            ]
        );
        let together = vec![silent(&["n3", "n4", "n5"], 300_000, 412), silent(&["n6"], 5_000, 0)];
        let with = vec![String::from("n2")];
        let texts = SilentInfo { together, with }.warnings();
        assert_eq!(
            texts,
            [
                "n3, n4 and n5 have been silent together for 5 min: the network is split, or all of them \
                 have failed; this node goes on with n2, 412 changes since",
                "n6 has been silent for 5 s: it has failed, or the network is split; this node goes on with \
                 n2, 0 changes since",
            ]
        );
    }

    #[test]
    fn a_side_of_many_names_some_of_them() {
        let names: Vec<String> = (0..150).map(|n| format!("n{n}")).collect();
        assert!(names_text(&names).ends_with("n10, n11 and 138 more"), "{}", names_text(&names));
        assert_eq!(names_text(&names[..2]), "n0 and n1");
    }
}
