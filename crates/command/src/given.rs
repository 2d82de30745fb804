//! Files that say how to work, such as one with a secret. A command may connect more than once. Each time it reads a plain
//! file anew, because that may have been replaced meanwhile; but what cannot be read twice, such as a pipe, it reads once and
//! keeps.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zeroize::Zeroizing;

pub use password::Asked;

pub mod keys;
mod password;

/// What stands for standard input in place of a file's name.
const STDIN: &str = "-";
/// All its names.
const STDIN_NAMES: [&str; 4] = [STDIN, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];

/// What was read of what cannot be read twice, by the option that it was for, and its name. One process runs one command, so
/// there are few.
static KEPT: Mutex<Kept> = Mutex::new(Kept { contents: BTreeMap::new(), stdin_is_for: None });

struct Kept {
    contents: BTreeMap<(&'static str, PathBuf), Zeroizing<Vec<u8>>>,
    /// What standard input was read for.
    stdin_is_for: Option<&'static str>,
}

fn kept() -> MutexGuard<'static, Kept> {
    // Nothing that holds it leaves half of anything.
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a file can be read once more: a pipe and a terminal cannot.
pub fn can_be_read_again(file: &Path) -> bool {
    file != Path::new(STDIN) && fs::metadata(file).is_ok_and(|found| found.is_file())
}

/// Reads so much of a file, or of standard input (`-`), for this option; the same again where it can be read only once.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read(what: &'static str, file: &Path, most: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    take_stdin(what, file)?;
    if can_be_read_again(file) {
        return read_now(File::open(file)?, most);
    }
    let key = (what, file.to_owned());
    if let Some(contents) = kept().contents.get(&key) {
        return Ok(contents.clone());
    }
    // Without the lock: whoever writes into the pipe may take long.
    let contents = if file == Path::new(STDIN) {
        read_now(io::stdin().lock(), most)?
    } else {
        read_now(File::open(file)?, most)?
    };
    Ok(kept().contents.entry(key).or_insert(contents).clone())
}

/// What somebody types where this file is standard input, and that is a terminal: it is asked for once for each option, and
/// not shown. None where nobody is to be asked.
///
/// # Errors
/// [`io::ErrorKind::Interrupted`]: by Ctrl-C. Or nothing was typed, or standard input was read for something else.
pub(crate) fn typed(
    what: &'static str,
    file: &Path,
    asked: &Asked,
) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    if !is_stdin(file) || !io::stdin().is_terminal() {
        return Ok(None);
    }
    take_stdin(what, file)?;
    let key = (what, PathBuf::from(STDIN));
    if let Some(contents) = kept().contents.get(&key) {
        return Ok(Some(contents.clone()));
    }
    let typed = password::ask(asked)?;
    Ok(Some(kept().contents.entry(key).or_insert(typed).clone()))
}

fn read_now(from: impl Read, most: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut contents = Zeroizing::new(Vec::new());
    from.take(most).read_to_end(&mut contents)?;
    Ok(contents)
}

fn is_stdin(file: &Path) -> bool {
    STDIN_NAMES.iter().any(|name| file == Path::new(name))
}

/// Says that a command is about to read a file for this, which may be standard input by any of its names; it may do so again
/// for the same.
///
/// # Errors
/// Standard input was read for something else: nobody can say where that ends and this begins, and what is read twice because it
/// is a plain file would be both.
pub fn take_stdin(what: &'static str, file: &Path) -> io::Result<()> {
    if !is_stdin(file) {
        return Ok(());
    }
    match *kept().stdin_is_for.get_or_insert(what) {
        first if first == what => Ok(()),
        first => Err(io::Error::other(format!("standard input was read for {first} already"))),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn a_pipe_is_read_once_and_a_file_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, file) = (folder.path().join("pipe"), folder.path().join("file"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let writer = {
            let pipe = pipe.clone();
            thread::spawn(move || fs::write(pipe, "once").unwrap())
        };
        for _ in 0..3 {
            assert_eq!(**read("a test", &pipe, 99).unwrap(), *b"once");
        }
        writer.join().unwrap();
        for text in ["first", "second"] {
            fs::write(&file, text).unwrap();
            assert_eq!(**read("a test", &file, 99).unwrap(), *text.as_bytes());
        }
        assert_eq!(**read("a test", &file, 3).unwrap(), *b"sec");
        // Another file has the pipe's name now.
        fs::remove_file(&pipe).unwrap();
        fs::write(&pipe, "new").unwrap();
        assert_eq!(**read("a test", &pipe, 99).unwrap(), *b"new");
        let missing = read("a test", &folder.path().join("none"), 99).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
