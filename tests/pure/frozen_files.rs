//! Reads all frozen files of all format versions (`snapshots/`): every good data directory gives the
//! content that was written down when it was frozen, every damaged one is refused with the message
//! that was written down. `snapshots/v1/README.md` says how they were made.

use std::fs;
use std::path::{Path, PathBuf};

use distkv::storage::listing::list_image;
use distkv::storage::{
    Directory, RecoverOptions, Recovered, StorageError, recover, verify_snapshot,
};

fn folders(below: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots").join(below);
    let mut folders: Vec<PathBuf> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders
}

fn start(folder: &Path) -> Result<Recovered, StorageError> {
    let options = RecoverOptions { hash_seed: 3, new_store: 5, ..RecoverOptions::default() };
    recover(&Directory::new(folder), "frozen", "a", &options, &mut |_, _| {})
}

fn text(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{folder:?} {name}: {e}"))
}

#[test]
fn every_good_directory_gives_what_was_written_down() {
    let folders = folders("v1/good");
    assert_eq!(folders.len(), 9);
    for folder in folders {
        let recovered = start(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let listing = list_image(recovered.image.as_ref().unwrap());
        assert!(listing == text(&folder, "listing.txt"), "{folder:?} gives\n{listing}");
        let warnings: String = recovered.warnings.iter().map(|w| format!("{w}\n")).collect();
        assert_eq!(warnings, text(&folder, "warnings.txt"), "{folder:?}");
        // They are copies, which have no right to go on as the node that they were.
        assert!(!recovered.stopped_cleanly && !recovered.keeps_store, "{folder:?}");
        assert_eq!(recovered.store, 5);
    }
}

#[test]
fn every_damaged_directory_is_refused_with_a_message_that_says_where_and_what_to_do() {
    let folders = folders("v1/damaged");
    assert_eq!(folders.len(), 25);
    for folder in folders {
        let Err(error) = start(&folder) else { panic!("{folder:?} was loaded") };
        let message = error.to_string();
        assert_eq!(format!("{message}\n"), text(&folder, "error.txt"), "{folder:?}");
        let names_file = ["snapshot-", "log-", "identity"].iter().any(|n| message.contains(n));
        let says_where = message.contains("byte ") || message.contains("it belongs to node");
        let advises =
            ["put back", "use ", "start with", "give it"].iter().any(|a| message.contains(a));
        assert!(names_file && says_where && advises, "{message}");
    }
}

#[test]
fn every_snapshot_of_a_good_directory_verifies_unless_that_is_what_it_is_for() {
    let mut count = 0;
    for folder in folders("v1/good") {
        for file in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            if name.starts_with("snapshot-") {
                let source = Box::new(fs::File::open(&file).unwrap());
                let verified = verify_snapshot(&name, source, &mut |_| {});
                let is_bad = folder.ends_with("bad-snapshot-but-all-logs");
                assert_eq!(verified.is_err(), is_bad, "{file:?}");
                count += 1;
            }
        }
    }
    assert_eq!(count, 7);
}

/// The hex dump in the description of the format is of a file that is here.
#[test]
fn the_file_that_is_drawn_byte_by_byte_is_a_frozen_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/storage-format.md")).unwrap();
    let block = document.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
    let mut drawn = Vec::new();
    for line in block.lines() {
        let bytes = line.split(';').next().unwrap();
        for digits in bytes.split_whitespace() {
            drawn.push(u8::from_str_radix(digits, 16).unwrap());
        }
    }
    let file = fs::read(root.join("snapshots/v1/good/begun/log-1.dkv")).unwrap();
    assert_eq!(drawn, file);
}
