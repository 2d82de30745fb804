//! Our own protocol, and how our own nodes are started.

use super::super::compare::lab::{Cores, Lab, PATIENCE, Server};
use super::super::compare::talk::Talk;
use super::super::wire::{Answer, KEY_BYTES, Protocol};
use super::Peer;
use crate::cli::error::CliError;
use crate::client::message::array_items;
use crate::client::{Fields, Message};
use crate::model::path::Path;
use crate::model::value::write::{write_bin, write_map_len, write_str, write_u64};
use crate::model::value::{ReadError, Reader};
use crate::rt;

/// The number of a stream's request, the only one of its connection.
const STREAM_SEQ: u64 = 1;

/// What stands before the key in a path that is the key alone: an extension of type 3 with one string
/// of [`KEY_BYTES`].
pub(in super::super) const ROOT: &[u8] = b"\xc7\x11\x03\xb0";
/// The same in a path below [`super::super::place::PLACE`]: with that string before it.
pub(in super::super) const PLACE: &[u8] = b"\xc7\x1e\x03\xacdistkv-bench\xb0";

pub(in super::super) fn get(head: &[u8], key: &[u8; KEY_BYTES], seq: u64, out: &mut Vec<u8>) {
    write_map_len(4, out);
    write_str("action", out);
    write_str("get_value", out);
    path(head, key, out);
    write_str("nchain", out);
    write_u64(0, out);
    write_str("seq", out);
    write_u64(seq, out);
}

pub(in super::super) fn set(
    head: &[u8],
    key: &[u8; KEY_BYTES],
    value: &[u8],
    seq: u64,
    out: &mut Vec<u8>,
) {
    write_map_len(5, out);
    write_str("action", out);
    write_str("set_value", out);
    path(head, key, out);
    write_str("value", out);
    write_bin(value, out);
    write_str("nchain", out);
    write_u64(0, out);
    write_str("seq", out);
    write_u64(seq, out);
}

pub(in super::super) fn watch(out: &mut Vec<u8>) {
    let mut fields = Fields::at(&Path::root());
    let fields = fields.u64("nchain", 0).bool("fetch", false);
    out.extend_from_slice(&fields.encode_request(STREAM_SEQ, "watch"));
}

/// The field `path`.
fn path(head: &[u8], key: &[u8; KEY_BYTES], out: &mut Vec<u8>) {
    write_str("path", out);
    out.extend_from_slice(head);
    out.extend_from_slice(key);
}

pub(in super::super) fn answer(bytes: &[u8]) -> Result<Answer, ReadError> {
    let mut reader = Reader::new(bytes);
    let (mut seq, mut is_error) = (None, false);
    for _ in 0..reader.read_map_len()? {
        match reader.read_str_bytes()? {
            b"seq" => seq = Some(reader.read_u64()?),
            key => {
                is_error |= key == b"error";
                reader.skip()?;
            }
        }
    }
    Ok(Answer { bytes: reader.position(), seq, is_error })
}

/// Lists all entries, of which so many are expected.
pub(super) fn list(talk: &mut Talk, expected: u64) -> Result<u64, CliError> {
    let mut fields = Fields::at(&Path::root());
    talk.send(&fields.u64("nchain", 0).encode_request(STREAM_SEQ, "get_tree"))?;
    talk.until_counted(Protocol::Distkv.mark_of_change(), expected)
}

/// One node, or several of a network; the first one founds it.
pub(super) fn start(
    peer: &Peer,
    count: usize,
    lab: &Lab,
    cores: Cores,
) -> Result<Vec<Server>, CliError> {
    let mut servers: Vec<Server> = Vec::new();
    for n in 1..=count {
        let gossip = servers.first().map(|server| server.inner.clone());
        servers.push(start_one(peer, &format!("n{n}"), gossip.as_deref(), lab, cores)?);
    }
    Ok(servers)
}

/// A node that joins, and has so many entries.
pub(super) fn join(
    peer: &Peer,
    to: &Server,
    entries: u64,
    lab: &Lab,
    cores: Cores,
) -> Result<Server, CliError> {
    let server = start_one(peer, "fresh", Some(&to.inner), lab, cores)?;
    let mut talk = Talk::connect(Protocol::Distkv, server.address)?;
    let until = rt::now_ns() + PATIENCE.as_nanos() as u64;
    while asks(&mut talk, "status")?.u64("entries") != Some(entries) {
        if rt::now_ns() > until {
            return Err(peer.failed("the fresh node does not get everything"));
        }
    }
    Ok(server)
}

/// How a node sees another one: up, suspect, down, and so on.
pub(in super::super) fn state_of(talk: &mut Talk, name: &str) -> Result<String, CliError> {
    let reply = asks(talk, "members")?;
    let members = array_items(reply.get("result").unwrap_or_default());
    let mut members = members.filter_map(|member| Message::new(member).ok());
    let member = members.find(|member| member.str("name") == Some(name));
    Ok(member.and_then(|member| member.str("state").map(str::to_owned)).unwrap_or_default())
}

fn asks(talk: &mut Talk, action: &str) -> Result<Message, CliError> {
    let reply = talk.asks(|tag, out| {
        out.extend_from_slice(&Fields::new().encode_request(tag.seq, action));
    })?;
    Message::new(&reply).map_err(|error| CliError::Failure(error.to_string()))
}

fn start_one(
    peer: &Peer,
    name: &str,
    gossip: Option<&str>,
    lab: &Lab,
    cores: Cores,
) -> Result<Server, CliError> {
    let mut command = lab.command(&peer.program, cores);
    match gossip {
        // Nobody is there who could call it.
        None => command.args(["run", "--peer-wait", "0s"]),
        Some(gossip) => command.args(["join", gossip]),
    };
    command.args(["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"]);
    command.args(["--name", name, "--network", &lab.network(), "--json", "--log", "error"]);
    let said = lab.start_and_hear(peer, command)?;
    let part = |name: &str| said.1.get(name).and_then(|part| part.as_str()).map(str::to_owned);
    let address = part("client").and_then(|text| text.parse().ok());
    let address = address.ok_or_else(|| peer.failed("it does not say where clients go"))?;
    Ok(Server { child: said.0, address, inner: part("gossip").unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::key_bytes;
    use super::*;

    fn key_path(key: u64) -> Path {
        std::str::from_utf8(&key_bytes(key)).unwrap().parse().unwrap()
    }

    #[test]
    fn requests_are_what_the_client_library_says() {
        let mut out = Vec::new();
        Protocol::Distkv.get(7, 1000, &mut out);
        let got = Message::new(&out).unwrap();
        let mut fields = Fields::at(&key_path(7));
        let expected = fields.u64("nchain", 0).encode_request(1000, "get_value");
        assert_eq!(got, Message::new(&expected).unwrap());
        out.clear();
        Protocol::DistkvPlace.get(7, 1000, &mut out);
        let below = super::super::super::place::place().unwrap().join(&key_path(7)).unwrap();
        let mut fields = Fields::at(&below);
        let expected = fields.u64("nchain", 0).encode_request(1000, "get_value");
        assert_eq!(Message::new(&out).unwrap(), Message::new(&expected).unwrap());
        out.clear();
        Protocol::Distkv.set(123_456_789_012, &[5; 300], 1, &mut out);
        let got = Message::new(&out).unwrap();
        assert_eq!(
            got.get("path"),
            Message::new(&{
                let fields = Fields::at(&"key-123456789012".parse().unwrap());
                fields.encode()
            })
            .unwrap()
            .get("path")
        );
        assert_eq!((got.str("action"), got.u64("seq")), (Some("set_value"), Some(1)));
    }

    #[test]
    fn answers_are_known_when_they_are_whole_and_not_before() {
        let mut fields = Fields::new();
        fields.raw("value", &[0xc4, 3, 1, 2, 3]).u64("tock", 99).u64("seq", 70_000);
        let whole = fields.encode();
        for length in 0..whole.len() {
            assert_eq!(Protocol::Distkv.answer(&whole[..length]), Ok(None), "{length}");
        }
        let mut more = whole.clone();
        more.extend_from_slice(&whole);
        let answer = Protocol::Distkv.answer(&more).unwrap().unwrap();
        assert_eq!(answer, Answer { bytes: whole.len(), seq: Some(70_000), is_error: false });
        fields.str("error", "no");
        assert!(Protocol::Distkv.answer(&fields.encode()).unwrap().unwrap().is_error);
        assert!(Protocol::Distkv.answer(b"+OK\r\n").is_err());
    }
}
