//! By which methods clients may log in at a node, and what its greeting says of that.
//!
//! An open node takes the method that the data says is in force, as the original does; a secured one takes
//! those that ask for a secret, whatever is in force.

use distkv_access::users::Directory;

use crate::model::meta::Login;
use crate::protocol::client::reply::LoginOffer;

/// A user with a password.
pub(crate) const PASSWORD: &str = "password";
/// A user with a token, which cannot be guessed.
pub(crate) const TOKEN: &str = "token";
/// Whoever has the cluster's key. There are no users of it.
pub(crate) const KEY: &str = "key";

/// Whether users log in by a method without any secret.
#[must_use]
pub(crate) fn asks_for_nothing(method: &str) -> bool {
    matches!(method, "root" | "_test")
}

/// Whether users of a method may log in, and stay logged in. `in_force`: what the data says.
#[must_use]
pub(crate) fn serves(in_force: Option<&Login>, is_secured: bool, method: &str) -> bool {
    let has_secret = matches!(method, PASSWORD | TOKEN);
    match in_force {
        _ if is_secured => has_secret,
        None => has_secret || asks_for_nothing(method),
        Some(login) => login.admits(method),
    }
}

/// What a greeting says. `nonce`: that of a secured node.
#[must_use]
pub(crate) fn offer(
    directory: &Directory,
    must_log_in: bool,
    nonce: Option<[u8; 32]>,
) -> LoginOffer {
    let is_secured = nonce.is_some();
    let mut others: Vec<&str> = Vec::new();
    for user in directory.users() {
        let method = &*user.method;
        let is_known = matches!(method, PASSWORD | TOKEN) || asks_for_nothing(method);
        let is_served = is_known && (!is_secured || serves(None, true, method));
        if is_served && !others.contains(&method) {
            others.push(method);
        }
    }
    let in_force = directory.login().filter(|_| must_log_in).map(Login::name);
    let first = if is_secured {
        let in_force = in_force.filter(|method| matches!(*method, PASSWORD | TOKEN));
        Some(in_force.unwrap_or(if others.contains(&PASSWORD) { PASSWORD } else { TOKEN }))
    } else {
        in_force
    };
    others.retain(|method| Some(*method) != first);
    let mut methods = Vec::new();
    if first.is_some() || !others.is_empty() {
        methods.push(first.map(Into::into));
    }
    methods.extend(others.into_iter().map(|method| Some(method.into())));
    LoginOffer { methods, nonce, soon: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Event, NodeIndex, Tick};
    use crate::model::path::Path;

    fn directory(current: Option<&'static [u8]>, users: &[&str]) -> Directory {
        let event = Event { node: NodeIndex(0), tick: Tick::new(1).unwrap() };
        let path = |text: &str| text.parse::<Path>().unwrap();
        let users =
            users.iter().map(|user| (path(&format!(":n.auth.{user}")), &b"\x80"[..], event));
        let login = current.map(|current| (path(":n.auth"), current, event));
        Directory::build(1, users.chain(login))
    }

    fn offered(directory: &Directory, must_log_in: bool, is_secured: bool) -> Vec<String> {
        let offer = offer(directory, must_log_in, is_secured.then_some([0; 32]));
        offer.methods.iter().map(|m| m.as_deref().unwrap_or("nil").to_owned()).collect()
    }

    const JOE: &str = "password.user.joe";
    const ROOT: &str = "root.user.*";
    const TOKEN_ROBOT: &str = "token.user.robot";
    const PASSWORD_ON: &[u8] = b"\x81\xa7current\xa8password";
    const ROOT_ON: &[u8] = b"\x81\xa7current\xa4root";

    #[test]
    fn an_open_node_says_what_the_original_says() {
        assert!(offered(&directory(None, &[]), false, false).is_empty());
        assert_eq!(
            offered(&directory(None, &[JOE, ROOT]), false, false),
            ["nil", "password", "root"]
        );
        assert_eq!(
            offered(&directory(Some(ROOT_ON), &[JOE, ROOT]), true, false),
            ["root", "password"]
        );
        assert_eq!(offered(&directory(Some(ROOT_ON), &[]), true, false), ["root"]);
        // With --ignore-auth.
        assert_eq!(offered(&directory(Some(ROOT_ON), &[ROOT]), false, false), ["nil", "root"]);
    }

    #[test]
    fn a_secured_node_never_says_that_no_login_is_needed_nor_offers_one_without_a_secret() {
        assert_eq!(offered(&directory(None, &[]), true, true), ["token"]);
        assert_eq!(
            offered(&directory(None, &[JOE, ROOT, TOKEN_ROBOT]), true, true),
            ["password", "token"]
        );
        assert_eq!(offered(&directory(Some(ROOT_ON), &[ROOT, TOKEN_ROBOT]), true, true), ["token"]);
        assert_eq!(
            offered(&directory(Some(PASSWORD_ON), &[TOKEN_ROBOT]), true, true),
            ["password", "token"]
        );
    }

    #[test]
    fn the_method_in_force_is_taken_and_on_a_secured_node_all_with_secrets() {
        let method = |name: &str| Login::Method(name.into());
        let (password, root, odd) = (method("password"), method("root"), method("odd"));
        for (in_force, secured, served) in [
            (None, false, &["password", "token", "root", "_test"][..]),
            (Some(&password), false, &["password", "token"]),
            (Some(&root), false, &["root"]),
            (Some(&odd), false, &[]),
            (Some(&Login::Unreadable), false, &[]),
            (None, true, &["password", "token"]),
            (Some(&root), true, &["password", "token"]),
        ] {
            for method in ["password", "token", "root", "_test", "odd", "key", "unreadable"] {
                let expected = served.contains(&method);
                assert_eq!(serves(in_force, secured, method), expected, "{in_force:?} {method}");
            }
        }
    }
}
