//! What somebody meets who comes from another store: words that are typed there, patterns, and a backup that sets back.

mod patterns;
mod restored;
mod typed;
