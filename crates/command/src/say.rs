//! What commands say on standard error besides their errors: how far they are, notes and warnings. With `--json`, each is
//! one line of JSON: `{"note": TEXT}` or `{"warning": TEXT}`.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::output::printable_lines;

/// Whether programs read it. One process runs one command.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// From here on, programs read what is said (`--json`), or people do.
pub fn as_json(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
}

/// Whether programs read what is said.
pub fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Says what the command does. It reads like a note for programs.
pub fn line(text: &str) {
    print(&told("note", "", text, is_json()));
}

/// Says something that is good to know.
pub fn note(text: &str) {
    print(&told("note", "note: ", text, is_json()));
}

/// Says that something is not as it should be, though the command goes on.
pub fn warning(text: &str) {
    print(&told("warning", "warning: ", text, is_json()));
}

/// `prefix` is for people.
fn told(kind: &str, prefix: &str, text: &str, is_json: bool) -> String {
    match is_json {
        true => json!({ kind: text }).to_string(),
        false => format!("{prefix}{}", printable_lines(text)),
    }
}

fn print(line: &str) {
    // There may be no standard error, or nobody who reads it.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_a_line_and_programs_an_object() {
        let told = |is_json| told("note", "note: ", "a \"b\"", is_json);
        assert_eq!(told(false), "note: a \"b\"");
        assert_eq!(told(true), r#"{"note":"a \"b\""}"#);
    }
}
