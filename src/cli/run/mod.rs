//! Commands that start nodes: `run`, `join` and `demo`, with their options, the configuration file,
//! logging, signals, and the end of the process.
//!
//! | file | what |
//! |---|---|
//! | `node_process` | `run` and `join`: a node from its start to its end |
//! | `demo` | `demo`: a small network in one process |
//! | `tunnel` | `tunnel`: TLS for clients on this machine that cannot do it |
//! | `ticket` | `ticket`: puts a ticket together, and says what is in one |
//! | `node_args` | the options of `run` and `join` |
//! | `settings` | the options and the configuration file, put together |
//! | `http_token` | the secret that lets programs change data by HTTP |
//! | `logging`, `fail_stop` | the log, and the end of the process at a panic |

pub(super) mod demo;
mod fail_stop;
mod http_token;
mod logging;
pub(super) mod node_args;
pub(super) mod node_process;
pub(super) mod settings;
pub(super) mod ticket;
pub(super) mod tunnel;
pub(super) use distkv_command::signals;
