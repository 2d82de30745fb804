//! A node's data directory as a state: read as a start reads it, and changed by nobody. And the other
//! way: a state put into a directory, for a node that is to start with it.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path as FilePath;
use std::{fs, io};

use super::super::error::CliError;
use super::Format;
use super::gap::Gap;
use super::new_file::StateInto;
use super::read::StateFile;
use crate::cli::say;
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::terminal::times::show_time;
use crate::engine::changes::LoadImage;
use crate::engine::exchange::access::{AccessPart, without_access};
use crate::engine::{Config, Engine, Image, NO_LATER, Outbox};
use crate::model::ids::{Incarnation, NodeId, NodeName, Tock};
use crate::model::path::{Element, Path};
use crate::node::config::NETWORK;
use crate::rt;
use crate::storage;
use crate::storage::data_dir::LOCK_NAME;
use crate::storage::identity::{Identity, Life};
use crate::storage::past::{Moment, reach_after, read_past};
use crate::storage::recover::{Files, PastGap, never_begun};
use crate::storage::snapshot::snapshot_name;
use crate::storage::{
    DataDir, Directory, Disk, FileHeader, LogReader, Progress, RecoverOptions, SnapshotReader,
    StorageError, Until, Warning, recover,
};

/// Whose a directory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Owner {
    pub(in crate::cli) network: String,
    pub(in crate::cli) name: NodeName,
}

fn failure(error: StorageError) -> CliError {
    CliError::Failure(error.to_string())
}

/// Of a command that only reads.
pub(in crate::cli) fn reading_failure(error: StorageError) -> CliError {
    CliError::Failure(error.for_reader())
}

/// Of a command that wants a state of the past.
fn past_failure(error: StorageError) -> CliError {
    CliError::Failure(error.for_past(&show_time))
}

/// Whose a directory is; none if nothing of a node is in it.
///
/// # Errors
/// It cannot be listed, or no file says it, and one cannot be opened.
pub(in crate::cli) fn owner_of(disk: &dyn Disk) -> Result<Option<Owner>, StorageError> {
    let files = Files::list(disk)?;
    if let Some(entry) = &files.identity
        && let Ok((Identity { network, name, .. }, _)) = Identity::load(disk, entry)
    {
        return Ok(Some(Owner { network, name }));
    }
    let mut unreadable = None;
    // Any file that can be read says it.
    let logs = files.logs.keys().rev();
    let owners = logs.map(|number| Ok(owner_in(LogReader::open(disk, *number)?.header())));
    let snapshots = files.snapshots.keys().rev();
    let owners = owners
        .chain(snapshots.map(|number| Ok(owner_in(SnapshotReader::open(disk, *number)?.header()))));
    for owner in owners {
        match owner {
            Ok(owner) => return Ok(Some(owner)),
            Err(error @ StorageError::Io { .. }) => _ = unreadable.get_or_insert(error),
            Err(_) => {}
        }
    }
    unreadable.map_or(Ok(None), Err)
}

fn owner_in(header: &FileHeader) -> Owner {
    Owner { network: header.network.clone(), name: header.id.name.clone() }
}

/// Reads a directory as a node that starts would, up to a moment if one is given. A node may use it
/// meanwhile.
pub(in crate::cli) fn read_directory(
    path: &FilePath,
    until: Option<Until>,
    json: bool,
) -> Result<StateFile, CliError> {
    let disk = Directory::new(path);
    let nothing = || {
        let text = format!("{}: this is not the data directory of a node", path.display());
        CliError::Failure(text)
    };
    let owner = owner_of(&disk).map_err(failure)?.ok_or_else(nothing)?;
    let options =
        RecoverOptions { hash_seed: rt::random_u64(), until, ..RecoverOptions::default() };
    let mut bar = ProgressBar::new(format!("reading {}", path.display()), json);
    let mut look = |_: &str, progress: Progress| bar.entries(progress.entries, progress.total);
    let name = owner.name.as_str();
    let wanted = storage::Owner { network: &owner.network, name };
    let recovered = read_past(&disk, || {
        let first = until.map(|until| reach_after(&disk, wanted, until)).transpose()?.flatten();
        match first {
            Some(first) => Ok(Err(first)),
            None => recover(&disk, &owner.network, name, &options, &mut look).map(Ok),
        }
    });
    drop(bar);
    let recovered = recovered.map_err(past_failure)?.map_err(|first| too_old(path, &first))?;
    let image = recovered.image.ok_or_else(nothing)?;
    let files = Files::list(&disk).map_err(reading_failure)?;
    let all = files.logs.values().chain(files.snapshots.values());
    let header = FileHeader {
        number: 0,
        network: owner.network,
        id: image.id().clone(),
        store: 0,
        time_ms: rt::wall_clock_ms(),
    };
    Ok(StateFile {
        image,
        format: Format::Snapshot,
        header: Some(header),
        bytes: all.map(|entry| entry.bytes).sum(),
        notes: recovered.warnings.iter().filter_map(note_on_state).collect(),
        login_note: None,
        gap: PastGap::of_warnings(&recovered.warnings).map(Gap),
    })
}

/// What a check of a directory has found.
pub(in crate::cli) struct Checked {
    /// What a start would warn of that no file shows by itself.
    pub(in crate::cli) notes: Vec<String>,
    /// Logs that were never begun: nothing is in them, and nothing goes on from them.
    pub(in crate::cli) unborn: Vec<String>,
    /// The last log, if a start cuts off its end, and the byte behind which it does.
    pub(in crate::cli) torn: Option<(String, u64)>,
    /// What is wrong with logs that only the history needs, and what to do: a start goes without them.
    pub(in crate::cli) hole: Option<HoleText>,
}

/// The holes in a directory's history.
pub(in crate::cli) struct HoleText {
    /// What is wrong, and what to do.
    pub(in crate::cli) text: String,
    /// What is wrong, one text for each that is named.
    pub(in crate::cli) named: Vec<String>,
    /// How many there are.
    pub(in crate::cli) count: usize,
}

/// Whether a node would start with a directory, and with anything of what was in it: reads it as a start does, and
/// keeps nothing of the state. A node may use it meanwhile. None if it is no node's.
pub(in crate::cli) fn check_directory(
    path: &FilePath,
    json: bool,
) -> Result<Option<Checked>, CliError> {
    let disk = Directory::new(path);
    check_identity(&disk).map_err(failure)?;
    let files = Files::list(&disk).map_err(failure)?;
    // Snapshots alone may be anybody's, put together; but whoever puts one there for a node locks the directory.
    let is_nodes = files.identity.is_some() || !files.logs.is_empty();
    if !is_nodes && !path.join(LOCK_NAME).is_file() {
        return Ok(None);
    }
    let Some(owner) = owner_of(&disk).map_err(failure)? else { return Ok(None) };
    let warnings = read_as_start(path, &owner, false, json).map_err(failure)?.warnings;
    let unborn = read_past(&disk, || never_begun(&disk)).map_err(failure)?;
    let mut checked = Checked { notes: Vec::new(), unborn, torn: None, hole: None };
    for warning in &warnings {
        match warning {
            Warning::TornTail { file, offset, .. } => checked.torn = Some((file.clone(), *offset)),
            Warning::BadSnapshot(_) | Warning::Unborn { .. } => {}
            Warning::Hole(hole) => {
                let (text, named) = (warning.to_string(), hole.told().collect());
                checked.hole = Some(HoleText { text, named, count: hole.count() });
            }
            Warning::Older { log } if files.logs.is_empty() && files.snapshots.is_empty() => {
                return Err(CliError::Failure(all_gone(path, *log)));
            }
            _ => checked.notes.push(note_text(warning)),
        }
    }
    checked.notes.extend(has_left(&disk).then(|| String::from(LEFT_NOTE)));
    Ok(Some(checked))
}

/// What is wrong with files of a directory that their content does not show, by their names: another node's, or one of another
/// number; a log that is shorter than it was; one that cannot be read. Empty if it is no node's.
pub(in crate::cli) fn broken_in(path: &FilePath) -> BTreeMap<String, StorageError> {
    let disk = Directory::new(path);
    // What cannot be found out here, the check of the whole directory tells.
    let Ok(Some(owner)) = owner_of(&disk) else { return BTreeMap::new() };
    let owner = storage::Owner { network: &owner.network, name: owner.name.as_str() };
    let found = read_past(&disk, || storage::broken_files(&disk, owner));
    found.unwrap_or_default().into_iter().collect()
}

fn all_gone(path: &FilePath, log: u64) -> String {
    format!(
        "{}: neither a log nor a snapshot is left, and by the file 'identity' there was a log {log} once: a node would \
         start, but with nothing; put the files back from a backup, or have the node `join` others that have everything",
        path.display()
    )
}

/// What a start makes of a directory.
pub(in crate::cli) struct ReadAsStart {
    /// What it warns of.
    pub(in crate::cli) warnings: Vec<Warning>,
    /// Whether there is anything of a network, as `Opened::has_data` has it: not if its node has only ever waited for
    /// one.
    pub(in crate::cli) has_data: bool,
}

/// Reads a node's directory as its start does, and keeps nothing of the state. `discards`: the node was told to start
/// with what is left where something is damaged.
///
/// # Errors
/// What a start says.
pub(in crate::cli) fn read_as_start(
    path: &FilePath,
    owner: &Owner,
    discards: bool,
    json: bool,
) -> Result<ReadAsStart, StorageError> {
    let options = RecoverOptions {
        discard_damaged: discards,
        hash_seed: rt::random_u64(),
        below: Some(nowhere()),
        ..RecoverOptions::default()
    };
    let mut bar = ProgressBar::new(format!("verifying {}", path.display()), json);
    let mut look = |_: &str, progress: Progress| bar.entries(progress.entries, progress.total);
    let (disk, name) = (Directory::new(path), owner.name.as_str());
    let read = || recover(&disk, &owner.network, name, &options, &mut look);
    let found = read_past(&disk, read)?;
    // Every entry has a tock, so the tree, which was not kept, says nothing more.
    let is_any = |image: &Image| image.replica.tock > Tock::default() || image.group.is_some();
    Ok(ReadAsStart { warnings: found.warnings, has_data: found.image.as_ref().is_some_and(is_any) })
}

/// A path at which nobody has anything, so that reading takes no memory for entries.
fn nowhere() -> Path {
    Path::system_root().push(Element::Str("nowhere")).unwrap_or_default()
}

/// Whether a node would start with a directory's identity, if there is one.
///
/// # Errors
/// What a start says.
pub(in crate::cli) fn check_identity(disk: &dyn Disk) -> Result<(), StorageError> {
    match &Files::list(disk)?.identity {
        Some(entry) => Identity::load(disk, entry).map(|_| ()),
        None => Ok(()),
    }
}

/// What a start does with a directory whose node has left for good ([`has_left`]): whoever keeps it as a backup should
/// know.
pub(in crate::cli) const LEFT_NOTE: &str = "this node has left its network for good: a start begins with nothing, and \
     moves these files to a folder left-... there";

/// Whether a directory's node has left its network for good.
pub(in crate::cli) fn has_left(disk: &dyn Disk) -> bool {
    let files = Files::list(disk).ok();
    let identity = files.as_ref().and_then(|files| files.identity.as_ref());
    // One that cannot be read is told of as such.
    let identity = identity.and_then(|entry| Identity::load(disk, entry).ok());
    identity.is_some_and(|(identity, _)| matches!(identity.life, Life::Left { .. }))
}

/// What a warning says of the state that was read, for people. No node starts with the directory, so what it would count as
/// is left out; a backup is a copy. So is what only older states lack.
fn note_on_state(warning: &Warning) -> Option<String> {
    match warning {
        Warning::NoIdentity | Warning::Copied | Warning::Hole(_) => None,
        Warning::Older { log } => Some(format!(
            "the directory had a log {log} once, which is not there now: this is an older state, without what was in that log"
        )),
        other => Some(note_text(other)),
    }
}

/// A warning for people who read a directory: with times where it has some.
fn note_text(warning: &Warning) -> String {
    match warning {
        Warning::Gap { from_ms, to_ms, .. } => {
            format!("from {} to {}: {warning}", show_time(*from_ms), show_time(*to_ms))
        }
        Warning::Unclear(doubt) => Gap((*doubt).into()).note(),
        _ => warning.for_reader(),
    }
}

/// A moment before all that is kept is no damage: says how far back there is.
fn too_old(path: &FilePath, first: &Moment) -> CliError {
    CliError::Failure(format!(
        "{}: the past that is kept there begins at {}, which is later than you ask for \
         (`run --keep-for` and `--keep-size` set how much a node keeps)",
        path.display(),
        moment_text(first)
    ))
}

/// A moment for people.
pub(in crate::cli) fn moment_text(moment: &Moment) -> String {
    format!("{} (tock {})", show_time(moment.time_ms), moment.tock)
}

/// Whose the directory should be that states are put into.
pub(in crate::cli) struct Wanted {
    /// Its node's name, if that was given.
    pub(in crate::cli) name: Option<NodeName>,
    /// Its network's, if that was given.
    pub(in crate::cli) network: Option<String>,
    /// States of other networks were asked for.
    pub(in crate::cli) any_network: bool,
    /// With their users, logins and access lists.
    pub(in crate::cli) with_auth: bool,
}

/// A state, and what it was read from.
pub(in crate::cli) struct Given<'a> {
    pub(in crate::cli) from: &'a FilePath,
    pub(in crate::cli) state: StateFile,
}

impl Given<'_> {
    /// The network that it says it is of; none of lines of JSON, and of files of the Python DistKV.
    fn network(&self) -> Option<&str> {
        let network = self.state.header.as_ref().map(|header| header.network.as_str());
        network.filter(|network| !network.is_empty())
    }
}

/// What was put into a directory.
pub(in crate::cli) struct Put {
    pub(in crate::cli) owner: Owner,
    pub(in crate::cli) entries: u64,
    /// Whether there was something before.
    pub(in crate::cli) is_merged: bool,
    /// Who may use the data, as each file says.
    pub(in crate::cli) access: Vec<FileAccess>,
}

/// What of a file is about access.
pub(in crate::cli) struct FileAccess {
    /// The file's name.
    pub(in crate::cli) file: String,
    /// How much it is.
    pub(in crate::cli) part: AccessPart,
    /// It is of another network, and was left out.
    pub(in crate::cli) is_left_out: bool,
    /// That clients must log in, by what came along.
    pub(in crate::cli) login_note: Option<String>,
}

/// Puts states into a directory, one after the other, on top of what is there (replication rule 9), as a
/// snapshot that the next start begins with. No node may use it meanwhile.
pub(in crate::cli) fn put_into(
    into: &StateInto<'_>,
    states: Vec<Given<'_>>,
    wanted: Wanted,
    json: bool,
) -> Result<Put, CliError> {
    let directory = DataDir::open(into.directory).map_err(failure)?;
    into.is_locked();
    let put = put_into_locked(into, &directory, states, wanted, json);
    match &put {
        Ok(_) => into.is_done(),
        Err(_) => into.give_up(),
    }
    put
}

fn put_into_locked(
    into: &StateInto<'_>,
    directory: &DataDir,
    mut states: Vec<Given<'_>>,
    wanted: Wanted,
    json: bool,
) -> Result<Put, CliError> {
    let path = into.directory;
    let disk = directory.disk();
    let there = owner_of(&**disk).map_err(failure)?;
    if !wanted.any_network {
        check_networks(there.as_ref(), &states, path, wanted.with_auth)?;
    }
    let access = take_access(there.as_ref(), &mut states, wanted.with_auth);
    let owner = owner_for(there.as_ref(), &states, wanted, path)?;
    let options = RecoverOptions {
        hash_seed: rt::random_u64(),
        new_store: rt::random_u64(),
        puts_state: true,
        ..RecoverOptions::default()
    };
    let mut bar = ProgressBar::new(format!("reading {}", path.display()), json);
    let mut look = |_: &str, progress: Progress| bar.entries(progress.entries, progress.total);
    let name = owner.name.as_str();
    let recovered =
        directory.recover(&owner.network, name, &options, &mut look).map_err(failure)?;
    drop(bar);
    let is_merged = recovered.image.is_some();
    let own = recovered.image.as_ref().map_or(Tock::default(), |image| image.replica.tock);
    if let Some(why) = states.iter().find_map(|given| given.state.image.clock_too_far(own)) {
        return Err(CliError::Failure(why));
    }
    let mut images = states.into_iter().map(|given| given.state.image);
    let image = match recovered.image {
        Some(image) => merge(&owner.name, image, images)?,
        // In a new directory, the file's Delete group is that of other directories, which may be
        // gone; whoever is still there tells of it.
        None => match (images.next(), images) {
            (None, _) => return Err(CliError::Usage(String::from("there is nothing to restore"))),
            (Some(first), rest) => {
                let first = Image { group: None, decided: None, ..first };
                if rest.len() == 0 { first } else { merge(&owner.name, first, rest)? }
            }
        },
    };
    // What the next log begins with, whatever is there.
    let header = FileHeader {
        number: recovered.next.number,
        network: owner.network.clone(),
        id: NodeId { name: owner.name.clone(), incarnation: image.id().incarnation },
        store: recovered.store,
        time_ms: rt::wall_clock_ms(),
    };
    into.is_written_to(&snapshot_name(header.number));
    let mut bar = ProgressBar::new(format!("writing {}", path.display()), json);
    let mut look = |progress: Progress| bar.entries(progress.entries, progress.total);
    let saved = directory.save(&header, &image, &mut look);
    let info = saved.map_err(|error| CliError::Failure(format!("{error}; {NOTHING_PUT}")))?;
    if let Err(error) = give_to_owner(path) {
        let path = path.display();
        say::warning(&format!(
            "files in {path} belong to another user than {path}, and the node may not be able to read them: {error}"
        ));
    }
    Ok(Put { owner, entries: info.entries, is_merged, access })
}

/// Of a directory into which a state could not be put.
const NOTHING_PUT: &str = "nothing was restored, and the data in the directory is what it was";

/// What root has written into a node's directory belongs to the user of that directory, which the node runs as.
fn give_to_owner(path: &FilePath) -> io::Result<()> {
    let owner = fs::metadata(path)?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // Not of what a link leads to.
        let file = entry.metadata()?;
        if file.is_file() && file.uid() != owner.uid() {
            chown(entry.path(), Some(owner.uid()), Some(owner.gid()))?;
        }
    }
    Ok(())
}

/// That all states are of one network: the directory's, or else that of the first one that says so.
fn check_networks(
    there: Option<&Owner>,
    states: &[Given<'_>],
    path: &FilePath,
    with_auth: bool,
) -> Result<(), CliError> {
    let with = if with_auth { "with" } else { "without" };
    let mut one = there.map(|owner| (path, owner.network.as_str()));
    for given in states {
        let Some(network) = given.network() else { continue };
        let (what, own) = *one.get_or_insert((given.from, network));
        if network != own {
            return Err(CliError::Refused(format!(
                "{} is of the network {network:?}, {} of {own:?}; nothing was restored; --any-network takes it \
                 nevertheless, {with} its users, logins and access lists",
                given.from.display(),
                what.display()
            )));
        }
    }
    Ok(())
}

/// Leaves out users, logins and access lists of other networks than the directory's, or else than that of the first state
/// that is of one, unless they are wanted. A new directory that is given another network's name is that network's, moved.
fn take_access(
    there: Option<&Owner>,
    states: &mut [Given<'_>],
    with_auth: bool,
) -> Vec<FileAccess> {
    let own = there.map(|owner| owner.network.clone());
    let own = own.or_else(|| states.iter().find_map(Given::network).map(str::to_owned));
    let mut all = Vec::new();
    for given in states {
        let part = AccessPart::of(&given.state.image.replica.tree);
        let is_other = given.network().is_some_and(|network| own.as_deref() != Some(network));
        let left = (is_other && !with_auth).then(|| without_access(&given.state.image)).flatten();
        let (file, is_left_out) = (given.from.display().to_string(), left.is_some());
        let login_note = given.state.login_note.take().filter(|_| !is_left_out);
        all.push(FileAccess { file, part, is_left_out, login_note });
        if let Some(left) = left {
            given.state.image = left;
        }
    }
    all
}

/// Whose the directory is to be: as it is, as was asked for, or as the files say.
fn owner_for(
    there: Option<&Owner>,
    states: &[Given<'_>],
    Wanted { name, network, any_network: _, with_auth: _ }: Wanted,
    path: &FilePath,
) -> Result<Owner, CliError> {
    if let Some(owner) = there {
        let other_name = name.is_some_and(|name| name != owner.name);
        let other_network = network.is_some_and(|network| network != owner.network);
        if other_name || other_network {
            return Err(CliError::Usage(format!(
                "{} belongs to node {} of network {}, not to what --name and --network say",
                path.display(),
                owner.name,
                owner.network
            )));
        }
        return Ok(owner.clone());
    }
    let from_file = states.iter().find_map(Given::network).map(str::to_owned);
    let name = match (name, states.first()) {
        (Some(name), _) => name,
        (None, Some(first)) => first.state.image.id().name.clone(),
        (None, None) => return Err(CliError::Usage(String::from("--name is needed"))),
    };
    Ok(Owner { network: network.or(from_file).unwrap_or_else(|| NETWORK.to_owned()), name })
}

/// Takes states in on top of another, as a running node would.
fn merge(
    name: &NodeName,
    base: Image,
    others: impl Iterator<Item = Image>,
) -> Result<Image, CliError> {
    let id = NodeId { name: name.clone(), incarnation: Incarnation::of_random(rt::random_u64()) };
    let failed =
        || CliError::Failure(String::from("the states know of more nodes than there is room for"));
    let config = Config::new(id, rt::random_u64());
    // What becomes of it is written down as a whole.
    let mut out = Outbox::new();
    let mut engine = Engine::restore(config, &base, &mut out).ok_or_else(failed)?;
    for other in others {
        engine.handle(LoadImage(&other), NO_LATER, &mut Outbox::new()).map_err(|_| failed())?;
    }
    Ok(engine.image())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_into_a_directory_is_its_owner_s() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("snapshot"), "").unwrap();
        fs::create_dir(at("folder")).unwrap();
        std::os::unix::fs::symlink(at("folder"), at("link")).unwrap();
        // Only root can give it away; for others, nothing is to change.
        let _ = chown(folder.path(), Some(65_534), Some(65_534));
        let owner = |path: &FilePath| fs::symlink_metadata(path).map(|meta| meta.uid()).unwrap();
        let before = owner(&at("folder"));
        give_to_owner(folder.path()).unwrap();
        assert_eq!(owner(&at("snapshot")), owner(folder.path()));
        assert_eq!(owner(&at("folder")), before, "no command makes folders there");
        assert_eq!(owner(&at("link")), before);
    }
}
