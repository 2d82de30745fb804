//! `snapshot restore`: a file's state into a running network, or into a directory for a node that
//! is to start with it.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path as FilePath, PathBuf};

use async_channel::Sender;
use clap::Args;
use serde_json::{Map, Value as Json, json};

use super::convert::tell_notes;
use crate::cli::error::CliError;
use crate::cli::files::directory::{FileAccess, Given, Put, Wanted, put_into};
use crate::cli::files::new_file::{StateInto, tidy_when_interrupted};
use crate::cli::files::read::read_state;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::terminal::interrupt::Interrupt;
use crate::cli::terminal::output::{
    Output, count_of, file_word, printable, shell_file, shell_word,
};
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::{say, typed};
use crate::client::{Fields, Message};
use crate::engine::exchange::access::AccessPart;
use crate::model::ids::NodeName;
use crate::protocol::client::Action;
use crate::rt;
use crate::storage::snapshot::write_snapshot_to;
use crate::storage::{FileHeader, FileId};

/// Bytes of one request.
const PIECE_BYTES: usize = 1 << 20;
/// Requests' contents that are made ahead.
const PIECES_AHEAD: usize = 2;

/// Take a file's state into a running network, or into a data directory
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node snapshot restore monday.dkv
  distkv-node snapshot restore saved-state.bin  # from the Python DistKV
  distkv-node snapshot restore a.dkv b.dkv      # one after the other
  # a data directory for a new node, and the node that starts with it (with
  # --key, if the network has one):
  distkv-node snapshot restore monday.dkv --into /var/lib/new --name n1
  distkv-node run --data-dir /var/lib/new --name n1

Restore merges; it never rolls back. What the network has changed since stays, what it has \
deleted stays deleted, and what it lacks is added, however old the file is. The output says how many entries have \
another value now, or none (--json: kept). To set them back, set them again: `snapshot convert FILE --to - --format jsonl \
--below PATH` writes what the file has at and below a path, `import` sets it. `snapshot diff` and `log replay` show how it was.

Lines of JSON may be cut and edited. An unchanged line restores that very version. A line \
with an edited value is a new change on top of the version that the line had; if the entry \
has changed since, that is a conflict, and the later change stays. A line with an edited \
path, chain or tock is a new change that knows nothing of what is there. Restoring the same \
file again, or at another node, changes nothing more. For lines without a chain, use \
`import`.

Users, logins and access lists (what is below `:n.auth` and `:n.acl`) come along from a file of the \
same network, from lines of JSON and from files of the Python DistKV: who can log in there can log in \
here. Of another network (--any-network), they are left out, unless --with-auth is given, too. The \
output says how many there were. Types, and where they are asked for (`:n.type`, `:n.match`), \
belong to the data, and come along with it from any network.

A node trusts the contents of a snapshot as it trusts another node, so it takes one only \
from its own machine, unless it was started with --remote-restore.

Exit code: 0 restored, 1 not restored (the text says whether anything was \
changed), 2 usage, 3 refused, 6 no node was reached (or it was lost before it had all of the file), \
7 it may have been done (the error says how to go on), 130 interrupted, and not restored.")]
pub(super) struct RestoreArgs {
    /// The files: snapshots, saved states or change logs of the Python DistKV, lines of JSON with
    /// chains
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Also a snapshot of a network with another name than the node's or the directory's, or than
    /// that of the file before it. Lines of JSON, and files of the Python DistKV, do not say of which network
    /// they are, and need no such word. Users, logins and access lists of another network are left out
    /// without --with-auth
    #[arg(long)]
    any_network: bool,

    /// With --any-network: also users, logins and access lists of the other network. And, into a running
    /// network: also a snapshot that switches logins on, or to another method than the network's, or
    /// leaves no admin, one file at a time: when it is restored, clients of every node must log in like that
    #[arg(long)]
    with_auth: bool,

    #[command(flatten)]
    into: IntoArgs,

    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

/// Where a state goes that no running node takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "For a node that is not running")]
pub(in crate::cli) struct IntoArgs {
    /// Put it into this data directory, on top of what is there; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) into: Option<PathBuf>,

    /// With --into: the name of the node that the directory is for [default: as the directory, or
    /// else the first file, says]
    #[arg(long, value_name = "NAME")]
    name: Option<NodeName>,

    /// With --into: the name of its network [default: as the directory, or else the first file that
    /// has one, says]
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
}

impl IntoArgs {
    /// Checks that what was asked for goes together.
    pub(in crate::cli) fn check(&self) -> Result<(), CliError> {
        if self.into.is_none() && (self.name.is_some() || self.network.is_some()) {
            let text = "--name and --network tell whose directory it is that --into names";
            return Err(CliError::Usage(text.to_owned()));
        }
        Ok(())
    }

    /// Whose the directory should be.
    pub(in crate::cli) fn wanted(&self, any_network: bool, with_auth: bool) -> Wanted {
        Wanted { name: self.name.clone(), network: self.network.clone(), any_network, with_auth }
    }
}

impl RestoreArgs {
    /// How to go on with these files where the answer about the first of them has not come.
    fn rest_text(&self, files: &[PathBuf]) -> String {
        let names: Vec<String> = files.iter().map(|file| file_word(file)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let flags = [("--any-network", self.any_network), ("--with-auth", self.with_auth)];
        let flags: Vec<&str> =
            flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect();
        let again = typed::command("snapshot restore", &names, &flags);
        format!(
            "a part of {}, or all of it, may be restored; {again} restores the rest, at this node or another one \
             (--connect), and changes nothing of what is there already",
            names.first().unwrap_or(&"it")
        )
    }
}

pub(super) async fn run(args: &RestoreArgs, remote: &RemoteArgs) -> Result<(), CliError> {
    args.into.check()?;
    if let Some(directory) = &args.into.into {
        tidy_when_interrupted(remote.json)?;
        let into = StateInto::begin(directory);
        let mut states = Vec::new();
        for file in &args.files {
            let state = read_state(file, remote.json)?;
            tell_notes(&state.other_notes());
            states.push(Given { from: file, state });
        }
        let wanted = args.into.wanted(args.any_network, args.with_auth);
        let put = put_into(&into, states, wanted, remote.json)?;
        drop(into);
        return tell_put(directory, &put, remote.json);
    }
    if args.with_auth && args.files.len() > 1 {
        let text = "--with-auth restores one file: when that is done, the node asks for a login";
        return Err(CliError::Usage(text.to_owned()));
    }
    let interrupt = Interrupt::heed()?;
    let connected = interrupt.or(remote.connect()).await;
    let connected = connected.map_err(|error| error.left("nothing was restored"))?;
    let mut output = Output::of_change(remote.json);
    for (at, file) in args.files.iter().enumerate() {
        let left = || format!("nothing of {} was restored", file.display());
        let restored = restore(&connected, file, args, remote, &interrupt).await;
        let (reply, login_note) = restored.map_err(|error| {
            let rest = args.files.get(at..).unwrap_or_default();
            error.left(&left()).in_doubt(|| args.rest_text(rest))
        })?;
        let access = tell(file, &reply, args.with_auth, &mut output)?;
        output.flush()?;
        // With --with-auth, the answer has told of it.
        if !access.is_left_out && !args.with_auth {
            tell_notes(login_note.as_slice());
        }
    }
    Ok(())
}

/// Says what is in a directory now, and how to go on.
pub(in crate::cli) fn tell_put(
    directory: &FilePath,
    put: &Put,
    json: bool,
) -> Result<(), CliError> {
    let mut output = Output::new(json);
    let (name, network, entries) = (&put.owner.name, &put.owner.network, put.entries);
    put.access.iter().for_each(|access| tell_notes(access.login_note.as_slice()));
    // No file says whether its network has a key; most with users have one.
    let has_users = put.access.iter().any(|access| !access.is_left_out && access.part.users > 0);
    output.either(
        || {
            json!({
                "directory": directory.display().to_string(), "name": name.as_str(),
                "network": network, "entries": entries, "merged": put.is_merged,
                "files": put.access.iter().map(access_json).collect::<Vec<_>>(),
            })
        },
        || {
            let [name, network] = [name.as_str(), network].map(shell_word);
            let entries = count_of(entries, "entry", "entries");
            let mut text = String::new();
            for access in &put.access {
                if let Some(told) = access_text(access) {
                    text.push_str(&format!("{}: {told}\n", printable(&access.file)));
                }
            }
            text + &format!(
                "{}: {entries}; start a node with this data: distkv-node run --data-dir {} --name {name} \
                 --network {network}{}",
                directory.display(),
                shell_file(directory),
                if has_users { "; if the network has a key, add --key FILE" } else { "" }
            )
        },
    )?;
    output.flush()
}

/// What of a file is about access, for programs.
fn access_json(access: &FileAccess) -> Json {
    let AccessPart { users, lists } = access.part;
    json!({
        "file": access.file, "users": users, "lists": lists, "access_left_out": access.is_left_out,
    })
}

/// The same for people; none if there is nothing to tell.
fn access_text(access: &FileAccess) -> Option<String> {
    let AccessPart { users, lists } = access.part;
    let counted = match (users, lists) {
        (0, 0) => None,
        (_, 0) => Some(count_of(users, "user", "users")),
        (0, _) => Some(count_of(lists, "access list", "access lists")),
        _ => Some(format!(
            "{} and {}",
            count_of(users, "user", "users"),
            count_of(lists, "access list", "access lists")
        )),
    };
    if access.is_left_out {
        let counted = counted.map(|counted| format!(" ({counted})")).unwrap_or_default();
        return Some(format!(
            "users, logins and access lists of the other network were left out{counted}; --with-auth takes them in"
        ));
    }
    let verb = if users + lists == 1 { "is" } else { "are" };
    counted.map(|counted| format!("{counted} {verb} in it"))
}

/// Uploads one file. It is read whole, and found good, before anything is sent. The answer, and what is to be said of logins if
/// they come along.
async fn restore(
    connected: &Remote,
    file: &FilePath,
    args: &RestoreArgs,
    remote: &RemoteArgs,
    interrupt: &Interrupt,
) -> Result<(Message, Option<String>), CliError> {
    let (path, json) = (file.to_owned(), remote.json);
    let state = interrupt.or(rt::spawn_blocking(move || read_state(&path, json))).await?;
    tell_notes(&state.other_notes());
    let login_note = state.login_note.clone();
    let (sender, pieces) = async_channel::bounded(PIECES_AHEAD);
    let writing = rt::spawn_blocking(move || {
        let header = state.header.unwrap_or_else(|| FileHeader {
            number: 0,
            network: String::new(),
            id: state.image.id().clone(),
            store: 0,
            time_ms: rt::wall_clock_ms(),
        });
        let mut writer = BufWriter::with_capacity(PIECE_BYTES, Pieces(sender));
        write_snapshot_to(&mut writer, &header, FileId::default(), &state.image, &mut |_| {})?;
        writer.flush()
    });
    let mut bar = ProgressBar::new(format!("sending {}", file.display()), remote.json);
    let (mut sent, mut is_first) = (0, true);
    while let Ok(piece) = pieces.recv().await {
        let mut fields = Fields::new();
        fields.bin("data", &piece);
        if std::mem::take(&mut is_first) {
            fields.bool("start", true);
        }
        // The node takes nothing in before it has all of it.
        let taken = interrupt.or(connected.request(Action::Restore.name(), &fields)).await;
        let nothing = |why: String| format!("{why}; nothing of {} was restored", file.display());
        taken.map_err(|error| error.of_read().said(nothing))?;
        sent += piece.len() as u64;
        bar.bytes(sent, 0);
    }
    let written = writing.await;
    written.map_err(|error| CliError::Failure(format!("cannot send the snapshot: {error}")))?;
    drop(bar);
    let mut fields = Fields::new();
    fields.bool("last", true);
    if args.any_network {
        fields.bool("any_network", true);
    }
    if args.with_auth {
        fields.bool("with_auth", true);
    }
    // How long that takes depends on the state, and the node tells when it is done. It cannot be stopped.
    interrupt.check()?;
    say_taking_in(file, remote.json);
    let done = connected.connection.request(Action::Restore.name(), &fields).await;
    Ok((done?, login_note))
}

/// Says why the command waits, if a person is there.
fn say_taking_in(file: &FilePath, json: bool) {
    if !json && io::stderr().is_terminal() {
        say::line(&format!("{} is sent; the node takes it in", file.display()));
    }
}

/// What is about access in it. `with_auth`: logins may have been switched on by it.
fn tell(
    file: &FilePath,
    reply: &Message,
    with_auth: bool,
    output: &mut Output,
) -> Result<FileAccess, CliError> {
    let result = reply.get("result").and_then(|result| Message::new(result).ok());
    let count = |name: &str| result.as_ref().and_then(|result| result.u64(name)).unwrap_or(0);
    let names = ["entries", "taken", "made", "dropped", "conflicts", "kept"];
    let auth = result.as_ref().and_then(|result| result.str("auth"));
    let is_left_out = result.as_ref().and_then(|result| result.bool("access_left_out"));
    let name = file.display().to_string();
    let access = FileAccess {
        file: name.clone(),
        part: AccessPart { users: count("users"), lists: count("lists") },
        is_left_out: is_left_out.unwrap_or(false),
        login_note: None,
    };
    output.either(
        || {
            let mut out = match access_json(&access) {
                Json::Object(out) => out,
                _ => Map::new(),
            };
            for name in names {
                out.insert(name.into(), count(name).into());
            }
            out.insert("auth".into(), auth.into());
            Json::Object(out)
        },
        || {
            let mut text = format!(
                "{}: {}, of which {} taken in",
                printable(&name),
                count_of(count("entries"), "entry", "entries"),
                count_of(count("taken") + count("made"), "was", "were"),
            );
            for (count, one, many) in [
                (
                    count("made"),
                    "was carried across purges as a new change",
                    "were carried across purges as new changes",
                ),
                (
                    count("dropped"),
                    "entry was removed, because it is purged where the file is from",
                    "entries were removed, because they are purged where the file is from",
                ),
                (
                    count("conflicts"),
                    "conflict was found (`conflicts` shows it)",
                    "conflicts were found (`conflicts` shows them)",
                ),
            ] {
                if count > 0 {
                    text.push_str(&format!("; {}", count_of(count, one, many)));
                }
            }
            if let Some(told) = access_text(&access) {
                text.push_str(&format!("; {told}"));
            }
            if let kept @ 1.. = count("kept") {
                text.push_str(&format!("\n{}", kept_text(file, kept)));
            }
            if let Some(method) = auth.filter(|_| with_auth) {
                text.push_str(&format!(
                    "\nlogins are on in this network now (:n.auth, method {method:?}): its nodes \
                     ask all clients to log in, these commands included (--user), except nodes with \
                     --ignore-auth"
                ));
            }
            text
        },
    )?;
    Ok(access)
}

/// That entries of a file are as the network has changed them since, and what sets them back.
fn kept_text(file: &FilePath, kept: u64) -> String {
    let entries = count_of(
        kept,
        "entry of it has another value now, or none, and is kept like that",
        "entries of it have another value now, or none, and are kept like that",
    );
    // It needs no node.
    let file = shell_file(file);
    let import = typed::command("import", &["-"], &[]);
    format!(
        "{entries}; `distkv-node snapshot convert {file} --to - --format jsonl --below PATH | {} sets those at and below PATH \
         to what the file has",
        import.trim_start_matches('`')
    )
}

/// Makes the contents of a request of all that is written at once.
struct Pieces(Sender<Vec<u8>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
        self.0.send_blocking(piece.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
