//! `key` on a running network: which keys the nodes have, and one step of a change.

use std::path::Path;

use distkv_command::key_file::update;
use serde_json::json;

use super::cert::ca_stays;
use super::file::random_key;
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::terminal::output::{Output, Table, json_of, printable};
use crate::client::message::{array_items, as_str};
use crate::client::{Fields, Message};
use crate::secure::key::{Key, KeyId};
use crate::secure::key_ring::{Applied, KeyRing, RingError};

/// A node's keys, as the node that was asked knows them.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct NodeKeys {
    pub(super) name: String,
    pub(super) state: String,
    /// None: it was not heard of.
    pub(super) keys: Option<Vec<KeyId>>,
    pub(super) primary: Option<KeyId>,
    pub(super) trouble: Option<String>,
}

impl NodeKeys {
    fn of(message: &Message) -> Self {
        let text = |name| message.str(name).map(|text| printable(text).into_owned());
        let ids = message.get("keys").filter(|raw| *raw != [0xc0]).map(|raw| {
            array_items(raw).filter_map(as_str).filter_map(|id| id.parse().ok()).collect()
        });
        Self {
            name: text("name").unwrap_or_default(),
            state: text("state").unwrap_or_default(),
            keys: ids,
            primary: message.str("primary").and_then(|id| id.parse().ok()),
            trouble: text("trouble"),
        }
    }

    /// Whether it has the key, and keeps it over a restart.
    pub(super) fn keeps(&self, id: KeyId) -> bool {
        self.trouble.is_none() && self.keys.as_ref().is_some_and(|keys| keys.contains(&id))
    }

    /// Whether it is worth waiting for: it is there, and nothing but time keeps it from following.
    pub(super) fn is_coming(&self) -> bool {
        let is_here = matches!(self.state.as_str(), "self" | "up" | "suspect" | "joining");
        is_here && self.trouble.is_none()
    }

    /// Why a step has to wait for it.
    pub(super) fn why(&self, lacks: &str) -> String {
        let Self { name, state, .. } = self;
        match (&self.trouble, &self.keys) {
            (Some(why), _) => format!("{name} ({state}) cannot keep it: {why}"),
            (None, None) => format!("{name} ({state}) was not heard of"),
            (None, Some(_)) => format!("{name} ({state}) {lacks}"),
        }
    }
}

/// The keys of all nodes.
pub(super) struct View {
    pub(super) nodes: Vec<NodeKeys>,
    /// Of the node that was asked, those that were added over the network.
    pub(super) shared: Vec<KeyId>,
}

impl View {
    pub(super) async fn ask(remote: &Remote) -> Result<Self, CliError> {
        let reply = remote.request("key_list", &Fields::new()).await?;
        let nodes = array_items(reply.get("result").unwrap_or_default());
        let nodes = nodes.filter_map(|node| Message::new(node).ok());
        let shared = array_items(reply.get("shared").unwrap_or_default());
        Ok(Self {
            nodes: nodes.map(|node| NodeKeys::of(&node)).collect(),
            shared: shared.filter_map(as_str).filter_map(|id| id.parse().ok()).collect(),
        })
    }
}

/// What is done with a key that is there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Use,
    Remove,
}

pub(super) async fn list(args: &RemoteArgs) -> Result<(), CliError> {
    let remote = args.connect().await?;
    let mut output = Output::of_read(args.json);
    if args.json {
        let reply = remote.request("key_list", &Fields::new()).await?;
        for node in array_items(reply.get("result").unwrap_or_default()) {
            output.json_line(json_of(node))?;
        }
        return output.flush();
    }
    let view = View::ask(&remote).await?;
    let mut table = Table::with_head(&["NAME", "STATE", "PRIMARY", "OTHER KEYS", "NOTE"]);
    for node in &view.nodes {
        let others = node.keys.iter().flatten().filter(|id| Some(**id) != node.primary);
        let others = others.map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let note = match (&node.trouble, &node.keys) {
            (Some(why), _) => format!("cannot keep its keys: {why}"),
            (None, None) => String::from("not heard of"),
            (None, Some(_)) => String::new(),
        };
        let primary = node.primary.map(|id| id.to_string()).unwrap_or_default();
        table.row([node.name.clone(), node.state.clone(), primary, others, note]);
    }
    table.print(&mut output)?;
    output.flush()
}

pub(super) async fn add(args: &RemoteArgs) -> Result<(), CliError> {
    let remote = args.connect().await?;
    let key = random_key()?;
    if let Some(path) = args.key_file()? {
        change_own(&path, |ring| ring.add(key.clone()))?;
    }
    add_key(&remote, &key).await?;
    say(args, key.id(), true, "added; `key list` shows which nodes have it")
}

pub(super) async fn change(
    args: &RemoteArgs,
    step: Step,
    id: KeyId,
    force: bool,
) -> Result<(), CliError> {
    let remote = args.connect().await?;
    let changed = take_step(&remote, step, id, force).await?;
    if let Some(path) = args.key_file()? {
        follow(&path, step, id)?;
    }
    let done = match step {
        Step::Use => "in use; `key list` shows which nodes use it",
        Step::Remove => "removed; `key list` shows which nodes still have it",
    };
    let ca = match step {
        Step::Use => None,
        Step::Remove => ca_stays(args.key_file()?.as_deref()),
    };
    let ca = ca.map(|line| format!("\n{line}")).unwrap_or_default();
    say(args, id, changed, &format!("{done}{ca}"))
}

fn say(args: &RemoteArgs, id: KeyId, changed: bool, done: &str) -> Result<(), CliError> {
    let mut output = Output::new(args.json);
    output.either(
        || json!({"key": id.to_string(), "changed": changed}),
        || format!("key {id} is {done}"),
    )?;
    output.flush()
}

/// Adds a key at the node, which hands it to the others.
pub(super) async fn add_key(remote: &Remote, key: &Key) -> Result<(), CliError> {
    let mut fields = Fields::new();
    fields.bin("secret", key.secret());
    remote.request("key_add", &fields).await.map(|_| ())
}

/// Returns whether anything was changed.
pub(super) async fn take_step(
    remote: &Remote,
    step: Step,
    id: KeyId,
    force: bool,
) -> Result<bool, CliError> {
    let action = match step {
        Step::Use => "key_use",
        Step::Remove => "key_remove",
    };
    let mut fields = Fields::new();
    fields.str("ident", &id.to_string());
    fields.bool("force", force);
    let reply = remote.request(action, &fields).await?;
    Ok(reply.bool("changed") == Some(true))
}

/// Changes the file of `--key`, which is perhaps the node's own, and then changed already.
pub(super) fn change_own(
    path: &Path,
    change: impl FnOnce(&mut KeyRing) -> Result<Applied, RingError>,
) -> Result<(), CliError> {
    let changed = update(path, |file| change(&mut file.ring).map(|_| ()));
    let changed = changed?;
    changed.map_err(|error| CliError::Failure(format!("{}: {error}", path.display())))
}

/// Does in the file of `--key` what the network has done.
pub(super) fn follow(path: &Path, step: Step, id: KeyId) -> Result<(), CliError> {
    let followed = change_own(path, |ring| match step {
        Step::Use => ring.make_primary(id),
        Step::Remove if ring.lookup(id).is_none() => Ok(Applied::Already),
        Step::Remove => ring.remove(id),
    });
    followed.map_err(|error| {
        let text = format!(
            "{error}; the network has done it: copy the key file of a node over this one, or, when it can be written, \
             type the same command again"
        );
        CliError::Failure(text)
    })
}
