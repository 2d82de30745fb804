//! Logs: `tracing` to standard error, as text or JSON, with a level that can be changed while the node runs.
//!
//! The level comes from `--log`, else from `DISTKV_LOG`, else from the configuration file, else it
//! is `info`. On SIGHUP the configuration file is read again, and the level in it, if there is
//! one, is taken, whatever was said at the start. Where no file says a level, SIGHUP switches
//! between the level of the start and `debug`, but not on a node with a key, a certificate or an audit log: there it
//! has another meaning.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use super::one_at_a_time::OneAtATime;
use super::settings::Settings;
use crate::cli::error::CliError;

/// The level unless told otherwise.
const LEVEL: &str = "info";
/// The environment's variable for `--log`.
const VARIABLE: &str = "DISTKV_LOG";

/// How lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::cli) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object per line, for programs.
    Json,
    /// For systemd's journal, which adds the time: each line begins with its priority, like `<4>` for a warning.
    Journald,
}

impl LogFormat {
    /// What suits standard error.
    pub(super) fn of_stderr() -> Self {
        if is_journal() { Self::Journald } else { Self::Text }
    }
}

/// Whether systemd's journal reads standard error: then `JOURNAL_STREAM` has its device and inode.
pub(in crate::cli) fn is_journal() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else { return false };
    let own = rustix::fs::fstat(io::stderr());
    own.is_ok_and(|own| stream == format!("{}:{}", own.st_dev, own.st_ino))
}

/// Whether text on standard error has colors: on a terminal that knows them, unless somebody wants none.
fn is_colored() -> bool {
    io::stderr().is_terminal() && wants_colors(|name| env::var_os(name))
}

/// What the environment says of colors; see no-color.org. An empty variable says nothing.
fn wants_colors(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let unwanted = variable("NO_COLOR").is_some_and(|text| !text.is_empty());
    !unwanted && variable("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// Events as the journal takes them.
struct JournalLines(Format<fmt::format::Full, ()>);

impl<S, N> FormatEvent<S, N> for JournalLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        let priority = priority_of(*event.metadata().level());
        // A line without one would be of no importance.
        text.lines().try_for_each(|line| writeln!(writer, "<{priority}>{line}"))
    }
}

/// As syslog has them.
fn priority_of(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// The running logs' level.
#[derive(Clone)]
pub(in crate::cli) struct Logging {
    handle: reload::Handle<EnvFilter, Registry>,
    /// The level of the start.
    level: String,
    /// The file that SIGHUP reads again.
    file: Option<PathBuf>,
    is_debug: Arc<AtomicBool>,
    asked: OneAtATime,
    /// Whether SIGHUP switches to `debug` and back.
    switches: bool,
}

impl Logging {
    /// Starts logging. Once per process.
    ///
    /// # Errors
    /// The level is none.
    pub(in crate::cli) fn start(
        level: Option<&str>,
        default: &str,
        file: Option<PathBuf>,
        format: LogFormat,
    ) -> Result<Logging, CliError> {
        let level = level.unwrap_or(default).to_owned();
        let filter = parse_filter(&level).map_err(|error| refused(&level, &error))?;
        let (filter, handle) = reload::Layer::new(filter);
        let lines = fmt::layer().with_writer(io::stderr);
        let lines = match format {
            LogFormat::Text => lines.with_ansi(is_colored()).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
            LogFormat::Journald => {
                let format = Format::default().without_time().with_level(false).with_ansi(false);
                lines.with_ansi(false).event_format(JournalLines(format)).boxed()
            }
        };
        let started = tracing_subscriber::registry().with(filter).with(lines).try_init();
        started.map_err(|error| CliError::Failure(format!("cannot start logging: {error}")))?;
        let (is_debug, asked) = (Arc::default(), OneAtATime::default());
        Ok(Logging { handle, level, file, is_debug, asked, switches: true })
    }

    /// SIGHUP has another meaning as well, so it changes the level only if a file says so.
    pub(in crate::cli) fn without_switch(self) -> Self {
        Self { switches: false, ..self }
    }

    /// What SIGHUP asks for: the level of the configuration file, or debug on and off.
    ///
    /// Reading the file may take long, so signals do not wait for it; at most one thread does.
    pub(super) fn reload(&self) {
        if self.file.is_none() {
            return self.take(None);
        }
        let logging = self.clone();
        let begun = self.asked.ask("log-level", move || {
            logging.take(logging.file.as_deref().map(Settings::load_again));
        });
        match begun {
            Ok(true) => {}
            Ok(false) => tracing::warn!(
                "the configuration file is still being read, since an earlier SIGHUP; it is read again after that"
            ),
            Err(error) => {
                tracing::warn!("the log level stays as it is: no thread to read it: {error}")
            }
        }
    }

    fn take(&self, from_file: Option<Result<Settings, CliError>>) {
        let level = match from_file {
            Some(Ok(Settings { log: Some(level), .. })) => level,
            Some(Err(error)) => {
                tracing::warn!("the log level stays as it is: {error}");
                return;
            }
            Some(Ok(_)) | None if !self.switches => return,
            Some(Ok(_)) | None => {
                let was_debug = self.is_debug.fetch_xor(true, Ordering::Relaxed);
                if was_debug { self.level.clone() } else { String::from("debug") }
            }
        };
        match parse_filter(&level).map(|filter| self.handle.reload(filter)) {
            Ok(Ok(())) => tracing::warn!("the log level is {level} now"),
            Ok(Err(error)) => tracing::warn!("the log level stays as it is: {error}"),
            Err(error) => tracing::warn!("the log level stays as it is: {error}"),
        }
    }
}

/// The level where neither option, environment nor file has one.
pub(super) fn default_level() -> &'static str {
    LEVEL
}

/// Whether there is such a level.
///
/// # Errors
/// There is none.
pub(super) fn check_level(level: &str) -> Result<(), CliError> {
    parse_filter(level).map(drop).map_err(|error| refused(level, &error))
}

/// The level that was typed, or that the environment names: an empty variable says nothing.
pub(super) fn level_given(level: Option<String>) -> Option<String> {
    level.filter(|level| !level.is_empty() || !is_of_environment(level))
}

fn refused(level: &str, error: &str) -> CliError {
    let by = if is_of_environment(level) { VARIABLE } else { "--log" };
    CliError::Usage(format!("{by}: {error}"))
}

/// Whether this level is the one that the environment names.
fn is_of_environment(level: &str) -> bool {
    env::var(VARIABLE).is_ok_and(|named| named == level)
}

/// A level for all of this program, or directives as `tracing` takes them.
fn parse_filter(level: &str) -> Result<EnvFilter, String> {
    let directives = match level.to_ascii_lowercase().as_str() {
        "off" => String::from("off"),
        "error" => String::from("error"),
        "warn" => String::from("warn"),
        // What libraries have to say beyond that is for those who look for bugs in them.
        "info" => String::from("warn,distkv=info"),
        "debug" => String::from("info,distkv=debug"),
        "trace" => String::from("trace"),
        _ => level.to_owned(),
    };
    let is_word = !level.contains(['=', ',']) && directives == level;
    let known = ["off", "error", "warn", "trace"];
    if level.is_empty() || (is_word && !known.contains(&level)) {
        return Err(format!("{level:?} is no level; use off, error, warn, info, debug or trace"));
    }
    EnvFilter::try_new(&directives).map_err(|error| format!("{level:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_for_terminals_that_know_them_and_people_who_want_them() {
        let wants = |no_color: Option<&str>, terminal: Option<&str>| {
            wants_colors(|name| match name {
                "NO_COLOR" => no_color.map(OsString::from),
                _ => terminal.map(OsString::from),
            })
        };
        assert!(wants(None, None) && wants(None, Some("xterm")) && wants(Some(""), Some("xterm")));
        for (no_color, terminal) in [(Some("1"), Some("xterm")), (None, Some("dumb"))] {
            assert!(!wants(no_color, terminal), "{no_color:?} {terminal:?}");
        }
    }

    #[test]
    fn levels_are_words_or_directives() {
        for level in ["off", "error", "warn", "info", "DEBUG", "trace", "info,distkv::node=debug"] {
            assert!(parse_filter(level).is_ok(), "{level}");
        }
        for level in ["", "loud", "distkv=loud"] {
            assert!(parse_filter(level).is_err(), "{level}");
        }
    }
}
