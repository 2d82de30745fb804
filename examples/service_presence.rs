//! Service presence: each instance of a service says where it is, and says so again every now and then;
//! who looks for instances takes those that were heard of lately, and the rest is swept away.
//!
//! There are no leases here: without a leader nobody could say for all when one has run out. So an entry
//! carries a counter, and everybody times its changes by a clock of their own.
//!
//! ```sh
//! cargo run --example service_presence
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use distkv::client::smart::{CallError, Client, ClientConfig, WatchEvent, WatchOptions};
use distkv::model::path::Path;
use distkv::rt;
use distkv::testing::{TestCluster, block_on};
use serde::{Deserialize, Serialize};

/// How often an instance says that it is there.
const BEAT: Duration = Duration::from_millis(100);
/// Who was not heard of for so long is not counted on.
const PATIENCE: Duration = Duration::from_millis(600);

/// What is stored for each instance, at `services.NAME.INSTANCE`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Presence {
    address: String,
    beat: u64,
}

/// One instance, until it is cancelled.
async fn instance(client: Client, path: Path, address: String) -> Result<(), CallError> {
    for beat in 0.. {
        client.put(&path, &Presence { address: address.clone(), beat }).await?;
        rt::sleep(BEAT).await;
    }
    Ok(())
}

/// Who is there, by what was heard lately.
#[derive(Default)]
struct Registry {
    heard: BTreeMap<Path, (Presence, Instant)>,
}

impl Registry {
    fn on_event(&mut self, event: &WatchEvent) -> Result<(), CallError> {
        match event {
            WatchEvent::Change(change) => match change.get::<Presence>()? {
                Some(presence) => {
                    self.heard.insert(change.path.clone(), (presence, now()));
                }
                None => drop(self.heard.remove(&change.path)),
            },
            WatchEvent::Restarted => self.heard.clear(),
            WatchEvent::UpToDate | WatchEvent::Resumed { .. } => {}
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<&str> {
        let is_there = |(_, heard): &&(Presence, Instant)| heard.elapsed() < PATIENCE;
        self.heard
            .values()
            .filter(is_there)
            .map(|(presence, _)| presence.address.as_str())
            .collect()
    }

    /// Those who are silent for so long that anybody may take them away.
    fn gone(&self) -> Vec<Path> {
        let is_gone = |heard: &Instant| heard.elapsed() > PATIENCE * 2;
        self.heard
            .iter()
            .filter(|(_, seen)| is_gone(&seen.1))
            .map(|(path, _)| path.clone())
            .collect()
    }
}

#[allow(clippy::disallowed_methods, reason = "a program of its own has a clock")]
fn now() -> Instant {
    Instant::now()
}

fn main() -> Result<(), Box<dyn Error>> {
    block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let cluster = TestCluster::start(3).await?;
    let client = Client::connect(cluster.seeds(), ClientConfig::new()).await?;
    let mut running = Vec::new();
    for number in 1..=3 {
        let path: Path = format!("services.web.i{number}").parse()?;
        let address = format!("10.0.0.{number}:80");
        running.push(rt::spawn(instance(client.clone(), path, address)));
    }
    let mut watch = client
        .watch(&"services.web".parse()?, WatchOptions { fetch: true, ..WatchOptions::default() })
        .await?;
    let mut registry = Registry::default();
    until(&mut watch, &mut registry, 3).await?;
    println!("there are {}", registry.addresses().join(", "));

    if let Some(task) = running.pop() {
        task.cancel().await;
    }
    println!("the third one has crashed");
    until(&mut watch, &mut registry, 2).await?;
    println!("there are {}", registry.addresses().join(", "));

    // Anybody may sweep; doing it twice does no harm.
    let third: Path = "services.web.i3".parse()?;
    while client.get::<Presence>(&third).await?.is_some() {
        listen(&mut watch, &mut registry).await?;
        for path in registry.gone() {
            client.delete(&path).await?;
        }
    }
    println!("it was swept away");
    for task in running {
        task.cancel().await;
    }
    cluster.shutdown().await;
    Ok(())
}

/// Waits until so many are there.
async fn until(
    watch: &mut distkv::client::smart::Watch,
    registry: &mut Registry,
    wanted: usize,
) -> Result<(), CallError> {
    while registry.addresses().len() != wanted {
        listen(watch, registry).await?;
    }
    Ok(())
}

/// Takes in what there is to hear, for a moment.
async fn listen(
    watch: &mut distkv::client::smart::Watch,
    registry: &mut Registry,
) -> Result<(), CallError> {
    match rt::timeout(BEAT, watch.next()).await {
        Some(event) => registry.on_event(&event?),
        None => Ok(()),
    }
}
