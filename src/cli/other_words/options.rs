//! Options that other stores have, with what to type here.

use clap::Command;

use super::{ADDRESS, CONDITION, COUNT, IF_NEW, NO_EXPIRY};

const ALL_BELOW: &str = "`distkv-node tree PATH` prints all at and below a path; a prefix ends where an element of the path ends";
const IS_BELOW: &str =
    "this is about all below PATH anyway; a prefix ends where an element of the path ends";
const PATHS: &str = "`distkv-node ls PATH` prints the paths directly below one, `distkv-node tree PATH --json | jq -r .path` \
    those of all entries below";
const FIRST: &str = "a listing has no limit: `| head -n 5` ends it after so many lines";
const PAST: &str = "a read is of what is there now: `distkv-node history PATH` prints the changes of an entry, and \
    `distkv-node snapshot save --at TIME --to FILE` saves a past state";
const PAST_OF_WATCH: &str = "a watch begins with what changes now, or, with `--fetch`, with what is there: \
    `distkv-node history PATH` prints earlier changes of an entry";
const JSON: &str = "`--json` prints JSON, one object or one per line";
const NO_RANGES: &str = "there are no ranges of keys: `distkv-node tree PATH` prints all at and below a path, `watch PATH` tells of \
    it, `delete PATH --recursive` deletes it";
const BEFORE: &str =
    "`distkv-node history PATH` prints what an entry was before, at a node with a data directory";
const SORTED: &str = "a listing is in the order of paths: `| sort` makes another one";
const LOCAL: &str = "a node answers a read from what it holds; programs ask a majority of the nodes with the clients' mode `Freshest`";

/// Where an option is meant as other stores mean it.
enum At {
    /// At commands of these names, which are about data.
    Commands(&'static [&'static str]),
    /// At commands that have this option: it is what to type instead.
    With(&'static str),
}

const WRITES: At = At::Commands(&["set", "get", "import", "edit", "cp", "mv", "send"]);
const CONDITIONAL: At = At::Commands(&["set", "delete", "edit"]);
const LISTS: At = At::Commands(&["tree", "ls", "get"]);
const RANGES: At = At::Commands(&["tree", "ls", "get", "watch", "delete"]);
const READS: At = At::Commands(&["tree", "ls", "get", "history"]);

/// Options with where, and what to type instead; the first that fits counts.
const OPTIONS: [(&[&str], At, &str); 23] = [
    (
        &["ex", "px", "exat", "pxat", "ttl", "expire", "expires", "expiry", "keepttl", "lease"],
        WRITES,
        NO_EXPIRY,
    ),
    (&["nx"], At::With("if-new"), IF_NEW),
    (&["xx", "cas", "mod-revision", "compare", "prev-value"], CONDITIONAL, CONDITION),
    (&["prefix", "recurse"], At::Commands(&["watch", "tree"]), IS_BELOW),
    (&["recursive"], At::Commands(&["watch", "tree"]), IS_BELOW),
    (&["prefix", "recurse", "recursive"], At::Commands(&["get", "ls"]), ALL_BELOW),
    (
        &["prefix", "recurse"],
        At::With("recursive"),
        "`--recursive` is for all below the path, too; a prefix ends where an element of the path ends",
    ),
    (&["keys-only", "keys", "names-only"], LISTS, PATHS),
    (&["count-only", "count"], LISTS, COUNT),
    (&["limit"], LISTS, FIRST),
    (&["limit"], At::With("count"), "`--count N` ends after so many"),
    (&["rev", "revision"], READS, PAST),
    (
        &["rev", "revision", "from-revision", "start-revision"],
        At::Commands(&["watch"]),
        PAST_OF_WATCH,
    ),
    (&["from-key", "range-end", "range"], RANGES, NO_RANGES),
    (&["prev-kv"], At::Commands(&["watch", "set", "delete", "get"]), BEFORE),
    (
        &["print-value-only"],
        At::With("raw"),
        "`--raw` prints a string without its quotes; a value stands alone anyway",
    ),
    (&["sort-by", "order", "desc", "asc"], LISTS, SORTED),
    (&["consistency", "stale", "consistent", "serializable", "linearizable"], READS, LOCAL),
    (
        &["dial-timeout", "command-timeout", "connect-timeout"],
        At::With("timeout"),
        "`--timeout TIME` is the time for an answer",
    ),
    (&["write-out", "w", "output", "o", "format"], At::With("json"), JSON),
    (
        &[
            "endpoints",
            "endpoint",
            "host",
            "hostname",
            "address",
            "addr",
            "http-addr",
            "server",
            "s",
            "port",
            "p",
        ],
        At::With("connect"),
        ADDRESS,
    ),
    (
        &["password", "pass", "token", "auth"],
        At::With("secret-file"),
        "`--secret-file FILE` names the file with it, `--secret-env NAME` the variable",
    ),
    (
        &["cacert", "ca-file", "trusted-ca-file"],
        At::With("node-ca"),
        "`--node-ca FILE` is the CA of the nodes' certificates",
    ),
];

/// What Redis has behind a value, without a dash: as [`OPTIONS`] of `set`.
const BEHIND_VALUE: [&str; 7] = ["ex", "px", "exat", "pxat", "keepttl", "nx", "xx"];

/// What to type instead of such an option of a command. It is `--ex`; or `-w`, or `-keys`, as programs have it that have long
/// options behind one dash; or `EX` behind a value.
pub(super) fn instead_of(command: &Command, option: &str) -> Option<&'static str> {
    let name = match option.strip_prefix('-') {
        Some(rest) => rest.strip_prefix('-').unwrap_or(rest).to_owned(),
        None => {
            let word = option.to_ascii_lowercase();
            Some(word)
                .filter(|word| command.get_name() == "set" && BEHIND_VALUE.contains(&&**word))?
        }
    };
    let name = name.as_str();
    let fits = |at: &At| match at {
        At::Commands(names) => names.contains(&command.get_name()),
        At::With(long) => command.get_opts().any(|arg| arg.get_long() == Some(long)),
    };
    let found = OPTIONS.iter().find(|(names, at, _)| names.contains(&name) && fits(at));
    found.map(|(.., instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_about_commands_and_options_that_there_are() {
        let program = crate::cli::command();
        for (names, at, instead) in &OPTIONS {
            match at {
                At::Commands(commands) => {
                    for command in *commands {
                        let command = program.find_subcommand(command).unwrap();
                        assert!(names.iter().any(|name| {
                            instead_of(command, &format!("--{name}")) == Some(*instead)
                        }));
                    }
                }
                At::With(long) => {
                    assert!(instead.contains(&format!("`--{long}")), "{long}");
                    let has = |command: &Command| {
                        command.get_opts().any(|arg| arg.get_long() == Some(long))
                    };
                    assert!(program.get_subcommands().any(has), "{long}");
                }
            }
        }
    }
}
