//! Nodes whose clients come by other ports than those at which the nodes listen, as in containers with mapped ports: each has a
//! forwarder before its client port, and tells clients the forwarder's address.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use distkv::client::{Client, ClientConfig, HostPort, PutOptions, RetryPolicy};
use distkv::model::path::Path;
use distkv::rt;
use rmpv::Value;

use crate::processes::{self, NodeProcess, field, wait_until};
use crate::secure::program;

/// Carries connections to a node's client port.
struct Forwarder {
    /// Where clients come.
    addr: SocketAddr,
    /// Where the node listens. It is told when the node runs: the node is told `addr` before.
    target: Arc<OnceLock<SocketAddr>>,
    /// By these addresses the node knows the clients that came this way.
    carried: Arc<Mutex<BTreeSet<SocketAddr>>>,
}

impl Forwarder {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let forwarder = Self { addr, target: Arc::default(), carried: Arc::default() };
        let (target, carried) = (Arc::clone(&forwarder.target), Arc::clone(&forwarder.carried));
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // Where nobody listens any more, the client's connection is closed.
                let Some(far) = target.get().and_then(|at| connect(*at, &carried)) else {
                    continue;
                };
                let ends = (near.try_clone().unwrap(), far.try_clone().unwrap());
                for (from, to) in [(near, far), (ends.1, ends.0)] {
                    std::thread::spawn(move || carry(from, to));
                }
            }
        });
        forwarder
    }

    fn carried(&self) -> BTreeSet<SocketAddr> {
        self.carried.lock().unwrap().clone()
    }
}

/// The lock is held meanwhile: the node may tell of the connection as soon as it is there.
fn connect(target: SocketAddr, carried: &Mutex<BTreeSet<SocketAddr>>) -> Option<TcpStream> {
    let mut carried = carried.lock().unwrap();
    let far = TcpStream::connect(target).ok()?;
    far.set_nodelay(true).unwrap();
    carried.insert(far.local_addr().unwrap());
    Some(far)
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// A node, and the only way by which this test's clients go to it.
struct Mapped {
    node: NodeProcess,
    way: Forwarder,
}

impl Mapped {
    fn start(network: &str, name: &str, how: &[&str]) -> Self {
        let way = Forwarder::start();
        let told = way.addr.to_string();
        let ports = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
        let arguments = [how, &ports, &["--advertise-client", &told]].concat();
        let node = NodeProcess::start_in(network, name, &arguments);
        way.target.set(node.client).unwrap();
        Self { node, way }
    }

    fn ask(&self, action: &str) -> Value {
        processes::Client::connect(self.way.addr).call(action, &[])
    }

    /// Where the nodes that `cluster` shows as up are, by name.
    fn cluster(&self) -> Vec<(String, String)> {
        let nodes = field(&self.ask("cluster"), "nodes").unwrap();
        let text = |node: &Value, key| field(node, key)?.as_str().map(str::to_owned);
        let is_up = |node: &&Value| {
            ["self", "up"].contains(&text(node, "state").unwrap_or_default().as_str())
        };
        let nodes = nodes.as_array().unwrap().iter().filter(is_up);
        let told = |node| (text(node, "name").unwrap(), text(node, "client").unwrap_or_default());
        nodes.map(told).collect()
    }

    /// The addresses of all that are connected to the node now.
    fn guests(&self) -> BTreeSet<SocketAddr> {
        let rows = field(&self.ask("clients"), "result").unwrap();
        let address =
            |row: &Value| field(row, "address").unwrap().as_str().unwrap().parse().unwrap();
        rows.as_array().unwrap().iter().map(address).collect()
    }
}

#[test]
fn clients_that_know_one_node_follow_to_the_others_by_the_addresses_that_these_advertise() {
    let network = format!("mapped-{}", std::process::id());
    let mut n1 = Mapped::start(&network, "n1", &["run", "--peer-wait", "0s"]);
    let n2 = Mapped::start(&network, "n2", &["join", &n1.node.gossip.to_string()]);
    let at = |name: &str, node: &Mapped| (name.to_owned(), node.way.addr.to_string());
    let told = [at("n1", &n1), at("n2", &n2)];
    for node in [&n1, &n2] {
        wait_until("both are up, and each has told where clients reach it", || {
            let shown = node.cluster();
            let is_right = |one: &(String, String)| one.1.is_empty() || told.contains(one);
            assert!(shown.iter().all(is_right), "where they listen is told to nobody: {shown:?}");
            (shown == told).then_some(())
        });
    }
    let seed = n1.way.addr.to_string();
    wait_until("`members` prints both addresses", || {
        let (code, said) = program(&["members", "--connect", &seed]);
        assert_eq!(code, Some(0), "{said}");
        told.iter().all(|(_, at)| said.contains(&format!(" {at} "))).then_some(())
    });
    let (code, said) = program(&["conflicts", "--all", "--connect", &seed]);
    assert_eq!((code, said.contains("left out")), (Some(0), false), "{said}");

    let retry = RetryPolicy { total_deadline: Duration::from_secs(60), ..RetryPolicy::default() };
    let (path, seed): (Path, HostPort) = ("a".parse().unwrap(), n1.way.addr.into());
    let client = rt::block_on(Client::connect([seed], ClientConfig::new().retry(retry))).unwrap();
    wait_until("the client sees both", || {
        let view = client.cluster_view();
        (view.nodes.iter().filter(|node| node.is_live()).count() == 2).then_some(())
    });
    // When it is acknowledged, both nodes have it.
    let safe = PutOptions::new().copies(1);
    rt::block_on(client.put_with(&path, &1, &safe)).unwrap();
    n1.node.kill();
    assert_eq!(rt::block_on(client.get::<u64>(&path)).unwrap(), Some(1));
    let written = rt::block_on(client.put(&path, &2)).unwrap();
    assert_eq!(written.node, "n2");
    let guests = n2.guests();
    let carried = n2.way.carried();
    assert!(guests.len() > 1, "the client, and who asks: {guests:?}");
    assert!(guests.is_subset(&carried), "{guests:?} came past {carried:?}");
    rt::block_on(async { client.close().await });
}

#[test]
fn the_port_is_the_client_ports_and_the_host_is_a_name_of_the_node_for_http_and_in_its_certificate()
{
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key").to_str().unwrap().to_owned();
    let network = format!("mapped-tls-{}", std::process::id());
    let (code, said) = program(&["key", "new", "--network", &network, "--to", &key]);
    assert_eq!(code, Some(0), "{said}");
    let own = ["run", "--peer-wait", "0s", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let more = ["--http", "127.0.0.1:0", "--key", &key, "--advertise-client", "n1.mapped.test"];
    let node = NodeProcess::start_in(&network, "n1", &[&own[..], &more].concat());
    let status = |host: &str| {
        let mut stream = TcpStream::connect(node.http.unwrap()).unwrap();
        write!(stream, "GET /livez HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status("n1.mapped.test"), "200");
    assert_eq!(status("n2.mapped.test"), "421", "a name of nobody's");
    let at = node.client.to_string();
    let (code, said) = program(&["members", "--connect", &at, "--key", &key]);
    let told = format!(" n1.mapped.test:{} ", node.client.port());
    assert!(code == Some(0) && said.contains(&told), "{said}");
    let url = format!("https://n1.mapped.test:{}/livez", node.http.unwrap().port());
    let ca = folder.path().join("ca").to_str().unwrap().to_owned();
    let (code, said) = program(&["key", "cert", "--ca", "--key", &key, "--to", &ca]);
    assert_eq!(code, Some(0), "{said}");
    let there = format!("n1.mapped.test:{}:127.0.0.1", node.http.unwrap().port());
    let mut curl = std::process::Command::new("curl");
    curl.args(["-sS", "--cacert", &format!("{ca}.pem"), "--resolve", &there, &url]);
    let output = curl.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
