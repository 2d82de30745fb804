//! TLS at the client port, with the Rust client and with raw sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use distkv::client::{
    Access, CallError, Client, ClientConfig, ClientError, Connection, Fate, Fields, HostPort,
    Login, Options, PoolConfig,
};
use distkv::model::path::Path;
use distkv::rt;
use distkv::server::{ServerConfig, TlsSettings};
use distkv::testing::free_addrs;
use distkv_tls::server::ClientRoots;
use distkv_tls::trust::Trust;
use distkv_tls::{Ca, Channel, ClientTls, Clock, ServerTls, Ticket};
use futures::future::join_all;

use crate::harness::{self, Node, PATIENCE, Value, path, text};
use crate::sockets::pauses::Pauses;

fn now() -> u64 {
    rt::wall_clock_ms() / 1_000
}

fn clock() -> Clock {
    Clock::new(now)
}

/// A network's CA and a node that shows a certificate of it.
struct Secured {
    ca: Ca,
    tls: Arc<ServerTls>,
    node: Node,
}

impl Secured {
    /// A node that permits plain text on its own machine, or does not.
    fn new(is_plain_at_home: bool) -> Secured {
        Secured::with(is_plain_at_home, ServerConfig::default())
    }

    fn with(is_plain_at_home: bool, config: ServerConfig) -> Secured {
        let ca = Ca::make("plant", now()).unwrap();
        let identity = ca.issue_node(&["127.0.0.1"], now()).unwrap();
        let clients = ClientRoots::none().with_ca(&ca).unwrap();
        let tls = Arc::new(ServerTls::new(&identity, &clients, clock()).unwrap());
        let settings = TlsSettings { tls: Arc::clone(&tls), is_plain_at_home, plain: Vec::new() };
        let config = ServerConfig { tls: Some(settings), ..config };
        Secured { ca, tls, node: Node::found_with("n1", config) }
    }

    fn to(&self) -> HostPort {
        HostPort::from(self.node.address())
    }

    fn ticket(&self) -> Ticket {
        let ticket = Ticket {
            addresses: vec![self.to().to_string()],
            network: String::from("test"),
            login: None,
            ca: Some(self.ca.hash()),
            certificate: None,
        };
        ticket.to_text().unwrap().parse().unwrap()
    }

    fn access(&self) -> Access {
        Access::of_ticket(&self.ticket()).unwrap()
    }

    fn connect(&self) -> Connection {
        self.connect_with(self.access()).unwrap()
    }

    fn connect_with(&self, access: Access) -> Result<Connection, ClientError> {
        rt::block_on(Connection::connect(&self.to(), Options { access, ..Options::default() }))
    }

    /// A socket on which the client's hello has not been sent.
    fn raw(&self) -> (TcpStream, Channel) {
        let socket = TcpStream::connect(self.node.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        let trust = Trust::hash(self.ca.hash());
        let tls = ClientTls::new(trust, None, clock()).unwrap();
        (socket, tls.connect("127.0.0.1").unwrap())
    }
}

fn set(connection: &Connection, at: &str, value: &[u8]) {
    let mut fields = Fields::at(&at.parse::<Path>().unwrap());
    fields.bin("value", value);
    rt::block_on(connection.request("set_value", &fields)).unwrap();
}

fn get(connection: &Connection, at: &str) -> Vec<u8> {
    let fields = Fields::at(&at.parse::<Path>().unwrap());
    let reply = rt::block_on(connection.request("get_value", &fields)).unwrap();
    reply.get("value").unwrap().to_vec()
}

#[test]
fn values_of_all_sizes_go_both_ways() {
    let secured = Secured::new(false);
    let connection = secured.connect();
    for len in [0, 1, 100, 16_384, 1 << 20, 4 << 20] {
        let value: Vec<u8> = (0..len).map(|index| (index * 7 + index / 255) as u8).collect();
        // With room for what MessagePack needs.
        let value = &value[..len.min((4 << 20) - 16)];
        set(&connection, "a.b", value);
        assert!(get(&connection, "a.b").ends_with(value), "{len}");
    }
}

#[test]
fn a_ticket_or_a_ca_is_all_that_a_smart_client_needs() {
    let secured = Secured::new(false);
    let path: Path = "a.b".parse().unwrap();
    rt::block_on(async {
        let ticket = secured.ticket();
        let client = Client::connect_with_ticket(&ticket, ClientConfig::new()).await.unwrap();
        client.put(&path, &1).await.unwrap();
        client.close().await;
        assert_eq!(client.stats().tasks, 0);
        let access = Access::default().by_ca(Trust::hash(secured.ca.hash())).unwrap();
        let config = ClientConfig::new().access(access);
        let client = Client::connect([secured.to()], config).await.unwrap();
        assert_eq!(client.get::<u8>(&path).await.unwrap(), Some(1));
        client.close().await;
        let none = Ticket { addresses: vec![String::new()], ..ticket };
        let error = Client::connect_with_ticket(&none, ClientConfig::new()).await.unwrap_err();
        assert_eq!(error.code(), Some("usage"), "{error}");
    });
}

/// How connections are kept says nothing of how the client gets in; nor does a ticket without a CA.
#[test]
fn no_setting_takes_tls_or_the_network_away_in_whatever_order_they_are_given() {
    let plain = Node::found_with("n1", ServerConfig::default());
    let to = HostPort::from(plain.address());
    let ca = Ca::make("plant", now()).unwrap();
    let access = || Access::default().by_ca(Trust::hash(ca.hash())).unwrap();
    let pool = || PoolConfig { connections_per_node: 4, ..PoolConfig::default() };
    let quick = || ClientConfig::new().connect_deadline(Duration::from_secs(1));
    let is_refused = |what: &str, told: Result<Client, CallError>| {
        let error = told.map(drop).expect_err(what);
        assert_eq!(error.code(), Some("no_access"), "{what}: {error}");
    };
    rt::block_on(async {
        for (what, config) in [
            ("access", quick().access(access())),
            ("pool, access", quick().pool(pool()).access(access())),
            ("access, pool", quick().access(access()).pool(pool())),
            ("network, pool", quick().network("another").pool(pool())),
            ("pool, network", quick().pool(pool()).network("another")),
            ("network, access", quick().network("another").access(Access::default())),
            ("access, network", quick().access(Access::default()).network("another")),
        ] {
            is_refused(what, Client::connect([to.clone()], config).await);
        }
        let ticket = Ticket {
            addresses: vec![to.to_string()],
            network: String::new(),
            login: None,
            ca: None,
            certificate: None,
        };
        let config = quick().access(access());
        is_refused("a ticket", Client::connect_with_ticket(&ticket, config).await);
    });
}

#[test]
fn many_requests_at_once_and_long_streams() {
    let secured = Secured::new(false);
    let connection = secured.connect();
    rt::block_on(async {
        let fields: Vec<Fields> = (0..2_000)
            .map(|index| {
                let mut fields = Fields::at(&format!("a:{index}").parse::<Path>().unwrap());
                fields.bin("value", &[7; 500]);
                fields
            })
            .collect();
        let written =
            join_all(fields.iter().map(|fields| connection.request("set_value", fields))).await;
        assert!(written.iter().all(Result::is_ok));
        let mut stream =
            connection.stream("get_tree", &Fields::at(&"a".parse().unwrap())).await.unwrap();
        let mut count = 0;
        while stream.next().await.unwrap().is_some() {
            count += 1;
        }
        assert!(count >= 2_000, "{count}");
    });
}

#[test]
fn one_port_speaks_plain_text_at_home_and_tls_to_whoever_asks() {
    let secured = Secured::new(true);
    let mut plain = secured.node.connect();
    plain.set("a", 5);
    let connection = secured.connect();
    assert_eq!(get(&connection, "a"), [5]);
    assert_eq!(connection.greeting().node, "n1");
    set(&connection, "b", b"x");
    assert_eq!(plain.get("b"), Some(Value::Binary(b"x".to_vec())));
}

#[test]
fn a_client_without_tls_is_told_so_whether_it_speaks_first_or_not() {
    let secured = Secured::new(false);
    let mut client = harness::Client::silent(secured.node.address());
    client.send(map! {"action": "get_value", "path": path("a"), "seq": 1});
    let error = client.receive().expect("no word of it");
    assert!(text(&error, "error").contains("by TLS only"), "{error}");
    // This client is of the node's own machine.
    assert!(!text(&error, "error").contains("other machines"), "{error}");
    assert_eq!(text(&error, "code"), "auth_required");
    assert_eq!(client.receive(), None);
    let error = secured.connect_with(Access::default()).unwrap_err();
    assert!(error.to_string().contains("distkv-node tunnel"), "{error}");
}

#[test]
fn a_client_says_which_of_ca_name_and_address_is_wrong() {
    let secured = Secured::new(true);
    let access = |ca: &Ca| {
        Access::default().by_tls(ClientTls::new(Trust::hash(ca.hash()), None, clock()).unwrap())
    };
    let refused = |secured: &Secured, access| {
        let error = secured.connect_with(access).unwrap_err();
        let ClientError::NoAccess { code, .. } = &error else { panic!("{error:?}") };
        (error.to_string(), code.as_deref().map(str::to_owned))
    };
    let other = Ca::make("plant", now()).unwrap();
    let (error, code) = refused(&secured, access(&other));
    assert!(error.contains("wrong CA") && code.is_none(), "{error}");
    secured
        .tls
        .replace(&secured.ca.issue_node(&["n1"], now()).unwrap(), &ClientRoots::none())
        .unwrap();
    let (error, code) = refused(&secured, secured.access());
    assert!(
        error.contains("wrong name: the node's certificate is for n1, not for 127.0.0.1"),
        "{error}"
    );
    assert_eq!(code, None);
    const DAYS: u64 = 40 * 86_400;
    for (made, what) in [(now() - DAYS, "expired"), (now() + DAYS, "is valid from")] {
        let other = secured.ca.issue_node(&["127.0.0.1"], made).unwrap();
        secured.tls.replace(&other, &ClientRoots::none()).unwrap();
        let (error, code) = refused(&secured, secured.access());
        let text = format!("wrong time: the node's certificate {what}");
        assert!(error.contains(&text), "{error}");
        assert_eq!(code.as_deref(), Some("wrong_time"));
    }
    // A node that does not speak TLS at all.
    let open = Node::found("n2");
    let to = HostPort::from(open.address());
    let options = Options { access: secured.access(), ..Options::default() };
    let error = rt::block_on(Connection::connect(&to, options)).unwrap_err().to_string();
    assert!(error.contains("does not understand TLS"), "{error}");
}

/// Whom all nodes refuse is told so at once; where another one could not be asked, that one may let it in later.
#[test]
fn whom_all_nodes_refuse_is_told_at_once() {
    let secured = Secured::new(false);
    let other = Ca::make("plant", now()).unwrap();
    let access = Access::default().by_ca(Trust::hash(other.hash())).unwrap();
    let dead = HostPort::from(free_addrs::<1>()[0]);
    rt::block_on(async {
        let config = ClientConfig::new().access(access).connect_deadline(PATIENCE);
        let before = rt::now_us();
        let error = Client::connect([secured.to()], config.clone()).await.unwrap_err();
        assert!(Duration::from_micros(rt::now_us() - before) < PATIENCE / 2, "{error}");
        assert_eq!((error.code(), error.fate()), (Some("no_access"), Fate::NotDone), "{error}");
        assert!(error.to_string().contains("wrong CA"), "{error}");
        let config = config.connect_deadline(Duration::from_secs(4));
        // With one that cannot be reached it is not final, and told all the same.
        for seeds in [[dead.clone(), secured.to()], [secured.to(), dead.clone()]] {
            let error = Client::connect(seeds, config.clone()).await.unwrap_err();
            assert_eq!(error.code(), Some("unavailable"), "{error}");
            assert!(error.to_string().contains("wrong CA"), "{error}");
        }
    });
}

/// A node that stops while a client connects says nothing of that client: another one may serve it.
#[test]
fn a_node_that_ends_in_the_handshake_refuses_nobody() {
    let secured = Secured::new(false);
    let tls = Arc::clone(&secured.tls);
    let ways: [fn(&mut TcpStream, &ServerTls); 3] = [
        |_, _| (),
        |socket, _| _ = socket.read(&mut [0; 4096]).unwrap(),
        // TLS is set up, and no greeting follows.
        |socket, tls| {
            let mut channel = tls.accept().unwrap();
            while !channel.is_open() {
                let mut chunk = [0; 4096];
                let count = socket.read(&mut chunk).unwrap();
                channel.feed(&chunk[..count]).unwrap();
                socket.write_all(channel.outgoing()).unwrap();
                channel.sent(usize::MAX >> 1);
            }
        },
    ];
    for meet in ways {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ends = HostPort::from(listener.local_addr().unwrap());
        let tls = Arc::clone(&tls);
        let _ends_with_the_process = thread::spawn(move || {
            for met in listener.incoming() {
                meet(&mut met.unwrap(), &tls);
            }
        });
        rt::block_on(async {
            let options = Options { access: secured.access(), ..Options::default() };
            let error = Connection::connect(&ends, options).await.unwrap_err();
            assert!(matches!(error, ClientError::Lost { .. }), "{error:?}");
            let config = ClientConfig::new().access(secured.access());
            let client = Client::connect([ends, secured.to()], config).await.unwrap();
            client.put(&"x.y".parse().unwrap(), &3).await.unwrap();
        });
    }
}

/// Who says nothing for 2 s is taken for a client without TLS. One that only had no turn comes again.
#[test]
fn who_began_its_handshake_too_late_comes_again() {
    let secured = Secured::new(false);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (late, node) = (HostPort::from(listener.local_addr().unwrap()), secured.node.address());
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        })
    };
    let _ends_with_the_process = thread::spawn(move || {
        for (number, met) in listener.incoming().enumerate() {
            let (mut met, mut node) = (met.unwrap(), TcpStream::connect(node).unwrap());
            if number < 2 {
                // The node has said its word before anything of the client has come.
                let mut said = [0; 4096];
                let count = node.read(&mut said).unwrap();
                met.write_all(&said[..count]).unwrap();
                continue;
            }
            copy(met.try_clone().unwrap(), node.try_clone().unwrap());
            copy(node, met);
        }
    });
    rt::block_on(async {
        let options = Options { access: secured.access(), ..Options::default() };
        let error = Connection::connect(&late, options).await.unwrap_err();
        assert!(matches!(error, ClientError::Connect { .. }), "{error:?}");
        // It is not told what those are told who have no TLS.
        let error = error.to_string();
        assert!(error.contains("began too late") && !error.contains("ticket"), "{error}");
        let config = ClientConfig::new().access(secured.access());
        let client = Client::connect([late], config).await.unwrap();
        client.put(&"x.y".parse().unwrap(), &3).await.unwrap();
    });
}

/// A node that has as many connections as it allows says so in plain text, before TLS: another one may have room.
#[test]
fn a_node_that_is_full_refuses_nobody() {
    let config = ServerConfig { connections_max: 1, ..ServerConfig::default() };
    let secured = Secured::with(false, config);
    let only = secured.connect();
    let error = secured.connect_with(secured.access()).unwrap_err();
    assert_eq!(
        error.server().and_then(|error| error.code.as_deref()),
        Some("too_many"),
        "{error:?}"
    );
    drop(only);
}

#[test]
fn a_replaced_certificate_ends_no_connection() {
    let secured = Secured::new(false);
    let connection = secured.connect();
    set(&connection, "a", b"1");
    let renewed = secured.ca.issue_node(&["127.0.0.1", "other"], now()).unwrap();
    secured.tls.replace(&renewed, &ClientRoots::none()).unwrap();
    assert!(get(&connection, "a").ends_with(b"1"));
    assert!(get(&secured.connect(), "a").ends_with(b"1"));
}

#[test]
fn many_clients_of_one_machine_connect_at_once() {
    let secured = Secured::new(false);
    let pauses = Pauses::watch();
    rt::block_on(async {
        let to = secured.to();
        let connect = || {
            let options = Options { access: secured.access(), ..Options::default() };
            Connection::connect(&to, options)
        };
        let mut connections = join_all((0..200).map(|_| connect())).await;
        for connection in &mut connections {
            // Who had no turn for 2 s, and so said nothing, is taken for one that waits for a greeting.
            let was_late = |error: &ClientError| error.to_string().contains("began too late");
            if connection.as_ref().is_err_and(was_late) && pauses.lost() > Duration::from_secs(1) {
                *connection = connect().await;
            }
            assert!(connection.is_ok(), "{connection:?}");
        }
    });
}

#[test]
fn a_handshake_byte_by_byte_and_a_request_in_its_last_packet_are_served() {
    let secured = Secured::new(false);
    let (mut socket, mut channel) = secured.raw();
    let mut chunk = [0; 4096];
    let mut came = Vec::new();
    let mut is_asked = false;
    loop {
        for byte in channel.outgoing().to_vec() {
            socket.write_all(&[byte]).unwrap();
        }
        channel.sent(usize::MAX >> 1);
        if channel.is_open() && !is_asked {
            is_asked = true;
            let request = harness::encode(&map! {"action": "get_tock", "seq": 7});
            assert_eq!(channel.write(&request).unwrap(), request.len());
            continue;
        }
        let count = socket.read(&mut chunk).unwrap();
        assert!(count > 0, "the node closed");
        channel.feed(&chunk[..count]).unwrap();
        came.extend_from_slice(channel.plaintext());
        channel.taken(usize::MAX >> 1);
        let mut rest = came.as_slice();
        if let (Ok(greeting), Ok(reply)) =
            (rmpv::decode::read_value(&mut rest), rmpv::decode::read_value(&mut rest))
        {
            assert_eq!(text(&greeting, "node"), "n1");
            assert_eq!(reply["seq"].as_u64(), Some(7));
            return;
        }
    }
}

#[test]
fn what_is_no_tls_after_its_hello_ends_the_connection_and_nothing_else() {
    let secured = Secured::new(false);
    for after_hello in [&b"\x16\x03\x03\x00\x05hello"[..], b"\x17\x03\x03\x00\x01x", &[0; 300]] {
        let (mut socket, channel) = secured.raw();
        socket.write_all(channel.outgoing()).unwrap();
        let mut chunk = [0; 4096];
        assert!(socket.read(&mut chunk).unwrap() > 0);
        socket.write_all(after_hello).unwrap();
        while matches!(socket.read(&mut chunk), Ok(1..)) {}
    }
    set(&secured.connect(), "a", b"still here");
}

#[test]
fn the_smart_client_uses_the_same_access_at_each_node() {
    let secured = Secured::new(false);
    let credentials = Login::user(Some("token"), "joe", Some("secret"));
    // The node asks for no login, so none is sent.
    let config = ClientConfig::new().access(secured.access().log_in(credentials));
    rt::block_on(async {
        let client = Client::connect([secured.to()], config).await.unwrap();
        let at = "x.y".parse().unwrap();
        client.put(&at, &3).await.unwrap();
        assert_eq!(client.get::<u32>(&at).await.unwrap(), Some(3));
    });
}

#[test]
fn a_node_that_stops_says_the_end_of_the_session() {
    let secured = Secured::new(false);
    let connection = secured.connect();
    set(&connection, "a", b"1");
    rt::block_on(secured.node.server.stop(PATIENCE));
    let ended = rt::block_on(connection.closed()).to_string();
    assert!(ended.contains("the node closed it"), "{ended}");
}
