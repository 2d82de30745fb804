//! One step of a scenario: what a client is to do and to tell, what happens to a node, or what a scripted node is
//! asked about its clients.

use serde::Deserialize;
use serde_json::Value as Json;

use crate::scenario::{CLIENT, Fields, Nodes, taken};

/// What a client may be told to do in a step, with the fields of each order. The README says what they mean.
const ORDERS: &[(&str, &[&str])] = &[
    ("batch", &["ops"]),
    ("cancel_everywhere", &["path"]),
    ("changes", &[]),
    ("children", &["path"]),
    ("close", &[]),
    ("collect", &["count", "patience"]),
    ("delete", WRITE),
    ("entry", &["path"]),
    ("fork", &["path"]),
    ("get", &["path", "read", "timeout"]),
    ("get_bytes", &["path"]),
    ("get_raw", &["path"]),
    ("gets", &["path", "count", "timeout"]),
    ("left", &[]),
    ("listen", &[]),
    ("next", &[]),
    ("other_loop", &["path"]),
    ("prefer", &["path", "node"]),
    ("preferred", &["path"]),
    ("put", WRITE),
    ("put_bytes", &["path", "size"]),
    ("put_raw", &["path", "hex"]),
    ("puts", &["path", "count"]),
    ("refresh", &[]),
    ("stats", &[]),
    ("tree", &["path"]),
    ("unwatch", &[]),
    ("view", &[]),
    ("watch", &["path"]),
];

const WRITE: &[&str] = &[
    "path",
    "value",
    "if_new",
    "if_version",
    "if_value",
    "write_id",
    "no_id",
    "copies",
    "idempotent",
    "timeout",
];

/// A step.
pub(crate) struct Step {
    /// As the file has it, to tell of it.
    pub(crate) text: String,
    pub(crate) what: What,
}

/// What a step is.
pub(crate) enum What {
    Order(Box<Order>),
    Event(Event),
    Requests(Requests),
    Accepted(Accepted),
}

/// What a client does, and what it is to tell.
#[derive(Default)]
pub(crate) struct Order {
    /// What the driver is told.
    pub(crate) order: Fields,
    pub(crate) expect: Option<Json>,
    /// This counts, and not `expect`, where both are there.
    pub(crate) error: Option<Json>,
    /// No answer on the way may fit this.
    pub(crate) never: Option<Json>,
    /// The version in the answer gets this name.
    pub(crate) save: Option<String>,
    /// It is done again until the answer fits.
    pub(crate) until: bool,
}

/// What happens.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Event {
    /// A client that is late connects.
    Connect(String),
    /// A real node is killed.
    Kill(String),
    /// It comes back.
    Rejoin(String),
    /// It stands still.
    Freeze(String),
    /// It goes on.
    Thaw(String),
    /// The network's key is replaced.
    Rotate(bool),
    /// A user's secret is replaced.
    Secret(Secret),
    Storm(Storm),
    /// The scripted nodes report this one of them as gone.
    Down(String),
}

/// The new secret of a user.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Secret {
    pub(crate) user: String,
    pub(crate) is: String,
}

/// Tasks write and read while nodes are killed and come back.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Storm {
    pub(crate) tasks: u64,
    pub(crate) seconds: f64,
    /// Seconds from one kill to the next.
    pub(crate) every: f64,
}

/// So many requests of an action have come to a scripted node.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requests {
    pub(crate) requests: String,
    pub(crate) action: String,
    pub(crate) count: usize,
    /// All of them have one write id.
    #[serde(default)]
    pub(crate) same_id: bool,
    /// This is what they say of the client's order of changes, 0 where nothing; a batch has one for each operation.
    pub(crate) above: Option<Vec<u64>>,
    pub(crate) own: Option<Vec<u64>>,
    /// This is what the ids of all their writes say: their numbers, and below which numbers the client waits for none.
    pub(crate) places: Option<Vec<[u32; 2]>>,
    /// Until when they say that they count, each between two times of the node's clock; empty: it says nothing of that.
    pub(crate) by: Option<Vec<Vec<u64>>>,
    #[serde(default)]
    pub(crate) until: bool,
}

/// A scripted node has accepted so many connections at most.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accepted {
    pub(crate) accepted: String,
    pub(crate) most: usize,
}

impl Step {
    /// A step of one language.
    pub(crate) fn parse(fields: Fields) -> Result<Step, String> {
        let text = Json::Object(fields.clone()).to_string();
        let what = match fields {
            fields if fields.contains_key("do") => What::Order(Box::new(Order::parse(fields)?)),
            fields if fields.contains_key("requests") => What::Requests(read(fields)?),
            fields if fields.contains_key("accepted") => What::Accepted(read(fields)?),
            fields => What::Event(read(fields)?),
        };
        Ok(Step { text, what })
    }

    /// The client that is to be there from the beginning for this.
    pub(crate) fn client(&self) -> Option<&str> {
        match &self.what {
            What::Order(order) => Some(order.client()),
            _ => None,
        }
    }

    /// Whether the scenario has the node, and nodes of the kind, that this needs.
    pub(crate) fn check(&self, nodes: &Nodes) -> Result<(), String> {
        let is_scripted = |name: &String| match nodes {
            Nodes::Scripted(nodes) => nodes.iter().any(|node| node.name == *name),
            Nodes::Real(_) => false,
        };
        let is_real = |name: &String| match nodes {
            Nodes::Scripted(_) => false,
            Nodes::Real(nodes) => (1..=nodes.count).any(|number| format!("n{number}") == *name),
        };
        let is_possible = match &self.what {
            What::Order(_) | What::Event(Event::Connect(_)) => true,
            What::Requests(Requests { requests: name, .. })
            | What::Accepted(Accepted { accepted: name, .. })
            | What::Event(Event::Down(name)) => is_scripted(name),
            What::Event(
                Event::Kill(name) | Event::Rejoin(name) | Event::Freeze(name) | Event::Thaw(name),
            ) => is_real(name),
            What::Event(Event::Rotate(is)) => {
                matches!(nodes, Nodes::Real(nodes) if nodes.key && *is)
            }
            What::Event(Event::Secret(_)) => matches!(nodes, Nodes::Real(nodes) if nodes.users),
            What::Event(Event::Storm(_)) => {
                matches!(nodes, Nodes::Real(nodes) if !(nodes.key || nodes.users || nodes.tls))
            }
        };
        match is_possible {
            true => Ok(()),
            false => Err(format!("the scenario has not the node for {}", self.text)),
        }
    }
}

impl Order {
    fn parse(mut order: Fields) -> Result<Order, String> {
        let expect = order.remove("expect");
        let (error, never) = (order.remove("error"), order.remove("never"));
        let save = taken(&mut order, "save")?;
        let until = taken(&mut order, "until")?.unwrap_or(false);
        let what = order.get("do").and_then(Json::as_str).unwrap_or_default();
        let known = ORDERS.iter().find(|(name, _)| *name == what);
        let (_, fields) = known.ok_or_else(|| format!("a client cannot do {what:?}"))?;
        let is_known = |name: &&String| {
            ["do", "client"].contains(&name.as_str()) || fields.contains(&name.as_str())
        };
        if let Some(name) = order.keys().find(|name| !is_known(name)) {
            return Err(format!("`{what}` has no field `{name}`"));
        }
        if order.get("client").is_some_and(|client| !client.is_string()) {
            return Err("`client` is no name".to_owned());
        }
        Ok(Order { order, expect, error, never, save, until })
    }

    pub(crate) fn client(&self) -> &str {
        self.order.get("client").and_then(Json::as_str).unwrap_or(CLIENT)
    }

    /// What the client is to do.
    pub(crate) fn what(&self) -> &str {
        self.order.get("do").and_then(Json::as_str).unwrap_or_default()
    }
}

fn read<T>(fields: Fields) -> Result<T, String>
where
    T: for<'de> Deserialize<'de>,
{
    let text = Json::Object(fields.clone());
    serde_json::from_value(Json::Object(fields)).map_err(|error| format!("{text}: {error}"))
}
