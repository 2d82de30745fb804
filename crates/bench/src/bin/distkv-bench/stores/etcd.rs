//! etcd: as much of gRPC over HTTP/2 as it takes to put, get, list and watch, and how it is started.
//!
//! Requests are streams of one connection, so many may be in flight. Headers are sent without
//! compression and those that come are not read: an answer is a stream's first DATA frame, a stream that
//! ends without one is an error. What may be sent and received without asking is set so high at the
//! beginning that no run reaches it.

use std::process::Stdio;

use distkv_bench::wire::{Answer, KEY_BYTES, WireError};
use distkv_command::error::CliError;

use super::{Place, Store};
use crate::compare::lab::{Cores, Lab, Server};
use crate::compare::talk::{Counter, Talk};
use crate::store_protocol::StoreProtocol;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
/// Flags of frames.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// A frame's head.
const HEAD_BYTES: usize = 9;
/// The greatest window that there is.
const WINDOW: u32 = (1 << 31) - 1;
/// The window that a connection begins with.
const WINDOW_AT_FIRST: u32 = 65_535;
/// The setting that says how great a stream's window is.
const INITIAL_WINDOW_SIZE: u16 = 4;
/// All keys of ours are from the first one to before the second.
const ALL: [&[u8]; 2] = [b"key-", b"key."];
/// What is no answer of it.
const NOT_ETCD: WireError = WireError::not("etcd's protocol");

pub(crate) fn hello(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let mut setting = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    setting.extend_from_slice(&WINDOW.to_be_bytes());
    frame(SETTINGS, 0, 0, &setting, out);
    // That of the server is agreed to, whatever it says.
    frame(SETTINGS, ACK, 0, &[], out);
    frame(WINDOW_UPDATE, 0, 0, &(WINDOW - WINDOW_AT_FIRST).to_be_bytes(), out);
}

pub(crate) fn get(key: &[u8; KEY_BYTES], seq: u64, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    field(1, key, &mut message);
    call("/etcdserverpb.KV/Range", seq, &message, END_STREAM, out);
}

pub(crate) fn set(key: &[u8; KEY_BYTES], value: &[u8], seq: u64, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    field(1, key, &mut message);
    field(2, value, &mut message);
    call("/etcdserverpb.KV/Put", seq, &message, END_STREAM, out);
}

pub(crate) fn watch(out: &mut Vec<u8>) {
    let mut create = Vec::new();
    (1..).zip(ALL).for_each(|(number, key)| field(number, key, &mut create));
    let mut message = Vec::new();
    field(1, &create, &mut message);
    call("/etcdserverpb.Watch/Watch", 0, &message, 0, out);
}

/// A call: its headers and its message.
fn call(method: &str, seq: u64, message: &[u8], flags: u8, out: &mut Vec<u8>) {
    let stream = (2 * seq + 1) as u32;
    // Of the static table: POST, http; by its names: the path, the authority, the content's type.
    let mut headers = vec![0x83, 0x86, 0x04];
    let mut text = |text: &str| {
        headers.push(text.len() as u8);
        headers.extend_from_slice(text.as_bytes());
    };
    text(method);
    headers.push(0x01);
    for (name, value) in [("", "bench"), ("content-type", "application/grpc"), ("te", "trailers")] {
        if !name.is_empty() {
            headers.push(0x00);
            headers.push(name.len() as u8);
            headers.extend_from_slice(name.as_bytes());
        }
        headers.push(value.len() as u8);
        headers.extend_from_slice(value.as_bytes());
    }
    frame(HEADERS, END_HEADERS, stream, &headers, out);
    let mut body = vec![0];
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    frame(DATA, flags, stream, &body, out);
}

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8], out: &mut Vec<u8>) {
    let length = (body.len() as u32).to_be_bytes();
    out.extend_from_slice(length.get(1..).unwrap_or_default());
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(body);
}

/// A field of a protobuf message that holds bytes.
fn field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
}

/// A frame: kind, flags, stream, length with its head.
fn read_frame(bytes: &[u8]) -> Result<Option<(u8, u8, u32, usize)>, WireError> {
    let Some(&[a, b, c, kind, flags, s0, s1, s2, s3]) = bytes.first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, a, b, c]) as usize + HEAD_BYTES;
    let stream = u32::from_be_bytes([s0, s1, s2, s3]);
    // There are ten kinds, and nobody was asked for longer frames.
    if kind > 9 || length > HEAD_BYTES + (16 << 10) {
        return Err(NOT_ETCD);
    }
    Ok((bytes.len() >= length).then_some((kind, flags, stream, length)))
}

pub(crate) fn answer(bytes: &[u8]) -> Result<Option<Answer>, WireError> {
    let Some((kind, flags, stream, bytes)) = read_frame(bytes)? else { return Ok(None) };
    let is_error = kind == HEADERS && flags & END_STREAM != 0;
    let is_answer = kind == DATA || is_error;
    let seq = if is_answer { u64::from(stream) / 2 } else { 0 };
    Ok(Some(Answer { bytes, seq: Some(seq), is_error }))
}

/// Whether there is a message in what has come.
pub(crate) fn has_data(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Ok(Some((kind, _, _, length))) = read_frame(rest) {
        if kind == DATA {
            return true;
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    false
}

/// Lists all entries, in one message; its frames are cut wherever it is.
pub(super) fn list(talk: &mut Talk) -> Result<u64, CliError> {
    let mut request = Vec::new();
    let mut message = Vec::new();
    (1..).zip(ALL).for_each(|(number, key)| field(number, key, &mut message));
    call("/etcdserverpb.KV/Range", 0, &message, END_STREAM, &mut request);
    talk.send(&request)?;
    let message = talk.values(whole_stream)?;
    Ok(Counter::new(StoreProtocol::Etcd.mark_of_change()).count(&message))
}

/// The data of a stream, and where it ends; none until it has ended.
fn whole_stream(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, WireError> {
    let (mut at, mut data) = (0, Vec::new());
    while let Some((kind, flags, _, length)) = read_frame(bytes.get(at..).unwrap_or_default())? {
        if kind == DATA {
            data.push(at + HEAD_BYTES..at + length);
        }
        at += length;
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            let parts = data.into_iter().filter_map(|part| bytes.get(part));
            return Ok(Some((parts.flatten().copied().collect(), at)));
        }
    }
    Ok(None)
}

/// A cluster.
pub(super) fn start(
    store: &Store,
    count: usize,
    lab: &Lab,
    cores: Cores,
) -> Result<Vec<Server>, CliError> {
    let places = store.places(count)?;
    let member = |place: &Place| format!("{}=http://{}", place.name, place.inner);
    let members: Vec<_> = places.iter().map(member).collect();
    let mut servers = Vec::new();
    for Place { name, address, inner } in places {
        let inner = format!("http://{inner}");
        let folder = lab.folder(&format!("etcd-{}", address.port()))?;
        let mut command = lab.command(&store.program, cores);
        let clients = format!("http://{address}");
        command.args(["--name", &name, "--log-level", "fatal", "--logger", "zap"]);
        command.arg("--data-dir").arg(folder);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &inner, "--initial-advertise-peer-urls", &inner]);
        command.args(["--initial-cluster", &members.join(","), "--initial-cluster-state", "new"]);
        command.args(["--initial-cluster-token", &lab.network()]);
        command.args(["--quota-backend-bytes", &(8_u64 << 30).to_string()]);
        command.stdout(Stdio::null());
        let child = lab.start(store, command)?;
        servers.push(Server { child, address, inner });
    }
    servers.iter().try_for_each(|server| server.wait(store))?;
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_stream_s_first_data_and_an_end_without_any_an_error() {
        let mut bytes = Vec::new();
        frame(SETTINGS, 0, 0, &[0; 6], &mut bytes);
        frame(HEADERS, END_HEADERS, 7, &[0x88], &mut bytes);
        frame(DATA, 0, 7, &[1; 40], &mut bytes);
        frame(HEADERS, END_HEADERS | END_STREAM, 9, &[0x88], &mut bytes);
        let (mut at, mut seen) = (0, Vec::new());
        while let Some(found) = answer(&bytes[at..]).unwrap() {
            assert_eq!(answer(&bytes[at..at + found.bytes - 1]), Ok(None));
            at += found.bytes;
            seen.push((found.seq, found.is_error));
        }
        assert_eq!(at, bytes.len());
        let expected = [(0, false), (0, false), (3, false), (4, true)];
        assert_eq!(seen, expected.map(|(seq, is_error)| (Some(seq), is_error)));
        assert!(has_data(&bytes) && !has_data(&bytes[..HEAD_BYTES + 6]));
        assert_eq!(answer(b"HTTP/1.1 400 Bad Request"), Err(NOT_ETCD));
    }

    #[test]
    fn messages_are_protobuf() {
        let mut out = Vec::new();
        field(1, b"ab", &mut out);
        field(2, &[7; 300], &mut out);
        assert_eq!(out[..7], [0x0a, 2, b'a', b'b', 0x12, 0xac, 0x02]);
        assert_eq!(out.len(), 7 + 300);
    }
}
