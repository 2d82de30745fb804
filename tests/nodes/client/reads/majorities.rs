//! Reads of a majority where a node leaves, has left, or does not let the client in. The nodes are scripted. A try may take so
//! long that a read that waits for its end would not come back within the test.

use std::time::Duration;

use distkv::client::{CallError, Client, ClientConfig, Entry, ReadMode, RetryPolicy};
use distkv::rt;
use distkv::testing::{PATIENCE, block_on};

use super::super::ops::path;
use super::super::topology::scripted::Scripted;
use super::silent_nodes::nodes;

/// Of the first two: the view is that of one of these.
async fn connect(nodes: &[Scripted], attempts_max: Option<u32>) -> Client {
    let hour = Duration::from_secs(3600);
    let (try_deadline, total_deadline) = (hour, hour);
    let retry =
        RetryPolicy { try_deadline, total_deadline, attempts_max, ..RetryPolicy::default() };
    let seeds = nodes[..2].iter().map(Scripted::seed);
    Client::connect(seeds, ClientConfig::new().retry(retry)).await.unwrap()
}

async fn read(client: &Client) -> Result<Option<Entry>, CallError> {
    let at = path("p");
    let read = client.get_entry_with(&at, ReadMode::Freshest);
    rt::timeout(PATIENCE, read).await.expect("the read waits")
}

#[test]
fn a_node_that_has_left_is_not_asked_for_a_majority() {
    block_on(async {
        let nodes = nodes(3);
        nodes.iter().for_each(|node| node.change(|state| state.left = vec!["s3"]));
        nodes[0].change(|state| state.held = Some(("new", 2)));
        // The other one is asked again at once, not only when the silence of the third one is over.
        nodes[1].change(|state| state.refuses = vec!["not_ready"]);
        nodes[2].change(|state| state.is_silent = true);
        let client = connect(&nodes, None).await;
        assert_eq!(read(&client).await.unwrap().unwrap().tock, 2);
        assert_eq!(nodes[1].asked("get_value"), 2);
        assert_eq!(nodes[2].asked("get_value"), 0);
        client.close().await;
    });
}

#[test]
fn the_answer_of_a_node_that_has_left_is_none_of_a_majority() {
    block_on(async {
        let nodes = nodes(3);
        nodes.iter().for_each(|node| node.change(|state| state.left = vec!["s3"]));
        nodes[1].change(|state| state.held = None);
        let client = connect(&nodes, Some(2)).await;
        let error = read(&client).await.unwrap_err();
        let CallError::NoMajority { answered, needed, nodes, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((answered, needed, nodes), (1, 2, 2));
        client.close().await;
    });
}

#[test]
fn a_node_that_leaves_in_the_middle_of_a_read_of_a_majority_is_not_waited_for() {
    for hangs_up in [true, false] {
        block_on(async {
            let nodes = nodes(3);
            nodes[0].change(|state| state.held = Some(("new", 2)));
            // So that the first round ends only when the one that leaves has answered, or is gone.
            nodes[1].change(|state| state.refuses = vec!["not_ready"]);
            nodes[2].change(|state| (state.hangs_up, state.held) = (hangs_up, None));
            let client = connect(&nodes, None).await;
            assert_eq!(read(&client).await.unwrap().unwrap().tock, 2);
            assert_eq!(nodes[1].asked("get_value"), 2);
            client.close().await;
        });
    }
}

#[test]
fn a_majority_that_is_missing_names_who_does_not_let_the_client_in() {
    block_on(async {
        let nodes = nodes(3);
        nodes[1].change(|state| state.held = None);
        nodes[2].change(|state| state.shuts_out = true);
        let client = connect(&nodes, Some(2)).await;
        let error = read(&client).await.unwrap_err();
        assert_eq!(error.code(), Some("no_majority"), "{error}");
        let told = format!(
            "1 of 3 nodes answered, 2 must; one does not let this client in: cannot get into {}: no (2 tries)",
            nodes[2].address
        );
        assert_eq!(error.to_string(), told);
        // Without such a node, only how many have answered is told.
        nodes[2].change(|state| (state.shuts_out, state.held) = (false, None));
        let client = connect(&nodes, Some(2)).await;
        let error = read(&client).await.unwrap_err();
        assert_eq!(error.to_string(), "1 of 3 nodes answered, 2 must (2 tries)");
        client.close().await;
    });
}
