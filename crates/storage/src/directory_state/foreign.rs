//! Whether a directory may be a node's: one that has files of something else and none of a node was probably named by
//! mistake (`/etc`, somebody's home), and would be filled with a node's files.

use std::fs;
use std::io;
use std::path::Path;

use super::data_dir::LOCK_NAME;
use crate::error::absent::if_there;
use crate::recover::Files;

/// The list of known peers, which the node keeps beside its data, and people may write; and as it is being written.
const PEER_NAMES: [&str; 2] = ["peers", "peers.new"];
/// What the folder of a life that has left for good begins with.
pub(super) const LEFT: &str = "left-";
/// What file systems, storage and desktops put into directories of others.
const NOBODYS: [&str; 7] =
    ["lost+found", ".snapshot", ".snapshots", ".zfs", ".DS_Store", ".keep", ".gitkeep"];
/// The same, of which only the beginning is known: files that are removed and still open on NFS, and wastebaskets.
const NOBODYS_BEGIN: [&str; 2] = [".nfs", ".Trash"];
/// So many names are told.
const TOLD_MAX: usize = 3;

/// What is in a directory of something else, for people; none if the directory may be a node's: it is empty, or has
/// files of a node already, whatever else there is. One that does not exist is empty.
///
/// # Errors
/// The directory cannot be listed.
pub fn only_foreign(path: &Path) -> io::Result<Option<String>> {
    let Some(entries) = if_there(fs::read_dir(path))? else { return Ok(None) };
    let mut foreign = Vec::new();
    for entry in entries {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let name = name.to_string_lossy().into_owned();
        if is_of_a_node(&name, kind) {
            return Ok(None);
        }
        if !is_nobodys(&name) {
            foreign.push(name);
        }
    }
    foreign.sort();
    let told: Vec<String> = foreign.iter().take(TOLD_MAX).map(|name| format!("{name:?}")).collect();
    let more = foreign.len() - told.len();
    let text = match (told.is_empty(), more) {
        (true, _) => return Ok(None),
        (false, 0) => told.join(", "),
        (false, more) => format!("{}, and {more} more", told.join(", ")),
    };
    Ok(Some(text))
}

fn is_of_a_node(name: &str, kind: fs::FileType) -> bool {
    if kind.is_dir() {
        let store = name.strip_prefix(LEFT).unwrap_or_default();
        return store.len() == 16 && u64::from_str_radix(store, 16).is_ok();
    }
    let is_known = name == LOCK_NAME || PEER_NAMES.contains(&name) || Files::knows(name);
    kind.is_file() && is_known
}

fn is_nobodys(name: &str) -> bool {
    NOBODYS.contains(&name) || NOBODYS_BEGIN.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with these files; folders end with a slash.
    fn told(names: &[&str]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            match name.strip_suffix('/') {
                Some(name) => fs::create_dir(folder.path().join(name)).unwrap(),
                None => fs::write(folder.path().join(name), "").unwrap(),
            }
        }
        only_foreign(folder.path()).unwrap()
    }

    #[test]
    fn a_directory_without_files_of_anything_else_may_be_a_node_s() {
        assert_eq!(told(&[]), None);
        assert_eq!(told(&["lost+found/", ".snapshot/", ".nfs000000001", ".Trash-1000/"]), None);
        assert_eq!(only_foreign(Path::new("/no/such/directory")).unwrap(), None);
    }

    #[test]
    fn one_that_has_files_of_a_node_is_its_own_whatever_else_is_there() {
        for own in [
            "lock",
            "identity",
            "identity.tmp",
            "log-1.dkv",
            "snapshot-12.dkv",
            "snapshot-12.dkv.tmp",
            "log-3.dkv.bad",
            "peers",
            "left-00000000000000a7/",
        ] {
            assert_eq!(told(&["passwd", ".bashrc", own]), None, "{own}");
        }
    }

    #[test]
    fn files_of_something_else_alone_are_told() {
        assert_eq!(told(&[".bashrc"]).unwrap(), "\".bashrc\"");
        let all = ["passwd", "hosts", "lost+found/", "lock/", "monday.dkv", "log-x.dkv", "left-7/"];
        assert_eq!(told(&all).unwrap(), "\"hosts\", \"left-7\", \"lock\", and 3 more");
        assert_eq!(told(&["evil\u{1b}[2J"]).unwrap(), "\"evil\\u{1b}[2J\"");
    }
}
