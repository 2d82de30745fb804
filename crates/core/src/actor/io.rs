//! What an actor is made with, its outputs, and its queries.

use crate::model::ids::NodeName;
use crate::model::ping::{ConfigVersion, GroupId, Ping};

/// What an actor is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ActorConfig {
    /// Which election; pings of others are ignored.
    pub(crate) group: GroupId,
    /// The settings that all members must share, as far as this one knows. Values out of range are
    /// brought into it.
    pub(crate) shared: ConfigVersion,
}

/// What a member does in its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// It may be elected: it pings when it is its turn.
    Active,
    /// It listens and knows the list; it never pings, and is never on the list.
    Passive,
}

/// Something to be done outside, or to be known there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ActorOutput {
    /// For all members of the group that can be reached. Need not arrive.
    Send(Ping),
    /// Something happened.
    Event(ActorEvent),
}

/// Something that happened in a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ActorEvent {
    /// This member holds the tag from now until [`ActorEvent::Untagged`].
    Tagged,
    /// This member held the tag and holds it no more.
    Untagged,
    /// Other members are on the list than before. Given newest first; a turn that only changes
    /// their order is not reported.
    ListChanged(Vec<NodeName>),
    /// Two histories that share nothing have met: a split has healed. Given once per meeting.
    Recover {
        /// This member's place in `ours`, 0 for the first; none if it is not in it.
        priority: Option<usize>,
        /// The list that this member followed, newest first; never empty.
        ours: Vec<NodeName>,
        /// The list of the others, newest first; never empty.
        theirs: Vec<NodeName>,
    },
    /// Another configuration was heard of and is followed from now.
    ConfigChanged(ConfigVersion),
}
