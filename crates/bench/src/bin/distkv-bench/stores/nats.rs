//! NATS and its key-value buckets: the text protocol, and how servers with JetStream are started.
//!
//! A bucket is a stream of JetStream that keeps the last message of each subject below `$KV.bench.`; a
//! put is a publication that is acknowledged. Which replica leads is chosen by the servers; clients
//! are not told, and so writes go to the first server whoever leads.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use distkv_bench::wire::{Answer, KEY_BYTES, Protocol, Tag, WireError};
use distkv_command::error::CliError;

use super::{Place, Store};
use crate::compare::lab::{Cores, Lab, Server};
use crate::compare::talk::Talk;
use crate::store_protocol::{StoreProtocol, contains};

/// Longest line of an answer that is waited for.
const LINE_BYTES_MAX: usize = 64 << 10;
/// What answers are sent to: then the connection's number and the request's.
const INBOX: &str = "_INBOX.";
/// The subscription of answers, and that of what is watched.
const ANSWERS: u64 = 1;
const DELIVERIES: u64 = 2;
/// How long it takes until a bucket is asked for again.
const AGAIN: Duration = Duration::from_millis(500);
/// What is no answer of it.
const NOT_NATS: WireError = WireError::not("the protocol of NATS");

pub(crate) fn hello(connection: u64, out: &mut Vec<u8>) {
    let options = r#"{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}"#;
    let text = format!("CONNECT {options}\r\nSUB {INBOX}{connection}.* {ANSWERS}\r\n");
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn get(key: &[u8; KEY_BYTES], tag: Tag, out: &mut Vec<u8>) {
    publish(&[b"$JS.API.DIRECT.GET.KV_bench.$KV.bench.", key], tag, &[], out);
}

pub(crate) fn set(key: &[u8; KEY_BYTES], value: &[u8], tag: Tag, out: &mut Vec<u8>) {
    publish(&[b"$KV.bench.", key], tag, value, out);
}

/// Asks for a consumer that is pushed messages: new ones, or the last of each subject.
pub(crate) fn consume(policy: &str, connection: u64, out: &mut Vec<u8>) {
    let inbox = format!("_DELIVER.{connection}");
    out.extend_from_slice(format!("SUB {inbox} {DELIVERIES}\r\n").as_bytes());
    let config = format!(
        r#"{{"stream_name":"KV_bench","config":{{"deliver_policy":"{policy}","deliver_subject":"{inbox}","ack_policy":"none","replay_policy":"instant","filter_subject":"$KV.bench.>","max_deliver":1,"mem_storage":true,"num_replicas":1}}}}"#
    );
    let tag = Tag { connection, seq: 1 };
    publish(&[b"$JS.API.CONSUMER.CREATE.KV_bench"], tag, config.as_bytes(), out);
}

fn publish(subject: &[&[u8]], tag: Tag, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"PUB ");
    subject.iter().for_each(|part| out.extend_from_slice(part));
    let Tag { connection, seq } = tag;
    let rest = format!(" {INBOX}{connection}.{seq} {}\r\n", payload.len());
    out.extend_from_slice(rest.as_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn answer(bytes: &[u8]) -> Result<Option<Answer>, WireError> {
    let Some(end) = bytes.iter().take(LINE_BYTES_MAX).position(|&b| b == b'\n') else {
        return if bytes.len() < LINE_BYTES_MAX { Ok(None) } else { Err(NOT_NATS) };
    };
    let line = std::str::from_utf8(bytes.get(..end).unwrap_or_default());
    let mut words = line.map_err(|_| NOT_NATS)?.split_ascii_whitespace();
    let kind = words.next().unwrap_or_default();
    let answer = |bytes, seq, is_error| Answer { bytes, seq: Some(seq), is_error };
    if !matches!(kind, "MSG" | "HMSG") {
        let is_known = matches!(kind, "INFO" | "PING" | "PONG" | "+OK");
        return if is_known { Ok(Some(answer(end + 1, 0, false))) } else { Err(NOT_NATS) };
    }
    let subject = words.next().ok_or(NOT_NATS)?;
    let length: usize = words.last().and_then(|n| n.parse().ok()).ok_or(NOT_NATS)?;
    let whole = (end + 3).saturating_add(length);
    let Some(payload) = bytes.get(end + 1..whole) else { return Ok(None) };
    let seq = subject.strip_prefix(INBOX).and_then(|rest| rest.split_once('.'));
    let seq = seq.and_then(|(_, seq)| seq.parse().ok()).unwrap_or(0);
    // Errors of JetStream are JSON; what a message is not delivered for stands in its headers.
    let is_error = match kind {
        "MSG" => contains(payload, b"\"error\""),
        _ => payload.starts_with(b"NATS/1.0 ") && !payload.starts_with(b"NATS/1.0 404"),
    };
    Ok(Some(answer(whole, seq, is_error)))
}

/// Lists all entries, of which so many are expected, by a consumer.
pub(super) fn list(talk: &mut Talk, expected: u64) -> Result<u64, CliError> {
    let mut request = Vec::new();
    consume("last_per_subject", talk.number, &mut request);
    talk.send(&request)?;
    talk.until_counted(StoreProtocol::Nats.mark_of_change(), expected)
}

/// A cluster with the bucket.
pub(super) fn start(
    store: &Store,
    count: usize,
    lab: &Lab,
    cores: Cores,
) -> Result<Vec<Server>, CliError> {
    let places = store.places(count)?;
    let route = |place: &Place| format!("\"nats://{}\"", place.inner);
    let routes: Vec<_> = places.iter().map(route).collect();
    let mut servers = Vec::new();
    for Place { name, address, inner } in places {
        let folder = lab.folder(&format!("nats-{}", address.port()))?;
        let file = folder.join("nats.conf");
        let mut text = format!(
            "listen: \"{address}\"\nserver_name: {name}\nping_interval: \"1h\"\nmax_pending: 4GB\n\
             write_deadline: \"60s\"\njetstream {{ store_dir: \"{}\" }}\n",
            folder.display(),
        );
        if count > 1 {
            let routes = routes.join(", ");
            text +=
                &format!("cluster {{ name: bench, listen: \"{inner}\", routes: [{routes}] }}\n");
        }
        fs::write(&file, text).map_err(|error| store.failed(&error.to_string()))?;
        let mut command = lab.command(&store.program, cores);
        command.arg("-c").arg(&file).stdout(Stdio::null());
        let child = lab.start(store, command)?;
        servers.push(Server { child, address, inner: String::new() });
    }
    let first = servers.first().ok_or_else(|| store.failed("there is none"))?;
    first.listens(store)?;
    make_bucket(store, first, count)?;
    for server in &servers {
        server.listens(store)?;
        takes_writes(store, server)?;
        server.wait(store)?;
    }
    Ok(servers)
}

/// Before the servers have found each other nobody answers, so this is asked again and again.
fn make_bucket(store: &Store, server: &Server, replicas: usize) -> Result<(), CliError> {
    let config = format!(
        r#"{{"name":"KV_bench","subjects":["$KV.bench.>"],"num_replicas":{replicas},"storage":"memory","retention":"limits","discard":"new","max_msgs_per_subject":1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"allow_direct":true,"allow_rollup_hdrs":true,"deny_delete":true}}"#
    );
    let mut talk = Talk::connect(StoreProtocol::Nats, server.address)?;
    let mut request = Vec::new();
    let tag = Tag { connection: talk.number, seq: 1 };
    publish(&[b"$JS.API.STREAM.CREATE.KV_bench"], tag, config.as_bytes(), &mut request);
    let is_made =
        talk.asked_until(&request, Some(AGAIN), |answer| contains(answer, b"\"created\""))?;
    if is_made { Ok(()) } else { Err(store.failed("no bucket can be made")) }
}

/// What is published before the bucket has a leader is not answered.
fn takes_writes(store: &Store, server: &Server) -> Result<(), CliError> {
    let mut talk = Talk::connect(StoreProtocol::Nats, server.address)?;
    let mut request = Vec::new();
    let tag = Tag { connection: talk.number, seq: 1 };
    StoreProtocol::Nats.set(0, b"first", tag, &mut request);
    let is_stored = |answer: &[u8]| contains(answer, b"\"stream\":\"KV_bench\"");
    let takes = talk.asked_until(&request, Some(AGAIN), is_stored)?;
    if takes { Ok(()) } else { Err(store.failed("it takes no writes")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_greetings_and_deliveries() {
        let of = |text: &str| answer(text.as_bytes()).map(|a| a.map(|a| (a.seq, a.is_error)));
        assert_eq!(of("INFO {\"a\":1}\r\n"), Ok(Some((Some(0), false))));
        assert_eq!(of("MSG _INBOX.7.42 1 8\r\n{\"seq\":1\r\n"), Ok(Some((Some(42), false))));
        assert_eq!(of("MSG _INBOX.7.42 1 8\r\n{\"seq\":1\r"), Ok(None));
        assert_eq!(of("MSG _INBOX.7.1 1 11\r\n{\"error\":{}\r\n"), Ok(Some((Some(1), true))));
        assert_eq!(of("MSG $KV.bench.k 2 $JS.ACK.x 1\r\nv\r\n"), Ok(Some((Some(0), false))));
        let missing = "HMSG _INBOX.1.3 1 28 28\r\nNATS/1.0 404 Message Not F\r\n\r\n";
        assert_eq!(of(missing), Ok(Some((Some(3), false))));
        assert_eq!(of("-ERR 'no'\r\n"), Err(NOT_NATS));
        assert_eq!(of("HTTP/1.1 400\r\n"), Err(NOT_NATS));
    }
}
