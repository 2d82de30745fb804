//! A row: what was measured without and with something, in pairs, and the table.

use distkv_command::error::CliError;
use distkv_command::output::{Output, Table};
use serde_json::json;

use crate::compare::figures::{Form, Series};

/// What was measured in pairs.
#[derive(Debug, Clone)]
pub(super) struct Row {
    name: String,
    /// Digits behind the point.
    digits: usize,
    without: Series,
    with: Series,
}

/// Which of the two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Without,
    With,
}

impl Way {
    /// Both, in the order of a pair: every second one the other way round, since what comes second may be better off.
    pub(super) fn of_pair(number: u32) -> [Self; 2] {
        match number % 2 {
            0 => [Self::Without, Self::With],
            _ => [Self::With, Self::Without],
        }
    }
}

impl Row {
    pub(super) fn new(name: impl Into<String>, digits: usize) -> Self {
        let (without, with) = (Series::default(), Series::default());
        Self { name: name.into(), digits, without, with }
    }

    pub(super) fn add(&mut self, way: Way, figure: f64) {
        match way {
            Way::Without => self.without.0.push(figure),
            Way::With => self.with.0.push(figure),
        }
    }

    /// Of each pair, what is with by what is without; none of what is nothing without.
    fn ratios(&self) -> Series {
        let pairs = self.without.0.iter().zip(&self.with.0);
        let pairs = pairs.filter(|(without, _)| **without > 0.0);
        Series(pairs.map(|(without, with)| with / without).collect())
    }

    fn cells(&self) -> Vec<String> {
        let (without, with) = (self.without.show(self.digits), self.with.show(self.digits));
        vec![self.name.clone(), without, with, self.ratios().show(3)]
    }
}

/// Prints all rows.
pub(super) fn print(rows: &[Row], form: Form, pairs: u32) -> Result<(), CliError> {
    let mut output = Output::new(form == Form::Json);
    let head = ["FIGURE", "WITHOUT", "WITH", "RATIO"];
    match form {
        Form::Json => {
            for row in rows {
                let [without, with, ratio] =
                    [row.without.json(), row.with.json(), row.ratios().json()];
                let line = json!({
                    "figure": row.name, "pairs": pairs, "without": without, "with": with, "ratio": ratio,
                });
                output.line(&line.to_string())?;
            }
        }
        Form::Markdown => {
            let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
            output.line(&line(&head.map(str::to_owned)))?;
            output.line(&line(&vec!["---".to_owned(); head.len()]))?;
            rows.iter().try_for_each(|row| output.line(&line(&row.cells())))?;
        }
        Form::Table => {
            let mut table = Table::with_head(&head);
            rows.iter().for_each(|row| table.row(row.cells()));
            table.print(&mut output)?;
        }
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_pairs_own_ratios() {
        let mut row = Row::new("x", 1);
        // The machine was busy in the second pair.
        for (number, [without, with]) in
            [[2.0, 3.0], [20.0, 30.0], [2.0, 3.2]].into_iter().enumerate()
        {
            for way in Way::of_pair(number as u32) {
                row.add(way, if way == Way::With { with } else { without });
            }
        }
        let mut none = Row::new("y", 0);
        none.add(Way::Without, 0.0);
        none.add(Way::With, 7.0);
        assert_eq!(none.cells(), ["y", "0", "7", ""]);
        assert_eq!(row.cells(), ["x", "2.0 (2.0–20.0)", "3.2 (3.0–30.0)", "1.500 (1.500–1.600)"]);
    }
}
