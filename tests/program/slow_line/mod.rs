//! A line on which one message takes longer than a node without an answer is trusted: it arrives all the same, once,
//! and what follows it, too.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use distkv::testing::free_addrs;
use rmpv::Value;

use crate::processes::{NodeProcess, field, wait_until};

/// So many bytes pass at a time, about as many as a packet has: far fewer than are a sign that much comes.
const PIECE: usize = 2 << 10;
/// And so often, in each direction: 256 KB per second.
const PAUSE: Duration = Duration::from_millis(8);
/// A value that takes eight seconds.
const VALUE_BYTES: usize = 2 << 20;
const LONGER_THAN: Duration = Duration::from_secs(6);

/// Carries connections to a target at that rate. What waits does so in the system's buffers, so who sends has soon
/// written everything and hears nothing for long.
fn slow_way_to(target: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(target) else { continue };
            let ends = (near.try_clone().unwrap(), far.try_clone().unwrap());
            for (from, to) in [(near, far), (ends.1, ends.0)] {
                std::thread::spawn(move || carry(from, to));
            }
        }
    });
    addr
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    to.set_nodelay(true).unwrap();
    let mut piece = [0; PIECE];
    while let Ok(count) = from.read(&mut piece) {
        if count == 0 || to.write_all(&piece[..count]).is_err() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// A node that peers reach by a slow way only.
fn start(network: &str, name: &str, peers: &[&str]) -> (NodeProcess, String) {
    let [client, gossip] = free_addrs();
    let way = slow_way_to(gossip).to_string();
    let (client, gossip) = (client.to_string(), gossip.to_string());
    let mut arguments = vec![if peers.is_empty() { "run" } else { "join" }, "--insecure"];
    arguments.extend(["--client", &client, "--gossip", &gossip, "--advertise", &way]);
    if peers.is_empty() {
        arguments.extend(["--peer-wait", "0s"]);
    }
    arguments.extend(peers);
    (NodeProcess::start_in(network, name, &arguments), way)
}

#[test]
fn a_value_that_takes_long_arrives_over_one_link_and_small_changes_follow() {
    let network = format!("slow-{}", std::process::id());
    let (first, way) = start(&network, "n1", &[]);
    let (second, _) = start(&network, "n2", &[&way]);
    let (mut writer, mut reader) = (first.connect(), second.connect());
    let arrive = |reader: &mut crate::processes::Client, path: &[&str], value: &Value| {
        wait_until("it arrives", || (reader.get(path).as_ref() == Some(value)).then_some(()));
    };
    writer.set(&["before"], 1.into());
    arrive(&mut reader, &["before"], &1.into());

    let began = Instant::now();
    let value = Value::Binary(vec![7; VALUE_BYTES]);
    let answer = writer.set(&["big"], value.clone());
    assert_eq!(field(&answer, "error"), None, "{answer}");
    writer.set(&["small"], 2.into());
    arrive(&mut reader, &["small"], &2.into());
    assert!(began.elapsed() > LONGER_THAN, "the line is not slow: {:?}", began.elapsed());
    arrive(&mut reader, &["big"], &value);

    for node in [&first, &second] {
        let links = node.log().into_iter().filter(|line| line.contains(" linked ")).count();
        assert_eq!(links, 1, "{:#?}", node.log());
    }
}
