//! Commands that other stores have below a command that is here, too, with what to type here.

const USERS: &str = "`distkv-node user` adds and changes users and their tokens, `distkv-node acl set LIST PATTERN LETTERS` says what a \
    list allows";
const LISTS: &str = "`distkv-node user acl NAME LIST` gives a user an access list, `distkv-node user role NAME ROLE` a role";
const SETTINGS: &str =
    "`distkv-node run --help` lists the settings of a node; it reads them when it starts";
const LEAVE: &str = "`distkv-node leave` makes a node leave its network, `distkv-node members forget NAME` is for one that will not \
    come back";

/// Words below a command, with what to type instead.
const WORDS: [(&str, &[&str], &str); 13] = [
    ("auth", &["enable"], "`distkv-node auth on METHOD` makes clients log in"),
    ("auth", &["disable"], "`distkv-node auth off` lets clients in without a login"),
    ("auth", &["status", "info"], "`distkv-node whoami` prints who a command is to the node"),
    ("user", &["passwd"], "`distkv-node user password NAME` changes a password"),
    ("user", &["delete", "del", "rm"], "`distkv-node user remove NAME` removes a user"),
    ("user", &["get", "info"], "`distkv-node user show NAME` shows a user"),
    ("user", &["grant-role", "revoke-role", "grant", "revoke"], LISTS),
    (
        "acl",
        &[
            "token",
            "policy",
            "role",
            "bootstrap",
            "auth-method",
            "setuser",
            "getuser",
            "deluser",
            "users",
        ],
        USERS,
    ),
    (
        "snapshot",
        &["status", "info"],
        "`distkv-node snapshot inspect FILE` prints what is in a file, `distkv-node snapshot verify FILE` whether it is whole",
    ),
    ("config", &["get", "set", "read", "write", "list"], SETTINGS),
    (
        "members",
        &["add"],
        "`distkv-node join ADDR` starts a node that joins the network of another one",
    ),
    ("members", &["remove", "update", "promote"], LEAVE),
    ("key", &["rm", "delete", "install"], "`distkv-node key --help` lists the commands on keys"),
];

/// What to type instead of such a word below a command.
pub(super) fn instead_of(above: &str, word: &str) -> Option<&'static str> {
    let mut all = WORDS.iter();
    let found = all.find(|(command, words, _)| *command == above && words.contains(&word));
    found.map(|(.., instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_told_twice_or_is_a_command() {
        let program = crate::cli::command();
        let mut all = Vec::new();
        for (above, words, _) in WORDS {
            let command = program.find_subcommand(above).unwrap();
            for word in words {
                assert!(command.find_subcommand(word).is_none(), "{above} {word}");
                all.push((above, *word));
            }
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
