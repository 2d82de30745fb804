//! One engine by hand: what its peers say, each at its moment, and all that it answers. Networks of several:
//! [`super::net`].

use super::write;
use crate::engine::changes::Change;
use crate::engine::*;
use crate::model::ids::{NodeId, NodeName};
use crate::model::mark::Mark;
use crate::model::seen::SeenById;
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::{CatchUpAsk, Digest, PeerMessage, Unnamed};

/// A node and the time. Its peers are what a test says over the links of these numbers.
pub(super) struct Hand {
    pub(super) engine: Engine,
    pub(super) now: Millis,
}

/// What came of one input, or of several.
pub(super) struct Came(pub(super) Vec<Output>);

/// In the place of a link: all of them.
pub(super) const ALL: LinkId = LinkId(0);

/// A node's first life.
pub(super) fn id(name: &str) -> NodeId {
    NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) }
}

/// What a ready peer has and how far it has purged.
pub(super) fn digest(seen: SeenById, mark: Mark) -> Digest {
    let (tock, unnamed) = (Tock::default(), Unnamed::Unsaid);
    Digest { ready: true, tock, mark, seen, unnamed, contents: None }
}

impl Hand {
    /// A node that is not ready, without peers.
    pub(super) fn new(config: Config) -> Self {
        Self { engine: Engine::new(config), now: 0 }
    }

    /// The node `me`, which is ready, with so many peers `p1`, `p2` … on the links of these numbers.
    pub(super) fn with_peers(count: u64) -> Self {
        let mut hand = Self::new(Config::new(id("me"), 1));
        hand.input(Input::Found);
        for number in 1..=count {
            hand.link_up(number);
        }
        hand
    }

    /// A link to the peer of that number.
    pub(super) fn link_up(&mut self, number: u64) -> Came {
        self.input(Input::LinkUp { link: LinkId(number), peer: id(&format!("p{number}")) })
    }

    pub(super) fn input<C: Change>(&mut self, change: C) -> Came {
        let mut out = Outbox::new();
        let _ = self.engine.handle(change, self.now, &mut out);
        Came::of(out)
    }

    pub(super) fn hear(&mut self, link: u64, message: PeerMessage<'_>) -> Came {
        self.hear_all(link, vec![message])
    }

    pub(super) fn hear_all(&mut self, link: u64, messages: Vec<PeerMessage<'_>>) -> Came {
        self.input(Input::Messages { link: LinkId(link), messages })
    }

    pub(super) fn hear_frame(&mut self, link: u64, frame: &[u8]) -> Came {
        let frame = split_frame(frame, BODY_BYTES_MAX).unwrap().unwrap();
        self.hear(link, PeerMessage::decode(&frame).unwrap().unwrap())
    }

    pub(super) fn tick_at(&mut self, now: Millis) -> Came {
        self.now = now;
        self.input(Input::Tick)
    }

    /// So much time passes.
    pub(super) fn pass(&mut self, ms: Millis) -> Came {
        let ticks = 0..ms / TICK_INTERVAL_MS;
        Came(ticks.flat_map(|_| self.tick_at(self.now + TICK_INTERVAL_MS).0).collect())
    }

    /// A client's change that nobody refuses.
    pub(super) fn write(&mut self, at: &str, value: Option<&[u8]>) -> Came {
        let mut out = Outbox::new();
        self.engine.write(&mut write(at, value), false, &mut out).unwrap();
        Came::of(out)
    }

    /// No further life can be remembered.
    pub(super) fn fill_table(&mut self) {
        let name = NodeName::new("x").unwrap();
        let lives = (1..).map(|life| NodeId { name: name.clone(), incarnation: Incarnation(life) });
        for life in lives {
            if self.engine.replica.intern(&life).is_none() {
                return;
            }
        }
    }
}

impl Came {
    pub(super) fn of(mut out: Outbox) -> Self {
        Self(out.drain().collect())
    }

    /// What the messages say that went over single links, or to all of them.
    pub(super) fn sent<T>(&self, says: impl Fn(LinkId, &PeerMessage<'_>) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        for output in &self.0 {
            let (link, frame) = match output {
                Output::Send { link, frame } => (*link, frame),
                Output::Broadcast { frame } => (ALL, frame),
                _ => continue,
            };
            let frame = split_frame(frame, BODY_BYTES_MAX).unwrap().unwrap();
            found.extend(says(link, &PeerMessage::decode(&frame).unwrap().unwrap()));
        }
        found
    }

    /// Who was asked for a catch-up, and how.
    pub(super) fn asked(&self) -> Vec<(u64, CatchUpAsk)> {
        self.sent(|link, message| match message {
            PeerMessage::CatchUpAsk(ask) => Some((link.0, ask.clone())),
            _ => None,
        })
    }

    pub(super) fn asked_whom(&self) -> Vec<u64> {
        self.asked().into_iter().map(|(peer, _)| peer).collect()
    }

    pub(super) fn reports<T>(&self, of: impl Fn(&Report) -> Option<T>) -> Vec<T> {
        let reports = self.0.iter().filter_map(|output| match output {
            Output::Report(report) => of(report),
            _ => None,
        });
        reports.collect()
    }

    pub(super) fn has(&self, is_it: impl Fn(&Output) -> bool) -> bool {
        self.0.iter().any(is_it)
    }

    /// All messages of the jobs that were begun.
    pub(super) fn served<T>(self, says: impl Fn(&PeerMessage<'_>) -> T) -> Vec<T> {
        let mut said = Vec::new();
        for output in self.0 {
            let Output::Serve { mut job, .. } = output else { continue };
            let (mut frames, mut at) = (Vec::new(), 0);
            while !job.next_frames(1_000, &mut frames) {}
            while let Some(frame) = split_frame(&frames[at..], BODY_BYTES_MAX).unwrap() {
                said.push(says(&PeerMessage::decode(&frame).unwrap().unwrap()));
                at += frame.length;
            }
        }
        said
    }
}
