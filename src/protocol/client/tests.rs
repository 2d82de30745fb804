//! Requests and replies in bytes.
