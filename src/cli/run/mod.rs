//! Commands that start nodes: `run`, `join`, `start` and `demo`, with their options, the configuration file,
//! logging, signals, and the end of the process.
//!
//! | file | what |
//! |---|---|
//! | `node_process` | `run`, `join` and `start`: a node from its start to its end |
//! | `start` | `start`: what a service manager calls |
//! | `check`, `file_check` | `config check`: what is wrong with a configuration file |
//! | `demo` | `demo`: a small network in one process |
//! | `tunnel` | `tunnel`: TLS for clients on this machine that cannot do it |
//! | `ticket` | `ticket`: puts a ticket together, and says what is in one |
//! | `node_args` | the options of `run`, `join` and `start` |
//! | `settings` | the options and the configuration file, put together; `settings/listed` has each once |
//! | `settings/http_token` | the secret that lets programs change data by HTTP |
//! | `settings/scheduled` | scheduled snapshots |
//! | `notify` | tells the service manager how the node is |
//! | `logging`, `fail_stop` | the log, and the end of the process at a panic |

pub(super) mod check;
pub(super) mod demo;
mod fail_stop;
mod file_check;
pub(super) mod logging;
pub(super) mod node_args;
pub(super) mod node_process;
mod notify;
mod one_at_a_time;
pub(super) mod settings;
pub(super) mod start;
pub(super) mod ticket;
pub(super) mod tunnel;
pub(super) use distkv_command::signals;
