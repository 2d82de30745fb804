//! Feature flags: a program has all flags in memory, kept up to date by a watch, so that asking for
//! one costs nothing and goes on while no node can be reached.
//!
//! ```sh
//! cargo run --example feature_flags
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use distkv::client::smart::{CallError, Client, ClientConfig, WatchEvent, WatchOptions};
use distkv::model::path::Path;
use distkv::rt;
use distkv::testing::{TestCluster, block_on};
use serde::{Deserialize, Serialize};

/// What is stored for each flag, at `flags.NAME`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Flag {
    /// For how many of a hundred users it is on.
    percent: u8,
    /// For these it is on in any case.
    #[serde(default)]
    users: Vec<String>,
}

/// All flags, as of the last word from a node.
#[derive(Clone, Default)]
struct Flags {
    known: Arc<Mutex<BTreeMap<String, Flag>>>,
}

impl Flags {
    /// Whether a flag is on for somebody: no request is made.
    fn is_on(&self, flag: &str, user: &str) -> bool {
        let known = self.known.lock().expect("nobody panics with it");
        let Some(flag) = known.get(flag) else { return false };
        let place = user.bytes().fold(17_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
        flag.users.iter().any(|other| other == user) || place % 100 < u32::from(flag.percent)
    }

    /// Keeps them up to date, until the client is closed.
    async fn follow(
        self,
        client: Client,
        root: Path,
        fetched: async_channel::Sender<()>,
    ) -> Result<(), CallError> {
        let mut watch =
            client.watch(&root, WatchOptions { fetch: true, ..WatchOptions::default() }).await?;
        loop {
            match watch.next().await? {
                WatchEvent::Change(change) => {
                    let name = change.path.to_string();
                    let name = name.rsplit('.').next().unwrap_or_default().to_owned();
                    let mut known = self.known.lock().expect("nobody panics with it");
                    match change.get::<Flag>() {
                        Ok(Some(flag)) => drop(known.insert(name, flag)),
                        Ok(None) => drop(known.remove(&name)),
                        // Somebody stored something else there: the flag stays as it was.
                        Err(error) => eprintln!("flag {name}: {error}"),
                    }
                }
                // What was told before does not count any more: a state follows.
                WatchEvent::Restarted => self.known.lock().expect("nobody panics with it").clear(),
                WatchEvent::UpToDate => drop(fetched.try_send(())),
                WatchEvent::Resumed { .. } => {}
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let cluster = TestCluster::start(2).await?;
    let client = Client::connect(cluster.seeds(), ClientConfig::new()).await?;
    let dark_mode = Flag { percent: 0, users: vec!["ada".into()] };
    client.put(&"flags.dark-mode".parse()?, &dark_mode).await?;

    let flags = Flags::default();
    let (sender, fetched) = async_channel::bounded(1);
    let following = rt::spawn(flags.clone().follow(client.clone(), "flags".parse()?, sender));
    fetched.recv().await?;
    println!(
        "dark-mode: ada {}, bob {}",
        flags.is_on("dark-mode", "ada"),
        flags.is_on("dark-mode", "bob")
    );
    assert!(flags.is_on("dark-mode", "ada") && !flags.is_on("dark-mode", "bob"));

    // An operator turns it on for everybody; every program hears of it.
    client.put(&"flags.dark-mode".parse()?, &Flag { percent: 100, users: vec![] }).await?;
    while !flags.is_on("dark-mode", "bob") {
        rt::yield_now().await;
    }
    println!("dark-mode is on for everybody now");

    // Also when no node is left, the last word counts.
    cluster.shutdown().await;
    println!("no node is there any more: dark-mode for bob is {}", flags.is_on("dark-mode", "bob"));
    assert!(flags.is_on("dark-mode", "bob"));
    client.close();
    let ended = following.await;
    println!(
        "the watch ended: {}",
        ended.err().map_or_else(String::new, |error| error.to_string())
    );
    Ok(())
}
