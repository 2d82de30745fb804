//! `shards prefer`: which node clients should prefer for a shard. It is an entry in the system's own
//! tree, so it spreads like any other data.

use clap::Args;
use serde_json::json;

use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs, address_entry};
use crate::cli::say;
use crate::cli::terminal::output::{Output, printable, shown_path};
use crate::client::message::{array_items, as_str, map_items};
use crate::client::{Fields, Message};
use crate::model::ids::NodeName;
use crate::model::path::{Element, Path};
use crate::model::shard::{SHARD_COUNT, preference_path, preferences_path};

/// Set which node clients should prefer for a shard, or nobody
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node shards prefer 571 n2
  distkv-node shards prefer 571 --none  # let clients choose again

The preference spreads to all nodes, and to clients when they refresh their table. While \
that node is down, clients use another one.")]
pub(super) struct PreferArgs {
    /// The shard, 0 to 1023; `shards of PATH` tells a path's
    #[arg(value_name = "SHARD", value_parser = clap::value_parser!(u16).range(0..i64::from(SHARD_COUNT)))]
    shard: u16,

    /// The node's name
    #[arg(value_name = "NODE", required_unless_present = "none")]
    node: Option<NodeName>,

    /// Prefer nobody
    #[arg(long, conflicts_with = "node")]
    none: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) async fn run(args: PreferArgs, before: RemoteArgs) -> Result<(), CliError> {
    let remote_args = args.remote.or(before);
    let remote = remote_args.connect_in_time().await?;
    let (_, path) = address_entry(&preference_path(args.shard), "", "")?;
    let mut fields = Fields::at(&path);
    // Without a name, `none` was given.
    match &args.node {
        Some(node) => {
            fields.str("value", node.as_str());
            remote.request("set_internal", &fields).await?;
            warn_of_stranger(&remote, node).await;
        }
        None => drop(remote.request("delete_internal", &fields).await?),
    }
    let mut output = Output::new(remote_args.json);
    let name = args.node.as_ref().map(NodeName::as_str);
    output.either(
        || json!({"shard": args.shard, "prefer": name}),
        || match name {
            Some(name) => {
                format!("shard {}: clients prefer {}", args.shard, printable(name))
            }
            None => format!("shard {}: no node is preferred", args.shard),
        },
    )?;
    output.flush()
}

/// It may come yet; but more likely its name was mistyped.
async fn warn_of_stranger(remote: &Remote, node: &NodeName) {
    // It is set already: that this cannot be looked up is no failure.
    let Ok(reply) = remote.request("members", &Fields::new()).await else { return };
    let members = array_items(reply.get("result").unwrap_or_default());
    let mut members = members.filter_map(|member| Message::new(member).ok());
    if !members.any(|member| member.str("name") == Some(node.as_str())) {
        let name = printable(node.as_str());
        say::warning(&format!("no member is called {name}; until one comes, clients use others"));
    }
}

/// Which node is set as preferred for a shard.
pub(super) async fn preference(remote: &Remote, shard: u16) -> Result<Option<String>, CliError> {
    let (_, path) = address_entry(&preference_path(shard), "", "")?;
    let reply = remote.request("get_internal", &Fields::at(&path)).await?;
    Ok(reply.get("value").and_then(name_of).map(str::to_owned))
}

fn name_of(value: &[u8]) -> Option<&str> {
    as_str(value).filter(|name| NodeName::check(name).is_ok())
}

/// Tells of what stands among the preferences and is none.
pub(super) async fn warn_of_ignored(remote: &Remote) {
    let Ok((_, path)) = address_entry(&preferences_path(), "", "") else { return };
    let mut fields = Fields::at(&path);
    fields.bool("with_data", true);
    // Mostly there is nothing, which is an error. The table is printed already, so whatever
    // other error there is, is not worth more than a look at the log.
    let Ok(reply) = remote.request("enum_internal", &fields).await else { return };
    for warning in ignored(reply.get("result").unwrap_or_default()) {
        say::warning(&printable(&warning));
    }
}

/// What is wrong with the children of [`preferences_path`], given as a map of names to values.
fn ignored(children: &[u8]) -> Vec<String> {
    let wrong = |(name, value): (&[u8], &[u8])| {
        let name = Path::from_msgpack(name).ok()?;
        let shown = preferences_path().join(&name).map(|path| shown_path(&path));
        let shown = shown.unwrap_or_else(|_| shown_path(&name));
        let is_shard = matches!(name.first(), Some(Element::Int(n)) if (0..i128::from(SHARD_COUNT)).contains(&n));
        if !is_shard {
            return Some(format!("{shown} is ignored: it names no shard (0 to 1023)"));
        }
        let no_name = || format!("{shown} is ignored: its value is no node's name");
        name_of(value).is_none().then(no_name)
    };
    map_items(children).filter_map(wrong).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::value::{write_map_len, write_str, write_u64};

    #[test]
    fn what_is_no_preference_is_told() {
        let mut children = Vec::new();
        write_map_len(4, &mut children);
        for (shard, name) in [(5, "n1"), (1023, "no name"), (1024, "n1")] {
            write_u64(shard, &mut children);
            write_str(name, &mut children);
        }
        write_str("5", &mut children);
        write_str("n1", &mut children);
        assert_eq!(
            ignored(&children),
            [
                ":n.shards:1023 is ignored: its value is no node's name",
                ":n.shards:1024 is ignored: it names no shard (0 to 1023)",
                ":n.shards.5 is ignored: it names no shard (0 to 1023)",
            ]
        );
        assert!(ignored(&[0x80]).is_empty());
    }
}
