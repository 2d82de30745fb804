//! Deviations that are planted in the drivers, one at a time: each must be found by the scenario that
//! `clients/conformance/deviations.toml` names. A scenario that finds none would be worth nothing.

use serde::Deserialize;

use crate::play::{Failure, Manner, Stopped, play};
use crate::scenario::{Language, Scenario};

/// A deviation that shows by chance has so many chances.
const CHANCES: usize = 3;
/// So much of what a scenario says is shown.
const SHOWN_CHARS: usize = 150;

/// A rule that drivers can be made to break.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Deviation {
    pub(crate) name: String,
    /// The scenario that must find it.
    pub(crate) found_by: String,
    /// The drivers that have it.
    pub(crate) languages: Vec<Language>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    deviation: Vec<Deviation>,
}

/// Reads the file's text. Each deviation is found by a scenario that is played in its languages.
pub(crate) fn parse(text: &str, scenarios: &[Scenario]) -> Result<Vec<Deviation>, String> {
    let Told { deviation: all } = toml::from_str(text).map_err(|error| error.to_string())?;
    for one in &all {
        let finder = finder(one, scenarios);
        let is_played = |language| finder.is_some_and(|finder| finder.plans.contains_key(language));
        if one.languages.is_empty() || !one.languages.iter().all(is_played) {
            return Err(format!("{:?}: {:?} cannot find it", one.name, one.found_by));
        }
    }
    Ok(all)
}

/// The scenario that must find it.
pub(crate) fn finder<'a>(one: &Deviation, scenarios: &'a [Scenario]) -> Option<&'a Scenario> {
    scenarios.iter().find(|scenario| scenario.stem == one.found_by)
}

/// Looks for a deviation in one language; how it was found.
pub(crate) fn find(
    one: &Deviation,
    scenarios: &[Scenario],
    language: Language,
    command: &str,
) -> Result<String, Stopped> {
    let missed = || Failure::Client(format!("{:?} is not found by {}", one.name, one.found_by));
    let scenario = finder(one, scenarios).ok_or_else(missed)?;
    let plan = scenario.plans.get(&language).ok_or_else(missed)?;
    let manner = Manner { command, planted: Some(&one.name), storm: None };
    for _ in 0..CHANCES {
        match play(scenario, plan, &manner) {
            Ok(_) => {}
            Err(Stopped { failure: Failure::Client(told), .. }) => {
                let why = told.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
                let why: String = why.chars().take(SHOWN_CHARS).collect();
                return Ok(format!(
                    "{language}: {:?} is found by {}: {why}",
                    one.name, one.found_by
                ));
            }
            Err(stopped) => return Err(stopped),
        }
    }
    Err(missed().into())
}
