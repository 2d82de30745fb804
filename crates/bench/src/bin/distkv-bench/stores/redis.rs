//! Redis and what speaks like it: its protocol, and how it is started.

use std::process::Stdio;

use distkv_bench::wire::{Answer, KEY_BYTES, WireError};
use distkv_command::error::CliError;

use super::Store;
use crate::compare::lab::{Cores, Lab, Server};
use crate::compare::talk::Talk;
use crate::store_protocol::{StoreProtocol, contains};

/// Longest line of an answer that is waited for.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The channel that is published to.
const CHANNEL: &str = "c";
/// So many entries are asked for with one SCAN.
const SCAN_COUNT: &str = "1000";
/// What is no answer of it.
const NOT_REDIS: WireError = WireError::not("Redis's protocol");

pub(crate) fn get(key: &[u8; KEY_BYTES], out: &mut Vec<u8>) {
    out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn set(key: &[u8; KEY_BYTES], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
    out.extend_from_slice(key);
    out.extend_from_slice(format!("\r\n${}\r\n", value.len()).as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn publish(value: &[u8], out: &mut Vec<u8>) {
    command(&[b"PUBLISH", CHANNEL.as_bytes(), value], out);
}

pub(crate) fn subscribe_to_channel(out: &mut Vec<u8>) {
    command(&[b"SUBSCRIBE", CHANNEL.as_bytes()], out);
}

/// Keyspace events: a replica tells its own watchers of what comes from its primary.
pub(crate) fn subscribe_to_writes(out: &mut Vec<u8>) {
    command(&[b"PSUBSCRIBE", b"__keyevent@0__:set"], out);
}

fn command(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

pub(crate) fn answer(bytes: &[u8]) -> Result<Option<Answer>, WireError> {
    let Some((line, end)) = line(bytes)? else { return Ok(None) };
    let answer = |bytes, is_error| Answer { bytes, seq: None, is_error };
    match line.split_first() {
        Some((b'+' | b':', _)) => Ok(Some(answer(end, false))),
        Some((b'-', _)) => Ok(Some(answer(end, true))),
        Some((b'$', length)) => {
            let Ok(length) = usize::try_from(number(length)?) else {
                return Ok(Some(answer(end, false)));
            };
            let whole = (end + 2).saturating_add(length);
            Ok((bytes.len() >= whole).then(|| answer(whole, false)))
        }
        _ => Err(NOT_REDIS),
    }
}

/// The first line without its end, and where the next one begins.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, WireError> {
    let Some(end) = bytes.iter().take(LINE_BYTES_MAX).position(|&b| b == b'\n') else {
        return if bytes.len() < LINE_BYTES_MAX { Ok(None) } else { Err(NOT_REDIS) };
    };
    Ok(Some((bytes.get(..end).unwrap_or_default(), end + 1)))
}

fn number(text: &[u8]) -> Result<i64, WireError> {
    let text = std::str::from_utf8(text).map_err(|_| NOT_REDIS)?;
    text.trim_end().parse().map_err(|_| NOT_REDIS)
}

/// One server, or a primary with replicas.
pub(super) fn start(
    store: &Store,
    count: usize,
    lab: &Lab,
    cores: Cores,
) -> Result<Vec<Server>, CliError> {
    let mut servers = vec![start_one(store, None, lab, cores)?];
    for _ in 1..count {
        let primary = servers.first();
        let replica = start_one(store, primary, lab, cores)?;
        has_everything(store, &replica, 0)?;
        servers.push(replica);
    }
    Ok(servers)
}

/// A replica that has everything.
pub(super) fn join(
    store: &Store,
    to: &Server,
    entries: u64,
    lab: &Lab,
    cores: Cores,
) -> Result<Server, CliError> {
    let replica = start_one(store, Some(to), lab, cores)?;
    has_everything(store, &replica, entries)?;
    Ok(replica)
}

fn has_everything(store: &Store, replica: &Server, entries: u64) -> Result<(), CliError> {
    let mut talk = Talk::connect(StoreProtocol::Redis, replica.address)?;
    let size = format!(":{entries}\r\n");
    let has_all = talk.asked_until(b"INFO replication\r\nDBSIZE\r\n", None, |answer| {
        contains(answer, b"master_link_status:up") && answer.ends_with(size.as_bytes())
    })?;
    if has_all { Ok(()) } else { Err(store.failed("the replica does not get everything")) }
}

fn start_one(
    store: &Store,
    primary: Option<&Server>,
    lab: &Lab,
    cores: Cores,
) -> Result<Server, CliError> {
    let address = store.free_port()?;
    let folder = lab.folder(&format!("redis-{}", address.port()))?;
    let mut command = lab.command(&store.program, cores);
    command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
    command.args(["--port", &address.port().to_string()]).arg("--dir").arg(folder);
    command.args(["--notify-keyspace-events", if primary.is_some() { "E$" } else { "" }]);
    // Copies go from memory to memory at once, as fast as it can do that.
    command.args(["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]);
    command.args(["--repl-diskless-load", "on-empty-db"]);
    // Watchers may be as slow as they are.
    command.args(["--client-output-buffer-limit", "pubsub 0 0 0"]);
    if let Some(primary) = primary {
        let port = primary.address.port().to_string();
        command.args(["--replicaof", &format!("127.0.0.1 {port}")]);
    }
    command.stdout(Stdio::null());
    let child = lab.start(store, command)?;
    let server = Server { child, address, inner: String::new() };
    server.wait(store)?;
    Ok(server)
}

/// Lists all entries as a client has to: pages of keys, and the values of each page.
pub(super) fn list(talk: &mut Talk) -> Result<u64, CliError> {
    let (mut cursor, mut found) = (b"0".to_vec(), 0);
    loop {
        let mut request = Vec::new();
        command(&[b"SCAN", &cursor, b"COUNT", SCAN_COUNT.as_bytes()], &mut request);
        talk.send(&request)?;
        let mut page = talk.values(redis_values)?;
        if page.is_empty() {
            return Err(CliError::Failure("SCAN is answered with nothing".to_owned()));
        }
        cursor = page.remove(0);
        if !page.is_empty() {
            let mut words: Vec<&[u8]> = vec![b"MGET"];
            words.extend(page.iter().map(Vec::as_slice));
            request.clear();
            command(&words, &mut request);
            talk.send(&request)?;
            found += talk.values(redis_values)?.len() as u64;
        }
        if cursor == b"0" {
            return Ok(found);
        }
    }
}

/// What an answer holds.
type Strings = Vec<Vec<u8>>;

/// The strings of an answer, in their order, and how long it is; none if it is not here wholly.
fn redis_values(bytes: &[u8]) -> Result<Option<(Strings, usize)>, WireError> {
    let (mut values, mut at, mut left) = (Vec::new(), 0, 1_usize);
    while left > 0 {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some((line, next)) = line(rest)? else { return Ok(None) };
        left -= 1;
        match line.split_first() {
            Some((b'*', count)) => {
                left += usize::try_from(number(count)?).map_err(|_| NOT_REDIS)?;
                at += next;
            }
            Some((b'$', length)) => {
                let length = usize::try_from(number(length)?).map_err(|_| NOT_REDIS)?;
                let Some(value) = rest.get(next..next + length) else { return Ok(None) };
                values.push(value.to_vec());
                at += next + length + 2;
            }
            _ => return Err(NOT_REDIS),
        }
    }
    Ok((at <= bytes.len()).then_some((values, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_answers_are_told_apart() {
        let answer = |bytes: &[u8]| answer(bytes).map(|a| a.map(|a| (a.bytes, a.is_error)));
        assert_eq!(answer(b"+OK\r\n+OK\r\n"), Ok(Some((5, false))));
        assert_eq!(answer(b"-ERR no\r\n"), Ok(Some((9, true))));
        assert_eq!(answer(b"$3\r\nabc\r\n$"), Ok(Some((9, false))));
        assert_eq!(answer(b"$-1\r\n"), Ok(Some((5, false))));
        for incomplete in [&b""[..], b"+OK", b"$3\r\nabc\r", b"$3"] {
            assert_eq!(answer(incomplete), Ok(None));
        }
        assert!(answer(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(answer(b"$99999999999999999999\r\n").is_err());
    }
}
