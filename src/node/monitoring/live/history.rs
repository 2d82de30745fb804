//! The last things that happened to a node, and the last splits that it saw: with their sides, lengths, changes and
//! conflicts.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Value as Json, json};

use crate::server::info::names_text;
use crate::server::{SilentInfo, SilentMembers};

/// Most events that are kept; the oldest are dropped.
const LIVE_EVENTS_MAX: usize = 512;
/// Most splits that are kept; the oldest are dropped.
const LIVE_SPLITS_MAX: usize = 64;
/// Most names of a side of a split that are told; of more, how many.
const LIVE_NAMES_MAX: usize = 12;
/// Conflicts that are found within this time after a split are counted as its own, if no healing was noticed.
const AFTERMATH_MS: u64 = 60_000;

/// A healing may be over before it is noticed that the members are back; not for longer than this.
const NOTICED_MS: u64 = 5_000;

/// See the module. Times are milliseconds since 1970.
#[derive(Default)]
pub(super) struct History {
    /// The number of the last event.
    last: u64,
    /// Their numbers, and they as JSON.
    events: VecDeque<(u64, Json)>,
    splits: VecDeque<Split>,
    /// The number of the last split.
    last_split: u64,
    /// Rises with each change of a split.
    version: u64,
    /// When the last healing was over, and what it was.
    healed: Option<(u64, Healed)>,
    /// When entries came last, and how many.
    caught: Option<(u64, u64)>,
}

/// A healing that is over.
#[derive(Clone, Copy)]
struct Healed {
    /// How many entries came.
    entries: u64,
    lasted_ms: u64,
    /// How many conflicts had been found by then.
    conflicts: u64,
}

/// Members that went silent together.
struct Split {
    number: u64,
    /// When it was last changed.
    version: u64,
    began: u64,
    ended: Option<u64>,
    names: BTreeSet<String>,
    /// How many they were, with those that are back.
    were: BTreeSet<String>,
    with: Vec<String>,
    changes: u64,
    conflicts_before: u64,
    conflicts: u64,
    healed: Option<Healed>,
    /// How many entries came from others after it, whether a healing was noticed or not.
    came: u64,
}

impl History {
    pub(super) fn note(&mut self, kind: &'static str, text: String, now: u64) {
        self.last += 1;
        let event = json!({"n": self.last, "at": now, "kind": kind, "text": text});
        self.events.push_back((self.last, event));
        while self.events.len() > LIVE_EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// Events after that number.
    pub(super) fn events_after(&self, number: u64) -> impl Iterator<Item = (u64, &Json)> {
        let place = self.events.partition_point(|(n, _)| *n <= number);
        self.events.range(place..).map(|(n, event)| (*n, event))
    }

    /// Splits that have changed after that version, and the present version.
    pub(super) fn splits_after(&self, version: u64) -> (Vec<Json>, u64) {
        let changed = self.splits.iter().filter(|split| split.version > version);
        (changed.map(Split::json).collect(), self.version)
    }

    /// Takes note of who is silent now.
    pub(super) fn look(&mut self, silent: Option<&SilentInfo>, conflicts: u64, now: u64) {
        let together: &[SilentMembers] = silent.map_or(&[], |silent| &silent.together);
        let with = silent.map_or(&[][..], |silent| &silent.with);
        for members in together {
            self.look_at(members, with, conflicts, now);
        }
        let is_silent = |name: &String| together.iter().any(|members| members.names.contains(name));
        let mut ended = Vec::new();
        for split in &mut self.splits {
            if split.ended.is_none() {
                let before = split.names.len();
                split.names.retain(is_silent);
                if split.names.is_empty() {
                    split.ended = Some(now);
                    if let Some((at, healed)) = self.healed
                        && now.saturating_sub(at) < NOTICED_MS
                    {
                        split.heal(healed);
                    }
                    let caught = self.caught.filter(|(at, _)| now.saturating_sub(*at) < NOTICED_MS);
                    split.came += caught.map_or(0, |(_, entries)| entries);
                    ended.push((split.were.len(), now.saturating_sub(split.began)));
                }
                if split.names.len() != before {
                    self.version += 1;
                    split.version = self.version;
                }
            }
            let is_near = split.ended.is_none_or(|ended| now.saturating_sub(ended) < AFTERMATH_MS);
            let found = conflicts.saturating_sub(split.conflicts_before);
            if is_near && split.healed.is_none() && found != split.conflicts {
                split.conflicts = found;
                self.version += 1;
                split.version = self.version;
            }
        }
        for (were, ms) in ended {
            let who = if were == 1 {
                String::from("the silent member is")
            } else {
                format!("all {were} are")
            };
            self.note("back", format!("{who} back, or left, after {} s", ms / 1_000), now);
        }
    }

    fn look_at(&mut self, members: &SilentMembers, with: &[String], conflicts: u64, now: u64) {
        let is_it = |split: &&mut Split| {
            split.ended.is_none() && members.names.iter().any(|name| split.names.contains(name))
        };
        let names: BTreeSet<String> = members.names.iter().cloned().collect();
        let began = now.saturating_sub(members.since_ms);
        self.version += 1;
        let version = self.version;
        let new: Vec<String> = match self.splits.iter_mut().find(is_it) {
            Some(split) => {
                let is_same = split.names == names && split.with == with;
                if is_same && split.changes == members.changes {
                    self.version -= 1;
                    return;
                }
                let is_new = |name: &&String| !split.were.contains(*name);
                let new: Vec<String> = members.names.iter().filter(is_new).cloned().collect();
                split.were.extend(names.iter().cloned());
                // Each time is that of this clock minus that of another.
                split.began = split.began.min(began);
                (split.names, split.with) = (names, with.to_vec());
                (split.changes, split.version) = (members.changes, version);
                new
            }
            None => {
                self.last_split += 1;
                self.splits.push_back(Split {
                    number: self.last_split,
                    version,
                    began,
                    ended: None,
                    were: names.clone(),
                    names,
                    with: with.to_vec(),
                    changes: members.changes,
                    conflicts_before: conflicts,
                    conflicts: 0,
                    healed: None,
                    came: 0,
                });
                while self.splits.len() > LIVE_SPLITS_MAX {
                    self.splits.pop_front();
                }
                members.names.clone()
            }
        };
        if !new.is_empty() {
            let what =
                if members.is_from_start { "not seen since the start" } else { "went silent" };
            self.note("silent", format!("{} {what}", names_text(&new)), now);
        }
    }

    /// Entries came from another node. After a short split that is all that there is of a healing.
    pub(super) fn catch_up(&mut self, entries: u64, now: u64) {
        self.caught = Some((now, entries));
        for split in &mut self.splits {
            if split.ended.is_some_and(|ended| now.saturating_sub(ended) < AFTERMATH_MS) {
                split.came += entries;
                self.version += 1;
                split.version = self.version;
            }
        }
    }

    /// The healing that is over belongs to the splits that are.
    pub(super) fn heal(&mut self, entries: u64, lasted_ms: u64, conflicts: u64, now: u64) {
        let healed = Healed { entries, lasted_ms, conflicts };
        self.healed = Some((now, healed));
        for split in &mut self.splits {
            if split.healed.is_none() && split.ended.is_some() {
                split.heal(healed);
                self.version += 1;
                split.version = self.version;
            }
        }
    }
}

impl Split {
    fn heal(&mut self, healed: Healed) {
        self.healed = Some(healed);
        self.conflicts = healed.conflicts.saturating_sub(self.conflicts_before);
    }

    fn json(&self) -> Json {
        let some = |names: &mut dyn Iterator<Item = &String>| {
            Json::from(names.take(LIVE_NAMES_MAX).cloned().collect::<Vec<_>>())
        };
        json!({
            "n": self.number,
            "began": self.began,
            "ended": self.ended,
            "silent": some(&mut self.were.iter()),
            "silent_count": self.were.len(),
            "with": some(&mut self.with.iter()),
            "with_count": self.with.len(),
            "changes": self.changes,
            "conflicts": self.conflicts,
            "entries": self.healed.map_or(self.came, |healed| healed.entries.max(self.came)),
            "healed_ms": self.healed.map(|healed| healed.lasted_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(names: &[&str], since_ms: u64, changes: u64) -> SilentInfo {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let together =
            vec![SilentMembers { names, since_ms, changes, is_from_start: false, refusing: None }];
        SilentInfo { together, with: vec![String::from("n2")] }
    }

    fn texts(history: &History) -> Vec<String> {
        history.events_after(0).filter_map(|(_, e)| Some(e["text"].as_str()?.to_owned())).collect()
    }

    #[test]
    fn a_split_is_one_row_from_its_beginning_until_it_is_healed() {
        let mut history = History::default();
        history.look(None, 5, 1_000);
        history.look(Some(&silent(&["n3"], 4_000, 7)), 5, 10_000);
        // Another one of them is noticed later; that changes came is told, too.
        history.look(Some(&silent(&["n3", "n4"], 5_000, 9)), 5, 11_000);
        let (splits, version) = history.splits_after(0);
        assert_eq!(splits.len(), 1);
        assert_eq!(splits[0]["began"], 6_000);
        assert_eq!(splits[0]["silent"], json!(["n3", "n4"]));
        assert_eq!((&splits[0]["changes"], &splits[0]["ended"]), (&json!(9), &Json::Null));
        history.look(Some(&silent(&["n3", "n4"], 5_500, 9)), 5, 11_500);
        assert_eq!(history.splits_after(version).0.len(), 0, "nothing is new");
        history.look(Some(&silent(&["n4"], 6_000, 9)), 6, 12_000);
        history.look(None, 7, 13_000);
        history.heal(40, 2_100, 8, 13_500);
        history.look(None, 20, 14_000);
        let (splits, _) = history.splits_after(version);
        assert_eq!(splits.len(), 1);
        assert_eq!((&splits[0]["ended"], &splits[0]["conflicts"]), (&json!(13_000), &json!(3)));
        assert_eq!((&splits[0]["entries"], &splits[0]["healed_ms"]), (&json!(40), &json!(2_100)));
        assert_eq!(
            texts(&history),
            ["n3 went silent", "n4 went silent", "all 2 are back, or left, after 7 s"]
        );
        // This time it is healed before it is noticed that the member is back.
        history.look(Some(&silent(&["n3"], 0, 0)), 20, 20_000);
        history.heal(1, 300, 21, 25_000);
        history.look(None, 21, 25_400);
        let (splits, _) = history.splits_after(0);
        assert_eq!(splits.len(), 2, "another one");
        assert_eq!((&splits[1]["healed_ms"], &splits[1]["conflicts"]), (&json!(300), &json!(1)));
        history.look(Some(&silent(&["n3"], 0, 0)), 30, 30_000);
        history.look(None, 30, 31_000);
        assert_eq!(
            history.splits_after(0).0[2]["healed_ms"],
            Json::Null,
            "nothing was to be healed"
        );
    }

    #[test]
    fn events_and_splits_are_bounded_and_read_from_a_number_on() {
        let mut history = History::default();
        for number in 1..=2 * LIVE_EVENTS_MAX as u64 {
            history.note("test", format!("event {number}"), number);
            history.look(Some(&silent(&[&format!("n{number}")], 0, 0)), 0, number);
            history.look(None, 0, number);
        }
        assert_eq!(history.events_after(0).count(), LIVE_EVENTS_MAX);
        assert_eq!(history.splits_after(0).0.len(), LIVE_SPLITS_MAX);
        let last = history.last;
        assert_eq!(
            history.events_after(last - 3).map(|(n, _)| n).collect::<Vec<_>>(),
            [last - 2, last - 1, last]
        );
        assert_eq!(history.events_after(last).count(), 0);
    }

    #[test]
    fn of_many_names_some_are_told_and_how_many_more_there_are() {
        let mut history = History::default();
        history.look(Some(&silent(&["n3", "n4"], 0, 0)), 0, 1_000);
        let all: Vec<String> = (10..160).map(|n| format!("n{n}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        history.look(Some(&silent(&all, 0, 0)), 0, 2_000);
        let told = texts(&history);
        assert!(told.iter().any(|text| text == "n3 and n4 went silent"), "{told:?}");
        let many = ", n20, n21 and 138 more went silent";
        assert!(told.iter().any(|text| text.ends_with(many)), "{told:?}");
    }
}
