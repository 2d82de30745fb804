//! Prometheus over real nodes on hosts of their own, which are killed, cut off, filled up, slowed down and so on: each
//! alert fires in its case, and in no other. It takes about four minutes, so it is run on request:
//!
//! ```sh
//! DISTKV_TEST_ALERTS=1 cargo test --test program http::alerts -- --nocapture
//! ```
//!
//! It needs Prometheus, a C compiler, python3, and `/dev/net/tun`.

mod prometheus;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use distkv_tls::{Ca, pem};
use rmpv::Value;

use super::tickets::command;
use crate::hosts::{Hosts, client_addr, gossip_addr, inside_own_network};
use crate::processes::{Client, NodeProcess, PROGRAM, array, field, wait_until};
use prometheus::{Prometheus, names};

/// Bytes of entries that n0 may have.
const MEMORY_BYTES: usize = 20 << 20;
/// The size of a node's disk: some rounds of log and snapshots are no reason to warn that it is nearly full.
const DISK_BYTES: usize = 256 << 20;
/// Of a node's log, before a snapshot is made.
const SNAPSHOT_AFTER: &str = "8MiB";
/// The size of one that has only an audit log.
const AUDIT_BYTES: usize = 256 << 10;
/// Where nobody is.
const NOBODY: &str = "10.77.0.99:27587";
/// How long nothing must fire where nothing should: longer than the longest `for`, and a few scrapes.
const QUIET: Duration = Duration::from_secs(8);

fn http_addr(host: usize) -> SocketAddr {
    SocketAddr::new(client_addr(host).ip(), 27585)
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Nodes n0, n1 | n2, n3 at two switches, of which n3 does not run at first, and Prometheus, which reaches all of them always.
struct Plant {
    folder: PathBuf,
    hosts: Hosts,
    /// In place of the cable between the switches, while that is cut.
    cable: Option<SlowCable>,
    nodes: Vec<Option<NodeProcess>>,
    prometheus: Prometheus,
    /// Connections that are there to be many.
    held: Vec<Client>,
    /// All that has fired so far.
    fired: BTreeSet<String>,
    began: f64,
    /// Of another certificate that n2 may have, and that Prometheus trusts.
    authority: Ca,
}

/// Makes changes at each node ten times per second, until this is dropped.
struct Writers(Arc<AtomicBool>);

impl Writers {
    fn start(key: &str) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        for host in 0..3_usize {
            let (ends, key) = (Arc::clone(&ends), key.to_owned());
            std::thread::spawn(move || {
                // A node that is not there is tried again. Its answers may take long.
                while !ends.load(Ordering::Relaxed) {
                    let _ = std::panic::catch_unwind(|| write_while_it_goes(host, &key, &ends));
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
        Self(ends)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn write_while_it_goes(host: usize, key: &str, ends: &AtomicBool) {
    if std::net::TcpStream::connect_timeout(&client_addr(host), Duration::from_secs(1)).is_err() {
        return;
    }
    let mut client = Client::enter(client_addr(host), Some(key));
    let mut number: u64 = 0;
    while !ends.load(Ordering::Relaxed) {
        let path = ["w".to_owned(), format!("n{host}"), (number % 100).to_string()];
        let path = array(&path.each_ref().map(String::as_str));
        let sent = client.send("set_value", &[("path", path), ("value", number.into())]);
        if sent.and_then(|_| client.receive()).is_err() {
            return;
        }
        number += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// See `slow_cable.py`; it goes when this is dropped.
struct SlowCable {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl SlowCable {
    fn plug_in(bytes_per_second: u32) -> Self {
        let script =
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/http/alerts/slow_cable.py");
        let mut child = Command::new("python3")
            .args([script, &bytes_per_second.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let stdin = child.stdin.take();
        Self { child, stdin }
    }
}

impl Drop for SlowCable {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

fn unmount(place: &Path) {
    let mut unmount = Command::new("umount");
    assert!(unmount.arg("-l").arg(place).status().unwrap().success());
}

impl Plant {
    fn start(folder: &Path) -> Self {
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        command(&["key", "new", "--network", "plant", "--to", &path("key")]);
        command(&["key", "cert", "--ca", "--key", &path("key"), "--to", &path("ca")]);
        let authority = Ca::make("other", now() as u64).unwrap();
        let mut trusted = File::options().append(true).open(path("ca.pem")).unwrap();
        trusted.write_all(pem::certificate(authority.certificate()).as_bytes()).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/http/alerts/slow_sync.c");
        let mut compiler = Command::new("cc");
        let compiler =
            compiler.args(["-shared", "-fPIC", "-o", &path("slow_sync.so"), source, "-ldl"]);
        assert!(compiler.status().unwrap().success());
        let hosts = Hosts::new(&[0, 0, 1, 1]);
        let mut plant = Self {
            folder: folder.to_owned(),
            hosts,
            cable: None,
            nodes: vec![None, None, None],
            prometheus: Prometheus::start(folder, &path("ca.pem")),
            held: Vec::new(),
            fired: BTreeSet::new(),
            began: now(),
            authority,
        };
        plant.sync_takes(0);
        for host in 0..3 {
            // Disks that are not slow by themselves, whatever else the machine does.
            plant.mount(&format!("n{host}"), DISK_BYTES);
            plant.start_node(host, &[]);
        }
        plant
    }

    /// Makes a disk of this size.
    fn mount(&self, name: &str, bytes: usize) {
        let place = self.folder.join(name);
        std::fs::create_dir(&place).unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "none"]);
        assert!(mount.arg(place).status().unwrap().success());
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// The options of a node, but for how it starts.
    fn options(&self, host: usize) -> Vec<String> {
        let (client, gossip) = (client_addr(host).to_string(), gossip_addr(host).to_string());
        let (key, http) = (self.path("key"), http_addr(host).to_string());
        let options = ["--key", &key, "--client", &client, "--gossip", &gossip, "--http", &http];
        let options = options.iter().chain(&["--client-plaintext", "10.78.0.0/16"]);
        options.map(|option| (*option).to_owned()).collect()
    }

    /// Starts it, and has it scraped.
    fn start_node(&mut self, host: usize, more: &[&str]) {
        let mut arguments = self.options(host);
        arguments.extend(more.iter().map(|option| (*option).to_owned()));
        let data = self.path(&format!("n{host}/data"));
        arguments
            .extend(["--data-dir", &data, "--snapshot-after", SNAPSHOT_AFTER].map(String::from));
        let memory = MEMORY_BYTES.to_string();
        match host {
            0 => arguments.extend(["run", "--max-memory", &memory].map(String::from)),
            _ => arguments.extend([String::from("join"), gossip_addr(0).to_string()]),
        }
        // The command comes first.
        let at = arguments.iter().position(|word| word == "run" || word == "join").unwrap();
        let tail = arguments.split_off(at);
        let arguments: Vec<&str> = tail.iter().chain(&arguments).map(String::as_str).collect();
        let mut prefix = self.hosts.prefix(host);
        if host == 1 {
            let (library, file) = (self.path("slow_sync.so"), self.path("slow_sync"));
            prefix.push(String::from("env"));
            prefix.push(format!("LD_PRELOAD={library}"));
            prefix.push(format!("SLOW_SYNC_FILE={file}"));
        }
        let name = format!("n{host}");
        self.nodes[host] = Some(NodeProcess::start_by(&prefix, &name, &arguments));
        self.prometheus.add(&name, http_addr(host));
    }

    /// Ends it in order, after it was taken out of what is scraped.
    fn take_out(&mut self, host: usize) {
        self.prometheus.remove(&format!("n{host}"));
        let mut node = self.nodes[host].take().unwrap();
        node.signal("TERM");
        assert!(node.wait().success());
    }

    /// Whether these hosts and that one have neither links nor housekeepers in common.
    fn has_parted(&self, side: [usize; 2], other: usize) -> bool {
        let is_alone = |host: usize, peers: &[usize]| {
            let status = self.client(host).call("status", &[]);
            let keepers = field(&status, "housekeepers").unwrap();
            let is_own = |name: &Value| {
                peers.iter().chain([&host]).any(|own| name.as_str() == Some(&format!("n{own}")))
            };
            field(&status, "links").unwrap().as_u64() == Some(peers.len() as u64)
                && keepers.as_array().unwrap().iter().all(is_own)
        };
        is_alone(side[0], &side[1..]) && is_alone(side[1], &side[..1]) && is_alone(other, &[])
    }

    fn client(&self, host: usize) -> Client {
        self.nodes[host].as_ref().unwrap().connect()
    }

    /// How long each sync of n1's disk takes.
    fn sync_takes(&self, milliseconds: u32) {
        std::fs::write(self.folder.join("slow_sync"), milliseconds.to_string()).unwrap();
    }

    /// A certificate for n2 that was made so many days ago, and is valid for 30. The files are those of `--cert` and `--cert-key`.
    fn certify(&self, days_ago: f64) -> [String; 2] {
        let made = (now() - days_ago * 86_400.0) as u64;
        let identity = self.authority.issue_node(&[&http_addr(2).ip().to_string()], made).unwrap();
        let (certificate, key) = identity.pem().unwrap();
        // The key first: both are read when either has changed.
        let files = [(self.path("web.key"), key), (self.path("web.pem"), certificate)];
        let [key, certificate] = files.map(|(file, text)| {
            std::fs::write(&file, text).unwrap();
            // A key that all can read would be warned of.
            let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&file, own).unwrap();
            file
        });
        [certificate, key]
    }

    /// Sets so many entries of this size at a node.
    fn fill(&self, host: usize, name: &str, count: usize, bytes: usize) {
        let mut client = self.client(host);
        for number in 0..count {
            let value = Value::Binary(vec![number as u8; bytes]);
            let reply = client.set(&[name, &number.to_string()], value);
            assert_eq!(field(&reply, "error"), None, "{reply}");
        }
    }

    /// Something happens; all of `expected` fires, and nothing else that is not in `perhaps`; then it is mended, and nothing
    /// fires any more.
    fn case(
        &mut self,
        what: &str,
        (expected, perhaps): (&[&str], &[&str]),
        happens: impl FnOnce(&mut Self),
        mended: impl FnOnce(&mut Self),
    ) {
        let from = now();
        happens(self);
        let mut missing: BTreeSet<&str> = expected.iter().copied().collect();
        if missing.is_empty() {
            std::thread::sleep(QUIET);
        }
        let deadline = now() + 90.0;
        while !missing.is_empty() && now() < deadline {
            // Some end by themselves: it is enough that they have fired.
            let fired = self.prometheus.fired(from, now());
            missing.retain(|alert| !fired.contains_key(*alert));
            std::thread::sleep(Duration::from_millis(200));
        }
        let is_complete = missing.is_empty();
        let after = now() - from;
        mended(self);
        if is_complete {
            wait_until("nothing fires any more, and nothing heals", || {
                let heals = self.prometheus.value("max(distkv_resync_seconds)")? > 0.0;
                (!heals && self.prometheus.firing().is_empty()).then_some(())
            });
        }
        let fired = self.prometheus.fired(from, now());
        let told: Vec<String> =
            fired.iter().map(|(alert, seconds)| format!("{alert} after {seconds:.0} s")).collect();
        println!(
            "{:5.0} s  {what}: {} (all there after {after:.0} s, mended and quiet after {:.0} s)",
            from - self.began,
            if told.is_empty() { String::from("nothing") } else { told.join(", ") },
            now() - from,
        );
        assert!(is_complete, "{what}: {missing:?} does not fire; {fired:?} did");
        self.check(what, &fired, expected, perhaps);
        self.fired.extend(fired.into_keys());
    }

    fn check(
        &self,
        what: &str,
        fired: &BTreeMap<String, f64>,
        expected: &[&str],
        perhaps: &[&str],
    ) {
        let is_meant = |alert: &&String| {
            !expected.contains(&alert.as_str()) && !perhaps.contains(&alert.as_str())
        };
        let wrong: Vec<_> = fired.keys().filter(is_meant).collect();
        assert!(wrong.is_empty(), "{what}: {wrong:?} should not fire");
    }
}

#[test]
fn each_alert_fires_in_its_case_and_in_no_other() {
    if std::env::var_os("DISTKV_TEST_ALERTS").is_none() {
        println!("not run: set DISTKV_TEST_ALERTS");
        return;
    }
    inside_own_network(test_name!("each_alert_fires_in_its_case_and_in_no_other"), || {
        let folder = tempfile::tempdir().unwrap();
        let mut plant = Plant::start(folder.path());
        let writers = Writers::start(&plant.path("key"));
        play(&mut plant);
        drop(writers);
        // Which is of whom was looked at in each case.
        let fired: BTreeSet<String> = plant
            .fired
            .iter()
            .map(|alert| format!("Distkv{}", alert.split(' ').next().unwrap()))
            .collect();
        let all: BTreeSet<String> = names().into_iter().map(str::to_owned).collect();
        assert_eq!(fired, all);
        drop(plant);
        for host in 0..3 {
            unmount(&folder.path().join(format!("n{host}")));
        }
    });
}

fn play(plant: &mut Plant) {
    plant.case("all is well", (&[], &[]), |_| (), |_| ());

    plant.case(
        "n0's memory fills up, n1's disk is slow, n2's is full",
        // n2 goes on without a log; with --sync every-batch it would refuse changes.
        (&["MemoryNearLimit n0", "SyncSlow n1", "DiskFails n2", "DiskNearlyFull n2"], &[]),
        |plant| {
            plant.fill(0, "big", 195, 100_000);
            plant.sync_takes(800);
            // As much as there is room for.
            let mut ballast = File::create(plant.folder.join("n2/ballast")).unwrap();
            while ballast.write_all(&[0; 4096]).is_ok() {}
        },
        |plant| {
            std::fs::remove_file(plant.folder.join("n2/ballast")).unwrap();
            plant.sync_takes(0);
            plant.fill(0, "big", 195, 1);
        },
    );

    plant.case(
        "n2 is started with --read-only",
        (&["NotWritable n2"], &[]),
        |plant| {
            plant.take_out(2);
            plant.start_node(2, &["--read-only"]);
        },
        |plant| {
            plant.take_out(2);
            plant.start_node(2, &[]);
        },
    );

    plant.case(
        "n2 has a certificate that expires soon, and gets a new one",
        (&["CertificateExpires n2"], &[]),
        |plant| {
            plant.take_out(2);
            let [certificate, key] = plant.certify(28.0);
            plant.start_node(2, &["--cert", &certificate, "--cert-key", &key]);
        },
        |plant| {
            plant.certify(0.0);
            wait_until("the new one is read", || {
                plant.prometheus.firing().is_empty().then_some(())
            });
            plant.take_out(2);
            plant.start_node(2, &[]);
        },
    );

    let mut watcher = None;
    plant.case(
        "a watcher of n0 reads nothing",
        (&[], &[]),
        |plant| {
            let mut stuck = plant.client(0);
            stuck.send("watch", &[("path", array(&["many"]))]).unwrap();
            stuck.receive().unwrap();
            watcher = Some(stuck);
            let waiting = "distkv_client_waiting_bytes{instance=\"n0\"}";
            wait_until("the systems' buffers are full, and changes wait for it", || {
                plant.fill(0, "many", 200, 3_000);
                plant.prometheus.value(waiting).filter(|bytes| *bytes > 100_000.0)
            });
        },
        |_| (),
    );
    // It stays as it is until the end.

    let mut lost: Option<Child> = None;
    plant.case(
        "n1 is killed, and n3 joins where nobody is",
        (&["Down n1", "NotReady n3"], &[]),
        |plant| {
            plant.nodes[1].as_mut().unwrap().kill();
            let prefix = plant.hosts.prefix(3);
            let node = Command::new(&prefix[0])
                .args(&prefix[1..])
                .args([PROGRAM, "join", NOBODY, "--name", "n3"])
                .args(plant.options(3))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            lost = Some(node);
            plant.prometheus.add("n3", http_addr(3));
        },
        |plant| {
            plant.prometheus.remove("n3");
            plant.start_node(1, &[]);
        },
    );
    let mut lost = lost.unwrap();
    lost.kill().unwrap();
    lost.wait().unwrap();

    plant.case(
        "n2 is cut off, both sides change the same entry, and the cable that comes back is slow",
        (
            // n2 has more to fetch. If that lasts, what it lacks and has not confirmed is told, too.
            &["Split plant", "HealingSlow n2"],
            &[
                "Conflicts n0",
                "Conflicts n1",
                "Conflicts n2",
                "HealingSlow n0",
                "HealingSlow n1",
                "ChangesMissing n2",
                "PeerBehind n0",
                "PeerBehind n1",
            ],
        ),
        |plant| {
            plant.hosts.cut();
            for host in [0, 2] {
                plant.client(host).set(&["shared"], Value::from(host as u64));
            }
            plant.fill(0, "new", 80, 10_000);
            let is_split = |plant: &Plant| plant.prometheus.firing().contains("Split plant");
            wait_until("the split is told", || is_split(plant).then_some(()));
            // A healing begins with a new link. Over an old one, and before n2 has elected alone, what is new would come first,
            // and when it has come, there is nothing to heal any more.
            wait_until("no link stands over the cut", || plant.has_parted([0, 1], 2).then_some(()));
            plant.cable = Some(SlowCable::plug_in(60_000));
        },
        |plant| {
            drop(plant.cable.take());
            plant.hosts.mend();
            let conflicts = || plant.prometheus.value("sum(distkv_conflicts_total) > 0");
            wait_until("the conflict is found", conflicts);
        },
    );
    assert!(plant.fired.iter().any(|alert| alert.starts_with("Conflicts")), "{:?}", plant.fired);

    plant.case(
        "n2 is away, and something is deleted",
        (&["PurgeBlocked n0"], &["PurgeBlocked n1"]),
        |plant| {
            plant.take_out(2);
            plant.client(0).call("delete_value", &[("path", array(&["new", "1"]))]);
        },
        |plant| plant.start_node(2, &[]),
    );

    plant.case(
        "the cable to n2 is slow, and there is much to send",
        // What n1 changes waits, too, and what n0 confirms of n2's changes. So does what housekeepers say to each other: if they
        // elect without n2 meanwhile, that is a split, and it heals by the slow cable.
        (
            &["PeerBehind n0", "ChangesMissing n2"],
            &["PeerBehind n1", "PeerBehind n2", "HealingSlow n2"],
        ),
        |plant| {
            plant.hosts.cut();
            plant.cable = Some(SlowCable::plug_in(100_000));
            plant.fill(0, "much", 30, 100_000);
        },
        |plant| {
            drop(plant.cable.take());
            plant.hosts.mend();
        },
    );
    drop(watcher);

    plant.case(
        "the disk of n2's audit log is full",
        (&["DiskFails n2"], &[]),
        |plant| {
            plant.take_out(2);
            plant.mount("audit", AUDIT_BYTES);
            plant.start_node(2, &["--audit", &plant.path("audit/log")]);
            let mut ballast = File::create(plant.folder.join("audit/ballast")).unwrap();
            while ballast.write_all(&[0; 4096]).is_ok() {}
            let warns = "distkv_warnings{instance=\"n2\",kind=\"audit\"} > 0";
            let (path, mut client) = (array(&["acl", "unused", "x"]), plant.client(2));
            wait_until("the last page of the log is full, and a line is lost", || {
                client.call("set_internal", &[("path", path.clone()), ("value", "r".into())]);
                plant.prometheus.value(warns)
            });
        },
        |plant| {
            // Once it has room again, it would be told for 10 minutes that something is missing.
            plant.take_out(2);
            unmount(&plant.folder.join("audit"));
            plant.start_node(2, &[]);
        },
    );

    plant.case(
        "one user has nearly all connections of n2 that one may have",
        (&["Warns n2"], &[]),
        |plant| {
            plant.take_out(2);
            plant.start_node(2, &["--max-connections", "20"]);
            // Half of them, with that of the writer.
            plant.held = (0..9).map(|_| plant.client(2)).collect();
        },
        |plant| {
            plant.held.clear();
            plant.take_out(2);
            plant.start_node(2, &[]);
        },
    );
}
