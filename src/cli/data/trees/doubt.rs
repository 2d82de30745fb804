//! What may have been done of the requests that a command had under way together when it was broken off.

use std::fmt::Display;

use crate::cli::error::CliError;
use crate::cli::terminal::interrupt::Interrupt;

/// The errors of requests that were sent together. `P` is what a person knows a request by: a line's number, a path.
pub(super) struct Doubt<P> {
    /// The first error, or the first that leaves open whether its request was carried out.
    error: Option<CliError>,
    /// The first and the last request of which that is open.
    open: Option<(P, P)>,
    /// The node serves this connection no more: it does nothing that was sent behind this, and closes it.
    is_shut_out: bool,
}

impl<P> Default for Doubt<P> {
    fn default() -> Self {
        Self { error: None, open: None, is_shut_out: false }
    }
}

impl<P: Clone> Doubt<P> {
    /// Notes the error of a request. They come in the order in which the requests were sent.
    pub(super) fn add(&mut self, place: P, error: CliError) {
        if self.is_shut_out {
            return;
        }
        self.is_shut_out = error.has_code("auth_required");
        let is_open = error.may_have_been_done();
        if is_open {
            let first = self.open.take().map_or_else(|| place.clone(), |(first, _)| first);
            self.open = Some((first, place));
        }
        if self.error.as_ref().is_none_or(|known| is_open && !known.may_have_been_done()) {
            self.error = Some(error);
        }
    }

    /// All replies are there. `told` says of the requests from the first to the last that they may have been carried out.
    ///
    /// # Errors
    /// The one to tell, if any was noted; where the command was interrupted, that.
    pub(super) fn end(
        self,
        interrupt: &Interrupt,
        told: impl FnOnce((P, P)) -> String,
    ) -> Result<(), CliError> {
        let Some(error) = self.error else { return Ok(()) };
        let error = interrupt.outweighs(error);
        let Some(open) = self.open else { return Err(error) };
        let told = told(open);
        Err(error.left(&told).in_doubt(|| told))
    }
}

/// That what is from the first to the last, if that is another one, may have been `done`.
pub(super) fn may_have_been(first: &str, last: Option<impl Display>, done: &str) -> String {
    let until = last.map(|last| format!(" to {last}")).unwrap_or_default();
    format!("{first}{until} may have been {done}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::error::Outcome;

    fn error(outcome: Outcome, text: &str) -> CliError {
        CliError::Request { outcome, code: None, text: text.to_owned() }
    }

    fn told((first, last): (u64, u64)) -> String {
        may_have_been(&format!("lines {first}"), Some(last), "imported")
    }

    #[test]
    fn the_first_error_that_leaves_something_open_is_told_with_all_that_is_open() {
        let mut doubt = Doubt::default();
        doubt.add(3, error(Outcome::Refused, "no"));
        doubt.add(5, error(Outcome::UnknownFate, "lost"));
        doubt.add(9, error(Outcome::UnknownFate, "lost, too"));
        let error = doubt.end(&Interrupt::default(), told).unwrap_err();
        assert_eq!(error.to_string(), "lost; lines 5 to 9 may have been imported");
    }

    #[test]
    fn nothing_is_open_of_what_was_sent_behind_a_refusal_for_want_of_a_login() {
        let shut_out = || CliError::Request {
            outcome: Outcome::Refused,
            code: Some("auth_required".to_owned()),
            text: "log in first".to_owned(),
        };
        let mut doubt = Doubt::default();
        doubt.add(1, shut_out());
        doubt.add(2, error(Outcome::UnknownFate, "lost"));
        let told_of = doubt.end(&Interrupt::default(), told).unwrap_err();
        assert_eq!(told_of.to_string(), "log in first");
    }

    /// The node is lost behind Ctrl-C: the command was interrupted, and what is open stays open.
    #[test]
    fn what_is_open_is_also_told_where_the_command_was_interrupted() {
        let mut doubt = Doubt::default();
        doubt.add(5, error(Outcome::UnknownFate, "lost"));
        doubt.add(9, error(Outcome::UnknownFate, "lost"));
        let interrupt = Interrupt::default();
        interrupt.request();
        let CliError::Interrupted(said) = doubt.end(&interrupt, told).unwrap_err() else {
            panic!("it was interrupted")
        };
        assert_eq!(said, "lines 5 to 9 may have been imported");
    }
}
