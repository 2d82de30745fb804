//! What really happened: each event that any node made, with its whole, uncut history, recorded
//! apart from all engines. Events are numbered in the order in which they were made, so parents
//! have smaller numbers than versions on top of them.

use std::cmp::Ordering;
use std::collections::HashMap;

use ahash::RandomState;
use smallvec::SmallVec;
use xxhash_rust::xxh64::xxh64;

use crate::model::ids::NodeId;
use crate::model::path::Path;

/// An event's place in the history.
pub(crate) type EventNo = u32;
/// No event.
pub(crate) const NONE: EventNo = EventNo::MAX;

/// The path of an event that is no entry's: the name of a lineage (replication rule 7).
pub(crate) const NO_PATH: u32 = u32::MAX;

/// An event's identity: which life, which tick.
pub(crate) type EventKey = (u32, u64);

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Made {
    pub(crate) key: EventKey,
    pub(crate) path: u32,
    pub(crate) content: Content,
    /// The versions that it was made on top of: usually one, two if an older one was put on top of
    /// a re-issue again, none if there was no entry.
    pub(crate) parents: SmallVec<[EventNo; 2]>,
    /// The event that first brought its value; itself, if it is no re-issue.
    pub(crate) origin: EventNo,
}

/// What an event id stands for, wherever it is met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) tock: u64,
    /// A hash of the value; none for a tombstone.
    pub(crate) value: Option<u64>,
    /// The chain, newest first.
    pub(crate) chain: SmallVec<[EventKey; 3]>,
    pub(crate) cut: bool,
    /// Only in a re-issue.
    pub(crate) reissue_of: Option<EventKey>,
}

/// What a value is remembered by.
pub(crate) fn hash_value(value: &[u8]) -> u64 {
    xxh64(value, 0)
}

struct Life {
    id: NodeId,
    /// For people: the name, with the number of the life from the second on.
    label: String,
    /// Its events by tick, from 1.
    ticks: Vec<EventNo>,
}

/// All events, lives and paths of a run.
pub(crate) struct History {
    lives: Vec<Life>,
    life_by_id: HashMap<NodeId, u32, RandomState>,
    events: Vec<Made>,
    paths: Vec<Path>,
    path_by_bytes: HashMap<Path, u32, RandomState>,
}

impl History {
    pub(crate) fn new() -> Self {
        // Nothing is walked, so the seeds do not matter; they are fixed all the same.
        let hasher = RandomState::with_seeds(1, 2, 3, 4);
        Self {
            lives: Vec::new(),
            life_by_id: HashMap::with_hasher(hasher.clone()),
            events: Vec::new(),
            paths: Vec::new(),
            path_by_bytes: HashMap::with_hasher(hasher),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn events(&self) -> &[Made] {
        &self.events
    }

    pub(crate) fn get(&self, event: EventNo) -> &Made {
        &self.events[event as usize]
    }

    /// The number of a life, which is added when it is new.
    pub(crate) fn life(&mut self, id: &NodeId) -> u32 {
        if let Some(life) = self.life_by_id.get(id) {
            return *life;
        }
        let life = self.lives.len() as u32;
        let earlier = self.lives.iter().filter(|l| l.id.name == id.name).count();
        let label =
            if earlier == 0 { id.name.to_string() } else { format!("{}~{}", id.name, earlier + 1) };
        self.lives.push(Life { id: id.clone(), label, ticks: Vec::new() });
        self.life_by_id.insert(id.clone(), life);
        life
    }

    /// The number of a path, which is added when it is new.
    pub(crate) fn path(&mut self, path: &Path) -> u32 {
        // A handful is looked through faster than it is hashed.
        if self.paths.len() <= 4 {
            if let Some(at) = self.paths.iter().position(|p| p == path) {
                return at as u32;
            }
        } else if let Some(at) = self.path_by_bytes.get(path) {
            return *at;
        }
        let at = self.paths.len() as u32;
        self.paths.push(path.clone());
        self.path_by_bytes.insert(path.clone(), at);
        at
    }

    pub(crate) fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// The event of a key, if it was made.
    pub(crate) fn find(&self, (life, tick): EventKey) -> Option<EventNo> {
        let at = usize::try_from(tick.checked_sub(1)?).ok()?;
        let event = *self.lives.get(life as usize)?.ticks.get(at)?;
        (event != NONE).then_some(event)
    }

    /// Adds a tick that was used for something that is no entry.
    pub(crate) fn add_burned(&mut self, key: EventKey) {
        let content =
            Content { tock: 0, value: None, chain: SmallVec::new(), cut: false, reissue_of: None };
        self.add(key, NO_PATH, content, SmallVec::new());
    }

    /// Adds an event that was just made.
    pub(crate) fn add(
        &mut self,
        key: EventKey,
        path: u32,
        content: Content,
        parents: SmallVec<[EventNo; 2]>,
    ) -> EventNo {
        let event = self.events.len() as EventNo;
        let origin = content.reissue_of.and_then(|key| self.find(key)).unwrap_or(event);
        self.events.push(Made { key, path, content, parents, origin });
        if let Some(life) = self.lives.get_mut(key.0 as usize) {
            let at = key.1 as usize - 1;
            if life.ticks.len() <= at {
                life.ticks.resize(at + 1, NONE);
            }
            life.ticks[at] = event;
        }
        event
    }

    /// Replication rule 1: versions are ordered by (tock, name, incarnation, tick). Written down a
    /// second time, so that it does not depend on the code under test.
    pub(crate) fn compare(&self, a: EventNo, b: EventNo) -> Ordering {
        let (x, y) = (self.get(a), self.get(b));
        x.content.tock.cmp(&y.content.tock).then_with(|| {
            let id = |m: &Made| &self.lives[m.key.0 as usize].id;
            id(x).cmp(id(y)).then(x.key.1.cmp(&y.key.1))
        })
    }

    /// Whether `a` is the greater version; anything is greater than nothing.
    pub(crate) fn is_greater(&self, a: EventNo, b: EventNo) -> bool {
        b == NONE || a != NONE && self.compare(a, b) == Ordering::Greater
    }

    pub(crate) fn is_tombstone(&self, event: EventNo) -> bool {
        self.get(event).content.value.is_none()
    }

    /// Marks these events and all that they were made on top of.
    pub(crate) fn ancestors(&self, of: impl IntoIterator<Item = EventNo>) -> Vec<bool> {
        let mut marked = vec![false; self.events.len()];
        for event in of {
            marked[event as usize] = true;
        }
        for event in (0..self.events.len()).rev() {
            if marked[event] {
                for parent in &self.events[event].parents {
                    marked[*parent as usize] = true;
                }
            }
        }
        marked
    }

    /// For people: `A.3`, `A~2.1` in a second life.
    pub(crate) fn key_label(&self, (life, tick): EventKey) -> String {
        match self.lives.get(life as usize) {
            Some(life) => format!("{}.{tick}", life.label),
            None => format!("?.{tick}"),
        }
    }

    /// For people: `A.3@7 p1 [B.2 …]`, with `D` for a deletion.
    pub(crate) fn label(&self, event: EventNo) -> String {
        if event == NONE {
            return "nothing".to_owned();
        }
        let made = self.get(event);
        let mut text = self.key_label(made.key);
        let Some(path) = self.paths.get(made.path as usize) else {
            return format!("{text} (a lineage)");
        };
        if made.content.value.is_none() {
            text.push('D');
        }
        text.push_str(&format!("@{} {path}", made.content.tock));
        let older: Vec<String> =
            made.content.chain.iter().skip(1).map(|key| self.key_label(*key)).collect();
        if !older.is_empty() || made.content.cut {
            text.push_str(&format!(
                " [{}{}]",
                older.join(" "),
                if made.content.cut { " …" } else { "" }
            ));
        }
        if let Some(origin) = made.content.reissue_of {
            text.push_str(&format!(" re-issues {}", self.key_label(origin)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Incarnation, NodeName};

    fn history(lives: &[(&str, u64)]) -> History {
        let mut history = History::new();
        for (name, incarnation) in lives {
            let id = NodeId {
                name: NodeName::new(name).unwrap(),
                incarnation: Incarnation(*incarnation),
            };
            history.life(&id);
        }
        history.path(&"p".parse().unwrap());
        history
    }

    fn add(history: &mut History, key: EventKey, tock: u64, parents: &[EventNo]) -> EventNo {
        let content = Content {
            tock,
            value: Some(tock),
            chain: smallvec::smallvec![key],
            cut: false,
            reissue_of: None,
        };
        history.add(key, 0, content, parents.into())
    }

    #[test]
    fn versions_are_ordered_by_tock_then_name_then_incarnation_then_tick() {
        let mut history = history(&[("b", 1), ("a", 9), ("a", 2)]);
        let keys = [(2, 5), (1, 1), (1, 2), (0, 1)];
        let mut rising: Vec<EventNo> = keys.iter().map(|k| add(&mut history, *k, 4, &[])).collect();
        rising.push(add(&mut history, (2, 6), 5, &[]));
        for pair in rising.windows(2) {
            assert!(history.is_greater(pair[1], pair[0]) && !history.is_greater(pair[0], pair[1]));
        }
        assert!(history.is_greater(rising[0], NONE) && !history.is_greater(NONE, rising[0]));
    }

    #[test]
    fn histories_are_followed_to_their_beginnings() {
        let mut history = history(&[("a", 1)]);
        let first = add(&mut history, (0, 1), 1, &[]);
        let second = add(&mut history, (0, 2), 2, &[first]);
        let other = add(&mut history, (0, 3), 2, &[]);
        let both = add(&mut history, (0, 4), 3, &[second, other]);
        assert_eq!(history.ancestors([second]), [true, true, false, false]);
        assert_eq!(history.ancestors([both]), [true; 4]);
        assert_eq!(history.label(both), "a.4@3 p");
        assert_eq!(history.find((0, 3)), Some(other));
        assert_eq!((history.find((0, 5)), history.find((0, 0))), (None, None));
    }
}
