//! What a node does for its clients besides the data: their port, and the files that they have it read
//! and write.
//!
//! | file | what |
//! |---|---|
//! | `port` | opens the client port, and answers its questions about the rest of the node |
//! | `certificates` | the certificate that clients are shown |
//! | `changed_certificate` | what is odd about one that takes another's place |
//! | `file_jobs` | what clients may have this node write: files, snapshots, a log |
//! | `files` | the directory in which clients may write files |
//! | `keys` | which cluster keys the nodes have, and changing them |
//! | `log` | a log that a client has started |
//! | `past` | a state of the past, from the node's own files |
//! | `unreached` | members that this node has no link to although it should |
//! | `load` | takes in a saved state or a change log of the Python DistKV |

pub(super) mod certificates;
mod changed_certificate;
pub(super) mod file_jobs;
pub(super) mod files;
mod keys;
pub(super) mod load;
mod log;
mod past;
pub(super) mod port;
mod unreached;
