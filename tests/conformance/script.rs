//! What a scripted node answers, one answer after the other, and its bytes. They are made and read with `rmpv`, which no
//! client uses: what they get wrong, the judge does not get wrong in the same way.

use std::time::Duration;

use rmpv::Value;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::scenario::Fields;

/// Between pieces of an answer, so that they arrive one by one: only time can tell them apart.
const PIECE_INTERVAL: Duration = Duration::from_millis(1);

/// An answer of a script.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Told")]
pub(crate) struct Answer {
    /// It is for this action only.
    action: Option<String>,
    /// So many requests get it, if there is another behind it.
    times: usize,
    what: What,
}

/// What the node does.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum What {
    /// A message.
    Reply { fields: Fields, manner: Manner },
    /// Several messages.
    Stream(Vec<Fields>),
    /// Nothing.
    Silence,
    /// It ends the connection.
    Reset,
    /// Bytes that are no message.
    Garbage(Vec<u8>),
}

/// How a reply comes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Manner {
    /// So long after the request.
    pub(crate) after: Duration,
    /// In pieces of so many bytes.
    pub(crate) split: Option<usize>,
    /// With so much time behind each.
    pub(crate) pause: Duration,
}

/// The answer as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    action: Option<String>,
    times: Option<usize>,
    reply: Option<Fields>,
    after: Option<f64>,
    split: Option<usize>,
    pause: Option<f64>,
    stream: Option<Vec<Fields>>,
    #[serde(default)]
    silence: bool,
    #[serde(default)]
    reset: bool,
    garbage: Option<String>,
}

impl TryFrom<Told> for Answer {
    type Error = String;

    fn try_from(told: Told) -> Result<Answer, String> {
        let Told { action, times, reply, after, split, pause, stream, silence, reset, garbage } =
            told;
        let garbage = garbage.map(|text| unhex(&text)).transpose()?;
        let has_manner = after.is_some() || split.is_some() || pause.is_some();
        if has_manner && reply.is_none() || pause.is_some() && split.is_none() {
            return Err(
                "`after` and `split` are for a `reply`, and `pause` is for one that is split"
                    .to_owned(),
            );
        }
        if split == Some(0) {
            return Err("`split` is a number of bytes".to_owned());
        }
        let seconds = |told: Option<f64>| {
            Duration::try_from_secs_f64(told.unwrap_or(0.0)).map_err(|error| error.to_string())
        };
        let pause = if pause.is_some() { seconds(pause)? } else { PIECE_INTERVAL };
        let manner = Manner { after: seconds(after)?, split, pause };
        let all = [
            reply.map(|fields| What::Reply { fields, manner }),
            stream.map(What::Stream),
            silence.then_some(What::Silence),
            reset.then_some(What::Reset),
            garbage.map(What::Garbage),
        ];
        let mut all = all.into_iter().flatten();
        let (Some(what), None) = (all.next(), all.next()) else {
            return Err(
                "an answer is one of `reply`, `stream`, `silence`, `reset`, `garbage`".into()
            );
        };
        if times == Some(0) {
            return Err("`times` is 1 at least".to_owned());
        }
        Ok(Answer { action, times: times.unwrap_or(1), what })
    }
}

/// What a node has still to answer.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    answers: Vec<Answer>,
}

impl Script {
    pub(crate) fn new(answers: Vec<Answer>) -> Script {
        Script { answers }
    }

    /// The answer to a request of this action: the first that is for it. It goes when it was given often enough, unless
    /// it is the last for this action.
    pub(crate) fn next(&mut self, action: &str) -> Option<What> {
        let is_for = |answer: &&mut Answer| answer.action.as_ref().is_none_or(|of| of == action);
        let mut own = self.answers.iter_mut().enumerate().filter(|(_, answer)| is_for(answer));
        let (index, answer) = own.next()?;
        let is_last = own.next().is_none();
        answer.times = answer.times.saturating_sub(1);
        if is_last || answer.times > 0 {
            return Some(answer.what.clone());
        }
        Some(self.answers.remove(index).what)
    }
}

/// What a node sends as a reply to the request with this number. `written` stands for the fields that a write is
/// answered with; the reply's own count.
pub(crate) fn reply(node: &str, seq: u64, fields: &Fields) -> Vec<u8> {
    let mut fields = fields.clone();
    let is_write = fields.remove("written").is_some_and(|is| is == Json::Bool(true));
    let mut all = Vec::new();
    if is_write {
        let chain = map([
            ("node", Value::from(format!("{node}~7"))),
            ("tick", seq.into()),
            ("prev", Value::Nil),
        ]);
        all = vec![("changed", true.into()), ("chain", chain), ("tock", seq.into())];
        all.retain(|(name, _)| !fields.contains_key(*name));
    }
    fields.remove("seq");
    all.extend(fields.iter().map(|(name, value)| (name.as_str(), packed(value))));
    all.push(("seq", seq.into()));
    message(all)
}

/// The messages of a stream, which are counted from 1.
pub(crate) fn stream(seq: u64, parts: &[Fields]) -> Vec<u8> {
    let messages = parts.iter().zip(1_u64..).flat_map(|(fields, number)| {
        let mut all: Vec<_> =
            fields.iter().map(|(name, value)| (name.as_str(), packed(value))).collect();
        all.extend([("seq", seq.into()), ("wseq", number.into())]);
        message(all)
    });
    messages.collect()
}

/// The bytes of a message.
pub(crate) fn message<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = rmpv::encode::write_value(&mut bytes, &map(fields));
    bytes
}

/// A map.
pub(crate) fn map<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Map(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

/// What a file says, as a node would send it.
fn packed(told: &Json) -> Value {
    match told {
        Json::Null => Value::Nil,
        Json::Bool(told) => (*told).into(),
        Json::Number(told) => match (told.as_u64(), told.as_i64(), told.as_f64()) {
            (Some(told), _, _) => told.into(),
            (_, Some(told), _) => told.into(),
            (_, _, told) => told.map_or(Value::Nil, Value::from),
        },
        Json::String(told) => told.as_str().into(),
        Json::Array(told) => Value::Array(told.iter().map(packed).collect()),
        Json::Object(told) => map(told.iter().map(|(name, value)| (name.as_str(), packed(value)))),
    }
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let pair = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(pair).collect();
    bytes.ok_or_else(|| format!("{text:?} is not hexadecimal"))
}
