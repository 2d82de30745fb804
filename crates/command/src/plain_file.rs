//! Files that are files: opened so that nobody waits for the other end of a pipe, or for a device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file for reading.
///
/// # Errors
/// It cannot be opened, or it is a pipe, a device, a folder.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Of the opened file: the name may be another one's by now.
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_no_file_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, file) = (folder.path().join("pipe"), folder.path().join("file"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::write(&file, "text").unwrap();
        for path in [&pipe, Path::new("/dev/zero"), folder.path()] {
            let error = open(path).unwrap_err();
            assert!(error.to_string().contains("not a file"), "{}: {error}", path.display());
        }
        let mut text = String::new();
        open(&file).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert_eq!(open(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
