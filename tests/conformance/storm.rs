//! A storm: tasks write and read while nodes are killed and come back. With a longer one goes another, in which writes
//! go to nodes at random, to show how many conflicts routing spares.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value as Json, json};

use crate::play::{Failure, Play};
use crate::step::{Order, Storm};

/// Seconds from one kill to the next in a longer storm.
const EVERY_IN_LONGER: f64 = 4.0;
/// With routing, conflicts must be so many times fewer.
const FEWER: f64 = 100.0;

/// How a storm is to be.
pub(crate) struct Weather {
    tasks: u64,
    seconds: f64,
    every: f64,
    /// Whether there is another, at random nodes.
    is_longer: bool,
}

/// What a storm came to.
#[derive(Debug)]
struct Outcome {
    writes: u64,
    missing: Json,
    errors: Json,
    conflicts: u64,
}

impl Weather {
    /// As the file says, or as long as it was asked for.
    pub(crate) fn new(told: &Storm, longer: Option<f64>) -> Weather {
        Weather {
            tasks: told.tasks,
            seconds: longer.unwrap_or(told.seconds),
            every: longer.map_or(told.every, |_| EVERY_IN_LONGER),
            is_longer: longer.is_some(),
        }
    }

    /// Lets it rage; what there is to tell of it.
    pub(crate) fn rage(&self, play: &mut Play<'_>) -> Result<Option<String>, Failure> {
        let order = json!({ "do": "storm_begin", "tasks": self.tasks });
        let (few, mut kills) = self.once(play, &order)?;
        if has_any(&few.errors) || has_any(&few.missing) || few.writes < self.tasks {
            return Err(Failure::Client(format!("{kills} kills: {few:?}")));
        }
        if !self.is_longer {
            return Ok(None);
        }
        // At nodes of their own: what these have found so far would count.
        let cluster = play.place.real()?;
        cluster.renew()?;
        let seeds = cluster.seeds();
        play.move_to(seeds.clone())?;
        let order = json!({ "do": "storm_begin", "tasks": self.tasks, "nodes": seeds });
        let (many, more) = self.once(play, &order)?;
        kills += more;
        if rate(&few) > rate(&many) / FEWER {
            return Err(Failure::Client(format!(
                "conflicts are not a hundred times fewer: {few:?}, at random nodes {many:?}"
            )));
        }
        let shown = |told: &Outcome| {
            let Outcome { writes, missing, conflicts, .. } = told;
            format!("{writes} writes, {missing} missing, {conflicts} conflicts")
        };
        Ok(Some(format!(
            "{} s, {kills} kills in all; at preferred nodes: {}; at random nodes: {}",
            self.seconds,
            shown(&few),
            shown(&many)
        )))
    }

    /// One storm, and how many kills it had.
    fn once(&self, play: &mut Play<'_>, begin: &Json) -> Result<(Outcome, usize), Failure> {
        let answer = play.driver.tell(begin)?;
        if answer != json!({ "ok": {} }) {
            return Err(Failure::Client(format!("the storm does not begin: {answer}")));
        }
        let time = |seconds: f64| {
            Duration::try_from_secs_f64(seconds).map_err(|error| Failure::Setup(error.to_string()))
        };
        let (end, half) = (Instant::now() + time(self.seconds)?, time(self.every / 2.0)?);
        let mut kills = 0;
        while Instant::now() < end {
            // The kills are this far apart; nothing is waited for.
            thread::sleep(half);
            let cluster = play.place.real()?;
            let names = cluster.names();
            // One after the other: which node the paths are taken to is no matter of luck.
            let victim = names.get(kills % names.len().max(1)).cloned().unwrap_or_default();
            cluster.kill(&victim)?;
            kills += 1;
            thread::sleep(half);
            cluster.rejoin(&victim)?;
            let live: BTreeMap<_, _> = names.into_iter().map(|name| (name, true)).collect();
            let mut order = Map::new();
            order.insert("do".to_owned(), "view".into());
            let expect = Some(json!({ "nodes": live }));
            play.order(&Order { order, expect, until: true, ..Order::default() })?;
        }
        let answer = play.driver.tell(&json!({ "do": "storm_end" }))?;
        let told = |name: &str| answer.get("ok").and_then(|told| told.get(name)).cloned();
        let writes = told("writes").as_ref().and_then(Json::as_u64);
        let (Some(writes), Some(missing), Some(errors)) = (writes, told("missing"), told("errors"))
        else {
            return Err(Failure::Client(format!("the storm does not end: {answer}")));
        };
        let conflicts = play.place.real()?.conflicts()?;
        Ok((Outcome { writes, missing, errors, conflicts }, kills))
    }
}

/// Conflicts per write.
#[allow(clippy::cast_precision_loss, reason = "no storm has so many")]
fn rate(told: &Outcome) -> f64 {
    told.conflicts as f64 / told.writes.max(1) as f64
}

/// Whether a driver tells that there is something: a number, or a list.
fn has_any(told: &Json) -> bool {
    match told {
        Json::Null => false,
        Json::Bool(told) => *told,
        Json::Number(told) => told.as_f64() != Some(0.0),
        Json::String(told) => !told.is_empty(),
        Json::Array(told) => !told.is_empty(),
        Json::Object(told) => !told.is_empty(),
    }
}
