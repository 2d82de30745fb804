//! `key cert`: certificates that are signed by the CA of a key file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use distkv_command::key_file::{read, write_hint};
use distkv_tls::{Ca, pem};
use serde_json::json;

use super::CertArgs;
use crate::cli::error::CliError;
use crate::cli::remote::RemoteArgs;
use crate::cli::terminal::output::{Output, printable};
use crate::rt;

pub(super) fn run(args: &CertArgs, remote: &RemoteArgs) -> Result<(), CliError> {
    let path = remote.key_file()?.ok_or_else(|| {
        CliError::Usage(String::from("--key is missing: the key file, which has the CA"))
    })?;
    let file = read(&path)?;
    let unusable = |why: &dyn std::fmt::Display| {
        CliError::Usage(format!("the CA in the key file {}: {why}", path.display()))
    };
    let authority = file.ca.as_ref().ok_or_else(|| {
        unusable(&"there is none; the file was made without `key new`, or it was taken out")
    })?;
    let network = file.ring.network().as_str();
    let ca = Ca::load(network, &authority.key, &authority.certificate).map_err(|e| unusable(&e))?;
    let now = rt::wall_clock_ms() / 1_000;
    let usage = |error: distkv_tls::ca::CaError| CliError::Usage(error.to_string());
    let (name, identity) = match (&args.user, args.servers.first()) {
        (Some(user), _) => {
            (user.as_str(), Some(ca.issue_user(user, args.days, now).map_err(usage)?))
        }
        (None, Some(first)) => {
            let names: Vec<&str> = args.servers.iter().map(String::as_str).collect();
            (first.as_str(), Some(ca.issue_node(&names, now).map_err(usage)?))
        }
        (None, None) => ("ca", None),
    };
    let stem = args.to.clone().unwrap_or_else(|| PathBuf::from(name.replace('/', "_")));
    let (certificate, key) = (with_end(&stem, ".pem"), with_end(&stem, ".key"));
    let mut output = Output::new(remote.json);
    let Some(identity) = identity else {
        write_new(&certificate, &pem::certificate(ca.certificate()), 0o644)?;
        let at = certificate.display().to_string();
        output.either(
            || json!({"certificate": at, "ca": ca.hash().to_string()}),
            || format!("the certificate of the CA is in {}", printable(&at)),
        )?;
        return output.flush();
    };
    let (chain, secret) = identity.pem().ok_or_else(|| unusable(&"it gives no text"))?;
    write_new(&key, secret, 0o600)?;
    write_new(&certificate, chain, 0o644).inspect_err(|_| {
        // A key without its certificate is of no use.
        let _ = fs::remove_file(&key);
    })?;
    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    output.either(
        || json!({"name": name, "certificate": certificate, "key": key, "ca": ca.hash().to_string()}),
        || {
            let name = printable(name);
            format!(
                "the certificate of {name} is in {}, its private key in {}",
                printable(&certificate),
                printable(&key)
            )
        },
    )?;
    output.flush()
}

fn with_end(stem: &Path, end: &str) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), CliError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AlreadyExists => "; take another place with --to",
            _ => write_hint(&error),
        };
        CliError::Failure(format!("{} cannot be written: {error}{hint}", path.display()))
    })
}
