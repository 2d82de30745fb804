//! Which requests are refused whatever they ask for: those that two programs could take for two different
//! ones, and those of web pages that have a name of their own point here (DNS rebinding).

use std::net::IpAddr;

use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Version};

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// For programs.
    pub(crate) code: &'static str,
    /// For people.
    pub(crate) text: String,
    /// What follows on the connection cannot be trusted.
    pub(crate) closes: bool,
    /// Of a method that is not taken: those that are.
    pub(crate) allow: &'static str,
}

impl Refusal {
    fn of(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self { status, code, text: text.into(), closes: true, allow: "GET, HEAD" }
    }
}

/// The names by which the node may be called, besides `localhost` and the address at which the connection
/// came in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// In lower case.
    names: Vec<String>,
}

impl Hosts {
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self { names: names.iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Whether a request for `host`, which came in at this address, is meant for this node.
    fn has(&self, host: &str, came_in_at: IpAddr) -> bool {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            let is_named = || self.names.iter().any(|name| name.parse() == Ok(ip));
            return ip.to_canonical() == came_in_at || is_named();
        }
        let host = host.to_ascii_lowercase();
        host == "localhost" || self.names.contains(&host)
    }
}

/// Looks at a request's head.
pub(crate) fn look(head: &Parts, came_in_at: IpAddr, hosts: &Hosts) -> Result<(), Refusal> {
    let bad = |text: &str| Err(Refusal::of(StatusCode::BAD_REQUEST, "bad_request", text));
    if !matches!(head.version, Version::HTTP_10 | Version::HTTP_11) {
        return bad("only HTTP/1 is spoken here");
    }
    if head.uri.authority().is_some() || !head.uri.path().starts_with('/') {
        return bad("the request's target must be a path, like /metrics");
    }
    let has_body = has_body(&head.headers)?;
    let mut named = head.headers.get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return bad("a request must have one Host field");
    };
    let Some(host) = host.to_str().ok().and_then(without_port) else {
        return bad("the Host field is no host");
    };
    if !hosts.has(host, came_in_at) {
        let text = format!(
            "this node is not called {:?}; ask by its address, or start it with --http-name",
            host.chars().take(64).collect::<String>()
        );
        return Err(Refusal::of(StatusCode::MISDIRECTED_REQUEST, "host", text));
    }
    let writes = is_entry(head.uri.path());
    let allow = if writes { "GET, HEAD, PUT, DELETE" } else { "GET, HEAD" };
    let is_write = matches!(head.method, Method::PUT | Method::DELETE);
    if !(matches!(head.method, Method::GET | Method::HEAD) || (writes && is_write)) {
        let text = format!("only {allow} are taken here");
        let refusal = Refusal::of(StatusCode::METHOD_NOT_ALLOWED, "method", text);
        // A body that is not read may hide another request.
        return Err(Refusal { closes: has_body, allow, ..refusal });
    }
    // Only a request that writes has a body.
    if has_body && !(writes && head.method == Method::PUT) {
        let text = "this request takes no body";
        return Err(Refusal::of(StatusCode::PAYLOAD_TOO_LARGE, "bad_request", text));
    }
    Ok(())
}

/// Why a request is refused whose target has a raw `#`.
pub(crate) fn cut_target() -> Refusal {
    let text = "the request's target has a raw '#', and what is behind that would be lost: write it as %23";
    Refusal::of(StatusCode::BAD_REQUEST, "bad_request", text)
}

/// Whether a path is that of an entry, which can be written.
fn is_entry(path: &str) -> bool {
    path.strip_prefix("/v1/kv").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a request has a body. One that says two things of its length may hide another request.
fn has_body(headers: &HeaderMap) -> Result<bool, Refusal> {
    let bad = |text: &str| Err(Refusal::of(StatusCode::BAD_REQUEST, "bad_request", text));
    if headers.contains_key(TRANSFER_ENCODING) {
        return bad("Transfer-Encoding is not taken");
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(false),
        (Some(length), None) => Ok(length.as_bytes() != b"0"),
        (Some(_), Some(_)) => bad("Content-Length is there twice"),
    }
}

/// The host of a Host field; none if it is not `host` or `host:port`.
fn without_port(field: &str) -> Option<&str> {
    let behind_address = field.find(']').unwrap_or(0);
    let (host, port) = match field.get(behind_address..)?.rfind(':') {
        Some(at) => (field.get(..behind_address + at)?, field.get(behind_address + at + 1..)?),
        None => (field, ""),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    let is_fine = !host.is_empty() && host.chars().all(is_host);
    (is_fine && port.chars().all(|c| c.is_ascii_digit()) && port.len() <= 5).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn status(
        build: impl Fn(hyper::http::request::Builder) -> hyper::http::request::Builder,
    ) -> u16 {
        let request = build(Request::builder().uri("/metrics")).body(()).unwrap();
        let hosts = Hosts::new(vec!["N1.example.org".into(), "10.0.0.1".into()]);
        let (head, ()) = request.into_parts();
        let looked = look(&head, "192.0.2.7".parse().unwrap(), &hosts);
        looked.map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn a_connection_ends_with_a_body_that_was_not_read() {
        let closes = |length: &str| {
            let request = Request::builder().method("PUT").uri("/metrics");
            let request = request.header("host", "localhost").header("content-length", length);
            let (head, ()) = request.body(()).unwrap().into_parts();
            let looked = look(&head, "192.0.2.7".parse().unwrap(), &Hosts::default());
            looked.unwrap_err().closes
        };
        assert!(closes("5"));
        assert!(!closes("0"));
    }

    #[test]
    fn a_request_must_name_this_node() {
        for host in [
            "192.0.2.7",
            "192.0.2.7:9",
            "localhost",
            "LocalHost:27585",
            "n1.EXAMPLE.org:80",
            "10.0.0.1",
            "[::ffff:192.0.2.7]:27585",
        ] {
            assert_eq!(status(|r| r.header("host", host)), 200, "{host}");
        }
        for host in ["evil.example", "192.0.2.8", "127.0.0.1", "[::1]:5", "localhost.evil.example"]
        {
            assert_eq!(status(|r| r.header("host", host)), 421, "{host}");
        }
        for host in ["", ":80", "a b", "a:b", "a:123456", "n1/", "user@localhost", "[", "a\"b"] {
            let answered = status(|r| r.header("host", host));
            assert!(matches!(answered, 400 | 421), "{host}: {answered}");
        }
    }

    #[test]
    fn what_could_be_taken_for_something_else_is_refused() {
        let local = |r: hyper::http::request::Builder| r.header("host", "localhost");
        assert_eq!(status(|r| r), 400, "no host");
        assert_eq!(status(|r| local(local(r))), 400, "two hosts");
        assert_eq!(status(|r| local(r).uri("http://localhost/metrics")), 400);
        assert_eq!(status(|r| local(r).method("OPTIONS").uri("*")), 400);
        assert_eq!(status(|r| local(r).header("transfer-encoding", "chunked")), 400);
        assert_eq!(status(|r| local(r).header("content-length", "5")), 413);
        assert_eq!(status(|r| local(r).header("content-length", "0")), 200);
        let twice = |r| local(r).header("content-length", "0").header("content-length", "0");
        assert_eq!(status(twice), 400);
        assert_eq!(status(|r| local(r).method("POST")), 405);
        assert_eq!(status(|r| local(r).method("HEAD")), 200);
        let entry = |r| local(r).uri("/v1/kv/a");
        assert_eq!(status(|r| entry(r).method("PUT").header("content-length", "5")), 200);
        assert_eq!(status(|r| entry(r).method("DELETE").header("content-length", "5")), 413);
        assert_eq!(status(|r| entry(r).header("content-length", "5")), 413);
        assert_eq!(status(|r| entry(r).method("PUT").header("transfer-encoding", "chunked")), 400);
        assert_eq!(status(|r| entry(r).method("PATCH")), 405);
        let elsewhere = |r| local(r).uri("/v1/kvs").method("PUT");
        assert_eq!(status(elsewhere), 405);
        assert_eq!(status(|r| elsewhere(r).header("content-length", "5")), 405, "not its length");
        assert_eq!(status(|r| local(r).version(Version::HTTP_2)), 400);
    }
}
