//! What is measured at several nodes: how fast and at what cost changes spread, how a fresh one gets
//! everything, and how soon a crash is known.

use distkv_bench::keys::Values;
use distkv_bench::load::LATENCY_MAX;
use distkv_bench::measure::{fill, measure_those};
use distkv_bench::wire::{Protocol, key_bytes};
use distkv_command::error::CliError;
use distkv_runtime as rt;
use hdrhistogram::Histogram;

use super::lab::{Cores, Lab, PATIENCE, Server};
use super::one::usage_of;
use super::talk::Talk;
use super::{Plan, VALUE_BYTES};
use crate::store_protocol::contains;
use crate::stores::Store;
use crate::stores::distkv::state_of;

/// How many nodes there are where changes spread.
const NODES: usize = 3;
/// Changes that are timed, and how many go before.
const CHANGES: u64 = 10_000;
const WARM_UP_CHANGES: u64 = 500;
/// How many keys are set where changes spread.
const KEYS: u64 = 100_000;
/// How many nodes there are where one of them is ended.
const CRASH_NODES: usize = 5;

/// Microseconds from a set until a watcher of another node has it: p50 and p99. One at a time. Each of
/// the others is watched for its part of the changes: whom a server sends to first makes a difference.
pub(super) fn propagation(
    store: &Store,
    plan: Plan,
    lab: &Lab,
) -> Result<Vec<Option<f64>>, CliError> {
    let servers = store.start(NODES, lab, Cores::All)?;
    let (first, others) = servers.split_first().ok_or_else(|| store.failed("there is none"))?;
    let protocol = store.protocol();
    let mut writer = Talk::connect(protocol, first.address)?;
    let values = Values::new(VALUE_BYTES, 1);
    let failed = |error: hdrhistogram::CreationError| CliError::Failure(error.to_string());
    let mut times = Histogram::<u64>::new_with_bounds(1, LATENCY_MAX, 3).map_err(failed)?;
    let each = CHANGES.min(plan.keys) / others.len().max(1) as u64;
    for other in others {
        let mut watcher = Talk::connect(protocol, other.address)?;
        watcher.watch()?;
        for n in 0..WARM_UP_CHANGES + each {
            let value = values.at(n as usize);
            let began = rt::now_ns();
            writer.begins(|tag, out| protocol.set(n, value, tag, out))?;
            watcher.until(&key_bytes(n))?;
            let taken = rt::now_ns() - began;
            writer.ends()?;
            if n >= WARM_UP_CHANGES {
                times.saturating_record(taken);
            }
        }
    }
    let us = |percentile| Some(times.value_at_percentile(percentile) as f64 / 1e3);
    Ok(vec![us(50.0), us(99.0)])
}

/// CPU seconds of all nodes per million sets, until all of them have them; thousands of sets per second.
pub(super) fn replication(
    store: &Store,
    plan: Plan,
    lab: &Lab,
) -> Result<Vec<Option<f64>>, CliError> {
    let servers = store.start(NODES, lab, Cores::All)?;
    let first = servers.first().ok_or_else(|| store.failed("there is none"))?;
    let (targets, keys) = ([first.address], KEYS.min(plan.keys));
    fill(&targets, store.protocol(), &plan.shape(1, 1, 0.0, keys))?;
    all_have(store, &servers, keys, 1)?;
    // All of it is counted, since what is on the way when counting begins would be counted, too.
    let mut shape = plan.shape(50, 16, 0.0, keys);
    shape.warm_up = std::time::Duration::ZERO;
    let before = usage_of(&servers);
    let measured = measure_those(&targets, &[], store.protocol(), &shape)?;
    all_have(store, &servers, keys, 2)?;
    let after = usage_of(&servers);
    if measured.tally.errors > 0 {
        return Err(store.failed("it answers with errors"));
    }
    let sets = measured.tally.answers().max(1) as f64;
    let cpu = before.zip(after).map(|(a, b)| (b.cpu_s - a.cpu_s) * 1e6 / sets);
    Ok(vec![cpu, Some(measured.per_second() / 1e3)])
}

/// Sets one more key, and waits until every node has it: then they have what came before it.
pub(crate) fn all_have(
    store: &Store,
    servers: &[Server],
    key: u64,
    nth: u64,
) -> Result<(), CliError> {
    let (protocol, value) = (store.protocol(), format!("mark {nth}"));
    let Some((first, others)) = servers.split_first() else { return Ok(()) };
    let mut talk = Talk::connect(protocol, first.address)?;
    talk.asks(|tag, out| protocol.set(key, value.as_bytes(), tag, out))?;
    for other in others {
        let mut talk = Talk::connect(protocol, other.address)?;
        let until = rt::now_ns() + PATIENCE.as_nanos() as u64;
        loop {
            let answer = talk.asks(|tag, out| protocol.get(key, tag, out))?;
            if contains(&answer, value.as_bytes()) {
                break;
            }
            if rt::now_ns() > until {
                return Err(store.failed("a change does not get to all nodes"));
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    Ok(())
}

/// Seconds from the start of a fresh node's process until it has all entries.
pub(super) fn fresh(store: &Store, plan: Plan, lab: &Lab) -> Result<Vec<Option<f64>>, CliError> {
    let servers = store.start(1, lab, Cores::All)?;
    let first = servers.first().ok_or_else(|| store.failed("there is none"))?;
    let shape = plan.shape(1, 1, 0.0, plan.keys);
    fill(&[first.address], store.protocol(), &shape)?;
    let began = rt::now_ns();
    let _fresh = store.join(first, plan.keys, lab, Cores::All)?;
    Ok(vec![Some((rt::now_ns() - began) as f64 / 1e9)])
}

/// Seconds from the end of a node's process until all others say that it is down.
pub(super) fn crash(store: &Store, lab: &Lab) -> Result<Vec<Option<f64>>, CliError> {
    let mut servers = store.start(CRASH_NODES, lab, Cores::All)?;
    let name = format!("n{}", servers.len());
    let Some(victim) = servers.pop() else { return Err(store.failed("there is none")) };
    let mut talks = Vec::new();
    for server in &servers {
        talks.push(Talk::connect(store.protocol(), server.address)?);
    }
    until_all_say(store, &mut talks, &name, "up")?;
    let began = rt::now_ns();
    drop(victim);
    until_all_say(store, &mut talks, &name, "down")?;
    Ok(vec![Some((rt::now_ns() - began) as f64 / 1e9)])
}

fn until_all_say(
    store: &Store,
    talks: &mut [Talk],
    name: &str,
    state: &str,
) -> Result<(), CliError> {
    let until = rt::now_ns() + PATIENCE.as_nanos() as u64;
    for talk in talks {
        while state_of(talk, name)? != state {
            if rt::now_ns() > until {
                return Err(store.failed(&format!("not everybody says that {name} is {state}")));
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    Ok(())
}
