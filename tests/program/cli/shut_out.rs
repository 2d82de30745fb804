//! A `watch` of several nodes that all shut it out while it runs: it says why it ends, and nothing else that is not so. The
//! nodes are played.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use distkv::client::splitter::Splitter;
use distkv::client::{Fields, Message};

use super::command::program;
use super::fake::{error, state};

/// For so long a node looks at a login after it has shut everybody out: longer than a watch waits before it tells that nothing
/// comes, and no longer than a client waits for a login.
const LOOKS_FOR: Duration = Duration::from_millis(2_500);

/// A node that knows its user until it shuts everybody out.
#[derive(Clone)]
struct Played {
    address: SocketAddr,
    shut_at: Arc<Mutex<Option<Instant>>>,
    /// Those that it has let in.
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Played {
    fn start() -> Played {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let node = Played { address, shut_at: Arc::default(), open: Arc::default() };
        let own = node.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let own = own.clone();
                // What goes wrong here, the client sees as a lost connection.
                thread::spawn(move || own.serve(stream));
            }
        });
        node
    }

    /// From now on nobody gets in, and no watch begins.
    fn bar(&self) {
        *self.shut_at.lock().unwrap() = Some(Instant::now());
    }

    /// Closes all connections, and says why, as at the removal of their user.
    fn shut(&self) {
        for mut stream in std::mem::take(&mut *self.open.lock().unwrap()) {
            let _ = stream.write_all(&removed().encode());
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut greeting = Fields::new();
        greeting.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "played");
        greeting.u64("tick", 1).u64("tock", 2).raw("auth", b"\x91\xa8password");
        stream.write_all(&greeting.encode())?;
        let (mut splitter, mut chunk) = (Splitter::new(), [0; 4 << 10]);
        loop {
            while let Some(asked) = splitter.next_value().unwrap() {
                let asked = Message::new(asked).unwrap();
                // Settings have none.
                let Some(seq @ 1..) = asked.u64("seq") else { continue };
                let answers = match asked.str("action") {
                    Some("auth") => self.log_in(&stream),
                    // Asked on a connection that is about to be closed.
                    Some("watch") if self.shut_at.lock().unwrap().is_some() => vec![removed()],
                    Some("watch") => vec![state("start"), state("uptodate")],
                    _ => vec![error("no such action", "unknown_action")],
                };
                for mut answer in answers {
                    stream.write_all(&answer.u64("seq", seq).encode())?;
                }
            }
            match stream.read(&mut chunk)? {
                0 => return Ok(()),
                count => splitter.push(&chunk[..count]),
            }
        }
    }

    fn log_in(&self, stream: &TcpStream) -> Vec<Fields> {
        let shut_at = self.shut_at.lock().unwrap();
        let Some(shut_at) = *shut_at else {
            self.open.lock().unwrap().push(stream.try_clone().unwrap());
            return vec![state("start"), state("end")];
        };
        thread::sleep(LOOKS_FOR.saturating_sub(shut_at.elapsed()));
        vec![state("start"), error("who is that", "auth_failed")]
    }
}

fn removed() -> Fields {
    error("this user was removed", "auth_required")
}

#[test]
fn a_watch_that_all_nodes_shut_out_does_not_say_that_none_can_be_reached() {
    let nodes = [(); 3].map(|()| Played::start());
    let at = nodes.each_ref().map(|node| node.address.to_string()).join(",");
    let mut command = program(&["watch", "site", "--connect", &at, "--user", "joe"]);
    let mut watch = command.env("DISTKV_SECRET", "hunter2").spawn().unwrap();
    let mut said = BufReader::new(watch.stderr.take().unwrap());
    let mut first = String::new();
    said.read_line(&mut first).unwrap();
    assert!(first.starts_with("watching site at "), "{first}");
    // All at once: the watch must not go on at one that is shut a little later.
    nodes.iter().for_each(Played::bar);
    nodes.iter().for_each(Played::shut);
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(3), "{rest}");
    // Where the watch had got to another one before that closed its connection, that one has said why.
    let says_why = rest.starts_with("error: cannot get into ")
        || rest.starts_with("error: the node refuses: this user was removed (auth_required)");
    assert!(says_why && rest.lines().count() == 1, "{rest}");
}
