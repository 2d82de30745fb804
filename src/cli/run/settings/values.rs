//! Values that are wrong whatever else is set. They are looked at before it is asked what a setting needs: so `config check`
//! finds them also where what they go with is missing, or wrong itself.

use std::time::Duration;

use super::Settings;
use super::host::{check_certified, check_host};
use crate::cli::error::CliError;
use crate::node::config::{IpNetwork, NetworkError, Schedule};

/// Smaller files would be all headers.
const LOG_BYTES_MIN: usize = 64 << 10;
/// Each file costs some syncs.
const ROTATE_AFTER_MIN: Duration = Duration::from_secs(1);
/// The names of so many files are read at a start.
const KEEP_SNAPSHOTS_MAX: usize = 1000;
/// Scheduled snapshots: more are hardly ever looked for, and each is as large as all data.
const SNAPSHOT_KEEP_MAX: usize = 10_000;
/// Most further names by which HTTP requests may call the node.
const HTTP_NAMES_MAX: usize = 64;
/// Networks whose clients may use plain text.
const PLAIN_NETWORKS_MAX: usize = 64;
/// So many wrong items of a list are named at once.
const NAMED_MAX: usize = 8;

/// Looks at each of them.
///
/// # Errors
/// The first that is wrong.
pub(super) fn check(settings: &Settings) -> Result<(), CliError> {
    let usage = |text: String| Err(CliError::Usage(text));
    for (name, bytes) in [
        ("--log-rotate-bytes", settings.log_rotate_bytes),
        ("--snapshot-after", settings.snapshot_after),
    ] {
        if bytes.is_some_and(|bytes| bytes < LOG_BYTES_MIN) {
            return usage(format!("{name} must be at least 64KiB"));
        }
    }
    if settings.log_rotate_after.is_some_and(|after| after < ROTATE_AFTER_MIN) {
        return usage(String::from("--log-rotate-after must be at least 1s"));
    }
    for (name, count, max) in [
        ("--keep-snapshots", settings.keep_snapshots, KEEP_SNAPSHOTS_MAX),
        ("--snapshot-keep", settings.snapshot_keep, SNAPSHOT_KEEP_MAX),
    ] {
        if count.is_some_and(|count| !(1..=max).contains(&count)) {
            return usage(format!("{name} must be 1 to {max}"));
        }
    }
    if let Some(schedule) = &settings.snapshot_schedule {
        schedule_of(schedule)?;
    }
    let names = settings.http_names.iter().flatten();
    if names.clone().count() > HTTP_NAMES_MAX {
        return usage(format!("--http-name: at most {HTTP_NAMES_MAX} names"));
    }
    each(names.map(|name| check_host("--http-name", name)))?;
    let names = settings.cert_names.iter().flatten();
    each(names.map(|name| check_certified("--cert-name", name)))?;
    plain_networks(settings).map(drop)
}

/// When snapshots are made.
pub(super) fn schedule_of(text: &str) -> Result<Schedule, CliError> {
    Schedule::parse(text).map_err(|error| CliError::Usage(format!("--snapshot-schedule: {error}")))
}

/// Other machines whose clients may use plain text; and whether `none` is said: not even those on the node's own may.
pub(super) fn plain_networks(settings: &Settings) -> Result<(Vec<IpNetwork>, bool), CliError> {
    let texts = settings.client_plaintext.iter().flatten();
    let networks = texts.clone().filter(|text| *text != "none");
    if networks.clone().count() > PLAIN_NETWORKS_MAX {
        let text = format!("--client-plaintext: at most {PLAIN_NETWORKS_MAX} networks");
        return Err(CliError::Usage(text));
    }
    let wrong = |error: NetworkError| {
        CliError::Usage(format!("--client-plaintext: {error}; `none` is for no client at all"))
    };
    let networks = each(networks.map(|text| text.parse().map_err(wrong)))?;
    Ok((networks, texts.clone().any(|text| text == "none")))
}

/// All items of a list, or what is wrong with them, one after the other.
///
/// # Errors
/// [`CliError::Usage`] with all texts, if some are wrong.
pub(super) fn each<T>(
    items: impl Iterator<Item = Result<T, CliError>>,
) -> Result<Vec<T>, CliError> {
    let (mut good, mut wrong, mut more) = (Vec::new(), Vec::new(), 0);
    for item in items {
        match item {
            Ok(item) => good.push(item),
            Err(error) if wrong.len() < NAMED_MAX => wrong.push(error.to_string()),
            Err(_) => more += 1,
        }
    }
    if wrong.is_empty() {
        return Ok(good);
    }
    if more > 0 {
        wrong.push(format!("and {more} more"));
    }
    Err(CliError::Usage(wrong.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_wrong_items_of_a_list_are_told_up_to_a_bound() {
        let settings = |names: &[&str]| Settings {
            http_names: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..Settings::default()
        };
        assert!(check(&settings(&["n1", "n2"])).is_ok());
        let told = check(&settings(&["n1", "x y", "n2", "a/b"])).unwrap_err().to_string();
        assert!(told.contains(r#""x y" is no host"#) && told.contains(r#""a/b" is no host"#));
        let told = check(&settings(&["?"; 12])).unwrap_err().to_string();
        assert!(
            told.matches("is no host").count() == 8 && told.ends_with("; and 4 more"),
            "{told}"
        );
    }
}
