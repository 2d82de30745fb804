//! A scripted node: says what a test wants it to, and keeps what it was asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use distkv::client::splitter::Splitter;
use distkv::client::{Fields, Message};

/// What the clock of each one says when it greets.
pub(crate) const CLOCK: u64 = 1_000_000;

/// A node that answers each request with what a function makes of it. It lives as long as the
/// test's process.
pub(crate) struct FakeNode {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Message>>>,
}

impl FakeNode {
    /// `answer` gets each request, and gives the messages that follow; their `seq` is added, but for those that have one.
    pub(crate) fn start(
        answer: impl Fn(&Message) -> Vec<Fields> + Send + Sync + 'static,
    ) -> FakeNode {
        FakeNode::start_as("fake", answer)
    }

    /// The same, under a name.
    pub(crate) fn start_as(
        name: &'static str,
        answer: impl Fn(&Message) -> Vec<Fields> + Send + Sync + 'static,
    ) -> FakeNode {
        FakeNode::start_with(name, |_| (Some(1), 2), answer)
    }

    /// The same, with the tick and the tock that it says when it greets, by the number of connections before; without a
    /// tick it is catching up.
    pub(crate) fn start_with(
        name: &'static str,
        clocks: impl Fn(usize) -> (Option<u64>, u64) + Send + 'static,
        answer: impl Fn(&Message) -> Vec<Fields> + Send + Sync + 'static,
    ) -> FakeNode {
        let unknown = error("there is no action 'auth_info'", "unknown_action");
        FakeNode::launch(name, unknown, clocks, answer)
    }

    /// A node at which all clients are admins.
    pub(crate) fn start_for_admins(
        answer: impl Fn(&Message) -> Vec<Fields> + Send + Sync + 'static,
    ) -> FakeNode {
        let info = Fields::new().str("method", "key").str("role", "admin").clone();
        FakeNode::launch("fake", info, |_| (Some(1), 2), answer)
    }

    fn launch(
        name: &'static str,
        auth_info: Fields,
        clocks: impl Fn(usize) -> (Option<u64>, u64) + Send + 'static,
        answer: impl Fn(&Message) -> Vec<Fields> + Send + Sync + 'static,
    ) -> FakeNode {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, kept) = (Arc::new(answer), Arc::clone(&asked));
        thread::spawn(move || {
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                let said = (greeting(name, clocks(number)), auth_info.clone());
                // What goes wrong here, the client sees as a lost connection.
                thread::spawn(move || serve(stream, said, &*answer, &kept));
            }
        });
        FakeNode { address, asked }
    }

    /// Whether a request of this action has come.
    pub(crate) fn is_asked(&self, action: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|request| request.str("action") == Some(action))
    }

    /// How many requests of this action have come.
    pub(crate) fn count(&self, action: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|request| request.str("action") == Some(action)).count()
    }

    /// The one request of this action that came.
    pub(crate) fn asked(&self, action: &str) -> Message {
        let asked = self.asked.lock().unwrap();
        let mut found = asked.iter().filter(|request| request.str("action") == Some(action));
        let request = found.next().unwrap_or_else(|| panic!("{action} was not asked: {asked:?}"));
        assert!(found.next().is_none(), "{action} was asked twice");
        request.clone()
    }
}

fn greeting(name: &str, (tick, tock): (Option<u64>, u64)) -> Fields {
    let mut greeting = Fields::new();
    greeting.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", name);
    match tick {
        Some(tick) => greeting.u64("tick", tick),
        None => greeting.nil("tick"),
    };
    greeting.u64("tock", tock).u64("clock", CLOCK);
    greeting
}

fn serve(
    mut stream: TcpStream,
    (greeting, auth_info): (Fields, Fields),
    answer: &dyn Fn(&Message) -> Vec<Fields>,
    kept: &Mutex<Vec<Message>>,
) -> std::io::Result<()> {
    stream.write_all(&greeting.encode())?;
    let mut splitter = Splitter::new();
    let mut chunk = [0; 64 << 10];
    loop {
        while let Some(value) = splitter.next_value().unwrap() {
            let request = Message::new(value).unwrap();
            let seq = request.u64("seq").unwrap();
            if request.str("action").is_none() {
                continue;
            }
            // A client that waits for its stream to be let in asks this beside it, and takes one message: an answer that is
            // meant for the stream would be too much, but seen only by a client that is slow.
            if request.str("action") == Some("auth_info") {
                stream.write_all(&auth_info.clone().u64("seq", seq).encode())?;
                continue;
            }
            kept.lock().unwrap().push(request.clone());
            for mut message in answer(&request) {
                if Message::new(&message.encode()).unwrap().u64("seq").is_none() {
                    message.u64("seq", seq);
                }
                stream.write_all(&message.encode())?;
            }
        }
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            count => splitter.push(&chunk[..count]),
        }
    }
}

/// A message of a stream's state.
pub(crate) fn state(word: &str) -> Fields {
    let mut fields = Fields::new();
    fields.str("state", word);
    fields
}

/// A message of a stream about an entry, its path shortened.
pub(crate) fn item(depth: u64, rest: &str, value: Option<&[u8]>) -> Fields {
    let mut fields = Fields::new();
    fields.u64("depth", depth).path("path", &rest.parse().unwrap()).u64("tock", 7);
    if let Some(value) = value {
        fields.raw("value", value);
    }
    fields
}

/// What a write is answered with.
pub(crate) fn changed(is_changed: bool) -> Fields {
    let mut fields = Fields::new();
    fields.bool("changed", is_changed).u64("tock", 9);
    fields.raw("chain", b"\x82\xa4node\xa2n1\xa4tick\x05");
    fields
}

/// An error.
pub(crate) fn error(text: &str, code: &str) -> Fields {
    let mut fields = Fields::new();
    fields.str("error", text).str("code", code);
    fields
}
