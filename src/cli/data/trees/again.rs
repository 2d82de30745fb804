//! How to go on with a command that makes many changes and was broken off: in the same words for all of them.

use std::path::Path as FilePath;

use distkv_command::given::can_be_read_again;

use crate::cli::terminal::output::file_word;
use crate::cli::typed;
use crate::model::path::Path;

/// That this command (in backquotes) goes on. `more`: what it needs besides, behind a comma.
pub(super) fn goes_on(command: &str, more: &str) -> String {
    format!("{command}{more} goes on from there, at this node or at another one (--connect)")
}

/// That the command of this name, which makes what is below a path as a file says, goes on.
pub(super) fn goes_on_with(name: &str, file: &FilePath, path: &Path, flags: &[&str]) -> String {
    let below = if path.is_root() { Vec::new() } else { below(path) };
    let below: Vec<&str> = below.iter().map(String::as_str).collect();
    let command = typed::command(name, &[&file_word(file)], &[&below, flags].concat());
    // What came out of a pipe is gone.
    let is_gone = file.as_os_str() == "-" || !can_be_read_again(file);
    goes_on(&command, if is_gone { " with the same lines" } else { "" })
}

/// Those of a command's flags that were given.
pub(super) fn given<const N: usize>(flags: [(&'static str, bool); N]) -> Vec<&'static str> {
    flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect()
}

/// The option for a path, as a shell takes it: what begins like an option is none behind an equals sign.
pub(super) fn below(path: &Path) -> Vec<String> {
    let path = path.to_string();
    match path.starts_with('-') {
        true => vec![format!("--below={path}")],
        false => vec![String::from("--below"), path],
    }
}
