//! Signals of the system, and of the person at the terminal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use distkv_runtime::spawn_thread;

/// What the system, or the person at the terminal, tells the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP.
    HangUp,
}

/// A file that would be longer than the process's limit for files (`ulimit -f`) is an error of the write from now on, like
/// a full disk, and not the end of the process.
pub fn survive_file_limit() {
    let heard = Arc::new(AtomicBool::new(false));
    // Where the system refuses it, it is as it was.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, heard);
}

/// Calls `handler` for each signal from now on, on a thread of its own (so that signals are
/// heard also when the runtime is not). The default action of these signals is off from here on,
/// also where that would be none, as in a container's first process.
///
/// # Errors
/// The system refuses the handlers or the thread.
pub fn on_signals(mut handler: impl FnMut(Signal) + Send + 'static) -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    spawn_thread("signals", move || {
        for number in signals.forever() {
            match number {
                SIGINT => handler(Signal::Interrupt),
                SIGTERM => handler(Signal::Terminate),
                SIGHUP => handler(Signal::HangUp),
                _ => {}
            }
        }
    })?;
    Ok(())
}
