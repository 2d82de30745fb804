//! What is a value, how it is typed, and how it is printed.

mod arrays;
mod long;
mod spelling;
mod types;
