//! Links of a [`Net`]: frames wait in a queue for each direction, and arrive when the test says so.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Net, show};
use crate::engine::*;
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::{Digest, PeerMessage};

/// One direction of a connection.
pub(super) struct Pipe {
    to: usize,
    /// The link's name at the receiver.
    link_there: LinkId,
    frames: VecDeque<Arc<[u8]>>,
    losing: bool,
}

/// What an older version makes of a message.
fn forget_times(message: &mut PeerMessage<'_>) {
    match message {
        PeerMessage::Change(change) => change.record.time = None,
        PeerMessage::CatchUpPart { records, .. }
        | PeerMessage::ContentsVersions { records, .. } => {
            records.iter_mut().for_each(|record| record.time = None);
        }
        _ => {}
    }
}

/// Links that come and go, and what waits to be sent.
impl Net {
    pub(crate) fn queue(&mut self, node: usize, link: LinkId, frame: Arc<[u8]>) {
        if let Some(pipe) = self.nodes[node].pipes.get_mut(&link)
            && !pipe.losing
        {
            pipe.frames.push_back(frame);
        }
    }

    pub(crate) fn queue_to_all(&mut self, node: usize, frame: &Arc<[u8]>) {
        for pipe in self.nodes[node].pipes.values_mut().filter(|p| !p.losing) {
            pipe.frames.push_back(Arc::clone(frame));
        }
    }

    /// All of a catch-up's answer, in frames.
    pub(crate) fn serve(&mut self, node: usize, link: LinkId, mut job: ServeJob) {
        let mut is_done = false;
        while !is_done {
            let mut frames = Vec::new();
            is_done = job.next_frames(2000, &mut frames);
            let mut at = 0;
            while let Some(frame) = split_frame(&frames[at..], BODY_BYTES_MAX).unwrap() {
                self.queue(node, link, frames[at..at + frame.length].into());
                at += frame.length;
            }
        }
    }

    fn is_connected(&self, a: usize, b: usize) -> bool {
        self.nodes[a].pipes.values().any(|p| p.to == b)
    }

    pub(crate) fn connect(&mut self, a: usize, b: usize) {
        if a == b || self.is_connected(a, b) {
            return;
        }
        let (at_a, at_b) = (LinkId(self.next_link), LinkId(self.next_link + 1));
        self.next_link += 2;
        let pipe = |to, link_there| Pipe { to, link_there, frames: VecDeque::new(), losing: false };
        self.nodes[a].pipes.insert(at_a, pipe(b, at_b));
        self.nodes[b].pipes.insert(at_b, pipe(a, at_a));
        let (id_a, id_b) = (self.engine(a).id().clone(), self.engine(b).id().clone());
        self.handle(a, Input::LinkUp { link: at_a, peer: id_b });
        self.handle(b, Input::LinkUp { link: at_b, peer: id_a });
    }

    pub(crate) fn connect_all(&mut self) {
        for a in 0..self.nodes.len() {
            for b in 0..a {
                self.connect(a, b);
            }
        }
    }

    pub(crate) fn disconnect(&mut self, a: usize, b: usize) {
        for (x, y) in [(a, b), (b, a)] {
            let links: Vec<LinkId> =
                self.nodes[x].pipes.iter().filter(|(_, p)| p.to == y).map(|(l, _)| *l).collect();
            for link in links {
                self.nodes[x].pipes.remove(&link);
                self.handle(x, Input::LinkDown { link });
            }
        }
    }

    /// Frames from a to b are lost from now on, or no more: an overflowing queue.
    pub(crate) fn lose_queued(&mut self, a: usize, b: usize, losing: bool) {
        for pipe in self.nodes[a].pipes.values_mut().filter(|p| p.to == b) {
            pipe.losing = losing;
        }
    }

    /// Nothing is lost any more.
    pub(crate) fn lose_nothing(&mut self) {
        let pipes = self.nodes.iter_mut().flat_map(|node| node.pipes.values_mut());
        pipes.for_each(|pipe| pipe.losing = false);
    }

    /// The link of one node to another, under its name there.
    pub(crate) fn link_of(&self, a: usize, b: usize) -> LinkId {
        let link = self.nodes[a].pipes.iter().find(|(_, pipe)| pipe.to == b);
        let link = link.map(|(link, _)| *link);
        link.unwrap_or_else(|| panic!("{} and {} are not linked", self.label(a), self.label(b)))
    }

    /// The name that a link of one node to another has at the other one.
    pub(crate) fn link_there(&self, a: usize, b: usize) -> LinkId {
        self.nodes[a].pipes[&self.link_of(a, b)].link_there
    }

    /// What is on its way from a to b is lost where that says so of the line that tells it.
    pub(crate) fn lose_some(
        &mut self,
        a: usize,
        b: usize,
        is_lost: impl Fn(Option<String>) -> bool,
    ) {
        let link = self.link_of(a, b);
        let pipe = self.nodes[a].pipes.get_mut(&link).unwrap();
        pipe.frames.retain(|bytes| {
            let frame = split_frame(bytes, BODY_BYTES_MAX).unwrap().unwrap();
            !is_lost(show::message(&PeerMessage::decode(&frame).unwrap().unwrap()))
        });
    }
}

/// What arrives.
impl Net {
    /// Delivers one frame of a random pipe; tells whether there was one.
    fn deliver_one(&mut self) -> bool {
        let waiting: Vec<(usize, LinkId)> = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(n, node)| node.pipes.iter().map(move |(l, p)| (n, *l, p)))
            .filter(|(_, _, p)| !p.frames.is_empty())
            .map(|(n, l, _)| (n, l))
            .collect();
        if waiting.is_empty() {
            return false;
        }
        let (from, link) = waiting[self.random(waiting.len())];
        self.deliver_of(from, link);
        true
    }

    /// A link over which something is on its way from a node.
    pub(crate) fn waiting_link(&self, node: usize) -> Option<LinkId> {
        let pipes = self.nodes[node].pipes.iter();
        pipes.filter(|(_, pipe)| !pipe.frames.is_empty()).map(|(link, _)| *link).next()
    }

    /// Delivers the next frame of a pipe, if the link stands still and something waits; tells what that
    /// was, and whether the story has a line for it.
    pub(crate) fn deliver_of(&mut self, from: usize, link: LinkId) -> Option<bool> {
        let pipe = self.nodes[from].pipes.get_mut(&link)?;
        let (to, there) = (pipe.to, pipe.link_there);
        let bytes = pipe.frames.pop_front()?;
        Some(self.arrive(from, to, there, &bytes))
    }

    /// A frame arrives; tells whether the story has a line for it.
    pub(crate) fn arrive(&mut self, from: usize, to: usize, there: LinkId, bytes: &[u8]) -> bool {
        let frame = split_frame(bytes, BODY_BYTES_MAX).unwrap().unwrap();
        let mut message = PeerMessage::decode(&frame).unwrap().unwrap();
        if self.timeless.contains(&to) {
            forget_times(&mut message);
        }
        match (&message, &mut self.digests) {
            (PeerMessage::Digest(digest), Some(heard)) => heard.push((from, digest.clone())),
            (PeerMessage::DigestWanted, _) => self.wanted.push(from),
            _ => {}
        }
        let line = self.story.as_ref().and_then(|_| show::message(&message));
        let is_told = line.is_some();
        if let Some(line) = line {
            self.tell(|net| format!("{} -> {}: {line}", net.label(from), net.label(to)));
        }
        self.handle(to, Input::Messages { link: there, messages: vec![message] });
        is_told
    }

    pub(crate) fn deliver_all(&mut self) {
        while self.deliver_one() {}
    }

    pub(crate) fn deliver_some(&mut self, frames: usize) {
        for _ in 0..frames {
            self.deliver_one();
        }
    }

    /// Delivers all that waits now, but the last two frames of each pipe.
    pub(crate) fn deliver_in_turn(&mut self) {
        let pipes = self.nodes.iter().enumerate();
        let waiting: Vec<(usize, LinkId, usize)> = pipes
            .flat_map(|(n, node)| node.pipes.iter().map(move |(l, p)| (n, *l, p.frames.len())))
            .collect();
        for (from, link, frames) in waiting {
            for _ in 2..frames {
                self.deliver_of(from, link);
            }
        }
    }

    /// Notes digests from now on; gives those that arrived since the last call.
    pub(crate) fn listen(&mut self) -> Vec<(usize, Digest)> {
        self.digests.replace(Vec::new()).unwrap_or_default()
    }

    fn random(&mut self, below: usize) -> usize {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        (self.rng >> 11) as usize % below.max(1)
    }
}
