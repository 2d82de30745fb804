//! What the original stores below nil to control its servers, and this version does not enforce: all of
//! [`Family`] but users and access lists. Changes there are refused: a check that is stored and not obeyed
//! would be worse than none. Entries that were loaded, or come from peers, are kept.

use std::collections::BTreeSet;

use distkv_access::users::Role;

use crate::model::meta::{AUTH_PATH, Family, login};
use crate::model::path::{Element, Path};
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::access::Identity;
use crate::server::access::authorise::Target;
use crate::server::access::methods::KEY;
use crate::server::connections::session::{Context, Session, Then};
use crate::tree::Tree;

/// At most this many entries of a family are searched for one with a value; deleted ones go soon.
const LOOKED_AT_MAX: usize = 1_024;

/// What this version does not enforce.
const UNENFORCED: [Family; 2] = [Family::Codec, Family::Conv];

/// The client, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::server) struct Writer {
    /// On this machine, at a node that was started with --ignore-auth: its operator.
    pub(in crate::server) is_operator: bool,
}

impl Writer {
    /// Whether the client may set (or else delete) an entry at a whole path.
    ///
    /// # Errors
    /// The path belongs to what is not enforced. An operator may still delete there: that is how loaded checks
    /// are removed.
    pub(in crate::server) fn check(self, path: &[u8], sets: bool) -> Result<(), ClientError> {
        let family = Family::of(path).filter(|family| UNENFORCED.contains(family));
        let Some(family) = family else { return Ok(()) };
        if self.is_operator && !sets {
            return Ok(());
        }
        let (name, purpose) = (family.name(), family.purpose());
        let text = format!(
            "this version does not enforce what is below ':n.{name}' ({purpose}), so it takes no changes \
             there; nothing was changed. What is there already is kept; it can be deleted on the machine of \
             a node that runs with --ignore-auth"
        );
        Err(ClientError::new(ErrorCode::NotImplemented, text))
    }
}

/// What is not enforced and of which a tree holds entries, without deleted ones.
pub(in crate::server) fn families_in(tree: &Tree) -> BTreeSet<Family> {
    let is_live = |family: &Family| {
        let top = Path::system_root().push(Element::Str(family.name()));
        let mut entries = top.iter().flat_map(|top| tree.subtree(top)).take(LOOKED_AT_MAX);
        entries.any(|(_, entry)| entry.value().is_some())
    };
    UNENFORCED.into_iter().filter(is_live).collect()
}

/// A warning for operators of a node that serves everybody, although the data switches logins on. `asks_for_login`: it
/// serves no client without one, or none at all.
#[must_use]
pub(crate) fn ignored_login(tree: &Tree, asks_for_login: bool) -> Option<String> {
    let auth = tree.get(AUTH_PATH).filter(|_| !asks_for_login)?;
    let login = auth.value().and_then(login)?;
    Some(format!(
        "logins are switched on in the data (:n.auth, {login}) and ignored because of \
         --ignore-auth: every client may read and change everything"
    ))
}

/// A warning for operators of a node whose data has what is not enforced.
#[must_use]
pub(crate) fn unenforced_warning(tree: &Tree) -> Option<String> {
    let families = families_in(tree);
    if families.is_empty() {
        return None;
    }
    let names: Vec<String> = families.iter().map(|f| format!(":n.{}", f.name())).collect();
    let purposes: BTreeSet<&str> = families.iter().map(|family| family.purpose()).collect();
    let purposes: Vec<&str> = purposes.into_iter().collect();
    Some(format!(
        "the data has entries below {} that this version keeps and does not enforce: {}",
        names.join(", "),
        purposes.join(", ")
    ))
}

impl Session {
    /// How far this client may change entries that are not enforced.
    pub(in crate::server) fn writer(&self, cx: &Context<'_>) -> Writer {
        Writer { is_operator: self.is_local && cx.shared.config.ignore_auth }
    }

    /// `auth_info`: nothing, as the original answers, which looks for it in the wrong place; ours tells clients
    /// that are logged in as whom.
    pub(in crate::server) fn auth_info(
        &self,
        cx: &Context<'_>,
        seq: u64,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::AuthInfo, Target::Node)?;
        let mut message = MessageWriter::new(out);
        let role = cx.access.role.map_or("", Role::name);
        match &self.identity {
            Identity::Unknown => {}
            Identity::KeyHolder => {
                message.str("method", KEY).str("role", role);
            }
            Identity::User { method, name, .. } => {
                message.str("method", method).str("user", name).str("role", role);
                let directory = cx.shared.policy_data.directory(cx.hub);
                let user = self.identity.user(&directory);
                if let Some(acl) = user.and_then(|user| user.acl.as_ref()) {
                    message.str("acl", acl);
                }
            }
        }
        message.u64("seq", seq).tock(cx.tock());
        Ok(Then::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_operator_deletes_what_is_not_enforced_and_nobody_sets_it() {
        let path = |text: &str| text.parse::<Path>().unwrap();
        for is_operator in [false, true] {
            let writer = Writer { is_operator };
            for family in UNENFORCED {
                let at = path(&format!(":n.{}.x", family.name()));
                let error = writer.check(at.as_bytes(), true).unwrap_err();
                assert!(error.text.contains(&format!("':n.{}'", family.name())), "{error}");
                assert_eq!(writer.check(at.as_bytes(), false).is_ok(), is_operator);
            }
            assert_eq!(writer.check(path(":n.shards:1").as_bytes(), true), Ok(()));
            assert_eq!(writer.check(path(":n.auth.root").as_bytes(), true), Ok(()));
            assert_eq!(writer.check(path(":n.acl.x").as_bytes(), true), Ok(()));
            assert_eq!(writer.check(path("type").as_bytes(), true), Ok(()));
        }
    }
}
