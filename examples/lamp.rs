//! A lamp that programs share: set, read, changed only if nobody else changed it, watched.
//!
//! ```sh
//! cargo run --example lamp -- 127.0.0.1:27586 127.0.0.1:27596
//! ```

use distkv_client::{Client, ClientConfig, Path, PutOptions, WatchEvent, WatchOptions};
use serde::{Deserialize, Serialize};

/// Anything that serde can write is a value.
#[derive(Debug, Serialize, Deserialize)]
struct Lamp {
    on: bool,
}

pub(crate) async fn run(nodes: Vec<String>) -> Result<(), Box<dyn std::error::Error>> {
    let seeds: Result<Vec<_>, _> = nodes.iter().map(|node| node.parse()).collect();
    let client = Client::connect(seeds?, ClientConfig::new()).await?;
    let path: Path = "site.lamp".parse()?;

    let mut watch = client.watch(&"site".parse()?, WatchOptions::default()).await?;
    client.put(&path, &Lamp { on: true }).await?;

    let entry = client.get_entry(&path).await?.ok_or("somebody deleted it")?;
    let lamp: Lamp = entry.get()?;
    println!("{path} is {lamp:?}");

    // Only if nobody has changed it since.
    let unchanged = PutOptions::new().chain(entry.chain.ok_or("its version is unknown")?);
    client.put_with(&path, &Lamp { on: false }, &unchanged).await?;

    // The watch tells what changes; what it has missed, or is not read in time, by the latest version only.
    let mut is_off = false;
    while !is_off {
        if let WatchEvent::Change(change) = watch.next().await? {
            let lamp = change.get::<Lamp>()?;
            println!("{} became {lamp:?}", change.path);
            is_off = lamp.is_some_and(|lamp| !lamp.on);
        }
    }
    client.close().await;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    distkv_client::block_on(run(std::env::args().skip(1).collect()))
}
