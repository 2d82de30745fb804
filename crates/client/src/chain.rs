//! A chain as clients see it: nested maps of `node`, `tick` and `prev`, newest event first
//! (docs/client-protocol.md, "Actions").

use std::fmt;

use crate::model::limits::CHAIN_LEN_MAX;
use crate::model::value::write::{write_map_len, write_nil, write_str, write_u64};
use crate::model::value::{ReadError, Reader};

/// One event: the life that made it, and its number there. It displays in the one spelling of
/// events ([`crate::model::spelling`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainEvent {
    /// The life of the node that made it, `n3~e9001b2c3d4e`, as the server spells it. A server of the
    /// original, which knows no lives, gives the name alone.
    pub node: String,
    /// Its tick; none for a node that never wrote.
    pub tick: Option<u64>,
}

/// A chain, newest event first; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The newest event.
    pub newest: ChainEvent,
    /// Those before it.
    pub older: Vec<ChainEvent>,
    /// Whether events were left off at the end.
    pub is_cut: bool,
}

impl Chain {
    /// The chain of only this event, as a precondition of a write. `node` is a life as
    /// [`ChainEvent::node`] has it; nodes refuse a bare name.
    #[must_use]
    pub fn of(node: &str, tick: u64) -> Chain {
        let newest = ChainEvent { node: node.to_owned(), tick: Some(tick) };
        Chain { newest, older: Vec::new(), is_cut: true }
    }

    /// Reads a chain; `None` for nil. Beyond the greatest length of a chain it counts as cut.
    ///
    /// # Errors
    /// The value is no chain.
    pub fn decode(bytes: &[u8]) -> Result<Option<Chain>, ReadError> {
        let Link::Before(first) = Link::of(bytes)? else { return Ok(None) };
        let (newest, mut next) = read_event(first)?;
        let mut older = Vec::new();
        while let Link::Before(link) = next {
            if older.len() + 1 >= CHAIN_LEN_MAX {
                next = Link::Cut;
                break;
            }
            let (event, before) = read_event(link)?;
            older.push(event);
            next = before;
        }
        Ok(Some(Chain { newest, older, is_cut: matches!(next, Link::Cut) }))
    }

    /// Appends the chain as MessagePack.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut events = self.events().peekable();
        while let Some(event) = events.next() {
            let is_last = events.peek().is_none();
            write_map_len(if is_last && self.is_cut { 2 } else { 3 }, out);
            write_str("node", out);
            write_str(&event.node, out);
            write_str("tick", out);
            match event.tick {
                Some(tick) => write_u64(tick, out),
                None => write_nil(out),
            }
            if !is_last {
                write_str("prev", out);
            } else if !self.is_cut {
                write_str("prev", out);
                write_nil(out);
            }
        }
    }

    /// The events, newest first.
    pub fn events(&self) -> impl Iterator<Item = &ChainEvent> {
        std::iter::once(&self.newest).chain(&self.older)
    }
}

/// What an event's `prev` says.
enum Link<'a> {
    /// There is one before it.
    Before(&'a [u8]),
    /// nil: this was the first.
    End,
    /// Absent: left off here.
    Cut,
}

impl Link<'_> {
    /// From the value of `prev`, or of the chain itself.
    fn of(bytes: &[u8]) -> Result<Link<'_>, ReadError> {
        let mut reader = Reader::new(bytes);
        if reader.take_nil() {
            return reader.finish().map(|()| Link::End);
        }
        Ok(Link::Before(bytes))
    }
}

/// Reads one level: the event, and what comes before it.
fn read_event(bytes: &[u8]) -> Result<(ChainEvent, Link<'_>), ReadError> {
    let mut reader = Reader::new(bytes);
    let (mut node, mut tick, mut before) = (None, None, Link::Cut);
    for _ in 0..reader.read_map_len()? {
        match reader.read_str()? {
            "node" => node = Some(reader.read_str()?.to_owned()),
            "tick" if reader.take_nil() => tick = None,
            "tick" => tick = Some(reader.read_u64()?),
            "prev" => before = Link::of(reader.read_raw()?)?,
            _ => reader.skip()?,
        }
    }
    reader.finish()?;
    let node = node.ok_or(ReadError::Truncated { expected: "a chain's node" })?;
    Ok((ChainEvent { node, tick }, before))
}

impl fmt::Display for ChainEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tick {
            Some(tick) => write!(f, "{}:{tick}", self.node),
            None => write!(f, "{}:-", self.node),
        }
    }
}

impl fmt::Display for Chain {
    /// `n1~e9001b2c3d4e:5 n2~c36f00112233:3`, newest first, with `…` at the place where it was cut.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.newest.fmt(f)?;
        for event in &self.older {
            write!(f, " {event}")?;
        }
        if self.is_cut { f.write_str(" …") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{node: "n1", tick: 1328, prev: nil}`, as a Python server sent it.
    const ONE: &[u8] = b"\x83\xa4node\xa2n1\xa4tick\xcd\x05\x30\xa4prev\xc0";

    #[test]
    fn a_chain_survives_decoding_and_encoding() {
        let chain = Chain::decode(ONE).unwrap().unwrap();
        assert_eq!(chain.to_string(), "n1:1328");
        let mut bytes = Vec::new();
        chain.encode(&mut bytes);
        assert_eq!(bytes, ONE);

        let two = Chain {
            newest: ChainEvent { node: "b".into(), tick: Some(7) },
            older: vec![ChainEvent { node: "a".into(), tick: Some(9) }],
            is_cut: true,
        };
        bytes.clear();
        two.encode(&mut bytes);
        assert_eq!(Chain::decode(&bytes), Ok(Some(two.clone())));
        assert_eq!(two.to_string(), "b:7 a:9 …");
    }

    #[test]
    fn nil_is_no_chain() {
        assert_eq!(Chain::decode(&[0xc0]), Ok(None));
    }

    #[test]
    fn what_is_no_chain_is_refused() {
        assert!(Chain::decode(b"\x80").is_err());
        assert!(Chain::decode(b"\x05").is_err());
        assert!(Chain::decode(b"\x81\xa4node\x05").is_err());
        assert!(Chain::decode(b"").is_err());
    }

    #[test]
    fn a_chain_without_end_is_cut() {
        let mut bytes = Vec::new();
        for _ in 0..60 {
            bytes.extend_from_slice(b"\x83\xa4node\xa1n\xa4tick\x01\xa4prev");
        }
        bytes.push(0xc0);
        let chain = Chain::decode(&bytes).unwrap().unwrap();
        assert!(chain.is_cut);
        assert_eq!(chain.events().count(), CHAIN_LEN_MAX);
    }
}
