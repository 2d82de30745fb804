//! Links in motion: which node dials which, what is written and when, what arrives, and how links
//! end. Does what a node's link tasks do, with the queue that they use.

use super::cluster::{Cluster, Happening, note};
use super::network::Network;
use super::steps::Echo;
use crate::engine::{Input, LinkId, ServeJob};
use crate::flight::frames_of;
use crate::hub::link_queue::LinkWork;
use crate::model::defects::Defect;
use crate::model::ids::{Millis, NodeTable};
use crate::oracle::step::Arrival;
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::{PeerMessage, RefuseReason};
use std::sync::Arc;

/// Most pushes that are kept to come again.
const ECHOES_MAX: usize = 16;
/// No queue grows beyond this: the messages after an overflow are far shorter in networks as small
/// as those whose queues are smaller.
const WIDENED_BYTES_MAX: usize = 1 << 17;

impl Cluster<'_> {
    /// Queues a frame at an end.
    pub(super) fn queue_frame(&mut self, end: u32, frame: Arc<[u8]>) {
        let Some(queue) = &self.network.end(end).queue else { return };
        let dropped = queue.dropped();
        let length = frame.len();
        let _ = queue.push(frame);
        if queue.dropped() > dropped {
            self.stats.overflows += 1;
            if !queue.is_lagging() {
                let label = self.link_label(end);
                self.oracle.fail("frames were dropped and the peer will not be told", label);
                return;
            }
        }
        if queue.bytes() > queue.bytes_max().max(length + 64) {
            let detail = format!("{} bytes from {}", queue.bytes(), self.link_label(end));
            self.oracle.fail("a queue is above its bound", detail);
        }
        self.to_look.push_back(end);
    }

    /// A catch-up must be answered at an end.
    pub(crate) fn serve(&mut self, end: u32, job: Box<ServeJob>) {
        if let Some(queue) = &self.network.end(end).queue {
            let _ = queue.serve(job);
            self.to_look.push_back(end);
        }
    }

    /// Lets all writers write that may have something to write.
    pub(crate) fn write_out(&mut self) {
        while let Some(end) = self.to_look.pop_front() {
            self.look(end);
        }
    }

    /// What a link's writer does: live frames first, and below them a catch-up.
    fn look(&mut self, end: u32) {
        let window = if self.is_healing() { usize::MAX } else { self.plan.window };
        let bytes = if window == 1 { 1 } else { 1 << 16 };
        loop {
            let now = self.now();
            let at = self.network.end(end);
            let Some(queue) = &at.queue else { return };
            if at.broken || at.flight.len() >= window || !self.nodes[at.node].is_awake() {
                return;
            }
            if now < at.stalled_until {
                let until = at.stalled_until;
                return self.look_again(end, until);
            }
            match queue.next(bytes) {
                LinkWork::Frames(frames) => {
                    for frame in frames {
                        self.put_under_way(end, frame);
                    }
                }
                LinkWork::Lagged => {
                    let node = at.node;
                    note!(self, "{} had dropped frames", self.link_label(end));
                    self.handle(node, Input::Lagged { link: LinkId(u64::from(end)) });
                    self.widen(end);
                }
                LinkWork::Serve(job) => {
                    if now < at.serve_due {
                        let until = at.serve_due;
                        let _ = queue.put_back(job);
                        return self.look_again(end, until);
                    }
                    self.serve_piece(end, job);
                }
                LinkWork::Close(_) => return self.close_end(end, "is closed on purpose"),
                LinkWork::Wait => return,
            }
        }
    }

    /// The messages after an overflow must fit the queue, as in a real node
    /// ([`crate::hub::link_queue::LINK_QUEUE_BYTES_MAX`]): otherwise it would overflow again at
    /// once, for ever. Their length depends on what happened, so a queue that was drawn too small
    /// grows.
    fn widen(&mut self, end: u32) {
        let Some(queue) = &mut self.network.end_mut(end).queue else { return };
        if !queue.is_lagging() {
            return;
        }
        let bytes_max = queue.bytes_max() * 2;
        queue.set_bytes_max(bytes_max);
        if bytes_max > WIDENED_BYTES_MAX {
            let label = self.link_label(end);
            self.oracle.fail("what is said after an overflow has no end", label);
        }
    }

    fn look_again(&mut self, end: u32, at: Millis) {
        let state = self.network.end_mut(end);
        if !state.look_planned {
            state.look_planned = true;
            self.schedule.plan(at, Happening::Look(end));
        }
    }

    /// Puts a frame on its way.
    fn put_under_way(&mut self, end: u32, frame: Arc<[u8]>) {
        let now = self.now();
        let delay = if self.is_healing() {
            1
        } else {
            let (least, most) = self.network.end(end).delay_ms;
            self.rng.within(least, most)
        };
        self.network.end_mut(end).flight.send(now + delay, frame);
        self.plan_arrival(end);
    }

    /// Plans the arrival of the next frame, if it can arrive.
    pub(crate) fn plan_arrival(&mut self, end: u32) {
        let peer = self.network.peer(end);
        let is_cut = self.network.cuts.is_cut(self.network.end(end).node, peer);
        if is_cut || self.network.end(Network::other(end)).open && !self.nodes[peer].is_awake() {
            return;
        }
        if let Some(at) = self.network.end_mut(end).flight.plan() {
            self.schedule.plan(at, Happening::Arrive(end));
        }
    }

    /// The next piece of a catch-up's answer.
    fn serve_piece(&mut self, end: u32, mut job: Box<ServeJob>) {
        let node = self.network.end(end).node;
        let mut out = Vec::new();
        if !self.network.end(end).serving {
            if self.nodes[node].serving >= self.plan.serves_max && !self.is_healing() {
                let refused =
                    PeerMessage::CatchUpRefused { id: job.id(), reason: RefuseReason::Busy };
                refused.encode(&NodeTable::new(), &mut out);
                return self.put_under_way(end, out.into());
            }
            self.network.end_mut(end).serving = true;
            self.nodes[node].serving += 1;
        }
        let done = job.next_frames(self.plan.piece_bytes, &mut out);
        frames_of(&out).for_each(|frame| self.put_under_way(end, frame.into()));
        if done {
            return self.release_serve(end);
        }
        if let Some(queue) = &self.network.end(end).queue {
            let _ = queue.put_back(job);
        }
        let due = self.now() + if self.is_healing() { 0 } else { self.plan.piece_ms };
        self.network.end_mut(end).serve_due = due;
        self.to_look.push_back(end);
    }

    fn release_serve(&mut self, end: u32) {
        let state = self.network.end_mut(end);
        if std::mem::take(&mut state.serving) {
            let node = state.node;
            self.nodes[node].serving -= 1;
        }
    }

    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.options.defects.has(defect)
    }

    /// A frame arrives: what an end that has closed was sent is dropped.
    pub(crate) fn on_arrive(&mut self, end: u32) {
        self.network.end_mut(end).flight.is_due();
        let (from, to) = (self.network.end(end).node, self.network.peer(end));
        let there = Network::other(end);
        let is_open = self.network.end(there).open;
        if self.network.cuts.is_cut(from, to) || (is_open && !self.nodes[to].is_awake()) {
            return;
        }
        let now = self.now();
        let Some(frame) = self.network.end_mut(end).flight.take(now) else { return };
        if is_open {
            self.deliver(from, to, there, &frame);
        } else {
            self.stats.dropped += 1;
        }
        self.plan_arrival(end);
        self.to_look.push_back(end);
    }

    /// Gives a node a frame that came for one of its ends.
    pub(super) fn deliver(&mut self, from: usize, to: usize, there: u32, frame: &Arc<[u8]>) {
        self.stats.delivered += 1;
        let changed_at = self.changed_at;
        self.network.end_mut(there).talk.note(changed_at);
        let message =
            match split_frame(frame, BODY_BYTES_MAX).map(|f| f.map(|f| PeerMessage::decode(&f))) {
                Ok(Some(Ok(Some(message)))) => message,
                other => {
                    let detail = format!("{:?}", other.map(|m| m.map(|m| m.map(|_| ()))));
                    return self.oracle.fail("a node sent what cannot be read", detail);
                }
            };
        if matches!(message, PeerMessage::Change(_) | PeerMessage::Announce(_))
            && self.echoes.len() < ECHOES_MAX
            && !self.is_healing()
            && self.rng.percent(self.plan.echo_percent)
        {
            self.echoes.push(Echo { from, to, frame: Arc::clone(frame) });
        }
        let arrivals: Vec<Arrival<'_>> = match &message {
            PeerMessage::Change(change) => Arrival::new(&change.record).into_iter().collect(),
            PeerMessage::CatchUpPart { records, .. } => {
                records.iter().filter_map(Arrival::new).collect()
            }
            _ => Vec::new(),
        };
        let (now, nodes) = (self.now(), &self.nodes);
        let describe = || {
            let (from, to) = (&nodes[from].label, &nodes[to].label);
            format!("{from} → {to} {}", crate::reporting::describe::describe(&message))
        };
        let endless = self.moment.note(now, nodes.len(), describe);
        self.stats.moment_messages_max = self.stats.moment_messages_max.max(self.moment.messages());
        if self.script.is_some() {
            let text = describe();
            self.note(&text);
        }
        if let Some(detail) = endless {
            return self.oracle.fail("a moment has no end", detail);
        }
        let mut out = self.outboxes.pop().unwrap_or_default();
        let at = &mut self.nodes[to];
        if let Some(engine) = &mut at.engine {
            let link = LinkId(u64::from(there));
            engine.handle(Input::Messages { link, messages: vec![message] }, now, &mut out);
            self.oracle.sync_table(&mut at.shadow, engine);
            self.oracle.on_arrivals(&mut at.shadow, engine, &arrivals);
            if !out.is_empty() {
                self.perform(to, &mut out);
            }
            self.oracle.after_message();
            self.check(to);
        }
        self.outboxes.push(out);
    }

    /// Plans that two nodes try to link, soon.
    pub(super) fn dial_later(&mut self, a: usize, b: usize) {
        let pause = if self.is_healing() { 20 } else { self.plan.redial_ms };
        let at = self.now() + self.rng.within(pause / 2, pause);
        self.schedule.plan(at, Happening::Dial(a, b));
    }

    /// Plans links of a node with all nodes that it has no link with.
    pub(super) fn dial_all(&mut self, node: usize) {
        for other in 0..self.nodes.len() {
            if other != node && !self.nodes[other].gone {
                self.dial_later(node, other);
            }
        }
    }

    /// The end at a node of a link that it believes to stand with another.
    fn standing(&self, node: usize, peer: usize) -> Option<u32> {
        self.nodes[node].ends.iter().copied().find(|end| self.network.peer(*end) == peer)
    }

    /// One of two nodes dials the other. A node that cannot be reached is dialled again when that
    /// changes.
    pub(crate) fn on_dial(&mut self, a: usize, b: usize) {
        let can = |at: &super::node::Node| at.is_awake() && !at.gone;
        if !can(&self.nodes[a])
            || !can(&self.nodes[b])
            || self.network.is_cut(a, b)
            || self.nodes[a].name == self.nodes[b].name
            || !self.is_wanted(a, b)
        {
            return;
        }
        let (at_a, at_b) = (self.standing(a, b), self.standing(b, a));
        if let (Some(x), Some(y)) = (at_a, at_b)
            && x == Network::other(y)
        {
            return;
        }
        // One side has not noticed yet that the old link is gone. It may say so, or notice now.
        if (at_a.is_some() || at_b.is_some()) && self.rng.percent(30) {
            return self.dial_later(a, b);
        }
        for end in [at_a, at_b].into_iter().flatten() {
            self.close_end(end, "is replaced");
        }
        // One live node per name: another one of that name is refused.
        let has_twin_of = |x: usize, y: usize| {
            self.nodes[y].twin.is_some_and(|twin| self.standing(x, twin).is_some())
        };
        if has_twin_of(a, b) || has_twin_of(b, a) {
            return;
        }
        let (least, most) = self.plan.delay_ms;
        let (queue_bytes, defects) = (self.plan.queue_bytes, self.options.defects);
        let rng = &mut self.rng;
        let first = self.network.connect((a, b), queue_bytes, defects, || {
            let low = rng.within(least, most);
            (low, rng.within(low, most))
        });
        self.nodes[a].ends.push(first);
        self.nodes[b].ends.push(Network::other(first));
        self.changed_at = self.now();
        note!(self, "{} and {} are linked", self.nodes[a].label, self.nodes[b].label);
        let mut order = [(a, b, first), (b, a, Network::other(first))];
        if self.rng.percent(50) {
            order.reverse();
        }
        for (node, peer, end) in order {
            let Some(peer) = self.nodes[peer].engine.as_ref().map(|e| e.id().clone()) else {
                continue;
            };
            self.handle(node, Input::LinkUp { link: LinkId(u64::from(end)), peer });
        }
    }

    /// A node closes its end of a link: what waits there is lost, and the other one will notice.
    pub(super) fn close_end(&mut self, end: u32, why: &str) {
        if !self.network.end(end).open {
            return;
        }
        note!(self, "{} {why}", self.link_label(end));
        let node = self.drop_end(end);
        self.handle(node, Input::LinkDown { link: LinkId(u64::from(end)) });
        let peer = self.network.peer(end);
        self.dial_later(node, peer);
        if let Some(twin) = self.nodes[peer].twin {
            self.dial_later(node, twin);
        }
    }

    /// An end is gone, with its queue; its node is not told.
    pub(super) fn drop_end(&mut self, end: u32) -> usize {
        self.release_serve(end);
        let state = self.network.end_mut(end);
        let node = state.node;
        state.open = false;
        state.queue = None;
        self.nodes[node].ends.retain(|e| *e != end);
        self.break_link(end);
        node
    }

    /// A connection breaks: each direction loses the data under way from some point on, and each
    /// open end notices in its own time.
    pub(super) fn break_link(&mut self, end: u32) {
        for side in [end, Network::other(end)] {
            let arrives = self.rng.below(self.network.end(side).flight.len() + 1);
            let notices = self.now() + self.rng.pick(&[0, 1, 20, 500]);
            let state = self.network.end_mut(side);
            if state.broken {
                continue;
            }
            state.broken = true;
            state.flight.cut(arrives);
            if state.open {
                self.schedule.plan(notices, Happening::Notice(side));
            }
        }
    }

    /// An end notices that its connection is broken, unless the news cannot get through.
    pub(crate) fn on_notice(&mut self, end: u32) {
        let state = self.network.end(end);
        if !state.open {
            return;
        }
        if self.network.cuts.is_cut(self.network.peer(end), state.node) {
            let at = self.now() + self.plan.silence_ms;
            self.schedule.plan(at, Happening::Silence(end));
        } else if self.nodes[state.node].frozen {
            let at = self.now() + 100;
            self.schedule.plan(at, Happening::Notice(end));
        } else {
            self.close_end(end, "is broken");
        }
    }

    /// Nothing came for too long, if still nothing gets through.
    pub(super) fn on_silence(&mut self, end: u32) {
        let state = self.network.end(end);
        let is_cut = self.network.is_cut(state.node, self.network.peer(end));
        if state.open && (is_cut || state.broken) {
            if self.nodes[state.node].frozen {
                let at = self.now() + 100;
                self.schedule.plan(at, Happening::Silence(end));
            } else {
                self.close_end(end, "is silent");
            }
        }
    }

    /// For people: from whom to whom.
    pub(super) fn link_label(&self, end: u32) -> String {
        let (node, peer) = (self.network.end(end).node, self.network.peer(end));
        format!("the link {} → {}", self.nodes[node].label, self.nodes[peer].label)
    }
}
