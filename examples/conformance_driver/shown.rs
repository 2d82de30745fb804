//! What the client gives back, as JSON.

use distkv::client::chain::Chain;
use distkv::client::smart::{BatchReply, Repeated};
use distkv::client::stats::ClientStats;
use distkv::client::{CallError, Change, Entry, WatchEvent, Written};
use distkv::model::value::Value;
use serde_json::{Value as Json, json};

/// Why an order was not carried out.
pub(crate) enum Failed {
    /// The client says so.
    Call(CallError),
    /// There is no value, which this client tells as `None`.
    Missing,
    /// The order is none.
    Order(String),
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Failed {
        Failed::Call(error)
    }
}

impl Failed {
    /// With the class that all languages have.
    pub(crate) fn shown(&self) -> Json {
        let Failed::Call(error) = self else {
            return json!({
                "class": "KeyNotFound", "code": "key_not_found", "fate": "not_done", "attempts": 1, "node": null,
            });
        };
        let (class, code) = match error {
            CallError::Refused { .. } if error.is_precondition() => ("Precondition", error.code()),
            CallError::Refused { .. } | CallError::NoAccess { .. } => ("Refused", error.code()),
            CallError::Unavailable { .. } | CallError::BrokenOff { .. } => {
                ("Unavailable", error.code())
            }
            CallError::FateUnknown { .. } => ("FateUnknown", error.code()),
            CallError::NoMajority { .. } => ("NoMajority", error.code()),
            CallError::Value(_) => ("BadValue", error.code()),
            CallError::ReadMode(_) | CallError::Usage(_) => ("Usage", error.code()),
            CallError::Closed(_) => ("Closed", error.code()),
        };
        let fate = error.fate().as_str();
        json!({
            "class": class, "code": code, "fate": fate, "attempts": error.attempts(), "node": error.node(),
        })
    }
}

/// A value that has a form in JSON.
pub(crate) fn value(value: Option<&Value>) -> Result<Json, Failed> {
    let Some(value) = value else { return Ok(Json::Null) };
    let entry = Entry {
        value: Some(value.clone()),
        chain: None,
        tock: 0,
        time_ms: None,
        node: String::new(),
    };
    Ok(entry.get()?)
}

/// A version, as this driver takes it back.
pub(crate) fn version(chain: Option<&Chain>) -> Json {
    chain.map_or(Json::Null, |chain| {
        let mut bytes = Vec::new();
        chain.encode(&mut bytes);
        json!(hex(&bytes))
    })
}

pub(crate) fn entry(entry: &Entry) -> Result<Json, Failed> {
    Ok(json!({
        "value": value(entry.value.as_ref())?,
        "deleted": entry.value.is_none(),
        "version": version(entry.chain.as_ref()),
    }))
}

pub(crate) fn written(written: &Written) -> Json {
    let repeated = match written.repeated {
        Repeated::No => "no",
        Repeated::Yes => "yes",
        Repeated::Maybe => "maybe",
    };
    json!({
        "changed": written.changed, "repeated": repeated, "node": written.node, "attempts": written.attempts,
        "version": version(written.chain.as_ref()),
    })
}

pub(crate) fn reply(reply: &BatchReply) -> Result<Json, Failed> {
    Ok(match reply {
        BatchReply::Read(found) => entry(found)?,
        BatchReply::Written(done) => written(done),
        BatchReply::Refused(error) => {
            json!({ "code": error.code(), "fate": error.fate().as_str() })
        }
    })
}

pub(crate) fn event(event: &WatchEvent) -> Result<Json, Failed> {
    Ok(match event {
        WatchEvent::Change(Change { path, value: now, .. }) => json!({
            "event": "change", "path": path.to_string(), "value": value(now.as_ref())?, "deleted": now.is_none(),
        }),
        WatchEvent::UpToDate => json!({ "event": "uptodate" }),
        WatchEvent::Resumed { .. } => json!({ "event": "resumed" }),
        WatchEvent::Restarted => json!({ "event": "restarted" }),
    })
}

pub(crate) fn stats(stats: &ClientStats) -> Json {
    let ClientStats { router, pool, topology, retry, reads, watches, shards, tasks } = stats;
    json!({
        "tasks": tasks,
        "router": {
            "to_preferred": router.to_preferred, "to_others": router.to_others, "overrides": router.overrides,
        },
        "pool": {
            "nodes": pool.nodes, "connections": pool.connections, "open_requests": pool.open_requests,
            "opened": pool.opened, "failed": pool.failed, "failures_remembered": pool.failures_remembered,
            "lost": pool.lost, "idle_closed": pool.idle_closed, "probes": pool.probes,
            "silent_closed": pool.silent_closed,
        },
        "topology": {
            "epoch": topology.epoch, "nodes": topology.nodes, "live": topology.live, "views": topology.views,
            "lost": topology.lost, "moved": topology.moved, "seeds_only": topology.seeds_only,
        },
        "retry": {
            "calls": retry.calls, "retries": retry.retries, "unavailable": retry.unavailable,
            "overload": retry.overload, "aborted": retry.aborted, "timed_out": retry.timed_out,
            "fate_unknown": retry.fate_unknown, "refused": retry.refused, "deadlines": retry.deadlines,
            "unsafe_to_retry": retry.unsafe_to_retry,
        },
        "reads": { "stale_answers": reads.stale_answers, "stale_taken": reads.stale_taken },
        "watches": {
            "lost": watches.lost, "resumed": watches.resumed, "restarted": watches.restarted,
            "repeats": watches.repeats,
        },
        "shards": { "rows": shards.rows, "fetches": shards.fetches, "failures": shards.failures },
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Result<Vec<u8>, Failed> {
    let pair = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(pair).collect();
    bytes.ok_or_else(|| Failed::Order(format!("{text:?} is not hexadecimal")))
}
