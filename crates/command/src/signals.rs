//! Signals of the system, and of the person at the terminal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use distkv_runtime::{now, spawn_thread};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::error::CliError;

/// What the system, or the person at the terminal, tells the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP.
    HangUp,
    /// SIGUSR1 or SIGUSR2, by its name: nothing is to be done. Without a handler, the system ends the process.
    OfNoMeaning(&'static str),
}

/// A file that would be longer than the process's limit for files (`ulimit -f`) is an error of the write from now on, like
/// a full disk, and not the end of the process.
pub fn survive_file_limit() {
    let heard = Arc::new(AtomicBool::new(false));
    // Where the system refuses it, it is as it was.
    let _ = signal_hook::flag::register(SIGXFSZ, heard);
}

/// Signals to end that follow each other within this time are one: `timeout`, shells and service managers send theirs to
/// the process and to its group. Nobody presses Ctrl-C twice so fast.
const ONE_WITHIN_MS: u64 = 100;

/// Tells signals to end apart.
#[derive(Default)]
struct Ends {
    /// When the last one was heard that counts.
    last_ms: Option<u64>,
}

impl Ends {
    /// Whether it is another one than the last.
    fn is_another(&mut self, now_ms: u64) -> bool {
        let is_another =
            self.last_ms.is_none_or(|last| now_ms.saturating_sub(last) >= ONE_WITHIN_MS);
        if is_another {
            self.last_ms = Some(now_ms);
        }
        is_another
    }
}

/// Signals that the system keeps from now on for a handler that is yet to come: until then they do nothing. A node sets this
/// up before it reads its command line, as what starts it may end it at once. The default action of these signals is off from
/// here on, also where that would be none, as in a container's first process.
pub struct Kept {
    signals: Signals,
    hang_up_ends: bool,
}

impl Kept {
    /// Those of [`on_signals`].
    ///
    /// # Errors
    /// [`CliError::Failure`]: the system refuses the handlers.
    pub fn signals() -> Result<Self, CliError> {
        Self::new(false).map_err(refused)
    }

    /// Those of [`on_ends`].
    ///
    /// # Errors
    /// As [`Kept::signals`].
    pub fn ends() -> Result<Self, CliError> {
        Self::new(true).map_err(refused)
    }

    fn new(hang_up_ends: bool) -> io::Result<Self> {
        let heeded: &[i32] = match hang_up_ends {
            true if is_ignored(SIGHUP) => &[SIGINT, SIGTERM],
            true => &[SIGINT, SIGTERM, SIGHUP],
            // What serves for long gets those that are meant for other programs, too.
            false => &[SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2],
        };
        Ok(Self { signals: Signals::new(heeded)?, hang_up_ends })
    }

    /// Calls `handler` for each signal that came since, of several of one kind once, and for each from now on; on a thread
    /// of its own, so that signals are heard also when the runtime is not.
    ///
    /// # Errors
    /// [`CliError::Failure`]: the system refuses the thread.
    pub fn hear(self, mut handler: impl FnMut(Signal) + Send + 'static) -> Result<(), CliError> {
        let hang_up_ends = self.hang_up_ends;
        let mut ends = Ends::default();
        self.each(move |number| match number {
            SIGINT if ends.is_another(now()) => handler(Signal::Interrupt),
            SIGTERM if ends.is_another(now()) => handler(Signal::Terminate),
            SIGHUP if !hang_up_ends || ends.is_another(now()) => handler(Signal::HangUp),
            SIGUSR1 => handler(Signal::OfNoMeaning("SIGUSR1")),
            SIGUSR2 => handler(Signal::OfNoMeaning("SIGUSR2")),
            _ => {}
        })
    }

    /// The signals do what is usual, also those that came since: this process is no node after all.
    pub fn give_back(self) {
        // Where the system refuses the thread, this process ends soon all the same.
        let _ = self.each(|number| {
            let _ = signal_hook::low_level::emulate_default_handler(number);
        });
    }

    fn each(self, mut handler: impl FnMut(i32) + Send + 'static) -> Result<(), CliError> {
        let mut signals = self.signals;
        let thread = spawn_thread("signals", move || signals.forever().for_each(&mut handler));
        thread.map(drop).map_err(refused)
    }
}

/// Calls `handler` for each signal from now on, on a thread of its own; SIGUSR1 and SIGUSR2 are heard, too ([`Kept`]).
///
/// # Errors
/// [`CliError::Failure`]: the system refuses the handlers or the thread.
pub fn on_signals(handler: impl FnMut(Signal) + Send + 'static) -> Result<(), CliError> {
    Kept::signals()?.hear(handler)
}

/// The same where SIGHUP is a signal to end like the others: one that comes with another one is that one. Where SIGHUP was
/// ignored when the process began (`nohup`), it stays so: whoever began it wants it to outlive its terminal.
///
/// # Errors
/// As [`on_signals`].
pub fn on_ends(handler: impl FnMut(Signal) + Send + 'static) -> Result<(), CliError> {
    Kept::ends()?.hear(handler)
}

/// From now on SIGQUIT does what is usual only where this is set; until then nothing, in this process. Programs that it
/// starts begin with what is usual. Where it was ignored when the process began, it stays so.
///
/// # Errors
/// As [`on_signals`].
pub fn heed_quit_from(is_heeded: Arc<AtomicBool>) -> Result<(), CliError> {
    if is_ignored(SIGQUIT) {
        return Ok(());
    }
    let done = signal_hook::flag::register_conditional_default(SIGQUIT, is_heeded);
    done.map(drop).map_err(refused)
}

/// What each SIGINT sets from now on, in the moment in which it comes: a handler of [`on_ends`] may hear of it later. To be
/// called before that, so that it is set when the handler is called.
///
/// # Errors
/// As [`on_signals`].
pub fn note_interrupts() -> Result<Arc<AtomicBool>, CliError> {
    let noted = Arc::new(AtomicBool::new(false));
    let done = signal_hook::flag::register(SIGINT, Arc::clone(&noted));
    done.map(|_| noted).map_err(refused)
}

fn refused(error: io::Error) -> CliError {
    CliError::Failure(format!("cannot listen for signals: {error}"))
}

/// Whether this process ignores a signal. Where the system does not tell, it does not.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use signal_hook::low_level::raise;

    use super::*;

    #[test]
    fn a_signal_that_comes_before_somebody_listens_is_heard_then() {
        let kept = Kept::signals().unwrap();
        raise(SIGUSR1).unwrap();
        raise(SIGTERM).unwrap();
        let (sender, heard) = channel();
        kept.hear(move |signal| sender.send(signal).unwrap()).unwrap();
        let mut all = [heard.recv().unwrap(), heard.recv().unwrap()];
        all.sort_by_key(|signal| *signal == Signal::Terminate);
        assert_eq!(all, [Signal::OfNoMeaning("SIGUSR1"), Signal::Terminate]);
        raise(SIGUSR2).unwrap();
        assert_eq!(heard.recv().unwrap(), Signal::OfNoMeaning("SIGUSR2"));
    }

    #[test]
    fn a_signal_that_comes_twice_at_once_is_one() {
        let mut ends = Ends::default();
        let heard = [0, 1, 50, 200, 299, 1_000].map(|now_ms| ends.is_another(now_ms));
        assert_eq!(heard, [true, false, false, true, false, true]);
        // Who sends them all the time is heard.
        let heard = [1_060, 1_120, 1_180].map(|now_ms| ends.is_another(now_ms));
        assert_eq!(heard, [false, true, false]);
    }
}
