//! A secret that somebody types at a terminal: it is asked for, and not shown. Keys are read one by one, so that Ctrl-C
//! leaves the terminal as it was.

use std::io::{self, ErrorKind, Write as _};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::keys::{INTERRUPT, key_by_key};

/// Most bytes of what is typed; further ones are not taken.
const TYPED_BYTES_MAX: usize = 4 << 10;

/// Ctrl-D.
const END: u8 = 4;
/// Ctrl-U.
const KILL: u8 = 21;

/// What people are asked for, and whether they know it already.
#[derive(Debug, Clone)]
pub enum Asked {
    /// It is known, so typing it once is enough. What, as in "password of joe".
    Known(String),
    /// It is new, and must be typed twice: nobody could log in with a slip.
    New(String),
}

/// Asks at the terminal that standard input is.
///
/// # Errors
/// [`ErrorKind::Interrupted`]: by Ctrl-C. Nothing was typed, or not the same twice, or the terminal is gone.
pub(super) fn ask(asked: &Asked) -> io::Result<Zeroizing<Vec<u8>>> {
    let typed = match asked {
        Asked::Known(what) => read_line(&format!("{what}: "))?,
        Asked::New(what) => {
            let first = read_line(&format!("new {what}: "))?;
            if !first.is_empty() && read_line(&format!("new {what}, again: "))? != first {
                return Err(io::Error::other("the two that were typed are not the same"));
            }
            first
        }
    };
    if typed.is_empty() {
        return Err(io::Error::other("nothing was typed"));
    }
    Ok(typed)
}

/// The terminal does not show what is typed, as long as this lives.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        // What was typed before it was asked for was shown: it is no secret.
        tcsetattr(io::stdin(), OptionalActions::Flush, &key_by_key(&before))?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
        let _ = io::stderr().lock().write_all(b"\n");
    }
}

fn read_line(prompt: &str) -> io::Result<Zeroizing<Vec<u8>>> {
    let hidden = Hidden::begin()?;
    io::stderr().lock().write_all(prompt.as_bytes())?;
    let mut line = Line(Zeroizing::new(Vec::new()));
    let mut key = [0];
    loop {
        // Without a buffer, in which what is typed would stay.
        match rustix::io::read(io::stdin(), &mut key) {
            Ok(0) => return Err(io::Error::other("the terminal is gone")),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match line.press(key[0]) {
            Pressed::More => {}
            Pressed::Done => break,
            Pressed::Interrupted => return Err(ErrorKind::Interrupted.into()),
        }
    }
    drop(hidden);
    Ok(line.0)
}

/// What has been typed of a line.
struct Line(Zeroizing<Vec<u8>>);

/// What a key does to a line.
#[derive(Debug, PartialEq, Eq)]
enum Pressed {
    More,
    Done,
    Interrupted,
}

impl Line {
    fn press(&mut self, key: u8) -> Pressed {
        match key {
            b'\r' | b'\n' | END => return Pressed::Done,
            INTERRUPT => return Pressed::Interrupted,
            KILL => self.0.clear(),
            // Backspace, as terminals send it.
            8 | 127 => {
                // The last character, with all its bytes.
                while self.0.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            key if self.0.len() < TYPED_BYTES_MAX => self.0.push(key),
            _ => {}
        }
        Pressed::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &[u8]) -> (Vec<u8>, Pressed) {
        let mut line = Line(Zeroizing::new(Vec::new()));
        let ends =
            keys.iter().map(|key| line.press(*key)).find(|pressed| *pressed != Pressed::More);
        (line.0.to_vec(), ends.unwrap_or(Pressed::More))
    }

    #[test]
    fn a_line_is_edited_and_ends() {
        assert_eq!(typed(b"abc\rd"), (b"abc".to_vec(), Pressed::Done));
        assert_eq!(typed("aé\u{7f}\u{7f}\u{7f}b\n".as_bytes()), (b"b".to_vec(), Pressed::Done));
        assert_eq!(typed(b"slip\x15right\x04"), (b"right".to_vec(), Pressed::Done));
        assert_eq!(typed(b"a\x03b"), (b"a".to_vec(), Pressed::Interrupted));
        let long = vec![b'x'; TYPED_BYTES_MAX + 5];
        assert_eq!(typed(&long), (vec![b'x'; TYPED_BYTES_MAX], Pressed::More));
    }
}
