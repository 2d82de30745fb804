//! The table of scenarios and languages: as the README has it, and with what came of playing them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use parking_lot::Mutex;

use crate::scenario::{Language, Scenario};

/// What came of one scenario with one language.
#[derive(Clone, Copy, Default)]
struct Played {
    passed: usize,
    failed: usize,
    time: Duration,
}

/// What came of all that was played in this process.
#[derive(Default)]
pub(crate) struct Report {
    played: Mutex<BTreeMap<(u32, Language), Played>>,
    notes: Mutex<Vec<String>>,
    /// Planted deviations: those that were to be found, and those that were.
    planted: Mutex<(usize, usize)>,
}

impl Report {
    /// A scenario is played. Until it has passed, it has failed, even if nobody comes to say so.
    pub(crate) fn begin(&self, number: u32, language: Language) {
        self.played.lock().entry((number, language)).or_default().failed += 1;
    }

    /// It was played for so long.
    pub(crate) fn end(&self, number: u32, language: Language, is_passed: bool, time: Duration) {
        let mut played = self.played.lock();
        let one = played.entry((number, language)).or_default();
        one.time += time;
        if is_passed {
            one.failed = one.failed.saturating_sub(1);
            one.passed += 1;
        }
    }

    /// A planted deviation was looked for.
    pub(crate) fn add_planted(&self, is_found: bool) {
        let mut planted = self.planted.lock();
        planted.0 += 1;
        planted.1 += usize::from(is_found);
    }

    /// What else there is to tell.
    pub(crate) fn note(&self, note: String) {
        self.notes.lock().push(note);
    }

    /// All of it, for people.
    pub(crate) fn shown(&self, scenarios: &[Scenario]) -> String {
        let mut text = String::new();
        for note in self.notes.lock().iter() {
            let _ = writeln!(text, "{note}");
        }
        let (planted, found) = *self.planted.lock();
        if planted > 0 {
            let _ = writeln!(text, "{found} of {planted} planted deviations were found");
        }
        let played = self.played.lock();
        if played.is_empty() {
            return text;
        }
        let languages: BTreeSet<Language> = played.keys().map(|(_, language)| *language).collect();
        let names: Vec<&str> = languages.iter().map(|language| language.name()).collect();
        let _ = writeln!(text, "| | scenario | {} |", names.join(" | "));
        let _ = writeln!(text, "|---|---|{}", "---|".repeat(names.len()));
        for one in scenarios {
            let own = |language: &Language| played.get(&(one.number, *language));
            if languages.iter().all(|language| own(language).is_none()) {
                continue;
            }
            let cells = languages.iter().map(|language| {
                own(language)
                    .map_or("–".to_owned(), |played| played_cell(one, *language, *played))
            });
            let cells: Vec<String> = cells.collect();
            let _ = writeln!(text, "| {} | {} | {} |", one.number, one.title, cells.join(" | "));
        }
        for language in languages {
            let own = played.iter().filter(|((_, of), _)| *of == language);
            let time: Duration = own.map(|(_, played)| played.time).sum();
            let seconds = time.as_secs_f64();
            let _ =
                writeln!(text, "{language}: {seconds:.1} s, were its scenarios played one by one");
        }
        text
    }
}

fn played_cell(scenario: &Scenario, language: Language, played: Played) -> String {
    let Played { passed, failed, time } = played;
    let each = time.as_secs_f64() / f64::from(u32::try_from(passed + failed).unwrap_or(1).max(1));
    let word = match failed {
        0 => cell(scenario, language),
        failed => format!("FAILED {failed}"),
    };
    let runs = if passed > 1 { format!(" {passed} times,") } else { String::new() };
    format!("{word}{runs} {each:.1} s")
}

/// What the README says of a scenario in a language.
pub(crate) fn cell(scenario: &Scenario, language: Language) -> String {
    let Some(plan) = scenario.plans.get(&language) else { return "–".to_owned() };
    let mut told = vec!["✓".to_owned()];
    if plan.left_out > 0 {
        told.push(format!("{} left out", plan.left_out));
    }
    if plan.otherwise > 0 {
        told.push(format!("{} otherwise", plan.otherwise));
    }
    told.join(", ")
}

/// The README's row of a scenario.
fn row(scenario: &Scenario) -> String {
    let nodes = if scenario.is_real() { "real" } else { "scripted" };
    let cells = Language::ALL.map(|language| cell(scenario, language)).join(" | ");
    format!("| {} | {} | {nodes} | {cells} |", scenario.number, scenario.title)
}

/// What is wrong with the README's table: rows that it lacks, and rows that no scenario has any more.
pub(crate) fn differences(readme: &str, scenarios: &[Scenario]) -> Vec<String> {
    let rows: BTreeSet<String> = scenarios.iter().map(row).collect();
    let is_of_a_scenario = |line: &&str| {
        line.starts_with("| ") && (line.contains(" | real | ") || line.contains(" | scripted | "))
    };
    let there: BTreeSet<String> =
        readme.lines().filter(is_of_a_scenario).map(str::to_owned).collect();
    let lacking = rows.difference(&there).map(|row| format!("lacking: {row}"));
    let left = there.difference(&rows).map(|row| format!("of no scenario: {row}"));
    lacking.chain(left).collect()
}
