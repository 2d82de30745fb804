//! What an order says about how a client is to behave.

use std::time::Duration;

use distkv::client::topology::TopologyConfig;
use distkv::client::{Access, ClientConfig, Login, OwnNetwork, PoolConfig, RetryPolicy};
use distkv::rt;
use distkv_tls::{CaHash, ClientTls, Clock, Trust};
use serde_json::Value as Json;

use crate::shown::{Failed, unhex};

/// A number of seconds.
pub(crate) fn seconds(told: &Json) -> Option<Duration> {
    Duration::try_from_secs_f64(told.as_f64()?).ok()
}

/// The client's configuration by the names of its fields; seconds.
pub(crate) fn config(told: &Json) -> Result<ClientConfig, Failed> {
    let mut pool = PoolConfig::default();
    let mut retry = RetryPolicy::default();
    let mut topology = TopologyConfig::default();
    let mut access = Access::default();
    let mut config = ClientConfig::new();
    let (mut watch_paths, mut watch_bytes) = (65_536, 16 << 20);
    for (name, value) in told.as_object().into_iter().flatten() {
        let wrong = || Failed::Order(format!("the setting {name} cannot be {value}"));
        let time = || seconds(value).ok_or_else(wrong);
        let number = || value.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or_else(wrong);
        match name.as_str() {
            "initial_delay" => retry.initial_delay = time()?,
            "delay_max" => retry.delay_max = time()?,
            "total_deadline" => retry.total_deadline = time()?,
            "try_deadline" => retry.try_deadline = time()?,
            "attempts_max" => {
                retry.attempts_max = Some(u32::try_from(number()?).map_err(|_| wrong())?)
            }
            "idle_close" => pool.idle_close = time()?,
            "failure_memory" => pool.failure_memory = time()?,
            "failure_memory_max" => pool.failure_memory_max = time()?,
            "probe_after" => pool.probe_after = time()?,
            "probe_timeout" => pool.probe_timeout = time()?,
            "connect_timeout" => pool.connect_timeout = time()?,
            "connections_per_node" => pool.connections_per_node = number()?,
            "busy_at" => pool.busy_at = number()?,
            "connect_deadline" => config = config.connect_deadline(time()?),
            "own_write_patience" => config = config.own_write_patience(time()?),
            "watch_patience" => config = config.watch_patience(time()?),
            "shard_table_age" => config = config.shard_table_age(time()?),
            "own_writes_max" => config = config.own_writes_max(number()?),
            "watch_paths_max" => watch_paths = number()?,
            "watch_bytes_max" => watch_bytes = number()?,
            "write_ids" => config = config.write_ids(value.as_bool().ok_or_else(wrong)?),
            "first_view_timeout" => topology.first_view_timeout = time()?,
            "only_seeds" => topology.only_seeds = value.as_bool().ok_or_else(wrong)?,
            "network" => {
                access = access.to_network(OwnNetwork::named(value.as_str().ok_or_else(wrong)?));
            }
            "login" => {
                let field = |name: &str| value.get(name).and_then(Json::as_str);
                let user = field("user").ok_or_else(wrong)?;
                access = access.log_in(Login::user(field("method"), user, field("secret")));
            }
            "tls" => access = access.by_tls(tls(value.as_str().ok_or_else(wrong)?)?),
            _ => return Err(Failed::Order(format!("there is no setting {name}"))),
        }
    }
    let config = config.access(access).pool(pool).retry(retry).topology(topology);
    Ok(config.watch_memory(watch_paths, watch_bytes))
}

/// From a file of CAs, or the hash of one.
fn tls(told: &str) -> Result<ClientTls, Failed> {
    let wrong = |why: &dyn std::fmt::Display| Failed::Order(format!("no TLS by {told}: {why}"));
    let trust = if told.ends_with(".pem") {
        let text = std::fs::read(told).map_err(|error| wrong(&error))?;
        Trust::pem(&text).map_err(|error| wrong(&error))?
    } else {
        let hash = unhex(told)?.try_into().map_err(|_| wrong(&"a hash has 32 bytes"))?;
        Trust::hash(CaHash(hash))
    };
    let clock = Clock::new(|| rt::wall_clock_ms() / 1_000);
    ClientTls::new(trust, None, clock).map_err(|error| wrong(&error))
}
