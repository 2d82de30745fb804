//! Nodes that are played: they answer by what is in them at the moment, so a test decides what each one says.

use std::io::{BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use distkv::client::HostPort;
use rmpv::Value;

/// A node that answers by what is in it at the moment.
#[derive(Clone)]
pub(in crate::client) struct Scripted {
    pub(in crate::client) address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(in crate::client) struct State {
    pub(in crate::client) name: String,
    /// The nodes that it knows, and where it says that they are.
    pub(in crate::client) told: Vec<(String, String)>,
    /// Those of them that it says have left.
    pub(in crate::client) left: Vec<&'static str>,
    /// Those of them that it says are down.
    pub(in crate::client) down: Vec<&'static str>,
    /// What it holds at each path, and of what time; none: it is not ready.
    pub(in crate::client) held: Option<(&'static str, u64)>,
    /// It holds that for so many more reads; none: for ever.
    pub(in crate::client) reads_left: Option<usize>,
    /// The codes with which it refuses its next requests about entries.
    pub(in crate::client) refuses: Vec<&'static str>,
    /// It has the requests about entries, and answers none.
    pub(in crate::client) is_silent: bool,
    /// It closes the connection over which a read comes.
    pub(in crate::client) hangs_up: bool,
    /// It lets nobody in.
    pub(in crate::client) shuts_out: bool,
    /// They say that the change is made all the same, or part of it.
    pub(in crate::client) is_made: bool,
    /// Each view that is watched ends after its first message.
    pub(in crate::client) views_end: bool,
    /// It begins no list of conflicts as long as this is set.
    pub(in crate::client) holds_conflicts: bool,
    /// Its clock when it greets; none: it tells none.
    pub(in crate::client) clock: Option<u64>,
    /// What it was asked.
    actions: Vec<String>,
    /// Until when that counts.
    times: Vec<Option<u64>>,
    streams: Vec<TcpStream>,
}

impl Scripted {
    pub(in crate::client) fn start(name: &str) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State { name: name.into(), held: Some(("old", 1)), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let node = Scripted { address: listener.local_addr().unwrap().to_string(), state };
        let accepting = node.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = accepting.clone();
                serving.state.lock().unwrap().streams.push(stream.try_clone().unwrap());
                thread::spawn(move || serving.serve(stream));
            }
        });
        node
    }

    pub(in crate::client) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    pub(in crate::client) fn seed(&self) -> HostPort {
        self.address.parse().unwrap()
    }

    pub(in crate::client) fn asked(&self, action: &str) -> usize {
        self.state.lock().unwrap().actions.iter().filter(|asked| *asked == action).count()
    }

    /// Until when its requests of this action said that they count.
    pub(in crate::client) fn times(&self, action: &str) -> Vec<Option<u64>> {
        let state = self.state.lock().unwrap();
        let asked = state.actions.iter().zip(&state.times);
        asked.filter(|(asked, _)| *asked == action).map(|(_, time)| *time).collect()
    }

    /// Another node is there from now on.
    pub(in crate::client) fn rename(&self, name: &str) {
        self.change(|state| {
            state.name = name.into();
            state.told = vec![(name.into(), self.address.clone())];
            for stream in state.streams.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }

    fn serve(&self, mut stream: TcpStream) {
        let version = Value::Array(vec![0.into(), 65.into(), 0.into()]);
        let (name, clock) = {
            let state = self.state.lock().unwrap();
            (state.name.clone(), state.clock)
        };
        let greeting = [
            ("node", Value::from(name)),
            ("version", version),
            ("tick", 1.into()),
            ("tock", 1.into()),
            ("qlen", 10.into()),
        ];
        let mut asking = BufReader::new(stream.try_clone().unwrap());
        let clock = clock.map(|clock| ("clock", clock.into()));
        let mut is_open = send(&mut stream, &0.into(), greeting.into_iter().chain(clock));
        while let (true, Ok(request)) = (is_open, rmpv::decode::read_value(&mut asking)) {
            let field = |name: &str| {
                let fields = request.as_map().into_iter().flatten();
                fields.filter(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value).next()
            };
            let (Some(seq), Some(action)) = (field("seq"), field("action")) else { continue };
            let action = action.as_str().unwrap_or_default();
            let by = field("by").and_then(Value::as_u64);
            let parts = self.answer(action, by);
            if action == "get_value" && self.state.lock().unwrap().hangs_up {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            while action == "conflicts" && self.state.lock().unwrap().holds_conflicts {
                thread::sleep(Duration::from_millis(1));
            }
            is_open = parts.into_iter().all(|part| send(&mut stream, seq, part));
        }
    }

    fn answer(&self, action: &str, by: Option<u64>) -> Vec<Vec<(&'static str, Value)>> {
        let mut state = self.state.lock().unwrap();
        state.actions.push(action.to_owned());
        state.times.push(by);
        let begin = vec![("state", "start".into()), ("wseq", 1.into())];
        let is_made = state.is_made;
        let refused = |code: &str| {
            vec![vec![("error", "no".into()), ("code", code.into()), ("made", is_made.into())]]
        };
        match action {
            "cluster" if state.shuts_out => refused("denied"),
            "cluster" => vec![state.view()],
            "watch_cluster" => {
                let end =
                    state.views_end.then(|| vec![("state", "end".into()), ("wseq", 3.into())]);
                let view = vec![("cluster", map(state.view())), ("wseq", 2.into())];
                [begin, view].into_iter().chain(end).collect()
            }
            "conflicts" => vec![begin, vec![("state", "end".into())]],
            "batch" => {
                let done = map(vec![("changed", true.into()), ("tock", 1.into())]);
                vec![vec![("results", Value::Array(vec![done])), ("tock", 1.into())]]
            }
            "list_shards" => vec![vec![("result", Value::Array(vec![])), ("next", Value::Nil)]],
            _ if state.is_silent => vec![],
            _ if !state.refuses.is_empty() => refused(state.refuses.remove(0)),
            _ if action == "get_value" && !state.may_be_read() => refused("not_ready"),
            _ => match state.held {
                None => refused("not_ready"),
                Some((value, tock)) => vec![vec![
                    ("value", value.into()),
                    ("tock", tock.into()),
                    ("changed", true.into()),
                    (
                        "chain",
                        map(vec![
                            ("node", "x~7".into()),
                            ("tick", tock.into()),
                            ("prev", Value::Nil),
                        ]),
                    ),
                ]],
            },
        }
    }
}

impl State {
    /// Whether it still answers a read.
    fn may_be_read(&mut self) -> bool {
        let left = self.reads_left.map(|left| left.checked_sub(1));
        self.reads_left = left.map(Option::unwrap_or_default);
        left != Some(None)
    }

    fn view(&self) -> Vec<(&'static str, Value)> {
        let node = |(name, address): &(String, String)| {
            let state = match name {
                name if self.left.contains(&name.as_str()) => "left",
                name if self.down.contains(&name.as_str()) => "down",
                name if *name == self.name => "self",
                _ => "up",
            };
            map(vec![
                ("name", name.as_str().into()),
                ("incarnation", 7.into()),
                ("client", address.as_str().into()),
                ("gossip", Value::Nil),
                ("state", state.into()),
                ("ready", true.into()),
                ("housekeeper", Value::Nil),
            ])
        };
        let nodes = self.told.iter().map(node).collect();
        let id = vec![("name", self.name.as_str().into()), ("incarnation", 7.into())];
        vec![("epoch", 1.into()), ("nodes", Value::Array(nodes)), ("id", map(id))]
    }
}

fn map(fields: Vec<(&'static str, Value)>) -> Value {
    Value::Map(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

/// Whether the other side is still there.
fn send(
    stream: &mut TcpStream,
    seq: &Value,
    fields: impl IntoIterator<Item = (&'static str, Value)>,
) -> bool {
    let mut bytes = Vec::new();
    let fields = [("seq", seq.clone())].into_iter().chain(fields).collect();
    rmpv::encode::write_value(&mut bytes, &map(fields)).unwrap();
    stream.write_all(&bytes).is_ok()
}
