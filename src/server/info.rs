//! What the client port must know about the rest of the node, for the actions `status`,
//! `members` and `leave`.

use crate::model::ids::{Incarnation, Tick};

/// Implemented by the node, which knows what the hub does not.
pub trait NodeInfo: Send + Sync {
    /// The node's condition, as far as the hub does not know it. Quick: no waiting, no I/O.
    fn status(&self) -> NodeStatus;

    /// All known members, this node first. Quick: no waiting, no I/O.
    fn members(&self) -> Vec<MemberInfo>;

    /// A client wants the node to leave the network and end. Returns at once; the leaving
    /// happens elsewhere.
    fn leave(&self);
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
}

/// A member as SWIM sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// This node.
    Myself,
    /// A link to it stands, but membership has not heard of it (yet): it has just come, or UDP
    /// does not get through. Should it fail now, nobody would say "down" of it.
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
    /// Where clients reach it, where that is known.
    pub client: Option<String>,
    /// How it is.
    pub state: MemberState,
    /// Whether a link to it stands.
    pub linked: bool,
    /// Whether it serves clients, as far as is known.
    pub ready: bool,
    /// Whether its link's queue overflowed and it has not fetched yet what it missed.
    pub lagging: bool,
    /// This node's changes that it has acknowledged.
    pub acked: Tick,
    /// For how long it has been in its state.
    pub since_ms: u64,
    /// Its software, where that is known.
    pub software: Option<String>,
}
