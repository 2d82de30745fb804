//! The smart client against real nodes in this process.

mod batches;
mod closing;
mod messages;
mod networks;
mod observing;
mod ops;
mod pool;
mod reads;
mod refused;
mod seeds;
mod topology;
mod trees;
mod watches;
mod writes;
