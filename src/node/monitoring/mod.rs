//! What a node writes to its log for operators: conflicts, and states that need their attention, each
//! said soon, repeatedly while it lasts, and when it is over. And what programs that watch over a node are told:
//! metrics and health. And the audit log, which has a file of its own.
//!
//! | file | what |
//! |---|---|
//! | `auth`, `certificate`, `conflicts`, `memory`, `plaintext`, `purge`, `split` | what is written to the log |
//! | `observed` | what the node counts and notices about itself |
//! | `health` | the HTTP port: its checks, and its opening |
//! | `numbers` | the metrics of one moment |
//! | `process` | what the system says of the process |
//! | `audit` | the audit log's file |
//! | `live` | what the page shows as it happens |
//! | `isolation` | for how long no other node has been linked |

pub(super) mod audit;
pub(super) mod auth;
pub(super) mod certificate;
pub(super) mod conflicts;
pub(super) mod health;
pub(super) mod isolation;
pub(super) mod live;
pub(super) mod memory;
mod numbers;
pub(super) mod observed;
pub(super) mod plaintext;
mod process;
pub(super) mod purge;
pub(super) mod split;
