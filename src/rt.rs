//! The only file that names the async runtime and the clock.
