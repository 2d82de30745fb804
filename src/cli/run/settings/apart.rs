//! Files that must not be one: the audit log is written to, so it is none of those that the node reads.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path as FilePath, absolute};

use super::Settings;
use crate::cli::error::CliError;

/// The audit log is another file than those that the settings name.
///
/// # Errors
/// It is one of them.
pub(super) fn check_audit(settings: &Settings) -> Result<(), CliError> {
    let others = [
        ("--key", &settings.key),
        ("--cert", &settings.cert),
        ("--cert-key", &settings.cert_key),
        ("--client-ca", &settings.client_ca),
        ("--peer-file", &settings.peer_file),
        ("--http-token-file", &settings.http_token_file),
        ("--load", &settings.load),
    ];
    others
        .iter()
        .try_for_each(|(name, other)| is_apart(settings.audit.as_deref(), name, other.as_deref()))
}

/// The audit log is another file than the one that an option names.
///
/// # Errors
/// It is that one.
pub(in crate::cli::run) fn is_apart(
    audit: Option<&FilePath>,
    name: &str,
    other: Option<&FilePath>,
) -> Result<(), CliError> {
    match (audit, other) {
        (Some(audit), Some(other)) if is_one(audit, other) => Err(CliError::Usage(format!(
            "--audit and {name} are the same file, {}: the audit log would be written into it; give it a file of its own",
            other.display()
        ))),
        _ => Ok(()),
    }
}

fn is_one(one: &FilePath, other: &FilePath) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        // What is not there yet would be made by that name.
        _ => matches!((absolute(one), absolute(other)), (Ok(one), Ok(other)) if one == other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_log_is_none_of_the_other_files_by_whatever_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("key"), "precious").unwrap();
        fs::hard_link(at("key"), at("hard")).unwrap();
        std::os::unix::fs::symlink(at("key"), at("soft")).unwrap();
        let check = |audit: &str, other: &str| {
            is_apart(Some(&at(audit)), "--key", Some(&at(other))).map_err(|error| error.to_string())
        };
        for audit in ["key", "hard", "soft", "../key/../key"] {
            let audit = audit.replace("../key/..", ".");
            assert!(
                check(&audit, "key").unwrap_err().contains("--audit and --key are the same file")
            );
        }
        assert!(check("new", "new").is_err() && check("new", "key").is_ok());
        let settings =
            Settings { audit: Some(at("t")), load: Some(at("t")), ..Settings::default() };
        assert!(check_audit(&settings).unwrap_err().to_string().contains("--load"));
        assert!(check_audit(&Settings { audit: None, ..settings }).is_ok());
    }
}
