//! The client port over real sockets: each action, flow control, pipelining, what is sent when.

mod data;
mod operators;
mod python_habits;
mod refusals;
mod streams;
