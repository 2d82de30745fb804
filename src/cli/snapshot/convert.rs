//! `snapshot convert`: a state in another form.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value as Json};

use crate::cli::error::CliError;
use crate::cli::files::Format;
use crate::cli::files::new_file::{Existing, tidy_when_interrupted};
use crate::cli::files::read::{StateFile, read_state};
use crate::cli::files::write::{ToWrite, Written, tell_report, write_state};
use crate::cli::remote::parse_path;
use crate::cli::say;
use crate::cli::terminal::output::{Output, count_of};
use crate::cli::terminal::units::show_bytes;
use crate::model::path::Path;
use crate::rt;
use crate::storage::FileHeader;

/// Write a file's state in another form
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node snapshot convert monday.dkv --format distkv --to monday.bin
  distkv-node snapshot convert saved-state.bin --to moved.dkv
  distkv-node snapshot convert monday.dkv --format jsonl --to - | jq .value

A snapshot holds everything. Lines of JSON hold entries and who changed them, and nothing of \
what was deleted and purged. The Python DistKV does not know lives of nodes: in its file \
each life is a node, named as everywhere (n1~e9001b2c3d4e). What Python cannot read at all \
is left out, and listed. A file that is there already is replaced with --force only.

Exit code: 0 done, 1 a file cannot be read or written, 2 usage, 130 interrupted.")]
pub(super) struct ConvertArgs {
    /// The file to read
    #[arg(value_name = "FILE")]
    from: PathBuf,

    /// The file to write; '-' is standard output
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    #[command(flatten)]
    form: FormArgs,

    /// Print what was written as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// How a state is written.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct FormArgs {
    /// What to write
    #[arg(long, value_enum, default_value = "snapshot")]
    pub(in crate::cli) format: Format,

    /// With jsonl: only what is at and below this path
    #[arg(long, value_name = "PATH", value_parser = parse_path)]
    below: Option<Path>,

    /// With jsonl: also what was deleted
    #[arg(long)]
    tombstones: bool,

    /// With --to: replace the file if there is one
    #[arg(long, requires = "to")]
    force: bool,
}

impl FormArgs {
    /// Checks that what was asked for goes together.
    pub(in crate::cli) fn check(&self) -> Result<(), CliError> {
        if self.format != Format::Jsonl && (self.below.is_some() || self.tombstones) {
            let text = "--below and --tombstones are for --format jsonl: other files hold all of a \
                state, or what they say of it would be wrong";
            return Err(CliError::Usage(text.to_owned()));
        }
        Ok(())
    }

    /// What becomes of a file that is there.
    pub(in crate::cli) fn existing(&self) -> Existing {
        Existing::of_force(self.force)
    }

    /// What to write of an image.
    pub(in crate::cli) fn to_write<'a>(&self, state: &'a StateFile) -> ToWrite<'a> {
        let header = state.header.clone().unwrap_or_else(|| FileHeader {
            number: 0,
            network: String::new(),
            id: state.image.id().clone(),
            store: 0,
            time_ms: rt::wall_clock_ms(),
        });
        ToWrite {
            image: &state.image,
            format: self.format,
            header,
            below: self.below.clone().unwrap_or_default(),
            with_tombstones: self.tombstones,
        }
    }
}

pub(super) fn run(args: &ConvertArgs, json: bool) -> Result<(), CliError> {
    args.form.check()?;
    args.form.existing().check(&args.to)?;
    tidy_when_interrupted(json)?;
    let state = read_state(&args.from, json)?;
    tell_notes(&state.notes);
    let written = write_state(&args.to, args.form.existing(), &args.form.to_write(&state), json)?;
    tell_written(&args.to, args.form.format, &written, json)
}

/// What of a file is left out, on standard error.
pub(in crate::cli) fn tell_notes(notes: &[String]) {
    notes.iter().for_each(|note| say::note(note));
}

/// Says what was written; on standard error where the file itself is on standard output.
pub(in crate::cli) fn tell_written(
    to: &std::path::Path,
    format: Format,
    written: &Written,
    json: bool,
) -> Result<(), CliError> {
    if let Some(report) = &written.report {
        tell_report(report);
    }
    let text = || {
        let entries = count_of(written.entries, "entry", "entries");
        let to = match to == std::path::Path::new("-") {
            true => String::from("standard output"),
            false => to.display().to_string(),
        };
        format!("{to}: {entries}, {} ({format})", show_bytes(written.bytes))
    };
    if to == std::path::Path::new("-") {
        if !json {
            say::line(&text());
        }
        return Ok(());
    }
    let mut output = Output::new(json);
    output.either(|| written_json(to, format, written), text)?;
    output.flush()
}

fn written_json(to: &std::path::Path, format: Format, written: &Written) -> Json {
    let mut out = Map::new();
    out.insert("file".into(), to.display().to_string().into());
    out.insert("format".into(), format.word().into());
    out.insert("entries".into(), written.entries.into());
    out.insert("bytes".into(), written.bytes.into());
    if let Some(gap) = &written.gap {
        out.insert("gap".into(), gap.json());
    }
    if let Some(report) = &written.report {
        out.insert("tombstones".into(), report.tombstones.into());
        out.insert("lives".into(), report.lives.into());
        out.insert("missing".into(), report.missing.into());
        out.insert("left_out".into(), report.left_out.into());
        let named = report.named.iter().map(
            |(path, why)| serde_json::json!({ "path": path.to_string(), "why": why.to_string() }),
        );
        out.insert("left_out_named".into(), named.collect());
    }
    Json::Object(out)
}
