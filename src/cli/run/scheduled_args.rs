//! The options of scheduled snapshots.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::settings::Settings;
use crate::cli::error::CliError;
use crate::cli::terminal::units::parse_duration;
use crate::node::config::{Schedule, ScheduledConfig};

/// So many are kept unless told otherwise.
const KEEP: usize = 7;
/// More are hardly ever looked for, and each is as large as all data.
const KEEP_MAX: usize = 10_000;

/// When a node saves all data by itself, and where.
#[derive(Debug, Clone, Args)]
pub(super) struct ScheduledArgs {
    /// Save a snapshot of all data like "every 6h" or "daily 03:00" (UTC), into --snapshot-dir
    ///
    /// One is made at a time, read again after it was written, and only then given its name,
    /// NODE-20261123T030000Z.dkv. One that was missed is made as soon as the node serves. `status`, the metrics and
    /// the log warn if the last one has failed, or if one has been due for 10 minutes. After a failure the node tries
    /// again within 10 minutes.
    #[arg(long, value_name = "SCHEDULE")]
    snapshot_schedule: Option<String>,

    /// The directory for scheduled snapshots; best on another disk
    #[arg(long, value_name = "DIR")]
    snapshot_dir: Option<PathBuf>,

    /// Keep so many of the newest scheduled snapshots [default: 7]
    #[arg(long, value_name = "N")]
    snapshot_keep: Option<usize>,

    /// Besides, keep scheduled snapshots that are younger than this, like 30d [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    snapshot_keep_for: Option<Duration>,
}

impl ScheduledArgs {
    /// As settings.
    pub(super) fn settings(self) -> Settings {
        Settings {
            snapshot_schedule: self.snapshot_schedule,
            snapshot_dir: self.snapshot_dir,
            snapshot_keep: self.snapshot_keep,
            snapshot_keep_for: self.snapshot_keep_for,
            ..Settings::default()
        }
    }
}

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
    let schedule = Schedule::parse(schedule)
        .map_err(|error| CliError::Usage(format!("--snapshot-schedule: {error}")))?;
    let Some(dir) = settings.snapshot_dir.clone() else {
        return usage(String::from("--snapshot-schedule needs --snapshot-dir"));
    };
    let keep = settings.snapshot_keep.unwrap_or(KEEP);
    if !(1..=KEEP_MAX).contains(&keep) {
        return usage(format!("--snapshot-keep must be 1 to {KEEP_MAX}"));
    }
    let keep_for = settings.snapshot_keep_for.unwrap_or(Duration::ZERO);
    Ok(Some(ScheduledConfig { schedule, dir, keep, keep_for }))
}
