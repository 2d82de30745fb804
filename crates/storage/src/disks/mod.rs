//! What is stored on: the interface of a disk, a real directory, and a disk in memory for tests.

pub mod directory;
pub mod disk;
#[cfg(any(test, feature = "planted-defects"))]
pub mod memory_disk;
