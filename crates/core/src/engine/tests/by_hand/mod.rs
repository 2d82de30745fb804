//! One engine by hand: what its peers say, each at its moment, and all that it answers.

mod answering;
mod asking;
mod comparing;
mod healing;

use super::*;
use crate::model::mark::Lineage;
use crate::model::seen::SeenById;
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::CatchUpAsk;

/// The node `me`, its peers `p1`, `p2` … on the links of these numbers, and the time.
struct Hand {
    engine: Engine,
    now: Millis,
}

/// What came of one input.
struct Came(Vec<Output>);

const ALL: LinkId = LinkId(0);

fn id(name: &str) -> NodeId {
    NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) }
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn tock(number: u64) -> Tock {
    Tock::new(number).unwrap()
}

/// A mark of one component: of the first lineage, or of another.
fn mark(is_first: bool, to: u64) -> Mark {
    let other = Some((id("m"), Tick::new(1).unwrap()));
    Mark::from_components([(Lineage(if is_first { None } else { other }), tock(to))])
}

/// The ticks from 1 to `last` of a life that is nobody's here.
fn ticks(name: &str, last: u64) -> SeenById {
    vec![(id(name), TickSet::range(1, last + 1).unwrap())]
}

/// What a ready peer has and how far it has purged.
fn digest(seen: SeenById, mark: Mark) -> PeerMessage<'static> {
    let tock = Tock::default();
    let unnamed = Unnamed::Unsaid;
    PeerMessage::Digest(Digest { ready: true, tock, mark, seen, unnamed, contents: None })
}

impl Hand {
    /// A node that is ready, with so many peers.
    fn with_peers(count: u64) -> Self {
        let mut hand = Self { engine: Engine::new(Config::new(id("me"), 1)), now: 0 };
        hand.input(Input::Found);
        for number in 1..=count {
            let peer = id(&format!("p{number}"));
            hand.input(Input::LinkUp { link: LinkId(number), peer });
        }
        hand
    }

    fn input(&mut self, input: Input<'_>) -> Came {
        let mut out = Outbox::new();
        self.engine.handle(input, self.now, &mut out);
        Came(out.drain().collect())
    }

    fn hear(&mut self, peer: u64, message: PeerMessage<'_>) -> Came {
        self.input(Input::Messages { link: LinkId(peer), messages: vec![message] })
    }

    fn tick_at(&mut self, now: Millis) -> Came {
        self.now = now;
        self.input(Input::Tick)
    }

    fn write(&mut self, at: &str, value: Option<&[u8]>) {
        self.engine.write(write(at, value), false, &mut Outbox::new()).unwrap();
    }

    fn holds(&self, at: &str) -> bool {
        self.engine.get(path(at).as_bytes()).is_some()
    }

    /// This node has applied a purge.
    fn reach(&mut self, mark: &Mark) {
        self.engine.replica.hear_tock(mark.top());
        self.engine.replica.raise_mark_early(mark);
    }

    /// No further life can be remembered.
    fn fill_table(&mut self) {
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
    /// What the messages say that went over single links, or to all of them.
    fn sent<T>(&self, says: impl Fn(LinkId, &PeerMessage<'_>) -> Option<T>) -> Vec<T> {
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
    fn asked(&self) -> Vec<(u64, CatchUpAsk)> {
        self.sent(|link, message| match message {
            PeerMessage::CatchUpAsk(ask) => Some((link.0, ask.clone())),
            _ => None,
        })
    }

    fn asked_whom(&self) -> Vec<u64> {
        self.asked().into_iter().map(|(peer, _)| peer).collect()
    }

    fn reports<T>(&self, of: impl Fn(&Report) -> Option<T>) -> Vec<T> {
        let reports = self.0.iter().filter_map(|output| match output {
            Output::Report(report) => of(report),
            _ => None,
        });
        reports.collect()
    }

    fn has(&self, is_it: impl Fn(&Output) -> bool) -> bool {
        self.0.iter().any(is_it)
    }

    /// All messages of the jobs that were begun.
    fn served<T>(self, says: impl Fn(&PeerMessage<'_>) -> T) -> Vec<T> {
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

#[test]
fn a_time_that_goes_back_is_the_latest_one() {
    let mut me = Hand::with_peers(1);
    me.tick_at(10_000);
    me.now = 0;
    assert_eq!(me.hear(1, PeerMessage::CatchUpInvite).asked_whom(), [1]);
    let came = me.tick_at(10_100);
    let failed = came.reports(|r| matches!(r, Report::CatchUpFailed { .. }).then_some(()));
    assert!(failed.is_empty(), "it was asked a moment ago");
}
