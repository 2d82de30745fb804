//! A watch that survives a killed node: three nodes in this process, a client that watches, a writer, and
//! the watched node is pulled out in the middle.
//!
//! ```sh
//! cargo run --example watch_resume
//! ```

use std::error::Error;

use distkv::client::smart::{Client, ClientConfig, WatchEvent, WatchOptions};
use distkv::model::path::Path;
use distkv::rt;
use distkv::testing::{TestCluster, block_on};

/// How many numbers are written.
const NUMBERS: u64 = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut cluster = TestCluster::start(3).await?;
    let client = Client::connect(cluster.seeds(), ClientConfig::new()).await?;
    let path: Path = "counter".parse()?;
    let mut watch =
        client.watch(&path, WatchOptions { fetch: true, ..WatchOptions::default() }).await?;
    let (mut last, mut killed, mut resumed) = (0, None, 0);
    let writer = {
        let (client, path) = (client.clone(), path.clone());
        rt::spawn(async move {
            for number in 1..=NUMBERS {
                client.put(&path, &number).await?;
            }
            Ok::<_, distkv::client::CallError>(())
        })
    };
    while last < NUMBERS {
        match watch.next().await? {
            WatchEvent::Change(change) => {
                let number: u64 = change.get()?.unwrap_or(last);
                // What was overtaken while the watch had no node may be left out; nothing comes twice.
                assert!(number > last, "{number} came after {last}");
                last = number;
            }
            WatchEvent::Resumed { node } => {
                println!("the watch goes on at {node}, after number {last}");
                resumed += 1;
            }
            WatchEvent::Restarted => println!("the watch starts over"),
            WatchEvent::UpToDate => println!("watching at {}", watch.node().unwrap_or("?")),
        }
        if last > NUMBERS / 4 && killed.is_none() {
            let node = watch.node().unwrap_or_default().to_owned();
            println!("killing {node} after number {last}");
            // Dropping a node is like pulling its plug.
            drop(cluster.take_named(&node));
            killed = Some(node);
        }
    }
    writer.await?;
    println!("all {NUMBERS} numbers are here; went on {resumed} time(s)");
    cluster.shutdown().await;
    Ok(())
}
