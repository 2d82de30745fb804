//! What a command ends with when it does not end well, and which exit code that is.

use std::io::{self, Write as _};
use std::sync::OnceLock;

use distkv_client::{CallError, ClientError, Fate, PLAINTEXT_LOGIN, ServerError};
use distkv_model::secrets::without_tickets;
use serde_json::json;

use crate::output::{longest_wait, printable, printable_lines, printable_path, typed};

pub use distkv_model::secrets::{looks_secret, without_secrets};
pub use parsing::explain;

mod doubt;
mod parsing;

/// The exit code of a command that did what it was asked.
pub const EXIT_OK: u8 = 0;
/// The exit code of a command that failed, of a `get` that found nothing, of a `status` that is
/// not ready, of a `wait` that timed out.
pub(crate) const EXIT_FAILURE: u8 = 1;
/// The exit code of a command line, a configuration file, a path or a value that makes no sense.
pub const EXIT_USAGE: u8 = 2;

/// The exit code of a command that a node refuses, and of a node that its network refuses for good: doing it
/// again does not help.
pub(crate) const EXIT_REFUSED: u8 = 3;

/// The exit code of a node that has found a defect of its own: a broken invariant, or any other panic.
/// It can be started again.
pub const EXIT_BROKEN: u8 = 4;

/// The exit code of a change whose precondition does not hold: somebody else was faster.
pub(crate) const EXIT_PRECONDITION: u8 = 5;

/// The exit code of a command that has reached no node, or that only reads and got no answer: nothing was done. And of one that
/// compares two nodes, where one of them is still catching up: that is no answer, either.
pub const EXIT_UNREACHABLE: u8 = 6;

/// The exit code of a command whose answer did not come: it may have been done.
pub(crate) const EXIT_UNKNOWN_FATE: u8 = 7;

/// The exit code of a command whose exit code is an answer, where that could not be written: it is none of the answers.
pub(crate) const EXIT_UNWRITTEN: u8 = 8;

/// The exit code of a command that SIGINT or SIGTERM has interrupted: 128 and the number of SIGINT, as shells have it.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// From which time on it is told that nobody took what a command printed. A node waits for 60 s, and not for what the
/// system keeps in between.
const UNREAD_MS: u64 = 30_000;

/// The code of a node that knows its clients.
const AUTH_REQUIRED: &str = "auth_required";
/// Whether the node that was reached first has a key. One process runs one command, at one network.
static HAS_KEY: OnceLock<bool> = OnceLock::new();

/// A node was reached. `has_key`: it has a key.
pub(crate) fn note_node(has_key: bool) {
    // It is the first that counts.
    let _ = HAS_KEY.set(has_key);
}

/// What to do about a login that is missing. `has_key`: whether the network has a key, if that is known.
fn log_in(has_key: Option<bool>) -> &'static str {
    match has_key {
        Some(true) => "log in with --key, --ticket, or --user and --secret-file",
        Some(false) => "log in with --ticket, or --user and --secret-file",
        None => {
            "log in with --ticket, --user and --secret-file, or the network's --key, if it has one"
        }
    }
}

/// The same, by what is known.
fn login_advice() -> &'static str {
    log_in(HAS_KEY.get().copied())
}

/// The options with which somebody logs in, for people.
pub fn login_options() -> &'static str {
    let advice = login_advice();
    advice.strip_prefix("log in with ").unwrap_or(advice)
}

/// What to do where a secret is not sent in plain text.
const INSTEAD_OF_PLAINTEXT: &str =
    "use a ticket, --key or --node-ca (TLS), a tunnel, or --plaintext-login";

/// Why a command did not end well. Each text is one line: what, where, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CliError {
    /// What was typed makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It could not be done.
    #[error("{0}")]
    Failure(String),
    /// A request to a node has ended like this.
    #[error("{text}")]
    Request {
        /// How.
        outcome: Outcome,
        /// The node's word for it, if it was a node that said so; or the client's own (`plaintext_login`, `wrong_time`).
        code: Option<String>,
        /// For people.
        text: String,
    },
    /// The node's network does not take it, and will not unless somebody changes something.
    #[error("{0}")]
    Refused(String),
    /// It failed, and what there is to say was printed already.
    #[error("")]
    Told,
    /// The same, with another exit code.
    #[error("")]
    ToldAs(u8),
    /// Of a command whose exit code is an answer: what it has found cannot be written.
    #[error("{0}")]
    Unwritten(String),
    /// It was interrupted, and has tidied up. What is not done, if there is something to say.
    #[error("interrupted{colon}{0}", colon = if .0.is_empty() { "" } else { ": " })]
    Interrupted(String),
    /// Whoever read the output has gone. That is for it to decide, so it is no failure.
    #[error("the output is closed")]
    OutputClosed,
}

/// How a request to a node can end, other than well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There is no such thing.
    NotFound,
    /// The node refuses it.
    Refused,
    /// A precondition does not hold.
    Precondition,
    /// No node was reached, or a read got no answer: nothing was done.
    Unreachable,
    /// It may have been done.
    UnknownFate,
    /// None of these.
    Failed,
}

impl Outcome {
    /// Of what a node answers. A node that is not ready yet, or has failed, refuses nothing.
    fn of(error: &ServerError) -> Outcome {
        match error.code.as_deref() {
            // What may be deleted of a tree is, and the rest is refused for good: its text says how much.
            Some("denied" | "auth_required") => Outcome::Refused,
            _ if error.is_made => Outcome::UnknownFate,
            Some("not_found") => Outcome::NotFound,
            Some(
                "already_exists" | "is_new" | "chain_mismatch" | "data_mismatch" | "wid_reused",
            ) => Outcome::Precondition,
            Some("unknown_fate") => Outcome::UnknownFate,
            Some("not_ready") => Outcome::Unreachable,
            Some("internal" | "storage_failed" | "no_event" | "too_slow" | "given_up") | None => {
                Outcome::Failed
            }
            Some(_) => Outcome::Refused,
        }
    }

    /// The exit code.
    #[must_use]
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Outcome::NotFound | Outcome::Failed => EXIT_FAILURE,
            Outcome::Refused => EXIT_REFUSED,
            Outcome::Precondition => EXIT_PRECONDITION,
            Outcome::Unreachable => EXIT_UNREACHABLE,
            Outcome::UnknownFate => EXIT_UNKNOWN_FATE,
        }
    }

    /// Its word, for programs.
    #[must_use]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Outcome::NotFound => "not_found",
            Outcome::Failed => "failed",
            Outcome::Refused => "refused",
            Outcome::Precondition => "precondition",
            Outcome::Unreachable => "unreachable",
            Outcome::UnknownFate => "unknown_fate",
        }
    }
}

impl CliError {
    /// It was interrupted, and there is nothing more to say.
    pub const INTERRUPTED: CliError = CliError::Interrupted(String::new());

    /// What a stream ends with. None of them changes anything.
    #[must_use]
    pub fn of_stream(error: ClientError) -> CliError {
        let is_lost = matches!(error, ClientError::Lost { .. });
        match CliError::from(error).of_read() {
            CliError::Request { outcome, code, text } if is_lost => {
                CliError::Request { outcome, code, text: unread(text, longest_wait()) }
            }
            error => error,
        }
    }

    /// Of a file that says how to work, and not what to work on: that it cannot be read is a mistake of whoever names it.
    #[must_use]
    pub fn of_setting(self) -> CliError {
        match self {
            CliError::Failure(text) => CliError::Usage(text),
            other => other,
        }
    }

    /// There is no such thing.
    #[must_use]
    pub fn not_found(text: String) -> CliError {
        CliError::Request { outcome: Outcome::NotFound, code: None, text }
    }

    /// A user's new secret is not sent to this address in plain text, nor from there.
    #[must_use]
    pub(crate) fn plaintext_secret(address: &str) -> CliError {
        let text = format!(
            "the user's new secret would go over the network in plain text, with {address} at the other end, so nothing \
             was changed: {INSTEAD_OF_PLAINTEXT}"
        );
        let code = Some(PLAINTEXT_LOGIN.to_owned());
        CliError::Request { outcome: Outcome::Refused, code, text }
    }

    /// The same, with another text.
    #[must_use]
    pub fn said(self, say: impl FnOnce(String) -> String) -> CliError {
        match self {
            CliError::Failure(text) => CliError::Failure(say(text)),
            CliError::Request { outcome, code, text } => {
                CliError::Request { outcome, code, text: say(text) }
            }
            other => other,
        }
    }

    /// Whether a node has refused with this word. Not where an earlier try may have been made: what the last one has met may
    /// be its doing.
    #[must_use]
    pub fn has_code(&self, word: &str) -> bool {
        match self {
            CliError::Request { outcome: Outcome::UnknownFate, .. } => false,
            CliError::Request { code: Some(code), .. } => code == word,
            _ => false,
        }
    }

    /// The exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage(_) => EXIT_USAGE,
            CliError::Failure(_) | CliError::Told => EXIT_FAILURE,
            CliError::Request { outcome, .. } => outcome.exit_code(),
            CliError::Refused(_) => EXIT_REFUSED,
            CliError::ToldAs(code) => *code,
            CliError::Unwritten(_) => EXIT_UNWRITTEN,
            CliError::Interrupted(_) => EXIT_INTERRUPTED,
            CliError::OutputClosed => EXIT_OK,
        }
    }

    /// What there is to say, without what looks like a secret.
    fn shown(&self) -> String {
        let text = self.to_string();
        match self {
            CliError::Request { .. } => {
                typed::without_typed_secrets(without_tickets(&text).into_owned())
            }
            _ => without_secrets(&text).into_owned(),
        }
    }

    /// Prints what there is to say to standard error, if there is one: as text, or as one line of JSON. Gives the
    /// exit code.
    pub fn tell(&self, is_json: bool) -> u8 {
        let (outcome, code) = match self {
            CliError::Usage(_) => ("usage", None),
            CliError::Failure(_) => (Outcome::Failed.word(), None),
            CliError::Request { outcome, code, .. } => (outcome.word(), code.as_deref()),
            CliError::Refused(_) => (Outcome::Refused.word(), None),
            CliError::Unwritten(_) => ("unwritten", None),
            CliError::Interrupted(_) => ("interrupted", None),
            CliError::Told | CliError::ToldAs(_) | CliError::OutputClosed => {
                return self.exit_code();
            }
        };
        match self {
            _ if is_json => tell_programs(&self.shown(), outcome, code, self.exit_code(), None),
            // Who has pressed Ctrl-C knows that.
            CliError::Interrupted(left) if left.is_empty() => {}
            // It is no error.
            CliError::Interrupted(_) => {
                tell(&format!("{}\n", printable_lines(&self.shown())));
            }
            // One line, whatever a node repeats in it of a path.
            CliError::Request { .. } => {
                tell(&format!("error: {}\n", printable_path(&self.shown())));
            }
            _ => tell(&format!("error: {}\n", printable_lines(&self.shown()))),
        }
        self.exit_code()
    }

    /// The same; of a command that was interrupted, it also says what is not done.
    #[must_use]
    pub fn left(self, what: &str) -> CliError {
        match self {
            CliError::Interrupted(known) if known.is_empty() => {
                CliError::Interrupted(what.to_owned())
            }
            CliError::Interrupted(known) => CliError::Interrupted(format!("{known}; {what}")),
            other => other,
        }
    }

    /// For an error of writing to standard output.
    pub fn of_output(error: &io::Error) -> CliError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::OutputClosed,
            _ => CliError::Failure(format!(
                "cannot write to standard output: {error}; if the command was to change anything, that may have been done"
            )),
        }
    }
}

/// Prints an error as one line of JSON. `tip`: what to type instead, if that is known.
fn tell_programs(text: &str, outcome: &str, code: Option<&str>, exit_code: u8, tip: Option<&str>) {
    let mut error =
        json!({"error": text, "outcome": outcome, "code": code, "exit_code": exit_code});
    if let (Some(tip), Some(fields)) = (tip, error.as_object_mut()) {
        fields.insert(String::from("tip"), tip.into());
    }
    tell(&format!("{}\n", printable(&error.to_string())));
}

fn tell(text: &str) {
    // There may be no standard error.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// What a node says, for people. An error about a change that was made is no refusal: others see it, and it may be lost. A
/// node that is not ready yet refuses nothing either.
fn told(error: &ServerError) -> String {
    let outcome = Outcome::of(error);
    let is_refusal =
        outcome == Outcome::Refused || !error.is_made && outcome != Outcome::Unreachable;
    let refuses = if is_refusal { "the node refuses: " } else { "" };
    format!("{refuses}{}{}{}", error.text, who_sees_why(error), in_brackets(error))
}

/// Who can find out why an access list refuses something, and how.
fn who_sees_why(error: &ServerError) -> String {
    error.explain.as_deref().map_or_else(String::new, |(user, path)| {
        let command = typed::command_of_others("acl explain", &[user, path]);
        format!("; an admin sees why with {command}")
    })
}

/// Its word, behind its text.
fn in_brackets(error: &ServerError) -> String {
    error.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default()
}

/// That a secret was not sent, in the words of commands.
fn in_plaintext(address: &str) -> String {
    format!(
        "{address} asks for a login, and the user's secret would go there in plain text: {INSTEAD_OF_PLAINTEXT}"
    )
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> CliError {
        let text = match &error {
            ClientError::Connect { .. } if error.began_too_late() => error.to_string(),
            ClientError::Connect { .. } if error.has_no_greeting() => format!(
                "{error} If so, it hangs, or the way to it does: name another node with --connect, or use --timeout to wait \
                 longer"
            ),
            ClientError::Connect { .. } => {
                format!("{error}; start a node with `run`, or name another one with --connect")
            }
            ClientError::Resolve { .. } => {
                format!("{error}; check its spelling, or the name service")
            }
            ClientError::Protocol { .. } => {
                format!("{error}; --connect takes a node's client port (default 27586)")
            }
            ClientError::Server(server) if server.has_code(AUTH_REQUIRED) => {
                format!("{}; {}", told(server), login_advice())
            }
            ClientError::Server(server) => told(server),
            ClientError::NoAccess { address, code: Some(code), .. }
                if **code == *PLAINTEXT_LOGIN =>
            {
                in_plaintext(address)
            }
            ClientError::NoAccess { .. }
            | ClientError::LoginWaits { .. }
            | ClientError::OtherNetwork { .. }
            | ClientError::Lost { .. }
            | ClientError::NoDescriptor { .. }
            | ClientError::Silent { .. }
            | ClientError::NoTime
            | ClientError::TooLarge(_)
            | ClientError::Busy(_)
            | ClientError::TooManyStreams { .. } => error.to_string(),
        };
        let code = match &error {
            ClientError::NoAccess { code, .. } => code.as_deref().map(str::to_owned),
            other => other.server().and_then(|server| server.code.clone()),
        };
        CliError::Request { outcome: outcome_of(&error), code, text }
    }
}

impl From<ServerError> for CliError {
    fn from(error: ServerError) -> CliError {
        ClientError::Server(error).into()
    }
}

/// Why a connection was lost, where that may be because nobody read what was printed for so long.
fn unread(text: String, wait_ms: u64) -> String {
    if wait_ms < UNREAD_MS {
        return text;
    }
    let wait = wait_ms / 1_000;
    format!(
        "{text}; what this command prints was not read for {wait} s, and a node closes a connection from which nothing \
         is read for 60 s: print into a file, and read that"
    )
}

fn outcome_of(error: &ClientError) -> Outcome {
    match error {
        ClientError::Server(server) => Outcome::of(server),
        // Another network's node is none of those that are meant, and one that makes the login wait has refused nothing.
        ClientError::Connect { .. }
        | ClientError::NoDescriptor { .. }
        | ClientError::NoTime
        | ClientError::LoginWaits { .. }
        | ClientError::Resolve { .. }
        | ClientError::OtherNetwork { .. } => Outcome::Unreachable,
        ClientError::NoAccess { .. } => Outcome::Refused,
        ClientError::Lost { .. } | ClientError::Silent { .. } => Outcome::UnknownFate,
        ClientError::Protocol { .. }
        | ClientError::TooLarge(_)
        | ClientError::Busy(_)
        | ClientError::TooManyStreams { .. } => Outcome::Failed,
    }
}

impl From<CallError> for CliError {
    fn from(error: CallError) -> CliError {
        let (outcome, text) = match &error {
            CallError::Refused { error: server, at } if at.is_doubtful(server) => {
                let text = format!(
                    "{}{} {}",
                    at.words_of(server),
                    in_brackets(server),
                    at.of_refusal(server)
                );
                (Outcome::UnknownFate, text)
            }
            CallError::Refused { error: server, at } => {
                (Outcome::of(server), format!("{} {}", told(server), at.of_refusal(server)))
            }
            CallError::NoAccess {
                error: ClientError::NoAccess { code: Some(code), greeted: true, .. },
                ..
            } if **code == *AUTH_REQUIRED => {
                (Outcome::Refused, format!("{error}; {}", login_advice()))
            }
            CallError::NoAccess {
                error: ClientError::NoAccess { address, code: Some(code), .. },
                at,
            } if **code == *PLAINTEXT_LOGIN => {
                (Outcome::Refused, format!("{} {at}", in_plaintext(address)))
            }
            CallError::NoAccess { error: ClientError::OtherNetwork { .. }, .. } => {
                (Outcome::Unreachable, error.to_string())
            }
            CallError::NoAccess { .. } => (Outcome::Refused, error.to_string()),
            CallError::Unavailable { error: inner @ ClientError::Connect { .. }, .. }
                if !inner.began_too_late() =>
            {
                (
                    Outcome::Unreachable,
                    format!("{error}; --connect names the nodes that are tried first"),
                )
            }
            CallError::Unavailable { .. } | CallError::NoMajority { .. } => {
                (Outcome::Unreachable, error.to_string())
            }
            CallError::FateUnknown { .. } => (Outcome::UnknownFate, error.to_string()),
            _ if error.fate() != Fate::NotDone => (Outcome::UnknownFate, error.to_string()),
            _ => (Outcome::Failed, error.to_string()),
        };
        let code = error.code().map(str::to_owned);
        CliError::Request { outcome, code, text }
    }
}

#[cfg(test)]
mod tests {
    use distkv_client::{At, OwnNetwork};

    use super::*;

    fn code_of(word: Option<&str>) -> u8 {
        let code = word.map(str::to_owned);
        let error = ServerError::new(code, String::from("no"));
        CliError::from(ClientError::Server(error)).exit_code()
    }

    #[test]
    fn a_change_that_is_made_and_not_on_disk_has_not_failed() {
        for (is_made, expected) in [(true, EXIT_UNKNOWN_FATE), (false, EXIT_FAILURE)] {
            let code = Some(String::from("storage_failed"));
            let server = ServerError { is_made, ..ServerError::new(code, String::from("no")) };
            let error = CliError::from(ClientError::Server(server));
            assert_eq!(error.exit_code(), expected, "{error}");
            assert_eq!(error.to_string().contains("refuses"), !is_made, "{error}");
        }
    }

    #[test]
    fn a_refusal_behind_a_try_that_may_have_been_made_says_nothing_of_that_one() {
        let text = |code: &str, is_made, fate| {
            let words = String::from("no, not at a.b; nothing was changed; try another node");
            let error = ServerError { is_made, ..ServerError::new(Some(code.to_owned()), words) };
            let at = At { node: Some(String::from("n1")), attempts: 2, fate };
            let error = CliError::from(CallError::Refused { error, at });
            (error.exit_code(), error.has_code(code), error.to_string())
        };
        for code in
            ["data_mismatch", "is_new", "already_exists", "wid_reused", "denied", "memory_full"]
        {
            for (fate, told) in [
                (Fate::Unknown, "may have been done"),
                (Fate::Unconfirmed, "done but not confirmed"),
            ] {
                let of = text(code, false, fate);
                let expected = format!(
                    "an earlier try may have done it; the last one was refused: no, not at a.b; try another node \
                     ({code}) (at n1, 2 tries, {told})"
                );
                assert_eq!(of, (EXIT_UNKNOWN_FATE, false, expected));
            }
            let (exit_code, has_code, told) = text(code, false, Fate::NotDone);
            assert!(
                has_code && told.starts_with("the node refuses: no, not at a.b; nothing"),
                "{told}"
            );
            assert!([EXIT_PRECONDITION, EXIT_REFUSED].contains(&exit_code), "{told}");
        }
        // What may be deleted of a tree is: the node itself says how much.
        let (exit_code, _, told) = text("denied", true, Fate::Unknown);
        assert!(
            exit_code == EXIT_REFUSED && told.ends_with("(denied) (at n1, 2 tries, done in part)"),
            "{told}"
        );
        let closed = |fate| CallError::Closed(At { node: None, attempts: 1, fate });
        assert_eq!(CliError::from(closed(Fate::Unknown)).exit_code(), EXIT_UNKNOWN_FATE);
        assert_eq!(CliError::from(closed(Fate::NotDone)).exit_code(), EXIT_FAILURE);
    }

    #[test]
    fn what_a_node_says_decides_the_exit_code() {
        assert_eq!(code_of(Some("not_found")), EXIT_FAILURE);
        for word in ["already_exists", "is_new", "chain_mismatch", "data_mismatch", "wid_reused"] {
            assert_eq!(code_of(Some(word)), EXIT_PRECONDITION, "{word}");
        }
        for word in ["denied", "read_only", "memory_full", "auth_required", "type_mismatch"] {
            assert_eq!(code_of(Some(word)), EXIT_REFUSED, "{word}");
        }
        assert_eq!(code_of(Some("unknown_fate")), EXIT_UNKNOWN_FATE);
        assert_eq!(code_of(Some("not_ready")), EXIT_UNREACHABLE);
        assert_eq!(code_of(Some("internal")), EXIT_FAILURE);
        assert_eq!(code_of(None), EXIT_FAILURE);
    }

    #[test]
    fn a_key_is_advised_only_where_there_may_be_one() {
        assert!(log_in(Some(true)).contains("--key") && log_in(None).contains("if it has one"));
        assert!(!log_in(Some(false)).contains("--key"));
        for has_key in [Some(true), Some(false), None] {
            assert!(log_in(has_key).contains("--user and --secret-file"), "{has_key:?}");
        }
    }

    #[test]
    fn how_a_node_was_reached_decides_it_too() {
        let (address, reason) = (String::from("a:1"), String::from("no"));
        let of = |error: ClientError| CliError::from(error).exit_code();
        let connect = ClientError::Connect { address: address.clone(), reason: reason.clone() };
        assert_eq!(of(connect), EXIT_UNREACHABLE);
        let lost = ClientError::Lost { address: address.clone(), reason: reason.clone() };
        assert_eq!(of(lost), EXIT_UNKNOWN_FATE);
        let no_access = ClientError::NoAccess { address, reason, code: None, greeted: true };
        assert_eq!(of(no_access), EXIT_REFUSED);
    }

    #[test]
    fn of_another_network_s_name_so_much_is_shown_as_a_name_has() {
        let of = |theirs: &str| {
            let ours = Box::new(OwnNetwork::named("own").unwrap());
            let (address, theirs) = (String::from("a:1"), theirs.into());
            CliError::from(ClientError::OtherNetwork { address, ours, theirs }).to_string()
        };
        let said = of("other");
        assert_eq!(
            said,
            "cannot use a:1: it is a node of the network \"other\", and this client is of \"own\", as its configuration says"
        );
        let said = of(&format!("\u{1b}[2J\n{}", "x".repeat(100_000)));
        assert!(said.len() < 300 && said.contains("xx\"…, and this client"), "{said}");
        assert!(!said.chars().any(char::is_control), "{said}");
        let ours = OwnNetwork::of_node(&"y".repeat(100_000)).unwrap();
        let error = ClientError::OtherNetwork {
            address: String::from("a:1"),
            ours: Box::new(ours),
            theirs: "b".into(),
        };
        assert!(CliError::from(error).to_string().len() < 300);
    }

    #[test]
    fn a_text_can_be_changed_and_the_outcome_stays() {
        let server = ServerError::new(Some("denied".into()), String::from("no"));
        let error =
            CliError::from(ClientError::Server(server)).said(|text| format!("line 3: {text}"));
        assert_eq!(error.to_string(), "line 3: the node refuses: no (denied)");
        assert!(error.has_code("denied") && error.exit_code() == EXIT_REFUSED);
    }

    #[test]
    fn a_stream_whose_output_nobody_read_says_why_its_node_may_have_gone() {
        let lost = || {
            CliError::of_stream(ClientError::Lost {
                address: String::from("n1:5"),
                reason: String::from("gone"),
            })
        };
        assert!(!lost().to_string().contains("not read"));
        crate::output::note_wait(75_400);
        let text = lost().to_string();
        assert!(text.contains("gone") && text.contains("not read for 75 s"), "{text}");
        let other = ClientError::Busy(5);
        assert!(!CliError::of_stream(other).to_string().contains("not read"));
    }
}
