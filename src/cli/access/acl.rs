//! `acl`: access lists, and what they allow.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use distkv_access::acl::{Acl, Because, Letters, Missing, Rights};
use distkv_access::users::is_list_name;
use serde_json::json;

use super::existing::{User, user_of};
use super::{Item, collect};
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs, parse_path};
use crate::cli::terminal::output::{
    Output, Table, count_of, printable, printable_path, shell_word, shown_path,
};
use crate::cli::{say, typed};
use crate::client::{Fields, StreamEvent};
use crate::model::path::{Element, Path};
use crate::model::value::Reader;

/// Access lists: which users may do what with which entries
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node acl set lamps 'site.#' rwcdxen
  distkv-node acl set lamps site xen
  distkv-node acl set lamps : xen        # so that `tree` can begin at the root
  distkv-node acl show lamps
  distkv-node acl explain joe site.lamp

A list has patterns of paths: + stands for one element, # for one or more. The most exact pattern decides; where none matches, nothing is allowed.

Letters: r read, w change, c create, d delete, x pass through, e list children, n make a child, a see these letters.

Exit code: 0 done, 1 failed (there is no such list, or pattern), 2 usage, 3 refused, 6 no node was reached, 7 it may \
have been done, 8 what is only read cannot be written.")]
pub(in crate::cli) struct AclArgs {
    #[command(subcommand)]
    command: AclCommand,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum AclCommand {
    /// List the access lists
    #[command(after_help = "Example:\n  distkv-node acl list")]
    List {
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Show the patterns of a list
    #[command(after_help = "Example:\n  distkv-node acl show lamps --json")]
    Show {
        /// The list's name
        name: String,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Set the letters of a pattern
    #[command(after_help = "\
Examples:
  distkv-node acl set lamps 'site.#' rwcdxen
  distkv-node acl set lamps site.secret ''  # nothing, whatever 'site.#' allows

`acl delete lamps 'site.#'` takes a pattern away.")]
    Set {
        /// The list's name; not * or -, which `user acl` understands otherwise
        name: String,
        /// The pattern: a path with + and #
        #[arg(value_parser = parse_path)]
        pattern: Path,
        /// What it allows: letters of rwcdxena; none: nothing
        letters: String,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Delete a pattern, or a whole list
    #[command(after_help = "\
Examples:
  distkv-node acl delete lamps 'site.#'
  distkv-node acl delete lamps")]
    Delete {
        /// The list's name
        name: String,
        /// The pattern; without it, the whole list
        #[arg(value_parser = parse_path)]
        pattern: Option<Path>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Ask the node what a list allows at a path
    #[command(after_help = "\
Example:
  distkv-node acl test lamps site.lamp w

An admin may ask any list, and a user its own. To a user, any other list is like one that is not there.")]
    Test {
        /// The list's name
        name: String,
        /// The entry's path
        #[arg(value_parser = parse_path)]
        path: Path,
        /// The letter
        #[arg(default_value = "r")]
        letter: String,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Explain what a user may do at a path, and which pattern says so
    #[command(after_help = "Example:\n  distkv-node acl explain joe site.lamp")]
    Explain {
        /// The user's name
        user: String,
        /// The entry's path
        #[arg(value_parser = parse_path)]
        path: Path,
        /// How the user logs in: password, token, root; needed where several have that name
        #[arg(long)]
        method: Option<String>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
}

impl AclCommand {
    fn remote(&self) -> &RemoteArgs {
        match self {
            AclCommand::List { remote }
            | AclCommand::Show { remote, .. }
            | AclCommand::Set { remote, .. }
            | AclCommand::Delete { remote, .. }
            | AclCommand::Test { remote, .. }
            | AclCommand::Explain { remote, .. } => remote,
        }
    }
}

pub(in crate::cli) async fn run(args: AclArgs) -> Result<(), CliError> {
    let connect = args.command.remote().clone().or(args.remote);
    let remote = connect.connect_in_time().await?;
    let mut output = match &args.command {
        AclCommand::Set { .. } | AclCommand::Delete { .. } => Output::new(connect.json),
        _ => Output::of_read(connect.json),
    };
    match &args.command {
        AclCommand::List { .. } => list(&remote, &mut output).await?,
        AclCommand::Show { name, .. } => show(&remote, name, &mut output).await?,
        AclCommand::Set { name, pattern, letters, .. } => {
            if let Some(wrong) = letters.chars().find(|letter| Letters::of(*letter).is_none()) {
                return Err(CliError::Usage(no_letter(wrong, letters, name, pattern)));
            }
            if !is_list_name(name) {
                let text = format!(
                    "no access list can be named {name:?}: `user acl NAME '*'` gives all data, and `user acl NAME -` \
                     takes the list away"
                );
                return Err(CliError::Usage(text));
            }
            let mut fields = Fields::at(&place(name, Some(pattern))?);
            fields.str("value", letters);
            remote.request("set_internal", &fields).await?;
            output.either(
                || json!({"list": name, "pattern": pattern.to_string(), "letters": letters}),
                || {
                    format!(
                        "{}: {} allows {}",
                        printable(name),
                        shown_path(pattern),
                        shown(letters)
                    )
                },
            )?;
        }
        AclCommand::Delete { name, pattern: Some(pattern), .. } => {
            let fields = Fields::at(&place(name, Some(pattern))?);
            let reply = remote.request("delete_internal", &fields).await?;
            if reply.bool("changed") == Some(false) {
                let text = format!(
                    "the access list {name:?} has no pattern {}; nothing was changed",
                    shown_path(pattern)
                );
                return Err(CliError::not_found(text));
            }
            output.either(
                || json!({"list": name, "pattern": pattern.to_string(), "deleted": true}),
                || format!("{}: {} is deleted", printable(name), shown_path(pattern)),
            )?;
        }
        AclCommand::Delete { name, pattern: None, .. } => {
            let whole = Path::system_root().join(&place(name, None)?);
            let whole = whole.map_err(|error| CliError::Usage(error.to_string()))?;
            let reply = remote.request("delete_tree", &Fields::at(&whole)).await?;
            let count = reply.u64("changed").unwrap_or(0);
            if count == 0 {
                let text = format!("there is no access list {name:?}; nothing was changed");
                return Err(CliError::not_found(text));
            }
            output.either(
                || json!({"list": name, "deleted": count}),
                || format!("{name}: {} deleted", count_of(count, "pattern is", "patterns are")),
            )?;
        }
        AclCommand::Test { name, path, letter, .. } => {
            let mut fields = Fields::at(path);
            fields.str("mode", letter).str("acl", name);
            let reply = remote.request("test_acl", &fields).await?;
            let allowed = reply.bool("access").unwrap_or(false);
            output.either(
                || json!({"list": name, "path": path.to_string(), "letter": letter, "allowed": allowed}),
                || {
                    let does = if allowed { "allows" } else { "does not allow" };
                    let (name, letter) = (printable(name), printable(letter));
                    format!("{name} {does} {letter} at {}", shown_path(path))
                },
            )?;
        }
        AclCommand::Explain { user, path, method, .. } => {
            explain(&remote, (user, method.as_deref()), path, &mut output).await?;
        }
    }
    output.flush()
}

/// That there is no such letter. `user acl NAME -` takes a list away, so `-` is meant like that.
fn no_letter(wrong: char, letters: &str, name: &str, pattern: &Path) -> String {
    let text = format!("{wrong:?} is no letter of access lists: there are rwcdxena");
    if letters != "-" {
        return text;
    }
    let delete = typed::command("acl delete", &[name, &pattern.to_string()], &[]);
    format!("{text}; '' allows nothing there, and {delete} deletes the pattern")
}

/// What keeps a user with these rights from setting the entry at a path, on the way there, as things are now.
async fn missing_to_create(
    remote: &Remote,
    rights: &Rights,
    path: &Path,
) -> Result<Option<Missing>, CliError> {
    let as_if = |is_there: bool| rights.way(path.as_bytes(), |_| is_there).err();
    let (all_there, none_there) = (as_if(true), as_if(false));
    // What is below nil is for admins, whatever is there.
    if all_there == none_there || path.is_system() {
        return Ok(all_there);
    }
    let mut there = 0;
    while there < path.len() && is_there(remote, &path.prefix(there + 1)).await? {
        there += 1;
    }
    Ok(rights.way(path.as_bytes(), |depth| depth <= there).err())
}

/// Whether there is something at a path, or below it.
async fn is_there(remote: &Remote, path: &Path) -> Result<bool, CliError> {
    let mut stream = remote.stream("get_tree", &Fields::at(path)).await?;
    while let Some(event) = remote.next(&mut stream).await? {
        if matches!(event, StreamEvent::Item { .. }) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where a list is, or one of its patterns: the path below nil.
fn place(name: &str, pattern: Option<&Path>) -> Result<Path, CliError> {
    let usage = |error: crate::model::path::PathError| CliError::Usage(error.to_string());
    let top = Path::from_elements([Element::Str("acl"), Element::Str(name)]).map_err(usage)?;
    pattern.map_or(Ok(top.clone()), |pattern| top.join(pattern).map_err(usage))
}

/// The patterns of a list, with what is stored at each.
async fn patterns(remote: &Remote, name: &str) -> Result<Vec<(Path, Vec<u8>)>, CliError> {
    let items = collect(remote, "get_tree_internal", &Fields::at(&place(name, None)?)).await?;
    let pattern = |item: Item| Some((item.path?, item.message.get("value")?.to_vec()));
    Ok(items.into_iter().filter_map(pattern).collect())
}

/// Says so if a user was given a list that is not there: most of the time, its name has a typo. The change is made: where
/// it cannot be asked, nothing is said.
pub(super) async fn note_missing(remote: &Remote, user: &str, name: Option<&str>) {
    let Some(name) = name.filter(|name| !matches!(*name, "*" | "-")) else { return };
    if patterns(remote, name).await.is_ok_and(|found| found.is_empty()) {
        let (list, user) = (printable(name), printable(user));
        say::note(&format!(
            "there is no access list {list} yet: until `acl set {}` makes it, {user} may do nothing with data",
            shell_word(name)
        ));
    }
}

async fn list(remote: &Remote, output: &mut Output) -> Result<(), CliError> {
    let top = Path::from_elements([Element::Str("acl")]);
    let top = top.map_err(|error| CliError::Usage(error.to_string()))?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for item in collect(remote, "get_tree_internal", &Fields::at(&top)).await? {
        if let Some(Element::Str(name)) = item.path.as_ref().and_then(|path| path.elements().next())
        {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    if !output.json && counts.is_empty() {
        return output.line("there are no access lists");
    }
    let mut table = Table::with_head(&["LIST", "PATTERNS"]);
    for (name, count) in counts {
        if output.json {
            output.json_line(json!({"list": name, "patterns": count}))?;
        }
        table.row([name, count.to_string()]);
    }
    if output.json { Ok(()) } else { table.print(output) }
}

async fn show(remote: &Remote, name: &str, output: &mut Output) -> Result<(), CliError> {
    let patterns = patterns(remote, name).await?;
    if patterns.is_empty() {
        return Err(CliError::not_found(format!("there is no access list {name:?}")));
    }
    let mut table = Table::with_head(&["PATTERN", "ALLOWS"]);
    let mut has_default = false;
    for (pattern, value) in patterns {
        let letters = Reader::new(&value).read_str().unwrap_or_default();
        has_default |= pattern.elements().eq([Element::Str("#")]);
        if output.json {
            let line = json!({"list": name, "pattern": pattern.to_string(), "letters": letters});
            output.json_line(line)?;
        }
        table.row([shown_path(&pattern), shown(letters)]);
    }
    if output.json {
        return Ok(());
    }
    table.print(output)?;
    if has_default { Ok(()) } else { output.line("where none of them matches, nothing is allowed") }
}

async fn explain(
    remote: &Remote,
    (user, method): (&str, Option<&str>),
    path: &Path,
    output: &mut Output,
) -> Result<(), CliError> {
    let User { method, told } = user_of(remote, method, user).await?;
    let (role, list) = (told.str("role").unwrap_or_default(), told.str("acl"));
    let rights = match (role, list) {
        ("admin", _) => Rights::everything(),
        (_, None) => Rights::nothing(),
        (_, Some("*")) => Rights::all_data(),
        (_, Some(name)) => {
            let patterns = patterns(remote, name).await?;
            let entries = patterns.iter().map(|(pattern, value)| (pattern.clone(), &value[..]));
            // Too many allow nothing.
            Acl::build(entries).map_or_else(|_| Rights::nothing(), Rights::of)
        }
    };
    let explained = rights.explain(path.as_bytes());
    // Reading takes the way as if all that leads there existed; creating makes what does not.
    let missing = rights.way(path.as_bytes(), |_| true).err();
    let missing_to_create = missing_to_create(remote, &rights, path).await?;
    let letters = explained.letters.to_string();
    let because = match (&explained.because, list) {
        (Because::Everything, _) => "the role admin".to_owned(),
        (Because::AllData, _) => "the access list *".to_owned(),
        (Because::System, _) => "the path is below nil, which is for admins".to_owned(),
        (Because::Pattern(pattern), Some(list)) => format!("the pattern {pattern} of {list}"),
        (Because::Way, Some(list)) => format!("it is on the way to a pattern of {list}"),
        (Because::Config, _) => "every client may read that entry".to_owned(),
        (Because::TooMany, _) => "more patterns match than are followed".to_owned(),
        (_, None) => "the user has no access list".to_owned(),
        (_, Some(list)) => format!("no pattern of {list} matches"),
    };
    let place = |missing: Missing| path.prefix(missing.depth).to_string();
    let (blocked, blocked_to_create) = (missing.map(place), missing_to_create.map(place));
    output.either(
        || {
            json!({
                "user": user, "method": method, "role": role, "acl": list, "path": path.to_string(),
                "letters": letters, "because": because, "blocked_at": blocked,
                "create_blocked_at": blocked_to_create,
            })
        },
        || {
            let mut text =
                format!("{user} at {path}: {}, because of this: {because}", shown(&letters));
            match (&blocked, &blocked_to_create) {
                (None, None) => {}
                (None, Some(at)) => text.push_str(&format!(
                    "; but it may make nothing below {at} (the letter n), so it cannot create this entry, which is not \
                     there"
                )),
                (Some(at), Some(_)) => {
                    text.push_str(&format!("; but it may not pass {at}, so it does not get there"));
                }
                (Some(at), None) => text.push_str(&format!(
                    "; but it may not pass {at}, so it does not get there, except to create this entry, which is not \
                     there"
                )),
            }
            printable_path(&text).into_owned()
        },
    )
}

/// Letters, for people.
fn shown(letters: &str) -> String {
    if letters.is_empty() { "nothing".to_owned() } else { printable(letters).into_owned() }
}
