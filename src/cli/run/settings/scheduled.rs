//! Scheduled snapshots, as the settings say them.

use std::time::Duration;

use super::values::schedule_of;
use super::{Settings, check_dir};
use crate::cli::error::CliError;
use crate::node::config::ScheduledConfig;

/// So many are kept unless told otherwise.
const KEEP: usize = 7;

/// What the settings say of it, if they do.
///
/// # Errors
/// What makes no sense.
pub(super) fn config_of(settings: &Settings) -> Result<Option<ScheduledConfig>, CliError> {
    let usage = |text: String| Err(CliError::Usage(text));
    let Some(schedule) = &settings.snapshot_schedule else {
        let others = [
            ("--snapshot-dir", settings.snapshot_dir.is_some()),
            ("--snapshot-keep", settings.snapshot_keep.is_some()),
            ("--snapshot-keep-for", settings.snapshot_keep_for.is_some()),
        ];
        return match others.iter().find(|(_, is_set)| *is_set) {
            None => Ok(None),
            Some((name, _)) => usage(format!("{name} needs --snapshot-schedule")),
        };
    };
    let schedule = schedule_of(schedule)?;
    let Some(dir) = settings.snapshot_dir.clone() else {
        return usage(String::from("--snapshot-schedule needs --snapshot-dir"));
    };
    check_dir("--snapshot-dir", &dir)?;
    let keep = settings.snapshot_keep.unwrap_or(KEEP);
    let keep_for = settings.snapshot_keep_for.unwrap_or(Duration::ZERO);
    Ok(Some(ScheduledConfig { schedule, dir, keep, keep_for }))
}
