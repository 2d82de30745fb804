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
//!
//! An answer may have to wait behind what was written before it. So there is no doubt while bytes pass: in big
//! pieces, or, where the line is slow, slowly ([`super::arrivals`]).

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
    /// This node should give one to ask, and one as an answer. Both, where it was asked before it asked itself:
    /// the peer takes the first for its answer. One for both would leave this node's question open, and the peer's
    /// next question would be taken for the answer to it, and get none.
    asks: bool,
    owes: bool,
    /// When the first frame was written that may not have arrived.
    unproven: Option<Millis>,
    /// When the first frame was written since this node has asked: an answer says nothing about it.
    since_asked: Option<Millis>,
    /// Until then it is not in doubt: bytes pass, so the link works, and an answer may have to wait behind them for
    /// long.
    trusted_until: Millis,
}

impl Signs {
    pub(super) fn new() -> Self {
        Self {
            known: false,
            asked: true,
            asks: true,
            owes: false,
            unproven: None,
            since_asked: None,
            trusted_until: 0,
        }
    }

    /// Frames are being written.
    pub(super) fn on_frames(&mut self, now: Millis) {
        let first = if self.asked { &mut self.since_asked } else { &mut self.unproven };
        first.get_or_insert(now);
    }

    /// Bytes pass, in either direction, which says that until then others may follow.
    pub(super) fn trust(&mut self, until: Millis) {
        self.trusted_until = self.trusted_until.max(until);
    }

    /// The peer has given a sign. Returns whether to give one back.
    pub(super) fn on_sign(&mut self, now: Millis) -> bool {
        self.known = true;
        if std::mem::take(&mut self.asked) {
            self.unproven = self.since_asked.take();
            // An answer that came late may leave frames open that are old: the next question has its time.
            self.trust(now + ASK_AFTER_MS);
        } else {
            self.owes = true;
        }
        self.asks || self.owes
    }

    /// Asks, if it is time. Returns whether a sign must be given for it.
    pub(super) fn ask(&mut self, now: Millis) -> bool {
        let overdue = self.unproven.is_some_and(|at| now.saturating_sub(at) >= ASK_AFTER_MS);
        if overdue && !self.asked {
            self.asked = true;
            self.asks = true;
        }
        self.asks || self.owes
    }

    /// How many signs must be given; they count as given from here on.
    pub(super) fn take_wanted(&mut self) -> usize {
        usize::from(std::mem::take(&mut self.asks)) + usize::from(std::mem::take(&mut self.owes))
    }

    /// Whether the link is in doubt, with a patience of `courtesy_ms` more.
    pub(super) fn is_doubtful(&self, courtesy_ms: Millis, now: Millis) -> bool {
        let since = |at: Millis| now.saturating_sub(at);
        self.known
            && self.unproven.is_some_and(|at| since(at) >= DOUBT_AFTER_MS + courtesy_ms)
            && now >= self.trusted_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::link::arrivals::{Arrivals, GAP_LONG_MS};

    /// Two ends that have exchanged their first signs.
    fn pair() -> [Signs; 2] {
        let mut pair = [Signs::new(), Signs::new()];
        for signs in &mut pair {
            assert_eq!(signs.take_wanted(), 1, "each begins with one");
        }
        for signs in &mut pair {
            assert!(!signs.on_sign(0), "which is not answered");
        }
        pair
    }

    #[test]
    fn what_is_written_is_proven_by_one_question_and_one_answer() {
        let [mut a, mut b] = pair();
        a.on_frames(0);
        assert!(!a.ask(ASK_AFTER_MS - 1));
        assert!(a.ask(ASK_AFTER_MS) && a.take_wanted() == 1);
        assert!(b.on_sign(ASK_AFTER_MS) && b.take_wanted() == 1);
        assert!(!a.on_sign(ASK_AFTER_MS));
        for now in [ASK_AFTER_MS, 100 * DOUBT_AFTER_MS] {
            assert!(!a.ask(now) && !a.is_doubtful(0, now) && !b.ask(now), "nothing is open");
        }
    }

    #[test]
    fn a_link_over_which_no_answer_comes_is_in_doubt_until_one_does() {
        let [mut a, _] = pair();
        a.on_frames(0);
        assert!(a.ask(ASK_AFTER_MS) && a.take_wanted() == 1);
        a.on_frames(ASK_AFTER_MS + 1);
        assert!(!a.is_doubtful(0, DOUBT_AFTER_MS - 1));
        assert!(a.is_doubtful(0, DOUBT_AFTER_MS));
        assert!(!a.is_doubtful(1, DOUBT_AFTER_MS));
        assert!(!a.ask(DOUBT_AFTER_MS), "asking once is enough");
        a.on_sign(DOUBT_AFTER_MS);
        assert!(!a.is_doubtful(0, DOUBT_AFTER_MS + 1));
        // Frames written after the question are not covered by the answer.
        assert!(a.is_doubtful(0, ASK_AFTER_MS + 1 + DOUBT_AFTER_MS));
        assert!(a.ask(ASK_AFTER_MS + 1 + ASK_AFTER_MS));
    }

    #[test]
    fn nothing_is_expected_of_a_peer_that_never_gave_a_sign() {
        let mut a = Signs::new();
        assert_eq!(a.take_wanted(), 1);
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
        a.trust(11_000);
        a.trust(10_500);
        assert!(!a.is_doubtful(0, 11_000 - 1));
        assert!(a.is_doubtful(0, 11_000), "they have stopped");
    }

    #[test]
    fn two_questions_that_cross_answer_each_other() {
        let [mut a, mut b] = pair();
        for signs in [&mut a, &mut b] {
            signs.on_frames(0);
            assert!(signs.ask(ASK_AFTER_MS) && signs.take_wanted() == 1);
        }
        assert!(!a.on_sign(ASK_AFTER_MS) && !b.on_sign(ASK_AFTER_MS));
    }

    /// As on a slow line, where what a node should give waits until a long message is written.
    #[test]
    fn who_is_asked_before_it_asks_itself_answers_and_asks() {
        let [mut a, mut b] = pair();
        b.on_frames(0);
        assert!(b.ask(ASK_AFTER_MS) && b.take_wanted() == 1);
        a.on_frames(500);
        assert!(a.on_sign(1_200) && a.ask(500 + ASK_AFTER_MS));
        assert_eq!(a.take_wanted(), 2);
        assert!(!b.on_sign(9_000), "the answer");
        assert!(b.on_sign(9_000) && b.take_wanted() == 1, "the question");
        assert!(!a.on_sign(9_100));
        // Nothing is left over, so the next question of either is answered.
        b.on_frames(10_000);
        assert!(b.ask(10_000 + ASK_AFTER_MS) && b.take_wanted() == 1);
        assert!(a.on_sign(11_100) && a.take_wanted() == 1);
        assert!(!b.on_sign(11_200) && !b.is_doubtful(0, 60_000));
    }

    #[test]
    fn an_answer_that_came_late_leaves_time_for_the_next_one() {
        let [mut a, _] = pair();
        a.on_frames(0);
        assert!(a.ask(ASK_AFTER_MS) && a.take_wanted() == 1);
        a.on_frames(1_500);
        a.trust(9_000);
        a.on_sign(9_000);
        assert!(a.ask(9_000), "at once");
        assert!(!a.is_doubtful(0, 9_000 + ASK_AFTER_MS - 1));
        assert!(a.is_doubtful(0, 9_000 + ASK_AFTER_MS));
    }

    /// A message of 100 KB at 64 kbit/s, of which a read gets 1448 bytes, and a digest that was written meanwhile.
    #[test]
    fn a_link_over_which_a_long_message_comes_slowly_is_in_doubt_only_when_it_stops() {
        let [_, mut receiver] = pair();
        let mut arrivals = Arrivals::default();
        receiver.on_frames(0);
        let mut last = 0;
        for now in (0..13_000).step_by(181) {
            assert!(!receiver.is_doubtful(0, now), "at {now}");
            receiver.trust(arrivals.on_read(1_448, true, now).unwrap().until);
            last = now;
        }
        assert!(!receiver.is_doubtful(0, last + GAP_LONG_MS - 1), "a packet may have been lost");
        assert!(receiver.is_doubtful(0, last + GAP_LONG_MS));
    }

    /// What is half dead: the peer's short messages come, and nothing that is written to it arrives.
    #[test]
    fn whole_messages_do_not_keep_a_link_from_being_in_doubt() {
        let [mut a, _] = pair();
        let mut arrivals = Arrivals::default();
        a.on_frames(0);
        for now in (0..DOUBT_AFTER_MS).step_by(100) {
            assert_eq!(arrivals.on_read(64, false, now), None);
        }
        assert!(a.is_doubtful(0, DOUBT_AFTER_MS));
    }

    /// The same with a message under way of which no more comes than pings are long.
    #[test]
    fn a_trickle_does_not_keep_a_link_from_being_in_doubt() {
        let [mut a, _] = pair();
        let mut arrivals = Arrivals::default();
        a.on_frames(0);
        for now in (0..=DOUBT_AFTER_MS).step_by(200) {
            a.trust(arrivals.on_read(64, true, now).unwrap().until);
        }
        assert!(a.is_doubtful(0, DOUBT_AFTER_MS + 100));
    }
}
