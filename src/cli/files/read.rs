//! A file of any kind as an image.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path as FilePath;

use super::directory::read_directory;
use super::gap::Gap;
use super::{FileKind, Format, cannot, kind_of};
use crate::cli::error::CliError;
use crate::cli::terminal::output::{count_of, printable};
use crate::cli::terminal::progress::ProgressBar;
use crate::engine::Image;
use crate::engine::exchange::lines::LinesImport;
use crate::engine::exchange::saved_state_in::{SavedImage, image_of_saved_state, lacking_text};
use crate::model::ids::{NodeName, Tock};
use crate::model::meta::{AUTH_PATH, Family, login};
use crate::model::path::{Element, Path};
use crate::protocol::lines::LINE_BYTES_MAX;
use crate::rt;
use crate::storage::moment::Doubt;
use crate::storage::{FileHeader, read_snapshot};

/// So many entries that cannot be used are named; of the others, only the number.
const NAMED_MAX: usize = 20;
/// The name of the node in files that do not name one.
const NOBODY: &str = "nobody";
/// Lines between two looks at the progress.
const LINES_PER_LOOK: u64 = 1024;

/// A state from a file.
pub(in crate::cli) struct StateFile {
    /// All of it that can be here.
    pub(in crate::cli) image: Image,
    /// What kind of file it is.
    pub(in crate::cli) format: Format,
    /// What the file says of itself; only snapshots do.
    pub(in crate::cli) header: Option<FileHeader>,
    /// Its length.
    pub(in crate::cli) bytes: u64,
    /// What of it is not in the image, and what nodes do not enforce, one line each.
    pub(in crate::cli) notes: Vec<String>,
    /// Of these, that clients must log in: it holds where what is about access comes along.
    pub(in crate::cli) login_note: Option<String>,
    /// If it may not be the state of the moment that was asked for; it is among the notes.
    pub(in crate::cli) gap: Option<Gap>,
}

impl StateFile {
    /// What is remarkable, but for what holds only where access comes along.
    pub(in crate::cli) fn other_notes(&self) -> Vec<String> {
        let is_other = |note: &&String| Some(*note) != self.login_note.as_ref();
        self.notes.iter().filter(is_other).cloned().collect()
    }

    /// The same, of a moment that is in doubt, if there is one.
    pub(in crate::cli) fn with_doubt(mut self, doubt: Option<Doubt>) -> Self {
        self.gap = doubt.map(|doubt| Gap(doubt.into()));
        self.notes.extend(self.gap.map(|gap| gap.note()));
        self
    }
}

/// Reads a file that holds a state, or a node's data directory.
pub(in crate::cli) fn read_state(path: &FilePath, json: bool) -> Result<StateFile, CliError> {
    let mut state = read_any(path, json)?;
    state.notes.extend(notes_on_meta(&state.image));
    state.login_note = note_on_login(&state.image);
    Ok(state)
}

/// What of a state a node does not enforce, or what keeps it from serving clients.
pub(in crate::cli) fn notes_on_meta(image: &Image) -> Vec<String> {
    let mut notes: Vec<String> = note_on_kept(image).into_iter().collect();
    notes.extend(note_on_login(image));
    notes
}

/// That clients of a node with a state must log in, if that is so.
pub(in crate::cli) fn note_on_login(image: &Image) -> Option<String> {
    let entry = image.replica.tree.get(AUTH_PATH)?;
    let login = entry.value().and_then(login)?;
    Some(format!(
        "logins are switched on (:n.auth, {login}): clients of a node with this data must log in, \
         unless it runs with --ignore-auth"
    ))
}

/// What of a state a node does not enforce.
fn note_on_kept(image: &Image) -> Option<String> {
    let tree = &image.replica.tree;
    let mut families = Vec::new();
    for family in [Family::Codec, Family::Conv] {
        let top = Path::system_root().push(Element::Str(family.name()));
        let mut entries = top.iter().flat_map(|top| tree.subtree(top));
        if entries.any(|(_, entry)| entry.value().is_some()) {
            families.push(format!(":n.{}", family.name()));
        }
    }
    let families = families.join(", ");
    (!families.is_empty())
        .then(|| format!("what is below {families} is kept, and no node enforces it"))
}

fn read_any(path: &FilePath, json: bool) -> Result<StateFile, CliError> {
    if path.is_dir() {
        return read_directory(path, None, json);
    }
    match kind_of(path)? {
        FileKind::State(format) => read_as(path, format, json),
        FileKind::Log => Err(CliError::Usage(format!(
            "{}: an event log, which holds changes and no state; `log replay` makes a state of it",
            path.display()
        ))),
    }
}

fn read_as(path: &FilePath, format: Format, json: bool) -> Result<StateFile, CliError> {
    let file = File::open(path).map_err(|error| cannot("open", path, error))?;
    let bytes = file.metadata().map_err(|error| cannot("read", path, error))?.len();
    let mut bar = ProgressBar::new(format!("reading {}", path.display()), json);
    match format {
        Format::Snapshot => {
            let name = path.display().to_string();
            let mut look = |progress: crate::storage::Progress| {
                bar.entries(progress.entries, progress.total);
            };
            let read = read_snapshot(&name, Box::new(file), rt::random_u64(), &mut look);
            let (header, image) = read.map_err(|error| CliError::Failure(error.to_string()))?;
            let header = Some(header);
            Ok(StateFile {
                image,
                format,
                header,
                bytes,
                notes: Vec::new(),
                login_note: None,
                gap: None,
            })
        }
        Format::Distkv => {
            let saved = read_saved_states(&[path], None)?;
            let notes = notes_of(&saved);
            let (image, header) = (saved.image, None);
            Ok(StateFile { image, format, header, bytes, notes, login_note: None, gap: None })
        }
        Format::Jsonl => {
            let (image, notes) = read_lines(path, file, bytes, &mut bar)?;
            Ok(StateFile { image, format, header: None, bytes, notes, login_note: None, gap: None })
        }
    }
}

/// Reads saved states and change logs of the Python DistKV that go on from each other, up to a tock
/// if one is given.
pub(in crate::cli) fn read_saved_states(
    paths: &[&FilePath],
    until: Option<Tock>,
) -> Result<SavedImage, CliError> {
    let mut content = Vec::new();
    for path in paths {
        let file = File::open(path).and_then(|mut file| file.read_to_end(&mut content));
        file.map_err(|error| cannot("read", path, error))?;
    }
    image_of_saved_state(&content, until).map_err(|error| {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        CliError::Failure(format!("{}: {error}", names.join(", ")))
    })
}

/// What of a file of the Python DistKV is not in its image.
pub(in crate::cli) fn notes_of(saved: &SavedImage) -> Vec<String> {
    let named = saved.unusable.iter().take(NAMED_MAX);
    let mut notes: Vec<String> = named
        .map(|(offset, why)| {
            format!("the entry at byte {offset} is left out: {}", printable(&why.to_string()))
        })
        .collect();
    if saved.unusable.len() > NAMED_MAX {
        let more = (saved.unusable.len() - NAMED_MAX) as u64;
        let are = count_of(more, "more entry is", "more entries are");
        notes.push(format!("{are} left out for such reasons"));
    }
    if let Some(error) = &saved.cut_off {
        notes.push(format!("{error}; that record is left out"));
    }
    notes.extend(lacking_text(saved.lacking));
    notes
}

fn read_lines(
    path: &FilePath,
    file: File,
    bytes: u64,
    bar: &mut ProgressBar,
) -> Result<(Image, Vec<String>), CliError> {
    let mut import = LinesImport::new();
    let mut lines = Lines::new(path, file);
    let failed = |error| CliError::Failure(format!("{}: {error}", path.display()));
    while let Some(line) = lines.next()? {
        import.take(line).map_err(failed)?;
        if lines.count.is_multiple_of(LINES_PER_LOOK) {
            bar.bytes(lines.bytes, bytes);
        }
    }
    let name = NodeName::new(NOBODY).map_err(|error| CliError::Failure(error.to_string()))?;
    let notes = match import.edited() {
        0 => Vec::new(),
        edited => vec![count_of(
            edited,
            "line was edited: it is a new change",
            "lines were edited: they are new changes",
        )],
    };
    Ok((import.finish(name).map_err(failed)?, notes))
}

/// A file as messages name it.
pub(in crate::cli) fn name_of(path: &FilePath) -> String {
    match path == FilePath::new("-") {
        true => String::from("standard input"),
        false => path.display().to_string(),
    }
}

/// A text without the mark that some programs put before UTF-8 (a "BOM").
pub(in crate::cli) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// A file's lines, none of them longer than a line may be.
pub(in crate::cli) struct Lines<R> {
    name: String,
    reader: BufReader<R>,
    line: Vec<u8>,
    /// How many lines were read.
    pub(in crate::cli) count: u64,
    /// How many bytes.
    pub(in crate::cli) bytes: u64,
}

impl<R: Read> Lines<R> {
    /// From where the reader stands; the path is for messages.
    pub(in crate::cli) fn new(path: &FilePath, reader: R) -> Lines<R> {
        let name = name_of(path);
        Lines { name, reader: BufReader::new(reader), line: Vec::new(), count: 0, bytes: 0 }
    }

    /// The next line, without its end.
    pub(in crate::cli) fn next(&mut self) -> Result<Option<&str>, CliError> {
        self.line.clear();
        // One byte more than allowed shows that there is too much.
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line);
        let name = &self.name;
        let failed = |what: String| CliError::Failure(format!("{name}: {what}"));
        let length = read.map_err(|error| failed(format!("cannot be read: {error}")))?;
        if length == 0 {
            return Ok(None);
        }
        self.count += 1;
        self.bytes += length as u64;
        let count = self.count;
        if length > LINE_BYTES_MAX {
            return Err(failed(format!("line {count} is longer than {LINE_BYTES_MAX} bytes")));
        }
        let text = std::str::from_utf8(&self.line);
        let text = text.map_err(|_| failed(format!("line {count} is not UTF-8 text")))?;
        let text = if count == 1 { without_mark(text) } else { text };
        Ok(Some(text.trim_end_matches(['\n', '\r'])))
    }
}
