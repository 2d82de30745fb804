//! Scripted nodes: they speak the protocol, know of each other, and answer clients as a scenario's file says, stay
//! silent, break off or send garbage. Each connection has a thread.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rmpv::Value;

use crate::scenario;
use crate::script::{self, Manner, Script, What, map, message};

/// The life of each scripted node.
const INCARNATION: u64 = 7;
/// A longer request is none.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// How long a client may leave an answer unread.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// All scripted nodes of a scenario. They end when this is dropped.
pub(crate) struct Network {
    nodes: Vec<Node>,
}

/// One of them.
struct Node {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

/// What the threads of a node have in common.
struct Shared {
    name: String,
    is_old: bool,
    network: Option<String>,
    clock: Option<u64>,
    /// The names and addresses of all nodes.
    all: Arc<Vec<(String, SocketAddr)>>,
    state: Mutex<State>,
    /// A request has come.
    asked: Condvar,
}

struct State {
    script: Script,
    requests: Vec<Value>,
    accepted: usize,
    /// Nodes that this one reports as gone.
    down: BTreeSet<String>,
    open: Vec<Arc<Connection>>,
    /// Who watches the cluster view.
    views: Vec<View>,
    /// What a client sent that is no request.
    fault: Option<String>,
    has_ended: bool,
}

/// A client that watches the cluster view by the request of this number, and what it was told last.
struct View {
    connection: Arc<Connection>,
    seq: u64,
    wseq: u64,
}

struct Connection {
    stream: TcpStream,
    /// One message is written at a time.
    writing: Mutex<()>,
}

/// What is done about a request.
enum Then {
    Send(Vec<u8>),
    SendLike(Vec<u8>, Manner),
    Nothing,
    End,
}

impl Network {
    /// Starts them on ports that the system chooses. What the scenario says nothing of is a network of their own: a client of
    /// another test, whose node was killed and had one of these ports, must not take this one for it.
    pub(crate) fn start(told: &[scenario::ScriptedNode]) -> io::Result<Network> {
        static NETWORKS: AtomicUsize = AtomicUsize::new(0);
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let network = format!("scripted-{}-{number}", process::id());
        let mut listeners = Vec::new();
        let mut all = Vec::new();
        for node in told {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            all.push((node.name.clone(), listener.local_addr()?));
            listeners.push(listener);
        }
        let all = Arc::new(all);
        let mut nodes = Vec::new();
        for (node, listener) in told.iter().zip(listeners) {
            let address = listener.local_addr()?;
            let shared = Arc::new(Shared::new(node, &network, Arc::clone(&all)));
            let own = Arc::clone(&shared);
            let accepting = Some(thread::spawn(move || accept(&listener, &own)));
            nodes.push(Node { shared, address, accepting });
        }
        Ok(Network { nodes })
    }

    /// Where clients reach them.
    pub(crate) fn seeds(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.address.to_string()).collect()
    }

    /// From now on all report this node as gone, and say so to those who watch.
    pub(crate) fn report_down(&self, name: &str) {
        for node in &self.nodes {
            node.shared.report_down(name);
        }
    }

    /// How many connections that node has accepted.
    pub(crate) fn accepted(&self, name: &str) -> usize {
        self.named(name).map_or(0, |node| node.shared.state.lock().accepted)
    }

    /// The requests of this action that have come to that node, once there are so many of them, or in the end.
    pub(crate) fn requests(
        &self,
        name: &str,
        action: &str,
        count: usize,
        until: Instant,
    ) -> Vec<Value> {
        let Some(node) = self.named(name) else { return Vec::new() };
        let mut state = node.shared.state.lock();
        loop {
            let found = state.requests.iter().filter(|request| text(request, "action") == action);
            let found: Vec<Value> = found.cloned().collect();
            if found.len() == count || node.shared.asked.wait_until(&mut state, until).timed_out() {
                return found;
            }
        }
    }

    /// What clients sent that is no request.
    pub(crate) fn fault(&self) -> Option<String> {
        self.nodes.iter().find_map(|node| node.shared.state.lock().fault.clone())
    }

    fn named(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.shared.name == name)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.has_ended = true;
        for connection in &state.open {
            connection.end();
        }
        drop(state);
        // The thread that accepts sees that it is over when another connection comes.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(accepting) = self.accepting.take().filter(|_| woken) {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    // Until `Node::drop` connects.
    for stream in listener.incoming().map_while(Result::ok) {
        let connection = Arc::new(Connection { stream, writing: Mutex::new(()) });
        let mut state = shared.state.lock();
        if state.has_ended {
            return;
        }
        state.accepted += 1;
        state.open.push(Arc::clone(&connection));
        drop(state);
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // A connection that breaks is the client's to notice.
            let _ = shared.serve(&connection);
            shared.forget(&connection);
        });
    }
}

impl Shared {
    /// `network`: that of a node of which the scenario says none. Servers of the original tell none.
    fn new(
        told: &scenario::ScriptedNode,
        network: &str,
        all: Arc<Vec<(String, SocketAddr)>>,
    ) -> Shared {
        let own = (!told.old).then(|| network.to_owned());
        let state = State {
            script: Script::new(told.answers.clone()),
            requests: Vec::new(),
            accepted: 0,
            down: BTreeSet::new(),
            open: Vec::new(),
            views: Vec::new(),
            fault: None,
            has_ended: false,
        };
        Shared {
            name: told.name.clone(),
            is_old: told.old,
            network: told.network.clone().or(own),
            clock: told.clock,
            all,
            state: Mutex::new(state),
            asked: Condvar::new(),
        }
    }

    fn serve(&self, connection: &Arc<Connection>) -> io::Result<()> {
        connection.stream.set_nodelay(true)?;
        connection.stream.set_write_timeout(Some(WRITE_PATIENCE))?;
        let version = [0, 65, 0].map(Value::from).to_vec();
        let greeting = [
            ("seq", 0.into()),
            ("version", Value::Array(version)),
            ("node", self.name.as_str().into()),
            ("tick", 1.into()),
            ("tock", 1.into()),
            ("qlen", 10.into()),
        ];
        let network = self.network.as_deref().map(|name| ("network", name.into()));
        let clock = self.clock.map(|clock| ("clock", clock.into()));
        connection.send(&message(greeting.into_iter().chain(network).chain(clock)))?;
        let mut buffer = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        // Until the client goes, or the node ends the connection.
        loop {
            let count = (&connection.stream).read(&mut chunk)?;
            buffer.extend_from_slice(chunk.get(..count).unwrap_or_default());
            if count == 0 {
                return Ok(());
            }
            for request in self.requests_in(&mut buffer)? {
                match self.answer(connection, &request) {
                    Then::Send(bytes) => connection.send(&bytes)?,
                    Then::SendLike(bytes, manner) => connection.send_like(&bytes, manner)?,
                    Then::Nothing => {}
                    Then::End => return Ok(()),
                }
            }
        }
    }

    /// Takes the requests that are there as a whole.
    fn requests_in(&self, buffer: &mut Vec<u8>) -> io::Result<Vec<Value>> {
        let mut found = Vec::new();
        let mut rest = buffer.as_slice();
        while !rest.is_empty() {
            let mut behind = rest;
            match rmpv::decode::read_value(&mut behind) {
                Ok(Value::Map(request)) => found.push(Value::Map(request)),
                Err(error) if is_cut(&error) && rest.len() <= REQUEST_BYTES_MAX => break,
                other => {
                    let told = format!("{} was sent what is no request: {other:.200?}", self.name);
                    self.state.lock().fault.get_or_insert(told.clone());
                    return Err(io::Error::new(ErrorKind::InvalidData, told));
                }
            }
            rest = behind;
        }
        let used = buffer.len() - rest.len();
        buffer.drain(..used);
        Ok(found)
    }

    /// A client's request is kept, and answered.
    fn answer(&self, connection: &Arc<Connection>, request: &Value) -> Then {
        let action = text(request, "action");
        if action.is_empty() {
            // A stream's client says that it has read so much.
            return Then::Nothing;
        }
        let seq = field(request, "seq").and_then(Value::as_u64).unwrap_or_default();
        let mut state = self.state.lock();
        state.requests.push(request.clone());
        self.asked.notify_all();
        match action {
            "cluster" | "watch_cluster" | "list_shards" if self.is_old => {
                let error = format!("unknown action {action}");
                Then::Send(message([("error", error.into()), ("seq", seq.into())]))
            }
            "cluster" => {
                let mut view = self.view(&state);
                view.push(("seq", seq.into()));
                Then::Send(message(view))
            }
            "watch_cluster" => {
                let begin =
                    [("seq", seq.into()), ("state", "start".into()), ("wseq", Value::from(1))];
                // All the while locked, so that no other view comes in between.
                if connection.send(&message(begin)).is_err() {
                    return Then::End;
                }
                let others = state.views.len();
                state.views.push(View { connection: Arc::clone(connection), seq, wseq: 1 });
                self.tell_views(&mut state, others);
                Then::Nothing
            }
            "list_shards" => Then::Send(message([
                ("result", Value::Array(Vec::new())),
                ("next", Value::Nil),
                ("seq", seq.into()),
            ])),
            // By which clients ask whether it is alive, whenever they doubt it: that takes no answer from the others.
            "auth_info" => Then::Send(not_in_the_script(seq)),
            _ => match state.script.next(action) {
                None => Then::Send(not_in_the_script(seq)),
                Some(What::Silence) => Then::Nothing,
                Some(What::Reset) => Then::End,
                Some(What::Garbage(bytes)) => Then::Send(bytes),
                Some(What::Stream(parts)) => Then::Send(script::stream(seq, &parts)),
                Some(What::Reply { fields, manner }) => {
                    Then::SendLike(script::reply(&self.name, seq, &fields), manner)
                }
            },
        }
    }

    /// The cluster as this node sees it.
    fn view(&self, state: &State) -> Vec<(&'static str, Value)> {
        let nodes = self.all.iter().map(|(name, address)| {
            let told = match name {
                name if *name == self.name => "self",
                name if state.down.contains(name) => "down",
                _ => "up",
            };
            map([
                ("name", name.as_str().into()),
                ("incarnation", INCARNATION.into()),
                ("client", address.to_string().into()),
                ("gossip", Value::Nil),
                ("state", told.into()),
                ("ready", true.into()),
                ("housekeeper", Value::Nil),
            ])
        });
        let id = [("name", self.name.as_str().into()), ("incarnation", INCARNATION.into())];
        vec![("epoch", 1.into()), ("nodes", Value::Array(nodes.collect())), ("id", map(id))]
    }

    fn report_down(&self, name: &str) {
        let mut state = self.state.lock();
        state.down.insert(name.to_owned());
        self.tell_views(&mut state, 0);
    }

    /// Tells those who watch the cluster view what it is now, except so many who came first.
    fn tell_views(&self, state: &mut State, except: usize) {
        let view = map(self.view(state));
        for watcher in state.views.iter_mut().skip(except) {
            watcher.wseq += 1;
            let told = [
                ("seq", watcher.seq.into()),
                ("cluster", view.clone()),
                ("wseq", watcher.wseq.into()),
            ];
            // Whoever has left hears nothing.
            let _ = watcher.connection.send(&message(told));
        }
    }

    fn forget(&self, connection: &Arc<Connection>) {
        connection.end();
        let mut state = self.state.lock();
        state.open.retain(|one| !Arc::ptr_eq(one, connection));
        state.views.retain(|one| !Arc::ptr_eq(&one.connection, connection));
    }
}

impl Connection {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let _alone = self.writing.lock();
        (&self.stream).write_all(bytes)
    }

    fn send_like(&self, bytes: &[u8], manner: Manner) -> io::Result<()> {
        thread::sleep(manner.after);
        let Some(size) = manner.split else { return self.send(bytes) };
        let _alone = self.writing.lock();
        for piece in bytes.chunks(size) {
            (&self.stream).write_all(piece)?;
            thread::sleep(manner.pause);
        }
        Ok(())
    }

    fn end(&self) {
        // It may have ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn not_in_the_script(seq: u64) -> Vec<u8> {
    message([
        ("error", "not in the script".into()),
        ("code", "not_found".into()),
        ("seq", seq.into()),
    ])
}

/// Whether a message is not there as a whole yet.
fn is_cut(error: &rmpv::decode::Error) -> bool {
    use rmpv::decode::Error::{InvalidDataRead, InvalidMarkerRead};
    match error {
        InvalidMarkerRead(error) | InvalidDataRead(error) => {
            error.kind() == ErrorKind::UnexpectedEof
        }
        _ => false,
    }
}

/// A field of a message.
pub(crate) fn field<'a>(message: &'a Value, name: &str) -> Option<&'a Value> {
    let found = message.as_map()?.iter().find(|(key, _)| key.as_str() == Some(name));
    found.map(|(_, value)| value)
}

/// A text in a message; empty where there is none.
fn text<'a>(message: &'a Value, name: &str) -> &'a str {
    field(message, name).and_then(Value::as_str).unwrap_or_default()
}
