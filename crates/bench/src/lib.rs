//! The load generator: what `distkv-node bench` and the program `distkv-bench` share. It measures servers
//! from outside, with any [`wire::Protocol`].
//!
//! The protocols of other stores are in the program `distkv-bench` only: this library, and so a node's
//! program, has none of them.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | the options, and the measurement they ask for |
//! | [`measure`] | one measurement: fill, warm up, measure |
//! | [`load`] | the load generator: connections on a thread |
//! | [`wire`] | what a protocol must offer it |
//! | [`distkv`] | the client protocol of nodes |
//! | [`keys`] | which key comes next |
//! | [`place`] | where it writes on a node, and that it is deleted again |
//! | [`process`] | what the server costs |
//! | [`sockets`] | sockets, plain or with TLS |
//! | [`report`] | tables and plots for people, JSON for programs |

use distkv_client as client;
use distkv_command as command;
use distkv_model as model;
use distkv_runtime as rt;

pub mod args;
pub mod distkv;
pub mod keys;
pub mod load;
pub mod measure;
pub mod place;
pub mod process;
pub mod report;
pub mod sockets;
pub mod wire;
