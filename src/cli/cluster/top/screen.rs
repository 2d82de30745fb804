//! A terminal's other screen: nothing of it stays when the command ends, however it does.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use distkv_command::given::keys::{INTERRUPT, key_by_key};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::rt;

/// The other screen, cleared, without a cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[2J";
/// The cursor, and the first screen as it was.
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
/// What a terminal that does not tell its size is taken for.
const USUAL: (usize, usize) = (80, 24);
/// Ctrl-Z, where the terminal hands it over as a character.
const SUSPEND: u8 = 26;
/// Within this time the signal that stops the process has reached it, whichever thread takes it.
const STOPS_WITHIN: Duration = Duration::from_millis(100);

/// The other screen, as long as this lives.
pub(super) struct Screen {
    modes: Modes,
    /// What is shown on it is gone.
    is_stale: Arc<AtomicBool>,
}

/// How the terminal was, and how it is while the screen is there; none if input is no terminal.
#[derive(Clone)]
struct Modes(Option<(Termios, Termios)>);

impl Modes {
    fn enter(&self) -> io::Result<()> {
        if let Some((_, modes)) = &self.0 {
            tcsetattr(io::stdin(), OptionalActions::Now, modes)?;
        }
        let mut out = io::stdout().lock();
        out.write_all(ENTER.as_bytes())?;
        out.flush()
    }

    fn leave(&self) {
        // If the terminal is gone, there is nothing to restore.
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        if let Some((before, _)) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }

    /// Stops the process, as Ctrl-Z does elsewhere, until the shell goes on with it (`fg`).
    fn suspend(&self) -> io::Result<()> {
        // Nothing is drawn meanwhile.
        let out = io::stdout().lock();
        self.leave();
        kill_process(getpid(), Signal::TSTP)?;
        thread::sleep(STOPS_WITHIN);
        drop(out);
        self.enter()
    }
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn enter() -> io::Result<Self> {
        let modes = tcgetattr(io::stdin()).ok().map(|before| {
            let modes = key_by_key(&before);
            (before, modes)
        });
        let screen = Self { modes: Modes(modes), is_stale: Arc::default() };
        screen.modes.enter()?;
        Ok(screen)
    }

    /// Whether it must be shown again: somebody has come back to it.
    pub(super) fn take_stale(&self) -> bool {
        self.is_stale.swap(false, Ordering::Relaxed)
    }

    /// Shows these lines, as far as they fit.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn show(&self, lines: &[String], size: (usize, usize)) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(frame(lines, size).as_bytes())?;
        out.flush()
    }

    /// Calls `quit` when somebody presses q or Ctrl-C. Ctrl-Z stops the process.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(super) fn watch_keys(&self, quit: impl Fn() + Send + 'static) -> io::Result<()> {
        let (modes, is_stale) = (self.modes.clone(), Arc::clone(&self.is_stale));
        rt::spawn_thread("keys", move || {
            // Input that ends is no wish to end.
            for key in io::stdin().lock().bytes() {
                match key {
                    Ok(b'q' | b'Q' | INTERRUPT) => return quit(),
                    Ok(SUSPEND) if modes.suspend().is_ok() => {
                        is_stale.store(true, Ordering::Relaxed);
                    }
                    // Without a terminal it is for nobody.
                    Ok(SUSPEND) => return quit(),
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        })?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.modes.leave();
    }
}

/// Columns and lines of the terminal.
pub(super) fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        _ => USUAL,
    }
}

/// What puts these lines on the screen, over what was there; cut at its edges.
fn frame(lines: &[String], (columns, rows): (usize, usize)) -> String {
    let mut frame = String::from("\u{1b}[H");
    let hidden = lines.len().saturating_sub(rows);
    let shown = if hidden > 0 { rows.saturating_sub(1) } else { lines.len() };
    for (at, line) in lines.iter().take(shown).enumerate() {
        let separator = if at == 0 { "" } else { "\r\n" };
        frame.push_str(separator);
        frame.extend(line.chars().take(columns));
        frame.push_str("\u{1b}[K");
    }
    if hidden > 0 {
        frame.push_str(&format!("\r\n+ {} more lines\u{1b}[K", hidden + 1));
    }
    frame.push_str("\u{1b}[J");
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_cut_at_the_edges_and_says_what_is_hidden() {
        let lines: Vec<String> = (0..5).map(|n| format!("line {n} äöü")).collect();
        let all = frame(&lines, (80, 5));
        assert_eq!(all.matches("\u{1b}[K").count(), 5);
        assert!(all.starts_with("\u{1b}[Hline 0") && all.ends_with("line 4 äöü\u{1b}[K\u{1b}[J"));
        let narrow = frame(&lines, (8, 3));
        assert!(narrow.contains("line 1 ä\u{1b}[K") && !narrow.contains("line 2"), "{narrow:?}");
        assert!(narrow.contains("+ 3 more lines"), "{narrow:?}");
        assert!(!narrow.ends_with('\n'), "the last line must not scroll");
    }
}
