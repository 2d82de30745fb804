//! A node without peers behind a client port, and a small client that sees the bytes.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distkv::engine::{Config, Engine, Input};
use distkv::hub::Hub;
use distkv::hub::log_queue::LogQueue;
use distkv::model::ids::{Incarnation, NodeId, NodeName, Tick};
use distkv::model::path::Path;
use distkv::model::value::{SkipLimits, skip_value};
use distkv::rt;
use distkv::server::{
    FileJob, FileRefusal, FileReport, MemberInfo, MemberState, NodeInfo, NodeStatus, PastRefusal,
    Server, ServerConfig, ServerError, StorageStatus,
};
use distkv::storage::history::History;
pub use rmpv::Value;

/// How long to wait for what has to come. Generous: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What the port asks of the node.
#[derive(Default)]
pub struct Info {
    pub left: AtomicBool,
    /// Members besides the node itself.
    pub others: Mutex<Vec<MemberInfo>>,
    /// How the disk is.
    pub storage: Mutex<Option<StorageStatus>>,
    /// What was asked for, and what is answered.
    pub jobs: Mutex<Vec<FileJob>>,
    pub answer: Mutex<Option<Result<FileReport, FileRefusal>>>,
    /// Members that should be linked and are not.
    pub unreached: Mutex<Vec<String>>,
    /// For how long the node has been alone.
    pub isolated_ms: Mutex<Option<u64>>,
    /// What takes long takes until nobody holds this.
    pub gate: Mutex<()>,
    /// How often the past of an entry was asked for.
    pub recalls: AtomicUsize,
}

impl NodeInfo for Info {
    fn status(&self) -> NodeStatus {
        NodeStatus {
            network: self.network(),
            version: "1.2.3".into(),
            uptime_ms: 5,
            time_ms: 7,
            memory_max: None,
            members: 1,
            links: 0,
            catching_up: None,
            counters: vec![("conflicts", 0)],
            client_log: None,
        }
    }

    fn network(&self) -> String {
        "test".into()
    }

    fn members(&self) -> Vec<MemberInfo> {
        let own = member("n1", MemberState::Myself);
        [own].into_iter().chain(self.others.lock().unwrap().iter().cloned()).collect()
    }

    /// Of a member that is called so, only keys are known.
    fn forget_keys_of(&self, name: &NodeName) -> bool {
        name.as_str() == "only-keys"
    }

    fn leave(&self) {
        self.left.store(true, Ordering::SeqCst);
    }

    fn unreached(&self) -> Vec<String> {
        self.unreached.lock().unwrap().clone()
    }

    fn isolated_ms(&self) -> Option<u64> {
        *self.isolated_ms.lock().unwrap()
    }

    fn storage(&self) -> Option<StorageStatus> {
        self.storage.lock().unwrap().clone()
    }

    fn history(&self, _: &Path, _: u64, _: usize) -> Result<History, PastRefusal> {
        self.recalls.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.lock().unwrap());
        Err(PastRefusal::NoDataDirectory)
    }

    fn carry_out(&self, job: FileJob) -> Result<FileReport, FileRefusal> {
        self.jobs.lock().unwrap().push(job);
        drop(self.gate.lock().unwrap());
        self.answer.lock().unwrap().clone().unwrap_or(Err(FileRefusal::NotAllowed))
    }
}

/// A member that serves clients, as the node may tell of it.
pub fn member(name: &str, state: MemberState) -> MemberInfo {
    MemberInfo {
        name: name.into(),
        incarnation: Incarnation(1),
        gossip: "127.0.0.1:1".into(),
        client: None,
        state,
        linked: false,
        secured: false,
        ready: true,
        lagging: false,
        acked: Tick::default(),
        since_ms: 1,
        software: None,
    }
}

/// Of a node that refuses requests at once while it is not ready.
pub fn refusing() -> ServerConfig {
    ServerConfig { ready_wait_ms: 0, ..ServerConfig::default() }
}

/// A node and its client port.
pub struct Node {
    pub hub: Arc<Hub>,
    pub info: Arc<Info>,
    pub server: Server,
}

impl Node {
    /// A node that does not serve data yet.
    pub fn waiting(name: &str, config: ServerConfig) -> Node {
        let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) };
        Self::with(Config::new(id, 1), config)
    }

    pub fn with(engine: Config, config: ServerConfig) -> Node {
        Self::logged(engine, config, None)
    }

    /// With a log that the test writes.
    pub fn logged(engine: Config, config: ServerConfig, log: Option<Arc<LogQueue>>) -> Node {
        let hub = Arc::new(Hub::with_log(Engine::new(engine), log));
        let info = Arc::new(Info::default());
        let shared: Arc<dyn NodeInfo> = info.clone();
        let bound = Server::bind("127.0.0.1:0", Arc::clone(&hub), config, shared);
        Node { server: rt::block_on(bound).unwrap(), hub, info }
    }

    /// The first node of its network.
    pub fn found(name: &str) -> Node {
        Self::found_with(name, ServerConfig::default())
    }

    pub fn found_with(name: &str, config: ServerConfig) -> Node {
        let node = Self::waiting(name, config);
        node.hub.handle(Input::Found, 0);
        node
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub fn connect(&self) -> Client {
        Client::new(self.address(), 0)
    }

    /// A client that wants flow control.
    pub fn connect_with_qlen(&self, qlen: u64) -> Client {
        Client::new(self.address(), qlen)
    }

    /// A second port of the same node.
    pub fn bind_again(&self, address: &str) -> Result<Server, ServerError> {
        let info: Arc<dyn NodeInfo> = self.info.clone();
        rt::block_on(Server::bind(address, Arc::clone(&self.hub), ServerConfig::default(), info))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        rt::block_on(self.server.stop(Duration::ZERO));
    }
}

/// A MessagePack map from keys and values.
macro_rules! map {
    ($($key:literal: $value:expr),* $(,)?) => {
        $crate::harness::Value::Map(vec![
            $(($crate::harness::Value::from($key), $crate::harness::Value::from($value))),*
        ])
    };
}

pub fn encode(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}

/// A path in text form as an extension of type 3.
pub fn path(text: &str) -> Value {
    let path: distkv::model::path::Path = text.parse().unwrap();
    Value::Ext(3, path.as_bytes().to_vec())
}

/// An array of values.
pub fn array<T: Into<Value>>(items: impl IntoIterator<Item = T>) -> Value {
    Value::Array(items.into_iter().map(Into::into).collect())
}

/// The names of a message's fields, in order.
pub fn fields(message: &Value) -> Vec<&str> {
    message.as_map().unwrap().iter().map(|(key, _)| key.as_str().unwrap()).collect()
}

/// Whether a message has a field.
pub fn has(message: &Value, field: &str) -> bool {
    fields(message).contains(&field)
}

/// A field's text.
pub fn text<'a>(message: &'a Value, field: &str) -> &'a str {
    message[field].as_str().unwrap_or_else(|| panic!("no {field} in {message}"))
}

/// A client connection.
pub struct Client {
    pub stream: TcpStream,
    pub hello: Value,
    /// Received and not decoded yet.
    buffer: Vec<u8>,
    seq: u64,
    waiting: HashMap<Option<u64>, VecDeque<Value>>,
}

impl Client {
    pub fn new(address: SocketAddr, qlen: u64) -> Client {
        let mut client = Client::silent(address);
        client.hello = client.receive().expect("a greeting");
        if qlen > 0 {
            client.send(map! {"seq": 0, "qlen": qlen});
        }
        client
    }

    /// Without reading the greeting.
    pub fn silent(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let waiting = HashMap::new();
        Client { stream, hello: Value::Nil, buffer: Vec::new(), seq: 0, waiting }
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn send(&mut self, message: Value) {
        self.send_bytes(&encode(&message));
    }

    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// The next message of any request; none at the end.
    pub fn receive(&mut self) -> Option<Value> {
        let bytes = self.receive_bytes()?;
        Some(rmpv::decode::read_value(&mut &bytes[..]).unwrap())
    }

    /// The same, as it came.
    pub fn receive_bytes(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Ok(end) = skip_value(&self.buffer, SkipLimits::NONE) {
                return Some(self.buffer.drain(..end).collect());
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(bytes) => self.buffer.extend_from_slice(&chunk[..bytes]),
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // This process was stopped, and goes on.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => panic!("nothing came: {e}"),
            }
        }
    }

    /// Sends a request without waiting; returns its number.
    pub fn start(&mut self, request: Value) -> u64 {
        self.seq += 1;
        let Value::Map(mut fields) = request else { panic!("no map") };
        fields.push((Value::from("seq"), Value::from(self.seq)));
        self.send(Value::Map(fields));
        self.seq
    }

    /// The next message of a request; others are kept.
    pub fn reply(&mut self, seq: u64) -> Value {
        loop {
            if let Some(message) = self.waiting.entry(Some(seq)).or_default().pop_front() {
                return message;
            }
            let message = self.receive().expect("the server closed the connection");
            let seq = message["seq"].as_u64();
            self.waiting.entry(seq).or_default().push_back(message);
        }
    }

    pub fn request(&mut self, request: Value) -> Value {
        let seq = self.start(request);
        self.reply(seq)
    }

    /// A request that must succeed.
    pub fn ok(&mut self, request: Value) -> Value {
        let reply = self.request(request);
        assert!(!has(&reply, "error"), "{reply}");
        reply
    }

    /// A request that must fail, within a stream or not; checks the error's form.
    pub fn error(&mut self, request: Value) -> Value {
        let seq = self.start(request);
        let mut reply = self.reply(seq);
        if reply["state"].as_str() == Some("start") {
            reply = self.reply(seq);
            assert_eq!(self.reply(seq)["state"].as_str(), Some("end"));
        }
        assert!(!text(&reply, "error").is_empty() && !text(&reply, "code").is_empty());
        assert!(reply["tock"].is_u64());
        reply
    }

    /// The code of an error.
    pub fn code(&mut self, request: Value) -> String {
        text(&self.error(request), "code").to_owned()
    }

    /// The messages of a stream between its start and its end.
    pub fn stream(&mut self, request: Value) -> Vec<Value> {
        let seq = self.start(request);
        assert_eq!(self.reply(seq)["state"].as_str(), Some("start"));
        self.rest(seq)
    }

    /// The messages of a stream up to its end.
    pub fn rest(&mut self, seq: u64) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            let message = self.reply(seq);
            if message["state"].as_str() == Some("end") {
                return messages;
            }
            messages.push(message);
        }
    }

    /// Sets a value.
    pub fn set(&mut self, at: &str, value: impl Into<Value>) -> Value {
        self.ok(map! {"action": "set_value", "path": path(at), "value": value.into()})
    }

    /// Gets a value.
    pub fn get(&mut self, at: &str) -> Option<Value> {
        let reply = self.ok(map! {"action": "get_value", "path": path(at)});
        has(&reply, "value").then(|| reply["value"].clone())
    }

    pub fn ack(&mut self, seq: u64, ack: u64) {
        self.send(map! {"seq": seq, "state": "ack", "ack": ack});
    }

    /// Asserts that nothing of a request has been sent: what was due before comes before the
    /// reply to another request.
    pub fn silence(&mut self, seq: u64) {
        let message = self.due(seq);
        assert!(message.is_none(), "{message:?}");
    }

    /// The next message of a request, if it has been sent.
    pub fn due(&mut self, seq: u64) -> Option<Value> {
        self.ok(map! {"action": "get_tock"});
        self.waiting.entry(Some(seq)).or_default().pop_front()
    }
}
