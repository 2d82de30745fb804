//! Hosts in options that take no address: where a name with more in it would never be met, or put into a certificate that
//! nobody believes.

use std::net::IpAddr;

use crate::cli::error::CliError;

/// A host as requests and certificates name it.
///
/// # Errors
/// [`CliError::Usage`]: it has what is around a host in a URL, or letters that no host has.
pub(in crate::cli) fn check_host(option: &str, name: &str) -> Result<(), CliError> {
    if is_name(name) || name.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "{option} {name:?} is no host: give a name or an IP address without scheme and port, brackets, zone, or dot at the \
         end, like n1.example.org or fd00::1"
    )))
}

/// The same for a certificate, which may also be for all names below one, like `*.example.org`.
pub(in crate::cli) fn check_certified(option: &str, name: &str) -> Result<(), CliError> {
    match name.strip_prefix("*.") {
        Some(below) if is_name(below) => Ok(()),
        _ => check_host(option, name),
    }
}

fn is_name(text: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !text.is_empty() && text.chars().all(is_fine) && !text.ends_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_more() {
        for fine in ["n1", "n1.example.org", "N_1", "10.0.0.1", "fd00::1", "::1"] {
            assert_eq!(check_host("--cert-name", fine), Ok(()), "{fine}");
            assert_eq!(check_certified("--cert-name", fine), Ok(()), "{fine}");
        }
        let wrong = [
            "",
            ".",
            "n1.",
            "n1:80",
            "http://n1",
            "[::1]",
            "[::1]:5",
            "fe80::1%e0",
            "fünf",
            "n1/",
            "*",
            "*.*.n1",
        ];
        for wrong in wrong {
            let said = check_certified("--cert-name", wrong).unwrap_err().to_string();
            assert!(said.contains(&format!("--cert-name {wrong:?} is no host")), "{said}");
        }
        assert_eq!(check_certified("--cert-name", "*.example.org"), Ok(()));
        assert!(check_host("--http-name", "*.example.org").is_err());
    }
}
