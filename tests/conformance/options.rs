//! What is played, and with which drivers. The words that a test harness has do not suffice for that, so that it comes
//! by variables of the environment, which `main.rs` lists.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;

use crate::processes::PROGRAM;
use crate::scenario::{Language, Scenario};

/// What all the variables begin with.
const PREFIX: &str = "DISTKV_CONFORMANCE_";
/// How often each scenario may be played.
const RUNS_MAX: usize = 10_000;

/// What is played, and how.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// The commands of a shell that start the drivers, or what to do where there is none.
    pub(crate) drivers: BTreeMap<Language, Result<String, String>>,
    /// The scenarios' files by their names; none: all.
    pub(crate) only: Option<Vec<String>>,
    pub(crate) runs: usize,
    /// Seconds of a longer storm.
    pub(crate) storm: Option<f64>,
    /// Whether the drivers break one rule at a time.
    pub(crate) is_planted: bool,
}

impl Options {
    /// Those of this process.
    pub(crate) fn read() -> Result<Options, String> {
        Options::from(|name| env::var(name).ok())
    }

    /// By a function that knows the variables.
    pub(crate) fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Options, String> {
        let told = |name: &str| {
            variable(&format!("{PREFIX}{name}")).filter(|value| !value.trim().is_empty())
        };
        let wrong = |name: &str, value: &str, what: &str| {
            Err(format!("{PREFIX}{name} is {value:?}, and not {what}"))
        };
        let mut drivers = BTreeMap::new();
        for language in Language::ALL {
            if let Some(command) = told(&language.name().to_uppercase()) {
                drivers.insert(language, Ok(command));
            }
        }
        if drivers.is_empty() {
            drivers.insert(Language::Rust, own_driver());
        }
        let only = told("ONLY")
            .map(|names| names.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let runs = match told("RUNS") {
            None => 1,
            Some(value) => match value.parse() {
                Ok(runs) if (1..=RUNS_MAX).contains(&runs) => runs,
                _ => return wrong("RUNS", &value, "how often each scenario is played"),
            },
        };
        let storm = match told("STORM") {
            None => None,
            Some(value) => match value.parse::<f64>() {
                Ok(seconds) if seconds > 0.0 && seconds.is_finite() => Some(seconds),
                _ => return wrong("STORM", &value, "a number of seconds"),
            },
        };
        let is_planted = match told("PLANTED").as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(value) => return wrong("PLANTED", value, "0 or 1"),
        };
        Ok(Options { drivers, only, runs, storm, is_planted })
    }

    /// The command that starts a language's driver.
    pub(crate) fn command(&self, language: Language) -> Result<&str, String> {
        match self.drivers.get(&language) {
            Some(Ok(command)) => Ok(command),
            Some(Err(advice)) => Err(advice.clone()),
            None => Err(format!("no driver for {language} was named")),
        }
    }

    /// Whether this scenario is among those to be played.
    pub(crate) fn wants(&self, scenario: &Scenario) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&scenario.stem))
    }

    /// Whether there is each scenario that was asked for.
    pub(crate) fn check(&self, scenarios: &[Scenario]) -> Result<(), String> {
        let is_there = |name: &&String| scenarios.iter().any(|one| one.stem == **name);
        match self.only.iter().flatten().find(|name| !is_there(name)) {
            Some(name) => Err(format!("{PREFIX}ONLY: there is no scenario {name:?}")),
            None => Ok(()),
        }
    }
}

/// The example beside the node's program.
fn own_driver() -> Result<String, String> {
    let folder = Path::new(PROGRAM).parent().unwrap_or(Path::new("."));
    let program = folder.join("examples/conformance_driver");
    if program.is_file() {
        return Ok(format!("'{}'", program.display().to_string().replace('\'', r"'\''")));
    }
    Err(format!(
        "there is no {}: build it with `cargo build --example conformance_driver`, or name drivers \
         by variables, as clients/conformance/run.sh does",
        program.display()
    ))
}
