//! The file of the audit log, and the thread that writes it: one JSON object per line, in the order in which things
//! happened at this node. docs/security.md explains the fields.
//!
//! The file is only ever appended to; but half a line that the disk took last is cut off again, as long as nobody else has
//! written behind it. Whoever keeps old logs moves the file and sends SIGHUP: then it is opened anew. So it is once it was
//! removed; where it cannot be, records are lost to it, as they are on a full disk.
//! While the disk takes nothing, records are counted and lost, and the count is the first line once it does again:
//! clients never wait for an audit log.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Seek as _, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use distkv_command::output::printable;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use serde::Serialize;

use crate::node::error::NodeError;
use crate::rt;
use crate::server::access::audit::record::{Entry, Event, Outcome, Record};
use crate::server::access::audit::{Audit, Work};

/// The file is for whoever runs the node, and nobody else.
const MODE: u32 = 0o600;
/// How long the writer waits at most before it looks whether a count is due, or the disk works again.
const PATIENCE: Duration = Duration::from_secs(1);

/// The audit log of a running node. Dropped, it takes nothing more, and its thread ends by itself.
pub(in crate::node) struct AuditLog {
    audit: Audit,
    writer: Mutex<Option<rt::Work<()>>>,
}

impl AuditLog {
    /// Opens the file, or makes it, and begins to write. `node`: this node's name.
    ///
    /// # Errors
    /// It cannot be opened for appending, or is no file, or the system has no thread: the node must not run
    /// without what it was told to record.
    pub(in crate::node) fn open(path: &Path, node: &str) -> Result<Self, NodeError> {
        let failed = |source| NodeError::Audit { path: path.to_owned(), source };
        let mut sink = Sink::open(path, node).map_err(failed)?;
        let audit = Audit::default();
        audit.note(Record::new(Event::Audit, Outcome::Begun));
        let source = audit.clone();
        let work = move || while sink.serve(&source) {};
        let writer = rt::spawn_work("audit", work).map_err(failed)?;
        Ok(Self { audit, writer: Mutex::new(Some(writer)) })
    }

    /// Where to record.
    pub(in crate::node) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Writes what there is, and ends. The disk may take its time, so not without a limit.
    pub(in crate::node) async fn end(&self, patience: Duration) {
        self.audit.close(Some(Record::new(Event::Audit, Outcome::Ended)));
        let writer = self.writer.lock().take();
        if let Some(writer) = writer
            && rt::timeout(patience, writer.done()).await.is_none()
        {
            tracing::warn!("the audit log is not written to its end: the disk does not take it");
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.audit.close(None);
    }
}

/// The file, as its writer sees it.
struct Sink {
    path: PathBuf,
    node: String,
    file: File,
    /// The last line has no end, and is perhaps somebody else's: the next one begins behind the end of that.
    is_torn: bool,
    /// What the disk took of a line that it did not take as a whole.
    half: Option<Half>,
    is_failing: bool,
    /// The file is not the one of the path any more, and that could not be opened: it is tried again with each event.
    is_elsewhere: bool,
}

/// The beginning of a line, as it is in the file.
struct Half {
    bytes: Vec<u8>,
    /// Where it ends.
    end: u64,
}

impl Sink {
    fn open(path: &Path, node: &str) -> io::Result<Self> {
        let (file, node) = (open(path)?, node.to_owned());
        // What a killed process left of its last line.
        let is_torn = !ends_with_a_line(&file)?;
        let path = path.to_owned();
        Ok(Self { path, node, file, is_torn, half: None, is_failing: false, is_elsewhere: false })
    }

    /// Whether the file has no name any more, so that nobody can read what is written into it.
    fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }

    /// Waits for something to write, and writes it; false at the end.
    fn serve(&mut self, audit: &Audit) -> bool {
        let Work { entries, reopen, overrun, is_closed } = audit.next(PATIENCE);
        if let Some(lost) = overrun {
            tracing::warn!(
                path = %self.path.display(), lost,
                "more came at once than the audit log's disk takes; what there is no room for is counted, and lost to it, \
                 but logins and refusals go before what was done; `status` has how many. Look in the audit log for who or \
                 what causes so much"
            );
        }
        let mut failure = match reopen || !entries.is_empty() {
            true => self.find_place(reopen, audit),
            false => None,
        };
        let mut written = 0;
        // What goes into a file without a name is lost: nobody can read it.
        let writable = if failure.is_none() { &entries[..] } else { &[] };
        for entry in writable {
            match self.write(entry) {
                Ok(()) => written += 1,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        audit.wrote(written, entries.get(written..).unwrap_or_default());
        if !entries.is_empty() {
            self.tell(failure, audit);
        }
        !is_closed
    }

    /// One line. It is whole in the file, or not there, or the next one begins behind its end.
    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        self.cut_back();
        let line = line_of(entry, &self.node)?;
        let line = if self.is_torn { format!("\n{line}") } else { line };
        let written = write_all(&mut self.file, line.as_bytes());
        if let Err((count, error)) = written {
            let bytes = line.as_bytes().get(..count).unwrap_or_default().to_vec();
            if !bytes.is_empty() {
                // Behind an append the position is the end of what was appended.
                let end = self.file.stream_position().unwrap_or_default();
                self.half = Some(Half { bytes, end });
                self.cut_back();
            }
            return Err(error);
        }
        self.is_torn = false;
        Ok(())
    }

    /// Takes half a line away that is the last in the file. Where somebody else has written since, it stays.
    fn cut_back(&mut self) {
        let Some(half) = self.half.take() else { return };
        let begin = half.end.checked_sub(half.bytes.len() as u64);
        let is_own = || {
            let mut found = vec![0; half.bytes.len()];
            let is_last = self.file.metadata().is_ok_and(|meta| meta.len() == half.end);
            let read = begin.map(|begin| self.file.read_exact_at(&mut found, begin));
            is_last && matches!(read, Some(Ok(()))) && found == half.bytes
        };
        match begin {
            Some(begin) if is_own() => {
                if self.file.set_len(begin).is_err() {
                    self.half = Some(half);
                    self.is_torn = true;
                }
            }
            // A line that others have written has its end, as far as they say.
            _ => self.is_torn = true,
        }
    }

    /// Opens the path anew, where that was asked for (`is_asked`), was tried in vain before, or where the file was removed.
    /// An error if what is written now could be read by nobody.
    fn find_place(&mut self, is_asked: bool, audit: &Audit) -> Option<io::Error> {
        let is_removed = self.is_removed();
        if !is_asked && !is_removed && !self.is_elsewhere {
            return None;
        }
        if is_removed && !is_asked && !self.is_elsewhere {
            tracing::warn!(
                path = %self.path.display(),
                "the audit log was removed, and what was in it with it; it is begun anew. To begin another file, move it \
                 and send SIGHUP"
            );
        }
        let path = self.path.display();
        match Self::open(&self.path, &self.node) {
            Ok(Self { file, is_torn, half, .. }) => {
                tracing::info!(%path, "the audit log was opened anew");
                // The old file, which was moved, must not end in the middle either.
                self.cut_back();
                (self.file, self.is_torn, self.half) = (file, is_torn, half);
                self.is_elsewhere = false;
                audit.note_place(None);
                None
            }
            Err(error) => {
                let trouble = if is_removed {
                    format!(
                        "the audit log was removed, and {path} cannot be made anew, so what happens is missing in it: {error}"
                    )
                } else {
                    format!(
                        "the audit log {path} cannot be opened anew, so the old file is written on, which was perhaps moved: \
                         {error}"
                    )
                };
                if audit.note_place(Some(trouble.clone())) {
                    tracing::warn!("{trouble}; it is tried again with each event");
                }
                self.is_elsewhere = true;
                is_removed.then_some(error)
            }
        }
    }

    /// Says once that the disk fails, and once that it works again.
    fn tell(&mut self, failure: Option<io::Error>, audit: &Audit) {
        let was_failing = std::mem::replace(&mut self.is_failing, failure.is_some());
        match failure {
            Some(error) if !was_failing => tracing::warn!(
                path = %self.path.display(), %error,
                "the audit log cannot be written; what happens meanwhile is counted, and lost to it; clients are \
                 served all the same"
            ),
            None if was_failing => {
                let (_, lost) = audit.counts();
                tracing::warn!(
                    lost,
                    "the audit log is written again; so many records are lost in all"
                );
            }
            _ => {}
        }
    }
}

/// Writes a line; on failure, how many bytes of it are in the file.
fn write_all(file: &mut File, line: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while let Some(rest) = line.get(written..).filter(|rest| !rest.is_empty()) {
        match file.write(rest) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

/// Opens a file for appending only; makes it if it is not there. It can be read, to see whether its end is this node's.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A pipe without a reader must not hold the node up.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file =
        options.read(true).append(true).create(true).mode(MODE).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    if metadata.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok(file)
}

/// Whether a file is empty, or its last line has an end.
fn ends_with_a_line(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte == *b"\n")
}

/// A line, with its end.
fn line_of(entry: &Entry, node: &str) -> io::Result<String> {
    #[derive(Serialize)]
    struct Line<'a> {
        time: String,
        node: &'a str,
        #[serde(flatten)]
        record: &'a Record,
        count: u64,
    }
    let ms = i64::try_from(entry.time_ms).unwrap_or(i64::MAX);
    let time = format!("{:.3}", Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX));
    let line = Line { time, node, record: &entry.record, count: entry.count };
    let line = serde_json::to_string(&line).map_err(io::Error::other)?;
    // Clients choose names and paths, and whoever looks at the file in a terminal must see what is there. Such characters are
    // within JSON's texts only, where an escape means the same.
    Ok(format!("{}\n", printable(&line)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::model::ids::Millis;
    use serde_json::Value;

    fn login(user: &str) -> Record {
        Record::new(Event::Login, Outcome::Accepted).user(user)
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn users(path: &Path) -> Vec<String> {
        lines(path).iter().map(|line| line["user"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_line_has_all_fields_whatever_they_contain() {
        let record = Record { address: Some("10.0.0.7".parse().unwrap()), ..login("jo\ne\"") };
        let entry = Entry { time_ms: 1_795_000_000_123, record, count: 1 };
        let line = line_of(&entry, "n1").unwrap();
        assert_eq!(
            line,
            "{\"time\":\"2026-11-18T11:06:40.123Z\",\"node\":\"n1\",\"event\":\"login\",\
             \"outcome\":\"accepted\",\"user\":\"jo\\ne\\\"\",\"method\":null,\"address\":\"10.0.0.7\",\
             \"action\":null,\"target\":null,\"detail\":null,\"count\":1}\n"
        );
    }

    #[test]
    fn the_file_is_appended_to_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        for user in ["a", "b"] {
            let audit = Audit::default();
            let mut sink = Sink::open(&path, "n1").unwrap();
            audit.note(login(user));
            assert!(sink.serve(&audit));
            assert_eq!(audit.counts(), (1, 0));
            // Somebody has meant well.
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        }
        assert_eq!(users(&path), ["a", "b"]);
        drop(Sink::open(&path, "n1").unwrap());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
    }

    #[test]
    fn a_file_that_was_moved_is_made_anew_when_asked_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("audit"), folder.path().join("audit.1"));
        let audit = Audit::default();
        let mut sink = Sink::open(&path, "n1").unwrap();
        fs::rename(&path, &moved).unwrap();
        audit.note(login("a"));
        assert!(sink.serve(&audit));
        audit.reopen();
        audit.note(login("b"));
        assert!(sink.serve(&audit));
        audit.close(None);
        assert!(!sink.serve(&audit));
        assert_eq!((users(&moved), users(&path)), (vec!["a".to_owned()], vec!["b".to_owned()]));
    }

    #[test]
    fn a_file_that_was_removed_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let path = dir.join("audit");
        let audit = Audit::default();
        let mut sink = Sink::open(&path, "n1").unwrap();
        let mut serve = |user: &str| {
            audit.note(login(user));
            assert!(sink.serve(&audit));
            sink.is_elsewhere
        };
        for user in ["a", "b"] {
            assert!(!serve(user));
            assert_eq!(users(&path), [user]);
            fs::remove_file(&path).unwrap();
        }
        // Where it cannot be, what is lost is counted, and warned of for as long as that lasts.
        fs::remove_dir(&dir).unwrap();
        assert_eq!(audit.counts(), (2, 0));
        assert!(serve("c") && serve("d"));
        assert_eq!(audit.counts(), (2, 2));
        let warned = |audit: &Audit| audit.warnings(Millis::MAX);
        let [text] = &warned(&audit)[..] else { panic!("{:?}", warned(&audit)) };
        assert!(text.contains("was removed") && text.contains("cannot be made anew"), "{text}");
        // Once it can be, nobody has to say so.
        fs::create_dir(&dir).unwrap();
        assert!(!serve("e"));
        assert_eq!(warned(&audit), [""; 0]);
        let told = lines(&path);
        assert_eq!((&told[0]["outcome"], &told[0]["count"]), (&"dropped".into(), &2.into()));
        assert_eq!(told[1]["user"], "e");
        assert_eq!(audit.counts().1, 2);
    }

    #[test]
    fn a_path_that_cannot_be_opened_anew_is_warned_of_and_the_moved_file_goes_on_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("audit"), folder.path().join("audit.1"));
        let audit = Audit::default();
        let mut sink = Sink::open(&path, "n1").unwrap();
        fs::rename(&path, &moved).unwrap();
        fs::create_dir(&path).unwrap();
        audit.reopen();
        audit.note(login("a"));
        assert!(sink.serve(&audit));
        let warnings = audit.warnings(Millis::MAX);
        assert!(
            warnings.len() == 1 && warnings[0].contains("cannot be opened anew"),
            "{warnings:?}"
        );
        assert_eq!((users(&moved), audit.counts()), (vec!["a".to_owned()], (1, 0)));
        // The old file goes, too.
        fs::remove_file(&moved).unwrap();
        audit.note(login("b"));
        assert!(sink.serve(&audit));
        assert!(audit.warnings(Millis::MAX)[0].contains("was removed"));
        assert_eq!(audit.counts(), (1, 1));
        fs::remove_dir(&path).unwrap();
        audit.note(login("c"));
        assert!(sink.serve(&audit));
        assert_eq!(lines(&path).last().unwrap()["user"], "c");
        assert_eq!(audit.warnings(Millis::MAX), [""; 0]);
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted_and_told_when_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::default();
        let mut sink = Sink::open(&path, "n1").unwrap();
        let good = std::mem::replace(
            &mut sink.file,
            File::options().write(true).open("/dev/full").unwrap(),
        );
        audit.note(login("a"));
        audit.note(login("b"));
        assert!(sink.serve(&audit) && sink.is_failing);
        assert_eq!(audit.counts(), (0, 2));
        // Nothing more is lost by trying again.
        audit.note(login("c"));
        assert!(sink.serve(&audit) && sink.is_failing);
        assert_eq!(audit.counts(), (0, 3));
        sink.file = good;
        audit.note(login("d"));
        assert!(sink.serve(&audit) && !sink.is_failing);
        let lines = lines(&path);
        let told: Vec<_> = lines
            .iter()
            .map(|l| (l["outcome"].as_str().unwrap(), l["count"].as_u64().unwrap()))
            .collect();
        assert_eq!(told, [("dropped", 3), ("accepted", 1)]);
    }

    /// A sink whose disk has taken half a line; and that half.
    fn torn(path: &Path) -> (Sink, Vec<u8>) {
        fs::write(path, "{\"user\":\"whole\"}\n").unwrap();
        let mut sink = Sink::open(path, "n1").unwrap();
        let bytes = b"{\"time\":\"20".to_vec();
        write_all(&mut sink.file, &bytes).unwrap();
        let end = sink.file.stream_position().unwrap();
        sink.half = Some(Half { bytes: bytes.clone(), end });
        (sink, bytes)
    }

    #[test]
    fn half_a_line_is_cut_off_and_nothing_that_others_have_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let serve = |mut sink: Sink| {
            let audit = Audit::default();
            audit.note(login("a"));
            assert!(sink.serve(&audit));
        };
        serve(torn(&path).0);
        assert_eq!(users(&path), ["whole", "a"]);
        // Somebody has written behind it; or it is not there any more, as its file is another one's.
        let (sink, half) = torn(&path);
        File::options().append(true).open(&path).unwrap().write_all(b"theirs").unwrap();
        serve(sink);
        let text = fs::read_to_string(&path).unwrap();
        let half = String::from_utf8(half).unwrap();
        assert_eq!(text.lines().nth(1).unwrap(), format!("{half}theirs"));
        assert!(text.lines().nth(2).unwrap().contains("\"user\":\"a\"") && text.ends_with('\n'));
        let (sink, half) = torn(&path);
        let theirs = "x".repeat(half.len());
        fs::write(&path, format!("{{\"user\":\"whole\"}}\n{theirs}")).unwrap();
        serve(sink);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().nth(1).unwrap(), theirs);
        // A file that is moved away is whole, too.
        let (mut sink, _) = torn(&path);
        let moved = folder.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        assert!(sink.find_place(true, &Audit::default()).is_none());
        serve(sink);
        assert_eq!((users(&moved), users(&path)), (vec!["whole".into()], vec!["a".to_owned()]));
    }

    #[test]
    fn a_line_that_was_cut_off_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        fs::write(&path, "{\"time\":").unwrap();
        let audit = Audit::default();
        audit.note(login("a"));
        assert!(Sink::open(&path, "n1").unwrap().serve(&audit));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "{\"time\":");
        assert!(lines[1].contains("\"user\":\"a\""));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Sink::open(folder.path(), "n1").is_err());
        assert!(Sink::open(Path::new("/dev/null"), "n1").is_err());
        assert!(Sink::open(&folder.path().join("none/audit"), "n1").is_err());
    }
}
