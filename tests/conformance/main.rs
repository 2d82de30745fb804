//! The scenarios of `clients/conformance`, each played with the driver of each language: one judge for all clients, who
//! speaks the protocol by code that none of them has. A test is named after its scenario's file and a language, `08-not-ready::python`.
//!
//! `clients/conformance/run.sh` builds all that it needs and starts it. By itself, `cargo test --test conformance` and
//! `cargo nextest run --test conformance` play the Rust client; more comes by variables:
//!
//! - `DISTKV_CONFORMANCE_PYTHON`, `DISTKV_CONFORMANCE_GO`, `DISTKV_CONFORMANCE_RUST`: the shell's command, without an
//!   `exec`, that starts that language's driver. Without any, Rust's is `examples/conformance_driver`.
//! - `DISTKV_CONFORMANCE_ONLY`: names of scenarios' files, with spaces in between; else all are played.
//! - `DISTKV_CONFORMANCE_RUNS`: how often each is played; then `::run-2` and so on are added to the names.
//! - `DISTKV_CONFORMANCE_STORM`: seconds of a longer storm, with one at random nodes behind it.
//! - `DISTKV_CONFORMANCE_PLANTED`: with `1`, the drivers break one rule at a time instead, and each must be found.
//! - `DISTKV_NODE_BIN`: another program of a node than the one that is built with this test.
//!
//! `--test-threads` says how many are played at once: 4, if it is not said.

#![allow(
    clippy::disallowed_methods,
    reason = "a judge of clients on real nodes has deadlines by the clock"
)]

mod cluster;
mod driver;
mod fits;
mod judge;
mod options;
mod planted;
mod play;
#[path = "../program/processes/mod.rs"]
mod processes;
mod scenario;
mod script;
mod scripted;
mod step;
mod storm;
mod table;

use std::env;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use libtest_mimic::{Arguments, Failed, Trial};

use options::Options;
use planted::Deviation;
use play::{Manner, play};
use scenario::{Language, Scenario};
use table::Report;

/// Scenarios that are played at once, unless it is said: they wait more than they work.
const AT_ONCE: usize = 4;

/// Where the scenarios are, and what goes with them.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/conformance");

/// What all tests read.
struct Context {
    scenarios: Vec<Scenario>,
    deviations: Vec<Deviation>,
    options: Options,
    report: Report,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let context = match Context::read() {
        Ok(context) => Arc::new(context),
        Err(told) => {
            eprintln!("{told}");
            return ExitCode::from(2);
        }
    };
    let begun = Instant::now();
    let conclusion = libtest_mimic::run(&arguments, trials(&context));
    // Of a process for each test, the sum of one is none.
    if !arguments.list && env::var_os("NEXTEST").is_none() {
        print!("{}", context.report.shown(&context.scenarios));
        let failed = match conclusion.num_failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let took = begun.elapsed().as_secs_f64();
        println!("{} passed{failed} in {took:.2}s", conclusion.num_passed);
    }
    conclusion.exit_code()
}

impl Context {
    fn read() -> Result<Context, String> {
        let folder = Path::new(FOLDER);
        let scenarios = Scenario::read_all(&folder.join("scenarios"))?;
        let file = folder.join("deviations.toml");
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let deviations = fs::read_to_string(&file).map_err(|error| told(&error))?;
        let deviations = planted::parse(&deviations, &scenarios).map_err(|error| told(&error))?;
        let options = Options::read()?;
        options.check(&scenarios)?;
        Ok(Context { scenarios, deviations, options, report: Report::default() })
    }

    /// Plays one scenario in one language.
    fn play(&self, index: usize, language: Language) -> Result<(), Failed> {
        let missing = || Failed::from("it is not played in this language");
        let scenario = self.scenarios.get(index).ok_or_else(missing)?;
        let plan = scenario.plans.get(&language).ok_or_else(missing)?;
        let command = self.options.command(language)?;
        let manner = Manner { command, planted: None, storm: self.options.storm };
        let begun = Instant::now();
        self.report.begin(scenario.number, language);
        let played = play(scenario, plan, &manner);
        self.report.end(scenario.number, language, played.is_ok(), begun.elapsed());
        for note in played? {
            self.report.note(format!("{language}: {note}"));
        }
        Ok(())
    }

    /// Looks for a planted deviation in one language.
    fn find(&self, one: &Deviation, language: Language) -> Result<(), Failed> {
        let command = self.options.command(language)?;
        let found = planted::find(one, &self.scenarios, language, command);
        self.report.add_planted(found.is_ok());
        self.report.note(found?);
        Ok(())
    }
}

/// All tests: first those of the judge, since without them the others are worth nothing.
fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = judge::trials();
    let all = Arc::clone(context);
    trials.push(Trial::test("readme::has_the_table_of_scenarios", move || {
        let readme = fs::read_to_string(Path::new(FOLDER).join("README.md"))?;
        match table::differences(&readme, &all.scenarios) {
            wrong if wrong.is_empty() => Ok(()),
            wrong => Err(Failed::from(wrong.join("\n"))),
        }
    }));
    trials.extend(match context.options.is_planted {
        true => finding(context),
        false => playing(context),
    });
    trials
}

/// The scenarios in all languages that there are drivers of, again and again if that is asked for.
fn playing(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let runs = context.options.runs;
    for run in 1..=runs {
        for (index, scenario) in context.scenarios.iter().enumerate() {
            let languages = context.options.drivers.keys();
            for language in languages.filter(|language| scenario.plans.contains_key(language)) {
                if !context.options.wants(scenario) {
                    continue;
                }
                let mut name = format!("{}::{language}", scenario.stem);
                if runs > 1 {
                    name = format!("{name}::run-{run}");
                }
                let (context, language) = (Arc::clone(context), *language);
                trials.push(Trial::test(name, move || context.play(index, language)));
            }
        }
    }
    trials
}

/// The planted deviations in all languages that there are drivers of.
fn finding(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for one in &context.deviations {
        let is_wanted = planted::finder(one, &context.scenarios)
            .is_some_and(|scenario| context.options.wants(scenario));
        for language in one.languages.iter().filter(|_| is_wanted) {
            if context.options.drivers.contains_key(language) {
                let name = format!("planted::{}::{language}", one.name.replace(' ', "-"));
                let (context, one, language) = (Arc::clone(context), one.clone(), *language);
                trials.push(Trial::test(name, move || context.find(&one, language)));
            }
        }
    }
    trials
}
