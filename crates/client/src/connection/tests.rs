//! A connection against a scripted node.

use std::future::Future;

use futures::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::rt::{TcpListener, TcpStream};
use crate::splitter::Splitter;

/// The node's side of one connection.
pub(crate) struct Node {
    stream: TcpStream,
    splitter: Splitter,
}

impl Node {
    pub(crate) fn new(stream: TcpStream) -> Node {
        Node { stream, splitter: Splitter::new() }
    }

    async fn send(&mut self, fields: &Fields) {
        self.stream.write_all(&fields.encode()).await.unwrap();
    }

    /// The next message of the client; `None` at its end.
    async fn receive(&mut self) -> Option<Message> {
        loop {
            if let Some(value) = self.splitter.next_value().unwrap() {
                return Some(Message::new(value).unwrap());
            }
            let mut chunk = [0; 4096];
            let count = self.stream.read(&mut chunk).await.unwrap_or(0);
            if count == 0 {
                return None;
            }
            self.splitter.push(&chunk[..count]);
        }
    }

    async fn greet(&mut self) {
        self.send(&greeting()).await;
    }

    /// Greets as a node on which clients must log in.
    #[cfg(feature = "tls")]
    pub(crate) async fn greet_and_ask(&mut self) {
        self.send(greeting().raw("auth", b"\x91\xa5token")).await;
    }

    /// The number of the next login, and its secret; none at the end.
    #[cfg(feature = "tls")]
    pub(crate) async fn receive_login(&mut self) -> Option<(u64, String)> {
        loop {
            let message = self.receive().await?;
            if message.str("action") == Some("auth") {
                return Some((message.u64("seq")?, message.str("secret")?.to_owned()));
            }
        }
    }

    /// Refuses a login with this code, or lets the client in.
    #[cfg(feature = "tls")]
    pub(crate) async fn answer_login(&mut self, seq: u64, refusal: Option<&str>) {
        match refusal {
            Some(code) => self.send(reply(seq).str("error", "no").str("code", code)).await,
            None => {
                self.send(&state(seq, 1, "start")).await;
                self.send(&state(seq, 2, "end")).await;
            }
        }
    }
}

fn greeting() -> Fields {
    let mut greeting = Fields::new();
    greeting.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "n1");
    greeting.u64("tick", 1).u64("tock", 2).u64("qlen", 10);
    greeting
}

fn reply(seq: u64) -> Fields {
    let mut fields = Fields::new();
    fields.u64("seq", seq);
    fields
}

fn state(seq: u64, wseq: u64, state: &str) -> Fields {
    let mut fields = reply(seq);
    fields.str("state", state).u64("wseq", wseq);
    fields
}

fn item(seq: u64, wseq: u64, depth: u64, path: &str) -> Fields {
    let mut fields = reply(seq);
    fields.u64("wseq", wseq).u64("depth", depth).path("path", &path.parse().unwrap());
    fields
}

/// Runs a node's script and a client's against each other, both to their ends.
fn against<N, C, T>(window: Option<u64>, node: impl FnOnce(Node) -> N, client: C) -> T::Output
where
    N: Future<Output = ()> + Send + 'static,
    C: FnOnce(Result<Connection, ClientError>) -> T,
    T: Future,
{
    against_with(Options { window, ..Options::default() }, node, client)
}

/// The same with other options.
fn against_with<N, C, T>(options: Options, node: impl FnOnce(Node) -> N, client: C) -> T::Output
where
    N: Future<Output = ()> + Send + 'static,
    C: FnOnce(Result<Connection, ClientError>) -> T,
    T: Future,
{
    rt::block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let to = HostPort { host: "127.0.0.1".into(), port };
        let connecting = rt::spawn(async move { Connection::connect(&to, options).await });
        let (stream, _) = listener.accept().await.unwrap();
        let script = rt::spawn(node(Node::new(stream)));
        let output = client(connecting.await).await;
        script.await;
        output
    })
}

#[test]
fn replies_find_their_requests_in_any_order() {
    let node = |mut node: Node| async move {
        node.greet().await;
        let first = node.receive().await.unwrap();
        let second = node.receive().await.unwrap();
        assert_eq!(first.str("action"), Some("get_tock"));
        for request in [second, first] {
            let seq = request.u64("seq").unwrap();
            node.send(reply(seq).u64("tock", request.u64("mine").unwrap())).await;
        }
    };
    against(None, node, |connection| async {
        let connection = connection.unwrap();
        assert_eq!(connection.greeting().node, "n1");
        let ask = |mine| {
            let connection = &connection;
            async move {
                let mut fields = Fields::new();
                fields.u64("mine", mine);
                connection.request("get_tock", &fields).await.unwrap().u64("tock")
            }
        };
        assert_eq!(futures::future::join(ask(7), ask(8)).await, (Some(7), Some(8)));
    });
}

#[test]
fn an_error_of_the_node_leaves_the_connection_open() {
    let node = |mut node: Node| async move {
        node.greet().await;
        let seq = node.receive().await.unwrap().u64("seq").unwrap();
        node.send(reply(seq).str("error", "No such thing").str("code", "unknown_action")).await;
        let seq = node.receive().await.unwrap().u64("seq").unwrap();
        node.send(&reply(seq)).await;
        assert_eq!(node.receive().await, None);
    };
    against(None, node, |connection| async {
        let connection = connection.unwrap();
        let error = connection.request("dance", &Fields::new()).await.unwrap_err();
        assert!(error.server().unwrap().has_code("unknown_action"));
        assert!(connection.request("get_tock", &Fields::new()).await.is_ok());
    });
}

#[test]
fn a_client_that_does_not_want_to_wait_says_so_to_a_node_that_catches_up() {
    for (window, told) in [(None, 0), (Some(4), 4)] {
        let node = move |mut node: Node| async move {
            let mut greeting = Fields::new();
            greeting.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "n1");
            node.send(greeting.raw("tick", &[0xc0]).u64("tock", 2).u64("qlen", 10)).await;
            let settings = node.receive().await.unwrap();
            assert_eq!((settings.u64("seq"), settings.u64("qlen")), (Some(0), Some(told)));
            assert_eq!(settings.bool("nowait"), Some(true));
            let seq = node.receive().await.unwrap().u64("seq").unwrap();
            node.send(&reply(seq)).await;
        };
        let options = Options { window, nowait: true, ..Options::default() };
        against_with(options, node, |connection| async {
            assert!(connection.unwrap().request("get_tock", &Fields::new()).await.is_ok());
        });
    }
}

#[test]
fn a_node_that_is_ready_is_not_told_that_nobody_would_wait_for_it() {
    let node = |mut node: Node| async move {
        node.greet().await;
        let first = node.receive().await.unwrap();
        assert_eq!(first.str("action"), Some("get_tock"));
        node.send(&reply(first.u64("seq").unwrap())).await;
    };
    let options = Options { window: None, nowait: true, ..Options::default() };
    against_with(options, node, |connection| async {
        assert!(connection.unwrap().request("get_tock", &Fields::new()).await.is_ok());
    });
}

#[test]
fn a_stream_s_paths_are_whole_and_its_messages_acknowledged() {
    let node = |mut node: Node| async move {
        node.greet().await;
        assert_eq!(node.receive().await.unwrap().u64("qlen"), Some(4));
        let seq = node.receive().await.unwrap().u64("seq").unwrap();
        node.send(&state(seq, 1, "start")).await;
        node.send(&item(seq, 2, 0, "a.b")).await;
        node.send(&item(seq, 3, 1, "c")).await;
        let ack = node.receive().await.unwrap();
        assert_eq!((ack.u64("seq"), ack.u64("ack")), (Some(seq), Some(2)));
        node.send(&state(seq, 4, "uptodate")).await;
        node.send(&state(seq, 5, "end")).await;
        let ack = node.receive().await.unwrap();
        assert_eq!(ack.u64("ack"), Some(4));
        assert_eq!(node.receive().await, None);
    };
    against(Some(4), node, |connection| async {
        let connection = connection.unwrap();
        let mut stream = connection.stream("watch", &Fields::new()).await.unwrap();
        let mut seen = Vec::new();
        while let Some(event) = stream.next().await.unwrap() {
            seen.push(match event {
                StreamEvent::Item { path, .. } => path.unwrap().to_string(),
                StreamEvent::UpToDate => "uptodate".into(),
                StreamEvent::Start | StreamEvent::State(..) => "?".into(),
            });
        }
        assert_eq!(seen, ["a.b", "a.c", "uptodate"]);
        assert_eq!(stream.next().await, Ok(None));
    });
}

#[test]
fn a_stream_with_an_impossible_path_ends_with_an_error() {
    for bad in
        [item(1, 2, 1, "a"), item(1, 2, u64::MAX, "a"), reply(1).raw("path", b"\x05").clone()]
    {
        let node = |mut node: Node| async move {
            node.greet().await;
            node.receive().await.unwrap();
            node.send(&state(1, 1, "start")).await;
            node.send(&bad).await;
            while node.receive().await.is_some() {}
        };
        against(None, node, |connection| async {
            let mut stream = connection.unwrap().stream("watch", &Fields::new()).await.unwrap();
            let next = stream.next().await;
            assert!(matches!(next, Err(ClientError::Protocol { .. })), "{next:?}");
            assert_eq!(stream.next().await, Ok(None));
        });
    }
}

#[test]
fn no_greater_window_is_used_than_the_node_grants() {
    assert_eq!(decide_window(Some(64), Some(10)), Some(10));
    assert_eq!(decide_window(Some(4), Some(10)), Some(4));
    assert_eq!(decide_window(Some(64), None), Some(64));
    assert_eq!(decide_window(Some(1), Some(1)), Some(2));
    assert_eq!(decide_window(Some(64), Some(0)), None);
    assert_eq!(decide_window(None, Some(10)), None);
}

#[test]
fn a_dropped_stream_is_stopped() {
    let node = |mut node: Node| async move {
        node.greet().await;
        let seq = node.receive().await.unwrap().u64("seq").unwrap();
        node.send(&state(seq, 1, "start")).await;
        let stop = node.receive().await.unwrap();
        assert_eq!((stop.str("action"), stop.u64("task")), (Some("stop"), Some(seq)));
        // No task waits for these any more; they do no harm.
        node.send(reply(stop.u64("seq").unwrap()).bool("result", true)).await;
        node.send(&state(seq, 2, "end")).await;
        let seq = node.receive().await.unwrap().u64("seq").unwrap();
        node.send(&reply(seq)).await;
    };
    against(None, node, |connection| async {
        let connection = connection.unwrap();
        drop(connection.stream("watch", &Fields::new()).await.unwrap());
        assert!(connection.request("get_tock", &Fields::new()).await.is_ok());
    });
}

#[test]
fn a_stream_that_is_not_read_holds_the_node_up_and_loses_nothing() {
    const ITEMS: u64 = 1000;
    let node = |mut node: Node| async move {
        node.greet().await;
        let seq = node.receive().await.unwrap().u64("seq").unwrap();
        node.send(&state(seq, 1, "start")).await;
        for number in 0..ITEMS {
            node.send(reply(seq).u64("number", number)).await;
        }
        node.send(&state(seq, 2, "end")).await;
    };
    against(None, node, |connection| async {
        let mut stream = connection.unwrap().stream("watch", &Fields::new()).await.unwrap();
        let mut expected = 0;
        while let Some(event) = stream.next().await.unwrap() {
            let StreamEvent::Item { message, .. } = event else { panic!("{event:?}") };
            assert_eq!(message.u64("number"), Some(expected));
            expected += 1;
        }
        assert_eq!(expected, ITEMS);
    });
}

#[test]
fn a_node_that_ignores_flow_control_is_left() {
    let node = |mut node: Node| async move {
        node.greet().await;
        node.receive().await.unwrap();
        let seq = node.receive().await.unwrap().u64("seq").unwrap();
        node.send(&state(seq, 1, "start")).await;
        for wseq in 2..1000 {
            let mut item = reply(seq);
            // The client may have gone already.
            let sent = node.stream.write_all(&item.u64("wseq", wseq).encode()).await;
            if sent.is_err() {
                break;
            }
        }
        while node.receive().await.is_some() {}
    };
    against(Some(4), node, |connection| async {
        let connection = connection.unwrap();
        let _unread = connection.stream("watch", &Fields::new()).await.unwrap();
        let error = connection.closed().await;
        assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
    });
}

#[test]
fn whoever_waits_hears_of_the_connection_s_end_and_its_reason() {
    let node = |mut node: Node| async move {
        node.greet().await;
        node.receive().await.unwrap();
        node.send(Fields::new().str("error", "that was no map").str("code", "bad_message")).await;
    };
    against(None, node, |connection| async {
        let connection = connection.unwrap();
        let error = connection.request("get_tock", &Fields::new()).await.unwrap_err();
        assert!(matches!(error, ClientError::Lost { .. }), "{error:?}");
        assert!(error.to_string().contains("that was no map"), "{error}");
        assert_eq!(connection.request("get_tock", &Fields::new()).await, Err(error));
        assert!(connection.is_closed());
    });
}

#[test]
fn messages_may_come_byte_by_byte() {
    let node = |mut node: Node| async move {
        node.greet().await;
        let seq = node.receive().await.unwrap().u64("seq").unwrap();
        for byte in reply(seq).u64("tock", 5).encode() {
            node.stream.write_all(&[byte]).await.unwrap();
            rt::yield_now().await;
        }
    };
    against(None, node, |connection| async {
        let reply = connection.unwrap().request("get_tock", &Fields::new()).await.unwrap();
        assert_eq!(reply.u64("tock"), Some(5));
    });
}

#[test]
fn another_service_is_told_apart_from_a_node() {
    for first_words in
        [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"\x80", b"\xc1", b"\xdf\xff\xff\xff\xff"]
    {
        let node = |mut node: Node| async move {
            let _ = node.stream.write_all(first_words).await;
            while node.receive().await.is_some() {}
        };
        against(None, node, |connection| async {
            let error = connection.unwrap_err();
            assert!(matches!(error, ClientError::Protocol { .. }), "{error:?}");
        });
    }
}

#[test]
fn a_silent_service_is_given_up() {
    rt::block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let to = HostPort { host: "localhost".into(), port };
        let options = Options {
            connect_timeout: Duration::from_millis(50),
            window: None,
            ..Options::default()
        };
        let error = Connection::connect(&to, options).await.unwrap_err();
        assert!(matches!(error, ClientError::Connect { .. }), "{error:?}");
    });
}

#[test]
fn where_nobody_listens_the_error_names_the_address() {
    rt::block_on(async {
        // A port that is free now may be another test's a moment later; nobody is given this one.
        let to = HostPort { host: "127.0.0.1".into(), port: 1 };
        let error = Connection::connect(&to, Options::default()).await.unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:1:"), "{error}");

        let to = HostPort { host: "no..such..host".into(), port: 1 };
        let error = Connection::connect(&to, Options::default()).await.unwrap_err();
        assert!(matches!(error, ClientError::Resolve { .. }), "{error:?}");
    });
}

#[test]
fn a_request_that_is_too_long_is_not_sent() {
    let node = |mut node: Node| async move {
        node.greet().await;
        assert_eq!(node.receive().await, None);
    };
    against(None, node, |connection| async {
        let mut fields = Fields::new();
        fields.bin("value", &vec![0; REQUEST_BYTES_MAX]);
        let error = connection.unwrap().request("set_value", &fields).await.unwrap_err();
        assert!(matches!(error, ClientError::TooLarge(_)), "{error:?}");
    });
}

#[test]
fn requests_come_whole_and_in_order_also_after_one_that_was_given_up_half_written() {
    // More than the system's buffers take while nobody reads.
    const BIG: usize = 6 << 20;
    const SMALL: u64 = 100;
    let (go_on, may_read) = async_channel::bounded::<()>(1);
    let node = |mut node: Node| async move {
        node.greet().await;
        for seq in 1..=3 {
            assert_eq!(node.receive().await.unwrap().u64("seq"), Some(seq));
            node.send(&reply(seq)).await;
        }
        may_read.recv().await.unwrap();
        let big = node.receive().await.unwrap();
        assert_eq!(big.u64("seq"), Some(4));
        assert!(big.get("value").unwrap().len() > BIG);
        for seq in 5..5 + SMALL {
            assert_eq!(node.receive().await.unwrap().u64("seq"), Some(seq));
            node.send(&reply(seq)).await;
        }
    };
    against(None, node, |connection| async move {
        let (connection, none) = (connection.unwrap(), Fields::new());
        // One after the other, each alone.
        for _ in 0..3 {
            connection.request("get_value", &none).await.unwrap();
        }
        let mut big = Fields::new();
        big.bin("value", &vec![7; BIG]);
        let given_up = connection.request("set_value", &big);
        assert!(rt::timeout(Duration::from_millis(20), given_up).await.is_none());
        let asking = (0..SMALL).map(|_| {
            let (connection, none) = (connection.clone(), none.clone());
            async move { connection.request("get_value", &none).await }
        });
        let asking = rt::spawn(futures::future::join_all(asking));
        go_on.send(()).await.unwrap();
        for answer in asking.await {
            answer.unwrap();
        }
    });
}

/// A connection with as many open requests as there may be, and how a node that answers the question whether it is alive so is
/// judged: whether it was asked, and whether it is taken to be alive.
fn asked_where_all_places_are_taken(answers: bool) -> (bool, bool) {
    let (asked, questions) = async_channel::bounded(1);
    let node = move |mut node: Node| async move {
        node.greet().await;
        while let Some(request) = node.receive().await {
            if request.str("action") == Some("auth_info") {
                asked.try_send(()).unwrap();
                if answers {
                    node.send(&reply(request.u64("seq").unwrap())).await;
                }
            }
        }
    };
    against(None, node, |connection| async move {
        let connection = connection.unwrap();
        let fields = Fields::new();
        let mut calls =
            futures::future::join_all((0..4096).map(|_| connection.request("get_tock", &fields)));
        while connection.open_requests() < 4096 {
            assert!(rt::timeout(Duration::from_millis(1), &mut calls).await.is_none());
        }
        assert!(!connection.has_room(Use::Call), "no place is left for calls");
        // Who answers has as much time as it takes.
        let patience = Duration::from_millis(if answers { 60_000 } else { 200 });
        // The calls go on: what they have to send is ahead.
        let asking = std::pin::pin!(connection.is_alive(patience));
        let Either::Right((is_alive, _)) = select(&mut calls, asking).await else { panic!() };
        (questions.try_recv().is_ok(), is_alive)
    })
}

#[test]
fn a_silent_node_is_told_from_one_that_is_alive_where_all_places_are_taken() {
    assert_eq!(asked_where_all_places_are_taken(true), (true, true));
    assert_eq!(asked_where_all_places_are_taken(false), (true, false));
}

/// More messages of a stream than are kept for its reader.
const UNREAD: u64 = STREAM_MESSAGES_MAX as u64 + 4;

/// Without flow control, the task that reads the connection waits until a stream that is not read has room for a message.
async fn until_the_reader_waits(stream: &ReplyStream) {
    // It has a handle of its own as long as it waits.
    let is_waiting = || {
        let messages = &stream.open.messages;
        messages.is_full() && messages.sender_count() > 1
    };
    for _ in 0..100 {
        while !is_waiting() {
            rt::yield_now().await;
        }
        rt::yield_now().await;
    }
}

/// Sends the start of a stream and more messages than are kept.
async fn send_unread(node: &mut Node) {
    let seq = node.receive().await.unwrap().u64("seq").unwrap();
    node.send(&state(seq, 1, "start")).await;
    for number in 2..2 + UNREAD {
        node.send(&item(seq, number, 0, "a")).await;
    }
}

#[test]
fn a_stream_that_nobody_reads_does_not_hold_up_the_connection_s_end() {
    let node = |mut node: Node| async move {
        node.greet().await;
        send_unread(&mut node).await;
        assert_eq!(node.receive().await, None);
    };
    against(None, node, |connection| async {
        let connection = connection.unwrap();
        let mut stream = connection.endless("watch", &Fields::new()).await.unwrap();
        until_the_reader_waits(&stream).await;
        connection.close("the test wants it so");
        let ended = connection.shared.tasks.empty();
        assert!(rt::timeout(Duration::from_secs(60), ended).await.is_some(), "a task goes on");
        // What had come can still be taken.
        for _ in 0..STREAM_MESSAGES_MAX {
            assert!(matches!(stream.next().await, Ok(Some(StreamEvent::Item { .. }))));
        }
        assert!(stream.next().await.is_err());
    });
}

#[test]
fn the_end_of_a_stream_that_nobody_reads_lets_others_go_on() {
    let node = |mut node: Node| async move {
        node.greet().await;
        send_unread(&mut node).await;
        let seq = node.receive().await.unwrap().u64("seq").unwrap();
        node.send(&reply(seq)).await;
        while node.receive().await.is_some() {}
    };
    against(None, node, |connection| async {
        let connection = connection.unwrap();
        let stream = connection.endless("watch", &Fields::new()).await.unwrap();
        until_the_reader_waits(&stream).await;
        connection.end_endless();
        let fields = Fields::new();
        let asking = connection.request("get_tock", &fields);
        assert!(rt::timeout(Duration::from_secs(60), asking).await.is_some(), "it still waits");
    });
}
