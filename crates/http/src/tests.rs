//! The port over real sockets: hostile heads, slow clients, more connections than there may be.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream as Socket;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use distkv_crowd::shares::Holder;
use futures::stream::StreamExt as _;

use super::*;
use crate::message::HTTP_BODY_BYTES_MAX;
use crate::rt::block_on;

mod encrypted;

/// Longer than anything honest takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether it is not long ago.
fn is_soon(began: u64) -> bool {
    rt::now() - began < PATIENCE.as_millis() as u64
}

/// Of a crowd of its own address, who asks may have to ask again. (`slots` has tests with other addresses.)
fn is_answered(port: &HttpPort) {
    wait_for("who asks is answered", || status(&get(port, "/livez")) == "200");
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let began = rt::now();
    while !is_so() {
        assert!(is_soon(began), "not so: {what}");
    }
}

/// A node of which everything is known.
struct Known {
    is_ready: bool,
}

impl Source for Known {
    fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        numbers.set(distkv_metrics::Name::Conflicts, &[], 42_u64);
        numbers
    }

    fn live(&self) -> Vec<Check> {
        vec![Check::new("timer", None)]
    }

    fn ready(&self) -> Vec<Check> {
        let fault = (!self.is_ready).then(|| String::from("not yet\r\nforged: ok"));
        vec![Check::new("serving", fault)]
    }

    fn writable(&self) -> Vec<Check> {
        let noted = Check { note: Some("for now".into()), ..Check::new("memory", None) };
        vec![Check::new("disk", Some(String::from("it fails"))), noted]
    }

    fn api(&self, request: Request) -> BoxFuture<'static, Reply> {
        let forever = || futures::stream::pending().boxed();
        let event = Event { name: "one", data: String::from("1") };
        let named = request.query.as_deref().unwrap_or("joe");
        let holder = Holder::User { method: "token".into(), name: named.into() };
        async move {
            match request.path.as_str() {
                "/v1/events" => {
                    let events = futures::stream::once(async { event }).chain(forever());
                    Reply::events(events.boxed(), holder)
                }
                "/v1/cut" => {
                    let parts = [Ok(Bytes::from("part")), Err(io::Error::other("it is over"))];
                    Reply::parts(JSON_LINES, futures::stream::iter(parts).boxed(), holder)
                }
                "/v1/much" => {
                    let part = |_| {
                        TAKEN_OF_MUCH.fetch_add(PART_OF_MUCH, Ordering::Relaxed);
                        Ok(Bytes::from(vec![b'x'; PART_OF_MUCH]))
                    };
                    let parts = futures::stream::iter(0..1_000).map(part);
                    Reply::parts(JSON_LINES, parts.boxed(), holder)
                }
                "/v1/charged" => {
                    let mut reply = Reply::new(StatusCode::OK, JSON, "");
                    let bytes = Bytes::from(vec![b'x'; 1 << 20]);
                    reply.content = Content::Charged(bytes, Box::new(Used(AtomicUsize::new(0))));
                    reply
                }
                "/v1/kv/a" => match request.upload.read(&holder).await {
                    Ok(body) => Reply::new(StatusCode::OK, JSON, body.len().to_string()),
                    Err(refused) => refused,
                },
                "/v1/kv/forever" => std::future::pending().await,
                _ => Reply::error(StatusCode::NOT_FOUND, "not_found", "nothing"),
            }
        }
        .boxed()
    }
}

/// Memory that is needed elsewhere when some of the answer has gone out.
struct Used(AtomicUsize);

impl Charge for Used {
    fn is_over(&mut self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) > 3
    }
}

fn open_with(limits: Limits, is_ready: bool) -> HttpPort {
    open_by(None, limits, is_ready)
}

fn open_by(tls: Option<Tls>, limits: Limits, is_ready: bool) -> HttpPort {
    let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let names = vec![String::from("metrics.example.org")];
    HttpPort::serve(listener, address, names, tls, Arc::new(Known { is_ready }), limits)
}

fn open() -> HttpPort {
    open_with(Limits::default(), true)
}

fn connect(port: &HttpPort) -> Socket {
    let socket = Socket::connect(port.address()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// All that comes until the other side closes.
fn rest(mut socket: &Socket) -> String {
    let mut bytes = Vec::new();
    // A connection that is closed with unread bytes ends with an error.
    let _ = socket.read_to_end(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

/// What is answered to these bytes until the connection is closed, which must be soon.
fn answer(port: &HttpPort, request: &str) -> String {
    let mut socket = connect(port);
    let began = rt::now();
    let _ = socket.write_all(request.as_bytes());
    let answer = rest(&socket);
    assert!(is_soon(began), "it stays open after {request:?}: {answer}");
    answer
}

fn get(port: &HttpPort, path: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    answer(port, &head)
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

#[test]
fn each_page_answers_and_says_what_is_wrong() {
    let port = open();
    assert_eq!(status(&get(&port, "/")), "200");
    let live = get(&port, "/livez");
    assert!(status(&live) == "200" && live.ends_with("timer: ok\n"), "{live}");
    assert_eq!(status(&get(&port, "/readyz")), "200");
    let write = get(&port, "/readyz?write");
    assert!(
        status(&write) == "503"
            && write.ends_with("serving: ok\ndisk: it fails\nmemory: for now\n"),
        "{write}"
    );
    assert_eq!(status(&get(&port, "/readyz?reads")), "400");
    let none = get(&port, "/v1/none");
    assert!(status(&none) == "404" && none.contains("\"code\":\"not_found\""), "{none}");
    let port = open_with(Limits::default(), false);
    let ready = get(&port, "/readyz");
    assert!(
        status(&ready) == "503" && ready.ends_with("serving: not yet  forged: ok\n"),
        "{ready}"
    );
    assert_eq!(status(&get(&port, "/livez")), "200", "that is another question");
}

#[test]
fn metrics_come_in_the_format_that_is_asked_for() {
    let port = open();
    let plain = get(&port, "/metrics");
    assert!(plain.contains("content-type: text/plain; version=0.0.4"), "{plain}");
    assert!(plain.contains("# TYPE distkv_conflicts_total counter\ndistkv_conflicts_total 42\n"));
    assert!(plain.contains("distkv_http_connections 1\n"), "{plain}");
    let open = answer(
        &port,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\
         Connection: close\r\n\r\n",
    );
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0"), "{open}");
    assert!(open.contains("# TYPE distkv_conflicts counter\n") && open.ends_with("# EOF\n"));
}

#[test]
fn several_requests_come_over_one_connection_and_a_head_has_no_body() {
    let port = open();
    let mut socket = connect(&port);
    let head = |method: &str, more: &str| {
        format!("{method} /livez HTTP/1.1\r\nHost: localhost\r\n{more}\r\n")
    };
    let requests = head("GET", "")
        + &head("HEAD", "")
        + &head("POST", "")
        + &head("GET", "Connection: close\r\n");
    socket.write_all(requests.as_bytes()).unwrap();
    let answers = rest(&socket);
    let statuses: Vec<&str> =
        answers.lines().filter(|line| line.starts_with("HTTP/1.1 ")).map(status).collect();
    assert_eq!(statuses, ["200", "200", "405", "200"], "{answers}");
    assert_eq!(answers.matches("timer: ok\n").count(), 2, "{answers}");
    assert!(answers.contains("allow: GET, HEAD\r\n"), "{answers}");
}

#[test]
fn hostile_heads_are_refused_and_what_follows_them_is_not_read() {
    let port = open();
    let second = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (what, head, expected) in [
        ("two hosts", "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "400"),
        ("no host", "GET / HTTP/1.1\r\n\r\n", "400"),
        ("rebinding", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("another address", "GET / HTTP/1.1\r\nHost: 127.0.0.2\r\n\r\n", "421"),
        ("absolute", "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
        ("tunnel", "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
        ("star", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
        (
            "length and chunks",
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "400",
        ),
        (
            "chunks and length",
            "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
            "400",
        ),
        (
            "unknown encoding",
            "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "400",
        ),
        (
            "two lengths",
            "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 50\r\n\r\n",
            "400",
        ),
        ("no length", "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", "400"),
        ("a body", "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", "413"),
        ("folded", "GET / HTTP/1.1\r\nHost: localhost\r\nA: b\r\n c\r\n\r\n", "400"),
        ("space before colon", "GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", "400"),
        ("no protocol", "GET /\r\n\r\n", "400"),
        ("not HTTP", "\u{16}\u{3}\u{1}\u{2}\u{0}\r\n\r\n", "400"),
    ] {
        let said = answer(&port, &format!("{head}{second}"));
        assert_eq!(status(&said), expected, "{what}: {said}");
        assert!(!said.contains("distkv_conflicts"), "{what}: the next one was answered: {said}");
    }
    let by_name =
        "GET /livez HTTP/1.1\r\nHost: Metrics.example.org:80\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&answer(&port, by_name)), "200");
    assert_eq!(status(&get(&port, "/livez")), "200", "others are unharmed");
}

/// What is behind a raw `#` never gets to the service, so it would delete another entry than its client meant.
#[test]
fn a_target_with_a_raw_number_sign_is_refused_and_changes_nothing() {
    let port = open();
    let put = |target: &str, body: &str| {
        let length = body.len();
        format!(
            "PUT {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let last = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for target in ["/v1/kv/a#b", "/v1/kv/a#", "/v1/kv/a?copies=0#b"] {
        let said = answer(&port, &format!("{}{last}", put(target, "hello")));
        assert!(status(&said) == "400" && said.contains("%23"), "{target}: {said}");
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "nothing behind it is answered: {said}");
    }
    // Behind a request with a body, too, and however its bytes come.
    let mut socket = connect(&port);
    for byte in format!("{}{}", put("/v1/kv/a", "# #\r\n\r\n#"), put("/v1/kv/a#b", "x")).bytes() {
        if socket.write_all(&[byte]).is_err() {
            break;
        }
    }
    let said = rest(&socket);
    let answered = ["HTTP/1.1 200", "HTTP/1.1 400"].map(|line| said.matches(line).count());
    assert_eq!(answered, [1, 1], "{said}");
    // Everywhere else it means nothing.
    let escaped =
        put("/v1/kv/a", "GET /#a HTTP/1.1\r\n\r\n").replace("Host", "X-Color: #fff\r\nHost");
    let said = answer(&port, &format!("{escaped}{last}"));
    assert_eq!(said.matches("HTTP/1.1 200").count(), 2, "{said}");
}

#[test]
fn heads_are_bounded_in_bytes_and_fields() {
    let port = open();
    let head = |fields: &str| {
        format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n")
    };
    let long = format!("A: {}\r\n", "x".repeat(HTTP_HEAD_BYTES_MAX));
    assert_eq!(status(&answer(&port, &head(&long))), "431");
    let fitting = format!("A: {}\r\n", "x".repeat(HTTP_HEAD_BYTES_MAX / 2));
    assert_eq!(status(&answer(&port, &head(&fitting))), "200");
    assert_eq!(status(&answer(&port, &head(&"A: b\r\n".repeat(HTTP_HEADERS_MAX)))), "431");
    assert_eq!(status(&answer(&port, &head(&"A: b\r\n".repeat(HTTP_HEADERS_MAX - 2)))), "200");
}

#[test]
fn who_says_nothing_or_drips_loses_the_connection() {
    let limits = Limits { head: Duration::from_secs(3), ..Limits::default() };
    let port = open_with(limits, true);
    let mut dripping = connect(&port);
    let silent = connect(&port);
    let mut kept = connect(&port);
    dripping.write_all(b"GET /livez HTTP/1.1\r\nHost: local").unwrap();
    kept.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let began = rt::now();
    assert!(!rest(&dripping).starts_with("HTTP/1.1 200"));
    assert_eq!(rest(&silent), "");
    assert!(rest(&kept).ends_with("timer: ok\n"), "one answer, then the end");
    assert!(is_soon(began));
}

#[test]
fn who_takes_nothing_of_an_answer_loses_the_connection() {
    let limits = Limits { write: Duration::from_millis(200), ..Limits::default() };
    let port = open_with(limits, true);
    let mut greedy = connect(&port);
    let requests = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000);
    // More than the system keeps for a client that does not read; the write fails once it is closed.
    let began = rt::now();
    while greedy.write_all(requests.as_bytes()).is_ok() {
        assert!(is_soon(began), "it is still open");
    }
    assert_eq!(status(&get(&port, "/livez")), "200", "others are unharmed");
}

/// Bytes of each part of `/v1/much`.
const PART_OF_MUCH: usize = 16 << 10;
/// How many bytes of it were asked for; by one test only.
static TAKEN_OF_MUCH: AtomicUsize = AtomicUsize::new(0);

/// Else it would be seen to read only when a third of some MiB is gone, and be cut.
#[test]
#[cfg(target_os = "linux")]
fn the_system_keeps_little_for_who_reads_slowly() {
    let port = open();
    let mut slow = connect(&port);
    socket2::SockRef::from(&slow).set_recv_buffer_size(64 << 10).unwrap();
    slow.write_all(b"GET /v1/much HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let (mut read, mut ahead_max, mut some) = (0, 0, [0; PART_OF_MUCH]);
    while read < 1 << 20 {
        slow.read_exact(&mut some).unwrap();
        read += some.len();
        is_answered(&port);
        let ahead = TAKEN_OF_MUCH.load(Ordering::Relaxed).saturating_sub(read);
        ahead_max = ahead_max.max(ahead);
    }
    assert!(ahead_max < 1 << 20, "{ahead_max}");
}

#[test]
fn however_many_connections_say_nothing_who_asks_is_answered() {
    let limits = Limits { connections: 8, ..Limits::default() };
    let port = open_with(limits, true);
    let first = connect(&port);
    // Some stay open at this end, as with many clients; all of them would take this test's descriptors.
    let mut silent = VecDeque::new();
    for round in 0..10_000 {
        silent.push_back(connect(&port));
        silent.drain(..silent.len().saturating_sub(100));
        assert!(port.connections() <= 8, "{}", port.connections());
        if round % 500 == 0 {
            is_answered(&port);
        }
    }
    // The first of them are closed.
    assert_eq!(rest(&first), "");
    assert_eq!(rest(&silent[0]), "");
}

/// A stream of events that has begun.
fn begin_events(port: &HttpPort) -> Socket {
    let mut socket = connect(port);
    socket.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("event: one\ndata: 1\n\n") {
        let mut some = [0; 1024];
        let count = socket.read(&mut some).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&some[..count]);
    }
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("x-accel-buffering: no\r\n"), "a proxy would keep events back: {said}");
    socket
}

#[test]
fn streams_keep_their_connections_and_have_a_bound_of_their_own() {
    let port = open_with(Limits { connections: 6, streams: 4, ..Limits::default() }, true);
    let streams = [begin_events(&port), begin_events(&port)];
    let refused = get(&port, "/v1/events");
    assert!(status(&refused) == "429" && refused.contains("too_many"), "{refused}");
    assert!(refused.contains("the user 'joe' has 2 of the 4 streams"), "{refused}");
    assert_ne!(status(&get(&port, "/v1/cut?ann")), "429", "others have a share of their own");
    // Whoever comes next takes the places of those that wait, not theirs.
    for _ in 0..20 {
        let _silent = connect(&port);
        is_answered(&port);
    }
    let [mut first, second] = streams;
    first.set_nonblocking(true).unwrap();
    let read = first.read(&mut [0; 16]);
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock, "it is open");
    drop(second);
    // Its end is noticed.
    let began = rt::now();
    while status(&get(&port, "/v1/cut")) == "429" {
        assert!(is_soon(began), "its place is taken");
    }
}

#[test]
fn however_many_requests_take_long_a_short_one_is_answered() {
    let port = open_with(Limits { connections: 4, streams: 2, ..Limits::default() }, true);
    let mut stream = begin_events(&port);
    for _ in 0..5 {
        let slow: Vec<Socket> = (0..4)
            .map(|_| {
                let mut socket = connect(&port);
                let head =
                    b"PUT /v1/kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n";
                // It may have been closed for the next one already.
                let _ = socket.write_all(head);
                socket
            })
            .collect();
        is_answered(&port);
        drop(slow);
    }
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0; 16]);
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock, "it is open");
}

/// A long body that has begun, over a connection of its own. Whether its turn has come.
fn begin_long_body(port: &HttpPort, user: &str) -> (Socket, bool) {
    let mut socket = connect(port);
    let head = format!(
        "PUT /v1/kv/a?{user} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    let expected = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut said = [0; 25];
    socket.read_exact(&mut said).unwrap();
    (socket, said == *expected)
}

#[test]
fn long_bodies_of_one_user_leave_turns_to_others() {
    let port = open_with(Limits { body: Duration::from_secs(5), ..Limits::default() }, true);
    let begin = |_| begin_long_body(&port, "joe");
    let slow: Vec<_> = (0..HTTP_LONG_BODIES_MAX / 2).map(begin).collect();
    assert!(slow.iter().all(|(_, has_turn)| *has_turn));
    let (mut other, has_turn) = begin_long_body(&port, "ann");
    assert!(has_turn);
    other.write_all(&[b'x'; 100_000]).unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = [0; 15];
    other.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"HTTP/1.1 200 OK");
    // One more of the same user gets its turn when one of the others ends, as these do in time; on a busy machine just
    // before its own time is over, or not any more.
    let (waits, has_turn) = begin_long_body(&port, "joe");
    let rest = rest(&waits);
    let ends = ["the user 'joe' has 4 of the 8 bodies", "the body came too slowly"];
    assert!(has_turn || ends.iter().any(|end| rest.contains(end)), "{rest}");
    for (slow, _) in &slow {
        assert_eq!(status(&self::rest(slow)), "408");
    }
}

/// Who still sends would otherwise wait for a minute, until its system gives up.
#[test]
fn whoever_is_cut_while_it_sends_a_body_notices_at_once() {
    let port = open_with(Limits { connections: 1, ..Limits::default() }, true);
    let mut socket = connect(&port);
    let head =
        b"PUT /v1/kv/forever HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99000000\r\n\r\n";
    socket.write_all(head).unwrap();
    // Nobody reads it, so the buffers fill up, until nothing more goes out.
    let part = vec![b'x'; 1 << 20];
    socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let full = (0..64).find_map(|_| socket.write_all(&part).err()).expect("it is not read");
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    is_answered(&port);
    let ended = socket.write_all(&part).map_err(|error| error.kind());
    let is_cut = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe].map(Err);
    assert!(is_cut.contains(&ended), "{ended:?}");
}

#[test]
fn an_answer_that_cannot_be_finished_is_cut_and_never_looks_whole() {
    let port = open();
    let cut = get(&port, "/v1/cut");
    // Of what was not sent yet, nothing is.
    assert!(!cut.ends_with("0\r\n\r\n"), "{cut}");
    // By HTTP/1.0, its end would be that of the connection, like a cut.
    let by_the_old =
        |what| answer(&port, &format!("GET {what} HTTP/1.0\r\nHost: localhost\r\n\r\n"));
    let refused = by_the_old("/v1/cut");
    assert!(status(&refused) == "400" && refused.contains("HTTP/1.1"), "{refused}");
    assert_eq!(status(&by_the_old("/livez")), "200");
    let charged = get(&port, "/v1/charged");
    assert!(charged.contains("content-length: 1048576\r\n"));
    assert!(charged.len() < 1 << 20, "{}", charged.len());
    assert_eq!(status(&get(&port, "/livez")), "200", "others are unharmed");
}

#[test]
fn a_body_is_as_long_as_it_says_and_no_longer_than_may_be() {
    let port = open();
    let put = |length: usize, body: &str| {
        answer(
            &port,
            &format!(
                "PUT /v1/kv/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            ),
        )
    };
    assert!(put(5, "hello").ends_with("\r\n\r\n5"));
    assert!(put(0, "").ends_with("\r\n\r\n0"));
    let long = "x".repeat(1 << 20);
    assert!(put(1 << 20, &long).ends_with("1048576"));
    let refused = put(HTTP_BODY_BYTES_MAX + 1, "");
    assert!(status(&refused) == "413" && refused.contains("too_large"), "{refused}");
    // Who sends all of it first reads why not, and so does who is refused at the gate. (Closing at once would reset the
    // connection while it is still sending.)
    let longest = vec![b'x'; 4 * HTTP_BODY_BYTES_MAX];
    for (request, why) in
        [("PUT /v1/kv/a", "too_large"), ("GET /v1/kv/a", "takes no body"), ("POST /", "method")]
    {
        let mut socket = connect(&port);
        let head = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            longest.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(&longest).unwrap();
        let refused = rest(&socket);
        assert!(refused.contains(why), "{request}: {refused}");
        assert!(refused.contains("connection: close\r\n"), "{request}: {refused}");
    }
    // A client that goes in the middle concerns nobody else.
    let mut socket = connect(&port);
    socket
        .write_all(b"PUT /v1/kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nhalf")
        .unwrap();
    drop(socket);
    assert_eq!(status(&get(&port, "/livez")), "200");
}

/// The next request on a connection must not meet its end unannounced: clients keep connections.
#[test]
fn a_body_that_is_not_wanted_ends_no_connection_or_the_answer_says_so() {
    let port = open();
    let head = |length: usize| {
        format!("PUT /v1/kv/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")
    };
    // It comes later than its head, as many clients send it.
    let mut socket = connect(&port);
    socket.write_all(head(5).as_bytes()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let early = socket.read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(early, Err(io::ErrorKind::WouldBlock));
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    socket.write_all(format!("hello{next}").as_bytes()).unwrap();
    let answers = rest(&socket);
    assert_eq!(answers.matches("HTTP/1.1 404").count(), 1, "{answers}");
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 1, "{answers}");
    // It is too long to be waited for, or does not come.
    for length in [1 << 20, HTTP_BODY_BYTES_MAX + 1, 5] {
        let mut socket = connect(&port);
        socket.write_all(head(length).as_bytes()).unwrap();
        let told = rest(&socket);
        assert!(status(&told) == "404" && told.contains("connection: close\r\n"), "{told}");
    }
}

#[test]
fn a_port_that_is_closed_is_free_and_its_connections_end() {
    let port = open();
    let address = port.address();
    let socket = connect(&port);
    assert_eq!(status(&get(&port, "/livez")), "200");
    block_on(port.close());
    assert_eq!(rest(&socket), "");
    std::net::TcpListener::bind(address).unwrap();
}

#[test]
fn browsers_get_the_page_and_others_what_can_be_read_without_one() {
    let port = open();
    let page = answer(
        &port,
        "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html,*/*;q=0.8\r\nConnection: close\r\n\r\n",
    );
    assert!(status(&page) == "200" && page.contains("content-type: text/html"), "{page}");
    assert!(page.contains("require-trusted-types-for 'script'"), "{page}");
    assert_eq!(page.matches("content-security-policy: ").count(), 1, "{page}");
    let list = get(&port, "/");
    assert!(list.contains("content-type: text/plain") && list.contains("/metrics"), "{list}");
    assert_eq!(status(&get(&port, "/web/app.js")), "200");
    assert_eq!(status(&get(&port, "/web/none.js")), "404");
}
