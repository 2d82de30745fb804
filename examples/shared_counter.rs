//! A counter that many programs count up at once: each reads the number and its chain, and writes the next
//! one only if nobody has written since; otherwise it tries again after a pause. No lock.
//!
//! Exact as long as all writers reach the same node: not over a split, nor when a node freezes for about two seconds or is
//! killed, so that some of them go on at another one. Then two nodes can each take a next number; one is lost, and reported
//! as a conflict.
//!
//! ```sh
//! cargo run --example shared_counter                        # a cluster in this process
//! cargo run --example shared_counter -- 127.0.0.1:27586     # yours
//! ```

use std::error::Error;

use distkv::client::{Client, ClientConfig, Fate, HostPort, PutOptions, RetryPolicy};
use distkv::model::path::Path;
use distkv::rt;
use distkv::testing::{TestCluster, block_on};

/// Tasks that count, and how far each.
const TASKS: u64 = 8;
const EACH: u64 = 50;

/// How often one step is tried. With the pauses, that is about half a minute.
const ATTEMPTS: u32 = 40;

/// An error that can go from task to task.
type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    block_on(run())
}

async fn run() -> Result<(), Failure> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let cluster = if given.is_empty() { Some(TestCluster::start(3).await?) } else { None };
    let seeds = match &cluster {
        Some(cluster) => cluster.seeds(),
        None => given.iter().map(|a| HostPort::parse(a, Some(27586))).collect::<Result<_, _>>()?,
    };
    let path: Path = "examples.counter".parse()?;
    let mut tasks = Vec::new();
    let mut begin = 0;
    for task in 0..TASKS {
        // Each as if it were a program of its own.
        let client = Client::connect(seeds.clone(), ClientConfig::new()).await?;
        if task == 0 {
            begin = client.get::<u64>(&path).await?.unwrap_or(0);
        }
        let path = path.clone();
        tasks.push(rt::spawn(async move {
            let mut conflicts = 0;
            for _ in 0..EACH {
                conflicts += count_up(&client, &path).await?;
            }
            Ok::<_, Failure>(conflicts)
        }));
    }
    let mut conflicts = 0;
    for task in tasks {
        conflicts += task.await?;
    }
    let client = Client::connect(seeds, ClientConfig::new()).await?;
    let counted = client.get::<u64>(&path).await?.unwrap_or(0) - begin;
    println!("{TASKS} tasks counted to {counted}; {conflicts} times somebody else was quicker");
    assert_eq!(counted, TASKS * EACH);
    if let Some(cluster) = cluster {
        cluster.shutdown().await;
    }
    Ok(())
}

/// Counts up by one; tells how often somebody else was quicker.
async fn count_up(client: &Client, path: &Path) -> Result<u64, Failure> {
    for attempt in 1..=ATTEMPTS {
        let entry = client.get_entry(path).await?.filter(|entry| entry.value.is_some());
        let (number, options) = match &entry {
            Some(entry) => {
                let chain = entry.chain.clone();
                let options = PutOptions::new();
                let options = chain.map_or(PutOptions::new(), |chain| options.chain(chain));
                (entry.get::<u64>()?, options)
            }
            None => (0, PutOptions::new().must_be_new()),
        };
        match client.put_with(path, &(number + 1), &options).await {
            Ok(_) => return Ok(u64::from(attempt) - 1),
            Err(error) if error.is_precondition() && error.fate() == Fate::NotDone => {}
            // Of unknown fate, an earlier try of this call may have counted: to go on could count twice.
            Err(error) => return Err(error.into()),
        }
        // Somebody was there first, or the node that was asked has not heard of that version yet, as at the beginning of a split.
        // The pauses grow, up to a second. A part of them is random, so that those who were refused together do not come back
        // together.
        rt::sleep(RetryPolicy::default().delay(attempt, rt::random_u64())).await;
    }
    Err(format!("{path} was not counted: refused {ATTEMPTS} times").into())
}
