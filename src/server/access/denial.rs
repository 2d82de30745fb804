//! What a refusal says: who may not do what, where, which letter it needs, and which access list was asked. All of
//! that the client has sent itself, or is told by `auth_info`. Whether something is there, the text tells only to those
//! who may read it.

use std::fmt::Write as _;

use distkv_access::acl::Letters;
use distkv_access::users::{Directory, Role, User};

use super::Access;
use super::authorise::{Denied, Lack, Target};
use crate::model::path::{Element, Path};
use crate::protocol::client::error::Explain;
use crate::protocol::client::{Action, ClientError, ErrorCode};
use crate::server::error_text::{is_cut, show_path, shown};

/// The topmost element of what access lists say of topics.
const TOPICS: &str = ":msg";

/// Of which user an [`Access`] is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Whose {
    user: Box<str>,
    /// The name of the access list.
    list: Option<Box<str>>,
    /// There is no list of that name.
    is_list_missing: bool,
}

impl Whose {
    pub(super) fn of(directory: &Directory, user: &User) -> Self {
        let is_missing = |list: &str| directory.list(list).is_none();
        Self {
            user: user.ident.clone(),
            is_list_missing: user.acl.as_deref().is_some_and(is_missing),
            list: user.acl.clone(),
        }
    }
}

impl Access {
    /// Who it is, for texts.
    pub(in crate::server) fn who(&self) -> String {
        match &self.whose {
            Some(whose) => format!("user '{}'", shown(&whose.user)),
            None => String::from("this session"),
        }
    }

    /// Whether the client may ask what this list allows: an admin, or a user whose own list that is.
    #[must_use]
    pub(in crate::server) fn may_ask_of(&self, list: &str) -> bool {
        let own = self.whose.as_ref().and_then(|whose| whose.list.as_deref());
        self.role == Some(Role::Admin) || own == Some(list)
    }

    /// That the access list does not allow something: `what` are letters, and where.
    pub(in crate::server) fn without(&self, what: &str) -> String {
        match self.whose.as_deref() {
            Some(Whose { list: Some(list), is_list_missing: true, .. }) => {
                format!("there is no access list '{}'", shown(list))
            }
            Some(Whose { list: Some(list), .. }) => {
                format!("the access list '{}' does not allow {what}", shown(list))
            }
            Some(Whose { list: None, .. }) => String::from("that user has no access list"),
            None => format!("the access list of this session does not allow {what}"),
        }
    }

    /// What an admin has explained to see why; nothing where that could not be typed as it is.
    fn explain(&self, path: &Path) -> Option<Explain> {
        let user = &self.whose.as_deref()?.user;
        let path = path.to_string();
        let is_whole = ![user, path.as_str()].into_iter().any(is_cut);
        is_whole.then(|| Explain { user: user.clone(), path: path.into() })
    }
}

/// What an action does at a path, or with a topic, in words that follow "may not".
pub(in crate::server) fn words(action: Action, at: &Path) -> String {
    let at = format!("'{}'", show_path(at));
    match action {
        Action::GetValue | Action::GetInternal => format!("read {at}"),
        Action::SetValue | Action::SetInternal | Action::Update => format!("set {at}"),
        Action::DeleteValue | Action::DeleteInternal => format!("delete {at}"),
        Action::DeleteTree => format!("delete {at} with all that is below"),
        Action::GetTree | Action::GetTreeInternal => format!("list {at} with all that is below"),
        Action::Enum | Action::EnumInternal => format!("list {at}"),
        Action::Watch => format!("watch {at}"),
        Action::Root => format!("make {at} its root"),
        Action::History => format!("ask for the history of {at}"),
        Action::MsgSend => format!("send to the topic {at}"),
        Action::MsgMonitor => format!("monitor the topic {at}"),
        other => format!("ask for '{}' at {at}", other.name()),
    }
}

impl Denied {
    /// The error for the client: `target` is what it has asked for, `access` what it may do.
    #[must_use]
    pub(crate) fn error(&self, target: Target<'_>, access: &Access) -> ClientError {
        let path = target.path();
        let (action, lack) = match self {
            Denied::LoginNeeded => {
                return ClientError::new(ErrorCode::AuthRequired, "log in first; nothing was done");
            }
            Denied::Role { action, needed } => {
                let (words, what) = match &path {
                    Some(path) => (words(*action, path), String::from("that")),
                    None => (String::from("do that"), format!("'{}'", action.name())),
                };
                let (who, role) = (access.who(), access.role.map_or("none", |role| role.name()));
                let whose = if access.whose.is_some() { "that user's" } else { "its own" };
                let text = format!(
                    "{who} may not {words}: {what} needs the role '{needed}', and {whose} is '{role}'{}",
                    nothing_done(*action)
                );
                return ClientError::new(ErrorCode::Denied, text);
            }
            Denied::Listing { action } => (*action, None),
            Denied::Path { action, lack } => (*action, Some(*lack)),
        };
        let path = path.unwrap_or_else(Path::root);
        let mut text = format!("{} may not {}: ", access.who(), words(action, &path));
        if path.is_system() {
            text.push_str(match lack {
                // Nor is an admin told of secrets.
                Some(Lack::OldValue) => {
                    "what is there is told to nobody, and 'prev' and 'idem' would tell"
                }
                _ => "only admins may",
            });
            text.push_str(nothing_done(action));
            return ClientError::new(ErrorCode::Denied, text);
        }
        let place = match target {
            Target::Topic(_) => of_topic(&path),
            Target::Node | Target::Path(_) => path,
        };
        let what = match (lack, target) {
            (Some(Lack::Letters(letters)), Target::Topic(_)) => {
                format!("{} of '{}'", first(letters), show_path(&place))
            }
            (Some(Lack::Letters([Letters::WRITE, Letters::CREATE])), _) => {
                String::from("w there (c, where there is no value)")
            }
            (Some(Lack::Letters(letters)), _) => format!("{} there", first(letters)),
            (Some(Lack::Way { depth }), _) => {
                format!("x at '{}', which leads there", show_path(&place.prefix(depth)))
            }
            (Some(Lack::WayOfChange), _) => {
                String::from("x (n, where it makes something) at all that leads there")
            }
            (Some(Lack::OldValue), _) => {
                String::from("r there, and 'prev' and 'idem' tell what is there")
            }
            (Some(Lack::Change), _) => String::from("w there, and there is a value"),
            (Some(Lack::Creation), _) => String::from("c there, and there is no value"),
            (None, _) => {
                String::from("the letter e at the path itself; ask for a path below that has it")
            }
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{}", access.without(&what), nothing_done(action));
        ClientError::new(ErrorCode::Denied, text).explained_by(access.explain(&place))
    }
}

/// That nothing has come of an action; of one that only reads, that goes without saying.
fn nothing_done(action: Action) -> &'static str {
    if action.only_reads() { "" } else { "; nothing was done" }
}

/// The only letter that is needed, or the first of several one of which must be there.
fn first(letters: &[Letters]) -> Letters {
    letters.first().copied().unwrap_or(Letters::NONE)
}

/// Where access lists speak of a topic.
fn of_topic(topic: &Path) -> Path {
    let top = Path::root().push(Element::Str(TOPICS));
    top.and_then(|top| top.join(topic)).unwrap_or_else(|_| topic.clone())
}
