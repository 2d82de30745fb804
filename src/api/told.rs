//! Answers with values in them, as JSON text that is made piece by piece. A value of 4 MiB can take a thread a second, and
//! make a text seven times as long: so the work on it takes turns with all other tasks, only a few long ones are worked on
//! at once, and a client that reads slowly has the node keep the value and a piece of its text.

use std::{fmt, io};

use bytes::Bytes;
use distkv_http::{Content, Conversions, others_first};
use futures::stream::{self, StreamExt as _};
use serde_json::{Map, Value as Json};

use super::client::{Client, Failure};
use crate::crowd::shares::Holder;
use crate::model::entry::Entry;
use crate::protocol::json::JsonPieces;

/// A piece of an answer has about so many bytes.
pub(super) const PIECE_BYTES: usize = 32 << 10;
/// An answer up to this length is put together before it goes out.
const WHOLE_BYTES: usize = 64 << 10;
/// Parts of values (items, keys, chunks of long strings) between two turns of other tasks: about a millisecond's work.
const TURN_PARTS: usize = 4_096;
/// As much work as so many parts is begun with each value.
const SMALL_VALUE_PARTS: usize = 64;
/// An answer whose values have more bytes than this, all together, is a long one.
const LONG_BYTES: usize = 4 << 10;

/// A JSON text to be: literal text, and values that are not converted yet.
#[derive(Debug, Default)]
pub(super) struct Told {
    parts: Vec<Part>,
    /// Bytes of all values.
    value_bytes: usize,
    /// Which part comes next.
    next: usize,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Value(JsonPieces<Held>),
}

/// A value, as its MessagePack.
pub(super) enum Held {
    /// A copy.
    Copied(Vec<u8>),
    /// That of an entry, which has one.
    Shared(Entry),
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(entry) => entry.value().unwrap_or_default(),
        }
    }
}

/// How long it is: a value can be secret.
impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({} bytes)", self.as_ref().len())
    }
}

/// Who asks, and the turns of long conversions.
#[derive(Clone)]
pub(super) struct Pace {
    conversions: Conversions,
    holder: Holder,
}

impl Told {
    /// Literal text: brackets, and what belongs to no value.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        match self.parts.last_mut() {
            Some(Part::Text(last)) => last.push_str(text),
            _ => self.parts.push(Part::Text(text.to_owned())),
        }
        self
    }

    /// A value, given as its MessagePack.
    pub(super) fn value(&mut self, bytes: &[u8]) -> &mut Self {
        self.held(Held::Copied(bytes.to_vec()))
    }

    /// A value.
    pub(super) fn held(&mut self, value: Held) -> &mut Self {
        self.value_bytes += value.as_ref().len();
        self.parts.push(Part::Value(JsonPieces::new(value)));
        self
    }

    /// A comma, unless it is the first one inside of brackets.
    pub(super) fn comma(&mut self) -> &mut Self {
        match self.parts.last() {
            None => self,
            Some(Part::Text(text)) if text.ends_with(['{', '[']) => self,
            Some(_) => self.text(","),
        }
    }

    /// The name of a field of an object; its value is to follow.
    pub(super) fn name(&mut self, name: &str) -> &mut Self {
        self.comma().text(&Json::from(name).to_string()).text(":")
    }

    /// A field of an object.
    pub(super) fn field(&mut self, name: &str, json: &Json) -> &mut Self {
        self.name(name).text(&json.to_string())
    }

    /// Fields of an object.
    pub(super) fn fields(&mut self, fields: &Map<String, Json>) -> &mut Self {
        for (name, json) in fields {
            self.field(name, json);
        }
        self
    }

    /// Whether there is so much to do that it takes turns.
    pub(super) fn is_long(&self) -> bool {
        self.value_bytes > LONG_BYTES
    }

    /// How many bytes it keeps, about.
    pub(super) fn kept_bytes(&self) -> usize {
        let kept = |part: &Part| match part {
            Part::Text(text) => text.capacity(),
            Part::Value(pieces) => pieces.kept_bytes(),
        };
        PIECE_BYTES + self.parts.iter().map(kept).sum::<usize>()
    }

    /// Appends to `out` until that has [`PIECE_BYTES`], or this is over: then it is true. Waits for its turn if there is much
    /// to do, and lets others go first again and again.
    ///
    /// # Errors
    /// A value cannot be read.
    pub(super) async fn fill(&mut self, out: &mut String, pace: &Pace) -> Result<bool, Failure> {
        let _turn = match self.is_long() {
            false => None,
            true => Some(pace.conversions.turn_to_write(&pace.holder).await),
        };
        loop {
            let mut budget = TURN_PARTS;
            while budget > 0 {
                budget -= 1;
                match self.parts.get_mut(self.next) {
                    None => return Ok(true),
                    Some(Part::Text(text)) => {
                        out.push_str(text);
                        self.next += 1;
                    }
                    Some(Part::Value(pieces)) => {
                        let is_over = pieces.go_on(out, TURN_PARTS, PIECE_BYTES);
                        match is_over.map_err(|error| unreadable(&error))? {
                            true => self.next += 1,
                            false => budget = 0,
                        }
                        // Many small values are as much work as a long one.
                        budget = budget.saturating_sub(SMALL_VALUE_PARTS);
                    }
                }
                if out.len() >= PIECE_BYTES {
                    return Ok(self.next >= self.parts.len());
                }
            }
            others_first().await;
        }
    }

    /// From the beginning once more.
    fn restart(&mut self) {
        self.next = 0;
        for part in &mut self.parts {
            if let Part::Value(pieces) = part {
                pieces.restart();
            }
        }
    }

    /// As an answer: all of it, if it is short; else its length, found by making it once, and parts that are made as the client
    /// takes them. What is kept for it costs the clients' memory until it is out.
    ///
    /// # Errors
    /// A value cannot be read, or the memory is needed more than the answer.
    pub(super) async fn content(
        mut self,
        mut client: Client,
        pace: Pace,
    ) -> Result<Content, Failure> {
        let (mut text, mut length) = (String::new(), 0);
        client.keep(self.kept_bytes());
        loop {
            let mut piece = String::new();
            let is_over = self.fill(&mut piece, &pace).await?;
            length += piece.len();
            if length <= WHOLE_BYTES {
                text.push_str(&piece);
            } else {
                text = String::new();
            }
            if is_over {
                break;
            }
            client.keep(self.kept_bytes());
            if client.is_closing() {
                return Err(client.closed().await);
            }
        }
        if length <= WHOLE_BYTES {
            return Ok(Content::Whole(text.into()));
        }
        self.restart();
        let charge = client.into_charge(self.kept_bytes());
        let parts = stream::unfold(Some((self, charge, pace)), |state| async move {
            let (mut told, mut charge, pace) = state?;
            let mut piece = String::new();
            let filled = told.fill(&mut piece, &pace).await;
            if charge.is_over() {
                return Some((Err(io::ErrorKind::ConnectionAborted.into()), None));
            }
            match filled {
                Ok(true) if piece.is_empty() => None,
                Ok(true) => Some((Ok(Bytes::from(piece)), None)),
                Ok(false) => Some((Ok(Bytes::from(piece)), Some((told, charge, pace)))),
                Err(failure) => Some((Err(io::Error::other(failure.text)), None)),
            }
        });
        Ok(Content::Made(parts.boxed(), length as u64))
    }
}

impl Pace {
    pub(super) fn of(client: &Client) -> Self {
        Self { conversions: client.conversions().clone(), holder: client.holder() }
    }

    /// Whose shares it takes from.
    pub(super) fn holder(&self) -> Holder {
        self.holder.clone()
    }
}

/// A value whose JSON text has at most this many bytes, or the beginning of a longer text. Its cost is bounded.
pub(super) fn shown(bytes: &[u8], length: usize) -> Result<Result<Json, String>, Failure> {
    // A part has a byte at least, so of a short text all parts are looked at.
    let mut pieces = JsonPieces::beginning(bytes, TURN_PARTS);
    let mut text = String::new();
    let is_over = pieces.go_on(&mut text, TURN_PARTS, length + 1);
    if is_over.map_err(|error| unreadable(&error))? && text.len() <= length {
        return super::entry::value(bytes).map(Ok);
    }
    text.truncate(text.floor_char_boundary(length));
    Ok(Err(text))
}

pub(super) fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    Failure {
        code: String::from("internal"),
        text: format!("the value cannot be told as JSON: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt as _;
    use futures::future::poll_immediate;

    use super::*;

    fn pace() -> Pace {
        Pace { conversions: Conversions::default(), holder: Holder::KeyHolder }
    }

    /// The MessagePack of an array of so many empty maps.
    fn empty_maps(count: usize) -> Vec<u8> {
        let mut value = vec![0xdd];
        value.extend_from_slice(&u32::try_from(count).unwrap().to_be_bytes());
        value.resize(5 + count, 0x80);
        value
    }

    /// The text, and how often others could go first.
    async fn text(mut told: Told) -> (String, usize) {
        let (mut text, mut turns, pace) = (String::new(), 0, pace());
        loop {
            let mut piece = String::new();
            let is_over = {
                let mut filling = pin!(told.fill(&mut piece, &pace));
                loop {
                    match poll_immediate(&mut filling).await {
                        Some(filled) => break filled.unwrap(),
                        None => turns += 1,
                    }
                }
            };
            assert!(piece.len() < PIECE_BYTES + 100, "{}", piece.len());
            text.push_str(&piece);
            if is_over {
                return (text, turns);
            }
        }
    }

    #[test]
    fn while_a_long_value_is_told_others_go_first_again_and_again() {
        const MAPS: usize = 300_000;
        let mut told = Told::default();
        told.text("{").field("path", &"a.b".into()).name("value").value(&empty_maps(MAPS));
        told.field("tock", &7.into()).text("}\n");
        let (text, turns) = text(told).now_or_never().unwrap();
        assert_eq!(text.len(), r#"{"path":"a.b","value":[],"tock":7}_"#.len() + 3 * MAPS - 1);
        assert!(text.starts_with(r#"{"path":"a.b","value":[{},{}"#), "{}", &text[..40]);
        assert!(text.ends_with("{}],\"tock\":7}\n"));
        // Twice each part is looked at.
        assert!(turns >= 2 * MAPS / TURN_PARTS, "{turns}");
    }

    #[test]
    fn many_short_values_take_turns_as_one_long_one_does() {
        let mut told = Told::default();
        told.text("[");
        for _ in 0..1_000 {
            told.comma().value(&empty_maps(4));
        }
        told.text("]");
        let (text, turns) = text(told).now_or_never().unwrap();
        assert_eq!(text, format!("[{}]", vec!["[{},{},{},{}]"; 1_000].join(",")));
        assert!(turns >= 1_000 * SMALL_VALUE_PARTS / TURN_PARTS, "{turns}");
    }

    #[test]
    fn what_is_short_is_told_at_once() {
        let mut told = Told::default();
        told.text("{").name("items").text("[").text("]").name("before");
        told.value(&[0xc0]).text("}");
        let (text, turns) = text(told).now_or_never().unwrap();
        assert_eq!((text.as_str(), turns), (r#"{"items":[],"before":null}"#, 0));
    }

    #[test]
    fn of_a_long_value_the_beginning_is_shown() {
        let start = shown(&empty_maps(4_000_000), 20).unwrap().unwrap_err();
        assert_eq!(start, "[{},{},{},{},{},{},{");
        assert_eq!(shown(&empty_maps(3), 20).unwrap(), Ok(serde_json::json!([{}, {}, {}])));
        let text = [&b"\xd9\x50"[..], "é".repeat(40).as_bytes()].concat();
        assert_eq!(shown(&text, 20).unwrap(), Err(format!("\"{}", "é".repeat(9))));
    }
}
