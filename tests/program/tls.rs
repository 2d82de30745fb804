//! Real nodes that clients use by TLS: tickets, the tunnel, and certificates that change while a node runs.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use distkv::client::Fields;
use distkv::testing::free_addrs;
use distkv_tls::ticket::ClientCertificate;
use distkv_tls::{Ca, Ticket};
use rmpv::Value;
use tempfile::TempDir;

use crate::cli::command::{self, program};
use crate::http::asking;
use crate::processes::{Client, NodeProcess, PROGRAM, freeze, signal, wait_until};

mod wrong_clock;

fn now() -> u64 {
    distkv::rt::wall_clock_ms() / 1_000
}

/// A CA and the files that a node reads.
struct Authority {
    ca: Ca,
    dir: TempDir,
}

impl Authority {
    fn new() -> Authority {
        let authority =
            Authority { ca: Ca::make("plant", now()).unwrap(), dir: TempDir::new().unwrap() };
        authority.write(&["127.0.0.1"]);
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A certificate for these names, in place of the one before.
    fn write(&self, names: &[&str]) {
        self.write_as_of(names, now());
    }

    /// One that was made then, and is valid for 30 days.
    fn write_as_of(&self, names: &[&str], made: u64) {
        let identity = self.ca.issue_node(names, made).unwrap();
        let (cert, key) = identity.pem().unwrap();
        self.put(cert, key);
    }

    fn put(&self, cert: &str, key: &str) {
        // The key first: both are read when either has changed.
        fs::write(self.path("node.key"), key).unwrap();
        self.set_mode(0o600);
        fs::write(self.path("node.pem"), cert).unwrap();
    }

    /// Who can read the key.
    fn set_mode(&self, mode: u32) {
        fs::set_permissions(self.path("node.key"), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Certificates that no client believes: one without its CA behind it, and one for clients. And what is said of them.
    fn unfit(&self) -> [(String, String, &'static str); 2] {
        let node = self.ca.issue_node(&["127.0.0.1"], now()).unwrap();
        let (chain, key) = node.pem().unwrap();
        let end = "-----END CERTIFICATE-----\n";
        let alone = format!("{}{end}", chain.split(end).next().unwrap());
        let user = self.ca.issue_user("joe", 30, now()).unwrap();
        let (of_user, its_key) = user.pem().unwrap();
        [
            (alone, key.to_owned(), "no CA that has issued the certificate is in the file"),
            (of_user.to_owned(), its_key.to_owned(), "the certificate is not for servers"),
        ]
    }

    fn start(&self, more: &[&str]) -> NodeProcess {
        // Nobody else listens there when it is gone.
        let [client] = free_addrs();
        self.start_at(&client.to_string(), more)
    }

    fn start_at(&self, client: &str, more: &[&str]) -> NodeProcess {
        let (cert, key) = (self.text("node.pem"), self.text("node.key"));
        let mut arguments = vec!["run", "--peer-wait", "0s", "--client", client];
        arguments.extend(["--gossip", "127.0.0.1:0", "--cert", &cert, "--cert-key", &key]);
        arguments.extend(more);
        NodeProcess::start_in(&format!("tls-{}", std::process::id()), "n1", &arguments)
    }

    fn ticket(&self, addresses: &[SocketAddr]) -> Ticket {
        Ticket {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            network: format!("tls-{}", std::process::id()),
            login: None,
            ca: Some(self.ca.hash()),
            certificate: None,
        }
    }

    /// The ticket's file, with `@`.
    fn at_file(&self, addresses: &[SocketAddr]) -> String {
        fs::write(self.path("ticket"), self.ticket(addresses).to_text().unwrap() + "\n").unwrap();
        format!("@{}", self.text("ticket"))
    }
}

fn cli(arguments: &[&str]) -> command::Done {
    command::run(arguments, &[], b"")
}

#[test]
fn commands_use_a_ticket_from_the_option_a_file_or_the_environment() {
    let authority = Authority::new();
    let node = authority.start(&["--client-plaintext", "none"]);
    let file = authority.at_file(&[node.client]);
    let text = authority.ticket(&[node.client]).to_text().unwrap();
    let set = cli(&["set", "a.b", "5", "--ticket", &file]);
    assert_eq!((set.code, set.stderr.as_str()), (0, ""), "{set:?}");
    let get = cli(&["--ticket", &text, "get", "a.b"]);
    assert_eq!((get.code, get.stdout.as_str()), (0, "5\n"), "{get:?}");
    for ticket in [&file, &text] {
        let get = command::run(&["get", "a.b"], &[("DISTKV_TICKET", ticket)], b"");
        assert_eq!((get.code, get.stdout.as_str()), (0, "5\n"), "{get:?}");
    }
    for more in
        [&["status"][..], &["wait"], &["members"], &["tree", ":"], &["conflicts"], &["shards"]]
    {
        let done = cli(&[more, &["--ticket", &file]].concat());
        assert_eq!(done.code, 0, "{more:?}: {done:?}");
    }
    // An address that is typed counts more than the ticket's.
    let elsewhere = authority.at_file(&["127.0.0.1:1".parse().unwrap()]);
    let get = cli(&["get", "a.b", "--ticket", &elsewhere, "--connect", &node.client.to_string()]);
    assert_eq!((get.code, get.stdout.as_str()), (0, "5\n"), "{get:?}");
}

#[test]
fn a_certificate_that_expires_is_warned_of_until_another_one_is_there() {
    const DAY: u64 = 86_400;
    let authority = Authority::new();
    // It is valid for 30 days; five are left.
    authority.write_as_of(&["127.0.0.1"], now() - 25 * DAY + 600);
    let (config, pem) = (authority.text("node.toml"), authority.text("node.pem"));
    let settings = format!(
        "name = \"n1\"\nfound = true\ncert = {pem:?}\ncert-key = {:?}\nclient = \"127.0.0.1:0\"\n\
         gossip = \"127.0.0.1:0\"\n",
        authority.text("node.key")
    );
    fs::write(&config, settings).unwrap();
    let checked = cli(&["config", "check", &config]);
    assert_eq!(checked.code, 0, "{checked:?}");
    assert!(checked.stdout.contains("node.toml:3: warning: cert: the certificate"), "{checked:?}");
    authority.set_mode(0o644);
    let checked = cli(&["config", "check", &config]).stdout;
    assert!(checked.contains("can read the certificate's key"), "{checked}");
    authority.set_mode(0o600);
    let node = authority.start(&["--http", "127.0.0.1:0"]);
    let connect = node.client.to_string();
    let status = |what: &str| {
        let done = cli(&[what, "--connect", &connect]);
        assert_eq!(done.code, 0, "{done:?}");
        done.stdout
    };
    let text = format!("warning: the certificate for clients, {pem}, expires at ");
    for what in ["status", "members"] {
        let told = status(what);
        assert!(told.contains(&text) && told.contains(", in 5 days: renew it"), "{told}");
    }
    let logged = |text: &str| node.log().iter().any(|line| line.contains(text)).then_some(());
    wait_until("the log has it", || logged(&text["warning: ".len()..]));
    authority.write(&["127.0.0.1"]);
    wait_until("it has read the new one", || {
        (!status("status").contains("warning:")).then_some(())
    });
    wait_until("the log says so", || logged("the certificate for clients was read again"));
}

#[test]
fn a_certificate_that_cannot_be_taken_yet_is_tried_again_and_status_says_so_meanwhile() {
    let authority = Authority::new();
    let node = authority.start(&["--http", "127.0.0.1:0"]);
    let connect = node.client.to_string();
    let status = || cli(&["status", "--connect", &connect]).stdout;
    let said = |what: &str| node.log().iter().filter(|line| line.contains(what)).count();
    let metric = || asking::get(node.http.unwrap(), "/metrics").text().to_owned();
    const WARNS: &str = "distkv_warnings{kind=\"certificate\"} 1";
    // Valid from 30 s on, that is, three looks: certificates begin an hour before they are made.
    authority.write_as_of(&["127.0.0.1", "localhost"], now() + 3_600 + 30);
    let pem = authority.text("node.pem");
    let why = format!("the certificate for clients stays as it is: {pem}: by this machine's clock");
    wait_until("status says so", || status().contains(&format!("warning: {why}")).then_some(()));
    assert!(metric().contains(WARNS), "{}", metric());
    // Nothing more is done to the files, and nobody asks.
    wait_until("it is taken once it is valid", || (!status().contains("warning:")).then_some(()));
    wait_until("the log says so", || (said("was read again") > 0).then_some(()));
    assert_eq!((said(&why), said("was read again")), (1, 1), "{:#?}", node.log());
    assert!(!metric().contains(WARNS), "{}", metric());
}

#[test]
fn a_node_starts_with_a_certificate_that_is_not_valid_now_and_says_so() {
    const DAY: u64 = 86_400;
    for (made, what) in [(now() + 300 * DAY, "is valid from "), (now() - 300 * DAY, "expired at ")]
    {
        let authority = Authority::new();
        authority.write_as_of(&["127.0.0.1"], made);
        let node = authority.start(&[]);
        let text = format!("the certificate for clients, {}, {what}", authority.text("node.pem"));
        let status = cli(&["status", "--connect", &node.client.to_string()]);
        assert!(status.stdout.contains(&format!("warning: {text}")), "{status:?}");
        let is_warning = |line: &String| line.contains("WARN") && line.contains(&text);
        wait_until("the log says so", || node.log().iter().any(is_warning).then_some(()));
        // Plain text and other nodes do not need it; clients that use TLS look at their own clocks.
        let set = cli(&["set", "a", "1", "--connect", &node.client.to_string()]);
        assert_eq!(set.code, 0, "{set:?}");
        let get = node.connect_by(&authority, &["get", "a"]);
        assert!(get.code == 3 && get.stderr.contains("wrong time"), "{get:?}");
        authority.write(&["127.0.0.1"]);
        node.signal("HUP");
        wait_until("another one is taken", || {
            (node.connect_by(&authority, &["get", "a"]).code == 0).then_some(())
        });
    }
}

#[test]
fn a_start_that_a_bad_certificate_ends_leaves_the_data_as_it_was() {
    let authority = Authority::new();
    let data = authority.text("data");
    let stop = |mut node: NodeProcess| {
        node.signal("TERM");
        assert!(node.wait().success());
    };
    let node = authority.start(&["--data-dir", &data]);
    node.connect().set(&["a"], Value::from(1));
    stop(node);
    let (cert, key) = (authority.text("node.pem"), authority.text("node.key"));
    let good = fs::read(&cert).unwrap();
    fs::write(&cert, "no certificate").unwrap();
    let network = format!("tls-{}", std::process::id());
    let failed = cli(&[
        "run",
        "--name",
        "n1",
        "--network",
        &network,
        "--data-dir",
        &data,
        "--client",
        "127.0.0.1:0",
        "--gossip",
        "127.0.0.1:0",
        "--cert",
        &cert,
        "--cert-key",
        &key,
    ]);
    assert!(failed.code == 2 && failed.stderr.contains("no certificate in it"), "{failed:?}");
    fs::write(&cert, good).unwrap();
    let node = authority.start(&["--data-dir", &data]);
    assert_eq!(node.connect().get(&["a"]), Some(Value::from(1)));
    let is_unclean = |line: &String| line.contains("not stopped cleanly");
    assert!(!node.log().iter().any(is_unclean), "{:#?}", node.log());
}

#[test]
fn commands_say_what_is_wrong_with_a_ticket_and_never_show_it() {
    let authority = Authority::new();
    let node = authority.start(&["--client-plaintext", "none"]);
    let to = [node.client];
    let text = authority.ticket(&to).to_text().unwrap();
    let fails = |ticket: &str, code: i32, why: &str| {
        let done = cli(&["get", "a", "--ticket", ticket]);
        assert_eq!(done.code, code, "{done:?}");
        assert!(done.stderr.contains(why), "{done:?}");
        assert!(!done.stderr.contains(&text[20..60]), "{done:?}");
    };
    fails(&text[..text.len() - 9], 2, "the ticket is damaged");
    fails("n1:27586", 2, "this is no ticket");
    fails(&format!("@{}", authority.text("none")), 2, "none");
    let other = Authority::new();
    fails(&other.ticket(&to).to_text().unwrap(), 3, "wrong CA: ");
    let mut plain = authority.ticket(&to);
    plain.ca = None;
    fails(&plain.to_text().unwrap(), 3, "by TLS only");
    // It is told at once, also where other nodes could be tried for longer.
    let other = authority.start(&["--client-plaintext", "none"]);
    plain.addresses.push(other.client.to_string());
    fails(&plain.to_text().unwrap(), 3, "cannot get into 127.0.0.1");
    let mut named = authority.ticket(&to);
    named.addresses = vec![format!("localhost:{}", node.client.port())];
    fails(
        &named.to_text().unwrap(),
        3,
        "wrong name: the node's certificate is for 127.0.0.1, not for localhost",
    );
}

#[test]
fn a_certificate_is_read_again_when_its_file_changes_or_at_a_signal_and_a_bad_one_is_not_taken() {
    let authority = Authority::new();
    let node = authority.start(&[]);
    let file = authority.at_file(&[node.client]);
    let names = || {
        let mut ticket = authority.ticket(&[node.client]);
        ticket.addresses = vec![format!("localhost:{}", node.client.port())];
        cli(&["status", "--ticket", &ticket.to_text().unwrap()])
    };
    assert!(names().stderr.contains("wrong name"), "{:?}", names());
    let said = |what: &str| node.log().iter().filter(|line| line.contains(what)).count();
    fs::write(authority.path("node.pem"), "no certificate").unwrap();
    node.signal("HUP");
    wait_until("a bad file is complained of", || (said("stays as it is") > 0).then_some(()));
    assert_eq!(cli(&["status", "--ticket", &file]).code, 0, "the certificate before it is gone");
    authority.write(&["127.0.0.1", "localhost"]);
    node.signal("HUP");
    wait_until("the new certificate is shown", || (names().code == 0).then_some(()));
}

#[test]
fn a_certificate_that_no_client_believes_is_not_taken() {
    let authority = Authority::new();
    let node = authority.start(&[]);
    let file = authority.at_file(&[node.client]);
    let said = |what: &str| node.log().iter().filter(|line| line.contains(what)).count();
    for (cert, key, why) in authority.unfit() {
        authority.put(&cert, &key);
        node.signal("HUP");
        wait_until("it is complained of", || (said(why) > 0).then_some(()));
        let status = cli(&["status", "--ticket", &file]);
        assert!(status.code == 0, "the certificate before it is gone: {status:?}");
        let stays = "the certificate for clients stays as it is";
        assert!(status.stdout.contains(stays) && status.stdout.contains(why), "{status:?}");
        let (cert, key) = (authority.text("node.pem"), authority.text("node.key"));
        let started = cli(&[
            "run",
            "--client",
            "127.0.0.1:0",
            "--gossip",
            "127.0.0.1:0",
            "--cert",
            &cert,
            "--cert-key",
            &key,
        ]);
        assert!(started.code == 2, "{started:?}");
        assert!(started.stderr.contains(&cert) && started.stderr.contains(why), "{started:?}");
    }
}

/// Who moves a node, or gives it another CA, has a reason. Who has mixed up files is told.
#[test]
fn a_certificate_of_another_name_or_ca_is_taken_with_a_warning() {
    let authority = Authority::new();
    let node = authority.start(&[]);
    let warned = |what: &str| {
        node.log().iter().filter(|line| line.contains("WARN") && line.contains(what)).count()
    };
    // The node looks by itself from time to time, too, so how often it reads a file is not known.
    let takes = |line: &str| {
        node.signal("HUP");
        wait_until("it is taken", || {
            node.log().iter().any(|told| told.contains(line)).then_some(())
        });
    };
    let of_name =
        "the certificate for clients is for elsewhere.example now, and for none of the names";
    authority.write(&["127.0.0.1", "n1.example"]);
    takes("the certificate for clients was read again");
    authority.write(&["elsewhere.example"]);
    takes(of_name);
    let of_ca = "the CA by which clients knew the certificate for clients so far";
    assert_eq!((warned(of_name), warned(of_ca)), (1, 0), "{:#?}", node.log());
    let other = Authority::new();
    other.write(&["elsewhere.example"]);
    let text = |name: &str| fs::read_to_string(other.path(name)).unwrap();
    authority.put(&text("node.pem"), &text("node.key"));
    takes(of_ca);
    assert_eq!((warned(of_name), warned(of_ca)), (1, 1), "{:#?}", node.log());
}

#[test]
fn a_node_does_not_start_with_a_bad_certificate() {
    let authority = Authority::new();
    let (cert, key) = (authority.text("node.pem"), authority.text("node.key"));
    let run = |more: &[&str]| {
        cli(&[&["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"], more].concat())
    };
    let done = run(&["--cert", &cert]);
    assert_eq!((done.code, done.stderr.contains("--cert-key")), (2, true), "{done:?}");
    let done = run(&["--cert", &key, "--cert-key", &key]);
    assert!(done.code == 2 && done.stderr.contains("no certificate in it"), "{done:?}");
    let done = run(&["--cert-name", "n1"]);
    assert!(done.code == 2 && done.stderr.contains("--cert-name"), "{done:?}");
    // Nobody writes into the pipe.
    let pipe = authority.text("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for files in [
        &["--cert", &pipe, "--cert-key", &key][..],
        &["--cert", &cert, "--cert-key", &pipe],
        &["--cert", &cert, "--cert-key", &key, "--client-ca", &pipe],
    ] {
        let done = run(files);
        let says = format!("{pipe} cannot be read: it is not a file");
        assert!(done.code == 2 && done.stderr.contains(&says), "{files:?}: {done:?}");
    }
    let done = run(&["--cert", &cert, "--cert-key", &key, "--client-plaintext", "here"]);
    assert!(done.code == 2 && done.stderr.contains("\"here\" is no network"), "{done:?}");
}

#[test]
fn a_node_on_its_own_machine_is_used_with_and_without_tls() {
    let authority = Authority::new();
    let node = authority.start(&[]);
    let file = authority.at_file(&[node.client]);
    assert_eq!(cli(&["set", "a", "1", "--ticket", &file]).code, 0);
    let get = cli(&["get", "a", "--connect", &node.client.to_string()]);
    assert_eq!((get.code, get.stdout.as_str()), (0, "1\n"), "{get:?}");
}

/// A tunnel that runs. It is killed when this is dropped.
struct Tunnel {
    child: Child,
    listen: SocketAddr,
}

impl Tunnel {
    fn start(ticket: &str) -> Tunnel {
        let arguments = ["tunnel", "--listen", "localhost:0", "--json", "--ticket", ticket];
        Tunnel::spawn(program(&arguments).stdin(Stdio::null()))
    }

    fn spawn(command: &mut Command) -> Tunnel {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let listen = ready["listen"].as_str().unwrap().parse().unwrap();
        Tunnel { child, listen }
    }

    /// Its exit code, once it has ended.
    fn end(&mut self) -> Option<i32> {
        wait_until("it ends", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_tunnel_serves_plain_clients_and_goes_to_the_next_node_when_one_is_gone() {
    let authority = Authority::new();
    let mut first = authority.start(&["--client-plaintext", "none"]);
    let second = authority.start(&["--client-plaintext", "none"]);
    let tunnel = Tunnel::start(&authority.at_file(&[first.client, second.client]));
    let mut client = Client::connect(tunnel.listen);
    let big = Value::Binary((0..1 << 20).map(|index| index as u8).collect());
    client.set(&["a"], big.clone());
    assert_eq!(client.get(&["a"]), Some(big));
    assert!(first.connect_by(&authority, &["get", "a", "--json"]).code == 0);
    first.kill();
    assert!(client.receive().is_err(), "the tunnel keeps a connection to a node that is gone");
    let mut client = Client::connect(tunnel.listen);
    assert_eq!(client.get(&["a"]), None, "this is not the other node");
    client.set(&["b"], Value::from(2));
    assert_eq!(client.get(&["b"]), Some(Value::from(2)));
}

#[test]
fn a_tunnel_ends_the_connections_to_a_node_that_answers_nothing_and_no_others() {
    let authority = Authority::new();
    let frozen = authority.start(&["--client-plaintext", "none"]);
    let lively = authority.start(&["--client-plaintext", "none"]);
    let ticket = |nodes: &[SocketAddr]| authority.ticket(nodes).to_text().unwrap();
    let to_lively = Tunnel::start(&ticket(&[lively.client]));
    let said = authority.text("said");
    let script = "exec \"$0\" tunnel --listen localhost:0 --json --ticket \"$1\" 2> \"$2\"";
    let ticket = ticket(&[frozen.client, lively.client]);
    let tunnel = Tunnel::spawn(Command::new("sh").args(["-c", script, PROGRAM, &ticket, &said]));
    // Both are idle from now on.
    let mut idle = Client::connect(to_lively.listen);
    assert_eq!(idle.get(&["a"]), None);
    let mut client = Client::connect(tunnel.listen);
    client.set(&["a"], Value::from(1));
    assert!(frozen.connect_by(&authority, &["get", "a"]).code == 0, "it is the first node");
    freeze(frozen.pid());
    let end = client.receive().unwrap_err().kind();
    assert_ne!(end, ErrorKind::WouldBlock, "the tunnel keeps a connection to a silent node");
    let told = format!("{} does not answer", frozen.client);
    wait_until("it says so", || fs::read_to_string(&said).unwrap().contains(&told).then_some(()));
    // It gets the other node, which has been asked as long, and answers.
    assert_eq!(Client::connect(tunnel.listen).get(&["a"]), None, "this is not the other node");
    assert_eq!(idle.get(&["a"]), None, "a connection to a node that is alive was ended");
}

#[test]
fn a_tunnel_ends_with_its_terminal_unless_it_was_told_to_ignore_that() {
    let authority = Authority::new();
    let node = authority.start(&["--client-plaintext", "none"]);
    let ticket = authority.at_file(&[node.client]);
    let mut tunnel = Tunnel::start(&ticket);
    signal(tunnel.child.id(), "HUP");
    assert_eq!(tunnel.end(), Some(0));
    assert!(Client::try_connect(tunnel.listen).is_err(), "its port stays");
    // As by nohup.
    let script = "trap '' HUP; exec \"$0\" tunnel --listen localhost:0 --json --ticket \"$1\"";
    let mut tunnel = Tunnel::spawn(Command::new("sh").args(["-c", script, PROGRAM, &ticket]));
    signal(tunnel.child.id(), "HUP");
    assert_eq!(Client::connect(tunnel.listen).get(&["a"]), None);
    signal(tunnel.child.id(), "TERM");
    assert_eq!(tunnel.end(), Some(0));
}

/// As without the tunnel.
#[test]
fn where_a_tunnel_reaches_no_node_none_is_reached_and_watches_go_on() {
    let authority = Authority::new();
    let mut node = authority.start(&[]);
    let tunnel = Tunnel::start(&authority.at_file(&[node.client]));
    let listen = tunnel.listen.to_string();
    let mut watch = program(&["watch", "a", "--fetch", "--count", "1", "--connect", &listen])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(watch.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.next().unwrap().starts_with("watching a at "));
    let address = node.client.to_string();
    node.kill();
    assert!(said.next().unwrap().contains("connecting again"));
    let get = cli(&["get", "a", "--connect", &listen]);
    assert_eq!(get.code, 6, "{get:?}");
    assert!(get.stderr.starts_with("error: the tunnel reaches no node: "), "{get:?}");
    // It has tried in vain at least once by then.
    let node = authority.start_at(&address, &[]);
    node.connect().set(&["a"], Value::from(1));
    assert!(said.next().unwrap().contains(" again"));
    let watched = watch.wait_with_output().unwrap();
    let shown = String::from_utf8(watched.stdout).unwrap();
    assert_eq!((watched.status.code(), shown.lines().last()), (Some(0), Some("set      a  1")));
}

impl NodeProcess {
    /// A command against this node.
    fn connect_by(&self, authority: &Authority, arguments: &[&str]) -> command::Done {
        let text = authority.ticket(&[self.client]).to_text().unwrap();
        cli(&[arguments, &["--ticket", &text]].concat())
    }
}

/// A key file or a ticket means TLS, and a tunnel's clients have none.
#[test]
fn who_comes_to_a_tunnel_by_tls_is_told_to_come_without() {
    let authority = Authority::new();
    let node = authority.start(&["--client-plaintext", "none"]);
    let ticket = authority.at_file(&[node.client]);
    let tunnel = Tunnel::start(&ticket);
    let (key, ca) = (authority.text("key"), authority.text("ca.pem"));
    fs::write(&ca, distkv_tls::pem::certificate(authority.ca.certificate())).unwrap();
    assert_eq!(cli(&["key", "new", "--network", "plant", "--to", &key]).code, 0);
    for by in [["--key", &key], ["--node-ca", &ca], ["--ticket", &ticket]] {
        let at = tunnel.listen.to_string();
        let done = cli(&[&["get", "a", "--connect", &at][..], &by].concat());
        assert_eq!(done.code, 3, "{done:?}");
        for part in [&*at, "a tunnel", "leave out --key, --node-ca and --ticket", "--user"] {
            assert!(done.stderr.contains(part), "{by:?}: {part}: {done:?}");
        }
    }
}

/// The node has taken it for a client without TLS, and says what is for those.
#[test]
fn who_began_its_handshake_too_late_is_not_told_to_get_a_ticket() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ticket = authority.at_file(&[listener.local_addr().unwrap()]);
    let _ends_with_the_process = thread::spawn(move || {
        for mut met in listener.incoming().map_while(Result::ok) {
            let mut words = Fields::new();
            words.str("error", "connect with a ticket").str("code", "auth_required");
            let _ = met.write_all(&words.encode());
            let _ = met.read(&mut [0; 4096]);
        }
    });
    let done = cli(&["get", "a", "--ticket", &ticket]);
    assert_eq!(done.code, 6, "{done:?}");
    assert!(done.stderr.trim_end().ends_with("Try again"), "{done:?}");
    assert!(!done.stderr.contains("connect with a ticket"), "{done:?}");
}

#[test]
fn a_tunnel_says_at_once_what_is_wrong_with_its_ticket() {
    let authority = Authority::new();
    let node = authority.start(&["--client-plaintext", "none"]);
    let other = Authority::new().ticket(&[node.client]).to_text().unwrap();
    let tunnel =
        |ticket: &str, listen: &str| cli(&["tunnel", "--ticket", ticket, "--listen", listen]);
    let done = tunnel(&other, "127.0.0.1:0");
    assert!(done.code == 3 && done.stderr.contains("wrong CA"), "{done:?}");
    let text = authority.ticket(&[node.client]).to_text().unwrap();
    let done = tunnel(&text, "0.0.0.0:0");
    assert!(done.code == 2 && done.stderr.contains("loopback"), "{done:?}");
    for listen in ["n1.example.org:0", "[::]:0", "1:2:3"] {
        let done = tunnel(&text, listen);
        assert!(done.code == 2 && done.stderr.contains("--listen"), "{listen}: {done:?}");
    }
    let done = cli(&["tunnel", "--connect", &node.client.to_string()]);
    assert!(done.code == 2 && done.stderr.contains("needs a ticket with a CA"), "{done:?}");
}

#[test]
fn a_ticket_is_put_together_and_shown_without_its_secrets() {
    let authority = Authority::new();
    let node = authority.start(&["--client-plaintext", "none"]);
    let ca = authority.path("ca.pem");
    fs::write(&ca, distkv_tls::pem::certificate(authority.ca.certificate())).unwrap();
    let to = node.client.to_string();
    let new =
        ["ticket", "new", &to, "--ca", ca.to_str().unwrap(), "--user", "joe", "--secret", "-"];
    let made = command::run(&new, &[], b"hunter2\n");
    assert_eq!((made.code, made.stderr.as_str()), (0, ""), "{made:?}");
    let ticket: Ticket = made.stdout.parse().unwrap();
    assert_eq!(ticket.login.as_ref().unwrap().secret.as_deref(), Some("hunter2"));
    assert_eq!(ticket.ca, Some(authority.ca.hash()));
    let shown = cli(&["ticket", "show", made.stdout.trim()]);
    assert!(shown.stdout.contains("joe") && !shown.stdout.contains("hunter2"), "{shown:?}");
    assert!(shown.stdout.contains(&authority.ca.hash().to_string()), "{shown:?}");
    // The node asks for no login: none is sent.
    let status = cli(&["status", "--ticket", made.stdout.trim()]);
    assert_eq!(status.code, 0, "{status:?}");
}

#[test]
fn certificates_of_another_tool_are_used_and_a_clients_certificate_too() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");
    let file = |name: &str| format!("{fixtures}/{name}");
    let authority = Authority::new();
    let staff = authority.path("staff.pem");
    fs::write(&staff, distkv_tls::pem::certificate(authority.ca.certificate())).unwrap();
    let (cert, key) = (file("node.pem"), file("node.key"));
    let arguments = [
        "run",
        "--peer-wait",
        "0s",
        "--client",
        "127.0.0.1:0",
        "--gossip",
        "127.0.0.1:0",
        "--log",
        "debug",
        "--cert",
        &cert,
        "--cert-key",
        &key,
        "--client-ca",
        staff.to_str().unwrap(),
    ];
    let node =
        NodeProcess::start_in(&format!("tls-other-{}", std::process::id()), "n1", &arguments);
    let to = format!("localhost:{}", node.client.port());
    let made = cli(&["ticket", "new", &to, "--ca", &file("ca.pem")]);
    let mut ticket: Ticket = made.stdout.parse().unwrap();
    let joe = authority.ca.issue_user("joe", 1, now()).unwrap();
    ticket.certificate = Some(ClientCertificate::from(&joe));
    let status = cli(&["status", "--ticket", &ticket.to_text().unwrap()]);
    assert_eq!(status.code, 0, "{status:?}");
    let is_known =
        || node.log().iter().any(|line| line.contains("certificate") && line.contains("joe"));
    wait_until("the node knows the client", || is_known().then_some(()));
    let stranger = Authority::new().ca.issue_user("joe", 1, now()).unwrap();
    ticket.certificate = Some(ClientCertificate::from(&stranger));
    let status = cli(&["status", "--ticket", &ticket.to_text().unwrap()]);
    assert_eq!(status.code, 3, "{status:?}");
    assert!(status.stderr.contains("refuses the client's certificate"), "{status:?}");
}
