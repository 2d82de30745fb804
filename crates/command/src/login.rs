//! As whom commands work: `--user`, and where its secret is.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::error::CliError;
use crate::given::{self, Asked};
use crate::output::typed;
use crate::remote::{file_in_environment, set_in_environment};
use distkv_client::Login;

/// The environment's variable for `--user`.
const USER: &str = "DISTKV_USER";
/// The environment's variable for `--secret-file`.
const SECRET_FILE: &str = "DISTKV_SECRET_FILE";
/// The environment's variable that holds the secret, unless `--secret-env` names another one.
const SECRET: &str = "DISTKV_SECRET";
/// The environment's variable for `--plaintext-login`.
const PLAINTEXT_LOGIN: &str = "DISTKV_PLAINTEXT_LOGIN";
/// Most bytes of a file with a secret.
const SECRET_FILE_BYTES_MAX: u64 = 4 << 10;

/// For what standard input is read where an argument names it.
const SECRET_OF_FILE: &str = "a secret";

/// As whom commands work, where the node asks for a login.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Login")]
pub(crate) struct LoginArgs {
    /// Log in as this user, where the node asks for a login [env: DISTKV_USER]
    #[arg(long = "user", value_name = "NAME")]
    as_user: Option<String>,

    /// How the user logs in: password, token, root [default: as the node asks]
    #[arg(long = "login", value_name = "METHOD")]
    login_by: Option<String>,

    /// The file with the user's password or token; - is standard input
    /// [env: DISTKV_SECRET_FILE]
    #[arg(long, value_name = "FILE", conflicts_with = "secret_env")]
    secret_file: Option<PathBuf>,

    /// The environment's variable with the user's password or token [default: DISTKV_SECRET]
    #[arg(long, value_name = "NAME")]
    secret_env: Option<String>,

    /// Send the password or token also without TLS, to another machine: whoever is in between
    /// can read it [env: DISTKV_PLAINTEXT_LOGIN=1]
    #[arg(long)]
    plaintext_login: bool,
}

impl LoginArgs {
    /// What was said after the command, and what was said before it where that says nothing.
    pub(crate) fn or(self, before: LoginArgs) -> LoginArgs {
        let says_secret = self.secret_file.is_some() || self.secret_env.is_some();
        let before_secret = |file| if says_secret { None } else { file };
        LoginArgs {
            as_user: self.as_user.or(before.as_user),
            login_by: self.login_by.or(before.login_by),
            secret_file: self.secret_file.or(before_secret(before.secret_file)),
            secret_env: self.secret_env.or(if says_secret { None } else { before.secret_env }),
            plaintext_login: self.plaintext_login || before.plaintext_login,
        }
    }

    /// Whether the secret may be read by whoever is in between.
    ///
    /// # Errors
    /// The environment does not say yes or no.
    pub(crate) fn plaintext_login(&self) -> Result<bool, CliError> {
        if self.plaintext_login {
            return Ok(true);
        }
        match set_in_environment(PLAINTEXT_LOGIN)?.as_deref() {
            Some("1" | "true") => Ok(true),
            None | Some("0" | "false") => Ok(false),
            Some(other) => {
                Err(CliError::Usage(format!("{PLAINTEXT_LOGIN}: {other:?} is neither 1 nor 0")))
            }
        }
    }

    /// The login; none if nobody was named.
    pub(crate) fn read(&self) -> Result<Option<Login>, CliError> {
        let user = match &self.as_user {
            Some(user) => Some(user.clone()),
            None => set_in_environment(USER)?,
        };
        let Some(user) = user else {
            if self.secret_file.is_some() || self.secret_env.is_some() || self.login_by.is_some() {
                let new = match typed::takes_new_secret() {
                    true => {
                        "; this is who you are, and the user's new secret goes with --new-secret-file"
                    }
                    false => "",
                };
                return Err(CliError::Usage(format!(
                    "a secret needs its user: --user NAME, or {USER}{new}"
                )));
            }
            return Ok(None);
        };
        let method = self.login_by.as_deref();
        let secret = self.secret(&user)?;
        Ok(Some(Login::user(method, &user, secret.as_deref())))
    }

    fn secret(&self, user: &str) -> Result<Option<String>, CliError> {
        if let Some(name) = &self.secret_env {
            let missing = || {
                CliError::Usage(format!(
                    "--secret-env: there is no variable {name}, or it is empty"
                ))
            };
            return set_in_environment(name)?.ok_or_else(missing).map(Some);
        }
        let from_env = || file_in_environment(SECRET_FILE);
        if let Some(file) = self.secret_file.clone().or_else(from_env) {
            let asked = Asked::Known(format!("secret of {user}"));
            return read_first_line("--secret-file", &file, &asked).map(Some);
        }
        set_in_environment(SECRET)
    }
}

/// A secret from a file, or from standard input: its first line. At a terminal it is asked for, and not shown.
///
/// # Errors
/// It cannot be read, or is empty; or standard input was read for something else; or it was interrupted.
pub fn read_secret(file: &Path, asked: &Asked) -> Result<String, CliError> {
    read_first_line(SECRET_OF_FILE, file, asked)
}

/// What somebody types where this file is standard input, and that is a terminal.
///
/// # Errors
/// Nothing was typed, or standard input was read for something else; or it was interrupted.
pub fn typed_secret(file: &Path, asked: &Asked) -> Result<Option<String>, CliError> {
    let typed = given::typed(SECRET_OF_FILE, file, asked);
    let typed = typed.map_err(|error| untyped(file, &error))?;
    typed.map(|typed| first_line(file, &typed)).transpose()
}

fn read_first_line(what: &'static str, file: &Path, asked: &Asked) -> Result<String, CliError> {
    let typed = given::typed(what, file, asked).map_err(|error| untyped(file, &error))?;
    let bytes = match typed {
        Some(typed) => typed,
        None => given::read(what, file, SECRET_FILE_BYTES_MAX)
            .map_err(|error| unreadable(file, &error))?,
    };
    first_line(file, &bytes)
}

fn untyped(file: &Path, error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::Interrupted => CliError::INTERRUPTED,
        _ => unreadable(file, error),
    }
}

fn first_line(file: &Path, bytes: &[u8]) -> Result<String, CliError> {
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable(file, &"it is no UTF-8 text"))?;
    match text.lines().next().unwrap_or_default() {
        "" => Err(CliError::Usage(format!("the secret from {} is empty", place(file)))),
        line => Ok(line.to_owned()),
    }
}

fn unreadable(file: &Path, why: &dyn std::fmt::Display) -> CliError {
    CliError::Usage(format!("cannot read the secret from {}: {why}", place(file)))
}

fn place(file: &Path) -> String {
    match file.to_str() {
        Some("-") => String::from("standard input"),
        _ => file.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;

    fn args(user: Option<&str>, file: Option<&str>, env: Option<&str>) -> LoginArgs {
        LoginArgs {
            as_user: user.map(str::to_owned),
            login_by: None,
            secret_file: file.map(PathBuf::from),
            secret_env: env.map(str::to_owned),
            plaintext_login: false,
        }
    }

    #[test]
    fn one_secret_is_taken_and_what_stands_after_the_command_wins() {
        let merged = args(None, None, Some("B")).or(args(Some("joe"), Some("a"), None));
        assert_eq!(merged, args(Some("joe"), None, Some("B")));
        let merged = args(Some("amy"), None, None).or(args(Some("joe"), Some("a"), None));
        assert_eq!(merged, args(Some("amy"), Some("a"), None));
        let may = |plaintext_login| LoginArgs { plaintext_login, ..args(None, None, None) };
        assert!(may(true).or(may(false)).plaintext_login);
        assert!(may(false).or(may(true)).plaintext_login);
        assert!(!may(false).or(may(false)).plaintext_login);
    }

    #[test]
    fn a_secret_without_a_user_and_a_file_without_a_secret_are_told() {
        if env::var_os(USER).is_none() {
            let error = args(None, Some("a"), None).read().unwrap_err();
            assert!(error.to_string().contains("--user"), "{error}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let error = args(Some("joe"), Some(path), None).read().unwrap_err();
        assert!(error.to_string().contains("is empty"), "{error}");
        fs::write(file.path(), "geheim\nrest\n").unwrap();
        assert_eq!(read_secret(file.path(), &Asked::New(String::new())).unwrap(), "geheim");
    }
}
