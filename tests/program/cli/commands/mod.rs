//! Single commands: what they ask for and how they print it, mostly against a scripted node.

mod arrays;
mod conflicts;
mod logs;
mod observe;
mod operators;
mod shards;
mod snapshots;
mod spelling;
mod times;
mod trees;
mod types;
mod undo;
mod verify;
