//! Words that shells complete an option's value with. What the option accepts is its own parser's business.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::Error;
use clap::{Arg, Command};

/// A parser, and the words.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Completed<P> {
    parser: P,
    words: &'static [&'static str],
}

/// Adds words to a parser. The option's help says them already: it needs `hide_possible_values`, too.
pub(in crate::cli) fn completed<P: TypedValueParser>(
    parser: P,
    words: &'static [&'static str],
) -> Completed<P> {
    Completed { parser, words }
}

impl<P: TypedValueParser> TypedValueParser for Completed<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, Error> {
        self.parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(PossibleValue::new)))
    }
}
