//! Clients that watch. A stream does what the server's does: it takes what waits in its inbox, starts
//! over after an overflow, and goes out when what it tells is safe. When its node is lost, the client
//! goes on at another one: it gets the state there, keeps what is newer than what it was told, and asks
//! what became of the rest; what that node has not heard of yet it waits for, and in the end it starts
//! over. So does the client library's watch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::hub::Resumption;
use crate::hub::gone::GoneLook;
use crate::hub::inbox::{Inbox, Waiting, WatchContent, WatchItem};
use crate::hub::shares::Holder;
use crate::model::ids::Millis;
use crate::model::path::Path;
use crate::replica::watch::{WatchId, WatchScope};
use crate::whole::judging::judge::Judge;
use crate::whole::judging::view::{Version, knows, version};
use crate::whole::{Happening, Whole, note};

/// A client reads this often.
const READ_MS: (Millis, Millis) = (2, 60);
/// What a node does not know yet is waited for so long; then the watch starts over.
const PATIENCE_MS: Millis = 5_000;
/// Bytes that wait for one watch.
const BYTES_MAX: usize = 1 << 20;

/// The stream at a node.
struct Stream {
    slot: usize,
    process: u64,
    id: WatchId,
    inbox: Arc<Inbox>,
    /// What must come next, as long as nothing was dropped.
    expected: VecDeque<(Path, Version)>,
    /// Paths that this stream has told something of.
    told: BTreeSet<Path>,
    /// What was told by now but is not safe yet.
    held: VecDeque<(u64, Vec<Item>)>,
    /// Paths of which this node does not know yet what the client was told, and until when that is
    /// waited for.
    behind: Vec<Path>,
    until: Millis,
}

/// What a stream tells.
struct Item {
    path: Path,
    version: Version,
    /// It comes as it was made, and nothing between was dropped.
    is_live: bool,
}

/// One watching client.
pub(in crate::whole) struct Watcher {
    top: Path,
    stream: Option<Stream>,
    /// What it was told last of each path.
    told: BTreeMap<Path, Version>,
    paused_until: Millis,
}

impl Watcher {
    pub(in crate::whole) fn new(top: &str) -> Self {
        let top = top.parse().expect("it is a path");
        Self { top, stream: None, told: BTreeMap::new(), paused_until: 0 }
    }

    pub(in crate::whole) fn pause(&mut self, until: Millis) {
        self.paused_until = until;
    }

    /// A process has committed something: its streams must tell it.
    pub(in crate::whole) fn expect(
        &mut self,
        process: (usize, u64),
        path: &Path,
        version: &Version,
    ) {
        let is_wanted = path.starts_with(&self.top);
        if let Some(stream) = &mut self.stream
            && is_wanted
            && (stream.slot, stream.process) == process
        {
            stream.expected.push_back((path.clone(), version.clone()));
        }
    }

    fn scope(&self) -> WatchScope {
        WatchScope { top: self.top.clone(), depth_min: 0, depth_max: None }
    }

    /// The client is told something. What it was told before, or is older, it knows already: only
    /// another node may tell it that.
    fn tell(&mut self, item: Item, judge: &Judge) -> Result<bool, String> {
        let Item { path, version, is_live } = item;
        if is_live && let Some(stream) = &mut self.stream {
            // An entry that was dropped is told as a deletion with the event that it had.
            let is_drop = version.value.is_none() && judge.is_value(&version.event);
            let next = stream.expected.front();
            if next == Some(&(path.clone(), version.clone())) {
                stream.expected.pop_front();
            } else if !is_drop {
                return Err(format!("{path} {version:?} is told, and {next:?} is next"));
            }
        }
        match self.told.get(&path) {
            Some(told) if told.beats(&version) => {
                // Of another node it may have been told something newer.
                let is_own = self.stream.as_ref().is_some_and(|s| s.told.contains(&path));
                return if is_own {
                    Err(format!("{path} {version:?} is told after {told:?}"))
                } else {
                    if let Some(stream) = &mut self.stream
                        && !stream.behind.contains(&path)
                    {
                        stream.behind.push(path);
                    }
                    Ok(false)
                };
            }
            _ => {}
        }
        if let Some(stream) = &mut self.stream {
            stream.told.insert(path.clone());
        }
        self.told.insert(path, version);
        Ok(true)
    }

    /// What is wrong in the end with what the client was told; none if it has all of this.
    pub(in crate::whole) fn check(&self, held: &BTreeMap<Path, Version>) -> Option<String> {
        let mut paths: Vec<&Path> = held.keys().chain(self.told.keys()).collect();
        paths.dedup();
        paths.into_iter().filter(|path| path.starts_with(&self.top)).find_map(|path| {
            let (now, told) = (held.get(path), self.told.get(path));
            let value = |version: Option<&Version>| version.and_then(|v| v.value.clone());
            let is_same = value(now) == value(told)
                && (value(now).is_none() || now.map(|v| &v.event) == told.map(|v| &v.event));
            (!is_same).then(|| format!("of {path} it was told {told:?}, and there is {now:?}"))
        })
    }

    /// Whether it is told by a process that runs, and all that it is told is told.
    fn is_at(&self, slot: usize, process: u64) -> bool {
        self.stream.as_ref().is_some_and(|s| (s.slot, s.process) == (slot, process))
    }
}

impl Whole<'_> {
    /// A watch's client reads, or looks for a node.
    pub(in crate::whole) fn on_watch(&mut self, watcher: usize) {
        let now = self.now();
        let at = self.watchers[watcher].stream.as_ref().map(|s| (s.slot, s.process));
        if now >= self.watchers[watcher].paused_until {
            let is_lost = match at {
                Some((slot, process)) => self.slots[slot].running(process).is_none(),
                None => true,
            };
            let moves = !self.is_healing() && self.rng.below(400) == 0;
            if is_lost || moves {
                self.move_watch(watcher);
            } else if let Some((slot, process)) = at
                && self.slots[slot].running(process).is_some_and(|p| !p.frozen)
            {
                self.read_watch(watcher, slot);
            }
        }
        let pause = self.rng.within(READ_MS.0, READ_MS.1);
        self.schedule.plan(now + pause, Happening::Watch(watcher));
    }

    /// Goes on at any node that serves clients.
    fn move_watch(&mut self, watcher: usize) {
        let serves = |slot: &crate::whole::node::Slot| {
            slot.is_awake()
                && slot.process.as_ref().is_some_and(crate::whole::node::Process::is_ready)
        };
        let ready: Vec<usize> = (0..self.slots.len()).filter(|s| serves(&self.slots[*s])).collect();
        let Some(slot) = ready.get(self.rng.below(ready.len())).copied() else { return };
        let Some(process) = &self.slots[slot].process else { return };
        let watch = &mut self.watchers[watcher];
        if let Some(old) = watch.stream.take()
            && let Some(process) = self.slots[old.slot].process.as_ref()
            && process.number == old.process
        {
            process.hub.unwatch(old.id);
        }
        let defects = self.options.defects;
        let inbox = Arc::new(Inbox::bounded(self.plan.watch_changes, BYTES_MAX, defects));
        let holder = Holder::KeyHolder;
        let added = process.hub.watch(watch.scope(), WatchContent::Changes, &inbox, &holder);
        let Ok((id, tree)) = added else { return };
        let table = process.hub.read(|engine| Arc::clone(engine.table()));
        let gate = process.gate();
        let (mut items, mut older) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for (path, entry) in tree.subtree(&watch.top).filter(|(_, entry)| !entry.is_tombstone()) {
            let version = version(&table, entry);
            seen.insert(path.clone());
            if watch.told.get(path).is_some_and(|told| told.beats(&version)) {
                older.push(path.clone());
            }
            items.push(Item { path: path.clone(), version, is_live: false });
        }
        // What it does not show was deleted, or is not known here yet.
        let unseen =
            watch.told.iter().filter(|(path, told)| told.value.is_some() && !seen.contains(*path));
        let behind = unseen.map(|(path, _)| path.clone()).chain(older).collect();
        let is_first = watch.told.is_empty();
        watch.stream = Some(Stream {
            slot,
            process: process.number,
            id,
            inbox,
            expected: VecDeque::new(),
            told: BTreeSet::new(),
            held: VecDeque::from([(gate, items)]),
            behind,
            until: self.schedule.now() + PATIENCE_MS,
        });
        self.stats.watches_moved += u64::from(!is_first);
        note!(self, "watch {watcher} goes on at {}", self.slots[slot].label);
        self.changed_at = self.now();
    }

    fn read_watch(&mut self, watcher: usize, slot: usize) {
        let Some(process) = &self.slots[slot].process else { return };
        let watch = &mut self.watchers[watcher];
        let scope = watch.scope();
        let Some(stream) = &mut watch.stream else { return };
        let table = process.hub.read(|engine| Arc::clone(engine.table()));
        let mut items = Vec::new();
        let mut has_lapsed = false;
        match stream.inbox.take_items(stream.id) {
            Waiting::Items(waiting) => {
                for item in waiting {
                    let WatchItem::Changes(bundle) = item else { continue };
                    items.extend(bundle.changes().iter().map(|change| Item {
                        path: change.path.clone(),
                        version: version(&table, &change.entry),
                        is_live: true,
                    }));
                }
            }
            Waiting::Overflowed => match process.hub.resume_watch(stream.id, &stream.inbox) {
                None => {}
                Some(Resumption::Lost) => {
                    return self.lose_watch(watcher, "has lost its place");
                }
                Some(Resumption::From(mut walk)) => {
                    has_lapsed = true;
                    stream.expected.clear();
                    let held = stream.held.iter_mut().flat_map(|(_, items)| items);
                    held.for_each(|item| item.is_live = false);
                    let mut gone = Vec::new();
                    loop {
                        match walk.look(&scope) {
                            GoneLook::Tell(deletion) => gone.push((deletion.path, deletion.entry)),
                            GoneLook::Skip => {}
                            GoneLook::End => break,
                        }
                    }
                    let lacks = walk.tree().subtree(&scope.top);
                    let lacks = lacks.filter(|(_, entry)| !walk.had().contains(entry.newest()));
                    gone.extend(lacks.map(|(path, entry)| (path.clone(), entry.clone())));
                    items.extend(gone.into_iter().map(|(path, entry)| {
                        let version = version(&table, &entry);
                        Item { path, version, is_live: false }
                    }));
                }
            },
        }
        if !items.is_empty() {
            stream.held.push_back((process.gate(), items));
        }
        self.stats.watch_restarts += u64::from(has_lapsed);
        self.tell_watch(watcher, slot);
        self.settle_watch(watcher, slot);
    }

    /// Tells what is safe by now.
    fn tell_watch(&mut self, watcher: usize, slot: usize) {
        let Some(process) = &self.slots[slot].process else { return };
        let watch = &mut self.watchers[watcher];
        let mut told = 0;
        while let Some(stream) = &mut watch.stream
            && let Some((gate, _)) = stream.held.front()
            && process.is_safe(*gate)
            && let Some((_, items)) = stream.held.pop_front()
        {
            for item in items {
                match watch.tell(item, &self.judge) {
                    Ok(is_news) => told += u64::from(is_news),
                    Err(detail) => {
                        let detail = format!("at {}: {detail}", self.slots[slot].label);
                        return self.judge.fail("a watch is told out of order, or not all", detail);
                    }
                }
            }
        }
        self.stats.watch_items += told;
        if told > 0 {
            self.changed_at = self.schedule.now();
        }
    }

    /// Asks what became of what this node did not show.
    fn settle_watch(&mut self, watcher: usize, slot: usize) {
        let now = self.now();
        let Some(process) = &self.slots[slot].process else { return };
        let watch = &mut self.watchers[watcher];
        let Some(stream) = &mut watch.stream else { return };
        if stream.behind.is_empty() || !stream.held.is_empty() || !process.is_safe(process.gate()) {
            return;
        }
        let told = &mut watch.told;
        // An answer may be ahead of the stream, which then tells what is older: as where another node has told more.
        let own = &mut stream.told;
        process.hub.read(|engine| {
            stream.behind.retain(|path| {
                let Some(before) = told.get(path).cloned() else { return false };
                let found = engine.get(path.as_bytes()).map(|e| version(engine.table(), e));
                let (id, tick) = &before.event;
                match found {
                    Some(found) if found.event == before.event => false,
                    Some(found) if found.beats(&before) => {
                        own.remove(path);
                        told.insert(path.clone(), found);
                        false
                    }
                    None if knows(engine, id, *tick) => {
                        own.remove(path);
                        told.insert(path.clone(), Version { value: None, ..before });
                        false
                    }
                    _ => true,
                }
            });
        });
        if !stream.behind.is_empty() && now >= stream.until {
            self.lose_watch(watcher, "starts over: this node does not know what it was told");
        }
    }

    /// A watch starts over: its client forgets what it was told.
    fn lose_watch(&mut self, watcher: usize, why: &str) {
        note!(self, "watch {watcher} {why}");
        self.watchers[watcher].told.clear();
        self.move_watch(watcher);
    }

    /// Whether all watches are told all that there is to tell: their nodes run, and nothing waits.
    pub(in crate::whole) fn are_watches_through(&self) -> bool {
        self.watchers.iter().all(|watch| {
            let Some(stream) = &watch.stream else { return false };
            let process = self.slots[stream.slot].process.as_ref();
            watch.paused_until + READ_MS.1 * 2 <= self.schedule.now()
                && process.is_some_and(|p| watch.is_at(stream.slot, p.number))
                && stream.held.is_empty()
                && stream.behind.is_empty()
        })
    }
}
