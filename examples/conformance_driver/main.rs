//! The Rust client for the scenarios of `clients/conformance`: lines of JSON in, lines of JSON out, as its README says.
//! The variable `DISTKV_PLANTED` names a rule that the client is to break, so that the scenarios can show that they
//! find it; that is possible in examples and tests only.

mod orders;
mod settings;
mod shown;
mod storm;
mod trials;

use std::io::{self, BufRead, Write};

use distkv::rt::block_on;
use serde_json::{Value as Json, json};

use orders::Driver;
use shown::Failed;

fn main() -> io::Result<()> {
    block_on(obey_all())
}

/// Obeys until the input ends.
async fn obey_all() -> io::Result<()> {
    let mut driver = Driver::default();
    let mut lines = io::stdin().lock().lines();
    while let Some(line) = lines.next().transpose()? {
        let order: Json = serde_json::from_str(&line)?;
        let answer = match driver.obey(&order).await {
            Ok(found) => json!({ "ok": found }),
            Err(Failed::Order(told)) => {
                return Err(io::Error::other(format!(
                    "the order {order} cannot be obeyed: {told}"
                )));
            }
            Err(failed) => json!({ "error": failed.shown() }),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
