//! The script of a run: what happened, in lines for people. Written only on request.

use crate::model::ids::Millis;

/// Most lines; a run that does not end has millions.
const LINES_MAX: usize = 100_000;

/// What happened, line by line.
#[derive(Default)]
pub(crate) struct Script {
    lines: Vec<String>,
    dropped: usize,
}

impl Script {
    /// Adds a line.
    pub(crate) fn note(&mut self, now: Millis, text: &str) {
        if self.lines.len() < LINES_MAX {
            self.lines.push(format!("{:>4}.{:03}  {text}", now / 1_000, now % 1_000));
        } else {
            self.dropped += 1;
        }
    }

    /// All lines.
    pub(crate) fn into_lines(mut self) -> Vec<String> {
        if self.dropped > 0 {
            self.lines.push(format!("… and {} more", self.dropped));
        }
        self.lines
    }
}
