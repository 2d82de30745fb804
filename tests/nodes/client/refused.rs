//! Who is let in nowhere: what a node means that makes a login wait, that is full, or that closes a connection and says why.
//! Against scripted nodes, which are as a test wants them at each moment.

use std::sync::Arc;
use std::time::Duration;

use distkv::client::splitter::Splitter;
use distkv::client::*;
use distkv::rt::{self, TcpListener, TcpStream};
use distkv::testing::{PATIENCE, block_on};
use futures::future::join;
use futures::{AsyncReadExt, AsyncWriteExt};
use parking_lot::Mutex;

use super::ops::path;

/// What a node does with who comes.
#[derive(Debug, Clone, Copy)]
enum Door {
    /// It lets the client in.
    Open,
    /// It has looked at the secret, and does not know it.
    Refuses,
    /// It makes the login wait: it has not looked at the secret.
    Waits,
    /// It is full, and says so instead of a greeting.
    Full,
    /// It is full, and closes the connection while the login waits for its answer.
    Crowded,
}

/// A node that is played. All that it says of the cluster is that it is old, so the seeds are all nodes there are.
struct Node {
    address: HostPort,
    door: Arc<Mutex<Door>>,
    /// Those it has let in.
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Node {
    async fn start(door: Door) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().into();
        let (door, open) = (Arc::new(Mutex::new(door)), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (its_door, its_open) = (Arc::clone(&door), Arc::clone(&open));
        let _detached = rt::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (door, open) = (*its_door.lock(), Arc::clone(&its_open));
                let _detached = rt::spawn(async move { serve(stream, door, &open).await });
            }
        });
        Node { address, door, open }
    }

    fn is(&self, door: Door) {
        *self.door.lock() = door;
    }

    /// Closes all connections; with an error of this code, if there is one.
    async fn close(&self, code: Option<&str>) {
        let open = std::mem::take(&mut *self.open.lock());
        for mut stream in open {
            if let Some(code) = code {
                let _ = stream.write_all(&error(None, "these are its last words", code)).await;
            }
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
    }
}

fn error(seq: Option<u64>, text: &str, code: &str) -> Vec<u8> {
    let mut fields = Fields::new();
    if let Some(seq) = seq {
        fields.u64("seq", seq);
    }
    fields.str("error", text).str("code", code).encode()
}

fn state(seq: u64, state: &str) -> Vec<u8> {
    Fields::new().u64("seq", seq).str("state", state).encode()
}

async fn serve(mut stream: TcpStream, door: Door, open: &Mutex<Vec<TcpStream>>) {
    if matches!(door, Door::Full) {
        let _ = stream.write_all(&error(None, "there is no room", "too_many")).await;
        let _ = stream.shutdown(std::net::Shutdown::Write);
        return;
    }
    let mut greeting = Fields::new();
    let name = format!("at {}", stream.local_addr().unwrap());
    greeting.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", &name);
    greeting.u64("tock", 1).raw("auth", b"\x91\xa8password").str("network", "shop");
    let _ = stream.write_all(&greeting.encode()).await;
    let (mut splitter, mut chunk) = (Splitter::new(), [0; 4096]);
    loop {
        while let Some(request) = splitter.next_value().unwrap() {
            let request = Message::new(request).unwrap();
            // Settings have none.
            let Some(seq @ 1..) = request.u64("seq") else { continue };
            let answer = match (request.str("action"), door) {
                (Some("auth"), Door::Crowded) => {
                    let _ = stream.write_all(&error(None, "make room", "too_many")).await;
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                    return;
                }
                (Some("auth"), Door::Refuses) => {
                    [state(seq, "start"), error(Some(seq), "who is that", "auth_failed")].concat()
                }
                (Some("auth"), Door::Waits) => {
                    [state(seq, "start"), error(Some(seq), "come again in 9 s", "too_many")]
                        .concat()
                }
                (Some("auth"), _) => {
                    open.lock().push(stream.clone());
                    [state(seq, "start"), state(seq, "end")].concat()
                }
                (Some("get_value"), _) => Fields::new().u64("seq", seq).raw("value", &[7]).encode(),
                _ => error(Some(seq), "no such action", "unknown_action"),
            };
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
        match stream.read(&mut chunk).await {
            Ok(count @ 1..) => splitter.push(&chunk[..count]),
            _ => return,
        }
    }
}

/// Calls hardly remember that a node has failed: each may ask each node again.
fn config() -> ClientConfig {
    let memory = Duration::from_millis(1);
    let (failure_memory, failure_memory_max) = (memory, memory);
    let pool = PoolConfig { failure_memory, failure_memory_max, ..PoolConfig::default() };
    let retry = RetryPolicy { total_deadline: 2 * PATIENCE, ..RetryPolicy::default() };
    let login = Login::user(Some("password"), "ann", Some("secret"));
    ClientConfig::new().pool(pool).retry(retry).connect_deadline(2 * PATIENCE).login(login)
}

async fn connect(nodes: &[&Node]) -> Client {
    let seeds: Vec<HostPort> = nodes.iter().map(|node| node.address.clone()).collect();
    Client::connect(seeds, config()).await.unwrap()
}

/// A call that is served, and by no attempt that began before the nodes were as they are.
async fn is_let_in(client: &Client) {
    let begun = rt::now();
    while client.get::<u8>(&path("a")).await != Ok(Some(7)) {
        assert!(rt::now() - begun < rt::millis(PATIENCE), "it is not let in");
    }
}

/// Calls that end with a refusal before their time is over; until one of them says all this.
async fn told_at_once(client: &Client, told: &[&str]) {
    let begun = rt::now();
    loop {
        let call = rt::timeout(PATIENCE, client.get::<u8>(&path("a"))).await;
        let error = call.expect("it was not told at once").unwrap_err();
        assert_eq!(error.code(), Some("no_access"), "{error}");
        let CallError::NoAccess { error: ClientError::NoAccess { address, .. }, .. } = &error
        else {
            panic!("{error:?}")
        };
        // By its address, as long as it has let nobody in.
        let names = [address.clone(), format!("at {address}")];
        assert!(names.iter().any(|name| Some(name.as_str()) == error.node()), "{error}");
        // The first may have got the result of an attempt that was under way.
        let error = error.to_string();
        if told.iter().all(|told| error.contains(told)) {
            return;
        }
        assert!(rt::now() - begun < rt::millis(PATIENCE), "{told:?} is not told: {error}");
    }
}

/// So long a call goes on that is to be seen trying until its time is over.
const BRIEF: Duration = Duration::from_millis(300);

/// Calls that go on until their time is over; until one of them says this.
async fn hopes(client: &Client, told: &str) {
    let begun = rt::now();
    loop {
        let brief = GetOptions::new().deadline(BRIEF);
        let error = client.get_with::<u8>(&path("a"), brief).await.unwrap_err();
        assert_eq!(error.code(), Some("unavailable"), "{error}");
        if error.to_string().contains(told) {
            return;
        }
        assert!(rt::now() - begun < rt::millis(PATIENCE), "{told:?} is not told: {error}");
    }
}

#[test]
fn a_login_that_must_wait_is_no_refusal_and_no_hope() {
    block_on(async {
        let (one, other) = (Node::start(Door::Open).await, Node::start(Door::Open).await);
        let client = connect(&[&one, &other]).await;
        is_let_in(&client).await;
        // Where no node has refused it, it may be let in later.
        for node in [&one, &other] {
            node.is(Door::Waits);
            node.close(None).await;
        }
        hopes(&client, "makes the login wait: come again in 9 s").await;
        for (refuses, waits) in [(&one, &other), (&other, &one)] {
            refuses.is(Door::Refuses);
            waits.is(Door::Waits);
            told_at_once(&client, &["who is that"]).await;
        }
        one.is(Door::Open);
        is_let_in(&client).await;
        client.close().await;
    });
}

#[test]
fn a_seed_that_makes_a_login_wait_could_not_be_asked() {
    block_on(async {
        let (one, other) = (Node::start(Door::Refuses).await, Node::start(Door::Waits).await);
        let seeds = [one.address.clone(), other.address.clone()];
        let brief = config().connect_deadline(Duration::from_secs(4));
        let error = Client::connect(seeds.clone(), brief).await.unwrap_err();
        assert_eq!(error.code(), Some("unavailable"), "{error}");
        assert!(error.to_string().contains("who is that"), "{error}");
        let connecting = Client::connect(seeds, config());
        let opening = async {
            rt::sleep(BRIEF).await;
            other.is(Door::Open);
        };
        let (client, ()) = join(connecting, opening).await;
        client.unwrap().close().await;
    });
}

#[test]
fn a_node_that_has_refused_a_client_still_does_while_it_makes_it_wait() {
    block_on(async {
        let node = Node::start(Door::Open).await;
        let client = connect(&[&node]).await;
        for code in ["auth_required", "denied", "auth_failed"] {
            is_let_in(&client).await;
            node.is(Door::Waits);
            node.close(Some(code)).await;
            told_at_once(&client, &["these are its last words", "come again in 9 s"]).await;
            node.is(Door::Open);
        }
        is_let_in(&client).await;
        node.is(Door::Refuses);
        node.close(None).await;
        told_at_once(&client, &["who is that"]).await;
        node.is(Door::Waits);
        told_at_once(&client, &["who is that", "come again in 9 s"]).await;
        client.close().await;
    });
}

#[test]
fn last_words_alone_are_no_refusal_and_a_login_makes_them_forgotten() {
    block_on(async {
        let node = Node::start(Door::Open).await;
        let client = connect(&[&node]).await;
        is_let_in(&client).await;
        // It may have been made anew.
        node.close(Some("auth_required")).await;
        assert_eq!(client.get::<u8>(&path("a")).await, Ok(Some(7)));
        node.is(Door::Waits);
        node.close(None).await;
        hopes(&client, "makes the login wait").await;
        node.is(Door::Refuses);
        told_at_once(&client, &[]).await;
        node.is(Door::Open);
        is_let_in(&client).await;
        // These say nothing of this client.
        node.is(Door::Waits);
        node.close(Some("too_many")).await;
        hopes(&client, "makes the login wait").await;
        client.close().await;
    });
}

#[test]
fn a_node_that_is_full_may_let_in_whom_it_has_refused() {
    block_on(async {
        let (one, other) = (Node::start(Door::Open).await, Node::start(Door::Open).await);
        let client = connect(&[&one, &other]).await;
        for (full, told) in [(Door::Full, "there is no room"), (Door::Crowded, "make room")] {
            is_let_in(&client).await;
            for node in [&one, &other] {
                node.is(Door::Refuses);
                node.close(Some("auth_required")).await;
            }
            told_at_once(&client, &[]).await;
            one.is(full);
            hopes(&client, "").await;
            other.is(full);
            hopes(&client, told).await;
            one.is(Door::Open);
        }
        client.close().await;
    });
}
