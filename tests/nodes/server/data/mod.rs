//! Reading and writing entries over the client port.

mod batches;
mod own_order;
mod times;
mod trees;
mod try_times;
mod types;
mod values;
mod write_copies;
mod write_ids;
mod write_synced;
