//! The topics of `msg_send` and `msg_monitor`.
//!
//! The original hands them to MQTT, so they follow MQTT: a topic is a list of *levels*, which are
//! texts. A client's topic is converted by joining its elements with `/` and splitting them there:
//! `("a/b",)` and `("a", "b")` are the same topic, and monitors receive the second form.

use crate::model::path::{Element, Path, PathBuilder, PathBytes};
use crate::model::path_text::python_text;
use crate::model::value::Reader;
use crate::protocol::client::error::ClientError;
use crate::protocol::client::field::{Field, Fields};
use crate::protocol::client::request::Request;

/// Stands for any one level of a topic.
const ANY_LEVEL: &str = "+";
/// At the end of a pattern: one level or more, whatever they are.
const ANY_REST: &str = "#";

/// `msg_send`: a topic, and bytes or a value that is sent as its bytes.
pub(super) fn decode_msg_send<'a>(fields: &Fields<'a>) -> Result<Request<'a>, ClientError> {
    let topic = read_topic(fields, false)?;
    if topic.elements().any(|level| [ANY_LEVEL, ANY_REST].map(Element::Str).contains(&level)) {
        return Err(bad(
            "'+' and '#' are patterns of monitors; a message needs a topic without them",
        ));
    }
    let data = match (fields.bytes(Field::Raw)?, fields.new_value(Field::Data)?) {
        (Some(raw), None) => raw,
        (None, Some(data)) => data,
        (Some(_), Some(_)) => {
            return Err(ClientError::bad_request("give 'data' or 'raw' (for bytes), not both"));
        }
        (None, None) => {
            let text = "the field 'data' is missing (or 'raw', for bytes)";
            return Err(ClientError::bad_request(text));
        }
    };
    Ok(Request::MsgSend { topic, data })
}

/// `msg_monitor`: a pattern of topics.
pub(super) fn decode_msg_monitor<'a>(fields: &Fields<'a>) -> Result<Request<'a>, ClientError> {
    let topic = read_topic(fields, true)?;
    let last = topic.len().saturating_sub(1);
    if topic.elements().take(last).any(|level| level == Element::Str(ANY_REST)) {
        return Err(bad("'#' stands for the rest of a topic, so it must be the last level"));
    }
    Ok(Request::MsgMonitor { topic, raw: fields.flag(Field::Raw)? })
}

/// The levels of a topic. Elements that are no strings become some, as Python writes them. A plain
/// string is one element, however many dots it has; but where a pattern is wanted, it is a path in
/// text form.
fn read_topic(fields: &Fields<'_>, pattern: bool) -> Result<Path, ClientError> {
    let raw = fields.need(Field::Topic)?;
    let mut builder = PathBuilder::default();
    match Reader::new(raw).read_str() {
        Ok("") => {}
        Ok(text) if pattern => {
            let path: Path = text.parse().map_err(bad)?;
            push_levels(path.elements(), &mut builder)?;
        }
        Ok(text) => push_levels([Element::Str(text)].into_iter(), &mut builder)?,
        Err(_) => {
            let path = PathBytes::from_msgpack_value(raw).map_err(bad)?;
            push_levels(path.elements(), &mut builder)?;
        }
    }
    let topic = builder.finish();
    if topic.is_root() {
        return Err(bad("it is empty; a topic needs at least one level"));
    }
    Ok(topic)
}

fn push_levels<'a>(
    elements: impl Iterator<Item = Element<'a>>,
    builder: &mut PathBuilder,
) -> Result<(), ClientError> {
    for (place, element) in elements.enumerate() {
        let text = match element {
            Element::Str("") if place == 0 => return Err(bad("it begins with an empty string")),
            Element::Str(text) => {
                push_split(text, builder)?;
                continue;
            }
            Element::Nil => String::from("None"),
            Element::Bool(true) => String::from("True"),
            Element::Bool(false) => String::from("False"),
            Element::Int(number) => number.to_string(),
            Element::Float(number) => format!("{number:?}"),
            Element::Bin(bytes) => {
                let text = std::str::from_utf8(bytes);
                text.map_err(|_| bad("it has bytes that are not UTF-8; levels are texts"))?.into()
            }
            Element::Array(_) => python_text(element),
        };
        push_split(&text, builder)?;
    }
    Ok(())
}

fn push_split(text: &str, builder: &mut PathBuilder) -> Result<(), ClientError> {
    text.split('/').try_for_each(|level| builder.push(level).map_err(bad))
}

fn bad(why: impl std::fmt::Display) -> ClientError {
    ClientError::bad_request(format!("bad field 'topic': {why}"))
}

/// Whether a topic matches a pattern. `+` is any one level and a final `#` one or more of them, but
/// neither stands for a first level that begins with `$`: those topics are only matched by name.
/// That `a.#` does not match `a` is what the original's broker does; the MQTT standard would
/// have it otherwise.
#[must_use]
pub fn topic_matches(pattern: &Path, topic: &Path) -> bool {
    let is_reserved =
        |path: &Path| matches!(path.elements().next(), Some(Element::Str(t)) if t.starts_with('$'));
    if is_reserved(pattern) != is_reserved(topic) {
        return false;
    }
    let mut levels = topic.elements();
    for wanted in pattern.elements() {
        let Some(found) = levels.next() else { return false };
        if wanted == Element::Str(ANY_REST) {
            return true;
        }
        if wanted != found && wanted != Element::Str(ANY_LEVEL) {
            return false;
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use crate::protocol::client::topic::*;
    use crate::protocol::client::{ClientMessage, decode};

    #[test]
    fn patterns_match_as_with_the_originals_broker() {
        let matches = |pattern: &str, topic: &str| {
            topic_matches(&pattern.parse().unwrap(), &topic.parse().unwrap())
        };
        assert!(matches("a.b", "a.b") && !matches("a.b", "a") && !matches("a", "a.b"));
        assert!(matches("a.+", "a.b") && !matches("a.+", "a.b.c") && !matches("a.+", "a"));
        assert!(matches("a.#", "a.b.c") && !matches("a.#", "a") && !matches("a.#", "b.c"));
        assert!(matches("#", "a") && matches("#", "a.b") && matches("+.b", "a.b"));
        assert!(matches("a.+.#", "a.b.c") && !matches("a.+.#", "a.b"));
        assert!(!matches("#", "$x") && !matches("+", "$x") && !matches("#", "$x.y"));
        assert!(matches("$x", "$x") && matches("$x.#", "$x.y") && matches("$x.+", "$x.y"));
    }

    /// The levels that a topic has, or the error.
    fn levels(action: &str, topic: &[u8]) -> Result<Vec<String>, String> {
        let head =
            [b"\x84\xa3seq\x01\xa6action", &[0xa0 | action.len() as u8][..], action.as_bytes()];
        let message = [&head.concat()[..], b"\xa4data\x01\xa5topic", topic].concat();
        let path = match decode(&message).map_err(|bad| bad.error.text)? {
            ClientMessage::Request {
                request: Request::MsgSend { topic, .. } | Request::MsgMonitor { topic, .. },
                ..
            } => topic,
            other => panic!("{other:?}"),
        };
        Ok(path
            .elements()
            .map(|e| if let Element::Str(t) = e { t.into() } else { panic!("{e:?}") })
            .collect())
    }

    #[test]
    fn a_slash_divides_levels_as_elements_do() {
        let same: [(&[u8], &[&str]); 7] = [
            (b"\xa3a/b", &["a", "b"]),
            (b"\x91\xa3a/b", &["a", "b"]),
            (b"\x92\xa1a\xa1b", &["a", "b"]),
            (b"\xc7\x04\x03\xa1a\xa1b", &["a", "b"]),
            (b"\x92\xa1a\xa0", &["a", ""]),
            (b"\xa1/", &["", ""]),
            (b"\x94\xc0\x01\xc3\xa1a", &["None", "1", "True", "a"]),
        ];
        for (topic, wanted) in same {
            for action in ["msg_send", "msg_monitor"] {
                assert_eq!(levels(action, topic).unwrap(), wanted, "{topic:x?}");
            }
        }
        assert_eq!(levels("msg_send", b"\xa3a.b").unwrap(), ["a.b"], "one element");
        assert_eq!(levels("msg_monitor", b"\xa3a.b").unwrap(), ["a", "b"], "a path in text form");
    }

    #[test]
    fn topics_that_cannot_be_are_refused() {
        for action in ["msg_send", "msg_monitor"] {
            for empty in [&b"\xa0"[..], b"\x90", b"\xc7\x00\x03"] {
                let error = levels(action, empty).unwrap_err();
                assert!(error.contains("'topic'") && error.contains("empty"), "{error}");
            }
            assert!(levels(action, b"\x92\xa0\xa1a").unwrap_err().contains("empty string"));
            assert!(levels(action, b"\x05").is_err() && levels(action, b"\xc0").is_err());
        }
        // Bytes that are text are that text; others are none.
        for action in ["msg_send", "msg_monitor"] {
            assert_eq!(levels(action, b"\x92\xc4\x02ab\xa1c").unwrap(), ["ab", "c"]);
            for bytes in [&b"\x91\xc4\x01\xff"[..], b"\x92\xa1a\xc4\x02\xc3x", b"\xd5\x03\xa1\xff"]
            {
                let error = levels(action, bytes).unwrap_err();
                assert!(error.contains("'topic'") && error.contains("UTF-8"), "{error}");
            }
        }
        for pattern in [&b"\x92\xa1a\xa1+"[..], b"\x92\xa1a\xa1#", b"\xa1#", b"\xa3a/+"] {
            assert!(levels("msg_send", pattern).unwrap_err().contains("patterns"), "{pattern:x?}");
            assert!(levels("msg_monitor", pattern).is_ok(), "{pattern:x?}");
        }
        assert!(levels("msg_monitor", b"\x93\xa1a\xa1#\xa1c").unwrap_err().contains("last"));
    }

    #[test]
    fn a_message_has_one_content() {
        let head = &b"\x85\xa3seq\x01\xa6action\xa8msg_send\xa5topic\xa1t"[..];
        for both in [&b"\xa3raw\xc4\x01x\xa4data\x05"[..], b"\xa4data\xc0\xa3raw\xc4\x00"] {
            let error = decode(&[head, both].concat()).unwrap_err().error.text;
            assert!(error.contains("'data' or 'raw'") && error.contains("not both"), "{error}");
        }
        let nil = [head, b"\xa3raw\xc0\xa4data\x05"].concat();
        assert!(decode(&nil).is_ok(), "nil is as good as not there");
    }
}
