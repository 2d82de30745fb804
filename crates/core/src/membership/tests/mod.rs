//! Whole networks of machines in virtual time.

mod crash;
mod hostile;
mod linked;
mod names;
mod net;
mod restart;
mod split;
