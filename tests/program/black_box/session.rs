//! A client that knows nothing but the protocol: one connection to one node, one request at a time.
//! It notes what it asked for and what it was told.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rmpv::Value;

use super::history::{EventId, Fate, Read, Tree, Version, Watch, Wish, Write};
use super::processes::field;

/// How long a reply may take before its client gives up, and does not know.
const REPLY_WITHIN: Duration = Duration::from_secs(4);
/// Events of a chain that are asked for: as many as a chain has.
const WHOLE_CHAIN: u64 = 16;
/// Codes of errors after which nothing is known of a write.
const OPEN_CODES: [&str; 2] = ["unknown_fate", "storage_failed"];

pub struct Session {
    stream: TcpStream,
    buffer: Vec<u8>,
    seq: u64,
}

/// The connection is of no use any more.
#[derive(Debug)]
pub struct Broken;

impl From<std::io::Error> for Broken {
    fn from(_: std::io::Error) -> Self {
        Broken
    }
}

impl Session {
    pub fn connect(address: SocketAddr) -> Result<Self, Broken> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_millis(500))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_WITHIN))?;
        stream.set_write_timeout(Some(REPLY_WITHIN))?;
        let mut session = Self { stream, buffer: Vec::new(), seq: 0 };
        session.receive()?;
        // A node that is not ready is to say so: there are others to ask.
        session.send_map(vec![("seq".into(), 0.into()), ("nowait".into(), true.into())])?;
        Ok(session)
    }

    fn send(&mut self, action: &str, fields: &[(&str, Value)]) -> Result<(), Broken> {
        self.seq += 1;
        let mut map =
            vec![("action".into(), action.into()), (Value::from("seq"), Value::from(self.seq))];
        map.extend(fields.iter().map(|(k, v)| (Value::from(*k), v.clone())));
        self.send_map(map)
    }

    fn send_map(&mut self, map: Vec<(Value, Value)>) -> Result<(), Broken> {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &Value::Map(map)).expect("to memory");
        self.stream.write_all(&bytes)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<Value, Broken> {
        loop {
            let mut rest = self.buffer.as_slice();
            if let Ok(value) = rmpv::decode::read_value(&mut rest) {
                let used = self.buffer.len() - rest.len();
                self.buffer.drain(..used);
                return Ok(value);
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk)? {
                0 => return Err(Broken),
                n => self.buffer.extend_from_slice(&chunk[..n]),
            }
        }
    }

    pub fn call(&mut self, action: &str, fields: &[(&str, Value)]) -> Result<Value, Broken> {
        self.send(action, fields)?;
        self.receive()
    }

    /// Makes a write, and tells what became of it.
    pub fn write(
        &mut self,
        (node, life): (usize, u64),
        path: &str,
        wish: Wish,
        value: Option<String>,
    ) -> (Write, bool) {
        let start = Instant::now();
        let mut fields = vec![("path", path_of(path)), ("nchain", Value::from(WHOLE_CHAIN))];
        if let Some(value) = &value {
            fields.push(("value", Value::from(value.as_str())));
        }
        match &wish {
            Wish::SetIf(event) => fields.push(("chain", chain_of(event))),
            Wish::SetNew => fields.push(("chain", Value::Nil)),
            Wish::Set | Wish::Delete => {}
        }
        let action = if wish == Wish::Delete { "delete_value" } else { "set_value" };
        let reply = self.call(action, &fields);
        let fate = match &reply {
            Err(Broken) => Fate::Unknown,
            Ok(reply) => match (text(reply, "code"), Version::of(reply)) {
                (Some(code), _) if OPEN_CODES.contains(&code.as_str()) => Fate::Unknown,
                (Some(code), _) => Fate::Refused(code),
                (None, Some(made)) => Fate::Made(Version { value: value.clone(), ..made }),
                (None, None) => Fate::Nothing,
            },
        };
        // A deletion of nothing answers with no chain, or with that of what is deleted already.
        let fate = match (fate, reply.as_ref().ok().and_then(|r| field(r, "changed"))) {
            (Fate::Made(_), Some(Value::Boolean(false))) if wish == Wish::Delete => Fate::Nothing,
            (fate, _) => fate,
        };
        let path = path.to_owned();
        let over = reply.as_ref().ok().and_then(|reply| text(reply, "prev"));
        let write = Write { node, life, path, wish, value, start, end: Instant::now(), fate, over };
        (write, reply.is_ok())
    }

    /// Reads an entry; none where the node does not answer, or not with an entry's state.
    pub fn read(&mut self, (node, life): (usize, u64), path: &str) -> Result<Option<Read>, Broken> {
        let start = Instant::now();
        let fields = [("path", path_of(path)), ("nchain", Value::from(WHOLE_CHAIN))];
        let reply = self.call("get_value", &fields)?;
        if text(&reply, "code").is_some() {
            return Ok(None);
        }
        let version = Version::of(&reply).filter(|v| v.value.is_some());
        let path = path.to_owned();
        Ok(Some(Read { node, life, path, start, end: Instant::now(), version }))
    }

    /// A subtree, its tombstones left out.
    pub fn tree(&mut self, top: &str) -> Result<Tree, Broken> {
        self.send("get_tree", &[("path", path_of(top)), ("nchain", Value::from(WHOLE_CHAIN))])?;
        let (mut tree, mut paths) = (Tree::new(), Paths::default());
        loop {
            let message = self.receive()?;
            match text(&message, "state").as_deref() {
                Some("end") => return Ok(tree),
                Some(_) => continue,
                None => {}
            }
            if text(&message, "error").is_some() {
                // There is nothing below it.
                return Ok(tree);
            }
            let path = paths.whole(top, &message);
            if let Some(version) = Version::of(&message).filter(|v| v.value.is_some()) {
                tree.insert(path, version);
            }
        }
    }

    /// Watches a subtree until it is told to stop or the connection ends.
    pub fn watch(mut self, (node, life): (usize, u64), top: &str, stop: &AtomicBool) -> Watch {
        let mut watch = Watch {
            node,
            life,
            up_to_date: None,
            end: Instant::now(),
            is_open: false,
            restarted: false,
            items: Vec::new(),
        };
        let fields = [
            ("path", path_of(top)),
            ("nchain", Value::from(WHOLE_CHAIN)),
            ("fetch", Value::from(true)),
            ("restart", Value::from(true)),
        ];
        let mut paths = Paths::default();
        if self.send("watch", &fields).is_err() {
            return watch;
        }
        // It looks up now and then whether the run is over.
        let _ = self.stream.set_read_timeout(Some(Duration::from_millis(100)));
        loop {
            watch.end = Instant::now();
            let message = match self.receive() {
                Ok(message) => message,
                Err(Broken) => {
                    if stop.load(Ordering::Relaxed) {
                        watch.is_open = self.is_alive();
                        return watch;
                    }
                    if self.is_alive() {
                        continue;
                    }
                    return watch;
                }
            };
            match text(&message, "state").as_deref() {
                Some("uptodate") => watch.up_to_date = watch.up_to_date.or(Some(Instant::now())),
                Some("restart") => watch.restarted = true,
                Some("end") => return watch,
                Some(_) => {}
                None if text(&message, "error").is_some() => return watch,
                None => {
                    let path = paths.whole(top, &message);
                    if let Some(version) = Version::of(&message) {
                        watch.items.push((Instant::now(), path, version));
                    }
                }
            }
        }
    }

    /// Whether the other side has not closed the connection.
    fn is_alive(&self) -> bool {
        let _ = self.stream.set_nonblocking(true);
        let alive = match self.stream.peek(&mut [0; 1]) {
            Ok(n) => n > 0,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        };
        let _ = self.stream.set_nonblocking(false);
        alive
    }
}

/// Makes shortened paths of a stream whole again.
#[derive(Default)]
struct Paths(Vec<String>);

impl Paths {
    fn whole(&mut self, top: &str, message: &Value) -> String {
        let depth = field(message, "depth").and_then(|d| d.as_u64()).unwrap_or(0) as usize;
        self.0.truncate(depth);
        match field(message, "path") {
            Some(Value::Array(elements)) => {
                self.0.extend(elements.iter().filter_map(|e| e.as_str().map(str::to_owned)));
            }
            Some(Value::Ext(_, bytes)) => {
                let mut rest = bytes.as_slice();
                while let Ok(element) = rmpv::decode::read_value(&mut rest) {
                    self.0.extend(element.as_str().map(str::to_owned));
                }
            }
            _ => {}
        }
        std::iter::once(top).chain(self.0.iter().map(String::as_str)).collect::<Vec<_>>().join(".")
    }
}

fn text(message: &Value, key: &str) -> Option<String> {
    field(message, key)?.as_str().map(str::to_owned)
}

fn path_of(path: &str) -> Value {
    Value::Array(path.split('.').map(Value::from).collect())
}

fn chain_of(event: &EventId) -> Value {
    Value::Map(vec![("node".into(), event.0.as_str().into()), ("tick".into(), event.1.into())])
}
