//! `config check`: says what is wrong with a configuration file, before a node is started with it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::file_check::{Finding, check_text};
use super::settings::Settings;
use crate::cli::error::{CliError, EXIT_USAGE, without_secrets};
use crate::cli::terminal::output::{Output, printable};

/// The file that the package's service starts its node with.
pub(super) const CONFIG_FILE: &str = "/etc/distkv/node.toml";

/// Check a configuration file
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node config check
  distkv-node config check node.toml
  distkv-node config check node.toml --json

Exit code: 0 a node would start with it, 2 it would not, 8 what was found cannot be written.")]
pub(in crate::cli) struct ConfigArgs {
    #[command(subcommand)]
    what: What,

    /// Print JSON, for programs: {"file", "ok", "findings": [{"line", "key", "kind", "text"}]}
    // Another id than that of the option that stands before commands.
    #[arg(long = "json", id = "config_json", global = true)]
    json: bool,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    Check(CheckArgs),
}

/// Report every error in a configuration file
///
/// It reads the file as `start` does, and what the file refers to: the key file, the data directory, the
/// certificates, the peer file, the audit log, the token's file and the saved state to begin with; it looks host names
/// up, and tries whether the node's addresses are this machine's. It reads all of the data directory, as `distkv-node
/// snapshot verify DIR` does, and all of the saved state, which takes as long as at a start. Nothing is changed, and no
/// running node is disturbed, which may use the directory meanwhile. Run it as the user that the node runs as, so that
/// it sees what the node may read.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node config check /etc/distkv/node.toml

Each line names the file, the line and what is wrong there. `error` keeps the node from starting; `warning` \
does not. A key that is wrong is left out while the rest is checked. With an error, a start ends with exit code 2, \
too, or with 1 if it may pass by itself, such as an address that this machine does not have yet. What a service \
manager forbids the node, such as places to write to, the check does not see.

Exit code: 0 a node would start with it, 2 it would not, 8 what was found cannot be written.")]
struct CheckArgs {
    /// The file [default: /etc/distkv/node.toml]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(in crate::cli) fn run(args: ConfigArgs) -> Result<(), CliError> {
    let What::Check(CheckArgs { file }) = args.what;
    let file = file.unwrap_or_else(|| PathBuf::from(CONFIG_FILE));
    let text = Settings::read(&file)?;
    let findings: Vec<Finding> = check_text(&text, args.json).into_iter().map(hidden).collect();
    let is_ok = !findings.iter().any(|finding| !finding.is_warning);
    let place = file.display().to_string();
    let mut output = Output::of_verdict(args.json);
    if args.json {
        let findings: Vec<_> = findings.iter().map(json_of).collect();
        output.json_line(json!({"file": place, "ok": is_ok, "findings": findings}))?;
    } else {
        for finding in &findings {
            output.line(&line_of(&place, finding))?;
        }
        if is_ok {
            output.line(&format!("{}: a node would start with it", printable(&place)))?;
        }
    }
    output.flush()?;
    if is_ok { Ok(()) } else { Err(CliError::ToldAs(EXIT_USAGE)) }
}

/// Without what looks like a secret: somebody may have put a key in place of the name of its file.
fn hidden(finding: Finding) -> Finding {
    Finding {
        key: finding.key.map(|key| without_secrets(&key).into_owned()),
        text: without_secrets(&finding.text).into_owned(),
        ..finding
    }
}

fn kind_of(finding: &Finding) -> &'static str {
    if finding.is_warning { "warning" } else { "error" }
}

fn json_of(finding: &Finding) -> serde_json::Value {
    let Finding { line, key, text, .. } = finding;
    json!({"line": line, "key": key, "kind": kind_of(finding), "text": text})
}

fn line_of(place: &str, finding: &Finding) -> String {
    let (place, kind, text) = (printable(place), kind_of(finding), printable(&finding.text));
    let line = finding.line.map(|line| format!("{line}:")).unwrap_or_default();
    let key = finding.key.as_ref().map(|key| format!("{}: ", printable(key))).unwrap_or_default();
    format!("{place}:{line} {kind}: {key}{text}")
}
