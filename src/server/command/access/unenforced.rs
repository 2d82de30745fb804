//! What the original stores below nil to control its servers, and this version does not enforce
//! ([`Family`]). Changes there are refused: a user, an access list or a check that is stored and
//! not obeyed would be worse than none. Entries that were loaded, or come from peers, are kept.

use std::collections::BTreeSet;

use super::acl;
use crate::model::meta::{AUTH_PATH, Family, login};
use crate::model::path::{Element, Path};
use crate::protocol::client::request::AclTest;
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::access::authorise::Target;
use crate::server::connections::session::{Context, Session, Then};
use crate::tree::Tree;

/// At most this many entries of a family are searched for one with a value; deleted ones go soon.
const LOOKED_AT_MAX: usize = 1_024;

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
    /// The path belongs to a [`Family`]. An operator may still delete there: that is how
    /// authorisation is switched off for good, and how loaded checks are removed.
    pub(in crate::server) fn check(self, path: &[u8], sets: bool) -> Result<(), ClientError> {
        let Some(family) = Family::of(path) else { return Ok(()) };
        if matches!(family, Family::Type | Family::Match) {
            // They are enforced, and checked themselves ([`super::super::data::value::check_type`]).
            return Ok(());
        }
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

/// The families of which a tree holds entries, without deleted ones.
pub(in crate::server) fn families_in(tree: &Tree) -> BTreeSet<Family> {
    let is_live = |family: &Family| {
        let top = Path::system_root().push(Element::Str(family.name()));
        let mut entries = top.iter().flat_map(|top| tree.subtree(top)).take(LOOKED_AT_MAX);
        entries.any(|(_, entry)| entry.value().is_some())
    };
    let is_enforced = |family: &Family| matches!(family, Family::Type | Family::Match);
    Family::ALL.into_iter().filter(|f| !is_enforced(f)).filter(is_live).collect()
}

/// Warnings for operators of a node that serves clients; one line each.
#[must_use]
pub fn unenforced_warnings(tree: &Tree) -> Vec<String> {
    let families = families_in(tree);
    let mut warnings = Vec::new();
    let auth = tree.get(AUTH_PATH).and_then(|entry| entry.value()).and_then(login);
    if let Some(login) = auth {
        warnings.push(format!(
            "authorisation is switched on in the data (:n.auth, {login}) and ignored because of \
             --ignore-auth: every client may read and change everything"
        ));
    }
    if !families.is_empty() {
        let names: Vec<String> = families.iter().map(|f| format!(":n.{}", f.name())).collect();
        let purposes: BTreeSet<&str> = families.iter().map(|family| family.purpose()).collect();
        let purposes: Vec<&str> = purposes.into_iter().collect();
        warnings.push(format!(
            "the data has entries below {} that this version keeps and does not enforce: {}",
            names.join(", "),
            purposes.join(", ")
        ));
    }
    warnings
}

impl Session {
    /// How far this client may change entries that are not enforced.
    pub(in crate::server) fn writer(&self, cx: &Context<'_>) -> Writer {
        Writer { is_operator: self.is_local && cx.shared.config.ignore_auth }
    }

    /// `auth_info`: nothing, as the original answers, which looks for it in the wrong place.
    pub(in crate::server) fn auth_info(
        &self,
        cx: &Context<'_>,
        seq: u64,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::AuthInfo, Target::Node)?;
        MessageWriter::new(out).u64("seq", seq).tock(cx.tock());
        Ok(Then::Continue)
    }

    /// `test_acl`: the client itself has no access list, so it may do everything; of one that it names, it is
    /// told what that would allow.
    pub(in crate::server) fn test_acl(
        &self,
        cx: &Context<'_>,
        seq: u64,
        test: &AclTest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        let path = self.resolve(cx, Action::TestAcl, &test.path)?.to_path();
        Self::check_ready(cx)?;
        let (tree, tock) = cx.hub.read(|engine| (engine.tree().clone(), engine.tock()));
        let access = match test.acl {
            None => true,
            Some(list) => acl::allows(&tree, list, &path, test.mode)?,
        };
        MessageWriter::new(out).bool("access", access).u64("seq", seq).tock(tock);
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
            for family in [Family::Auth, Family::Acl, Family::Codec, Family::Conv] {
                let at = path(&format!(":n.{}.x", family.name()));
                let error = writer.check(at.as_bytes(), true).unwrap_err();
                assert!(error.text.contains(&format!("':n.{}'", family.name())), "{error}");
                assert_eq!(writer.check(at.as_bytes(), false).is_ok(), is_operator);
            }
            assert_eq!(writer.check(path(":n.shards:1").as_bytes(), true), Ok(()));
            assert_eq!(writer.check(path("auth").as_bytes(), true), Ok(()));
        }
    }
}
