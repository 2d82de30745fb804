//! The end of a user's open connections, by a command: looked after until it counts, and what is said of it.
//!
//! Whoever has stolen the user's secret may change the user at another node at the same moment. Of two such changes the
//! greater one wins, so the connections there may go on. By the time that the peers have confirmed the command's change,
//! what they had changed before has come here: then the record tells which one has won.

use std::time::Duration;

use serde_json::Value as Json;

use super::existing::{Change, ask_if_there, no_user, user_fields};
use crate::cli::error::{CliError, Outcome};
use crate::cli::remote::Remote;
use crate::cli::typed;
use crate::client::message::{array_items, as_str};
use crate::client::{Chain, Message};
use crate::model::count::names_text;
use crate::model::limits::CHAIN_LEN_MAX;
use crate::rt;

/// Most times that the change is made.
const DISCONNECTS_MAX: usize = 8;
/// After so long it is not made once more, in ms.
const DISCONNECT_TIME_MS_MAX: u64 = 20_000;
/// For so long peers are waited for, or for half the time that an answer may take.
const CONFIRM_TIME: Duration = Duration::from_secs(4);

/// What came of it. The change is made.
pub(super) struct Ended {
    /// The name of the node that was asked.
    node: String,
    how: How,
    /// Members that should be linked with it and are not.
    unreached: Unreached,
}

/// Members that a node has no link to.
#[derive(Default)]
struct Unreached {
    names: Vec<String>,
    /// How many more there are.
    more: u64,
}

enum How {
    /// Nobody has to log in, so nobody is cut off.
    NoLogins,
    /// Here, and everywhere that this node is linked with.
    Everywhere,
    /// Not all of those have said yet that they have the change, which counts here.
    Unconfirmed,
    /// Here. Whoever asked may not look whether it counts, or cannot any more.
    Here,
}

/// Which change counts by now.
enum Now {
    /// This one, or one that was made by somebody who knew of it.
    This,
    /// Somebody who knew of it has set another secret since.
    Later,
    /// Another one, which did not know of it; the user as it is now.
    Another(Message),
    /// That cannot be seen.
    Unknown,
}

impl Change {
    /// Ends the user's open connections, in the same change.
    pub(super) async fn make_until_it_counts(
        &self,
        remote: &Remote,
    ) -> Result<(Message, Ended), CliError> {
        let began = rt::now();
        let mut fields = self.fields.clone();
        let patience = CONFIRM_TIME.min(remote.answer_time() / 2);
        fields.f64("timeout", patience.as_secs_f64());
        let mut tries = 0;
        loop {
            tries += 1;
            let is_last = tries >= DISCONNECTS_MAX
                || rt::now().saturating_sub(began) >= DISCONNECT_TIME_MS_MAX;
            let reply = match remote.request("auth_disconnect", &fields).await {
                Ok(reply) => reply,
                // Users were changed at this moment, and nothing was done.
                Err(error) if error.has_code("not_ready") && !is_last => continue,
                Err(error) => return Err(error),
            };
            let node = remote.connection.greeting().node.clone();
            let how = match self.look(remote, &reply).await? {
                _ if reply.bool("open") == Some(true) => How::NoLogins,
                Now::This if have_all_confirmed(&reply) => How::Everywhere,
                Now::This => How::Unconfirmed,
                Now::Unknown => How::Here,
                Now::Later => return Err(self.replaced()),
                Now::Another(told) if is_last => return Err(self.give_up(&told)),
                Now::Another(_) => continue,
            };
            let unreached = Unreached::read(&reply);
            return Ok((reply, Ended { node, how, unreached }));
        }
    }

    /// Whether the user's record still has what the change has written.
    async fn look(&self, remote: &Remote, made: &Message) -> Result<Now, CliError> {
        // Over a connection that the change has ended, a node answers nothing more, and older clients are given seconds to go.
        if made.bool("own") == Some(true) {
            return Ok(Now::Unknown);
        }
        let Some(id) = made.get("disconnect") else { return Ok(Now::Unknown) };
        let mut fields = user_fields(&self.method, &self.name);
        fields.u64("nchain", CHAIN_LEN_MAX as u64);
        let told = match ask_if_there(remote, "auth_get", &fields).await {
            Ok(Some(told)) => told,
            // A removal ends them for good.
            Ok(None) => return Err(no_user(Some(&self.method), &self.name)),
            // Users may not look at themselves, and their own connection ends, too.
            Err(_) => return Ok(Now::Unknown),
        };
        if told.get("disconnect") == Some(id) {
            return Ok(Now::This);
        }
        let chain = |message: &Message| {
            message.get("chain").and_then(|chain| Chain::decode(chain).ok().flatten())
        };
        let knew_of_it = chain(made).zip(chain(&told)).is_some_and(|(made, present)| {
            made.events().next().is_some_and(|made| present.events().any(|event| event == made))
        });
        Ok(match (knew_of_it, self.sets_secret) {
            (true, false) => Now::This,
            (true, true) => Now::Later,
            (false, _) => Now::Another(told),
        })
    }

    /// Another admin was later.
    fn replaced(&self) -> CliError {
        let Self { method, name, .. } = self;
        let text = format!(
            "somebody else has ended the connections of {name} ({method}) right after this command, so the new secret may \
             not be in force: type the command again if it should be"
        );
        CliError::Request { outcome: Outcome::Precondition, code: None, text }
    }

    /// Somebody else has won each time. `told`: the user as it is now.
    fn give_up(&self, told: &Message) -> CliError {
        let Self { method, name, .. } = self;
        let remove = typed::command("user remove", &[name], &["--method", method]);
        let rights = match (told.str("acl"), told.str("role")) {
            (Some(list), _) => ["--acl", list],
            (None, role) => ["--role", role.unwrap_or("user")],
        };
        let add =
            typed::command("user add", &[name], &[&["--method", method], &rights[..]].concat());
        let text = format!(
            "somebody else has changed {name} ({method}) at another node at the same time, {DISCONNECTS_MAX} times at most, \
             and each time that change has won: connections of {name} may be open there, and a new secret is not in force. \
             What always works: {remove}, then {add}"
        );
        CliError::Request { outcome: Outcome::Precondition, code: None, text }
    }
}

/// Whether all that are linked with the node have the change.
fn have_all_confirmed(reply: &Message) -> bool {
    reply.bool("confirmed") == Some(true)
        || (reply.get("unreached").is_some() && reply.get("unconfirmed").is_none())
}

impl Unreached {
    fn read(reply: &Message) -> Unreached {
        let names = array_items(reply.get("unreached").unwrap_or_default());
        Unreached {
            names: names.filter_map(as_str).map(ToOwned::to_owned).collect(),
            more: reply.u64("unreached_more").unwrap_or(0),
        }
    }

    fn count(&self) -> u64 {
        (self.names.len() as u64).saturating_add(self.more)
    }

    /// For people: what is not done there, and what to do.
    fn text(&self, node: &str) -> String {
        let names = names_text(&self.names, self.more);
        let (they_are, they_have, one) = match self.count() {
            1 => ("it is", "it has", "if it is"),
            _ => ("they are", "they have", "for one that is"),
        };
        format!(
            "but {node} has no link to {names} ({they_are} cut off or down): connections there go on until {they_are} back \
             and {they_have} heard of this, and until then whoever has the secret can set another one there. Type the command \
             again when {they_are} back; {one} gone for good, `distkv-node members forget NAME`"
        )
    }
}

impl Ended {
    /// For people, about the user's open connections.
    pub(super) fn text(&self) -> String {
        let node = &self.node;
        let is_linked_only = self.unreached.count() > 0;
        let ended = match self.how {
            How::Everywhere if is_linked_only => {
                format!(
                    "its open connections are ended at {node}, and at all that are linked with it"
                )
            }
            How::Everywhere => String::from("its open connections are ended"),
            How::Unconfirmed => format!(
                "its open connections are ended at {node}, and end at the others as this change arrives; not all that are \
                 linked have confirmed it yet: `distkv-node clients` at those shows who is connected"
            ),
            How::Here => format!(
                "its open connections are ended at {node}, and end at the others as this change arrives, unless the user is \
                 changed there at the same moment: an admin sees that"
            ),
            How::NoLogins => {
                return String::from(
                    "its connections go on, since clients need not log in now (`distkv-node auth` shows that)",
                );
            }
        };
        match is_linked_only {
            true => format!("{ended}; {}", self.unreached.text(node)),
            false => ended,
        }
    }

    /// The same for programs.
    fn tell(&self, told: &mut serde_json::Map<String, Json>) {
        let Unreached { names, more } = &self.unreached;
        let is_everywhere = matches!(self.how, How::Everywhere) && self.unreached.count() == 0;
        told.insert("disconnected".to_owned(), (!matches!(self.how, How::NoLogins)).into());
        told.insert("confirmed".to_owned(), is_everywhere.into());
        if !is_everywhere {
            told.insert("note".to_owned(), self.text().into());
        }
        if !names.is_empty() {
            told.insert("unreached".to_owned(), names.clone().into());
        }
        if *more > 0 {
            told.insert("unreached_more".to_owned(), (*more).into());
        }
    }
}

/// What is said behind a change that may have ended the user's connections, too.
pub(super) fn also_ended(ended: Option<&Ended>) -> String {
    ended.map(|ended| format!("; {}", ended.text())).unwrap_or_default()
}

/// The same for programs.
pub(super) fn with_ended(mut told: Json, ended: Option<&Ended>) -> Json {
    if let (Some(ended), Some(told)) = (ended, told.as_object_mut()) {
        ended.tell(told);
    }
    told
}
