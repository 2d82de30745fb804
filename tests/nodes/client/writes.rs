//! What comes of a write where nodes know different things, stand still, or get it late.

mod apart;
mod own_order;
mod try_times;
