//! The core of distkv: the replicated state and everything that decides about it. Pure: data in, data
//! out; no clock, randomness, socket, file or environment.
//!
//! | module | what |
//! |---|---|
//! | [`tree`] | all entries by path, with snapshots; sums over their contents |
//! | [`protocol`] | bytes to types and back: frames, peer messages, client messages |
//! | [`actor`] | the election: short lists, who holds the tag, healed splits |
//! | [`replica`] | which version wins, catch-up, digests, watches |
//! | [`engine`] | the composition: one state, `&self` methods read, `write` and `handle` change |
//! | [`membership`] | SWIM (foca) wrapped as data in, data out |
//! | `virtual_net` | for tests and the simulator: a virtual clock, and who hears nothing of whom |

use distkv_model as model;

mod actor;
pub mod engine;
pub mod membership;
pub mod protocol;
pub mod replica;
pub mod tree;
#[cfg(any(test, feature = "planted-defects"))]
pub mod virtual_net;
