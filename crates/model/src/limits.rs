//! The constants of the protocol: what an entry may be. They are the same on every node,
//! because a limit that differs from node to node is divergence (ARCHITECTURE.md, invariant 7). Peers
//! compare them when they greet each other and refuse a mismatch.

/// Most events in a chain. A shorter chain costs at most a spurious conflict report.
pub const CHAIN_LEN_MAX: usize = 8;
/// Most elements of a path (the system's nil element included).
pub const PATH_ELEMENTS_MAX: usize = 64;
/// Most bytes of a path in its canonical MessagePack form.
pub const PATH_BYTES_MAX: usize = 4096;
/// Deepest nesting of arrays within an element of a path: `(1, 2)` has 1. Not among the limits that peers
/// compare when they greet each other: all nodes that know of arrays in paths have the same.
pub(crate) const PATH_NESTING_MAX: usize = 16;
/// Most bytes of a value in MessagePack form: 4 MiB.
pub const VALUE_BYTES_MAX: usize = 4 << 20;
/// Deepest nesting of a value; a scalar has depth 0.
pub const VALUE_DEPTH_MAX: usize = 64;
/// Most bytes of a node's or network's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Ticks and tocks from here on are refused, wherever they come from.
pub(crate) const COUNTER_LIMIT: u64 = 1 << 62;
/// Most bytes of fields unknown to this version that a change record may carry along.
pub const RECORD_EXTRA_BYTES_MAX: usize = 1024;
/// Most components of a mark that is read: one per Delete lineage that no later purge stands on. Each
/// purge leaves one, so a mark has as many as sides of splits have met since the last one.
pub const MARK_COMPONENTS_MAX: usize = 4_096;
/// Above this many components, operators are warned.
pub const MARK_COMPONENTS_WARN: usize = 64;
