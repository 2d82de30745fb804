//! Whole networks of machines in virtual time.

mod crash;
mod hostile;
mod names;
mod net;
mod restart;
mod split;
