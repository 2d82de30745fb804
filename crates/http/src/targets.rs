//! Which request of a connection has a raw `#` in its target.
//!
//! `hyper` drops the `#` and what follows it before anybody sees the target: `DELETE /v1/kv/a#b` would delete `a`. So the
//! heads are looked at on their way to it, and the request's number is noted. Nothing that comes is changed. Should this
//! lose its way in the bytes, a request is refused, or not refused; none becomes another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much of a header field is kept, blanks left out: enough for any length of a body.
const FIELD_BYTES: usize = 64;

/// Looks at the bytes of a connection, in their order.
pub(crate) struct Heads {
    place: Place,
    /// The number of the request that the bytes belong to, from 0.
    request: u64,
    first_cut: Arc<AtomicU64>,
}

/// Where the next byte stands.
enum Place {
    /// In the first line of a head, or in the empty lines before it.
    Target { has_begun: bool },
    /// In a header field: its beginning. And how long the body will be, if a field has said so.
    Field { line: Vec<u8>, length: Option<u64> },
    /// In a body, of which so many bytes are to come.
    Body(u64),
    /// Behind a head that is refused, and ends the connection.
    Lost,
}

/// Which requests are refused, as their heads come out of the parser.
pub(crate) struct Targets {
    asked: AtomicU64,
    first_cut: Arc<AtomicU64>,
}

impl Targets {
    /// To be called once for each request. Whether its target, or that of one before it, was cut at a `#`.
    pub(crate) fn next_is_cut(&self) -> bool {
        let request = self.asked.fetch_add(1, Ordering::Relaxed);
        request >= self.first_cut.load(Ordering::Relaxed)
    }
}

/// Both sides of a new connection.
pub(crate) fn watch() -> (Heads, Targets) {
    let first_cut = Arc::new(AtomicU64::new(u64::MAX));
    let targets = Targets { asked: AtomicU64::new(0), first_cut: Arc::clone(&first_cut) };
    (Heads { place: Place::Target { has_begun: false }, request: 0, first_cut }, targets)
}

impl Heads {
    /// Looks at the bytes that come next.
    pub(crate) fn look(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, behind)) = bytes.split_first() {
            bytes = behind;
            match &mut self.place {
                Place::Target { has_begun } => match byte {
                    b'\n' if *has_begun => {
                        self.place = Place::Field { line: Vec::new(), length: None };
                    }
                    b'\r' | b'\n' => {}
                    b'#' => {
                        *has_begun = true;
                        self.first_cut.fetch_min(self.request, Ordering::Relaxed);
                    }
                    _ => *has_begun = true,
                },
                Place::Field { line, length } => match byte {
                    b'\n' if line.is_empty() => {
                        self.request += 1;
                        self.place = body(length.unwrap_or(0));
                    }
                    b'\n' => match length_in(line, *length) {
                        Ok(length) => self.place = Place::Field { line: Vec::new(), length },
                        Err(Unclear) => self.place = Place::Lost,
                    },
                    b'\r' | b' ' | b'\t' => {}
                    _ if line.len() < FIELD_BYTES => line.push(byte),
                    _ => {}
                },
                Place::Body(left) => {
                    // This byte, and those of the body that are there.
                    let rest = *left - 1;
                    let count = usize::try_from(rest).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = bytes.get(count..).unwrap_or_default();
                    self.place = body(rest - count as u64);
                }
                Place::Lost => return,
            }
        }
    }
}

/// What follows when so many bytes of a body are to come.
fn body(left: u64) -> Place {
    match left {
        0 => Place::Target { has_begun: false },
        left => Place::Body(left),
    }
}

/// Nobody knows where the next request begins: this one is refused.
struct Unclear;

/// The length of the body, if this field says it, else what was said before.
fn length_in(line: &[u8], before: Option<u64>) -> Result<Option<u64>, Unclear> {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return Ok(before) };
    let (name, value) = line.split_at(colon);
    if name.eq_ignore_ascii_case(b"transfer-encoding") {
        return Err(Unclear);
    }
    if !name.eq_ignore_ascii_case(b"content-length") {
        return Ok(before);
    }
    let digits = value.get(1..).unwrap_or_default();
    let is_number = line.len() < FIELD_BYTES && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number && before.is_none());
    text.and_then(|text| text.parse().ok()).map(Some).ok_or(Unclear)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the requests are cut, if their bytes come in parts of this size.
    fn cut(bytes: &[u8], part: usize, requests: usize) -> Vec<bool> {
        let (mut heads, targets) = watch();
        bytes.chunks(part).for_each(|part| heads.look(part));
        (0..requests).map(|_| targets.next_is_cut()).collect()
    }

    #[test]
    fn only_targets_are_looked_at_however_the_bytes_come() {
        let bytes = b"\r\n\nPUT /a HTTP/1.1\r\nA: #\r\ncontent-LENGTH: \t12 \r\n\r\n\r\nGET /#b \r\n\
            GET /c HTTP/1.1\nContent-Length:0\n\nGET /d HTTP/1.1\r\n\r\nGET /#e HTTP/1.1\r\n\r\nGET /f HTTP/1.1\r\n\r\n";
        for part in 1..bytes.len() {
            assert_eq!(cut(bytes, part, 5), [false, false, false, true, true], "{part}");
        }
    }

    #[test]
    fn behind_a_head_that_is_refused_nothing_is_looked_at() {
        for field in [
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: +5",
            "Content-Length: ",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: chunked",
        ] {
            let bytes = format!("PUT / HTTP/1.1\r\n{field}\r\n\r\nGET /#b HTTP/1.1\r\n\r\n");
            assert_eq!(cut(bytes.as_bytes(), 7, 2), [false, false], "{field}");
        }
    }
}
