//! `type` and `match`: which values may stand where. Both are entries in the system's own tree, `:n.type` and
//! `:n.match`, so they spread like any other data.

mod matches;
mod schema;

use serde_json::json;

pub(in crate::cli) use matches::{MatchArgs, run as run_match};
pub(in crate::cli) use schema::{TypeArgs, run as run_type};

use super::error::CliError;
use super::remote::{Remote, RemoteArgs, address_entry, parse_path};
use super::terminal::output::{Output, Table, json_of, printable_path, shown_path};
use crate::client::{Fields, Message, StreamEvent};
use crate::model::path::{Element, Path};

/// A connection to the node that the options name, those after the subcommand first, and where the answer goes: `output`
/// says for what.
async fn connect(
    after: RemoteArgs,
    before: RemoteArgs,
    output: fn(bool) -> Output,
) -> Result<(Remote, Output), CliError> {
    let args = after.or(before);
    Ok((args.connect_in_time().await?, output(args.json)))
}

/// Reads the name of a type, or a pattern: a path with at least one element.
fn parse_below(text: &str) -> Result<Path, String> {
    let path = parse_path(text)?;
    match path.is_root() {
        true => Err(String::from("the root has neither a type's name nor a pattern")),
        false => Ok(path),
    }
}

/// A name or pattern as the path that internal actions take.
fn below(family: &str, name: &Path) -> Result<Path, CliError> {
    let top = Path::root().push(Element::Str(family));
    top.and_then(|top| top.join(name)).map_err(|error| CliError::Usage(error.to_string()))
}

/// Stores one of them.
async fn set(remote: &Remote, family: &str, name: &Path, value: &[u8]) -> Result<(), CliError> {
    let mut fields = Fields::at(&below(family, name)?);
    fields.raw("value", value).u64("nchain", 0);
    remote.request("set_internal", &fields).await.map(drop)
}

/// Removes one of them; `what` is what it is called.
async fn delete(remote: &Remote, family: &str, what: &str, name: &Path) -> Result<(), CliError> {
    let mut fields = Fields::at(&below(family, name)?);
    fields.u64("nchain", 0);
    let reply = remote.request("delete_internal", &fields).await?;
    if reply.bool("changed") == Some(true) {
        return Ok(());
    }
    let name = shown_path(name);
    Err(CliError::Failure(format!("there is no {what} {name}; nothing was changed")))
}

/// Prints all of them: the name, and what `show` makes of the value.
async fn list(
    remote: &Remote,
    (family, what): (&str, &str),
    head: [&str; 2],
    show: impl Fn(&Message) -> String,
    mut output: Output,
) -> Result<(), CliError> {
    let top = Path::system_root().push(Element::Str(family));
    let top = top.map_err(|error| CliError::Usage(error.to_string()))?;
    let (action, path) = address_entry(&top, "get_tree", "get_tree_internal")?;
    let mut stream = remote.stream(action, Fields::at(&path).u64("nchain", 0)).await?;
    let mut table = Table::with_head(&head);
    let mut count = 0_usize;
    while let Some(event) = remote.next(&mut stream).await? {
        let StreamEvent::Item { path: Some(name), message } = event else { continue };
        let Some(value) = message.get("value").filter(|_| !name.is_root()) else { continue };
        count += 1;
        let name = name.to_string();
        if output.json {
            output.json_line(json!({what: name, "value": json_of(value)}))?;
        } else {
            let shown =
                Message::new(value).map_or_else(|_| String::from("?"), |value| show(&value));
            table.row([printable_path(&name).into_owned(), shown]);
        }
    }
    if !output.json {
        match count {
            0 => output.line(&format!("no {family} is set"))?,
            _ => table.print(&mut output)?,
        }
    }
    output.flush()
}

/// Says what was done.
fn done(mut output: Output, what: &str, name: &Path, text: &str) -> Result<(), CliError> {
    let json = || json!({what: name.to_string(), "done": text});
    output.either(json, || format!("{}: {text}", shown_path(name)))?;
    output.flush()
}
