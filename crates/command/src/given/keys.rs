//! A terminal whose keys come one by one, and are not shown: Ctrl-C and Ctrl-Z are keys like others.

use rustix::termios::{LocalModes, SpecialCodeIndex, Termios};

/// Ctrl-C.
pub const INTERRUPT: u8 = 3;

/// What the modes of such a terminal are; `before`: as they were.
#[must_use]
pub fn key_by_key(before: &Termios) -> Termios {
    let mut modes = before.clone();
    modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
    modes.special_codes[SpecialCodeIndex::VMIN] = 1;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
    modes
}
