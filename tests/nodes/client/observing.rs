//! What observers, spans and counters tell of calls.

use std::io;
use std::sync::{Arc, Mutex};

use distkv::client::*;
use distkv::rt;
use distkv::testing::{PATIENCE, TestCluster, block_on};
use tracing_subscriber::fmt::format::FmtSpan;

use super::ops::{connect, path};

/// What was told, as lines.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn tell(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    /// Of one kind of call.
    fn of(&self, action: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.starts_with(action)).cloned().collect()
    }
}

impl Observer for Told {
    fn call_begins(&self, action: &str) -> Option<Box<dyn CallObserver>> {
        self.tell(format!("{action} begins"));
        Some(Box::new(OneCall { told: self.clone(), action: action.to_owned() }))
    }
}

struct OneCall {
    told: Told,
    action: String,
}

impl CallObserver for OneCall {
    fn try_begins(&mut self, node: &str, attempt: u32) {
        self.told.tell(format!("{} try {attempt} at {node}", self.action));
    }

    fn try_failed(&mut self, _: &str, attempt: u32, class: ErrorClass, _: &ClientError) {
        self.told.tell(format!("{} try {attempt}: {}", self.action, class.as_str()));
    }

    fn call_ends(&mut self, end: &CallEnd<'_>) {
        let code = end.error.and_then(CallError::code).unwrap_or("good");
        let (attempts, fate) = (end.attempts, end.fate().map(Fate::as_str));
        self.told.tell(format!("{} ends: {code}, {attempts}, {fate:?}", end.action));
    }
}

impl Drop for OneCall {
    fn drop(&mut self) {
        self.told.tell(format!("{} is over", self.action));
    }
}

/// Fails wherever it can.
struct Failing;

impl Observer for Failing {
    fn call_begins(&self, action: &str) -> Option<Box<dyn CallObserver>> {
        assert_ne!(action, "get_value", "the test wants it so");
        Some(Box::new(Failing))
    }
}

impl CallObserver for Failing {
    fn try_begins(&mut self, _: &str, _: u32) {
        panic!("the test wants it so");
    }

    fn call_ends(&mut self, _: &CallEnd<'_>) {
        panic!("the test wants it so");
    }
}

fn twice() -> RetryPolicy {
    RetryPolicy { attempts_max: Some(2), ..RetryPolicy::default() }
}

#[test]
fn an_observer_is_told_of_each_call_each_try_and_the_end() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let told = Told::default();
        let config = ClientConfig::new().observer(told.clone()).retry(twice());
        let client = connect(&cluster, config).await;
        client.put(&path("a"), &1).await.unwrap();
        let good = ["begins", "try 1 at n0", "ends: good, 1, None", "is over"];
        assert_eq!(told.of("set_value"), good.map(|line| format!("set_value {line}")));
        let new = PutOptions::new().must_be_new();
        client.put_with(&path("a"), &1, &new).await.unwrap_err();
        let refused = "set_value ends: already_exists, 1, Some(\"not_done\")";
        assert_eq!(told.of("set_value")[4..][2..4], ["set_value try 1: final", refused]);
        // A call that is given up is over, and has not ended. Nobody is there who could take a copy.
        let (a, never) = (path("a"), PutOptions::new().copies(1));
        let given_up = client.delete_with(&a, &never);
        assert!(distkv::rt::timeout(std::time::Duration::ZERO, given_up).await.is_none());
        let lines = ["begins", "try 1 at n0", "is over"];
        assert_eq!(told.of("delete_value"), lines.map(|line| format!("delete_value {line}")));
        client.get_with::<u8>(&path("a"), ReadMode::Freshest).await.unwrap();
        assert_eq!(told.of("get_value")[2], "get_value ends: good, 1, None");
        cluster.shutdown().await;
        client.get::<u8>(&path("a")).await.unwrap_err();
        let lines = told.of("get_value");
        let [.., last_try, class, end, over] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(last_try, "get_value try 2 at n0");
        assert_eq!(class, "get_value try 2: unavailable");
        assert_eq!(end, "get_value ends: unavailable, 2, Some(\"not_done\")");
        assert_eq!(over, "get_value is over");
    });
}

#[test]
fn an_observer_that_panics_stops_nothing() {
    block_on(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let client = connect(&cluster, ClientConfig::new().observer(Failing)).await;
        client.put(&path("a"), &1).await.unwrap();
        assert_eq!(client.get(&path("a")).await.unwrap(), Some(1));
        cluster.shutdown().await;
    });
}

#[test]
fn a_call_is_a_span_and_a_failed_try_an_event() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let sink = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || sink.clone())
        .finish();
    let cluster = block_on(TestCluster::start(1)).unwrap();
    let config = ClientConfig::new().observer(TracingObserver::new()).retry(twice());
    let client = block_on(connect(&cluster, config));
    // A place in the source that is first reached on another thread, by the client's own call for the table of shards,
    // while this thread alone has a subscriber, would be switched off: so it is reached before.
    block_on(async {
        client.refresh_shards().await;
        client.put(&path("before"), &1).await.unwrap();
    });
    tracing::subscriber::with_default(subscriber, || {
        block_on(async {
            client.put(&path("secret.path"), &"secret value").await.unwrap();
            // The node's words tell all of it.
            let other = PutOptions::new().prev(Value::new(b"\xacsecret guess").unwrap());
            let error = client.put_with(&path("secret.path"), &1, &other).await.unwrap_err();
            assert!(error.to_string().contains("secret value"), "{error}");
            cluster.shutdown().await;
            client.get::<String>(&path("secret.path")).await.unwrap_err();
        });
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let spans = lines.iter().filter(|line| line["fields"]["message"] == "close");
    let spans: Vec<_> = spans.map(|line| &line["span"]).collect();
    let put = spans.iter().find(|span| span["db.operation.name"] == "set_value").unwrap();
    assert_eq!((&put["name"], &put["db.system.name"]), (&"distkv.call".into(), &"distkv".into()));
    assert_eq!((&put["distkv.node"], &put["distkv.attempts"]), (&"n0".into(), &1.into()));
    assert!(put.get("error.type").is_none());
    let get = spans.iter().find(|span| span["db.operation.name"] == "get_value").unwrap();
    assert_eq!((&get["error.type"], &get["distkv.attempts"]), (&"unavailable".into(), &2.into()));
    assert_eq!(
        (&get["distkv.fate"], &get["otel.status_code"]),
        (&"not_done".into(), &"ERROR".into())
    );
    let failed = lines.iter().filter(|line| line["fields"]["message"] == "a try has failed");
    let failed: Vec<_> = failed.map(|line| &line["fields"]).collect();
    let types: Vec<_> = failed.iter().map(|fields| &fields["error.type"]).collect();
    assert!(types.contains(&&"data_mismatch".into()), "{text}");
    let classes: Vec<_> = failed.iter().map(|fields| &fields["distkv.class"]).collect();
    assert!(classes.len() >= 2 && classes.iter().all(|class| class.is_string()), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn each_node_has_counters_and_a_histogram() {
    block_on(async {
        let mut cluster = TestCluster::start(2).await.unwrap();
        let client = connect(&cluster, ClientConfig::new()).await;
        for i in 0..40_i64 {
            client.put(&Path::root().push(i).unwrap(), &i).await.unwrap();
        }
        let router = client.stats().router;
        assert_eq!(router.shards.values().sum::<u64>(), u64::from(SHARD_COUNT));
        assert_eq!(router.shards.keys().collect::<Vec<_>>(), ["n0", "n1"]);
        let told = router.nodes;
        assert_eq!(told.keys().collect::<Vec<_>>(), ["n0", "n1"]);
        // The table of shards is asked for, too.
        assert!(told.values().map(|node| node.tries).sum::<u64>() >= 40, "{told:?}");
        for node in told.values() {
            assert_eq!(node.latency.iter().sum::<u64>(), node.tries - node.failures, "{told:?}");
            assert!(node.quantile(0.99) >= node.quantile(0.5) && !node.quantile(0.5).is_zero());
        }
        drop(cluster.take(0));
        // Either a call fails at it, or the client hears from n1 that it is gone before any call does.
        let has_noticed = || {
            let router = client.stats().router;
            router.nodes["n0"].failures > told["n0"].failures || !router.shards.contains_key("n0")
        };
        let asking = async {
            loop {
                for i in 0..40_i64 {
                    client.put(&Path::root().push(i).unwrap(), &i).await.unwrap();
                }
                if has_noticed() {
                    return;
                }
            }
        };
        assert!(rt::timeout(PATIENCE, asking).await.is_some(), "{:?}", client.stats());
        let later = client.stats().router.nodes;
        assert!(later["n1"].tries >= told["n1"].tries + 40, "{later:?}");
        for node in later.values() {
            assert_eq!(node.latency.iter().sum::<u64>(), node.tries - node.failures, "{later:?}");
        }
        cluster.shutdown().await;
    });
}
