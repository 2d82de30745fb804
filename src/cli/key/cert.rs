//! `key cert`: certificates that are signed by the CA of a key file.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use distkv_command::key_file::read;
use distkv_tls::{Ca, pem};
use serde_json::json;

use super::CertArgs;
use crate::cli::error::CliError;
use crate::cli::files::new_file::{Existing, NewFile, tidy_when_interrupted};
use crate::cli::remote::RemoteArgs;
use crate::cli::run::settings::host::check_certified;
use crate::cli::terminal::output::{Output, printable};
use crate::rt;

pub(super) fn run(args: &CertArgs, remote: &RemoteArgs) -> Result<(), CliError> {
    args.servers.iter().try_for_each(|name| check_certified("--server", name))?;
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
    let stem = match &args.to {
        Some(to) => without_end(to),
        None => PathBuf::from(name.replace('/', "_")),
    };
    let (certificate, key) = (with_end(&stem, ".pem"), with_end(&stem, ".key"));
    tidy_when_interrupted(remote.json)?;
    let existing = Existing::of_force(args.force);
    let begin_certificate =
        |text: &str| filled(NewFile::create_public(&certificate, existing)?, text);
    let mut output = Output::new(remote.json);
    let Some(identity) = identity else {
        begin_certificate(&pem::certificate(ca.certificate()))?.finish()?;
        let at = certificate.display().to_string();
        output.either(
            || json!({"certificate": at, "ca": ca.hash().to_string()}),
            || format!("the certificate of the CA is in {}", printable(&at)),
        )?;
        return output.flush();
    };
    let (chain, secret) = identity.pem().ok_or_else(|| unusable(&"it gives no text"))?;
    // Neither has its name before both are on the disk: one without the other is of no use.
    let new_key = filled(NewFile::create_secret(&key, existing)?, secret)?;
    let new_certificate = begin_certificate(chain)?;
    let is_replaced = key.exists();
    new_key.finish()?;
    new_certificate.finish().map_err(|error| match is_replaced {
        true => error.said(|why| {
            let key = key.display();
            format!("{why}; {key} is a new key already, which belongs to no certificate: type the command again")
        }),
        false => {
            let _ = fs::remove_file(&key);
            error
        }
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

/// What is said where a key is taken out of use, so that nobody takes that for all that a thief has. None where the key file has
/// no CA; without a file, the nodes may have one.
pub(super) fn ca_stays(key_file: Option<&Path>) -> Option<&'static str> {
    let has_ca = key_file.is_none_or(|path| read(path).is_ok_and(|file| file.ca.is_some()));
    has_ca.then_some(
        "The CA in the key files stays: who has an old one can still make certificates for any user. After a theft, only \
         files of `key new` at all nodes help (`key --help`)",
    )
}

/// What the names of both files begin with, where one of them was given.
fn without_end(to: &Path) -> PathBuf {
    match to.extension() {
        Some(end) if end == "pem" || end == "key" => to.with_extension(""),
        _ => to.to_owned(),
    }
}

fn with_end(stem: &Path, end: &str) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// The file with this text, which has no name yet and is on the disk.
fn filled(mut new: NewFile, text: &str) -> Result<NewFile, CliError> {
    let written = new.file.write_all(text.as_bytes()).and_then(|()| new.file.sync_all());
    written.map_err(|error| new.give_up(&error))?;
    Ok(new)
}
