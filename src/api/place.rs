//! What a request's target says: a path, one URL segment per element, and parameters.

use distkv_http::Request;
use jiff::Timestamp;

use super::client::Failure;
use crate::model::path::{Element, Path, PathBuilder};
use crate::model::path_text::PathTextError;

/// Most parameters of a request.
const PARAMETERS_MAX: usize = 16;

/// The path of an entry, behind `/v1/kv`. A segment is a string as it is; one that begins with a colon is an element as
/// in a path's text (`:1`, `:t`, `::` for a colon).
pub(super) fn path(segments: &str) -> Result<Path, Failure> {
    let Some(segments) = segments.strip_prefix('/').filter(|rest| !rest.is_empty()) else {
        return Ok(Path::root());
    };
    let bad = |why: String| Failure::bad_request(format!("bad path: {why}"));
    let mut path = PathBuilder::default();
    for segment in segments.split('/') {
        let one = element(&decode(segment).map_err(|why| bad(why.to_owned()))?).map_err(bad)?;
        let element = one.first().ok_or_else(|| bad(String::from("an element is missing")))?;
        path.push(element).map_err(|error| bad(error.to_string()))?;
    }
    Ok(path.finish())
}

/// A path of the one element that a segment says.
pub(super) fn element(segment: &str) -> Result<Path, String> {
    if segment.is_empty() {
        return Err(String::from("an empty segment; the empty string is ':e'"));
    }
    if !segment.starts_with(':') {
        return Path::root().push(Element::Str(segment)).map_err(|error| error.to_string());
    }
    let one: Path = segment.parse().map_err(|error: PathTextError| {
        // That a path is bad is said by whoever asks for the element.
        let text = error.to_string();
        format!("{segment:?}: {}", text.trim_start_matches("bad path: "))
    })?;
    match one.len() {
        1 => Ok(one),
        _ => Err(format!("the segment {segment:?} must be one element")),
    }
}

/// The segment that says an element, not yet percent-encoded. Browsers resolve dots even if they are encoded.
pub(super) fn segment(element: Element<'_>) -> String {
    match element {
        Element::Str(text) if !text.is_empty() && !text.starts_with([':', '.']) => text.to_owned(),
        other => Path::root().push(other).map(|path| path.to_string()).unwrap_or_default(),
    }
}

/// A name or a value of a query: as a path has it, but `+` is a space. Programs encode queries like forms.
fn decode_form(text: &str) -> Result<String, &'static str> {
    decode(&text.replace('+', " "))
}

/// What stands for itself, with the bytes that `%` and two hexadecimal digits stand for.
fn decode(text: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |at: usize| char::from(*behind.get(at)?).to_digit(16);
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err("behind '%' there must be two hexadecimal digits");
        };
        bytes.push((high * 16 + low) as u8);
        rest = behind.get(2..).unwrap_or_default();
    }
    String::from_utf8(bytes)
        .map_err(|_| "it is not UTF-8; a byte string is ':y' and hexadecimal digits")
}

/// The parameters of a request, each of which may be asked for once.
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Those of this request.
    pub(super) fn of(request: &Request) -> Result<Self, Failure> {
        Self::read(request.query.as_deref().unwrap_or_default())
    }

    fn read(query: &str) -> Result<Self, Failure> {
        let bad = |why: &str| Failure::bad_request(format!("bad parameters: {why}"));
        let mut found: Vec<(String, String)> = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (decode_form(name).map_err(bad)?, decode_form(value).map_err(bad)?);
            if found.iter().any(|(other, _)| *other == name) {
                return Err(bad(&format!("{name:?} is there twice")));
            }
            if found.len() >= PARAMETERS_MAX {
                return Err(bad("there are too many"));
            }
            found.push((name, value));
        }
        Ok(Self(found))
    }

    /// A parameter's value, which is not asked for again.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(found, _)| found == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Whether a parameter without a value is there.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Failure> {
        match self.take(name).as_deref() {
            None => Ok(false),
            Some("") => Ok(true),
            Some(_) => Err(Failure::bad_request(format!("{name:?} takes no value"))),
        }
    }

    /// A parameter that is a natural number.
    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| is_number && *number <= i64::MAX as u64);
        let bad = || Failure::bad_request(format!("{name:?} must be a natural number"));
        number.map(Some).ok_or_else(bad)
    }

    /// A parameter that is a moment. One whose offset has a raw `+`, which is a space now, is taken as it was meant.
    pub(super) fn moment(&mut self, name: &str) -> Result<Option<Timestamp>, Failure> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let bad =
            || Failure::bad_request(format!("{name:?} must be a time, like 2026-11-21T09:14:42Z"));
        let meant = match text.rsplit_once(' ') {
            Some((time, offset)) if time.contains(':') => format!("{time}+{offset}"),
            _ => text,
        };
        meant.parse().map(Some).map_err(|_| bad())
    }

    /// There must be no others.
    pub(super) fn end(self) -> Result<(), Failure> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                Err(Failure::bad_request(format!("the parameter {name:?} has no meaning here")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(segments: &str) -> Result<String, String> {
        path(segments).map(|path| path.to_string()).map_err(|failure| failure.text)
    }

    #[test]
    fn a_segment_is_a_string_or_begins_with_a_colon() {
        for (segments, expected) in [
            ("", ":"),
            ("/", ":"),
            ("/a/b", "a.b"),
            ("/a.b", "a:.b"),
            ("/a/:1/:t", "a:1:t"),
            ("/::x", "::x"),
            ("/a%2Fb/%C3%BC", "a/b.ü"),
            ("/%3A1", ":1"),
            ("/%00", "\u{0}"),
            ("/:e", ":e"),
            ("/:'t',1", ":'t',1"),
            ("/:n/auth", ":n.auth"),
            ("/a b", "a:_b"),
            ("/..", ":.:."),
        ] {
            assert_eq!(text(segments).as_deref(), Ok(expected), "{segments}");
        }
        for segments in [
            "//", "/a//b", "/a/", "/%", "/%1", "/%zz", "/%ff", "/:", "/:1:2", "/:1.a", "/a/:n",
            "/:x", "/:1:.5.b", "/%+1",
        ] {
            let said = text(segments).unwrap_err();
            assert_eq!(said.matches("bad path").count(), 1, "{segments}: {said}");
        }
        let deep = "/a".repeat(65);
        assert!(text(&deep).unwrap_err().contains("64"), "{:?}", text(&deep));
        assert!(text(&format!("/{}", "x".repeat(5_000))).is_err());
    }

    #[test]
    fn parameters_are_known_and_there_once() {
        let read = |query: &str| Parameters::read(query).map_err(|failure| failure.text);
        let mut some = read("children&limit=5&after=%3A1").unwrap();
        assert_eq!(some.flag("children"), Ok(true));
        assert_eq!(some.flag("tree"), Ok(false));
        assert_eq!(some.number("limit"), Ok(Some(5)));
        assert_eq!(some.take("after").as_deref(), Some(":1"));
        assert!(some.end().is_ok());
        // As URLSearchParams and others encode a form.
        let mut form = read("after=a+b&since=1%2B2&path=%2b+%20").unwrap();
        assert_eq!(form.take("after").as_deref(), Some("a b"));
        assert_eq!(form.take("since").as_deref(), Some("1+2"));
        assert_eq!(form.take("path").as_deref(), Some("+  "));
        assert_eq!(text("/a+b").as_deref(), Ok("a+b"), "in a path it stands for itself");
        let moment = |text: &str| {
            let moment = read(&format!("since={text}")).unwrap().moment("since");
            moment.ok().flatten().map(|moment| moment.as_second())
        };
        for offset in ["+02:00", "%2B02:00", "%2b0200", "+02"] {
            assert_eq!(moment(&format!("1970-01-01T02:00:05{offset}")), Some(5), "{offset}");
            assert_eq!(moment(&format!("1970-01-01+02:00:05{offset}")), Some(5), "{offset}");
        }
        assert_eq!(moment("1969-12-31T22:00:05-02:00"), Some(5));
        assert_eq!(moment("1970-01-01+00:00:05Z"), Some(5));
        for wrong in ["", "+", "1970-01-01+00:00:05", "1970-01-01T00:00:05+", "5"] {
            assert_eq!(moment(wrong), None, "{wrong:?}");
        }
        assert!(read("a&a").is_err() && read("a=%").is_err());
        assert!(read("a").unwrap().end().is_err());
        let wrong = ["-1", "", "1.5", "+1", "99999999999999999999", "0x1"];
        for number in wrong {
            assert!(read(&format!("n={number}")).unwrap().number("n").is_err(), "{number}");
        }
        assert!(read("f=1").unwrap().flag("f").is_err());
        let many: String = (0..20).map(|i| format!("p{i}&")).collect();
        assert!(read(&many).is_err());
    }

    /// Names that URLs, paths' texts or browsers could take for something else, and others.
    fn names() -> impl Strategy<Value = String> {
        prop_oneof!["[.:%/a1te' (),?#]{0,5}", "\\PC{0,8}"]
    }

    fn assert_is_found(element: Element<'_>) -> Result<(), TestCaseError> {
        let name = segment(element);
        let back = super::element(&name);
        prop_assert!(back.is_ok(), "{:?}: {:?}", name, back);
        let back = back.unwrap_or_else(|_| Path::root());
        prop_assert_eq!(back.first(), Some(element), "{}", name);
        // As a browser encodes it.
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = path(&format!("/{encoded}"));
        prop_assert_eq!(path.ok(), Some(back), "{}", name);
        Ok(())
    }

    proptest! {
        #[test]
        fn what_an_element_is_called_is_that_element(
            name in names(),
            number: i64,
            float in -1e9..1e9_f64,
            bytes in proptest::collection::vec(any::<u8>(), 1..9),
            flag: bool,
        ) {
            assert_is_found(Element::Str(&name))?;
            assert_is_found(Element::Float(float))?;
            assert_is_found(Element::Bin(&bytes))?;
            assert_is_found(Element::Bool(flag))?;
            assert_is_found(Element::Nil)?;
            assert_is_found(Element::Int(number.into()))?;
        }

        #[test]
        fn no_target_brings_it_down(target in "\\PC*", query in "\\PC*") {
            let _ = path(&format!("/{target}"));
            let _ = Parameters::read(&query);
        }
    }
}
