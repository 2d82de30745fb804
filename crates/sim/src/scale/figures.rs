//! The counters: messages and bytes by purpose.

use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::PeerMessage;

/// What a message is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// SWIM.
    Datagram,
    /// Changes that are pushed.
    Change,
    /// The seen ticks, and requests for them.
    Digest,
    /// Acknowledgements.
    Ack,
    /// Elections.
    Election,
    /// Catch-ups.
    CatchUp,
    /// Links that become eager or lazy.
    Edge,
    /// Everything else.
    Other,
}

impl Class {
    /// All of them, with names for people.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Datagram, "SWIM"),
        (Self::Change, "changes"),
        (Self::Digest, "digests"),
        (Self::Ack, "acks"),
        (Self::Election, "elections"),
        (Self::CatchUp, "catch-ups"),
        (Self::Edge, "edges"),
        (Self::Other, "other"),
    ];

    /// Of a message on a link.
    #[must_use]
    pub(crate) fn of(message: &PeerMessage<'_>) -> Self {
        match message {
            PeerMessage::Change(_) => Self::Change,
            PeerMessage::Digest(_) | PeerMessage::DigestWanted => Self::Digest,
            PeerMessage::Ack(_) => Self::Ack,
            PeerMessage::Ping(_) => Self::Election,
            PeerMessage::Edge(_) => Self::Edge,
            PeerMessage::CatchUpAsk(_)
            | PeerMessage::CatchUpKnown(_)
            | PeerMessage::CatchUpMore { .. }
            | PeerMessage::CatchUpMissing { .. }
            | PeerMessage::CatchUpPart { .. }
            | PeerMessage::CatchUpEnd { .. }
            | PeerMessage::CatchUpNames(_)
            | PeerMessage::CatchUpVerdict(_)
            | PeerMessage::CatchUpDone { .. }
            | PeerMessage::CatchUpInvite
            | PeerMessage::CatchUpRefused { .. }
            | PeerMessage::ContentsAsk(_)
            | PeerMessage::ContentsList(_)
            | PeerMessage::ContentsWant(_)
            | PeerMessage::ContentsVersions { .. } => Self::CatchUp,
            PeerMessage::Relayed(relayed) => {
                let frame = split_frame(relayed.frame, BODY_BYTES_MAX).ok().flatten();
                match frame.map(|frame| PeerMessage::decode(&frame)) {
                    Some(Ok(Some(message))) => Self::of(&message),
                    _ => Self::Other,
                }
            }
            _ => Self::Other,
        }
    }
}

/// Messages and bytes, by [`Class`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    counts: [(u64, u64); Class::ALL.len()],
}

impl Traffic {
    pub(super) fn note(&mut self, class: Class, bytes: usize) {
        let count = &mut self.counts[class as usize];
        *count = (count.0 + 1, count.1 + bytes as u64);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = (count.0 + more.0, count.1 + more.1);
        }
    }

    /// Messages and bytes of one class.
    #[must_use]
    pub fn of(&self, class: Class) -> (u64, u64) {
        self.counts[class as usize]
    }

    /// Messages and bytes of all.
    #[must_use]
    pub fn total(&self) -> (u64, u64) {
        self.counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
    }
}
