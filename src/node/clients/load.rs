//! Reads a saved state or a change log of the Python DistKV, and takes it into the engine some
//! entries at a time, so that no task waits for all of them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use xxhash_rust::xxh64::Xxh64;

use crate::engine::changes::{LoadEntries, LoadState};
use crate::engine::exchange::access::AccessPart;
use crate::engine::exchange::saved_state_in::{Survey, lacking_text};
use crate::engine::load::{LoadError, SavedFile};
use crate::hub::Hub;
use crate::node::error::NodeError;
use crate::protocol::saved_state::{
    SavedEntry, SavedRecord, SavedState, SavedStateProblem, SavedStateReader,
};
use crate::rt;
use crate::storage::header::kind_of_start;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Entries that are taken in under one guard.
const ENTRIES_PER_GUARD: usize = 256;
/// At most this many unusable entries are named in the log; the rest is counted.
const UNUSABLE_NAMED_MAX: usize = 20;

/// What a file holds. It is read whole before anything of it is used: a file that is bad half
/// way must not leave half of it in the network.
pub(in crate::node) struct Loaded {
    file: SavedFile,
    entries: Vec<SavedEntry>,
    states: Vec<SavedState>,
    /// Who may use the data.
    access: AccessPart,
}

/// Reads a file.
///
/// # Errors
/// [`NodeError::LoadFile`]; [`NodeError::Load`] says where the file is bad.
pub(in crate::node) async fn read(path: &Path) -> Result<Loaded, NodeError> {
    let path = path.to_owned();
    rt::spawn_blocking(move || {
        read_file(&path).map_err(|bad| match bad {
            Bad::Unread(source) => NodeError::LoadFile { path, source },
            Bad::Content(why) => {
                NodeError::Load(format!("the file {} cannot be loaded: {why}", path.display()))
            }
        })
    })
    .await
}

/// Why a file is not loaded.
enum Bad {
    /// The system did not give all of it.
    Unread(io::Error),
    /// What is in it.
    Content(String),
}

impl From<String> for Bad {
    fn from(why: String) -> Self {
        Self::Content(why)
    }
}

fn read_file(path: &Path) -> Result<Loaded, Bad> {
    let mut file = File::open(path).map_err(Bad::Unread)?;
    let mut loaded = Loaded {
        file: SavedFile::new(0, None),
        entries: Vec::new(),
        states: Vec::new(),
        access: AccessPart::default(),
    };
    let mut hash = Xxh64::new(0);
    let mut reader = SavedStateReader::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut unusable = 0;
    let mut survey = Survey::default();
    let mut is_first = true;
    loop {
        let count = file.read(&mut buffer).map_err(Bad::Unread)?;
        if count == 0 {
            break;
        }
        let piece = buffer.get(..count).unwrap_or_default();
        if is_first && kind_of_start(piece).is_some() {
            return Err(String::from(
                "it is a snapshot or a log of distkv-node, and --load takes a saved state of the Python DistKV; put it \
                 into the data directory with `distkv-node snapshot restore FILE --into DIR`, or into the running \
                 network with `snapshot restore FILE`",
            ).into());
        }
        if is_first && looks_like_json(piece) {
            return Err(String::from(
                "it looks like lines of JSON, and --load takes a saved state of the Python DistKV; set its entries in \
                 the running network with `distkv-node import FILE`",
            ).into());
        }
        is_first = false;
        hash.update(piece);
        reader.feed(piece);
        while let Some(record) = reader.next_record().map_err(|error| error.to_string())? {
            match record {
                SavedRecord::Entry(entry) => {
                    survey.note(&entry);
                    loaded.entries.push(entry);
                }
                SavedRecord::State(state) => loaded.states.push(state),
                SavedRecord::Unusable { offset, reason } => {
                    unusable += 1;
                    if unusable <= UNUSABLE_NAMED_MAX {
                        tracing::warn!(offset, "an entry of the file is left out: {reason}");
                    }
                }
            }
        }
    }
    if is_first {
        return Err(String::from("it is empty").into());
    }
    if unusable > UNUSABLE_NAMED_MAX {
        tracing::warn!(unusable, "entries of the file were left out");
    }
    loaded.file = SavedFile::new(hash.digest(), loaded.states.first());
    loaded.access = survey.access();
    let is_whole = !reader.has_changes() && unusable == 0;
    let state = loaded.states.first().filter(|_| is_whole);
    if let Some(text) = state.and_then(|state| lacking_text(survey.lacking(state))) {
        tracing::warn!("of the file of --load: {text}");
    }
    match reader.finish() {
        Ok(()) => Ok(loaded),
        // A log's writer was killed, probably. All before it is good.
        Err(error) if matches!(error.problem, SavedStateProblem::CutOff(_)) => {
            tracing::warn!("{error}; that record is left out");
            Ok(loaded)
        }
        Err(error) => Err(error.to_string().into()),
    }
}

/// Whether a file begins like lines of JSON: a saved state is a row of MessagePack maps, and none begins so.
fn looks_like_json(start: &[u8]) -> bool {
    let start = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start);
    start.trim_ascii_start().first() == Some(&b'{')
}

/// Takes it in.
///
/// # Errors
/// [`LoadError`]; entries taken in before stay.
pub(in crate::node) async fn take_in(hub: &Hub, loaded: Loaded) -> Result<(), LoadError> {
    let count = loaded.entries.len();
    for entries in loaded.entries.chunks(ENTRIES_PER_GUARD) {
        if let Some(log) = hub.log() {
            log.room().await;
        }
        hub.handle(LoadEntries { file: &loaded.file, saved: entries }, rt::now())?;
        rt::yield_now().await;
    }
    // Data before knowledge.
    for state in &loaded.states {
        hub.handle(LoadState { file: &loaded.file, state }, rt::now())?;
    }
    let total = hub.read(|e| e.tree().live_len());
    tracing::info!(entries = count, total, "loaded");
    let AccessPart { users, lists } = loaded.access;
    if users + lists > 0 {
        tracing::warn!(
            users,
            lists,
            "users or access lists came with the file of --load: who has a secret there can log in here with it (see \
             `distkv-node user list`)"
        );
    }
    Ok(())
}
