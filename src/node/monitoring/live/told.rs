//! What one page was told, so that it is told only what is new. A page that takes nothing for a while gets the latest
//! then, not what it has missed: nothing is queued for it.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::history::History;
use super::rates::Rates;
use super::view::View;

/// Members that are told of at once.
const MEMBERS_AT_ONCE: usize = 200;

/// What a page wants to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::node) struct Parts {
    /// The cluster, and its members.
    pub(in crate::node) cluster: bool,
    /// Rates, and how busy shards are.
    pub(in crate::node) traffic: bool,
    /// Events and splits.
    pub(in crate::node) history: bool,
    /// Whether something has changed in the data; not what.
    pub(in crate::node) data: bool,
}

impl Parts {
    /// The parts that are named, with commas between them; none if one of them is not known.
    pub(in crate::node) fn parse(text: &str) -> Option<Self> {
        let mut parts = Self::default();
        for part in text.split(',') {
            match part {
                "cluster" => parts.cluster = true,
                "traffic" => parts.traffic = true,
                "history" => parts.history = true,
                "data" => parts.data = true,
                _ => return None,
            }
        }
        Some(parts)
    }

    /// Whether they are for operators.
    pub(in crate::node) fn is_of_cluster(self) -> bool {
        self.cluster || self.traffic || self.history
    }
}

/// See the module.
pub(in crate::node) struct Told {
    parts: Parts,
    cluster: Json,
    members: BTreeMap<String, Json>,
    known: Option<u64>,
    event: u64,
    splits: u64,
    rates: Option<(u64, u64)>,
    was_greeted: bool,
}

impl Told {
    pub(in crate::node) fn new(parts: Parts) -> Self {
        let (cluster, members) = (Json::Null, BTreeMap::new());
        let was_greeted = false;
        Self { parts, cluster, members, known: None, event: 0, splits: 0, rates: None, was_greeted }
    }

    /// What comes first: the time here, milliseconds since 1970, by which all other times are to be read.
    pub(super) fn hello(&mut self, now: u64) -> Option<(&'static str, String)> {
        let is_first = !std::mem::replace(&mut self.was_greeted, true);
        is_first.then(|| ("hello", json!({"now": now}).to_string()))
    }

    pub(super) fn wants_view(&self) -> bool {
        self.parts.cluster
    }

    /// `known`: how many changes the node knows.
    pub(super) fn of_view(
        &mut self,
        view: Option<&View>,
        known: u64,
    ) -> Vec<(&'static str, String)> {
        let mut news = Vec::new();
        if self.parts.data && self.known != Some(known) {
            self.known = Some(known);
            news.push(("data", json!({"known": known}).to_string()));
        }
        let Some(view) = view else { return news };
        if self.cluster != view.cluster {
            self.cluster = view.cluster.clone();
            news.push(("cluster", self.cluster.to_string()));
        }
        let gone: Vec<String> =
            self.members.keys().filter(|name| !view.members.contains_key(*name)).cloned().collect();
        gone.iter().for_each(|name| drop(self.members.remove(name)));
        let changed: Vec<(&String, &Json)> = view
            .members
            .iter()
            .filter(|(name, row)| self.members.get(*name) != Some(row))
            .collect();
        for rows in changed.chunks(MEMBERS_AT_ONCE) {
            let rows: Vec<&Json> = rows.iter().map(|(_, row)| *row).collect();
            news.push(("members", json!({"rows": rows}).to_string()));
        }
        if !gone.is_empty() {
            news.push(("members", json!({"rows": [], "gone": gone}).to_string()));
        }
        for (name, row) in changed {
            self.members.insert(name.clone(), row.clone());
        }
        news
    }

    pub(super) fn of_history(&mut self, history: &History) -> Option<(&'static str, String)> {
        if !self.parts.history {
            return None;
        }
        let events: Vec<(u64, &Json)> = history.events_after(self.event).collect();
        let (splits, version) = history.splits_after(self.splits);
        if events.is_empty() && splits.is_empty() {
            return None;
        }
        self.event = events.last().map_or(self.event, |(number, _)| *number);
        self.splits = version;
        let events: Vec<&Json> = events.into_iter().map(|(_, event)| event).collect();
        Some(("history", json!({"events": events, "splits": splits}).to_string()))
    }

    pub(super) fn of_rates(&mut self, rates: &Rates) -> Option<(&'static str, String)> {
        let last = rates.last();
        if !self.parts.traffic || self.rates == Some(last) {
            return None;
        }
        let before = self.rates.replace(last);
        Some(("rates", rates.after(before.unwrap_or_default(), before.is_none()).to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(conflicts: u64, members: &[(&str, &str)]) -> View {
        let row = |(name, state): &(&str, &str)| {
            ((*name).to_owned(), json!({"name": name, "state": state}))
        };
        View {
            cluster: json!({"conflicts": conflicts}),
            members: members.iter().map(row).collect(),
        }
    }

    fn all() -> Parts {
        Parts::parse("cluster,traffic,history,data").unwrap()
    }

    #[test]
    fn a_page_is_told_what_is_new_and_nothing_twice() {
        let mut told = Told::new(all());
        let first = told.of_view(Some(&view(0, &[("a", "up"), ("b", "up")])), 7);
        let kinds: Vec<&str> = first.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, ["data", "cluster", "members"]);
        assert!(told.of_view(Some(&view(0, &[("a", "up"), ("b", "up")])), 7).is_empty());
        let news = told.of_view(Some(&view(0, &[("a", "down"), ("c", "up")])), 7);
        assert_eq!(
            news,
            [
                (
                    "members",
                    r#"{"rows":[{"name":"a","state":"down"},{"name":"c","state":"up"}]}"#
                        .to_owned()
                ),
                ("members", r#"{"rows":[],"gone":["b"]}"#.to_owned()),
            ]
        );
    }

    #[test]
    fn history_and_rates_go_on_where_they_ended() {
        let (mut told, mut history, mut rates) =
            (Told::new(all()), History::default(), Rates::default());
        assert!(told.of_history(&history).is_none());
        history.note("test", String::from("one"), 1);
        assert!(told.of_history(&history).unwrap().1.contains("one"));
        assert!(told.of_history(&history).is_none());
        history.note("test", String::from("two"), 2);
        let news = told.of_history(&history).unwrap().1;
        assert!(news.contains("two") && !news.contains("one"), "{news}");
        assert!(
            told.of_rates(&rates).unwrap().1.contains("own changes"),
            "also before the first second"
        );
        rates.add(&[0; 24], Default::default(), &[], 1);
        assert!(!told.of_rates(&rates).unwrap().1.contains("own changes"));
        assert!(told.of_rates(&rates).is_none());
    }

    #[test]
    fn only_what_was_asked_for_is_told() {
        assert_eq!(Parts::parse("cluster,nonsense"), None);
        assert_eq!(Parts::parse(""), None);
        let parts = Parts::parse("data").unwrap();
        assert!(!parts.is_of_cluster());
        let mut told = Told::new(parts);
        let mut history = History::default();
        history.note("test", String::from("one"), 1);
        assert!(!told.wants_view());
        assert!(told.of_history(&history).is_none());
        assert!(told.of_rates(&Rates::default()).is_none());
        assert_eq!(told.of_view(None, 3), [("data", r#"{"known":3}"#.to_owned())]);
    }
}
