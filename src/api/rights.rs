//! Who asks, and whether that may be: tickets, the node's own token, and pages of other places.
//!
//! Where clients must log in, a ticket says who asks, and access lists decide as for every client. Elsewhere whoever
//! reaches the port reads, as at the client port; but web browsers reach it, too, with whatever page they have loaded.
//! So writes need a secret that no page knows, and no cookie can carry.

use std::fmt;

use distkv_http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use distkv_http::{Reply, Request, StatusCode};
use distkv_tls::ticket::{Login, Ticket};

use super::Api;
use super::client::{Client, Failure};
use crate::client::Fields;

/// What a ticket begins with.
const TICKET: &str = "distkv1.";
/// The method of those who have the cluster's key; it is not for tickets.
const KEY: &str = "key";

/// A secret that lets programs write at an open node.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Vec<u8>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// A token. What begins like a ticket never is one.
    #[must_use]
    pub(crate) fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// Compares without telling by its time how much is equal.
    fn is(&self, other: &[u8]) -> bool {
        let differ = self.0.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
        self.0.len() == other.len() && std::hint::black_box(differ) == 0
    }
}

impl Api {
    /// A client for a request, logged in as the request says.
    ///
    /// # Errors
    /// The answer: who asks is not known, or may not do that here.
    pub(super) async fn enter(&self, request: &Request, writes: bool) -> Result<Client, Reply> {
        let opened = self.host.client(request.peer);
        let mut client = opened
            .map(|inner| Client::new(inner, request.conversions.clone()))
            .map_err(|failure| failure.reply())?;
        let bearer = bearer(request)?;
        if bearer.is_some() && !request.is_private() {
            let text = "a secret would go through the network in plain text, so none is taken here; ask on the \
                        node's own machine, or give the node a certificate (--cert, or --key) and ask by https";
            return Err(denied(text));
        }
        let mut is_known = false;
        match bearer {
            Some(bearer) if bearer.starts_with(TICKET) => {
                log_in(&mut client, bearer).await?;
                is_known = true;
            }
            Some(bearer) => {
                let is_token = |token: &Token| token.is(bearer.as_bytes());
                is_known = !client.must_log_in() && self.token.as_ref().is_some_and(is_token);
                if !is_known {
                    return Err(unauthorized(
                        "auth_failed",
                        "the bearer token is neither a ticket nor this node's token",
                    ));
                }
            }
            None => {}
        }
        if client.role().is_none() {
            let text = "clients of this node must log in: send a ticket as bearer token";
            return Err(unauthorized("auth_required", text));
        }
        if writes {
            self.check_write(request, &client, is_known)?;
        }
        Ok(client)
    }

    fn check_write(&self, request: &Request, client: &Client, is_known: bool) -> Result<(), Reply> {
        if !is_own_page(request) {
            return Err(denied("web pages from elsewhere may change nothing here (Origin)"));
        }
        if client.must_log_in() {
            return Ok(());
        }
        if self.token.is_none() {
            return Err(denied("this node takes no changes by HTTP; start it with --http-write"));
        }
        if !request.is_private() {
            let text =
                "changes come by TLS, or from the node's own machine; this node has no certificate";
            return Err(denied(text));
        }
        if !is_known {
            let text = "a change needs this node's token as bearer token (--http-token-file)";
            return Err(unauthorized("auth_required", text));
        }
        Ok(())
    }
}

/// The bearer token of a request.
fn bearer(request: &Request) -> Result<Option<&str>, Reply> {
    let bad = |text| Failure::bad_request(text).reply();
    let mut fields = request.headers.get_all(AUTHORIZATION).iter();
    let Some(field) = fields.next() else { return Ok(None) };
    if fields.next().is_some() {
        return Err(bad("the field Authorization is there twice"));
    }
    let text = field.to_str().map_err(|_| bad("the field Authorization is no text"))?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(unauthorized("auth_failed", "Authorization must be Bearer and a ticket or token")),
    }
}

/// Logs in as the ticket says.
async fn log_in(client: &mut Client, ticket: &str) -> Result<(), Reply> {
    let parsed: Result<Ticket, _> = ticket.parse();
    let ticket = parsed.map_err(|error| unauthorized("auth_failed", &error.to_string()))?;
    let Some(Login { method, user, secret }) = ticket.login else {
        return Err(unauthorized("auth_failed", "this ticket names no user"));
    };
    if method == KEY {
        return Err(unauthorized("auth_failed", "nobody logs in with the cluster's key here"));
    }
    let mut fields = Fields::new();
    fields.str("typ", &method).str("ident", &user);
    if let Some(secret) = secret {
        fields.str("secret", &secret);
    }
    client.call_to_end("auth", &fields).await.map_err(|failure| failure.reply())
}

/// Whether it was not a page that asks, or one of this node.
fn is_own_page(request: &Request) -> bool {
    let mut origins = request.headers.get_all(ORIGIN).iter();
    let host = request.headers.get(HOST).and_then(|host| host.to_str().ok());
    match (origins.next(), origins.next()) {
        (None, _) => true,
        (Some(origin), None) => {
            let asked = Asked { is_encrypted: request.is_encrypted, port: request.port };
            matches!((origin.to_str(), host), (Ok(origin), Some(host)) if asked.is_by(origin, host))
        }
        (Some(_), Some(_)) => false,
    }
}

/// How a request came to this node.
#[derive(Clone, Copy)]
struct Asked {
    is_encrypted: bool,
    /// The node's own port.
    port: u16,
}

impl Asked {
    /// Whether a page of this origin is the one that this host serves.
    ///
    /// A proxy before the node may speak TLS with browsers, and not with the node: then the page is one of `https://`, and
    /// the request comes without TLS. Such a page is the proxy's, as long as both name the same host and port: a browser that
    /// asked the node itself would name the node's port. At port 80 it names none, so there is no telling, and whatever
    /// answers at port 443 is taken for another program.
    fn is_by(self, origin: &str, host: &str) -> bool {
        let (page, default) = match origin.split_once("://") {
            Some(("https", page)) => (page, "443"),
            Some(("http", page)) if !self.is_encrypted => (page, "80"),
            _ => return false,
        };
        let ((page, page_port), (host, host_port)) = (with_port(page), with_port(host));
        let may_lack_port = self.is_encrypted || default == "80" || self.port != 80;
        page.eq_ignore_ascii_case(host)
            && page_port.unwrap_or(default) == host_port.unwrap_or(default)
            && (host_port.is_some() || may_lack_port)
    }
}

/// A host, and the port behind it.
fn with_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        // The last colon of an address in brackets is within it.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    }
}

fn denied(text: &str) -> Reply {
    Reply::error(StatusCode::FORBIDDEN, "denied", text)
}

fn unauthorized(code: &str, text: &str) -> Reply {
    challenge(Reply::error(StatusCode::UNAUTHORIZED, code, text))
}

/// An answer of status 401 says what is wanted.
pub(super) fn challenge(reply: Reply) -> Reply {
    reply.with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"distkv\""))
}

#[cfg(test)]
mod tests {
    use super::Asked;

    #[test]
    fn a_page_is_the_node_s_own_if_it_has_its_host_and_port_also_behind_a_proxy_with_tls() {
        let (plain, tls) = (false, true);
        for (is_encrypted, port, origin, host, is_own) in [
            (plain, 27585, "http://kv.example", "kv.example", true),
            (plain, 27585, "http://KV.example:27585", "kv.EXAMPLE:27585", true),
            (plain, 27585, "http://kv.example", "kv.example:80", true),
            (plain, 80, "http://kv.example", "kv.example", true),
            (plain, 27585, "http://[::1]:27585", "[::1]:27585", true),
            (plain, 27585, "http://[::1]", "[::1]", true),
            (plain, 27585, "http://[::1]:1", "[::1]", false),
            (plain, 27585, "http://kv.example:81", "kv.example:82", false),
            (plain, 27585, "http://kv.example", "kv.example:27585", false),
            (plain, 27585, "http://kv.example:27585", "kv.example", false),
            // A proxy that speaks TLS, and asks the node without.
            (plain, 27585, "https://kv.example", "kv.example", true),
            (plain, 27585, "https://kv.example", "kv.example:443", true),
            (plain, 27585, "https://kv.example:8443", "kv.example:8443", true),
            (plain, 27585, "https://[::1]:8443", "[::1]:8443", true),
            (plain, 27585, "https://evil.example", "kv.example", false),
            (plain, 27585, "https://kv.example.evil.example", "kv.example", false),
            (plain, 27585, "https://kv.example", "kv.example.evil.example", false),
            (plain, 27585, "https://kv.example:8443", "kv.example", false),
            (plain, 27585, "https://kv.example", "kv.example:8443", false),
            (plain, 27585, "https://kv.example", "kv.example:80", false),
            (plain, 27585, "https://kv.example", "kv.example:27585", false),
            // The node itself answers at port 80, so what answers at port 443 is another program.
            (plain, 80, "https://kv.example", "kv.example", false),
            (plain, 80, "https://kv.example", "kv.example:443", true),
            (plain, 80, "https://kv.example:8443", "kv.example:8443", true),
            // Where the node speaks TLS itself, a page without is anybody's on the way.
            (tls, 27585, "https://kv.example", "kv.example", true),
            (tls, 443, "https://kv.example", "kv.example", true),
            (tls, 80, "https://kv.example:80", "kv.example:80", true),
            (tls, 27585, "https://kv.example:27585", "kv.example:27585", true),
            (tls, 27585, "http://kv.example", "kv.example", false),
            (tls, 27585, "http://kv.example:27585", "kv.example:27585", false),
            (tls, 27585, "https://kv.example:1", "kv.example", false),
            (plain, 27585, "null", "null", false),
            (plain, 27585, "file://", "", false),
            (plain, 27585, "kv.example", "kv.example", false),
            (plain, 27585, "http://kv.example/", "kv.example", false),
        ] {
            let asked = Asked { is_encrypted, port };
            let (text, found) = (format!("{is_encrypted} {port}"), asked.is_by(origin, host));
            assert_eq!(found, is_own, "TLS, and the node's port: {text}, {origin} at {host}");
        }
    }
}
