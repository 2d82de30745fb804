//! Many tasks that write and read, while the runner kills nodes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use distkv::client::{CallError, Client, HostPort, Path, PutOptions};
use distkv::rt;
use serde_json::{Value as Json, json};

use crate::settings;
use crate::shown::Failed;

/// Errors that are told.
const ERRORS_MAX: usize = 5;
/// Paths of each task, and paths that all of them write.
const PATHS: u64 = 8;

/// A storm under way.
pub(crate) struct Storm {
    shared: Arc<Shared>,
    tasks: Vec<rt::Task<()>>,
}

struct Shared {
    client: Client,
    /// One for each node, where writes go to any of them.
    nodes: Vec<Client>,
    is_over: AtomicBool,
    writes: AtomicU64,
    /// By task and path.
    acknowledged: Mutex<HashMap<(u64, u64), u64>>,
    errors: Mutex<Vec<String>>,
}

impl Storm {
    /// Begins `tasks` tasks; with `nodes`, each write goes to any of these addresses.
    pub(crate) async fn begin(client: &Client, order: &Json) -> Result<Storm, Failed> {
        let mut nodes = Vec::new();
        for node in order.get("nodes").and_then(Json::as_array).into_iter().flatten() {
            let address: Option<HostPort> = node.as_str().and_then(|text| text.parse().ok());
            let address = address.ok_or_else(|| Failed::Order(format!("{node} is no address")))?;
            let config = settings::config(&json!({ "only_seeds": true, "total_deadline": 0.5 }))?;
            nodes.push(Client::connect([address], config).await?);
        }
        let shared = Arc::new(Shared {
            client: client.clone(),
            nodes,
            is_over: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            acknowledged: Mutex::default(),
            errors: Mutex::default(),
        });
        let count = order.get("tasks").and_then(Json::as_u64).unwrap_or(64);
        let tasks = (0..count).map(|task| {
            let shared = Arc::clone(&shared);
            rt::spawn(async move { shared.work(task).await })
        });
        let tasks = tasks.collect();
        Ok(Storm { shared, tasks })
    }

    /// Ends it; what was written, and what of it is missing.
    pub(crate) async fn end(self, client: &Client) -> Result<Json, Failed> {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await;
        }
        let acknowledged = std::mem::take(
            &mut *self.shared.acknowledged.lock().unwrap_or_else(PoisonError::into_inner),
        );
        let mut missing = 0;
        for ((task, place), number) in acknowledged {
            let found: Option<(u64, u64)> = client.get(&own_path(task, place)?).await?;
            missing += u64::from(found != Some((task, number)));
        }
        for node in &self.shared.nodes {
            node.close().await;
        }
        let errors = self.shared.errors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let writes = self.shared.writes.load(Ordering::SeqCst);
        Ok(json!({ "writes": writes, "missing": missing, "errors": errors }))
    }
}

impl Shared {
    async fn work(&self, task: u64) {
        let mut number = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            number += 1;
            if let Err(error) = self.once(task, number).await {
                let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
                if errors.len() < ERRORS_MAX {
                    errors.push(error);
                }
            }
        }
    }

    /// A write of its own, one where all write, and now and then a read.
    async fn once(&self, task: u64, number: u64) -> Result<(), String> {
        let told = |error: CallError| error.to_string();
        let path = own_path(task, number % PATHS).map_err(|_| String::from("no path"))?;
        let shared =
            Path::root().push("shared").and_then(|path| path.push((number % PATHS) as i64));
        let shared = shared.map_err(|error| error.to_string())?;
        let value = (task, number);
        self.put(&path, value, &PutOptions::new().copies(1)).await.map_err(told)?;
        self.acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((task, number % PATHS), number);
        // Where all tasks write, nobody's value is expected to stay.
        self.put(&shared, value, &PutOptions::new()).await.map_err(told)?;
        self.writes.fetch_add(2, Ordering::Relaxed);
        if number.is_multiple_of(3) && self.nodes.is_empty() {
            let found: Option<(u64, u64)> = self.client.get(&path).await.map_err(told)?;
            if found != Some(value) {
                return Err(format!("{path} is {found:?}, not {value:?}"));
            }
        }
        Ok(())
    }

    async fn put(
        &self,
        path: &Path,
        value: (u64, u64),
        options: &PutOptions,
    ) -> Result<(), CallError> {
        let index = rt::random_u64().checked_rem(self.nodes.len() as u64);
        let node = index.and_then(|index| self.nodes.get(usize::try_from(index).ok()?));
        node.unwrap_or(&self.client).put_with(path, &value, options).await.map(drop)
    }
}

fn own_path(task: u64, place: u64) -> Result<Path, Failed> {
    let path = Path::root().push("storm").and_then(|path| path.push(task as i64));
    path.and_then(|path| path.push(place as i64)).map_err(|error| Failed::Order(error.to_string()))
}
