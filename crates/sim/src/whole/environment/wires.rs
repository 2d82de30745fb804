//! Links between hubs: who dials whom, what a link's writer does with its queue, what arrives, and how
//! links end. The queue is the hub's own; what a writer waits for before it writes is what
//! `node/link/writer` waits for.

use std::sync::Arc;

use crate::engine::{Input, LinkId, ServeJob};
use crate::flight::{Flight, frames_of};
use crate::hub::link_queue::{LinkQueue, LinkWork};
use crate::membership::SwimInput;
use crate::model::ids::{Millis, NodeName};
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::PeerMessage;
use crate::whole::{Happening, Whole, note};

/// A node looks this often whom to dial.
const DIAL_INTERVAL_MS: Millis = 200;
/// A node dials one with a smaller name so much later, so that it rather is dialled.
const COURTESY_MS: Millis = 50;
/// About so many bytes of frames are written at once.
const WRITE_BYTES: usize = 2_000;
/// So many frames may be under way over one link, one way; then its writer waits.
const WINDOW: usize = 24;
/// A piece of a catch-up's answer.
const PIECE_BYTES: usize = 600;
/// What cannot get through is tried again after this time.
const AGAIN_MS: Millis = 50;

/// One end of a connection.
pub(in crate::whole) struct End {
    pub(in crate::whole) slot: usize,
    process: u64,
    link: LinkId,
    queue: Arc<LinkQueue>,
    /// Whether the process here believes that the link stands.
    pub(in crate::whole) open: bool,
    /// What was written here and is on its way.
    flight: Flight,
    /// Frames that wait until everything up to this batch is safe.
    held: Option<(u64, Vec<Arc<[u8]>>)>,
    /// The same of a catch-up's answer; and the last one whose snapshot is known to be safe.
    held_serve: Option<(u64, Box<ServeJob>)>,
    safe_serve: Option<u64>,
    pub(in crate::whole) stalled_until: Millis,
}

/// A connection. Side 0 has dialled.
pub(in crate::whole) struct Wire {
    pub(in crate::whole) ends: [End; 2],
    pub(in crate::whole) broken: bool,
}

impl Wire {
    /// The side at which a node sits.
    pub(in crate::whole) fn side_of(&self, slot: usize) -> Option<usize> {
        self.ends.iter().position(|end| end.slot == slot)
    }
}

impl Whole<'_> {
    fn delay(&mut self) -> Millis {
        if self.is_healing() {
            return 1;
        }
        let (least, most) = self.plan.delay_ms;
        self.rng.within(least, most)
    }

    /// Whom a node should be linked with and is not.
    pub(in crate::whole) fn on_dial(&mut self, slot: usize, number: u64) {
        let addresses: Vec<_> = self.slots.iter().map(|slot| slot.addr).collect();
        let own = self.slots[slot].name.clone();
        let Some(process) = self.slots[slot].running(number) else { return };
        let names = process.hub.read(|engine| engine.wanted_links().cloned());
        let is_wanted = |name: &NodeName| names.as_ref().is_none_or(|names| names.contains(name));
        let up = process.up.iter().filter(|(_, name)| is_wanted(name));
        let place = |addr| addresses.iter().position(|other| other == addr);
        let mut wanted: Vec<usize> = up.filter_map(|(addr, _)| place(addr)).collect();
        if process.links.is_empty() {
            // Those that it was told of, and those that it knew.
            wanted.extend(0..addresses.len());
        }
        let linked = &process.links;
        wanted.retain(|to| *to != slot && !linked.contains_key(to));
        wanted.sort_unstable();
        wanted.dedup();
        if !process.frozen {
            for to in wanted {
                let Some(process) = self.slots[slot].running(number) else { return };
                if !process.dialling.insert(to) {
                    continue;
                }
                let courtesy = if own > self.slots[to].name { COURTESY_MS } else { 0 };
                let at = self.now() + courtesy + self.delay() + self.delay();
                self.schedule.plan(at, Happening::Connect { from: slot, to, process: number });
            }
        }
        let at = self.now() + DIAL_INTERVAL_MS;
        self.schedule.plan(at, Happening::Dial { slot, process: number });
    }

    /// The greetings are exchanged: a link stands, or one of the two is refused.
    pub(in crate::whole) fn on_connect(&mut self, from: usize, to: usize, number: u64) {
        let Some(process) = self.slots[from].running(number) else { return };
        process.dialling.remove(&to);
        if !self.slots[from].is_awake() || !self.slots[to].is_awake() || self.cuts.is_cut(from, to)
        {
            return;
        }
        if self.slots[from].name == self.slots[to].name {
            return self.stop_younger(from, to);
        }
        for (a, b) in [(from, to), (to, from)] {
            let standing = self.slots[a].process.as_ref().and_then(|p| p.links.get(&b)).copied();
            if let Some(wire) = standing {
                if !self.wires[wire].broken {
                    return;
                }
                // The other side has lost it, and says so by dialling.
                if let Some(side) = self.wires[wire].side_of(a) {
                    self.close(wire, side, "is replaced");
                }
            }
        }
        // One live node per name.
        let has_namesake = |a: usize, b: usize| {
            let links = self.slots[a].process.as_ref().map(|p| &p.links);
            let same = |other: &usize| self.slots[*other].name == self.slots[b].name;
            links.is_some_and(|links| links.keys().any(same))
        };
        if has_namesake(from, to) || has_namesake(to, from) {
            return;
        }
        self.connect(from, to);
    }

    fn connect(&mut self, from: usize, to: usize) {
        let (bytes, defects, wire) = (self.plan.link_bytes, self.options.defects, self.wires.len());
        let mut end = |slot: usize, other: usize| {
            let process = self.slots[slot].process.as_mut().expect("it is awake");
            let (link, queue) = process.hub.add_bounded_link(bytes, defects);
            process.links.insert(other, wire);
            End {
                slot,
                process: process.number,
                link,
                queue,
                open: true,
                flight: Flight::default(),
                held: None,
                held_serve: None,
                safe_serve: None,
                stalled_until: 0,
            }
        };
        let ends = [end(from, to), end(to, from)];
        let ids = [to, from].map(|slot| {
            let process = self.slots[slot].process.as_ref().expect("it is awake");
            process.hub.read(|engine| engine.id().clone())
        });
        let links = [(from, ends[0].link), (to, ends[1].link)];
        self.wires.push(Wire { ends, broken: false });
        self.changed_at = self.now();
        note!(self, "{} and {} are linked", self.slots[from].label, self.slots[to].label);
        for ((slot, link), peer) in links.into_iter().zip(ids) {
            // A greeting tells membership where its sender is.
            let addr = self.slots[if slot == from { to } else { from }].addr;
            let name = Some(peer.name.clone());
            self.give_swim(slot, SwimInput::KnownPeer { name, addr });
            self.handle(slot, Input::LinkUp { link, peer });
        }
    }

    /// What a link's writer does until it has to wait.
    pub(in crate::whole) fn write_out(&mut self, wire: usize, side: usize) {
        loop {
            let now = self.now();
            let end = &mut self.wires[wire].ends[side];
            let (slot, number) = (end.slot, end.process);
            if !end.open || end.flight.len() >= WINDOW {
                return;
            }
            if now < end.stalled_until {
                let until = end.stalled_until;
                return self.schedule.plan(until, Happening::Look { wire, side });
            }
            let Some(process) = self.slots[slot].running(number) else { return };
            if process.frozen {
                return;
            }
            if let Some((number, frames)) = end.held.take() {
                if !process.is_safe(number) {
                    end.held = Some((number, frames));
                    return;
                }
                frames.into_iter().for_each(|frame| self.send(wire, side, frame));
                continue;
            }
            if let Some((number, job)) = end.held_serve.take() {
                if !process.is_safe(number) {
                    end.held_serve = Some((number, job));
                    return;
                }
                end.safe_serve = Some(job.id());
                self.serve(wire, side, job);
                continue;
            }
            let link = end.link;
            match end.queue.next(WRITE_BYTES) {
                LinkWork::Frames(frames) => end.held = Some((process.gate(), frames)),
                LinkWork::Lagged => {
                    self.stats.overflows += 1;
                    self.handle(slot, Input::Lagged { link });
                }
                LinkWork::Serve(job) if end.safe_serve == Some(job.id()) => {
                    self.serve(wire, side, job);
                }
                LinkWork::Serve(job) => end.held_serve = Some((process.gate(), job)),
                LinkWork::Close(_) => return self.close(wire, side, "is closed"),
                LinkWork::Wait => return,
            }
        }
    }

    /// The next piece of a catch-up's answer.
    fn serve(&mut self, wire: usize, side: usize, mut job: Box<ServeJob>) {
        let mut out = Vec::new();
        let is_done = job.next_frames(PIECE_BYTES, &mut out);
        let end = &self.wires[wire].ends[side];
        if !is_done {
            // A newer one has taken its place otherwise: then nobody wants this one.
            let _ = end.queue.put_back(job);
        }
        self.send(wire, side, out.into());
    }

    fn send(&mut self, wire: usize, side: usize, frames: Arc<[u8]>) {
        if self.wires[wire].broken {
            return;
        }
        let arrives = self.now() + self.delay();
        let flight = &mut self.wires[wire].ends[side].flight;
        frames_of(&frames).for_each(|frame| flight.send(arrives, frame.into()));
        self.plan_arrival(wire, side);
    }

    fn plan_arrival(&mut self, wire: usize, side: usize) {
        if let Some(at) = self.wires[wire].ends[side].flight.plan() {
            self.schedule.plan(at, Happening::Arrive { wire, side });
        }
    }

    /// What `side` has written arrives at the other one.
    pub(in crate::whole) fn on_arrive(&mut self, wire: usize, side: usize) {
        let now = self.now();
        let [from, to] = [side, 1 - side].map(|side| self.wires[wire].ends[side].slot);
        let end = &self.wires[wire].ends[1 - side];
        let (is_open, link, number) = (end.open, end.link, end.process);
        let waits = self.cuts.is_cut(from, to)
            || (is_open && self.slots[to].running(number).is_some_and(|p| p.frozen));
        if waits {
            return self.schedule.plan(now + AGAIN_MS, Happening::Arrive { wire, side });
        }
        self.wires[wire].ends[side].flight.is_due();
        while let Some(frame) = self.wires[wire].ends[side].flight.take(now) {
            if !is_open || self.slots[to].running(number).is_none() {
                continue;
            }
            let split = split_frame(&frame, BODY_BYTES_MAX).ok().flatten();
            let Some(Ok(Some(message))) = split.as_ref().map(PeerMessage::decode) else {
                return self.judge.fail("a node sent what cannot be read", format!("{frame:?}"));
            };
            if self.script.is_some() {
                let (from, to) = (&self.slots[from].label, &self.slots[to].label);
                let text =
                    format!("{from} → {to} {}", crate::reporting::describe::describe(&message));
                self.note(&text);
            }
            self.stats.delivered += 1;
            self.handle(to, Input::Messages { link, messages: vec![message] });
        }
        self.plan_arrival(wire, side);
        self.touch(from);
    }

    /// A connection breaks: each direction loses what is under way from some point on, and each
    /// side that is open notices in its own time.
    pub(in crate::whole) fn break_wire(&mut self, wire: usize) {
        if std::mem::replace(&mut self.wires[wire].broken, true) {
            return;
        }
        for side in [0, 1] {
            let end = &mut self.wires[wire].ends[side];
            let arrives = self.rng.below(end.flight.len() + 1);
            end.flight.cut(arrives);
            let pause = self.rng.pick(&[0, 1, 20, 500]);
            let at = self.schedule.now() + pause;
            self.schedule.plan(at, Happening::Notice { wire, side });
        }
    }

    /// A side that hears nothing, because it is cut off or the connection is broken, closes its end.
    pub(in crate::whole) fn on_notice(&mut self, wire: usize, side: usize) {
        let [a, b] = [0, 1].map(|side| self.wires[wire].ends[side].slot);
        let number = self.wires[wire].ends[side].process;
        let slot = self.wires[wire].ends[side].slot;
        let is_cut = self.cuts.is_cut(a, b);
        let is_frozen = self.slots[slot].running(number).is_some_and(|p| p.frozen);
        if !self.wires[wire].ends[side].open || (!is_cut && !self.wires[wire].broken) {
            return;
        }
        if is_frozen {
            let at = self.now() + AGAIN_MS;
            return self.schedule.plan(at, Happening::Notice { wire, side });
        }
        self.close(wire, side, if is_cut { "is silent" } else { "is broken" });
    }

    /// A process closes its end: what waits there is lost, and the other side notices.
    pub(in crate::whole) fn close(&mut self, wire: usize, side: usize, why: &str) {
        let [end, other] = [side, 1 - side].map(|side| self.wires[wire].ends[side].slot);
        let state = &mut self.wires[wire].ends[side];
        if !std::mem::take(&mut state.open) {
            return;
        }
        (state.held, state.held_serve) = (None, None);
        let (link, number) = (state.link, state.process);
        note!(self, "the link {} → {} {why}", self.slots[end].label, self.slots[other].label);
        if let Some(process) = self.slots[end].running(number) {
            if process.links.get(&other) == Some(&wire) {
                process.links.remove(&other);
            }
            process.hub.remove_link(link);
            self.handle(end, Input::LinkDown { link });
        }
        self.break_wire(wire);
    }

    /// A process is gone: its ends are.
    pub(in crate::whole) fn drop_ends(&mut self, slot: usize) {
        for wire in 0..self.wires.len() {
            let Some(side) = self.wires[wire].side_of(slot) else { continue };
            let end = &mut self.wires[wire].ends[side];
            if std::mem::take(&mut end.open) {
                (end.held, end.held_serve) = (None, None);
                self.break_wire(wire);
            }
        }
    }

    /// Those two hear nothing of each other from now on; their links fall silent.
    pub(in crate::whole) fn cut_off(&mut self, a: usize, b: usize) {
        if !self.cuts.cut_both(a, b) {
            return;
        }
        let at = self.now() + self.plan.silence_ms;
        for wire in 0..self.wires.len() {
            let ends = &self.wires[wire].ends;
            if ends.iter().any(|end| end.slot == a) && ends.iter().any(|end| end.slot == b) {
                for side in [0, 1] {
                    self.schedule.plan(at + side as u64, Happening::Notice { wire, side });
                }
            }
        }
    }
}
