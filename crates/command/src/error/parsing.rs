//! What the parser of command lines says: help, the version, and what is wrong with the options.

use std::borrow::Cow;
use std::io;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{CliError, EXIT_OK, EXIT_USAGE, tell, tell_programs, without_secrets};
use crate::output::short;

/// Prints help, the version, or what is wrong with the options: as text, or as one line of JSON, like
/// [`CliError::tell`], with the parser's tip in a field of its own. Gives the exit code.
pub fn explain(error: &clap::Error, is_json: bool) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            match error.print() {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    CliError::Failure(format!("cannot write to standard output: {error}"))
                        .tell(is_json)
                }
                // Nobody may be reading.
                Ok(()) | Err(_) => EXIT_OK,
            }
        }
        _ if is_json => {
            let text = error.render().to_string();
            let text = shortened(&without_secrets(&text), error);
            let (what, tip) = (what(&text), tip(&text));
            tell_programs(&what, "usage", None, EXIT_USAGE, tip.as_deref());
            EXIT_USAGE
        }
        ErrorKind::ValueValidation => {
            // Its first line says it all: what, where, and what to write instead.
            let text = error.render().to_string();
            let first = without_secrets(text.lines().next().unwrap_or_default());
            tell(&format!("{}\n", shortened(&first, error)));
            EXIT_USAGE
        }
        _ => {
            let text = error.render().to_string();
            let hidden = without_secrets(&text);
            // Without the colors that it has at a terminal.
            if hidden == text {
                drop(error.print())
            } else {
                tell(&hidden)
            }
            EXIT_USAGE
        }
    }
}

/// With the value that was typed cut where it is long. Only what shows no secret comes here: half of one may not look like one.
fn shortened(text: &str, error: &clap::Error) -> String {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
        return text.to_owned();
    };
    match short(value) {
        Cow::Borrowed(_) => text.to_owned(),
        Cow::Owned(cut) => text.replacen(&**value, &cut, 1),
    }
}

/// What is wrong: the first paragraph. Those that follow are tips, the usage, and where help is.
fn what(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or_default();
    one_line(first.lines()).trim_start_matches("error: ").to_owned()
}

/// The tips: one line each, in a paragraph of their own. Several are one text.
fn tip(text: &str) -> Option<String> {
    let paragraphs = text.split("\n\n").skip(1);
    let tips: Vec<&str> =
        paragraphs.flat_map(str::lines).filter_map(|line| line.strip_prefix("  tip: ")).collect();
    (!tips.is_empty()).then(|| tips.join("; "))
}

fn one_line<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_and_the_tips_are_told_apart() {
        let text = "error: the following are missing:\n  <A>\n\n  tip: try '--b'\n  tip: or '-- -b'\n\nUsage: x\n";
        assert_eq!(what(text), "the following are missing: <A>");
        assert_eq!(tip(text).as_deref(), Some("try '--b'; or '-- -b'"));
        assert_eq!(tip("error: no such thing\n\nUsage: x\n"), None);
        // A value that somebody has typed is no tip.
        assert_eq!(tip("error: invalid value 'a\n  tip: b'\n\nUsage: x\n"), None);
    }
}
