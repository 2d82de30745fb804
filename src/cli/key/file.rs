//! `key` on files: making one, and changing its keys.

use std::path::Path;

use distkv_command::key_file::{create, create_or_replace, read, update};
use distkv_tls::Ca;
use serde_json::json;

use super::NewArgs;
use crate::cli::error::CliError;
use crate::cli::terminal::output::{Output, Table, printable, shell_file};
use crate::membership::NetworkName;
use crate::rt;
use crate::secure::key::{Key, KeyId};
use crate::secure::key_file::{CertificateAuthority, KeyFile};
use crate::secure::key_ring::{Applied, KeyRing, RingError};

pub(super) fn new(args: &NewArgs) -> Result<(), CliError> {
    let network = NetworkName::new(&args.network)
        .map_err(|error| CliError::Usage(format!("--network {:?}: {error}", args.network)))?;
    let ca = Ca::make(&args.network, rt::wall_clock_ms() / 1_000)
        .map_err(|error| CliError::Failure(format!("no CA could be made: {error}")))?;
    // Nodes make their certificates for clients from it.
    let ca = CertificateAuthority {
        key: ca.key().to_vec().into(),
        certificate: ca.certificate().to_vec(),
    };
    let file = KeyFile { ring: KeyRing::new(network, random_key()?), ca: Some(ca) };
    let write = if args.force { create_or_replace } else { create };
    write(&args.to, &file)?;
    let (id, at) = (file.ring.primary_id(), args.to.display().to_string());
    let mut output = Output::new(args.json);
    output.either(
        || json!({"network": args.network, "key": id.to_string(), "file": at}),
        || {
            format!(
                "key {id} of network {} is in {}\nCopy the file to every node, and start each with --key {}",
                printable(&args.network),
                printable(&at),
                shell_file(&args.to)
            )
        },
    )?;
    output.flush()
}

pub(super) fn list(path: &Path, json: bool) -> Result<(), CliError> {
    let file = read(path)?;
    let mut output = Output::of_read(json);
    let is_primary = |id: KeyId| id == file.ring.primary_id();
    let network = file.ring.network().as_str();
    if json {
        for key in file.ring.keys() {
            let (id, primary) = (key.id().to_string(), is_primary(key.id()));
            output.json_line(json!({"network": network, "key": id, "primary": primary}))?;
        }
    } else {
        let mut table = Table::with_head(&["NETWORK", "KEY", "PRIMARY"]);
        for key in file.ring.keys() {
            let primary = if is_primary(key.id()) { "yes" } else { "no" };
            table.row([printable(network).into_owned(), key.id().to_string(), primary.to_owned()]);
        }
        table.print(&mut output)?;
    }
    output.flush()
}

pub(super) fn add(path: &Path, json: bool) -> Result<(), CliError> {
    let key = random_key()?;
    let id = key.id();
    change(path, id, json, "added", None, |ring, _| ring.add(key))
}

/// Changes a file's ring. `more`: another line for people.
pub(super) fn change(
    path: &Path,
    id: KeyId,
    json: bool,
    done: &str,
    more: Option<&str>,
    change: impl FnOnce(&mut KeyRing, KeyId) -> Result<Applied, RingError>,
) -> Result<(), CliError> {
    let mut applied = Applied::Already;
    let changed = update(path, |file| change(&mut file.ring, id).map(|did| applied = did));
    changed?.map_err(|error| CliError::Failure(format!("{}: {error}", path.display())))?;
    let more = more.map(|line| format!("\n{line}")).unwrap_or_default();
    let mut output = Output::new(json);
    output.either(
        || json!({"key": id.to_string(), "changed": applied == Applied::Changed}),
        || match applied {
            Applied::Changed => {
                format!("key {id} is {done}; a running node reads the file at SIGHUP{more}")
            }
            Applied::Already => format!("key {id} is {done} already"),
        },
    )?;
    output.flush()
}

pub(super) fn random_key() -> Result<Key, CliError> {
    let secret = rt::random_bytes();
    secret.map(Key::new).map_err(|error| {
        CliError::Failure(format!("the system gives no random numbers for a key: {error}"))
    })
}
