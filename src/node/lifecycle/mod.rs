//! From the start of a node to its end: opening the ports, coming to serve, stopping, leaving.
//!
//! | file | what |
//! |---|---|
//! | `bind` | opens a port |
//! | `ports` | what a node has opened to others before anything runs |
//! | `file_descriptors` | how many descriptors clients and HTTP may use |
//! | `phase` | how far a start has come |
//! | `start` | how a node comes to serve |
//! | `stop` | how its tasks learn that it ends |
//! | `farewell` | a node's last seconds |
//! | `leave_for_good` | waits until the others have agreed to continue without this node |

pub(super) mod bind;
pub(super) mod farewell;
pub(super) mod file_descriptors;
pub(super) mod leave_for_good;
pub(super) mod phase;
pub(super) mod ports;
pub(super) mod start;
pub(super) mod stop;
