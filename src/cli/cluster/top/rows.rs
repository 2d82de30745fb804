//! The table of `top`: what each node does, per second where that says more, the worst first.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use crate::cli::terminal::output::Table;
use crate::cli::terminal::units::{show_bytes, show_millis};
use crate::client::Message;
use crate::client::message::{array_items, as_str, as_u64, map_items};
use crate::model::ids::Millis;

/// What came of asking a node.
pub(super) enum Look {
    /// It answered.
    Answer {
        /// Its `status`.
        status: Message,
        /// Its `members`.
        members: Message,
        /// When, by this machine's clock.
        at_ms: Millis,
    },
    /// It did not, or is down; how the others see it.
    Silent {
        /// As `members` has it; empty if none has said.
        state: String,
        /// Why there is no answer; empty of one that is down, and was not asked.
        why: String,
    },
    /// It could not be asked: none of those that answered is linked to it, so its address is unknown.
    NoAddress {
        /// The same.
        state: String,
    },
}

/// A row of the table.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    /// `ok`, `not ready`, `warns`, `no answer` or `no address`.
    pub(super) state: &'static str,
    /// How the others see a node that does not answer.
    seen_as: String,
    /// Why it does not; empty where that is not known.
    why: String,
    /// None where it does not answer.
    numbers: Option<Numbers>,
}

/// What a node says of itself; rates are per second, none before there are two looks some time apart.
#[derive(Clone, PartialEq, Debug, Default)]
struct Numbers {
    uptime_ms: u64,
    entries: u64,
    requests: Option<f64>,
    writes: Option<f64>,
    applied: Option<f64>,
    conflicts: u64,
    conflicts_new: u64,
    /// Its changes that the slowest node it is linked to has not confirmed.
    behind: u64,
    clients: u64,
    watches: u64,
    /// What waits for clients and for the disk.
    waiting: u64,
    received: Option<f64>,
    sent: Option<f64>,
    warnings: Vec<String>,
}

/// The rows of a look, the worst first; `before`: the look before it, for rates; `every_ms`: the time between two looks.
pub(super) fn rows(
    now: &BTreeMap<String, Look>,
    before: &BTreeMap<String, Look>,
    every_ms: Millis,
) -> Vec<Row> {
    let row = |(name, look): (&String, &Look)| Row::new(name, look, before.get(name), every_ms);
    let mut rows: Vec<Row> = now.iter().map(row).collect();
    rows.sort_by(|a, b| b.badness().cmp(&a.badness()).then_with(|| a.name.cmp(&b.name)));
    rows
}

impl Row {
    fn new(name: &str, look: &Look, before: Option<&Look>, every_ms: Millis) -> Self {
        let (state, seen_as, why, numbers) = match look {
            Look::Silent { state, why } => ("no answer", state.as_str(), why.as_str(), None),
            Look::NoAddress { state } => ("no address", state.as_str(), "", None),
            Look::Answer { status, members, at_ms } => {
                let before = match before {
                    Some(Look::Answer { status, at_ms, .. }) => Some((status, *at_ms)),
                    _ => None,
                };
                let numbers = Numbers::new((status, *at_ms), members, before, every_ms);
                let state = match (status.bool("ready"), numbers.warnings.is_empty()) {
                    (Some(true), true) => "ok",
                    (Some(true), false) => "warns",
                    _ => "not ready",
                };
                (state, "", "", Some(numbers))
            }
        };
        let [name, seen_as, why] = [name, seen_as, why].map(str::to_owned);
        Self { name, state, seen_as, why, numbers }
    }

    fn badness(&self) -> (u8, u64, u64, u64) {
        let rank = match self.state {
            "no answer" | "no address" => 3,
            "not ready" => 2,
            "warns" => 1,
            _ => 0,
        };
        let of = |number: fn(&Numbers) -> u64| self.numbers.as_ref().map_or(0, number);
        (rank, of(|n| n.conflicts_new), of(|n| n.behind), of(|n| n.waiting))
    }

    /// Lines for people: what the node warns of, and why there is no answer.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let warnings = self.numbers.iter().flat_map(|numbers| &numbers.warnings);
        let why = Some(&self.why).filter(|why| !why.is_empty());
        warnings.chain(why).map(|warning| format!("{}: {warning}", self.name))
    }

    fn cells(&self) -> [String; 14] {
        let mut cells: [String; 14] = Default::default();
        let state = match self.seen_as.as_str() {
            "" => self.state.to_owned(),
            seen_as => format!("{} ({seen_as})", self.state),
        };
        let texts = match &self.numbers {
            None => vec![self.name.clone(), state],
            Some(n) => vec![
                self.name.clone(),
                state,
                show_millis(n.uptime_ms),
                n.entries.to_string(),
                show_rate(n.requests),
                show_rate(n.writes),
                show_rate(n.applied),
                match n.conflicts_new {
                    0 => n.conflicts.to_string(),
                    new => format!("{} (+{new})", n.conflicts),
                },
                n.behind.to_string(),
                n.clients.to_string(),
                n.watches.to_string(),
                show_bytes(n.waiting),
                show_byte_rate(n.received),
                show_byte_rate(n.sent),
            ],
        };
        for (cell, text) in cells.iter_mut().zip(texts) {
            *cell = text;
        }
        cells
    }

    /// For programs.
    pub(super) fn json(&self, time: &str) -> Json {
        let mut line = Map::new();
        line.insert("time".into(), time.into());
        line.insert("node".into(), self.name.as_str().into());
        line.insert("state".into(), self.state.into());
        line.insert("answers".into(), self.numbers.is_some().into());
        let Some(n) = &self.numbers else {
            line.insert("seen_as".into(), self.seen_as.as_str().into());
            if !self.why.is_empty() {
                line.insert("why".into(), self.why.as_str().into());
            }
            return Json::Object(line);
        };
        let fields: [(&str, Json); 14] = [
            ("uptime_ms", n.uptime_ms.into()),
            ("entries", n.entries.into()),
            ("requests_per_s", n.requests.into()),
            ("writes_per_s", n.writes.into()),
            ("applied_per_s", n.applied.into()),
            ("conflicts", n.conflicts.into()),
            ("conflicts_new", n.conflicts_new.into()),
            ("behind", n.behind.into()),
            ("clients", n.clients.into()),
            ("watches", n.watches.into()),
            ("waiting_bytes", n.waiting.into()),
            ("received_bytes_per_s", n.received.into()),
            ("sent_bytes_per_s", n.sent.into()),
            ("warnings", n.warnings.clone().into()),
        ];
        line.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Json::Object(line)
    }
}

impl Numbers {
    fn new(
        (status, at_ms): (&Message, Millis),
        members: &Message,
        before: Option<(&Message, Millis)>,
        every_ms: Millis,
    ) -> Self {
        let counters = counters(status);
        // A node that has started anew meanwhile counts from 0.
        let before = before.filter(|(before, _)| before.str("life") == status.str("life"));
        let old = before.map(|(status, at)| (self::counters(status), at_ms.saturating_sub(at)));
        let count = |name: &str| counters.get(name).copied().unwrap_or(0);
        let grown = |name: &str| {
            let (old, ms) = old.as_ref()?;
            let old = old.get(name).copied().unwrap_or(0);
            Some((count(name).saturating_sub(old), *ms))
        };
        // The first two looks follow each other at once: what these themselves ask for would be thousands in a second.
        let is_rate = |ms: Millis| ms >= every_ms / 2;
        let rate = |name: &str| grown(name).filter(|(_, ms)| is_rate(*ms)).map(per_second);
        let number = |name: &str| status.u64(name).unwrap_or(0);
        let storage = status.get("storage").unwrap_or_default();
        let unwritten = map_items(storage).find(|(key, _)| as_str(key) == Some("waiting_bytes"));
        let unwritten = unwritten.and_then(|(_, bytes)| as_u64(bytes)).unwrap_or(0);
        let warnings = array_items(status.get("warnings").unwrap_or_default()).filter_map(as_str);
        Self {
            uptime_ms: number("uptime_ms"),
            entries: number("live_entries"),
            requests: rate("client_requests"),
            writes: rate("writes"),
            applied: rate("applied"),
            conflicts: count("conflicts"),
            conflicts_new: grown("conflicts").map_or(0, |(grown, _)| grown),
            behind: behind(number("tick"), members),
            clients: number("connections"),
            watches: number("watches"),
            waiting: count("client_bytes_waiting").saturating_add(unwritten),
            received: rate("link_bytes_received"),
            sent: rate("link_bytes_sent"),
            warnings: warnings.map(str::to_owned).collect(),
        }
    }
}

fn counters(status: &Message) -> BTreeMap<String, u64> {
    let all = map_items(status.get("counters").unwrap_or_default());
    all.filter_map(|(name, count)| Some((as_str(name)?.to_owned(), as_u64(count)?))).collect()
}

/// A node's changes that the slowest of those it is linked to has not confirmed.
fn behind(tick: u64, members: &Message) -> u64 {
    let rows = array_items(members.get("result").unwrap_or_default());
    let rows = rows.filter_map(|row| Message::new(row).ok());
    let linked = rows.filter(|row| row.bool("linked") == Some(true));
    linked
        .filter_map(|row| row.u64("acked"))
        .map(|acked| tick.saturating_sub(acked))
        .max()
        .unwrap_or(0)
}

#[allow(clippy::cast_precision_loss, reason = "a rate need not be exact")]
fn per_second((grown, ms): (u64, Millis)) -> f64 {
    grown as f64 * 1e3 / ms.max(1) as f64
}

fn show_rate(rate: Option<f64>) -> String {
    match rate {
        None => String::new(),
        Some(rate) if rate > 0.0 && rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate of bytes is positive and far below 2^64"
)]
fn show_byte_rate(rate: Option<f64>) -> String {
    rate.map(|rate| format!("{}/s", show_bytes(rate as u64))).unwrap_or_default()
}

/// The lines of the table, its head first.
pub(super) fn lines(rows: &[Row]) -> Vec<String> {
    let head = [
        "NODE",
        "STATE",
        "UP",
        "ENTRIES",
        "REQ/S",
        "WRITES/S",
        "APPLIED/S",
        "CONFLICTS",
        "BEHIND",
        "CLIENTS",
        "WATCHES",
        "WAITING",
        "IN",
        "OUT",
    ];
    let mut table = Table::with_head(&head);
    rows.iter().for_each(|row| table.row(row.cells()));
    table.lines()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Fields;

    struct Told {
        ready: bool,
        life: &'static str,
        requests: u64,
        conflicts: u64,
        acked: u64,
    }

    const QUIET: Told = Told { ready: true, life: "n~1", requests: 0, conflicts: 0, acked: 50 };

    fn look(told: &Told, at_ms: Millis) -> Look {
        let mut counters = Fields::new();
        counters.u64("client_requests", told.requests).u64("conflicts", told.conflicts);
        let mut status = Fields::new();
        status.bool("ready", told.ready).str("life", told.life).u64("tick", 50);
        status.raw("counters", &counters.encode());
        let mut member = Fields::new();
        member.bool("linked", true).u64("acked", told.acked);
        let mut members = Fields::new();
        members.raw("result", &[&[0x91], &member.encode()[..]].concat());
        let of = |fields: &Fields| Message::new(&fields.encode()).unwrap();
        Look::Answer { status: of(&status), members: of(&members), at_ms }
    }

    fn looks(all: Vec<(&str, Look)>) -> BTreeMap<String, Look> {
        all.into_iter().map(|(name, look)| (name.to_owned(), look)).collect()
    }

    #[test]
    fn the_worst_comes_first() {
        let now = looks(vec![
            ("a", look(&QUIET, 0)),
            ("b", look(&Told { acked: 20, ..QUIET }, 0)),
            ("c", look(&Told { ready: false, ..QUIET }, 0)),
            ("d", Look::Silent { state: "down".into(), why: "it is silent".into() }),
            ("e", look(&Told { acked: 10, ..QUIET }, 0)),
        ]);
        let rows = rows(&now, &BTreeMap::new(), 1_000);
        let order: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.state)).collect();
        let expected =
            [("d", "no answer"), ("c", "not ready"), ("e", "ok"), ("b", "ok"), ("a", "ok")];
        assert_eq!(order, expected);
        let lines = lines(&rows);
        assert!(lines[0].starts_with("NODE  STATE             UP"), "{}", lines[0]);
        assert!(lines[1].starts_with("d     no answer (down)  -"), "{}", lines[1]);
        assert_eq!(rows[2].json("t")["behind"], 40);
        assert_eq!(rows[0].json("t")["seen_as"], "down");
        assert_eq!(rows[0].json("t")["why"], "it is silent");
        assert_eq!(rows[0].warnings().collect::<Vec<_>>(), ["d: it is silent"]);
        assert_eq!(rows[1].json("t").get("why"), None);
    }

    /// Of two looks one after the other, a single request made 500 in a second.
    #[test]
    fn looks_that_follow_each_other_at_once_give_no_rates() {
        let before = looks(vec![("a", look(&QUIET, 1_000))]);
        let now = looks(vec![("a", look(&Told { requests: 1, conflicts: 2, ..QUIET }, 1_002))]);
        let at_once = rows(&now, &before, 1_000)[0].json("t");
        assert_eq!(
            (&at_once["requests_per_s"], &at_once["conflicts_new"]),
            (&Json::Null, &2.into())
        );
        assert_eq!(rows(&now, &before, 4)[0].json("t")["requests_per_s"], 500.0);
        // Nodes do not answer after exactly that time.
        let now = looks(vec![("a", look(&Told { requests: 9, ..QUIET }, 1_900))]);
        assert_eq!(rows(&now, &before, 1_000)[0].json("t")["requests_per_s"], 10.0);
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks_of_one_life() {
        let before = looks(vec![
            ("a", look(&Told { requests: 100, conflicts: 1, ..QUIET }, 1_000)),
            ("b", look(&Told { requests: 100, ..QUIET }, 1_000)),
        ]);
        let now = looks(vec![
            ("a", look(&Told { requests: 600, conflicts: 3, ..QUIET }, 3_000)),
            ("b", look(&Told { requests: 7, life: "n~2", ..QUIET }, 3_000)),
        ]);
        let rows = rows(&now, &before, 2_000);
        let json: Vec<Json> = rows.iter().map(|row| row.json("t")).collect();
        assert_eq!(json[0]["node"], "a", "it has found conflicts");
        assert_eq!(
            (&json[0]["requests_per_s"], &json[0]["conflicts_new"]),
            (&250.0.into(), &2.into())
        );
        assert_eq!(json[1]["requests_per_s"], Json::Null, "it has started anew");
        assert_eq!(rows[0].cells()[4], "250");
        assert_eq!(rows[0].cells()[7], "3 (+2)");
    }
}
