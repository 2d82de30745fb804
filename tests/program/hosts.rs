//! Several hosts on one machine: network namespaces, joined by two switches and a cable between
//! them that can be cut. Everything lies inside of a namespace of the test's own, so nothing
//! outside is seen or touched, and the kernel takes it all away when the test ends, however it
//! ends.
//!
//! ```text
//!  host 0   host 1   host 2          host 3   host 4
//!     └────────┼────────┘               └───┬────┘      10.77.0.0/24: nodes among each other
//!           switch s0 ════ the cable ════ switch s1
//!  each host ──── the test                              10.78.N.0/30: clients, never cut
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

/// Tells a test program that it runs inside of the test's own namespace.
const INSIDE: &str = "DISTKV_TEST_INSIDE_NETNS";
/// Where nodes listen for each other.
const GOSSIP_PORT: u16 = 27587;
/// Where nodes listen for clients.
const CLIENT_PORT: u16 = 27586;
/// A hardware address that no host has.
const NOBODY: &str = "02:00:00:00:00:99";

/// Runs `test`, which is the body of the test function named `name`, inside of a fresh user and
/// network namespace, where it may make hosts.
///
/// Without root this needs a kernel that lets users make namespaces; else, root. Where neither is
/// given the test fails, and says what to do.
pub fn inside_own_network(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let unshare = find_unshare();
    let program = std::env::current_exe().expect("this program has a path");
    let status = Command::new("unshare")
        .args(unshare)
        .arg(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .status()
        .expect("unshare ran before");
    assert!(status.success(), "failed inside of its own network namespace: {status}");
}

/// The options with which `unshare` gives us a network of our own, tried out.
pub fn find_unshare() -> &'static [&'static str] {
    const WAYS: [&[&str]; 2] =
        [&["--user", "--map-root-user", "--net", "--mount"], &["--net", "--mount"]];
    // What the hosts are made of; a kernel may lack a part of it.
    const TRIAL: &str = "ip link add s0 type bridge && ip link add trial0 type veth peer name trial1 && \
                         unshare --net true";
    let mut complaints = Vec::new();
    for way in WAYS {
        match Command::new("unshare").args(way).args(["sh", "-c", TRIAL]).output() {
            Ok(output) if output.status.success() => return way,
            Ok(output) => complaints.push(format!("unshare {}: {}", way.join(" "), said(&output))),
            Err(error) => complaints.push(format!("unshare: {error}")),
        }
    }
    panic!(
        "this test makes network namespaces, and cannot:\n  {}\nIt needs `ip` (package iproute2), \
         `unshare` and `nsenter` (util-linux), and one of these:\n  - users may make namespaces: \
         `sysctl kernel.unprivileged_userns_clone=1`, and on Ubuntu \
         `sysctl kernel.apparmor_restrict_unprivileged_userns=0`\n  - root: `sudo -E env \
         \"PATH=$PATH\" cargo test --test program netns`\n  - in a container: `--cap-add SYS_ADMIN \
         --cap-add NET_ADMIN --security-opt seccomp=unconfined`",
        complaints.join("\n  ")
    );
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    format!("{} ({})", text.trim(), output.status)
}

/// The hosts, their switches and cables.
pub struct Hosts {
    hosts: Vec<Host>,
}

/// A namespace, held by a process that ends when its standard input does: with the test.
struct Host {
    holder: Child,
    _stdin: ChildStdin,
}

impl Hosts {
    /// As many hosts as `switches` has numbers: each is plugged into that switch, 0 or 1.
    pub fn new(switches: &[usize]) -> Self {
        assert!(std::env::var_os(INSIDE).is_some(), "only inside_own_network");
        ip_batch(
            &[],
            "link set lo up\n\
             link add s0 type bridge\n\
             link add s1 type bridge\n\
             link add cable0 type veth peer name cable1\n\
             link set cable0 master s0 up\n\
             link set cable1 master s1 up\n\
             link set s0 up\n\
             link set s1 up\n",
        );
        let hosts = switches.iter().enumerate().map(|(n, switch)| Host::new(n, *switch)).collect();
        Self { hosts }
    }

    /// What to put in front of a command so that it runs on that host.
    pub fn prefix(&self, host: usize) -> Vec<String> {
        self.hosts[host].prefix()
    }

    /// Gives the test these addresses, from which it may connect to that host.
    pub fn add_clients(&self, host: usize, ips: impl Iterator<Item = Ipv4Addr>) {
        let (own, back): (Vec<_>, Vec<_>) = ips
            .map(|ip| {
                let back = format!("route add {ip}/32 via 10.78.{host}.1\n");
                (format!("addr add {ip}/32 dev lo\n"), back)
            })
            .unzip();
        ip_batch(&[], &own.concat());
        ip_batch(&self.prefix(host), &back.concat());
    }

    /// Cuts the cable between the switches: the hosts see nothing but silence.
    pub fn cut(&self) {
        ip_batch(&[], "link set cable0 down\n");
    }

    /// Puts it back.
    pub fn mend(&self) {
        ip_batch(&[], "link set cable0 up\n");
    }

    /// Pulls one host's own cable; it sees that it has no carrier.
    pub fn unplug(&self, host: usize) {
        ip_batch(&[], &format!("link set d{host} down\n"));
    }

    /// Puts it back.
    pub fn plug_in(&self, host: usize) {
        ip_batch(&[], &format!("link set d{host} up\n"));
    }

    /// Takes one host's network card down: it has no route to anybody.
    pub fn card_down(&self, host: usize) {
        ip_batch(&self.prefix(host), "link set eth0 down\n");
    }

    /// Takes it up again.
    pub fn card_up(&self, host: usize) {
        ip_batch(&self.prefix(host), "link set eth0 up\n");
    }

    /// Gives one host another address, as a new lease would.
    pub fn readdress(&self, host: usize, ip: IpAddr) {
        let old = gossip_addr(host).ip();
        let lines = format!("addr del {old}/24 dev eth0\naddr add {ip}/24 dev eth0\n");
        ip_batch(&self.prefix(host), &lines);
    }

    /// Gives one host a further address.
    pub fn add_address(&self, host: usize, ip: IpAddr) {
        let line = match ip {
            IpAddr::V4(ip) => format!("addr add {ip}/24 dev eth0\n"),
            // Nobody else has it: no need to find out for a second.
            IpAddr::V6(ip) => format!("addr add {ip}/64 dev eth0 nodad\n"),
        };
        ip_batch(&self.prefix(host), &line);
    }

    /// Takes one of its IPv4 addresses away.
    pub fn remove_address(&self, host: usize, ip: IpAddr) {
        ip_batch(&self.prefix(host), &format!("addr del {ip}/24 dev eth0\n"));
    }

    /// From now on, what `from` sends to `to` goes to a hardware address that nobody has; the
    /// other direction works.
    pub fn cut_one_way(&self, from: usize, to: usize) {
        let to = gossip_addr(to).ip();
        let line = format!("neigh replace {to} lladdr {NOBODY} dev eth0 nud permanent\n");
        ip_batch(&self.prefix(from), &line);
    }

    /// Ends that.
    pub fn mend_one_way(&self, from: usize, to: usize) {
        let line = format!("neigh del {} dev eth0\n", gossip_addr(to).ip());
        ip_batch(&self.prefix(from), &line);
    }
}

/// Where the node of that host speaks with others.
pub fn gossip_addr(host: usize) -> SocketAddr {
    (Ipv4Addr::new(10, 77, 0, number(host) + 1), GOSSIP_PORT).into()
}

/// Where the node of that host serves clients, over a connection that is never cut.
pub fn client_addr(host: usize) -> SocketAddr {
    (Ipv4Addr::new(10, 78, number(host), 2), CLIENT_PORT).into()
}

fn number(host: usize) -> u8 {
    u8::try_from(host).ok().filter(|n| *n < 250).expect("few hosts")
}

impl Host {
    fn new(n: usize, switch: usize) -> Self {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo made && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare ran before");
        let mut line = String::new();
        let mut stdout = BufReader::new(holder.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("readable");
        assert_eq!(line, "made\n", "a namespace for host {n}");
        let stdin = holder.stdin.take().expect("piped");
        let host = Self { holder, _stdin: stdin };
        let (pid, data, client) = (host.holder.id(), gossip_addr(n).ip(), client_addr(n).ip());
        ip_batch(
            &[],
            &format!(
                "link add d{n} type veth peer name eth0 netns {pid}\n\
                 link add m{n} type veth peer name mgmt netns {pid}\n\
                 link set d{n} master s{switch} up\n\
                 addr add 10.78.{n}.1/30 dev m{n}\n\
                 link set m{n} up\n"
            ),
        );
        ip_batch(
            &host.prefix(),
            &format!(
                "link set lo up\n\
                 addr add {data}/24 dev eth0\n\
                 link set eth0 up\n\
                 addr add {client}/30 dev mgmt\n\
                 link set mgmt up\n"
            ),
        );
        host
    }

    fn prefix(&self) -> Vec<String> {
        let namespace = format!("--net=/proc/{}/ns/net", self.holder.id());
        vec!["nsenter".into(), namespace, "--".into()]
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Runs lines of `ip` commands, here or on a host.
fn ip_batch(prefix: &[String], lines: &str) {
    let command: Vec<&str> =
        prefix.iter().map(String::as_str).chain(["ip", "-batch", "-"]).collect();
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ip ran before");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(lines.as_bytes()).expect("taken");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}\nin:\n{lines}", said(&output));
}
