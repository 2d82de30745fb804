//! What the measuring examples share: real nodes as processes of this program, a proxy between
//! them that counts and cuts, and figures.

#![allow(dead_code, unreachable_pub, reason = "each example uses a part of it")]

pub mod figures;
pub mod load;
pub mod nodes;
pub mod proxy;
pub mod redis;
