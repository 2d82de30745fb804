//! What commands print: lines and tables for people, JSON for programs, to standard output.

pub mod typed;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::os::fd::AsFd;
use std::path::Path as FilePath;
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

    /// One line for people, in which all is seen: names may come from anywhere. Tabs and line ends stay. It may stay in the
    /// buffer until [`Output::flush`].
    pub fn line(&mut self, text: &str) -> Result<(), CliError> {
        let text = escaped(text, |c| is_bad(c) && !matches!(c, '\n' | '\t'), write_number);
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

/// The text of a value, cut where it is long.
pub(crate) fn short(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(VALUE_CHARS) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
    }
}

/// A MessagePack value as one line of JSON, for people, cut where it is long.
pub fn short_text_of(value: &[u8]) -> String {
    short(&text_of(value)).into_owned()
}

/// Characters that are shown before the first one that differs.
const BEFORE_CHARS: usize = 20;

/// Two values, of which the second replaces the first: both cut where they are long, at the same places. What differs is in
/// sight, also far behind the beginning.
pub fn short_change_of(old: &[u8], new: &[u8]) -> (String, String) {
    let (old_text, new_text) = (text_of(old), text_of(new));
    let same = old_text.chars().zip(new_text.chars()).take_while(|(a, b)| a == b).count();
    // What differs within the part that is shown anyway, with a few characters behind, is seen.
    if same + BEFORE_CHARS < VALUE_CHARS || old_text == new_text {
        return (short_text_of(old), short_text_of(new));
    }
    let cut = |text: &str| {
        let mut rest = text.chars().skip(same - BEFORE_CHARS);
        let shown: String = rest.by_ref().take(VALUE_CHARS).collect();
        let end = if rest.next().is_some() { "…" } else { "" };
        format!("…{shown}{end}")
    };
    (cut(&old_text), cut(&new_text))
}

/// Whether a character does something to a terminal, or makes text look like other text: marks that turn the direction of
/// writing, and what has no shape of its own (Unicode's `Default_Ignorable_Code_Point`, and the line separators). Not those that
/// choose between two forms of the character before them (U+FE00 to U+FE0F): most pictures have one. The page has the same list,
/// in `web/seen.js`.
fn is_bad(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Text without characters that would do something to a terminal: what is printed was written
/// by others.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_bad, write_number)
}

/// The text of a path, or one in which paths are named, for people. Its escapes are those of paths, so that a path that is
/// printed can be typed back and names no other entry: `\u0009` might stand in the name of one.
pub fn printable_path(text: &str) -> Cow<'_, str> {
    escaped(text, is_bad, |c, out| match u32::from(c) {
        number @ ..=0xffff => write!(out, ":u{number:04x}"),
        number => write!(out, ":u{{{number:x}}}"),
    })
}

/// A bad character as JSON has it: four hexadecimal digits, or twice as many.
fn write_number(c: char, out: &mut String) -> fmt::Result {
    c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))
}

/// The text with what `write` writes in place of each bad character.
fn escaped(
    text: &str,
    is_bad: impl Fn(char) -> bool,
    write: impl Fn(char, &mut String) -> fmt::Result,
) -> Cow<'_, str> {
    // Nearly all of it is plain.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !text.chars().any(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_bad(c) {
            // Writing to a string cannot fail.
            let _ = write(c, &mut out);
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

/// The name of a file as a command line takes it, also where it begins like an option: `./-x`. `-`, which is standard input,
/// stays. It is not quoted for a shell ([`shell_word`]).
pub fn file_word(file: &FilePath) -> String {
    let name = file.display().to_string();
    match name.starts_with('-') && name != "-" {
        true => format!("./{name}"),
        false => name,
    }
}

/// The same, quoted for a shell: for a command that is printed.
pub fn shell_file(file: &FilePath) -> String {
    shell_word(&file_word(file))
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
    fn of_long_values_that_differ_late_the_place_is_shown() {
        let value = |at: usize, text: &str| {
            let long = "x".repeat(at) + text + &"y".repeat(500 - at);
            let head = [&[0xda][..], &u16::try_from(long.len()).unwrap().to_be_bytes()].concat();
            [head, long.into_bytes()].concat()
        };
        let (old, new) = short_change_of(&value(3, "one"), &value(3, "two"));
        assert!(old.starts_with("\"xxxoney") && old.ends_with("y…"), "{old}");
        assert!(new.starts_with("\"xxxtwoy") && new.ends_with("y…"), "{new}");
        let (old, new) = short_change_of(&value(300, "one"), &value(300, "two"));
        let begin = String::from("…") + &"x".repeat(BEFORE_CHARS);
        assert!(old.starts_with(&format!("{begin}oney")) && old.ends_with("y…"), "{old}");
        assert!(new.starts_with(&format!("{begin}twoy")) && new.ends_with("y…"), "{new}");
        // One goes on where the other ends.
        let (old, new) = short_change_of(&value(500, ""), &value(500, "more"));
        assert!(old.ends_with("x\"") && new.ends_with("xmore\""), "{old} {new}");
        assert_eq!(short_change_of(&[7], &[8]), ("7".to_owned(), "8".to_owned()));
    }

    #[test]
    fn a_file_s_name_is_never_an_option() {
        let names = ["-x.dkv", "-", "--", "a-b", "dir/-x"];
        let words = names.map(|name| file_word(FilePath::new(name)));
        assert_eq!(words, ["./-x.dkv", "-", "./--", "a-b", "dir/-x"]);
    }

    #[test]
    fn what_others_wrote_cannot_drive_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a\\u001b[2Jb");
        assert_eq!(printable("a\u{202e}b"), "a\\u202eb");
        assert_eq!(printable("grün"), "grün");
        // What has no shape makes a name look like another one. In JSON, a number above 16 bits is two.
        for (hidden, shown) in [
            ("\u{61c}", "061c"),
            ("\u{ad}", "00ad"),
            ("\u{200b}", "200b"),
            ("\u{2028}", "2028"),
            ("\u{2060}", "2060"),
            ("\u{feff}", "feff"),
            ("\u{3164}", "3164"),
        ] {
            assert_eq!(printable(&format!("a{hidden}b")), format!("a\\u{shown}b"));
            assert_eq!(printable_path(&format!("a{hidden}b")), format!("a:u{shown}b"));
        }
        assert_eq!(printable("a\u{e0041}b"), "a\\udb40\\udc41b");
        assert_eq!(printable_path("a\u{e0041}b"), "a:u{e0041}b");
        let path = "a.x\u{e0041}\u{9b}:1.\u{1d173}".parse::<Path>().unwrap();
        assert_eq!(shown_path(&path), "a.x:u{e0041}:u009b:1.:u{1d173}");
        assert_eq!(shown_path(&path).parse::<Path>().unwrap(), path);
        // Part of many pictures, which it makes colourful.
        assert_eq!(printable("☀\u{fe0f}"), "☀\u{fe0f}");
        assert_eq!(printable_path("a.b\u{1b}\u{202e}"), "a.b:u001b:u202e");
        assert_eq!(printable_lines("a\u{1b}\nb"), "a\\u001b\nb");
    }
}
