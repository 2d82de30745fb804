//! Where a write with a condition goes when what it builds on is at a node that the others call down, and that clients reach
//! all the same. The nodes are played.

use std::time::Duration;

use distkv::client::smart::Batch;
use distkv::client::{
    CallError, Client, ClientConfig, Fate, PutOptions, ReadMode, RetryPolicy, Written,
};
use distkv::model::path::Path;
use distkv::testing::block_on;

use super::super::ops::path;
use super::super::topology::scripted::Scripted;

/// Two live nodes, and one that they call down and that alone has this client's change.
struct Split {
    client: Client,
    at: Path,
    live: [Scripted; 2],
    apart: Scripted,
}

impl Split {
    async fn new(retry: RetryPolicy) -> Split {
        let nodes = ["s1", "s2", "s3"].map(Scripted::start);
        let told: Vec<_> = ["s1", "s2", "s3"]
            .into_iter()
            .zip(&nodes)
            .map(|(name, node)| (name.to_owned(), node.address.clone()))
            .collect();
        for node in &nodes {
            node.change(|state| (state.told, state.down) = (told.clone(), vec!["s3"]));
        }
        let [one, two, apart] = nodes;
        let live = [one, two];
        for node in &live {
            node.change(|state| state.refuses = vec!["not_ready"]);
        }
        apart.change(|state| state.held = Some(("new", 9)));
        // The one that is apart would say that it is live itself.
        let seeds = live.iter().map(Scripted::seed);
        let client = Client::connect(seeds, ClientConfig::new().retry(retry)).await.unwrap();
        let at = path("p");
        assert_eq!(client.put(&at, &"new").await.unwrap().node, "s3");
        Split { client, at, live, apart }
    }

    /// Changes what is read now, if nobody has changed it meanwhile.
    async fn change(&self, mode: ReadMode) -> Result<Written, CallError> {
        let entry = self.client.get_entry_with(&self.at, mode).await.unwrap().unwrap();
        let options = PutOptions::new().chain(entry.chain.unwrap());
        self.client.put_with(&self.at, &"newer", &options).await
    }

    fn hold(&self, tock: u64) {
        for node in &self.live {
            node.change(|state| state.held = Some(("later", tock)));
        }
    }
}

fn where_it_went(written: Result<Written, CallError>) -> (String, u32) {
    written.map(|written| (written.node, written.attempts)).unwrap()
}

#[test]
fn what_was_read_at_a_node_that_is_called_down_is_changed_there() {
    block_on(async {
        let split = Split::new(RetryPolicy::default()).await;
        for mode in [ReadMode::Preferred, ReadMode::Freshest] {
            assert_eq!(where_it_went(split.change(mode).await), (String::from("s3"), 1));
        }
        // So is what this client has changed there, whatever the condition is.
        for options in [
            PutOptions::new().must_be_new(),
            PutOptions::new().prev(b"\xc0"[..].try_into().unwrap()),
        ] {
            let written = split.client.put_with(&split.at, &1, &options).await;
            assert_eq!(where_it_went(written), (String::from("s3"), 1));
            let written = split.client.delete_with(&split.at, &options).await;
            assert_eq!(where_it_went(written), (String::from("s3"), 1));
        }
        let mut batch = Batch::new();
        batch.delete_with(&split.at, &PutOptions::new().must_be_new());
        let before = split.apart.asked("batch");
        split.client.batch(&batch).await.unwrap();
        assert_eq!(split.apart.asked("batch"), before + 1);
        // Without a condition, and with that of another path, a live node takes it.
        let other = PutOptions::new().must_be_new();
        assert_ne!(split.client.put_with(&path("q"), &1, &other).await.unwrap().node, "s3");
        split.hold(9);
        assert_ne!(split.client.put(&split.at, &1).await.unwrap().node, "s3");
        assert_ne!(split.change(ReadMode::Preferred).await.unwrap().node, "s3");
        split.client.close().await;
    });
}

#[test]
fn once_a_live_node_has_it_or_something_later_it_is_changed_there() {
    block_on(async {
        let split = Split::new(RetryPolicy::default()).await;
        assert_eq!(where_it_went(split.change(ReadMode::Preferred).await), (String::from("s3"), 1));
        split.hold(9);
        let (node, attempts) = where_it_went(split.change(ReadMode::Preferred).await);
        assert!((node != "s3", attempts) == (true, 1), "{node}");
        split.client.close().await;
    });
}

#[test]
fn where_that_node_does_not_answer_the_next_one_is_asked_and_the_fate_is_told() {
    block_on(async {
        let try_deadline = Duration::from_millis(300);
        let split = Split::new(RetryPolicy { try_deadline, ..RetryPolicy::default() }).await;
        let entry = split.client.get_entry(&split.at).await.unwrap().unwrap();
        split.apart.change(|state| state.is_silent = true);
        for node in &split.live {
            node.change(|state| state.refuses = vec!["chain_mismatch"]);
        }
        let options = PutOptions::new().chain(entry.chain.unwrap());
        let error = split.client.put_with(&split.at, &1, &options).await.unwrap_err();
        assert!(error.is_precondition(), "{error}");
        assert_eq!((error.fate(), error.attempts()), (Fate::Unknown, 2));
        assert_eq!(split.apart.asked("set_value"), 2);
        split.client.close().await;
    });
}
