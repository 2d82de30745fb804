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

use std::collections::{BTreeMap, BTreeSet};

use super::super::net::{Net, show};
use crate::engine::changes::{BeginRetirement, CancelRetirement, ForgetMember, LoadImage};
use crate::engine::delete::{DeleteSettings, Retirement};
use crate::engine::{Image, Input, TICK_INTERVAL_MS};
use crate::model::change_time::ChangeTime;
use crate::model::ids::{Millis, NodeName};
use crate::model::path::Path;
use crate::replica::write::Write;

/// The nodes of one script.
pub(super) struct Cluster {
    net: Net,
    /// Those that are not gone, by the names that the script has for them.
    nodes: BTreeMap<String, usize>,
    /// All that ever were.
    places: BTreeMap<String, usize>,
    files: BTreeMap<String, Image>,
    held: BTreeSet<usize>,
}

impl Cluster {
    /// No node yet.
    pub(super) fn new() -> Self {
        let (nodes, places) = (BTreeMap::new(), BTreeMap::new());
        let (files, held) = (BTreeMap::new(), BTreeSet::new());
        Self { net: Net::telling(), nodes, places, files, held }
    }

    /// Carries out one command; gives what it prints.
    pub(super) fn run(&mut self, command: &str, file: &str) -> Vec<String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["nodes", rest @ ..] => self.make_nodes(rest),
            ["link", a, b] => self.net.connect(self.nodes[*a], self.nodes[*b]),
            ["cut", a, b] => self.net.disconnect(self.nodes[*a], self.nodes[*b]),
            ["split", rest @ ..] => self.split(rest),
            ["mesh"] => self.mesh(),
            ["housekeepers", at] => {
                let list = show::names(&self.net.engine(self.nodes[*at]).housekeepers());
                self.net.tell(|_| format!("{at}: housekeepers {list}"));
            }
            ["set", at, path, value] => self.write(at, path, Some(value.parse().unwrap()), None),
            ["set", at, path, value, "at", ms] => {
                let time = ChangeTime::new(ms.parse().unwrap());
                self.write(at, path, Some(value.parse().unwrap()), time);
            }
            ["delete", at, path] => self.write(at, path, None, None),
            ["timeless", at] => self.net.ignore_times(self.nodes[*at]),
            ["deliver", a, b] => self.deliver(a, b, usize::MAX),
            ["deliver", a, b, count] => self.deliver(a, b, count.parse().unwrap()),
            ["lose", a, b] => self.net.lose_some(self.nodes[*a], self.nodes[*b], |_| true),
            ["lose", a, b, word] => self.net.lose_some(self.nodes[*a], self.nodes[*b], |line| {
                line.is_some_and(|line| line.starts_with(word))
            }),
            ["hold", at] => drop(self.held.insert(self.nodes[*at])),
            ["go", at] => drop(self.held.remove(&self.nodes[*at])),
            ["disk", at, "slow"] => self.net.slow_disk(self.nodes[*at], true),
            ["disk", at] => self.net.slow_disk(self.nodes[*at], false),
            ["run", ms] => self.pass_time(ms.parse().unwrap()),
            ["show", names @ ..] => self.show(names),
            ["save", at, name] => {
                let image = self.net.engine(self.nodes[*at]).image();
                self.files.insert((*name).into(), image);
            }
            ["load", at, name] => self.load(at, name),
            ["crash", at] => {
                let node = self.nodes.remove(*at).unwrap();
                self.net.crash(node);
            }
            ["restart", at, rest @ ..] => self.restart(at, rest),
            ["clone", at, file] => {
                let image = &self.files[*file];
                let of = self.places[image.id().name.as_str()];
                let node = self.net.add_copy(of, at, Some(image));
                self.place(at, node);
            }
            ["forget", at, name] => self.forget(at, name),
            ["leave-for-good", at] => self.leave_for_good(at),
            ["group", at] => self.group(at),
            _ => panic!("{file}: unknown command {command:?}"),
        }
        self.net.take_story()
    }

    fn place(&mut self, at: &str, node: usize) {
        self.nodes.insert(at.into(), node);
        self.places.insert(at.into(), node);
    }

    fn make_nodes(&mut self, words: &[&str]) {
        let purging = words.contains(&"purging");
        let names = words.iter().filter(|w| !["durable", "purging", "patient"].contains(w));
        for (at, name) in names.enumerate() {
            let store = words.contains(&"durable").then_some(at as u64 + 100);
            let found_after_ms = if purging { 5_000 } else { Millis::MAX };
            let say_for_ms = if words.contains(&"patient") { 60_000 } else { 0 };
            let delete = DeleteSettings { store, found_after_ms, ..DeleteSettings::default() };
            let node = self.net.add_with(name, DeleteSettings { say_for_ms, ..delete });
            self.place(name, node);
            self.net.handle(node, Input::Found);
        }
    }

    /// All links between sides are cut; sides are separated by `/`.
    fn split(&mut self, words: &[&str]) {
        let sides: Vec<&[&str]> = words.split(|word| *word == "/").collect();
        for (at, side) in sides.iter().enumerate() {
            for other in sides.iter().skip(at + 1) {
                for (a, b) in side.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
                    self.net.disconnect(self.nodes[*a], self.nodes[*b]);
                }
            }
        }
    }

    /// Every node is linked to every other.
    fn mesh(&mut self) {
        let nodes: Vec<usize> = self.nodes.values().copied().collect();
        for (at, a) in nodes.iter().enumerate() {
            nodes[at + 1..].iter().for_each(|b| self.net.connect(*a, *b));
        }
    }

    fn write(&mut self, at: &str, path: &str, value: Option<u8>, time: Option<ChangeTime>) {
        let bytes = value.map(|v| [v]);
        let value = bytes.as_ref().map(|b| &b[..]);
        let write = Write { time, ..Write::new(path.parse::<Path>().unwrap(), value) };
        // What comes of it is told.
        let _ = self.net.write_as(self.nodes[at], path, write, false);
    }

    fn deliver(&mut self, a: &str, b: &str, count: usize) {
        let (from, to) = (self.nodes[a], self.nodes[b]);
        let link = self.net.link_of(from, to);
        let mut delivered = 0;
        while delivered < count
            && let Some(is_told) = self.net.deliver_of(from, link)
        {
            delivered += usize::from(is_told);
        }
    }

    /// Delivers all that waits, of nodes that are not held; in the order of their names.
    fn deliver_all(&mut self) {
        loop {
            let next = self.nodes.values().find_map(|node| {
                let link = self.net.waiting_link(*node)?;
                (!self.held.contains(node)).then_some((*node, link))
            });
            let Some((node, link)) = next else { return };
            self.net.deliver_of(node, link);
        }
    }

    fn pass_time(&mut self, ms: Millis) {
        self.deliver_all();
        for _ in 0..ms.div_ceil(TICK_INTERVAL_MS) {
            let nodes: Vec<usize> = self.nodes.values().copied().collect();
            self.net.tick_of(&nodes);
            self.deliver_all();
        }
    }

    fn show(&mut self, names: &[&str]) {
        for name in names {
            self.net.tell(|_| format!("{name}:"));
            for line in show::node(self.net.engine(self.nodes[*name])) {
                self.net.tell(|_| line);
            }
        }
    }

    fn load(&mut self, at: &str, file: &str) {
        let (node, image) = (self.nodes[at], self.files[file].clone());
        if let Err(error) = self.net.handle(node, LoadImage(&image)) {
            self.net.tell(|_| format!("{at}: {error:?}"));
        }
    }

    fn restart(&mut self, at: &str, words: &[&str]) {
        let file = words.iter().find(|w| **w != "kept");
        let (node, image) = (self.places[at], file.map(|file| &self.files[*file]));
        // What had been decided is carried out by the restart, without a word.
        let _ = self.net.restart(node, image, words.contains(&"kept"));
        self.nodes.insert(at.into(), node);
        if self.nodes.len() == 1 {
            self.net.handle(node, Input::Found);
        }
    }

    fn forget(&mut self, at: &str, name: &str) {
        let name = NodeName::new(name).unwrap();
        if let Err(error) = self.net.handle(self.nodes[at], ForgetMember(&name)) {
            self.net.tell(|_| format!("{at}: {error}"));
        }
    }

    /// Begins to leave for good; the second time tells how far that is, and stays if it is not agreed.
    fn leave_for_good(&mut self, at: &str) {
        let node = self.nodes[at];
        let line = match self.net.engine(node).retirement() {
            None => match self.net.handle(node, BeginRetirement) {
                Ok(()) => "leaves for good".into(),
                Err(error) => error.to_string(),
            },
            Some(Retirement::Agreeing { away, .. }) => {
                assert!(self.net.handle(node, CancelRetirement));
                let away: Vec<&str> = away.iter().map(NodeName::as_str).collect();
                format!("stays; away: {}", away.join(" "))
            }
            Some(Retirement::Spreading { .. }) => "is off the list; not all have said so".into(),
            Some(Retirement::Done) => "is off the list, and all know".into(),
        };
        self.net.tell(|_| format!("{at}: {line}"));
    }

    fn group(&mut self, at: &str) {
        let view = self.net.engine(self.nodes[at]).group_view(self.net.now());
        let line = match view.config {
            None => "no group".into(),
            Some(config) => {
                let names: Vec<&str> = config.members().iter().map(|m| m.name.as_str()).collect();
                let away: Vec<&str> = view.away.iter().map(|(m, _)| m.name.as_str()).collect();
                let (names, away) = (names.join(" "), away.join(" "));
                let (version, tombstones) = (config.version, view.tombstones);
                format!("{version}: {names}; away: {away}; tombstones: {tombstones}")
            }
        };
        self.net.tell(|_| format!("{at}: {line}"));
    }
}
