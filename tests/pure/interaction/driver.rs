//! The commands of the scripts.
//!
//! | command | what it does |
//! |---|---|
//! | `nodes a b [durable] [purging] [patient]` | makes nodes that serve; `durable` ones have data directories; without `purging` no Delete group is founded; `patient` ones wait for a minute for who was here and is not on the list |
//! | `link a b`, `cut a b` | a link stands; it is gone, with all that was on its way |
//! | `mesh`, `split a b / c` | every node is linked to every other; links between sides are cut |
//! | `housekeepers a` | who they are, as a sees it |
//! | `set a PATH N [at MS]`, `delete a PATH` | a client's change; N is 0 to 127; MS is the time that a tells |
//! | `timeless a` | a knows nothing of times from now on: it ignores those that come, as an older version does |
//! | `deliver a b [N]` | the next N messages from a to b arrive (all, if N is not given) |
//! | `lose a b [WORD]` | all that is on its way from a to b is lost (all messages printed as WORD …) |
//! | `hold a`, `go a` | a's queue is kept back or not, when `run` delivers |
//! | `disk a slow`, `disk a` | what a persists is not safe yet; it is, in order |
//! | `run MS` | so much time passes; everything that is sent arrives |
//! | `show a …` | tree, seen, mark and tock |
//! | `save a FILE`, `load a FILE` | a's state is kept aside; taken into a running node |
//! | `crash a`, `restart a [FILE] [kept]` | gone without a word; back: empty, or from a file, with a new incarnation unless `kept` |
//! | `clone z FILE` | a second node with the name and incarnation of the file's |
//! | `forget a NAME` | at a, NAME is taken off the Delete group's list by force |
//! | `group a` | the Delete group as a sees it |
//!
//! Messages that only say how far one is (digests, acknowledgements) arrive, but are not printed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use distkv::engine::NO_LATER;
use distkv::engine::batch::write_one;
use distkv::engine::changes::{BeginRetirement, CancelRetirement, ForgetMember, LoadImage};
use distkv::engine::delete::{DeleteSettings, Retirement};
use distkv::engine::{
    Config, Engine, Image, Input, LinkId, Outbox, Output, Report, TICK_INTERVAL_MS,
};
use distkv::model::change_time::ChangeTime;
use distkv::model::ids::{Incarnation, Millis, NodeId, NodeName};
use distkv::model::path::Path;
use distkv::protocol::frame::{BODY_BYTES_MAX, split_frame};
use distkv::protocol::peer::PeerMessage;
use distkv::replica::write::Write;

use super::show;

fn names(list: &[NodeName]) -> String {
    // Who is whose turn it is does not matter here.
    let mut names: Vec<&str> = list.iter().map(NodeName::as_str).collect();
    names.sort_unstable();
    names.join("+")
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

struct Pipe {
    to: String,
    link_there: LinkId,
    frames: VecDeque<Arc<[u8]>>,
}

struct Node {
    engine: Engine,
    pipes: BTreeMap<LinkId, Pipe>,
}

/// The nodes of one script.
#[derive(Default)]
pub(crate) struct Cluster {
    nodes: BTreeMap<String, Node>,
    settings: BTreeMap<String, DeleteSettings>,
    files: BTreeMap<String, Image>,
    held: BTreeSet<String>,
    timeless: BTreeSet<String>,
    /// What waits for a slow disk, oldest first.
    unsafe_yet: BTreeMap<String, Vec<u64>>,
    lives: BTreeMap<String, u64>,
    links: u64,
    now: Millis,
    printed: Vec<String>,
}

impl Cluster {
    /// Carries out one command; gives what it prints.
    pub(crate) fn run(&mut self, command: &str, file: &str) -> Vec<String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["nodes", rest @ ..] => self.make_nodes(rest),
            ["link", a, b] => self.link(a, b),
            ["cut", a, b] => self.cut(a, b),
            ["split", rest @ ..] => self.split(rest),
            ["mesh"] => self.mesh(),
            ["housekeepers", at] => {
                let list = names(&self.nodes[*at].engine.housekeepers());
                self.print(format!("{at}: housekeepers {list}"));
            }
            ["set", at, path, value] => self.write(at, path, Some(value.parse().unwrap()), None),
            ["set", at, path, value, "at", ms] => {
                let time = ChangeTime::new(ms.parse().unwrap());
                self.write(at, path, Some(value.parse().unwrap()), time);
            }
            ["delete", at, path] => self.write(at, path, None, None),
            ["timeless", at] => drop(self.timeless.insert((*at).into())),
            ["deliver", a, b] => self.deliver(a, b, usize::MAX),
            ["deliver", a, b, count] => self.deliver(a, b, count.parse().unwrap()),
            ["lose", a, b] => self.pipe(a, b).frames.clear(),
            ["lose", a, b, word] => self.pipe(a, b).frames.retain(|bytes| {
                let frame = split_frame(bytes, BODY_BYTES_MAX).unwrap().unwrap();
                let message = PeerMessage::decode(&frame).unwrap().unwrap();
                !show::message(&message).is_some_and(|line| line.starts_with(word))
            }),
            ["hold", at] => drop(self.held.insert((*at).into())),
            ["go", at] => drop(self.held.remove(*at)),
            ["disk", at, "slow"] => drop(self.unsafe_yet.insert((*at).into(), Vec::new())),
            ["disk", at] => {
                for token in self.unsafe_yet.remove(*at).unwrap_or_default() {
                    self.persisted(at, token);
                }
            }
            ["run", ms] => self.pass_time(ms.parse().unwrap()),
            ["show", names @ ..] => self.show(names),
            ["save", at, name] => {
                let image = self.nodes[*at].engine.image();
                self.files.insert((*name).into(), image);
            }
            ["load", at, name] => self.load(at, name),
            ["crash", at] => self.crash(at),
            ["restart", at, rest @ ..] => self.restart(at, rest),
            ["clone", at, file] => self.clone_disk(at, file),
            ["forget", at, name] => self.forget(at, name),
            ["leave-for-good", at] => self.leave_for_good(at),
            ["group", at] => self.group(at),
            _ => panic!("{file}: unknown command {command:?}"),
        }
        std::mem::take(&mut self.printed)
    }

    fn print(&mut self, line: String) {
        self.printed.push(line);
    }

    fn make_nodes(&mut self, words: &[&str]) {
        let purging = words.contains(&"purging");
        let names = words.iter().filter(|w| !["durable", "purging", "patient"].contains(w));
        for (at, name) in names.enumerate() {
            let store = words.contains(&"durable").then_some(at as u64 + 100);
            let found_after_ms = if purging { 5_000 } else { Millis::MAX };
            let say_for_ms = if words.contains(&"patient") { 60_000 } else { 0 };
            let delete = DeleteSettings { store, found_after_ms, ..DeleteSettings::default() };
            let settings = DeleteSettings { say_for_ms, ..delete };
            self.settings.insert((*name).into(), settings);
            let engine = Engine::new(self.config(name, 1));
            self.nodes.insert((*name).into(), Node { engine, pipes: BTreeMap::new() });
            self.lives.insert((*name).into(), 1);
            self.handle(name, Input::Found);
        }
    }

    fn config(&self, name: &str, incarnation: u64) -> Config {
        let name_there = NodeName::new(name).unwrap();
        let id = NodeId { name: name_there, incarnation: Incarnation(incarnation) };
        Config { delete: self.settings[name].clone(), ..Config::new(id, 1) }
    }

    fn handle(&mut self, at: &str, input: Input<'_>) {
        let mut out = Outbox::new();
        let now = self.now;
        self.nodes.get_mut(at).unwrap().engine.handle(input, now, &mut out);
        self.perform(at, out);
    }

    fn perform(&mut self, at: &str, mut out: Outbox) {
        let outputs: Vec<Output> = out.drain().collect();
        for output in outputs {
            match output {
                Output::Broadcast { frame } => {
                    for pipe in self.nodes.get_mut(at).unwrap().pipes.values_mut() {
                        pipe.frames.push_back(Arc::clone(&frame));
                    }
                }
                Output::Multicast { links, frame } => {
                    links.into_iter().for_each(|link| self.queue(at, link, &frame));
                }
                Output::Send { link, frame } => self.queue(at, link, &frame),
                Output::Serve { link, mut job } => {
                    let mut frames = Vec::new();
                    while !job.next_frames(1 << 20, &mut frames) {}
                    self.queue(at, link, &frames);
                }
                Output::Persist { token } => match self.unsafe_yet.get_mut(at) {
                    Some(waiting) => waiting.push(token),
                    None => self.persisted(at, token),
                },
                Output::NeedIncarnation => {
                    let life = self.lives.get_mut(at).unwrap();
                    *life += 1;
                    let incarnation = Incarnation(*life);
                    self.print(format!("{at} renews its identity"));
                    self.handle(at, Input::Renewed { incarnation });
                }
                Output::Gone { purged, dropped } => {
                    for (what, gone) in [("purges", purged), ("drops", dropped)] {
                        for change in gone {
                            let table = Arc::clone(self.nodes[at].engine.table());
                            let entry = show::entry(&change.path, &change.entry, &table);
                            self.print(format!("{at} {what} {entry}"));
                        }
                    }
                }
                Output::Report(report) => self.report(at, &report),
                _ => {}
            }
        }
    }

    fn persisted(&mut self, at: &str, token: u64) {
        self.print(format!("{at} makes its state safe"));
        self.handle(at, Input::Persisted { token });
    }

    fn report(&mut self, at: &str, report: &Report) {
        let conflict = match report {
            Report::Conflict(conflict) => conflict,
            Report::ResyncStarted { ours, theirs } => {
                let (ours, theirs) = (names(ours), names(theirs));
                return self.print(format!("{at}: the split of {ours} and {theirs} has healed"));
            }
            Report::ResyncDone { entries, .. } => {
                return self.print(format!("{at}: nothing is missing any more, {entries} fetched"));
            }
            _ => return,
        };
        let table = Arc::clone(self.nodes[at].engine.table());
        let winner = show::entry(&conflict.path, &conflict.winner, &table);
        let loser = show::entry(&conflict.path, &conflict.loser, &table);
        self.print(format!("{at} reports a conflict: {winner} stays, {loser} is lost"));
    }

    /// Queues one or more frames.
    fn queue(&mut self, at: &str, link: LinkId, mut bytes: &[u8]) {
        let Some(pipe) = self.nodes.get_mut(at).unwrap().pipes.get_mut(&link) else { return };
        while let Some(frame) = split_frame(bytes, BODY_BYTES_MAX).unwrap() {
            let (this, rest) = bytes.split_at(frame.length);
            pipe.frames.push_back(this.into());
            bytes = rest;
        }
    }

    fn pipe(&mut self, a: &str, b: &str) -> &mut Pipe {
        let node = self.nodes.get_mut(a).unwrap();
        let pipe = node.pipes.values_mut().find(|pipe| pipe.to == b);
        pipe.unwrap_or_else(|| panic!("{a} and {b} are not linked"))
    }

    fn link(&mut self, a: &str, b: &str) {
        let (at_a, at_b) = (LinkId(self.links), LinkId(self.links + 1));
        self.links += 2;
        let pipe =
            |to: &str, link_there| Pipe { to: to.into(), link_there, frames: VecDeque::new() };
        self.nodes.get_mut(a).unwrap().pipes.insert(at_a, pipe(b, at_b));
        self.nodes.get_mut(b).unwrap().pipes.insert(at_b, pipe(a, at_a));
        let id = |cluster: &Self, at: &str| cluster.nodes[at].engine.id().clone();
        let (id_a, id_b) = (id(self, a), id(self, b));
        self.handle(a, Input::LinkUp { link: at_a, peer: id_b });
        self.handle(b, Input::LinkUp { link: at_b, peer: id_a });
    }

    fn cut(&mut self, a: &str, b: &str) {
        for (x, y) in [(a, b), (b, a)] {
            let Some(node) = self.nodes.get_mut(x) else { continue };
            let gone: Vec<LinkId> =
                node.pipes.iter().filter(|(_, p)| p.to == y).map(|(l, _)| *l).collect();
            for link in gone {
                self.nodes.get_mut(x).unwrap().pipes.remove(&link);
                self.handle(x, Input::LinkDown { link });
            }
        }
    }

    /// All links between sides are cut; sides are separated by `/`.
    fn split(&mut self, words: &[&str]) {
        let sides: Vec<&[&str]> = words.split(|word| *word == "/").collect();
        for (at, side) in sides.iter().enumerate() {
            for other in sides.iter().skip(at + 1) {
                side.iter().for_each(|a| other.iter().for_each(|b| self.cut(a, b)));
            }
        }
    }

    /// Every node is linked to every other.
    fn mesh(&mut self) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for (at, a) in names.iter().enumerate() {
            for b in &names[at + 1..] {
                if !self.nodes[a].pipes.values().any(|pipe| pipe.to == *b) {
                    self.link(a, b);
                }
            }
        }
    }

    fn write(&mut self, at: &str, path: &str, value: Option<u8>, time: Option<ChangeTime>) {
        let path: Path = path.parse().unwrap();
        let bytes = value.map(|v| [v]);
        let value = bytes.as_ref().map(|b| &b[..]);
        let write = Write { time, ..Write::new(&path, value) };
        let mut out = Outbox::new();
        let engine = &mut self.nodes.get_mut(at).unwrap().engine;
        let line = match write_one(engine, write, false, &mut out) {
            Ok(written) => match written.made() {
                Some(entry) => show::entry(&path, entry, engine.table()),
                None => "nothing to delete".into(),
            },
            Err(error) => error.to_string(),
        };
        self.print(format!("{at}: {line}"));
        self.perform(at, out);
    }

    fn deliver(&mut self, a: &str, b: &str, count: usize) {
        let mut delivered = 0;
        while delivered < count
            && let Some(bytes) = self.pipe(a, b).frames.pop_front()
        {
            delivered += usize::from(self.arrive(a, b, &bytes));
        }
    }

    /// Tells whether it was a message that is printed.
    fn arrive(&mut self, a: &str, b: &str, bytes: &[u8]) -> bool {
        let link = self.pipe(a, b).link_there;
        let frame = split_frame(bytes, BODY_BYTES_MAX).unwrap().unwrap();
        let mut message = PeerMessage::decode(&frame).unwrap().unwrap();
        if self.timeless.contains(b) {
            forget_times(&mut message);
        }
        let line = show::message(&message);
        let is_printed = line.is_some();
        if let Some(line) = line {
            self.print(format!("{a} -> {b}: {line}"));
        }
        self.handle(b, Input::Messages { link, messages: vec![message] });
        is_printed
    }

    /// Delivers all that waits, of nodes that are not held.
    fn deliver_all(&mut self) {
        loop {
            let next = self.nodes.iter().find_map(|(name, node)| {
                let pipe = node.pipes.values().find(|p| !p.frames.is_empty())?;
                (!self.held.contains(name)).then(|| (name.clone(), pipe.to.clone()))
            });
            let Some((a, b)) = next else { return };
            let bytes = self.pipe(&a, &b).frames.pop_front().unwrap();
            self.arrive(&a, &b, &bytes);
        }
    }

    fn pass_time(&mut self, ms: Millis) {
        self.deliver_all();
        let end = self.now + ms;
        while self.now < end {
            self.now += TICK_INTERVAL_MS;
            let names: Vec<String> = self.nodes.keys().cloned().collect();
            for name in names {
                self.handle(&name, Input::Tick);
            }
            self.deliver_all();
        }
    }

    fn show(&mut self, names: &[&str]) {
        for name in names {
            self.print(format!("{name}:"));
            for line in show::node(&self.nodes[*name].engine) {
                self.print(line);
            }
        }
    }

    fn load(&mut self, at: &str, file: &str) {
        let image = self.files[file].clone();
        let mut out = Outbox::new();
        let engine = &mut self.nodes.get_mut(at).unwrap().engine;
        if let Err(error) = engine.handle(LoadImage(&image), NO_LATER, &mut out) {
            self.print(format!("{at}: {error:?}"));
        }
        self.perform(at, out);
    }

    fn crash(&mut self, at: &str) {
        let others: Vec<String> = self.nodes.keys().cloned().collect();
        for other in others {
            self.cut(at, &other);
        }
        self.nodes.remove(at);
    }

    fn restart(&mut self, at: &str, words: &[&str]) {
        let kept = words.contains(&"kept");
        let file = words.iter().find(|w| **w != "kept");
        let life = self.lives.get_mut(at).unwrap();
        *life += u64::from(!kept);
        let config = self.config(at, self.lives[at]);
        let engine = match file {
            Some(file) => Engine::restore(config, &self.files[*file], &mut Outbox::new()).unwrap(),
            None => Engine::new(config),
        };
        self.nodes.insert(at.into(), Node { engine, pipes: BTreeMap::new() });
        if self.nodes.len() == 1 {
            self.handle(at, Input::Found);
        }
    }

    fn clone_disk(&mut self, at: &str, file: &str) {
        let image = &self.files[file];
        let name = image.id().name.to_string();
        let engine = Engine::restore(self.config(&name, 1), image, &mut Outbox::new()).unwrap();
        self.settings.insert(at.into(), self.settings[&name].clone());
        self.lives.insert(at.into(), 100);
        self.nodes.insert(at.into(), Node { engine, pipes: BTreeMap::new() });
    }

    fn forget(&mut self, at: &str, name: &str) {
        let (mut out, name) = (Outbox::new(), NodeName::new(name).unwrap());
        let engine = &mut self.nodes.get_mut(at).unwrap().engine;
        if let Err(error) = engine.handle(ForgetMember(&name), NO_LATER, &mut out) {
            self.print(format!("{at}: {error}"));
        }
        self.perform(at, out);
    }

    /// Begins to leave for good; the second time tells how far that is, and stays if it is not agreed.
    fn leave_for_good(&mut self, at: &str) {
        let mut out = Outbox::new();
        let engine = &mut self.nodes.get_mut(at).unwrap().engine;
        let line = match engine.retirement() {
            None => match engine.handle(BeginRetirement, NO_LATER, &mut out) {
                Ok(()) => "leaves for good".into(),
                Err(error) => error.to_string(),
            },
            Some(Retirement::Agreeing { away, .. }) => {
                assert!(engine.handle(CancelRetirement, NO_LATER, &mut out));
                let away: Vec<&str> = away.iter().map(NodeName::as_str).collect();
                format!("stays; away: {}", away.join(" "))
            }
            Some(Retirement::Spreading { .. }) => "is off the list; not all have said so".into(),
            Some(Retirement::Done) => "is off the list, and all know".into(),
        };
        self.print(format!("{at}: {line}"));
        self.perform(at, out);
    }

    fn group(&mut self, at: &str) {
        let view = self.nodes[at].engine.group_view(self.now);
        let Some(config) = view.config else { return self.print(format!("{at}: no group")) };
        let names: Vec<&str> = config.members().iter().map(|m| m.name.as_str()).collect();
        let away: Vec<&str> = view.away.iter().map(|(m, _)| m.name.as_str()).collect();
        let (names, away) = (names.join(" "), away.join(" "));
        let (version, tombstones) = (config.version, view.tombstones);
        self.print(format!("{at}: {version}: {names}; away: {away}; tombstones: {tombstones}"));
    }
}
