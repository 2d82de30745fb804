//! What the command lines of `distkv-node` and `distkv-bench` have in common: where the node is, how
//! sizes and durations are written, what output looks like, and which exit code a command ends with.
//!
//! | module | what |
//! |---|---|
//! | [`error`] | why a command did not end well, and its exit code |
//! | [`following`] | a stream of what comes in future, from a node that is asked whether it is still there |
//! | [`given`] | files that say how to work: read anew, or once where they cannot be |
//! | [`key_file`] | the network's key file: read, made, replaced |
//! | [`login`] | the options that say as whom to work |
//! | `node_ca` | by which CA the nodes are known, where that is said apart from the key file |
//! | [`output`] | lines and tables for people, JSON for programs; commands that people may type next |
//! | [`plain_file`] | files that are no pipes and no devices |
//! | [`remote`] | the options that name a node, and requests to it |
//! | [`say`] | notes and warnings, on standard error |
//! | [`signals`] | SIGINT, SIGTERM and SIGHUP |
//! | [`ticket`] | the ticket that a command was given, read once |
//! | [`units`] | sizes and durations as people write them |

pub mod error;
pub mod following;
pub mod given;
pub mod key_file;
pub mod login;
mod node_ca;
pub mod output;
pub mod plain_file;
pub mod remote;
pub mod say;
pub mod signals;
pub mod ticket;
pub mod units;
