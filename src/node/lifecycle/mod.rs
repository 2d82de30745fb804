//! From the start of a node to its end: opening the ports, coming to serve, stopping, leaving.
//!
//! | file | what |
//! |---|---|
//! | `bind` | opens a port |
//! | `opening` | what a node opens of its own: files and directories |
//! | `ports` | what a node has opened to others before anything runs |
//! | `file_descriptors` | how many descriptors clients and HTTP may use |
//! | `phase` | how far a start has come |
//! | `start` | how a node comes to serve |
//! | `stop` | how its tasks learn that it ends |
//! | `farewell` | the order in which a node ends |
//! | `last_changes` | sees to it that another node has its last changes, or says that none has |
//! | `leave_for_good` | waits until the others have agreed to continue without this node |

pub(super) mod bind;
pub(super) mod farewell;
pub(super) mod file_descriptors;
pub(super) mod last_changes;
pub(super) mod leave_for_good;
pub(super) mod opening;
pub(super) mod phase;
pub(super) mod ports;
pub(super) mod start;
pub(super) mod stop;
