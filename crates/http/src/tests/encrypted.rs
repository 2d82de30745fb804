//! The same port with TLS: both kinds at one address, who is refused, and what those do who speak it badly.

use distkv_tls::server::ClientRoots;
use distkv_tls::{Ca, Clock, ServerTls};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::*;

/// A client's session.
type Session = StreamOwned<ClientConnection, Socket>;

/// A port that speaks TLS, and what its clients need for that.
struct Encrypted {
    port: HttpPort,
    ca: Ca,
}

fn now() -> u64 {
    rt::wall_clock_ms() / 1_000
}

fn open_tls(is_plain_at_home: bool, limits: Limits) -> Encrypted {
    let ca = Ca::make("plant", now()).unwrap();
    let identity = ca.issue_node(&["localhost", "127.0.0.1"], now()).unwrap();
    let tls = ServerTls::new(&identity, &ClientRoots::none(), Clock::new(now)).unwrap();
    let tls = Tls { tls: Arc::new(tls), is_plain_at_home };
    Encrypted { port: open_by(Some(tls), limits, true), ca }
}

impl Encrypted {
    /// What a browser, `curl` or Prometheus does.
    fn connect(&self, protocols: &[&str]) -> Session {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.certificate().to_vec().into()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = "localhost".try_into().unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(session, super::connect(&self.port))
    }

    /// What is answered, until the session is closed in order.
    fn answer(&self, request: &[u8]) -> String {
        self.try_answer(request).expect("it is closed in order")
    }

    fn try_answer(&self, request: &[u8]) -> io::Result<String> {
        let mut session = self.connect(&["h2", "http/1.1"]);
        session.write_all(request)?;
        let mut answer = String::new();
        session.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn get(&self, path: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        self.answer(head.as_bytes())
    }
}

#[test]
fn both_kinds_come_at_one_port_on_the_nodes_own_machine() {
    let both = open_tls(true, Limits::default());
    assert_eq!(status(&both.get("/livez")), "200");
    assert_eq!(status(&get(&both.port, "/livez")), "200");
    // A client that names no protocol is served, one that wants another is not.
    let mut unnamed = both.connect(&[]);
    let request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    unnamed.write_all(request).unwrap();
    let mut said = String::new();
    unnamed.read_to_string(&mut said).unwrap();
    assert_eq!(status(&said), "200");
    assert!(both.connect(&["h2"]).write_all(request).is_err());
    assert!(both.connect(&["distkv"]).write_all(request).is_err(), "that is the client port's");
}

#[test]
fn where_tls_is_needed_plain_text_is_told_so_and_nothing_else() {
    let only = open_tls(false, Limits::default());
    assert_eq!(status(&only.get("/livez")), "200");
    for method in ["GET", "PUT"] {
        let request = format!(
            "{method} /v1/kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n{}",
            "x".repeat(70_000)
        );
        let refused = answer(&only.port, &request);
        assert!(status(&refused) == "400" && refused.contains("https://"), "{refused}");
        assert_eq!(refused.matches("HTTP/1.1").count(), 1, "{refused}");
        let (_, body) = refused.split_once("\r\n\r\n").unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["code"], "tls");
    }
    let metrics = only.get("/metrics");
    assert!(metrics.contains("distkv_http_requests_total{result=\"refused\"} 2\n"), "{metrics}");
}

#[test]
fn requests_are_looked_at_as_in_plain_text() {
    let only = open_tls(false, Limits::default());
    let second = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (head, expected) in [
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", "400"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let said = only.answer(format!("{head}{second}").as_bytes());
        assert_eq!(status(&said), expected, "{head}: {said}");
        assert!(!said.contains("distkv_conflicts"), "the next one was answered: {said}");
    }
}

#[test]
fn long_bodies_and_many_requests_come_through() {
    let only = open_tls(false, Limits::default());
    let mut request =
        b"PUT /v1/kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n".to_vec();
    request.extend(vec![b'x'; 3_000_000]);
    for _ in 0..100 {
        request.extend(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    request.extend(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = only.answer(&request);
    assert!(answer.contains("\r\n\r\n3000000HTTP/1.1 200"), "{}", &answer[..500]);
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 102);
    assert!(answer.ends_with("timer: ok\n"));
}

#[test]
fn events_come_as_they_happen() {
    let only = open_tls(false, Limits::default());
    let mut session = only.connect(&["http/1.1"]);
    session.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("event: one\ndata: 1\n\n") {
        let mut some = [0; 1024];
        let count = session.read(&mut some).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&some[..count]);
    }
}

#[test]
fn who_shakes_hands_slowly_or_badly_loses_the_connection() {
    let only = open_tls(true, Limits { head: Duration::from_secs(3), ..Limits::default() });
    let begins = [0x16, 3, 1, 0, 200, 1, 0];
    let began = rt::now();
    let silent = connect(&only.port);
    let mut dripping = connect(&only.port);
    dripping.write_all(&begins).unwrap();
    assert_eq!(rest(&silent), "");
    assert!(is_soon(began));
    let mut alert = Vec::new();
    let _ = dripping.read_to_end(&mut alert);
    assert!(alert.is_empty() && is_soon(began), "{alert:?}");
    // Waiting for a head after the handshake has its time, too.
    let mut idle = only.connect(&["http/1.1"]);
    idle.conn.complete_io(&mut idle.sock).unwrap();
    assert!(matches!(idle.read(&mut [0; 16]), Ok(0) | Err(_)));
    assert!(is_soon(began));
    // What is no handshake ends at once, with an alert at most.
    for bytes in [&[0x16; 100][..], &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3], &[0x16, 3, 3, 0, 1, 9]] {
        let mut bad = connect(&only.port);
        bad.write_all(bytes).unwrap();
        let mut said = Vec::new();
        let _ = bad.read_to_end(&mut said);
        assert!(said.first().is_none_or(|kind| *kind == 0x15), "{said:?}");
    }
    assert_eq!(status(&only.get("/livez")), "200", "others are unharmed");
}

#[test]
fn who_takes_nothing_of_an_encrypted_answer_loses_the_connection() {
    let only = open_tls(false, Limits { write: Duration::from_millis(200), ..Limits::default() });
    let mut greedy = only.connect(&["http/1.1"]);
    let requests = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000);
    let began = rt::now();
    greedy.conn.complete_io(&mut greedy.sock).unwrap();
    // Written past the session's own reading, which would take what is answered.
    loop {
        assert!(is_soon(began), "it is still open");
        greedy.conn.writer().write_all(requests.as_bytes()).unwrap();
        while greedy.conn.wants_write() {
            if greedy.conn.write_tls(&mut greedy.sock).is_err() {
                assert_eq!(status(&only.get("/livez")), "200", "others are unharmed");
                return;
            }
        }
    }
}

#[test]
fn however_many_begin_a_handshake_who_asks_is_answered() {
    let only = open_tls(false, Limits { connections: 8, ..Limits::default() });
    let mut half = Vec::new();
    for round in 0..100 {
        let mut socket = connect(&only.port);
        let _ = socket.write_all(&[0x16, 3, 1, 0, 200, 1, 0]);
        half.push(socket);
        assert!(only.port.connections() <= 8, "{}", only.port.connections());
        if round % 20 == 0 {
            let request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            // Of its own address, it may have to ask again.
            wait_for("who asks is answered", || {
                only.try_answer(request).is_ok_and(|answer| status(&answer) == "200")
            });
        }
    }
}
