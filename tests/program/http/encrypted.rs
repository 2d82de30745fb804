//! The HTTP port of nodes that have a certificate, from another machine: by `curl`, with nothing but the CA's certificate.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use distkv_tls::Ca;

use super::asking::ALONE;
use super::tickets::command;
use crate::hosts::{Hosts, client_addr, gossip_addr, inside_own_network};
use crate::processes::{NodeProcess, PROGRAM, wait_until};

/// What `curl` has to say: its exit code, the status, and the answer, or its complaint.
#[derive(Debug)]
struct Said {
    code: i32,
    status: u16,
    text: String,
}

/// Runs `curl`, on a host of its own or here.
fn curl(prefix: &[String], arguments: &[&str]) -> Said {
    let program = "curl".to_owned();
    let line: Vec<&String> = prefix.iter().chain([&program]).collect();
    let output = Command::new(line[0])
        .args(&line[1..])
        .args(["--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}"])
        .args(arguments)
        .output()
        .expect("curl: apt-get install curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (text, status) = text.rsplit_once('\n').unwrap();
    let status = status.parse().unwrap();
    let text = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    Said { code: output.status.code().unwrap_or(-1), status, text }
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn other_machines_use_the_page_the_api_and_the_metrics_by_tls() {
    inside_own_network(
        test_name!("other_machines_use_the_page_the_api_and_the_metrics_by_tls"),
        || {
            let hosts = Hosts::new(&[0, 0]);
            let folder = tempfile::tempdir().unwrap();
            let (key, ca) = (path(folder.path(), "key"), path(folder.path(), "ca.pem"));
            command(&["key", "new", "--network", "plant", "--to", &key]);
            command(&["key", "cert", "--ca", "--key", &key, "--to", &path(folder.path(), "ca")]);
            let (client, gossip) = (client_addr(0), gossip_addr(0).to_string());
            let ip = client.ip().to_string();
            let at = client.to_string();
            let mut arguments = vec!["run", "--key", &key, "--client", &at, "--gossip", &gossip];
            arguments.extend(["--http", "0.0.0.0:27585", "--http-name", "n0.test"]);
            let node = NodeProcess::start_by(&hosts.prefix(0), "n0", &arguments);
            let url = |path: &str| format!("https://{ip}:27585{path}");
            let by = |arguments: &[&str]| curl(&[], &[&["--cacert", &ca], arguments].concat());

            for path in ["/livez", "/readyz?write", "/metrics", "/web/app.js", "/v1/openapi.json"] {
                let said = by(&[&url(path)]);
                assert_eq!((said.code, said.status), (0, 200), "{path}: {said:?}");
            }
            let page = by(&["-H", "Accept: text/html", &url("/")]);
            assert!(page.text.contains("<!doctype html>"), "{page:?}");
            let to = format!("n0.test:27585:{ip}");
            let named = by(&["--resolve", &to, "https://n0.test:27585/livez"]);
            assert_eq!((named.code, named.status), (0, 200), "{named:?}");
            // Without the CA, or by a name that is another's, nobody is taken in.
            assert_eq!(curl(&[], &[&url("/livez")]).code, 60);
            let to = format!("evil.test:27585:{ip}");
            assert_eq!(by(&["--resolve", &to, "https://evil.test:27585/livez"]).code, 60);
            let misdirected = by(&["-H", "Host: evil.test", &url("/livez")]);
            assert_eq!(misdirected.status, 421, "{misdirected:?}");
            assert_eq!(by(&["--tls-max", "1.2", &url("/livez")]).code, 35);

            // Users have the same rights as at the client port.
            let ticket = {
                let admin = |arguments: &[&str]| {
                    command(&[arguments, &["--connect", &at, "--key", &key]].concat())
                };
                admin(&["user", "add", "robot", "--method", "token", "--acl", "*"]);
                let file = path(folder.path(), "robot.ticket");
                admin(&["user", "ticket", "robot", "--to", &file]);
                fs::read_to_string(file).unwrap().trim().to_owned()
            };
            let bearer = format!("Authorization: Bearer {ticket}");
            let entry = url("/v1/kv/site/lamp");
            assert_eq!(by(&[&entry]).status, 401);
            let put = ["-H", &bearer, "-X", "PUT", "-d", "true", &entry];
            assert_eq!(by(&put).status, 201);
            let got = by(&["-H", &bearer, &entry]);
            assert_eq!((got.status, got.text.as_str()), (200, "true\n"));
            let origin = |origin: &str| {
                let field = format!("Origin: {origin}");
                by(&[&["-H", &field], &put[..]].concat()).status
            };
            assert_eq!(origin(&format!("https://{ip}:27585")), 200, "its own page");
            assert_eq!(origin(&format!("http://{ip}:27585")), 403, "anybody on the way");
            assert_eq!(origin("https://evil.test"), 403);

            // Plain text is told what to do, here and on the node's own machine, but for loopback.
            let plain = format!("http://{ip}:27585/livez");
            for prefix in [&[][..], &hosts.prefix(0)] {
                let refused = curl(prefix, &[&plain]);
                assert_eq!(refused.status, 400, "{refused:?}");
                assert!(refused.text.contains("https://"), "{refused:?}");
            }
            let home = |url: &str| curl(&hosts.prefix(0), &["--cacert", &ca, url]);
            assert_eq!(home("http://127.0.0.1:27585/livez").status, 200);
            assert_eq!(home("https://127.0.0.1:27585/livez").status, 200);
            assert_eq!(home("https://localhost:27585/livez").status, 200);
            drop(node);

            an_open_node_takes_changes_by_tls(&hosts, folder.path());
        },
    );
}

/// With a certificate, also the token of a node without a key may come from elsewhere.
fn an_open_node_takes_changes_by_tls(hosts: &Hosts, folder: &Path) {
    let ip = client_addr(1).ip().to_string();
    let ca = Ca::make("plant", now()).unwrap();
    let cert = certificate(&ca, folder, &[&ip]);
    let (client, gossip) = (client_addr(1).to_string(), gossip_addr(1).to_string());
    let (http, token) =
        (SocketAddr::new(client_addr(1).ip(), 0).to_string(), path(folder, "token"));
    let mut arguments = vec!["run", "--insecure", "--client", &client, "--gossip", &gossip];
    arguments.extend(["--http", &http, "--http-write", "--http-token-file", &token]);
    arguments.extend(["--cert", &cert[0], "--cert-key", &cert[1]]);
    let node = NodeProcess::start_by(&hosts.prefix(1), "n1", &arguments);
    let entry = format!("https://{}/v1/kv/a", node.http.unwrap());
    let bearer = format!("Authorization: Bearer {}", fs::read_to_string(&token).unwrap().trim());
    let by = |arguments: &[&str]| curl(&[], &[&["--cacert", &cert[2]], arguments].concat()).status;
    assert_eq!(by(&["-X", "PUT", "-d", "1", &entry]), 401);
    assert_eq!(by(&["-X", "PUT", "-d", "1", "-H", &bearer, &entry]), 201);
    assert_eq!(by(&[&entry]), 200);
}

fn now() -> u64 {
    distkv::rt::wall_clock_ms() / 1_000
}

/// A certificate for these names, its key, and the CA's certificate: in files.
fn certificate(ca: &Ca, folder: &Path, names: &[&str]) -> [String; 3] {
    let identity = ca.issue_node(names, now()).unwrap();
    let (cert, key) = identity.pem().unwrap();
    let files = ["node.pem", "node.key", "node-ca.pem"].map(|name| path(folder, name));
    // The key first: both are read when either has changed.
    fs::write(&files[1], key).unwrap();
    fs::write(&files[0], cert).unwrap();
    fs::write(&files[2], distkv_tls::pem::certificate(ca.certificate())).unwrap();
    files
}

#[test]
fn a_new_certificate_is_shown_by_http_too_and_plain_text_can_be_shut_out() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::make("plant", now()).unwrap();
    let files = certificate(&ca, folder.path(), &["one.test"]);
    let mut arguments = ALONE.to_vec();
    arguments.extend(["--cert", &files[0], "--cert-key", &files[1]]);
    arguments.extend(["--client-plaintext", "none", "--http-name", "one.test"]);
    arguments.extend(["--http-name", "two.test"]);
    let node = NodeProcess::start_in(&format!("https-{}", std::process::id()), "n1", &arguments);
    let http = node.http.unwrap();
    let by = |name: &str| {
        let to = format!("{name}:{}:127.0.0.1", http.port());
        let url = format!("https://{name}:{}/livez", http.port());
        curl(&[], &["--cacert", &files[2], "--resolve", &to, &url])
    };
    assert_eq!(by("one.test").status, 200);
    assert_eq!(by("two.test").code, 60);
    let plain = curl(&[], &[&format!("http://{http}/livez")]);
    assert!(plain.status == 400 && plain.text.contains("https://"), "{plain:?}");
    certificate(&ca, folder.path(), &["two.test"]);
    node.signal("HUP");
    wait_until("the new one is shown", || (by("two.test").status == 200).then_some(()));
    // The signal is for the certificate: it does not fill the log with lines for debugging as well.
    assert!(!node.log().iter().any(|line| line.contains("the log level is")), "{:#?}", node.log());
    assert_eq!(by("one.test").code, 60);
}

#[test]
fn without_a_certificate_other_machines_are_not_served_by_http() {
    let folder = tempfile::tempdir().unwrap();
    let (key, bare) = (path(folder.path(), "key"), path(folder.path(), "bare"));
    command(&["key", "new", "--network", "plant", "--to", &key]);
    let text = fs::read_to_string(&key).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("ca "));
    fs::write(&bare, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    fs::set_permissions(&bare, fs::metadata(&key).unwrap().permissions()).unwrap();
    let common = ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--name", "n1"];
    let mut refused = Command::new(PROGRAM);
    let refused = refused.args(common).args(["--http", "0.0.0.0:0", "--key", &bare]);
    let output = refused.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no certificate") && said.contains("--cert"), "{said}");
}
