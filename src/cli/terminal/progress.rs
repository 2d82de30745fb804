//! A bar on standard error while something takes long, if a person is watching.

use std::io::{self, IsTerminal, Write};

use super::units::show_bytes;
use crate::cli::say;
use crate::model::ids::Millis;
use crate::rt;

/// What is done sooner than this needs no bar.
const PATIENCE_MS: Millis = 500;
/// From one look of the bar to the next.
const INTERVAL_MS: Millis = 100;
/// Characters of the bar.
const WIDTH: u64 = 30;
/// Back to the line's start, and away with what stands there.
const CLEAR: &str = "\r\u{1b}[K";

/// Shows how far something is. Its line is taken away when this is dropped.
pub(in crate::cli) struct ProgressBar {
    what: String,
    is_wanted: bool,
    started: Millis,
    drawn: Option<Millis>,
}

impl ProgressBar {
    /// For work that begins now; `what` says what is done, as in "reading a.dkv". No bar is shown
    /// where programs read the output.
    pub(in crate::cli) fn new(what: impl Into<String>, json: bool) -> ProgressBar {
        let is_wanted = !json && io::stderr().is_terminal();
        ProgressBar { what: what.into(), is_wanted, started: rt::now(), drawn: None }
    }

    /// So many entries are done; of so many, unless that is 0.
    pub(in crate::cli) fn entries(&mut self, done: u64, total: u64) {
        self.draw(done, total, |number| number.to_string(), " entries");
    }

    /// So many changes have come; of so many, unless that is 0.
    pub(in crate::cli) fn changes(&mut self, done: u64, total: u64) {
        self.draw(done, total, |number| number.to_string(), " changes");
    }

    /// So many bytes are done; of so many, unless that is 0.
    pub(in crate::cli) fn bytes(&mut self, done: u64, total: u64) {
        self.draw(done, total, show_bytes, "");
    }

    /// Says a line, which stays.
    pub(in crate::cli) fn say(&mut self, text: &str) {
        if self.drawn.take().is_some() {
            // Nobody may be there to see it.
            let _ = write!(io::stderr().lock(), "{CLEAR}");
        }
        say::line(text);
    }

    fn draw(&mut self, done: u64, total: u64, show: impl Fn(u64) -> String, unit: &str) {
        let now = rt::now();
        let since = self.drawn.unwrap_or(self.started + PATIENCE_MS - INTERVAL_MS);
        if !self.is_wanted || now < since + INTERVAL_MS {
            return;
        }
        self.drawn = Some(now);
        let line = match total {
            0 => format!("{}: {}{unit}", self.what, show(done)),
            _ => {
                let (bar, percent) = bar(done, total);
                let (done, total) = (show(done), show(total));
                format!("{} [{bar}] {percent:3} %  {done} of {total}{unit}", self.what)
            }
        };
        // Nobody may be there to see it.
        let _ = write!(io::stderr().lock(), "{CLEAR}{line}");
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr().lock(), "{CLEAR}");
        }
    }
}

fn bar(done: u64, total: u64) -> (String, u64) {
    let part = |of: u64| {
        let part = u128::from(done.min(total)) * u128::from(of) / u128::from(total.max(1));
        u64::try_from(part).unwrap_or(of)
    };
    let filled = part(WIDTH);
    let bar = (0..WIDTH).map(|at| if at < filled { '#' } else { '.' }).collect();
    (bar, part(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_at_the_end_and_never_longer() {
        assert_eq!(bar(0, 10), (".".repeat(30), 0));
        assert_eq!(bar(5, 10), ("#".repeat(15) + &".".repeat(15), 50));
        assert_eq!(bar(10, 10), ("#".repeat(30), 100));
        assert_eq!(bar(u64::MAX, 3).1, 100);
    }
}
