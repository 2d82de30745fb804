//! The list of known peers on disk, so that a node that restarts finds its network even if all
//! peers that it was once given are gone. Text, one `host:port name` per line; people may edit it
//! while the node is down. Behind a name, the comment `# not missed` says that this node does not wait for that
//! member any more: it was forgotten, or has been away for long.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use distkv_command::plain_file;

use super::address::HostPort;
use crate::model::host_port::AddressError;
use crate::model::ids::NodeName;
use crate::node::check;
use crate::node::config::{Config, GOSSIP_PORT};
use crate::node::error::NodeError;

/// The list of known peers in a data directory.
const PEER_FILE: &str = "peers";
/// As all files of a data directory: who may not read that need not know its network's machines.
const FILE_MODE: u32 = 0o600;
/// Most bytes that are read: 1,024 peers with the longest host names fit.
const FILE_BYTES_MAX: u64 = 512 << 10;
/// The comment of one that is not missed. As a comment, older versions of this software take it, too.
const NOT_MISSED: &str = "not missed";
/// Most peers that are taken from the file.
const PEERS_MAX: usize = 1024;

/// One known peer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::node) struct KnownPeer {
    /// `host:port`
    pub(in crate::node) address: String,
    pub(in crate::node) name: Option<NodeName>,
    /// Whether it is missed if it does not come back.
    pub(in crate::node) is_missed: bool,
}

/// What a start finds.
#[derive(Default, Debug)]
pub(in crate::node) struct Stored {
    pub(in crate::node) peers: Vec<KnownPeer>,
    /// What is wrong with the file, if the node does without that.
    pub(in crate::node) damage: Option<NodeError>,
    /// There was a file, and nothing was wrong with it.
    pub(in crate::node) is_whole: bool,
}

impl Stored {
    /// Whether each member that has not left is in it, as in what a node writes. People may write addresses only.
    pub(in crate::node) fn is_complete(&self) -> bool {
        let mut peers = self.peers.iter();
        self.is_whole && (self.peers.is_empty() || peers.any(|peer| peer.name.is_some()))
    }
}

/// The file of known peers: in the data directory by default.
pub(in crate::node) fn path_of(config: &Config) -> Option<PathBuf> {
    let in_data = || config.data.as_ref().map(|data| data.dir.join(PEER_FILE));
    config.peer_file.clone().or_else(in_data)
}

/// The peers of the file.
///
/// # Errors
/// [`NodeError::PeerFile`]: the node cannot do without.
pub(in crate::node) fn stored(config: &Config, has_data: bool) -> Result<Stored, NodeError> {
    let Some(path) = path_of(config) else { return Ok(Stored::default()) };
    if config.peer_file.is_some() && check::is_folder_missing(config, &path) {
        // The node would never have the file, and find nobody after a restart.
        let why = String::from("its directory is not there; make it");
        return Err(NodeError::PeerFile { path, line: None, why });
    }
    let is_there = path.exists();
    let (peers, damage) = match config.peer_file {
        // It has written the list itself, and has its data: no reason to stay away.
        None if has_data => load_what_is_good(&path),
        _ => (load(&path)?, None),
    };
    let is_whole = is_there && damage.is_none();
    Ok(Stored { peers, damage, is_whole })
}

/// Reads the list; an empty one if there is no such file.
///
/// # Errors
/// [`NodeError::PeerFile`] names the line.
fn load(path: &Path) -> Result<Vec<KnownPeer>, NodeError> {
    let text = read(path)?;
    let peers: Result<Vec<_>, _> = lines(path, &text).collect();
    Ok(peers?.into_iter().take(PEERS_MAX).collect())
}

/// Reads what can be read of a list that is a hint and no more, and says what could not: a node that has data goes
/// on without it.
fn load_what_is_good(path: &Path) -> (Vec<KnownPeer>, Option<NodeError>) {
    let text = match read(path) {
        Ok(text) => text,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (mut peers, mut first) = (Vec::new(), None);
    for line in lines(path, &text) {
        match line {
            Ok(peer) if peers.len() < PEERS_MAX => peers.push(peer),
            Ok(_) => {}
            Err(error) => first = first.or(Some(error)),
        }
    }
    (peers, first)
}

/// The file's text.
fn read(path: &Path) -> Result<String, NodeError> {
    let bad = |why| NodeError::PeerFile { path: path.to_owned(), line: None, why };
    let unusable = |error| bad(format!("{error}; correct it, or move the file away"));
    let file = match plain_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        opened => opened.map_err(unusable)?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unusable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(bad(format!("it has more than {FILE_BYTES_MAX} bytes; is it another file?")));
    }
    String::from_utf8(bytes).map_err(|_| unusable(io::Error::other("it is not UTF-8 text")))
}

/// The peers of its lines, those without one left out.
fn lines<'a>(
    path: &'a Path,
    text: &'a str,
) -> impl Iterator<Item = Result<KnownPeer, NodeError>> + 'a {
    let peers = text.lines().enumerate().filter_map(|(at, line)| {
        let (content, comment) = line.split_once('#').unwrap_or((line, ""));
        let (content, is_missed) = (content.trim(), comment.trim() != NOT_MISSED);
        (!content.is_empty()).then(|| (at, peer_of(content, is_missed)))
    });
    peers.map(|(at, peer)| {
        peer.map_err(|why| NodeError::PeerFile { path: path.to_owned(), line: Some(at + 1), why })
    })
}

/// A line's peer, or what is wrong with the line.
fn peer_of(content: &str, is_missed: bool) -> Result<KnownPeer, String> {
    let mut words = content.split_whitespace();
    let text = words.next().unwrap_or_default();
    // Nodes are written down as they say they are: at a link-local address, perhaps, which they told without a zone.
    let told = HostPort::parse(text, Some(GOSSIP_PORT)).and_then(|address| match address.port {
        0 => Err(AddressError::NoOnesPort(text.to_owned())),
        _ => Ok(address),
    });
    let address = told.map_err(|why| why.to_string())?;
    let name = words.next().map(NodeName::new).transpose().map_err(|why| why.to_string())?;
    if words.next().is_some() {
        return Err("more than an address and a name".into());
    }
    Ok(KnownPeer { address: address.to_string(), name, is_missed })
}

/// Writes the list: beside the file first, then in its place, so that it is whole at any time. `is_given`: it is one of the
/// operator's, who decides who may read it.
///
/// # Errors
/// What the system said; the old file is as it was.
pub(in crate::node) fn store(path: &Path, peers: &[KnownPeer], is_given: bool) -> io::Result<()> {
    let before = fs::metadata(path).ok().filter(|_| is_given);
    let mode = before.map_or(FILE_MODE, |before| before.permissions().mode() & 0o777);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    let mut text = String::from(
        "# Known peers of a distkv node: host:port and name. The node rewrites this file while it \
         runs.\n",
    );
    for peer in peers {
        text.push_str(&peer.address);
        if let Some(name) = &peer.name {
            text.push(' ');
            text.push_str(name.as_str());
            if !peer.is_missed {
                text.push_str(" # ");
                text.push_str(NOT_MISSED);
            }
        }
        text.push('\n');
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(FILE_MODE);
    let written = options.open(&beside).and_then(|mut file| {
        // Of one that was left there, or that more may read.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&beside);
        return renamed;
    }
    // So that the new name survives a power cut as well.
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn peer(address: &str, name: Option<&str>) -> KnownPeer {
        let name = name.map(|name| NodeName::new(name).unwrap());
        KnownPeer { address: address.into(), name, is_missed: true }
    }

    #[test]
    fn what_was_stored_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers");
        assert_eq!(load(&path).unwrap(), []);
        let away = KnownPeer { is_missed: false, ..peer("10.0.0.1:5", Some("b")) };
        // As a node tells it, which cannot know the zone of another host.
        let link_local = peer("[fe80::1]:5", Some("c"));
        let peers = [peer("[::1]:5", Some("a")), away, link_local, peer("db.example:7", None)];
        store(&path, &peers, false).unwrap();
        store(&path, &peers, false).unwrap();
        assert_eq!(load(&path).unwrap(), peers);
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 1, "nothing is left beside it");
    }

    #[test]
    fn the_node_s_own_is_read_by_its_owner_only_and_the_operator_s_by_whom_the_operator_lets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        for is_given in [true, false] {
            // It is new, and what was left of another one tells nothing.
            fs::write(folder.path().join("peers.new"), "").unwrap();
            store(&path, &[], is_given).unwrap();
            assert_eq!(mode(), 0o600);
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            store(&path, &[], is_given).unwrap();
            assert_eq!(mode(), if is_given { 0o644 } else { 0o600 });
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_bad_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers");
        for (bad, line) in [("a:1 x\n\nb:port\n", 3), ("a:1 x y\n", 1), ("# c\na:1 x~y\n", 2)] {
            fs::write(&path, bad).unwrap();
            let Err(NodeError::PeerFile { line: found, .. }) = load(&path) else { panic!("{bad}") };
            assert_eq!(found, Some(line), "{bad}");
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("move the file away"));
        assert!(load(folder.path()).is_err(), "a directory");
    }

    #[test]
    fn a_hint_that_is_damaged_is_taken_as_far_as_it_is_good() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers");
        fs::write(&path, "a:1 x\n\0\0\0\0\nb:2 y\nc:").unwrap();
        let (peers, error) = load_what_is_good(&path);
        assert_eq!(peers, [peer("a:1", Some("x")), peer("b:2", Some("y"))]);
        assert!(error.unwrap().to_string().contains("line 2"));
        fs::write(&path, [0xff, 0xfe]).unwrap();
        let (peers, error) = load_what_is_good(&path);
        assert!(peers.is_empty() && error.is_some());
        fs::remove_file(&path).unwrap();
        let (peers, error) = load_what_is_good(&path);
        assert!(peers.is_empty() && error.is_none(), "there need not be one");
    }

    #[test]
    fn what_is_no_such_file_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, large) = (folder.path().join("pipe"), folder.path().join("large"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::write(&large, "ä".repeat(usize::try_from(FILE_BYTES_MAX).unwrap())).unwrap();
        for (file, why) in [(&pipe, "it is not a file"), (&large, "is it another file?")] {
            let error = load(file).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(load_what_is_good(file).1.is_some());
        }
    }

    #[test]
    fn people_may_write_it_by_hand() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers");
        fs::write(&path, "  host   # no port, no name\r\n10.0.0.1:5\tb").unwrap();
        let expected = [peer("host:27587", None), peer("10.0.0.1:5", Some("b"))];
        assert_eq!(load(&path).unwrap(), expected);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        assert!(store(&folder.path().join("no/peers"), &[], false).is_err());
    }
}
