//! The secret that lets programs change data by HTTP at an open node: read from its file, or made at the first start.
//! Whoever only checks settings makes none.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::cli::error::{CliError, looks_secret};
use crate::cli::files::cannot;
use crate::cli::terminal::output::shell_file;
use crate::node::config::Token;
use crate::node::{advice_of_writing, is_wrong_place};
use crate::rt;

/// Random bytes of a token that is made; it has twice as many hexadecimal digits.
const RANDOM_BYTES: usize = 32;
/// Shortest token that is taken from a file, characters.
const TOKEN_BYTES_MIN: usize = 32;
/// Longest one.
const TOKEN_BYTES_MAX: usize = 1_024;

/// The token in a file, which is made if it is not there.
///
/// # Errors
/// The file cannot be read or made, others may read it, or it holds no token.
pub(super) fn read_or_make(file: &Path) -> Result<Token, CliError> {
    if is_missing(file)? {
        make(file)?;
    }
    read(file)
}

/// The token in a file, and an empty one in place of one that a start would make.
///
/// # Errors
/// Those of [`read_or_make`], as far as they can be seen without making anything.
pub(super) fn look(file: &Path) -> Result<Token, CliError> {
    match is_missing(file)? {
        true => could_make(file).map(|()| Token::new("")),
        false => read(file),
    }
}

/// The same error, with the setting that the file is of: a file's name alone does not say what it is for.
pub(super) fn of_option(error: CliError) -> CliError {
    let text = |why: String| format!("--http-token-file: {why}");
    match error {
        CliError::Usage(why) => CliError::Usage(text(why)),
        CliError::Failure(why) => CliError::Failure(text(why)),
        other => other,
    }
}

/// Whether there is no such file, so that one is to be made.
///
/// # Errors
/// The name is what belongs into the file.
fn is_missing(file: &Path) -> Result<bool, CliError> {
    let is_missing = fs::metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if is_missing && file.to_str().is_some_and(looks_secret) {
        return Err(CliError::Usage(format!(
            "{}: this looks like the token itself; name a file in which it is, or is to be",
            file.display()
        )));
    }
    Ok(is_missing)
}

fn read(file: &Path) -> Result<Token, CliError> {
    let unreadable = |error| cannot("read", file, error).of_setting();
    let about = fs::metadata(file).map_err(unreadable)?;
    if !about.is_file() {
        return Err(CliError::Usage(format!(
            "{} is not a file; name one for the token",
            file.display()
        )));
    }
    if about.mode() & 0o077 != 0 {
        let text = format!(
            "others may read the token in {}; take that right away: chmod 600 {}",
            file.display(),
            shell_file(file)
        );
        return Err(CliError::Usage(text));
    }
    let wrong = || {
        CliError::Usage(format!(
            "{} holds no token: one line of {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} letters, digits and -._~+/= ; \
             remove it, and the node makes one",
            file.display()
        ))
    };
    // A line's end may follow.
    if about.len() > TOKEN_BYTES_MAX as u64 + 2 {
        return Err(wrong());
    }
    let text = fs::read_to_string(file).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => wrong(),
        _ => unreadable(error),
    })?;
    let token = text.trim_end_matches(['\n', '\r']);
    let is_token = |c: u8| c.is_ascii_alphanumeric() || b"-._~+/=".contains(&c);
    let fits = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len());
    match fits && token.bytes().all(is_token) {
        true => Ok(Token::new(token)),
        false => Err(wrong()),
    }
}

/// The text of a new token.
///
/// # Errors
/// The system gives no random bytes.
pub(in crate::cli::run) fn make_text() -> Result<String, CliError> {
    let bytes: [u8; RANDOM_BYTES] = rt::random_bytes()
        .map_err(|error| CliError::Failure(format!("the system gives no random bytes: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether [`make`] would make a file that is not there.
fn could_make(file: &Path) -> Result<(), CliError> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let may = match fs::symlink_metadata(file) {
        // A link that leads nowhere has its name.
        Ok(_) => Err(Errno::EXIST),
        Err(_) => access(folder.unwrap_or(Path::new(".")), Access::WRITE_OK | Access::EXEC_OK),
    };
    may.map_err(|errno| unwritable(file, &errno.into()))
}

fn make(file: &Path) -> Result<(), CliError> {
    let text = make_text()?;
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let mut opened = opened.map_err(|error| unwritable(file, &error))?;
    let written = writeln!(opened, "{text}").and_then(|()| opened.sync_all());
    written.map_err(|error| {
        // Half a token would keep the node from starting once there is room.
        let _ = fs::remove_file(file);
        unwritable(file, &error)
    })
}

/// The error of a file that cannot be made. Where its name is wrong, that is a mistake of whoever names it.
fn unwritable(file: &Path, error: &io::Error) -> CliError {
    let told = cannot("write", file, error);
    let told = told.said(|text| match advice_of_writing(error) {
        "" => text,
        advice => format!("{text}; name another place{advice}"),
    });
    if is_wrong_place(file, error) { told.of_setting() } else { told }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_made_once_for_its_owner_only_and_others_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a token");
        read_or_make(&file).unwrap();
        let made = fs::read_to_string(&file).unwrap();
        assert!(made.trim().len() == 64 && fs::metadata(&file).unwrap().mode() & 0o777 == 0o600);
        read_or_make(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), made);
        let refused = || match read_or_make(&file) {
            Ok(_) => panic!("it was taken"),
            Err(error) => error.to_string(),
        };
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        assert!(refused().ends_with(&format!("chmod 600 '{}'", file.display())), "{}", refused());
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let long = "a".repeat(2_000);
        for wrong in
            ["", "short", "distkv1.with a space in it, and so much longer", &long, "\u{ff}"]
        {
            fs::write(&file, wrong).unwrap();
            assert!(refused().contains("holds no token"), "{wrong:?}: {}", refused());
        }
        fs::write(&file, [0xff; 40]).unwrap();
        assert!(refused().contains("holds no token"));
        assert!(read_or_make(&folder.path().join("no/such/folder")).is_err());
    }

    #[test]
    fn a_look_makes_nothing_and_refuses_what_a_start_refuses_in_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        assert!(look(&file).is_ok() && !file.exists());
        let said = |found: Result<Token, CliError>| found.map(drop).unwrap_err().to_string();
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        fs::write(folder.path().join("short"), "x").unwrap();
        for name in ["no/such/folder", "link", "short", "short/x"] {
            let file = folder.path().join(name);
            assert_eq!(said(look(&file)), said(read_or_make(&file)), "{name}");
        }
        read_or_make(&file).unwrap();
        assert!(look(&file).is_ok());
    }
}
