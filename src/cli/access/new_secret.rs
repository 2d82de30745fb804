//! A user's new secret: from a file; or, where there is no such file, made at random and kept there.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use distkv_access::secret::{TOKEN_BYTES, token_text};
use distkv_command::given::{Asked, can_be_read_again};
use distkv_command::login::read_secret;

use crate::cli::error::{CliError, looks_secret};
use crate::cli::files::cannot;
use crate::cli::say;
use crate::cli::terminal::output::file_word;
use crate::cli::typed;
use crate::rt;

/// Random bytes of a secret that is made; it has twice as many hexadecimal digits.
const RANDOM_BYTES: usize = 16;

/// See the module.
pub(super) struct NewSecret {
    pub(super) text: String,
    /// Where it is: none for what was typed, or came from standard input.
    file: Option<PathBuf>,
    /// The file that was made. It goes again, unless a node has taken the secret.
    made: Option<PathBuf>,
}

impl NewSecret {
    /// Reads the file's first line; `-` is standard input. At a terminal the user's secret is asked for; `method`: what it
    /// is, a password or a token.
    ///
    /// # Errors
    /// The file cannot be read, is empty, or cannot be made.
    pub(super) fn read_or_make(file: &PathBuf, method: &str, user: &str) -> Result<Self, CliError> {
        let is_missing = file != Path::new("-")
            && fs::metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if !is_missing {
            let text = read_secret(file, &Asked::New(format!("{method} of {user}")))?;
            let file = can_be_read_again(file).then(|| file.clone());
            return Ok(Self { text, file, made: None });
        }
        if file.to_str().is_some_and(looks_secret) {
            return Err(CliError::Usage(format!(
                "--new-secret-file {}: this looks like the secret itself; name a file in which it is, or is to be",
                file.display()
            )));
        }
        let bytes = random_bytes::<RANDOM_BYTES>()?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        let mut opened = opened.map_err(|error| cannot("write", file, error))?;
        let secret = Self { text, file: Some(file.clone()), made: Some(file.clone()) };
        let written = writeln!(opened, "{}", secret.text).and_then(|()| opened.sync_all());
        written.map_err(|error| cannot("write", file, error))?;
        Ok(secret)
    }

    /// A node has taken it: the file stays, if it was made here, and people are told of it.
    pub(super) fn keep(mut self) {
        if let Some(file) = self.made.take() {
            say::line(&format!("the secret was made, and is in {}", file.display()));
        }
    }

    /// A node was sent it and has not answered, so it may be in force: the file stays, and people are told how to find out.
    pub(super) fn keep_in_doubt(mut self, method: &str, user: &str) -> String {
        self.made = None;
        match &self.file {
            Some(file) => {
                let (place, tells) = (file.display(), tells_of_secret(method, user, file));
                format!(
                    "the new secret of {user} is in {place}, and stays there; whether it is in force, {tells} tells, \
                     where nodes ask for logins: if not, type the command again"
                )
            }
            None => {
                String::from("log in with the new secret to find out, or type the command again")
            }
        }
    }
}

/// The command that logs in with a secret, and so tells whether it is in force.
pub(super) fn tells_of_secret(method: &str, user: &str, file: &Path) -> String {
    let file = file_word(file);
    let login = ["--user", user, "--login", method, "--secret-file", &file];
    typed::command_as(&login, "whoami", &[])
}

/// A token, as nodes make them. Made here, it can be in a file before a node is sent it: an answer that is lost takes none
/// with it.
///
/// # Errors
/// The system gives no random bytes.
pub(super) fn make_token() -> Result<String, CliError> {
    Ok(token_text(&random_bytes::<TOKEN_BYTES>()?))
}

fn random_bytes<const COUNT: usize>() -> Result<[u8; COUNT], CliError> {
    rt::random_bytes()
        .map_err(|error| CliError::Failure(format!("the system gives no random bytes: {error}")))
}

impl Drop for NewSecret {
    fn drop(&mut self) {
        if let Some(file) = &self.made {
            // It holds nothing that anybody needs.
            let _ = fs::remove_file(file);
        }
    }
}
