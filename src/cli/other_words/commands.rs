//! Commands that other stores and programs have, with what to type here.

use super::{CONDITION, COUNT, LIST, NO_EXPIRY};

/// What saves the state.
const SAVE: &str = "`distkv-node snapshot save --to FILE` saves the whole state";
/// What takes it back.
const RESTORE: &str = "`distkv-node snapshot restore FILE` takes a saved state back";
const STATUS: &str = "`distkv-node status` shows whether a node is ready, its sizes and counters";
const MEMBERS: &str = "`distkv-node members` lists the nodes of the network";
const NO_LOCKS: &str = "there are no locks and no elections, since both sides of a split accept writes: use a store with a \
    leader for them, such as etcd";
const NO_TRANSACTIONS: &str = "there are no transactions: each entry changes by itself, and `distkv-node set PATH VALUE \
    --if-value JSON` only if nobody was faster";
const NO_STRUCTURES: &str = "a value is replaced as a whole: read it with `distkv-node get`, and write it with \
    `distkv-node set PATH VALUE --if-value JSON`, which is refused if somebody was faster";
const STOP: &str = "SIGTERM stops a node, which continues with its data when it is started again; `distkv-node leave` makes it \
    leave its network";
const NO_STREAMS: &str = "messages are not stored: `distkv-node send TOPIC VALUE` sends one to all who monitor its topic at that moment; \
    entries stay, and `distkv-node watch PATH` tells of their changes";
const NO_LEADER: &str = "there is no leader, and no log of all nodes: each node takes reads and writes; `distkv-node members` lists them";
const NO_SHELL: &str = "each command connects and ends by itself";
const NO_UPKEEP: &str = "nodes compact their logs, and purge what was deleted, by themselves";

/// Words with what to type instead.
const WORDS: [(&[&str], &str); 44] = [
    (&["keys", "list", "scan"], LIST),
    (&["backup", "dump", "save", "bgsave"], SAVE),
    (&["load", "restore"], RESTORE),
    (&["incr", "incrby", "decr", "decrby", "append", "getset"], NO_STRUCTURES),
    (&["hset", "hget", "hgetall", "hdel", "lpush", "rpush", "lrange"], NO_STRUCTURES),
    (&["sadd", "smembers", "zadd", "zrange"], NO_STRUCTURES),
    (&["expire", "pexpire", "ttl", "pttl", "persist", "setex", "lease", "session"], NO_EXPIRY),
    (&["info", "stats", "health", "ping", "debug", "maint"], STATUS),
    (&["endpoint"], "`distkv-node status` shows how a node is; --connect says which"),
    (&["dbsize", "count"], COUNT),
    (
        &["role"],
        "`distkv-node user role NAME ROLE` changes a user's role; nodes have none: each takes reads and writes",
    ),
    (&["lock", "elect", "election"], NO_LOCKS),
    (&["exists"], "`distkv-node get PATH` ends with exit code 1 if there is no value"),
    (
        &["mget"],
        "`distkv-node tree PATH` prints all values at and below a path; `get` takes one path",
    ),
    (&["mset"], "`distkv-node import FILE` sets all entries that the lines of a file name"),
    (&["setnx"], "`distkv-node set PATH VALUE --if-new` sets it only if nothing is there"),
    (&["cas"], CONDITION),
    (
        &["publish", "pub"],
        "`distkv-node send TOPIC VALUE` sends a message to all who monitor its topic",
    ),
    (
        &["subscribe", "psubscribe", "sub"],
        "`distkv-node monitor TOPIC` prints messages as they come",
    ),
    (&["txn", "multi", "exec", "transaction"], NO_TRANSACTIONS),
    (&["member", "node", "nodes", "peers", "cluster", "catalog"], MEMBERS),
    (&["stream", "streams", "consumer", "req", "request", "reply", "xadd", "xread"], NO_STREAMS),
    (&["move-leader", "raft", "operator", "failover"], NO_LEADER),
    (
        &["make-mirror", "mirror", "migrate"],
        "`distkv-node tree PATH --json | distkv-node import - --connect OTHER` copies entries to another network",
    ),
    (
        &["context", "use"],
        "`--connect ADDR:PORT`, or DISTKV_CONNECT in the environment, says which node; \
         `--ticket @FILE` has the node and the login in one file",
    ),
    (
        &["select", "use-db", "bucket"],
        "there are no numbered databases: a subtree of its own is one, or a network of its own, `distkv-node run --network NAME`",
    ),
    (&["copy"], "`distkv-node cp FROM TO` copies an entry, with --recursive all below it too"),
    (&["check", "perf", "benchmark"], "`distkv-node bench` measures how fast a node is"),
    (&["quit", "exit", "hello", "echo", "shell", "cli"], NO_SHELL),
    (
        &["move", "renamenx"],
        "`distkv-node mv FROM TO` moves an entry, unless there is one at the new path",
    ),
    (&["client"], "`distkv-node clients` prints who is connected to a node"),
    (
        &["flushall", "flushdb"],
        "`distkv-node delete PATH --recursive` deletes all at and below a path",
    ),
    (&["rename"], "`distkv-node mv FROM TO` moves an entry, with --recursive all below it too"),
    (&["unlink", "remove"], "`distkv-node delete PATH` deletes an entry"),
    (
        &["export"],
        "`distkv-node tree --json` prints all entries, `distkv-node snapshot save --to FILE` saves them",
    ),
    (&["shutdown", "stop"], STOP),
    (&["compact", "compaction", "defrag"], NO_UPKEEP),
    (
        &["version"],
        "`distkv-node --version` prints this program's version, `distkv-node status` a node's",
    ),
    (
        &["login", "logout"],
        "each command logs in by itself, with --user and --secret-file, --ticket or --key",
    ),
    (
        &["kv"],
        "`distkv-node get`, `set`, `delete`, `ls`, `tree`, `watch` and `history` are the commands on entries",
    ),
    (
        &["server", "serve", "agent"],
        "`distkv-node run` starts the first node of a network, `distkv-node join` another one",
    ),
    (
        &["grant", "token", "password"],
        "`distkv-node user` and `distkv-node acl` say who may do what",
    ),
    (&["slowlog"], "`distkv-node clients` and `distkv-node top` show what nodes are busy with"),
    (&["alarm"], "`distkv-node status` and `distkv-node members` print what nodes warn of"),
];

/// What to type instead of such a command.
pub(super) fn instead_of(word: &str) -> Option<&'static str> {
    WORDS.iter().find(|(words, _)| words.contains(&word)).map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_told_twice_or_is_a_command() {
        let command = crate::cli::command();
        let mut words: Vec<&str> =
            WORDS.iter().flat_map(|(words, _)| words.iter().copied()).collect();
        let is_command = |word: &&&str| command.find_subcommand(word).is_some();
        assert_eq!(words.iter().find(is_command), None);
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
    }
}
