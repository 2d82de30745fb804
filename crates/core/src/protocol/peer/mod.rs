//! What nodes say to each other over their links: the greeting ([`greeting`]), then messages.
//! Each message is one frame ([`super::frame`]) whose body is a MessagePack array; elements
//! behind those that this version knows are ignored, and so are kinds it does not know.

mod arriving;
mod clock;
mod codec;
mod contents_codec;
mod field_codec;
pub mod greeting;
mod group_codec;
mod mesh_codec;
mod ping_codec;

use crate::model::group::{GroupConfig, Member, RoundId};
use crate::model::ids::{NodeId, NodeName, Tick, Tock};
use crate::model::mark::{Component, Implied, PurgeId};
use crate::model::path::Path;
use crate::model::ping::Ping;
use crate::model::seen::{Lineage, Mark, SeenById};
use crate::model::seen_sum::SeenSum;
use crate::protocol::record::{Record, RecordError};
pub use arriving::{ARRIVING_FRAME, read_arriving, write_arriving};
pub(crate) use codec::{encode_change, encode_part};
pub(crate) use contents_codec::encode_versions;

/// The kind of frames in which nodes tell each other of cluster keys: the node's affair, not the engine's. They
/// are no [`PeerMessage`]s, whose kinds are below.
pub const KEYS_FRAME: u8 = 64;

/// Why a message was not understood. The link is closed: its sender is broken or hostile.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PeerError {
    /// Not the MessagePack that belongs there.
    #[error("bad message from a peer: {0}")]
    Read(#[from] crate::model::value::ReadError),
    /// A record that is wrong.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A list that is longer than anything honest.
    #[error("a peer's message has {count} {what}; at most {max} are allowed")]
    TooMany {
        /// The list that is too long.
        what: &'static str,
        /// How many there were.
        count: usize,
        /// How many are allowed.
        max: usize,
    },
    /// A counter out of range.
    #[error("a peer's message has the counter {0}, which is out of range")]
    Counter(u64),
    /// A set of ticks that is not sorted, or out of range.
    #[error("a peer's message has a set of ticks that is not sorted or out of range")]
    Ticks,
    /// A name that no node can have.
    #[error("a peer's message has a bad name: {0}")]
    Name(#[from] crate::model::ids::NameError),
    /// A member list that is empty, too long, or names a node twice.
    #[error("a peer's message has a bad list of the Delete group's members")]
    Members,
    /// A topic that is no path.
    #[error("a peer's message has a bad topic: {0}")]
    Topic(#[from] crate::model::path::PathError),
}

/// A change that is pushed to all peers at once.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeMessage<'a> {
    /// The sender's mark at the very moment the entry was read (replication rule 5).
    pub mark: Mark,
    /// The sender waits for the acknowledgement (`copies`), so it should come at once.
    pub ack_wanted: bool,
    /// The change.
    pub record: Record<'a>,
}

/// What a node has accounted for. Hearing it makes ticks missing, never seen (replication rule 3).
#[derive(Debug, Clone, PartialEq)]
pub struct Digest {
    /// The sender serves clients: it has caught up with the network.
    pub ready: bool,
    /// The sender's tock.
    pub tock: Tock,
    /// The sender's mark.
    pub mark: Mark,
    /// What changed since the last digest, or all that is worth its bytes.
    pub seen: SeenById,
    /// What it says of the incarnations that it does not name.
    pub unnamed: Unnamed,
    /// Sums over everything that was accounted for and that is held, of the moment of the digest;
    /// only in full ones (replication rule 10).
    pub contents: Option<ContentsTold>,
}

/// All that a node has accounted for and all that it holds, in two numbers. Where the first and the
/// marks are the same, the second is, too, unless one event has two contents (replication rule 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentsTold {
    /// A sum over all that was accounted for.
    pub(crate) seen: u64,
    /// The sum over all entries ([`crate::tree::content_sums`]).
    pub(crate) sum: u64,
}

/// Asks a peer to compare contents: its sums differ (replication rule 10).
#[derive(Debug, Clone, PartialEq)]
pub struct ContentsAsk {
    /// The asker's mark.
    pub(crate) mark: Mark,
    /// The sum over all that the asker has accounted for.
    pub(crate) seen: u64,
    /// The asker's sum differed from one of the receiver's at the same seen and mark; else the two
    /// could not be compared for long, because changes are always under way.
    pub(crate) differed: bool,
    /// Of its buckets those that are not empty, with their sums.
    pub sums: Vec<(u16, u64)>,
}

/// What a node holds in some buckets (replication rule 10).
#[derive(Debug, Clone, PartialEq)]
pub struct ContentsList {
    /// The sender's mark at the moment that the list is of.
    pub mark: Mark,
    /// Both nodes had accounted for the same at the same mark when their sums were compared: the
    /// difference is certain.
    pub(crate) differs: bool,
    /// Which buckets.
    pub(crate) buckets: Vec<u16>,
    /// No more of these buckets follows.
    pub(crate) last: bool,
    /// The sender wants the receiver's own entries of these buckets listed in turn.
    pub(crate) answer_wanted: bool,
    /// The makers of the listed versions.
    pub makers: Vec<NodeId>,
    /// The versions.
    pub entries: Vec<Listed>,
}

/// One version in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Where.
    pub path: Path,
    /// Its maker: a position in [`ContentsList::makers`]. Invariant: it exists.
    pub maker: usize,
    /// With which tick.
    pub tick: Tick,
    /// Its tock.
    pub tock: Tock,
    /// Its hash ([`crate::tree::content_sums::IncarnationKeys::content_hash`]).
    pub(crate) hash: u64,
}

/// What a digest says of the incarnations that it does not name (docs/replication-rules.md, "Optimizations").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unnamed {
    /// Nothing: it names what changed.
    #[default]
    Unsaid,
    /// Nothing yet: another part of the same digest follows.
    Follows,
    /// All that are named in no part of this digest sum up to this. A count of 0: there are none.
    Sum(SeenSum),
    /// The answer to [`PeerMessage::DigestWanted`] if the whole list is too long: the node that
    /// asked has to catch up, which delivers the list in parts.
    TooLong,
}

/// Step 1 of a catch-up: the asker's counters (replication rule 3).
#[derive(Debug, Clone, PartialEq)]
pub struct CatchUpAsk {
    /// Chosen by the asker; all that follows carries it. A newer ask on a link replaces the older.
    pub id: u64,
    /// The asker's mark.
    pub mark: Mark,
    /// Per incarnation the tick up to which the asker has accounted for all. May name some
    /// incarnations only: for those that are left out the answer says more.
    pub contiguous: Vec<(NodeId, Tick)>,
    /// The asker does not want announcements of purges: those that it got did not help.
    pub no_announcements: bool,
}

/// Step 2 of a catch-up: what the answerer knows, at the moment of the snapshot from which it
/// answers. The asker takes it over when all of the data is in, and not before (replication rule 3).
#[derive(Debug, Clone, PartialEq)]
pub struct CatchUpKnown {
    /// Of the ask.
    pub id: u64,
    /// The answerer's tock.
    pub(crate) tock: Tock,
    /// The answerer's mark.
    pub mark: Mark,
    /// What the answerer has accounted for: above the asker's counters; across a purge all of it.
    pub seen: SeenById,
    /// This is a part of the list: the next one comes when it is asked for
    /// ([`PeerMessage::CatchUpMore`]).
    pub more: bool,
}

/// Across a purge: entries of the asker that the answerer may have purged (replication rule 4).
#[derive(Debug, Clone, PartialEq)]
pub struct CatchUpNames {
    /// Of the ask.
    pub id: u64,
    /// Newest events that the answerer has seen.
    pub events: SeenById,
    /// Paths of entries whose newest event the answerer has not seen.
    pub paths: Vec<Path>,
}

/// What has become of the named entries, by the snapshot (replication rule 4).
#[derive(Debug, Clone, PartialEq)]
pub struct CatchUpVerdict {
    /// Of the ask.
    pub id: u64,
    /// Of the named events those that are no entry's newest event any more.
    pub gone: SeenById,
    /// The places in the list of named paths (from 0) where the answerer holds nothing.
    pub empty: Vec<usize>,
}

/// How far a housekeeper is that asks the other side of a healed split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResyncStatus {
    /// Entries that it has fetched.
    pub(crate) entries: u64,
    /// Events that it still lacks.
    pub(crate) remaining: u64,
    /// It has all that one peer had: its side can fetch from it.
    pub(crate) is_done: bool,
}

/// A tock pair as it travels (replication rule 5).
#[derive(Debug, Clone, PartialEq)]
pub struct PairById {
    /// Of which succession of decisions.
    pub lineage: Lineage,
    /// Where one has to stand in that lineage.
    pub from: Component,
    /// The tock of the mark that follows.
    pub to: Tock,
    /// Which purge this is.
    pub(crate) id: Option<PurgeId>,
    /// What else one has to have applied.
    pub(crate) base: Vec<(Lineage, Component)>,
    /// V: what one has to have seen, of the incarnations that are named.
    pub seen: SeenById,
    /// V of all others sums up to this: an incarnation's part of V is named whole or not at all. A
    /// node with another sum does not know V, and can neither agree to it nor apply it.
    pub rest: SeenSum,
}

/// A coordinator asks the Delete group's members to agree (replication rule 7).
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The round.
    pub round: RoundId,
    /// The purge. The holes in V are those that could not be filled: they are lost.
    pub pair: PairById,
    /// A planned change of the member list that takes effect with the announcement.
    pub next: Option<GroupConfig>,
}

/// A node's identity in the Delete group, and the member list that it knows.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupHello {
    /// The sender, as a member.
    pub member: Member,
    /// The list in force at the sender.
    pub config: Option<GroupConfig>,
    /// What may be left out of marks, as far as the sender knows.
    pub implied: Vec<Implied>,
}

/// Why a catch-up is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefuseReason {
    /// The answerer is behind the asker, across a purge.
    Behind,
    /// The asker is behind the answerer, but not by more than the announcements that the
    /// answerer has sent it just now: it should apply them and ask again.
    Announced,
    /// The answerer serves as many as it can; ask another, or later.
    Busy,
    /// The answerer is itself still catching up.
    NotReady,
    /// The answer would be longer than a message may be: too much was named at once.
    TooLong,
    /// A reason that this version does not know.
    Other(u64),
}

/// What the sender thinks of this link, in a network in which not all are linked with all. A node
/// that never sends it is not expected to follow any of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// The sender wants the link to stand. One that neither side wants is closed.
    pub wanted: bool,
    /// Changes should be pushed over the link, by both sides; otherwise digests report them.
    pub eager: bool,
    /// The sender passes on changes that are pushed to it. A node that does not pushes its own
    /// changes to all.
    pub(crate) relays: bool,
}

/// A message that is passed on from link to link until all have it, each node taking it once.
#[derive(Debug, Clone, PartialEq)]
pub struct Relayed<'a> {
    /// The node that said it.
    pub origin: NodeId,
    /// Counts what that life of the origin has had passed on, from 1: a second copy is known by it.
    pub number: u64,
    /// Over all links; else over those over which changes are pushed.
    pub(crate) wide: bool,
    /// Its message: one whole frame, as a peer that is linked with the origin would get it.
    pub frame: &'a [u8],
}

/// Everything that is said on a link after the greeting.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerMessage<'a> {
    /// A change, pushed at once.
    Change(ChangeMessage<'a>),
    /// What the sender has accounted for.
    Digest(Digest),
    /// The sender wants a digest that names everything: the sum of the last one was not its own.
    DigestWanted,
    /// The receiver's own incarnation is accounted for at the sender up to this tick, without
    /// a hole: a cumulative acknowledgement.
    Ack(Tick),
    /// Asks for what is missing, with the asker's counters.
    CatchUpAsk(CatchUpAsk),
    /// What the answerer knows.
    CatchUpKnown(CatchUpKnown),
    /// The asker wants the next part of what the answerer knows.
    CatchUpMore {
        /// Of the ask.
        id: u64,
    },
    /// Step 3 of a catch-up: events that the asker lacks of the known ones. What does not fit follows
    /// in another one, when the data of these has come.
    CatchUpMissing {
        /// Of the ask.
        id: u64,
        /// The missing events.
        missing: SeenById,
    },
    /// Step 4: entries whose newest event is among the missing ones.
    CatchUpPart {
        /// Of the ask.
        id: u64,
        /// The answerer's mark at the snapshot's moment.
        mark: Mark,
        /// The entries.
        records: Vec<Record<'a>>,
    },
    /// All entries that the last [`PeerMessage::CatchUpMissing`] asked for have been sent.
    CatchUpEnd {
        /// Of the ask.
        id: u64,
        /// How many there were.
        entries: u64,
    },
    /// Across a purge: what has become of these?
    CatchUpNames(CatchUpNames),
    /// This has become of them.
    CatchUpVerdict(CatchUpVerdict),
    /// The asker needs nothing more from the snapshot.
    CatchUpDone {
        /// Of the ask.
        id: u64,
    },
    /// The receiver should catch up from the sender at once: there are re-issues (replication rule 4d).
    CatchUpInvite,
    /// There is no answer, or no more of it.
    CatchUpRefused {
        /// Of the ask.
        id: u64,
        /// Why.
        reason: RefuseReason,
    },
    /// A client's message for all monitors of its topic; stored nowhere.
    Topic {
        /// Canonical path elements.
        topic: Path,
        /// The bytes, usually MessagePack; not checked.
        data: &'a [u8],
    },
    /// A client removed a node that owns nothing from the views of clients.
    KillNode(NodeName),
    /// The sender goes away on purpose.
    Leave,
    /// A turn of an election is claimed, or a known claim is repeated.
    Ping(Ping),
    /// How far the sender is with asking the other side.
    Resync(ResyncStatus),
    /// The sender as a member of the Delete group, and its member list.
    Group(GroupHello),
    /// Asks to agree to a purge.
    Propose(Proposal),
    /// The sender agrees, and has persisted what it agrees to.
    Agree {
        /// To what.
        round: RoundId,
        /// The sender.
        member: Member,
    },
    /// The sender cannot agree now.
    Disagree(RoundId),
    /// All have agreed: tombstones may be dropped.
    Announce(PairById),
    /// What the sender thinks of this link.
    Edge(Edge),
    /// Passed on for a node that may have no link to the receiver.
    Relayed(Relayed<'a>),
    /// The sums over contents differ; these are the sender's.
    ContentsAsk(ContentsAsk),
    /// What the sender holds, in buckets that differ.
    ContentsList(ContentsList),
    /// The sender lacks the versions at these paths, although it has accounted for their events.
    ContentsWant(Vec<Path>),
    /// What the sender holds at paths that were wanted.
    ContentsVersions {
        /// The sender's mark of that moment.
        mark: Mark,
        /// The versions.
        records: Vec<Record<'a>>,
    },
}

impl<'a> PeerMessage<'a> {
    /// The record of a change that was pushed.
    #[must_use]
    pub(crate) fn as_record(&self) -> Option<&Record<'a>> {
        match self {
            Self::Change(change) => Some(&change.record),
            _ => None,
        }
    }
}
