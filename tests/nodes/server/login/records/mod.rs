//! Users' records: how they are stored, removed and made again, and what may not become of them.

mod by_entry;
mod last_admin;
mod made_again;
