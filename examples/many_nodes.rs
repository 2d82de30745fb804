//! Starts many nodes in one process (48 unless told otherwise), has each of them write, and
//! tells how long it took until all are linked and until all hold the same.
//!
//! ```sh
//! cargo run --release --example many_nodes -- 48 200
//! ```
//!
//! Arguments: how many nodes, and how many changes each of them makes (200).

use std::process::ExitCode;

use distkv::model::path::Path;
use distkv::model::value::{Value, write_u64};
use distkv::rt;
use distkv::testing::{TestCluster, block_on};

fn main() -> ExitCode {
    let numbers: Result<Vec<usize>, _> = std::env::args().skip(1).map(|a| a.parse()).collect();
    let (nodes, changes) = match numbers.as_deref() {
        Ok([]) => (48, 200),
        Ok([nodes]) => (*nodes, 200),
        Ok([nodes, changes]) => (*nodes, *changes),
        _ => {
            eprintln!("usage: many_nodes [NODES] [CHANGES_OF_EACH]");
            return ExitCode::from(2);
        }
    };
    match block_on(run(nodes.max(1), changes)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("many_nodes: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(nodes: usize, changes: usize) -> Result<(), String> {
    let started = rt::now();
    let cluster = TestCluster::start(nodes).await.map_err(|e| e.to_string())?;
    if !cluster.linked().await {
        return Err("not all nodes are linked with all others".to_owned());
    }
    println!("{nodes} nodes are linked, each with all others, after {} ms", rt::now() - started);

    let started = rt::now();
    for change in 0..changes {
        for (number, node) in cluster.nodes().iter().enumerate() {
            // Half of the paths are everybody's, so that changes meet.
            let mine = if change % 2 == 0 { number } else { 0 };
            let path = Path::root()
                .push("load")
                .and_then(|p| p.push(format!("k{mine}.{}", change % 50).as_str()))
                .map_err(|e| e.to_string())?;
            let mut raw = Vec::new();
            write_u64((change * nodes + number) as u64, &mut raw);
            let value = Value::new(&raw).map_err(|e| e.to_string())?;
            node.set(&path, &value).map_err(|e| e.to_string())?;
        }
        // The others' turn: everything is in one process.
        rt::yield_now().await;
    }
    let written = rt::now() - started;
    cluster.settled().await.map_err(|e| e.to_string())?;
    let total = nodes * changes;
    println!("{total} changes were made in {written} ms; all hold the same after {} ms", {
        rt::now() - started
    });
    cluster.shutdown().await;
    Ok(())
}
