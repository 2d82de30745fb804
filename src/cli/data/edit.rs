//! `edit`: an entry's value in the editor, set only if nobody else has changed the entry meanwhile.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{self, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;

use super::entry::chain_text;
use super::set::{change_json, change_text};
use super::system::SystemArgs;
use super::value_input::parse_json;
use crate::cli::error::{CliError, Outcome};
use crate::cli::files::cannot;
use crate::cli::remote::{RemoteArgs, RequestKind, address_entry, parse_path};
use crate::cli::terminal::output::{Output, json_of, printable_path, shell_file};
use crate::cli::{say, signals, typed};
use crate::client::{Fields, Message};
use crate::model::path::Path;
use crate::rt;

/// The variables that name the editor, the first that is set.
const EDITORS: [&str; 2] = ["VISUAL", "EDITOR"];
/// If none of them is.
const EDITOR_ELSE: &str = "vi";

/// How long to wait before a node is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// From this exit code on, a shell says that a program was ended by a signal.
const ENDED_BY_SIGNAL: i32 = 128;

/// Change an entry's value in your editor
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  EDITOR='sed -i s/true/false/' distkv-node edit site.lamp

The editor ($VISUAL, $EDITOR with its options, or at a terminal vi) gets the value as JSON. It is set when the editor ends, if it was \
changed, and only if nobody else has changed the entry meanwhile. An entry without a value begins with \
an empty file; leave it empty, and nothing happens. A node that is restarted meanwhile is waited for, as long as \
--timeout says. If the value cannot be set, or `edit` is ended, your text stays in a file, and it says in which. \
Ctrl-C is for the editor while that runs.

Exit code: 0 set, or left as it was; 1 failed, 2 usage, 3 refused, 5 somebody else has changed it \
meanwhile, 6 no node was reached, 7 it may have been done, 130 interrupted.")]
pub(in crate::cli) struct EditArgs {
    /// The entry's path, like a.b:1.c
    #[arg(value_parser = parse_path)]
    path: Path,

    #[command(flatten)]
    system: SystemArgs,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: EditArgs) -> Result<(), CliError> {
    args.system.check(&args.path)?;
    let editor = editor()?;
    let before = get(&args).await?;
    let text = before.get("value").map(|value| format!("{:#}\n", json_of(value)));
    let text = text.unwrap_or_default();

    let draft = Draft::write(&text, &args, version(&before))?;
    let work = Work::begin(draft)?;
    work.edit(&editor, &text)?;
    let edited = work.draft().read()?;
    let mut output = Output::new(args.remote.json);
    let path = args.path.to_string();
    if edited.trim() == text.trim() {
        work.end();
        output.line(&format!("{}: not changed", printable_path(&path)))?;
        return output.flush();
    }
    let value = parse_json(edited.trim(), "the text")
        .map_err(|why| work.draft().kept(CliError::Failure(why)))?;
    let (action, below) = address_entry(&args.path, "set_value", "set_internal")?;
    let mut fields = Fields::at(&below);
    fields.raw("value", value.as_bytes()).u64("nchain", 1);
    match before.get("chain").filter(|_| before.get("value").is_some()) {
        Some(chain) => fields.raw("chain", chain),
        None => fields.nil("chain"),
    };
    let reply = match set(&args, action, &fields).await {
        Ok(reply) => reply,
        Err(error) => {
            // What to compare the text with now, and to replace.
            if matches!(error, CliError::Request { outcome: Outcome::Precondition, .. })
                && let Ok(now) = get(&args).await
            {
                work.draft().version = version(&now);
            }
            return Err(work.draft().kept(error));
        }
    };
    work.end();
    output.either(|| change_json(&path, &reply), || change_text(&path, "set", &reply))?;
    output.flush()
}

/// What was named as the editor, or else the usual one, which needs a terminal.
fn editor() -> Result<OsString, CliError> {
    let named = EDITORS.iter().filter_map(env::var_os).find(|editor| !editor.is_empty());
    let is_terminal = || io::stdin().is_terminal() && io::stdout().is_terminal();
    match named {
        Some(editor) => Ok(editor),
        None if is_terminal() => Ok(OsString::from(EDITOR_ELSE)),
        None => Err(CliError::Usage(format!(
            "neither VISUAL nor EDITOR names an editor, and {EDITOR_ELSE} needs a terminal: set EDITOR, or give the new \
             value to `set`; nothing was changed"
        ))),
    }
}

/// Reads the entry. No connection is kept while somebody thinks: its node may be restarted meanwhile.
async fn get(args: &EditArgs) -> Result<Message, CliError> {
    let (action, below) = address_entry(&args.path, "get_value", "get_internal")?;
    let mut fields = Fields::at(&below);
    fields.u64("nchain", 1);
    let reach = args.remote.reach().await?;
    reach.request(action, fields, &args.path, RequestKind::Read).await
}

/// What was read, as it is typed after `--chain`.
fn version(read: &Message) -> String {
    let newest = chain_text(read).split(' ').next().unwrap_or_default().to_owned();
    match read.get("value") {
        Some(_) if !newest.is_empty() => newest,
        Some(_) | None => String::from("new"),
    }
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

/// What is worked on, from the editor's start on. Whatever ends it then says where the text is.
struct Work {
    draft: Arc<Mutex<Draft>>,
    /// Whether the editor does not run any more. Until then, what is pressed at the terminal is for the editor.
    is_edited: Arc<AtomicBool>,
    /// Set by each Ctrl-C at once.
    is_pressed: Arc<AtomicBool>,
}

impl Work {
    fn begin(mut draft: Draft) -> Result<Self, CliError> {
        let is_pressed = signals::note_interrupts().inspect_err(|_| draft.remove())?;
        let draft = Arc::new(Mutex::new(draft));
        let work = Self { draft, is_edited: Arc::default(), is_pressed };
        let (draft, is_edited) = (Arc::clone(&work.draft), Arc::clone(&work.is_edited));
        let is_pressed = Arc::clone(&work.is_pressed);
        let quit_too = signals::heed_quit_from(Arc::clone(&work.is_edited));
        let heard = signals::on_ends(move |signal| {
            // This thread may hear of what was pressed in the editor when that has ended.
            let is_for_editor =
                || !is_edited.load(Ordering::SeqCst) || !is_pressed.load(Ordering::SeqCst);
            if signal == signals::Signal::Interrupt && is_for_editor() {
                return;
            }
            // It is held until the process has ended, so that the text stays.
            let draft = draft.lock().unwrap_or_else(PoisonError::into_inner);
            let error = match draft.is_removed {
                true => CliError::INTERRUPTED,
                false => CliError::Interrupted(draft.advice()),
            };
            process::exit(i32::from(error.tell(say::is_json())));
        });
        quit_too.and(heard).inspect_err(|_| work.end())?;
        Ok(work)
    }

    fn draft(&self) -> MutexGuard<'_, Draft> {
        // Nothing that holds it leaves half of anything.
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody needs the text any more.
    fn end(&self) {
        self.draft().remove();
    }

    /// Runs the editor to its end.
    fn edit(&self, editor: &OsStr, text: &str) -> Result<(), CliError> {
        // An editor may be named with options, so a shell reads it, as with other programs that have one. The shell
        // outlives what is pressed for the editor; the editor begins with what is usual for these signals.
        let mut script = OsString::from("trap : INT QUIT; ");
        script.push(editor);
        script.push(" \"$1\"");
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg("sh").arg(&self.draft().file);
        // Without the lock: whoever edits may take long.
        let status = command.status();
        // What is pressed from here on is for this command.
        self.is_pressed.store(false, Ordering::SeqCst);
        self.is_edited.store(true, Ordering::SeqCst);
        let mut draft = self.draft();
        let editor = editor.to_string_lossy();
        let why = match status {
            Ok(status) if status.success() => return Ok(()),
            // It was not the editor that gave the text up.
            Ok(status) if is_killed(status) && draft.read().is_ok_and(|now| now != text) => {
                let why = format!("the editor {editor} ended with {status}");
                return Err(draft.kept(CliError::Failure(why)));
            }
            Ok(status) => format!("ended with {status}"),
            Err(error) => format!("cannot be started: {error}"),
        };
        draft.remove();
        Err(CliError::Failure(format!("the editor {editor} {why}; nothing was changed")))
    }
}

/// Whether a signal has ended it, or what a shell has run.
fn is_killed(status: ExitStatus) -> bool {
    status.code().is_none_or(|code| code > ENDED_BY_SIGNAL)
}

/// The file that the editor gets. It stays until it is removed: it may be the only copy of somebody's work.
struct Draft {
    file: PathBuf,
    is_removed: bool,
    /// Of what entry the text is.
    path: String,
    /// Whether the entry belongs to the system, and that was said to be right.
    is_system: bool,
    /// What the text is to replace, as it is typed after `--chain`.
    version: String,
}

impl Draft {
    fn write(text: &str, args: &EditArgs, version: String) -> Result<Self, CliError> {
        let (path, is_system) = (args.path.to_string(), args.system.is_given());
        let file = env::temp_dir().join(format!("distkv-{:016x}.json", rt::random_u64()));
        // What is edited may be a secret.
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file);
        let written = opened.and_then(|mut new| {
            // There may be no room for the text: nobody needs a file without it.
            let written = new.write_all(text.as_bytes());
            written.inspect_err(|_| drop(fs::remove_file(&file)))
        });
        written.map_err(|error| cannot("write", &file, error))?;
        Ok(Self { file, is_removed: false, path, is_system, version })
    }

    fn read(&self) -> Result<String, CliError> {
        fs::read_to_string(&self.file).map_err(|error| cannot("read", &self.file, error))
    }

    fn remove(&mut self) {
        // What cannot be removed harms nobody but the disk.
        let _ = fs::remove_file(&self.file);
        self.is_removed = true;
    }

    /// The text was not taken: says where it is, and how to go on.
    fn kept(&self, why: CliError) -> CliError {
        why.said(|text| format!("{text}; {}", self.advice()))
    }

    /// Where the text is, and how to go on.
    fn advice(&self) -> String {
        let get = typed::command("get", &[&self.path], &[]);
        let options = ["--chain", &self.version, "--system"];
        let options = if self.is_system { &options[..] } else { &options[..2] };
        let set = typed::command_from("set", &[&self.path, "-"], options, &self.file);
        let file = shell_file(&self.file);
        format!("your text is in {file}: compare it with {get}, mend it, and run {set}")
    }
}
