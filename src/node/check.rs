//! What would keep a node from starting with its settings, as far as that can be seen without starting it. Nothing is
//! made, written or disturbed: ports are tried under other numbers.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{self, Path, PathBuf};
use std::{fs, io};

use rustix::fs::{Access, FsWord, PROC_SUPER_MAGIC};
use rustix::process::geteuid;

use super::clients::certificates;
use super::config::{CLIENT_PORT, Config, GOSSIP_PORT, HTTP_PORT, Start};
use super::error::NodeError;
use super::lifecycle::bind::{bind_client, bind_gossip, bind_http};
use super::membership::address::{
    Advertised, HostPort, advertised_client, client_warning, parse_setting,
};
use super::membership::peer_file;
use crate::membership::NetworkName;
use crate::rt;
use crate::storage::dangling_link;

/// The type of the file system at `/sys`, which `rustix` has no name for.
const SYSFS_MAGIC: FsWord = 0x6265_6572;

/// Something that is wrong with a node's settings, or may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    /// The settings that it comes of, as configuration files name them; the first that is set is the one to change.
    pub(crate) keys: &'static [&'static str],
    /// What is wrong, and what to do.
    pub(crate) text: String,
    /// It does not keep the node from starting.
    pub(crate) is_warning: bool,
}

impl Problem {
    /// One that keeps the node from starting.
    pub(crate) fn error(keys: &'static [&'static str], text: String) -> Self {
        Self { keys, text, is_warning: false }
    }

    /// One that does not.
    pub(crate) fn warning(keys: &'static [&'static str], text: String) -> Self {
        Self { keys, text, is_warning: true }
    }
}

/// What the data directory has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Data {
    /// Nothing, or there is none.
    None,
    /// A node's data.
    Some,
    /// It cannot be told.
    Unknown,
}

/// Looks at everything that the settings refer to.
pub(crate) async fn check(config: &Config, data: Data) -> Vec<Problem> {
    let mut found = Vec::new();
    check_network(config, &mut found);
    check_ports(config, &mut found).await;
    check_peers(config, data, &mut found).await;
    check_files(config, &mut found);
    check_owners(config, &mut found);
    check_load(config, data, &mut found).await;
    if let Some(tls) = &config.tls {
        let keys: &[&str] = match &tls.own {
            Some(_) => &["cert", "cert-key", "client-ca"],
            None => &["client-ca", "key"],
        };
        match certificates::check(tls) {
            Ok(None) => {}
            Ok(Some(warning)) => found.push(Problem::warning(keys, warning)),
            Err(why) => found.push(Problem::error(keys, NodeError::Certificate(why).to_string())),
        }
    }
    found
}

fn check_network(config: &Config, found: &mut Vec<Problem>) {
    let problem = match NetworkName::new(&config.network) {
        Err(why) => NodeError::Network { name: config.network.clone(), why },
        Ok(network) => {
            let file = config.key.as_ref().map(|key| key.file.ring.network());
            let Some(file) = file.filter(|file| **file != network) else { return };
            let file = file.as_str().to_owned();
            NodeError::KeyNetwork { file, network: config.network.clone() }
        }
    };
    found.push(Problem::error(&["network", "key"], problem.to_string()));
}

/// The address with port 0, so that whoever has the port now is not disturbed.
fn any_port(what: &'static str, text: &str, port: u16) -> Result<(String, u16), NodeError> {
    let HostPort { host, port } = parse_setting(what, text, port)?;
    Ok((HostPort { host, port: 0 }.to_string(), port))
}

/// What a start would say, which tries the port itself.
fn with_port(error: NodeError, port: u16) -> NodeError {
    match error {
        NodeError::Bind { what, addr, source } => {
            NodeError::Bind { what, addr: SocketAddr::new(addr.ip(), port), source }
        }
        other => other,
    }
}

async fn check_ports(config: &Config, found: &mut Vec<Problem>) {
    let mut ports = Vec::new();
    let gossip = async {
        let (text, port) = any_port("gossip", &config.gossip, GOSSIP_PORT)?;
        let bound = bind_gossip(&text, GOSSIP_PORT).await;
        let bound = bound.map_err(|error| with_port(error, port))?.addr;
        Ok::<_, NodeError>(SocketAddr::new(bound.ip(), port))
    };
    match gossip.await {
        Ok(addr) => {
            ports.push(("gossip", addr));
            check_protection(config, "gossip", addr, &["gossip", "key", "insecure"], found);
            // With port 0, a start takes a free one before it decides this.
            let taken = if addr.port() == 0 { GOSSIP_PORT } else { addr.port() };
            let bound = SocketAddr::new(addr.ip(), taken);
            let keys = &["advertise", "gossip"];
            match Advertised::decide(config.advertise.as_deref(), bound).await {
                Ok(told) => found.extend(told.warning().map(|text| Problem::warning(keys, text))),
                Err(error) => found.push(Problem::error(keys, error.to_string())),
            }
        }
        Err(error) => found.push(Problem::error(&["gossip"], error.to_string())),
    }
    let client = async {
        let (text, port) = any_port("client", &config.client, CLIENT_PORT)?;
        let bound = bind_client(&text, CLIENT_PORT).await;
        let (_, bound) = bound.map_err(|error| with_port(error, port))?;
        Ok::<_, NodeError>(SocketAddr::new(bound.ip(), port))
    };
    match client.await {
        Ok(addr) => {
            ports.push(("client", addr));
            check_protection(config, "client", addr, &["client", "key", "insecure"], found);
            let trouble = client_warning(addr, config.advertise_client.as_deref());
            found.extend(trouble.map(|text| Problem::warning(&["client"], text)));
        }
        Err(error) => found.push(Problem::error(&["client"], error.to_string())),
    }
    if let Some(told) = &config.advertise_client
        // Without a port of its own, it takes the bound one, which is none of those that are refused.
        && let Err(error) = advertised_client(told, CLIENT_PORT)
    {
        found.push(Problem::error(&["advertise-client"], error.to_string()));
    }
    if let Some(http) = &config.http {
        let http = async {
            let (text, port) = any_port("http", &http.address, HTTP_PORT)?;
            let bound = bind_http(&text, HTTP_PORT).await;
            let (_, bound) = bound.map_err(|error| with_port(error, port))?;
            ports.push(("http", SocketAddr::new(bound.ip(), port)));
            super::monitoring::health::check_protection(config, SocketAddr::new(bound.ip(), port))
        };
        if let Err(error) = http.await {
            found.push(Problem::error(&["http", "key", "insecure"], error.to_string()));
        }
    }
    while let Some((what, addr)) = ports.pop() {
        if let Some((other, _)) = ports.iter().find(|(_, other)| are_one_port(*other, addr)) {
            let text = format!("{addr} is the {other} port of this node, too; choose another port");
            let keys: &'static [&'static str] =
                if what == "http" { &["http"] } else { &["client", "gossip"] };
            found.push(Problem::error(keys, text));
        }
    }
}

/// Whether who has the one cannot have the other, too.
fn are_one_port(one: SocketAddr, other: SocketAddr) -> bool {
    let takes = |any: SocketAddr, addr: SocketAddr| {
        // That of IPv6 takes what comes by IPv4, too.
        any.ip().is_unspecified() && (any.is_ipv6() || addr.is_ipv4())
    };
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || takes(one, other) || takes(other, one))
}

fn check_protection(
    config: &Config,
    what: &'static str,
    addr: SocketAddr,
    keys: &'static [&'static str],
    found: &mut Vec<Problem>,
) {
    if let Err(error) = super::lifecycle::ports::check_port_protection(config, what, addr) {
        found.push(Problem::error(keys, error.to_string()));
    }
}

async fn check_peers(config: &Config, data: Data, found: &mut Vec<Problem>) {
    let is_readable = config.peer_file.is_some() || data != Data::Unknown;
    let keys = &["peer-file", "data-dir"];
    let stored = match is_readable.then(|| peer_file::stored(config, data == Data::Some)) {
        Some(Ok(stored)) => {
            found.extend(stored.damage.map(|damage| Problem::warning(keys, damage.to_string())));
            stored.peers
        }
        Some(Err(error)) => {
            found.push(Problem::error(keys, error.to_string()));
            Vec::new()
        }
        None => Vec::new(),
    };
    let knows_nobody = config.peers.is_empty() && stored.is_empty();
    if knows_nobody
        && data == Data::None
        && matches!(config.start, Start::ByWhatThereIs { found: false, .. })
    {
        let keys = &["found", "peers", "peer-file", "data-dir"];
        let text = NodeError::NothingToStartWith.to_string();
        found.push(Problem::error(keys, text));
    }
    for peer in &config.peers {
        let Ok(address) = parse_setting("peer", peer, GOSSIP_PORT) else { continue };
        if let Err(why) = rt::resolve(&address).await {
            let text = format!("{peer} cannot be found now ({why}); the node keeps trying");
            found.push(Problem::warning(&["peers"], text));
        }
    }
}

fn check_files(config: &Config, found: &mut Vec<Problem>) {
    if let Some(data) = &config.data
        && let Err(why) = check_folder(&data.dir)
    {
        let text = match dangling_link(&data.dir) {
            Some(why) => why.to_string(),
            None => format!("{}: {why}", data.dir.display()),
        };
        found.push(Problem::error(&["data-dir"], text));
    }
    let data_dir = config.data.as_ref().map(|data| &data.dir);
    if let Some(scheduled) = &config.scheduled {
        let path = &scheduled.dir;
        if let Err(why) = check_folder(path) {
            found.push(Problem::error(&["snapshot-dir"], format!("{}: {why}", path.display())));
        } else if data_dir.into_iter().chain(&config.client_files).any(|other| is_one(path, other))
        {
            let why = io::Error::new(io::ErrorKind::InvalidInput, super::scheduled::NOT_APART);
            let error = NodeError::SnapshotDir { path: path.clone(), source: why };
            let keys = &["snapshot-dir", "data-dir", "client-files"];
            found.push(Problem::error(keys, error.to_string()));
        }
    }
    if let Some(path) = &config.client_files {
        let fault = match data_dir.is_some_and(|data| is_one(path, data)) {
            true => Some(String::from("it is the data directory; choose another one")),
            false if !path.is_dir() && !is_made_first(config, path) => {
                Some(String::from("there is no such directory; make it"))
            }
            false => check_folder(path).err(),
        };
        if let Some(why) = fault {
            found.push(Problem::error(&["client-files"], format!("{}: {why}", path.display())));
        }
    }
    if let Some(path) = &config.peer_file
        && let Err(why) = may_replace(path)
    {
        let text = format!(
            "{}: it cannot be written: {why}; after a restart the node would know only the peers that it is told of",
            path.display()
        );
        found.push(Problem::warning(&["peer-file"], text));
    }
    if let Some(path) = &config.audit {
        if let Err(error) = check_audit(config) {
            found.push(Problem::error(&["audit", "data-dir"], error.to_string()));
        } else if let Err(why) = may_write_file(path) {
            found.push(Problem::error(&["audit"], format!("{}: {why}", path.display())));
        }
    }
}

/// Whose the files are: what root may read says nothing of what a service's user may, and the owner of the key file is an
/// admin of the network, whoever that is.
fn check_owners(config: &Config, found: &mut Vec<Problem>) {
    let key = config
        .key
        .as_ref()
        .and_then(|key| Some((key.path.as_ref()?, owner_of(key.path.as_ref()?)?)));
    let data = config.data.as_ref().and_then(|data| Some((&data.dir, owner_of(&data.dir)?)));
    let data = data.filter(|(_, owner)| geteuid().is_root() && *owner != 0);
    if let Some((dir, owner)) = data {
        let unread = key.filter(|(_, of_key)| *of_key != owner).map(|(path, _)| {
            format!("; that user cannot read the key file {}, which is another's", path.display())
        });
        let text = format!(
            "root, who may read and write everything, has made this check, and {} belongs to another user (uid {owner}){}: if \
             the node runs as that user, check as that user (`runuser -u USER -- distkv-node config check`)",
            dir.display(),
            unread.unwrap_or_default()
        );
        found.push(Problem::warning(&["data-dir"], text));
    } else if let Some(text) = config.key.as_ref().and_then(|key| foreign_key(key.path.as_ref()?)) {
        found.push(Problem::warning(&["key"], text));
    }
}

/// What is said of a key file that belongs to somebody else than the user who runs this, and not to root; none of others.
pub(crate) fn foreign_key(path: &Path) -> Option<String> {
    let owner = owner_of(path).filter(|owner| *owner != 0 && *owner != geteuid().as_raw())?;
    Some(format!(
        "the key file {} belongs to another user (uid {owner}), who can read and change it, and so is an admin; chown it to \
         the user that runs the node",
        path.display()
    ))
}

/// Who owns a file or directory; of one that is not there, the directory that it would be made in.
fn owner_of(path: &Path) -> Option<u32> {
    let path = path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = path.ancestors().find_map(|above| fs::metadata(above).ok());
    found.map(|found| found.uid())
}

/// Whether the audit log can be a file where it is said to be, as far as names tell. A start asks before it makes
/// anything.
///
/// # Errors
/// [`NodeError::Audit`].
pub(super) fn check_audit(config: &Config) -> Result<(), NodeError> {
    let Some(path) = &config.audit else { return Ok(()) };
    let fault = match fs::metadata(path) {
        Ok(meta) if meta.is_file() => None,
        Ok(_) => Some(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Some(error),
        Err(_) if is_made_first(config, folder_of(path)) => None,
        // Nobody makes its folder.
        Err(_) => fs::metadata(folder_of(path)).err(),
    };
    match fault {
        Some(source) => Err(NodeError::Audit { path: path.clone(), source }),
        None => Ok(()),
    }
}

/// The saved state that the network begins with is read as a start reads it, if it does.
async fn check_load(config: &Config, data: Data, found: &mut Vec<Problem>) {
    if let Start::ByWhatThereIs { load: Some(path), .. } = &config.start
        && data == Data::None
        && let Err(error) = super::clients::load::read(path).await
    {
        found.push(Problem::error(&["load", "data-dir"], error.to_string()));
    }
}

/// The folder that a file is in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether the folder of a file is not there, and will not be, since the start does not make it either.
pub(in crate::node) fn is_folder_missing(config: &Config, file: &Path) -> bool {
    let folder = folder_of(file);
    let is_missing = fs::metadata(folder).is_err_and(|why| why.kind() == io::ErrorKind::NotFound);
    is_missing && !is_made_first(config, folder)
}

/// Whether a folder is there once the data directory is made, which is the first that a start makes.
fn is_made_first(config: &Config, folder: &Path) -> bool {
    let data = config.data.as_ref();
    data.is_some_and(|data| place_of(&data.dir).starts_with(place_of(folder)))
}

/// Whether two names are of one directory, or would be of one if it were made.
fn is_one(one: &Path, other: &Path) -> bool {
    super::lifecycle::opening::is_same_directory(one, other)
        .unwrap_or_else(|_| place_of(one) == place_of(other))
}

/// Where something is, or would be made: without links, as far as it is there.
fn place_of(path: &Path) -> PathBuf {
    let path = path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let known = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match known {
        Some((above, place)) => match path.strip_prefix(above) {
            Ok(rest) if rest.as_os_str().is_empty() => place,
            Ok(rest) => place.join(rest),
            Err(_) => path,
        },
        None => path,
    }
}

/// Whether files can be made in a folder, which is made if it is not there.
fn check_folder(path: &Path) -> Result<(), String> {
    let is_there = |path: &&Path| fs::symlink_metadata(path).is_ok();
    let here = Path::new(".");
    // The lowest of those above it that has its name.
    let above = path.ancestors().find(is_there).unwrap_or(here);
    let may = match fs::metadata(above) {
        Ok(meta) if meta.is_dir() => may_write_folder(above, above == path),
        Ok(_) => Err(String::from("it is no directory")),
        Err(error) => Err(error.to_string()),
    };
    match above == path {
        true => may,
        false => may.map_err(|why| format!("it cannot be made in {}: {why}", above.display())),
    }
}

/// Whether files can be made in a folder that is there. `is_read`: it is listed, too.
fn may_write_folder(path: &Path, is_read: bool) -> Result<(), String> {
    // To root, who may write everywhere, these say that something made there does not exist.
    let system = rustix::fs::statfs(path).map(|found| found.f_type);
    if system.is_ok_and(|system| system == PROC_SUPER_MAGIC || system == SYSFS_MAGIC) {
        return Err(String::from("the system's own files are there, and no others"));
    }
    let read = if is_read { Access::READ_OK } else { Access::EXISTS };
    may(path, read | Access::WRITE_OK | Access::EXEC_OK)
}

/// Whether a file can be put in the place of this one, as a node does with its peer file: what counts is the folder.
fn may_replace(path: &Path) -> Result<(), String> {
    let folder = folder_of(path);
    match fs::metadata(folder) {
        Ok(meta) if meta.is_dir() => may_write_folder(folder, false),
        // It is made first, or a start is refused, which is told already.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(format!("{} is no directory", folder.display())),
        Err(error) => Err(format!("{}: {error}", folder.display())),
    }
}

/// Whether a file can be appended to, which is made if it is not there.
fn may_write_file(path: &Path) -> Result<(), String> {
    match (path.exists(), folder_of(path)) {
        (true, _) => may(path, Access::READ_OK | Access::WRITE_OK),
        (false, folder) if folder.exists() => may_write_folder(folder, false),
        // It is made with the data directory.
        (false, _) => Ok(()),
    }
}

fn may(path: &Path, what: Access) -> Result<(), String> {
    rustix::fs::access(path, what).map_err(|why| format!("this user may not write there ({why})"))
}
