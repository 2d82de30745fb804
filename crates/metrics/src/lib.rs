//! What a node counts, for Prometheus: the table of all metrics ([`table`]), the numbers of one moment
//! ([`Numbers`]), their text in either format ([`text`]), and the page that documents them ([`page`]).
//!
//! Pure: nothing is counted here but by [`Histogram`]. A node keeps its counters where it needs them, and
//! puts a [`Numbers`] together only when somebody asks, so that the hot path pays nothing for it.

mod histogram;
mod numbers;
pub mod page;
mod table;
mod text;

pub use histogram::{Histogram, HistogramNumbers};
pub use numbers::{Number, Numbers, Series};
pub use table::{Kind, Label, METRICS, Metric, Name};
pub use text::{Format, text};
