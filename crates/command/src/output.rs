//! What commands print: lines and tables for people, JSON for programs, to standard output.

pub mod typed;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::os::fd::AsFd;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

pub use distkv_model::count::count_of;

use distkv_core::protocol::json::{json_from_msgpack, make_integers_safe, text_from_msgpack};
use distkv_model::path::Path;
use distkv_runtime::{now, spawn_thread};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, stat};
use rustix::io::Errno;
use serde_json::Value as Json;

use crate::error::CliError;

/// The longest time for which nobody took what was printed, in milliseconds.
static LONGEST_WAIT: AtomicU64 = AtomicU64::new(0);

/// For how long, at most, what was printed waited for its reader (a pager, say) at a time: so long, nothing was read from a
/// node, either. Milliseconds.
pub(crate) fn longest_wait() -> u64 {
    LONGEST_WAIT.load(Ordering::Relaxed)
}

/// It has waited for so long once.
pub(crate) fn note_wait(wait_ms: u64) {
    LONGEST_WAIT.fetch_max(wait_ms, Ordering::Relaxed);
}

/// Standard output, for one command.
pub struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    /// Whether programs read it.
    pub json: bool,
    purpose: Purpose,
}

/// What is lost to a command whose output cannot be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// All that it is for: where nobody reads it any more, the command ends.
    Report,
    /// The same, of a command that changes nothing.
    Read,
    /// A report: the command goes on.
    Change,
    /// What its exit code says, too: the command goes on.
    Verdict,
    /// Where a node is that serves from now on.
    Node,
}

impl Output {
    /// For people, or, with `json`, for programs. It is locked as long as this lives.
    pub fn new(json: bool) -> Output {
        Output { writer: BufWriter::new(io::stdout().lock()), json, purpose: Purpose::Report }
    }

    /// The same for a command that only reads: where it cannot be written, nothing else may have been done.
    pub fn of_read(json: bool) -> Output {
        Output { purpose: Purpose::Read, ..Output::new(json) }
    }

    /// The same for a command that changes something, and prints before all is done, or before it is said what has
    /// failed: a reader that goes away (`distkv-node key rotate | head -1`) neither ends it in the middle nor hides that.
    pub fn of_change(json: bool) -> Output {
        Output { purpose: Purpose::Change, ..Output::new(json) }
    }

    /// The same for a command whose exit code is an answer: it comes to that also where nobody reads what it prints, or
    /// not to the end (`distkv-node snapshot diff a b | head -1`).
    pub fn of_verdict(json: bool) -> Output {
        Output { purpose: Purpose::Verdict, ..Output::new(json) }
    }

    /// The same for a node that tells where it is, and ends if that cannot be written.
    pub fn of_node(json: bool) -> Output {
        Output { purpose: Purpose::Node, ..Output::new(json) }
    }

    /// One line. It may stay in the buffer until [`Output::flush`].
    pub fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.write(|writer| writeln!(writer, "{text}"))
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.write(|writer| writer.write_all(bytes))
    }

    /// One line of JSON, for programs: integers that many of them would round are text.
    pub fn json_line(&mut self, mut json: Json) -> Result<(), CliError> {
        make_integers_safe(&mut json);
        // Its escapes are those of JSON, too.
        self.line(&printable(&json.to_string()))
    }

    /// One line of JSON, or what people get in its place.
    pub fn either(
        &mut self,
        json: impl FnOnce() -> Json,
        text: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        if self.json { self.json_line(json()) } else { self.line(&printable_lines(&text())) }
    }

    /// Hands over all that was printed.
    pub fn flush(&mut self) -> Result<(), CliError> {
        self.write(Write::flush)
    }

    fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>,
    ) -> Result<(), CliError> {
        let began = now();
        let written = write(&mut self.writer);
        note_wait(now().saturating_sub(began));
        self.told(written)
    }

    fn told(&self, written: io::Result<()>) -> Result<(), CliError> {
        let Err(error) = written else { return Ok(()) };
        match CliError::of_output(&error) {
            CliError::OutputClosed
                if matches!(self.purpose, Purpose::Change | Purpose::Verdict) =>
            {
                Ok(())
            }
            // Nobody may take it for the answer.
            CliError::Failure(_) if matches!(self.purpose, Purpose::Read | Purpose::Verdict) => {
                Err(CliError::Unwritten(format!("cannot write to standard output: {error}")))
            }
            CliError::Failure(_) if self.purpose == Purpose::Node => Err(CliError::Failure(
                format!("cannot write to standard output: {error}; the node has ended"),
            )),
            error => Err(error),
        }
    }
}

/// From now on the process ends once nobody reads its standard output any more, if that is a pipe: for commands that may
/// have nothing to print for hours, and would learn of it only then (`distkv-node watch lamp | grep -q -m1 on`).
/// `has_end`: it ends by itself, after so many lines, so it may be that somebody waits for that only.
///
/// # Errors
/// Standard output is closed, or looks like that ([`is_substitute`]): nothing that such a command has to say would be heard.
pub fn end_with_reader(has_end: bool) -> Result<(), CliError> {
    if !has_end && is_substitute(io::stdout()) {
        return Err(CliError::Failure(String::from(
            "cannot write to standard output: it is closed, or it is /dev/null, opened for reading, too, so nobody would \
             hear what comes; `>/dev/null` if nobody is to read it",
        )));
    }
    wait_for_reader();
    Ok(())
}

/// Whether this is what the runtime opens in the place of a standard stream that the process was begun without: `/dev/null`,
/// for reading and writing. Shells open that one for one of the two. Some programs give it to those that they start for
/// both (`subprocess.DEVNULL` of Python), and nothing tells the two apart. So this is asked only where neither makes sense:
/// for input that would be empty, and for output that would never end. To all else, an output that is closed (`>&-`) is
/// like `/dev/null`: what is printed there is lost, also a token, and the command does not fail.
pub fn is_substitute(stream: impl AsFd) -> bool {
    let is_both_ways = fcntl_getfl(&stream).is_ok_and(|flags| flags.contains(OFlags::RDWR));
    let same = || Some(fstat(&stream).ok()?.st_rdev == stat("/dev/null").ok()?.st_rdev);
    is_both_ways && same() == Some(true)
}

fn wait_for_reader() {
    let kind = fstat(io::stdout()).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if !matches!(kind, Ok(FileType::Fifo | FileType::Socket)) {
        return;
    }
    // Without a thread, it ends with the next line.
    let _ = spawn_thread("reader", || {
        let stdout = io::stdout();
        // Errors are told without being asked for, and nothing else is.
        let mut closed = [PollFd::new(&stdout, PollFlags::empty())];
        while poll(&mut closed, None) == Err(Errno::INTR) {}
        if closed.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP)) {
            process::exit(i32::from(CliError::OutputClosed.exit_code()));
        }
    });
}

/// A MessagePack value as JSON, for `--json`.
pub fn json_of(value: &[u8]) -> Json {
    json_from_msgpack(value).unwrap_or(Json::Null)
}

/// A MessagePack value as one line of JSON, for people.
pub fn text_of(value: &[u8]) -> String {
    match text_from_msgpack(value) {
        Ok(text) => printable(&text).into_owned(),
        Err(error) => format!("({error})"),
    }
}

/// Characters of a value that are shown to people where it stands in a line with other things.
const VALUE_CHARS: usize = 120;

/// The same, cut where it is long.
pub fn short_text_of(value: &[u8]) -> String {
    let text = text_of(value);
    match text.char_indices().nth(VALUE_CHARS) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// Whether a character does something to a terminal. Marks that turn the direction of writing make text look like other text.
fn is_bad(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text without characters that would do something to a terminal: what is printed was written
/// by others.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, "\\u")
}

/// The text of a path, or one in which paths are named, for people. Its escapes are those of paths, so that a path that is
/// printed can be typed back and names no other entry: `\u0009` might stand in the name of one.
pub fn printable_path(text: &str) -> Cow<'_, str> {
    escaped(text, ":u")
}

/// The text with `sign` and four hexadecimal digits in place of each bad character.
fn escaped<'a>(text: &'a str, sign: &str) -> Cow<'a, str> {
    if !text.chars().any(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_bad(c) {
            // Writing to a string cannot fail.
            let _ = write!(out, "{sign}{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// The same of several lines, which stay lines.
pub fn printable_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(printable).collect();
    lines.join("\n")
}

/// A path in a text for people: an element may hold any character, and the end of a line ends none.
pub fn shown_path(path: &Path) -> String {
    printable_path(&path.to_string()).into_owned()
}

/// A word as a shell takes it: quoted, where it must be. What is not [`printable`] is an escape, which bash, zsh and others read.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if !word.chars().any(is_bad) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    let mut out = String::from("$'");
    for c in word.chars() {
        match c {
            '\'' | '\\' => out.extend(['\\', c]),
            c if is_bad(c) => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\{byte:03o}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// Rows of text in aligned columns.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a head.
    pub fn with_head(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    /// Adds a row. Empty cells are shown as a dash.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cell = |cell: String| match cell.as_str() {
            "" => String::from("-"),
            text => printable(text).into_owned(),
        };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    /// The lines, each as wide as it must be.
    pub fn lines(&self) -> Vec<String> {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for (cell, &width) in row.iter().zip(&widths) {
                // Writing to a string cannot fail.
                let _ = write!(line, "{cell:<width$}  ");
            }
            line.truncate(line.trim_end().len());
            line
        };
        self.rows.iter().map(line).collect()
    }

    /// Prints it.
    pub fn print(&self, output: &mut Output) -> Result<(), CliError> {
        self.lines().iter().try_for_each(|line| output.line(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_cells_shown() {
        let mut table = Table::with_head(&["NAME", "STATE"]);
        table.row(["n1".into(), "up".into()]);
        table.row(["günther".into(), String::new()]);
        assert_eq!(table.lines(), ["NAME     STATE", "n1       up", "günther  -"]);
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(shell_word("site.lamp:1"), "site.lamp:1");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("it's\n\\a\u{9b}"), r"$'it\'s\012\\a\302\233'");
    }

    #[test]
    fn long_values_are_cut() {
        let mut long = vec![0xda, 1, 0x2c];
        long.extend([b'x'; 300]);
        assert_eq!(short_text_of(&long).chars().count(), VALUE_CHARS + 1);
        assert_eq!(short_text_of(&[7]), "7");
    }

    #[test]
    fn what_others_wrote_cannot_drive_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a\\u001b[2Jb");
        assert_eq!(printable("a\u{202e}b"), "a\\u202eb");
        assert_eq!(printable("grün"), "grün");
        assert_eq!(printable_path("a.b\u{1b}\u{202e}"), "a.b:u001b:u202e");
        assert_eq!(printable_lines("a\u{1b}\nb"), "a\\u001b\nb");
    }
}
