//! A running node: owns the hub, the sockets and the timers.

pub mod config;
