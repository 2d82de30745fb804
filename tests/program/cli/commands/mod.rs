//! Single commands: what they ask for and how they print it, mostly against a scripted node.

mod conflicts;
mod logs;
mod observe;
mod operators;
mod shards;
mod snapshots;
mod times;
mod trees;
mod undo;
mod values;
mod verify;
