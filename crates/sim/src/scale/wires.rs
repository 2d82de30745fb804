//! Links of a big network: which node dials which, the data under way, how links end.

use std::sync::Arc;

use super::figures::Class;
use super::{Happening, Micros, Scale};
use crate::engine::{Input, LinkId, ServeJob};
use crate::flight::{Flight, frames_of};
use crate::model::ids::NodeId;
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::PeerMessage;

/// As `node/link` has it: most links of a node.
const LINKS_MAX: usize = 256;
/// A node looks this often whom to dial.
const DIAL_INTERVAL_US: Micros = 200_000;
/// The one with the greater number waits this much longer.
const COURTESY_US: Micros = 300_000;
/// A piece of a catch-up's answer.
const PIECE_BYTES: usize = 64 << 10;

/// A connection of two nodes.
pub(super) struct Wire {
    pub(super) nodes: [usize; 2],
    /// Per direction: the data under way.
    flight: [Flight; 2],
    /// Whether each end believes that it stands.
    open: [bool; 2],
    broken: bool,
}

/// Frames that are lost.
#[derive(Clone, Copy)]
pub(super) struct Dropping {
    pub(super) permille: u32,
}

/// A link's name at either end gives the wire and the side.
fn link_id(wire: usize, side: usize) -> LinkId {
    LinkId((wire * 2 + side) as u64)
}

impl Scale {
    fn hop(&mut self) -> Micros {
        self.rng.within(self.options.hop_us.0, self.options.hop_us.1)
    }

    /// Whom a node should be linked with and is not: what `node/link/targets` decides.
    pub(super) fn on_dial(&mut self, at: usize) {
        let node = &self.nodes[at];
        let Some(engine) = &node.engine else { return };
        let mut wanted: Vec<usize> = match engine.wanted_links() {
            Some(names) => names
                .iter()
                .filter(|name| node.up.contains(*name))
                .filter_map(|name| self.by_name.get(name).copied())
                .collect(),
            None => node.up.iter().filter_map(|name| self.by_name.get(name).copied()).collect(),
        };
        if !engine.is_ready() && node.links.is_empty() {
            wanted.push(0);
        }
        wanted
            .retain(|to| *to != at && !node.links.contains_key(to) && !node.dialling.contains(to));
        let now = self.now();
        for to in wanted {
            let courtesy = if at > to && self.nodes[at].links.len() > 1 { COURTESY_US } else { 0 };
            // A connection and the greetings take three ways.
            let takes = self.hop() + self.hop() + self.hop();
            self.nodes[at].dialling.insert(to);
            self.schedule.plan(now + courtesy + takes, Happening::Connect { from: at, to });
        }
        let next = now + DIAL_INTERVAL_US;
        self.schedule.plan(next, Happening::Dial(at));
    }

    pub(super) fn on_connect(&mut self, from: usize, to: usize) {
        self.nodes[from].dialling.remove(&to);
        let has_room = |at: usize| self.nodes[at].links.len() < LINKS_MAX;
        let is_linked = |a: usize, b: usize| self.nodes[a].links.contains_key(&b);
        if self.is_cut(from, to)
            || is_linked(from, to)
            || is_linked(to, from)
            || !has_room(from)
            || !has_room(to)
        {
            return;
        }
        let id = |at: usize| self.nodes[at].engine.as_ref().map(|engine| engine.id().clone());
        let (Some(a), Some(b)) = (id(from), id(to)) else { return };
        let wire = self.wires.len();
        self.wires.push(Wire {
            nodes: [from, to],
            flight: Default::default(),
            open: [true; 2],
            broken: false,
        });
        self.nodes[from].links.insert(to, wire);
        self.nodes[to].links.insert(from, wire);
        for (at, side, peer) in [(from, 0, b), (to, 1, a)] {
            self.link_up(at, wire, side, peer);
        }
    }

    fn link_up(&mut self, at: usize, wire: usize, side: usize, peer: NodeId) {
        self.handle(at, Input::LinkUp { link: link_id(wire, side), peer });
    }

    pub(super) fn send_on(&mut self, at: usize, link: LinkId, frame: Arc<[u8]>) {
        self.send_frame(at, link.0 as usize / 2, frame);
    }

    pub(super) fn send_frame(&mut self, at: usize, wire: usize, frame: Arc<[u8]>) {
        let hop = self.hop();
        let now = self.now();
        let state = &mut self.wires[wire];
        let side = usize::from(state.nodes[0] != at);
        if !state.open[side] {
            return;
        }
        state.flight[side].send(now + hop, frame);
        let arrives = state.flight[side].last_arrival();
        self.schedule.plan(arrives, Happening::Arrive { wire, side });
    }

    pub(super) fn serve(&mut self, at: usize, link: LinkId, mut job: ServeJob) {
        loop {
            let mut out = Vec::new();
            let done = job.next_frames(PIECE_BYTES, &mut out);
            frames_of(&out).for_each(|frame| self.send_on(at, link, frame.into()));
            if done {
                return;
            }
        }
    }

    pub(super) fn on_arrive(&mut self, wire: usize, side: usize) {
        let now = self.now();
        let state = &mut self.wires[wire];
        let Some(frame) = state.flight[side].take(now) else { return };
        let [from, to] = [state.nodes[side], state.nodes[1 - side]];
        if !state.open[1 - side] || (state.broken && self.is_cut(from, to)) {
            return;
        }
        let split = split_frame(&frame, BODY_BYTES_MAX).ok().flatten().expect("a whole frame");
        let message = PeerMessage::decode(&split).expect("it is understood").expect("it is known");
        let class = Class::of(&message);
        self.nodes[from].sent.note(class, frame.len());
        if let Some(Dropping { permille }) = self.dropping
            && class != Class::Edge
            && self.rng.below(1_000) < permille as usize
        {
            return;
        }
        let is_of_trees = matches!(message, PeerMessage::Edge(_) | PeerMessage::Relayed(_));
        if is_of_trees && (self.nodes[from].is_old || self.nodes[to].is_old) {
            return;
        }
        let messages = vec![message];
        self.handle(to, Input::Messages { link: link_id(wire, 1 - side), messages });
    }

    /// A wire stops working; both ends notice at that time.
    pub(super) fn break_wire(&mut self, wire: usize, notices: Micros) {
        let state = &mut self.wires[wire];
        if std::mem::replace(&mut state.broken, true) {
            return;
        }
        for side in [0, 1] {
            self.schedule.plan(notices, Happening::Notice { wire, side });
        }
    }

    pub(super) fn on_notice(&mut self, wire: usize, side: usize) {
        let state = &mut self.wires[wire];
        if !std::mem::take(&mut state.open[side]) {
            return;
        }
        let [at, peer] = [state.nodes[side], state.nodes[1 - side]];
        if self.nodes[at].links.get(&peer) == Some(&wire) {
            self.nodes[at].links.remove(&peer);
        }
        self.handle(at, Input::LinkDown { link: link_id(wire, side) });
    }

    /// A node closes its end; the other one notices when the data under way has arrived.
    pub(super) fn close(&mut self, at: usize, link: LinkId) {
        let wire = link.0 as usize / 2;
        let hop = self.hop();
        let now = self.now();
        let state = &mut self.wires[wire];
        let side = usize::from(state.nodes[0] != at);
        let arrived = (now + hop).max(state.flight[side].last_arrival());
        self.schedule.plan(now, Happening::Notice { wire, side });
        self.schedule.plan(arrived, Happening::Notice { wire, side: 1 - side });
        self.wires[wire].broken = true;
    }
}
