//! By which CA the nodes are known, where that is said apart from the key file: nodes that were started with `--cert` show
//! that certificate, and not one of the key file's CA.

use std::path::{Path, PathBuf};

use distkv_runtime as rt;
use distkv_tls::pem::{PEM_BYTES_MAX, ca_hash};
use distkv_tls::{CaHash, ClientTls, Clock, Trust};

use crate::error::CliError;
use crate::given;
use crate::remote::file_in_environment;

/// The environment's variable for `--node-ca`.
const NODE_CA: &str = "DISTKV_NODE_CA";

/// The CA that the option, or the environment, names, if one does.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub(crate) fn named(option: Option<&PathBuf>) -> Result<Option<CaHash>, CliError> {
    match option {
        Some(file) => read("--node-ca", file).map(Some),
        None => file_in_environment(NODE_CA).map(|file| read(NODE_CA, &file)).transpose(),
    }
}

fn read(what: &'static str, file: &Path) -> Result<CaHash, CliError> {
    let wrong =
        |why: &dyn std::fmt::Display| CliError::Usage(format!("{what} {}: {why}", file.display()));
    // One more than is taken, so that what is too long is found to be.
    let most = PEM_BYTES_MAX as u64 + 1;
    let text = given::read(what, file, most).map_err(|why| wrong(&why))?;
    ca_hash(&text).map_err(|why| wrong(&why))
}

/// TLS with nodes whose certificates are of this CA, and for the name by which they are connected to: it may have others.
///
/// # Errors
/// The system cannot do TLS.
pub(crate) fn tls(ca: CaHash) -> Result<ClientTls, CliError> {
    with_trust(Trust::hash(ca), "the CA of the nodes")
}

/// TLS with nodes whose certificates are of the key file's CA, whatever names they have: whoever can make one may do
/// everything anyway.
///
/// # Errors
/// The system cannot do TLS.
pub(crate) fn tls_of_key(ca: CaHash) -> Result<ClientTls, CliError> {
    with_trust(Trust::hash(ca).whatever_its_name(), "the CA in the key file")
}

fn with_trust(trust: Trust, what: &str) -> Result<ClientTls, CliError> {
    ClientTls::new(trust, None, Clock::new(|| rt::wall_clock_ms() / 1_000))
        .map_err(|error| CliError::Usage(format!("{what}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_told_with_the_option() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "nothing").unwrap();
        let error = named(Some(&file.path().to_owned())).unwrap_err().to_string();
        assert!(error.contains("--node-ca") && error.contains("BEGIN CERTIFICATE"), "{error}");
        let error = named(Some(&file.path().with_extension("none"))).unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
    }
}
