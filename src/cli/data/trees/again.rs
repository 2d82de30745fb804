//! How to go on with a command that makes many changes and was broken off: in the same words for all of them.

use std::path::Path as FilePath;

use distkv_command::given::can_be_read_again;

use crate::model::path::Path;

/// That this command (in backquotes) goes on. `more`: what it needs besides, behind a comma.
pub(super) fn goes_on(command: &str, more: &str) -> String {
    format!("{command}{more} goes on from there, at this node or at another one (--connect)")
}

/// What a command that reads this file needs besides, to be typed again: what came out of a pipe is gone.
pub(super) fn same_lines(file: &FilePath) -> &'static str {
    match file.as_os_str() == "-" || !can_be_read_again(file) {
        true => " with the same lines",
        false => "",
    }
}

/// The option for a path, as a shell takes it: what begins like an option is none behind an equals sign.
pub(super) fn below(path: &Path) -> Vec<String> {
    let path = path.to_string();
    match path.starts_with('-') {
        true => vec![format!("--below={path}")],
        false => vec![String::from("--below"), path],
    }
}
