//! Whether data written to a peer arrives, as far as signs of life show. Pure; time comes in.
//!
//! A link that was cut for a moment is a trap: TCP retransmits only after as long a time as the cut
//! has lasted, separately in each direction, and until then nothing arrives although the network is
//! fine again. So a node that has written something asks after a while for a sign of life, and if
//! none comes, the link is in doubt: the peer is dialled beside it, and a connection that results
//! takes its place. Hearing others on this link is no proof: one direction may work while the other
//! does not.
//!
//! A sign of life is an acknowledgement of no change at all, which peers that do not know better
//! ignore. A node that gets one without having asked is being asked, and answers. Each side gives
//! one when a link begins: none are expected of a peer that does not.

use crate::model::ids::{Millis, Tick};
use crate::protocol::peer::PeerMessage;

/// After this time, data that was written and may not have arrived makes this node ask.
const ASK_AFTER_MS: Millis = 1_000;
/// If it may not have arrived after this time, the link is in doubt. An answer takes as long as the
/// peer takes to read the data written before.
const DOUBT_AFTER_MS: Millis = 2_000;

/// A sign of life, for the peer.
pub(super) fn sign_of_life() -> PeerMessage<'static> {
    PeerMessage::Ack(Tick::default())
}

/// Whether that is one.
pub(super) fn is_sign_of_life(message: &PeerMessage<'_>) -> bool {
    matches!(message, PeerMessage::Ack(tick) if *tick == Tick::default())
}

/// One link's.
#[derive(Debug)]
pub(super) struct Signs {
    /// The peer knows about signs.
    known: bool,
    /// This node has asked for one, and none has come.
    asked: bool,
    /// This node should give one: as an answer, or to ask.
    wanted: bool,
    /// When the first frame was written that may not have arrived.
    unproven: Option<Millis>,
    /// When the first frame was written since this node has asked: an answer says nothing about it.
    since_asked: Option<Millis>,
    /// When many bytes last passed. Then the link works, and an answer may have to wait behind them
    /// for long.
    flowed: Option<Millis>,
}

impl Signs {
    pub(super) fn new() -> Self {
        Self {
            known: false,
            asked: true,
            wanted: true,
            unproven: None,
            since_asked: None,
            flowed: None,
        }
    }

    /// Frames are being written.
    pub(super) fn on_frames(&mut self, now: Millis) {
        let first = if self.asked { &mut self.since_asked } else { &mut self.unproven };
        first.get_or_insert(now);
    }

    /// Many bytes pass, in either direction.
    pub(super) fn on_flow(&mut self, now: Millis) {
        self.flowed = Some(now);
    }

    /// The peer has given a sign. Returns whether to give one back.
    pub(super) fn on_sign(&mut self) -> bool {
        self.known = true;
        if std::mem::take(&mut self.asked) {
            self.unproven = self.since_asked.take();
        } else {
            self.wanted = true;
        }
        self.wanted
    }

    /// Asks, if it is time. Returns whether a sign must be given for it.
    pub(super) fn ask(&mut self, now: Millis) -> bool {
        let overdue = self.unproven.is_some_and(|at| now.saturating_sub(at) >= ASK_AFTER_MS);
        if overdue && !self.asked {
            self.asked = true;
            self.wanted = true;
        }
        self.wanted
    }

    /// Whether a sign must be given; it counts as given from here on.
    pub(super) fn take_wanted(&mut self) -> bool {
        std::mem::take(&mut self.wanted)
    }

    /// Whether the link is in doubt, with a patience of `courtesy_ms` more.
    pub(super) fn is_doubtful(&self, courtesy_ms: Millis, now: Millis) -> bool {
        let since = |at: Millis| now.saturating_sub(at);
        self.known
            && self.unproven.is_some_and(|at| since(at) >= DOUBT_AFTER_MS + courtesy_ms)
            && self.flowed.is_none_or(|at| since(at) >= ASK_AFTER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ends that have exchanged their first signs.
    fn pair() -> [Signs; 2] {
        let mut pair = [Signs::new(), Signs::new()];
        for signs in &mut pair {
            assert!(signs.take_wanted(), "each begins with one");
        }
        for signs in &mut pair {
            assert!(!signs.on_sign(), "which is not answered");
        }
        pair
    }

    #[test]
    fn what_is_written_is_proven_by_one_question_and_one_answer() {
        let [mut a, mut b] = pair();
        a.on_frames(0);
        assert!(!a.ask(ASK_AFTER_MS - 1));
        assert!(a.ask(ASK_AFTER_MS) && a.take_wanted());
        assert!(b.on_sign() && b.take_wanted());
        assert!(!a.on_sign());
        for now in [ASK_AFTER_MS, 100 * DOUBT_AFTER_MS] {
            assert!(!a.ask(now) && !a.is_doubtful(0, now) && !b.ask(now), "nothing is open");
        }
    }

    #[test]
    fn a_link_over_which_no_answer_comes_is_in_doubt_until_one_does() {
        let [mut a, _] = pair();
        a.on_frames(0);
        assert!(a.ask(ASK_AFTER_MS) && a.take_wanted());
        a.on_frames(ASK_AFTER_MS + 1);
        assert!(!a.is_doubtful(0, DOUBT_AFTER_MS - 1));
        assert!(a.is_doubtful(0, DOUBT_AFTER_MS));
        assert!(!a.is_doubtful(1, DOUBT_AFTER_MS));
        assert!(!a.ask(DOUBT_AFTER_MS), "asking once is enough");
        a.on_sign();
        assert!(!a.is_doubtful(0, DOUBT_AFTER_MS + 1));
        // Frames written after the question are not covered by the answer.
        assert!(a.is_doubtful(0, ASK_AFTER_MS + 1 + DOUBT_AFTER_MS));
        assert!(a.ask(ASK_AFTER_MS + 1 + ASK_AFTER_MS));
    }

    #[test]
    fn nothing_is_expected_of_a_peer_that_never_gave_a_sign() {
        let mut a = Signs::new();
        assert!(a.take_wanted());
        a.on_frames(0);
        assert!(!a.ask(60_000) && !a.is_doubtful(0, 60_000));
    }

    #[test]
    fn an_idle_link_is_neither_asked_about_nor_in_doubt() {
        let [mut a, _] = pair();
        assert!(!a.ask(60_000) && !a.is_doubtful(0, 60_000));
    }

    #[test]
    fn while_many_bytes_pass_an_answer_may_wait_behind_them() {
        let [mut a, _] = pair();
        a.on_frames(0);
        assert!(a.ask(ASK_AFTER_MS));
        a.on_flow(10_000);
        assert!(!a.is_doubtful(0, 10_000 + ASK_AFTER_MS - 1));
        assert!(a.is_doubtful(0, 10_000 + ASK_AFTER_MS), "they have stopped");
    }

    #[test]
    fn two_questions_that_cross_answer_each_other() {
        let [mut a, mut b] = pair();
        for signs in [&mut a, &mut b] {
            signs.on_frames(0);
            assert!(signs.ask(ASK_AFTER_MS) && signs.take_wanted());
        }
        assert!(!a.on_sign() && !b.on_sign());
    }
}
