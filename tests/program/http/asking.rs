//! Asking by HTTP, with nothing but sockets: requests, whole answers, and event streams as they come.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value as Json;

use crate::processes::PATIENCE;

/// How a node is started that is alone, at any ports, with one for HTTP.
pub const ALONE: [&str; 9] = [
    "run",
    "--peer-wait",
    "0s",
    "--http",
    "127.0.0.1:0",
    "--client",
    "127.0.0.1:0",
    "--gossip",
    "127.0.0.1:0",
];

/// A request.
pub struct Ask {
    address: SocketAddr,
    method: &'static str,
    target: String,
    fields: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

/// An answer of which only the beginning was read.
pub struct Begun {
    socket: TcpStream,
    read: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// By name, in lower case.
    pub fields: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

pub fn ask(address: SocketAddr, method: &'static str, target: &str) -> Ask {
    Ask { address, method, target: target.to_owned(), fields: Vec::new(), body: None }
}

pub fn get(address: SocketAddr, target: &str) -> Answer {
    ask(address, "GET", target).send()
}

impl Ask {
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn bearer(self, secret: &str) -> Self {
        self.field("Authorization", &format!("Bearer {secret}"))
    }

    pub fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: Some(body.into()), ..self }
    }

    fn write(&self, mut socket: &TcpStream) {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let Self { address, method, target, fields, body } = self;
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n");
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let bytes = [head.as_bytes(), body.as_deref().unwrap_or_default()].concat();
        // Whoever refuses a request need not read it to its end.
        let _ = socket.write_all(&bytes);
    }

    /// The whole answer, on a connection of its own.
    pub fn send(self) -> Answer {
        answer(&mut BufReader::new(self.open()))
    }

    /// A connection of its own on which the answer comes; nothing of it was read.
    pub fn open(self) -> TcpStream {
        let ask = self.field("Connection", "close");
        let socket = TcpStream::connect(ask.address).unwrap();
        ask.write(&socket);
        socket
    }

    /// The beginning of a long answer, which must be a good one.
    pub fn begin(self) -> Begun {
        let mut socket = self.open();
        let mut read = vec![0; 1_000];
        socket.read_exact(&mut read).unwrap();
        assert!(read.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&read));
        Begun { socket, read }
    }

    /// A stream of events, from whose beginning on nothing is read before it is asked for.
    pub fn events(self) -> Events {
        let socket = TcpStream::connect(self.address).unwrap();
        self.write(&socket);
        let mut reader = BufReader::new(socket);
        let (status, fields) = head(&mut reader);
        if status != 200 {
            let length = fields["content-length"].parse().unwrap();
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            panic!("{status}: {}", String::from_utf8_lossy(&body));
        }
        assert_eq!(fields["content-type"], "text/event-stream");
        Events { reader, text: String::new() }
    }
}

impl Begun {
    /// All of it, head and body, as far as it came.
    pub fn rest(mut self) -> Vec<u8> {
        // It may end in a reset.
        let _ = self.socket.read_to_end(&mut self.read);
        self.read
    }
}

/// A connection for several requests, one after the other.
pub struct Connection {
    address: SocketAddr,
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Self {
        Self { address, reader: BufReader::new(TcpStream::connect(address).unwrap()) }
    }

    pub fn get(&mut self, target: &str) -> Answer {
        ask(self.address, "GET", target).write(self.reader.get_ref());
        answer(&mut self.reader)
    }
}

fn answer(reader: &mut BufReader<TcpStream>) -> Answer {
    let (status, fields) = head(reader);
    let mut body = Vec::new();
    if fields.get("transfer-encoding").is_some_and(|kind| kind == "chunked") {
        while let Some(part) = chunk(reader) {
            body.extend(part);
        }
    } else {
        // Without a length it goes on to the connection's end.
        let length = fields.get("content-length").map_or(u64::MAX, |text| text.parse().unwrap());
        let _ = reader.take(length).read_to_end(&mut body);
    }
    Answer { status, fields, body }
}

fn head(reader: &mut BufReader<TcpStream>) -> (u16, BTreeMap<String, String>) {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {line:?}"));
    let status = status.parse().unwrap();
    let mut fields = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => fields.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => return (status, fields),
        };
    }
}

/// A part of an answer; none at its end.
fn chunk(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "the answer was cut");
    let length = usize::from_str_radix(line.trim(), 16).unwrap();
    let mut part = vec![0; length + 2];
    reader.read_exact(&mut part).unwrap();
    part.truncate(length);
    (length > 0).then_some(part)
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Json {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {:?}", self.status, self.text()))
    }

    /// The error's word.
    pub fn code(&self) -> String {
        let json = self.json();
        assert!(json["error"].is_string(), "{json}");
        json["code"].as_str().unwrap().to_owned()
    }

    pub fn lines(&self) -> Vec<Json> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A stream of events.
pub struct Events {
    reader: BufReader<TcpStream>,
    text: String,
}

impl Events {
    /// The next event's name and data; none if the stream has ended.
    pub fn next(&mut self) -> Option<(String, Json)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = event.to_owned();
                self.text = rest.to_owned();
                let field = |name: &str| {
                    let lines: Vec<&str> =
                        event.lines().filter_map(|line| line.strip_prefix(name)).collect();
                    lines.join("\n")
                };
                // A heartbeat has no field.
                if event.starts_with("event: ") {
                    let data = serde_json::from_str(&field("data: ")).unwrap();
                    return Some((field("event: "), data));
                }
                continue;
            }
            self.text.push_str(&String::from_utf8(chunk(&mut self.reader)?).unwrap());
        }
    }

    /// The next event, which must have this name.
    pub fn expect(&mut self, name: &str) -> Json {
        let (found, data) = self.next().expect("the stream has ended");
        assert_eq!(found, name, "{data}");
        data
    }
}
