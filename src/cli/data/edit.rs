//! `edit`: an entry's value in the editor, set only if nobody else has changed the entry meanwhile.

use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;

use super::set::{change_json, change_text};
use super::value_input::parse_json;
use crate::cli::error::{CliError, Outcome};
use crate::cli::files::cannot;
use crate::cli::remote::{RemoteArgs, RequestKind, address_entry, parse_path};
use crate::cli::terminal::output::{Output, json_of, shell_word};
use crate::client::{Fields, Message};
use crate::model::path::Path;
use crate::rt;

/// The variables that name the editor, the first that is set.
const EDITORS: [&str; 2] = ["VISUAL", "EDITOR"];
/// If none of them is.
const EDITOR_ELSE: &str = "vi";

/// How long to wait before a node is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Change an entry's value in your editor
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  EDITOR='sed -i s/true/false/' distkv-node edit site.lamp

The editor ($VISUAL, $EDITOR with its options, or vi) gets the value as JSON. It is set when the editor ends, if it was \
changed, and only if nobody else has changed the entry meanwhile. An entry without a value begins with \
an empty file; leave it empty, and nothing happens. A node that is restarted meanwhile is waited for, as long as \
--timeout says. If the value cannot be set, your text stays in a file, and the error says in which.

Exit code: 0 set, or left as it was; 1 failed, 2 usage, 3 refused, 5 somebody else has changed it \
meanwhile, 6 no node was reached, 7 it may have been done.")]
pub(in crate::cli) struct EditArgs {
    /// The entry's path, like a.b:1.c
    #[arg(value_parser = parse_path)]
    path: Path,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: EditArgs) -> Result<(), CliError> {
    let (action, below) = address_entry(&args.path, "get_value", "get_internal")?;
    let mut fields = Fields::at(&below);
    fields.u64("nchain", 1);
    // No connection is kept while somebody thinks: its node may be restarted meanwhile.
    let reach = args.remote.reach().await?;
    let before = reach.request(action, fields, &args.path, RequestKind::Read).await?;
    drop(reach);
    let text = before.get("value").map(|value| format!("{:#}\n", json_of(value)));
    let text = text.unwrap_or_default();

    let draft = Draft::write(&text)?;
    draft.edit()?;
    let edited = draft.read()?;
    let mut output = Output::new(args.remote.json);
    let path = args.path.to_string();
    if edited.trim() == text.trim() {
        draft.remove();
        output.line(&format!("{path}: not changed"))?;
        return output.flush();
    }
    let value = parse_json(edited.trim(), "the text")
        .map_err(|why| draft.kept(&path, CliError::Failure(why)))?;
    let (action, below) = address_entry(&args.path, "set_value", "set_internal")?;
    let mut fields = Fields::at(&below);
    fields.raw("value", value.as_bytes()).u64("nchain", 1);
    match before.get("chain").filter(|_| before.get("value").is_some()) {
        Some(chain) => fields.raw("chain", chain),
        None => fields.nil("chain"),
    };
    let set = set(&args, action, &fields).await;
    let reply = set.map_err(|error| draft.kept(&path, error))?;
    draft.remove();
    output.either(|| change_json(&path, &reply), || change_text(&path, "set", &reply))?;
    output.flush()
}

/// Sets the entry, as soon as a node can be reached, within the time that a request has: the node may just be starting
/// again.
async fn set(args: &EditArgs, action: &str, fields: &Fields) -> Result<Message, CliError> {
    let until = rt::now().saturating_add(rt::millis(args.remote.timeout_or_default()));
    loop {
        let set = async {
            let reach = args.remote.reach().await?;
            reach.request(action, fields.clone(), &args.path, RequestKind::Write).await
        };
        match set.await {
            // Nothing was done.
            Err(CliError::Request { outcome: Outcome::Unreachable, .. }) if rt::now() < until => {
                rt::sleep(RETRY_PAUSE).await;
            }
            done => return done,
        }
    }
}

/// The file that the editor gets. It stays until it is removed: it may be the only copy of somebody's work.
struct Draft(PathBuf);

impl Draft {
    fn write(text: &str) -> Result<Self, CliError> {
        let path = env::temp_dir().join(format!("distkv-{:016x}.json", rt::random_u64()));
        // What is edited may be a secret.
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| cannot("write", &path, error))?;
        Ok(Self(path))
    }

    fn path(&self) -> &FilePath {
        &self.0
    }

    /// Runs the editor to its end.
    fn edit(&self) -> Result<(), CliError> {
        let named = EDITORS.iter().filter_map(env::var_os).find(|editor| !editor.is_empty());
        let editor = named.unwrap_or_else(|| OsString::from(EDITOR_ELSE));
        // An editor may be named with options, so a shell reads it, as with other programs that have one.
        let mut script = editor.clone();
        script.push(" \"$1\"");
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg("sh").arg(self.path());
        let failed = |why: String| {
            self.remove();
            let editor = editor.to_string_lossy();
            CliError::Failure(format!("the editor {editor} {why}; nothing was changed"))
        };
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(format!("ended with {status}"))),
            Err(error) => Err(failed(format!("cannot be started: {error}"))),
        }
    }

    fn read(&self) -> Result<String, CliError> {
        fs::read_to_string(self.path()).map_err(|error| cannot("read", self.path(), error))
    }

    fn remove(&self) {
        // What cannot be removed harms nobody but the disk.
        let _ = fs::remove_file(self.path());
    }

    /// The text was not taken: says where it is, and how to go on.
    fn kept(&self, path: &str, why: CliError) -> CliError {
        let (file, path) = (self.path().display(), shell_word(path));
        let advice = format!(
            "your text is in {file}: compare it with `distkv-node get {path}`, mend it, and run \
             `distkv-node set {path} - < {file}`"
        );
        why.said(|text| format!("{text}; {advice}"))
    }
}
