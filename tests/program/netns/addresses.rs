//! Nodes that listen at all addresses: which one of theirs they tell, to peers and for clients, and that all
//! hear of it when it is another.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use super::hosts::{Hosts, client_addr, gossip_addr, inside_own_network};
use super::processes::{self, Client, NodeProcess, field, wait_until};

/// What a node says of one member.
#[derive(Debug)]
struct Shown {
    state: String,
    gossip: String,
    client: String,
}

/// A node that listens at all IPv4 addresses, and a way to ask it.
struct Wild {
    node: NodeProcess,
    client: Client,
}

impl Wild {
    /// Its ports are the usual ones and `shift`. Without `peer` it founds the network.
    fn start(hosts: &Hosts, host: usize, name: &str, shift: u16, peer: Option<&str>) -> Self {
        let at = |usual: SocketAddr| format!("0.0.0.0:{}", usual.port() + shift);
        let (client, gossip) = (at(client_addr(host)), at(gossip_addr(host)));
        Self::start_at(hosts, host, name, [&client, &gossip], peer)
    }

    /// The same, with the usual ports, where IPv6 comes in, too.
    fn start_v6(hosts: &Hosts, host: usize, name: &str, peer: Option<&str>) -> Self {
        Self::start_at(hosts, host, name, ["[::]:27586", "[::]:27587"], peer)
    }

    fn start_at(
        hosts: &Hosts,
        host: usize,
        name: &str,
        [client, gossip]: [&str; 2],
        peer: Option<&str>,
    ) -> Self {
        let mut arguments = vec!["--client", client, "--gossip", gossip, "--insecure"];
        match peer {
            None => arguments.insert(0, "run"),
            Some(peer) => drop(arguments.splice(0..0, ["join", peer])),
        }
        let node = NodeProcess::start_by(&hosts.prefix(host), name, &arguments);
        let asked = SocketAddr::new(client_addr(host).ip(), node.client.port());
        let client = Client::connect(asked);
        Self { node, client }
    }

    /// It has warned of this member in such words.
    fn has_warned(&self, of: &str, words: &str) -> bool {
        let peer = format!("peer=\"{of}\"");
        let warns = |line: &String| [&peer, words, "WARN"].iter().all(|w| line.contains(*w));
        self.node.log().iter().any(warns)
    }

    fn members(&mut self) -> BTreeMap<String, Shown> {
        let reply = self.client.call("members", &[]);
        let members = field(&reply, "result").unwrap();
        let text = |m: &rmpv::Value, key| {
            field(m, key).and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
        };
        let shown = |m: &rmpv::Value| {
            let (state, gossip, client) = (text(m, "state"), text(m, "gossip"), text(m, "client"));
            (text(m, "name"), Shown { state, gossip, client })
        };
        members.as_array().unwrap().iter().map(shown).collect()
    }

    /// Whether it shows that member up (or itself), with both addresses at that one, and ports that are the usual
    /// ones and `shift`.
    fn shows(&mut self, name: &str, ip: &str, shift: u16) -> bool {
        let members = self.members();
        let at = |port: u16| format!("{ip}:{}", port + shift);
        members.get(name).is_some_and(|shown| {
            ["up", "self"].contains(&shown.state.as_str())
                && shown.gossip == at(gossip_addr(0).port())
                && shown.client == at(client_addr(0).port())
        })
    }
}

/// Waits until each node shows each member at its address.
fn wait_for(what: &str, nodes: &mut [&mut Wild], expected: &[(&str, &str, u16)]) {
    let all = |node: &mut &mut Wild| {
        expected.iter().all(|(name, ip, shift)| node.shows(name, ip, *shift))
    };
    wait_until(what, || nodes.iter_mut().all(all).then_some(()));
}

/// The link-local address of a host's network interface, once it can be used.
fn link_local(hosts: &Hosts, host: usize) -> String {
    let prefix = hosts.prefix(host);
    wait_until("the host has a link-local address", || {
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(["ip", "-6", "-o", "addr", "show", "dev", "eth0"]);
        let shown = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let line = shown.lines().find(|l| l.contains("scope link") && !l.contains("tentative"))?;
        let address = line.split_whitespace().find(|word| word.starts_with("fe80"))?;
        Some(address.split('/').next().unwrap().to_owned())
    })
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Which of a peer's two addresses is called first is not this node's choice; which of its own it tells is.
#[test]
fn a_peer_with_an_address_of_each_family_is_joined_by_nodes_that_listen_at_one() {
    let name = "a_peer_with_an_address_of_each_family_is_joined_by_nodes_that_listen_at_one";
    inside_own_network(test_name!(name), || {
        let hosts = Hosts::new(&[0, 0, 0]);
        for host in 0..3 {
            hosts.add_address(host, ip(&format!("fd77::{}", host + 1)));
        }
        let folder = tempfile::tempdir().unwrap();
        let names = folder.path().join("hosts");
        std::fs::write(&names, "127.0.0.1 localhost\n10.77.0.1 n0.test\nfd77::1 n0.test\n")
            .unwrap();
        let bound = Command::new("mount").arg("--bind").arg(&names).arg("/etc/hosts").status();
        assert!(bound.unwrap().success());
        let mut n0 = Wild::start(&hosts, 0, "n0", 0, None);
        let mut n1 = Wild::start(&hosts, 1, "n1", 0, Some("n0.test"));
        let mut n2 = Wild::start(&hosts, 2, "n2", 0, Some("n0.test"));
        let all = [("n0", "10.77.0.1", 0), ("n1", "10.77.0.2", 0), ("n2", "10.77.0.3", 0)];
        wait_for("all see all", &mut [&mut n0, &mut n1, &mut n2], &all);
        let _ = Command::new("umount").arg("/etc/hosts").status();
    });
}

/// A name says where to call, and not which of its addresses membership uses: Debian gives a host's own name, on that host,
/// an address of the loopback network.
#[test]
fn nodes_that_advertise_names_are_up_whatever_their_own_hosts_take_these_for() {
    let name = "nodes_that_advertise_names_are_up_whatever_their_own_hosts_take_these_for";
    inside_own_network(test_name!(name), || {
        let hosts = Hosts::new(&[0, 0, 0]);
        let folder = tempfile::tempdir().unwrap();
        // The other hosts have no IPv6.
        hosts.add_address(0, ip("fd77::1"));
        let everywhere = "127.0.0.1 localhost\n10.77.0.1 n0.test\nfd77::1 n0.test\n10.77.0.2 n1.test\n10.77.0.3 n2.test\n";
        let start = |host: usize, at: &str, peer: Option<&str>| {
            let own = format!("n{host}.test");
            let elsewhere = everywhere.lines().filter(|line| host == 0 || !line.ends_with(&own));
            let lines: Vec<&str> = elsewhere.collect();
            let lines = format!("127.0.1.1 {own}\n{}\n", lines.join("\n"));
            let lines = if host == 0 { everywhere.to_owned() } else { lines };
            let names = folder.path().join(&own);
            std::fs::write(&names, lines).unwrap();
            let in_place = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
            let prefix = ["unshare", "--mount", "sh", "-c", in_place, names.to_str().unwrap()];
            let prefix = [hosts.prefix(host), prefix.map(str::to_owned).to_vec()].concat();
            let (client, gossip) = (format!("{at}:27586"), format!("{at}:27587"));
            let mut arguments = vec!["--client", &client, "--gossip", &gossip];
            arguments.extend(["--insecure", "--advertise", &own]);
            match peer {
                None => arguments.insert(0, "run"),
                Some(peer) => drop(arguments.splice(0..0, ["join", peer])),
            }
            let node = NodeProcess::start_by(&prefix, &own[..2], &arguments);
            Wild { node, client: Client::connect(client_addr(host)) }
        };
        let mut n0 = start(0, "[::]", None);
        let mut n1 = start(1, "0.0.0.0", Some("n0.test"));
        let mut n2 = start(2, "0.0.0.0", Some("n1.test"));
        let is_up = |(name, shown): (&String, &Shown)| {
            let at = |port: u16| format!("{name}.test:{port}");
            ["up", "self"].contains(&shown.state.as_str()) && shown.client == at(27_586)
        };
        for node in [&mut n0, &mut n1, &mut n2] {
            wait_until("all are up", || {
                let members = node.members();
                (members.len() == 3 && members.iter().all(is_up)).then_some(())
            });
        }
    });
}

#[test]
fn nodes_that_met_on_one_machine_are_shown_where_others_reach_them() {
    let name = "nodes_that_met_on_one_machine_are_shown_where_others_reach_them";
    inside_own_network(test_name!(name), || {
        let hosts = Hosts::new(&[0, 0]);
        let mut n0 = Wild::start(&hosts, 0, "n0", 0, None);
        let mut n1 = Wild::start(&hosts, 0, "n1", 100, Some("127.0.0.1:27587"));
        let alone = [("n0", "127.0.0.1", 0), ("n1", "127.0.0.1", 100)];
        wait_for("they know no other address", &mut [&mut n0, &mut n1], &alone);
        let mut n2 = Wild::start(&hosts, 1, "n2", 0, Some("10.77.0.1:27587"));
        let all = [("n0", "10.77.0.1", 0), ("n1", "10.77.0.1", 100), ("n2", "10.77.0.2", 0)];
        wait_for("all show what all can use", &mut [&mut n0, &mut n1, &mut n2], &all);
        let blames = |line: &&String| line.contains("where no other machine reaches it");
        let log = n2.node.log();
        let blamed: Vec<_> = log.iter().filter(blames).collect();
        assert!(blamed.is_empty(), "{blamed:#?}");
    });
}

#[test]
fn clients_are_told_the_address_that_a_node_has_now() {
    let name = "clients_are_told_the_address_that_a_node_has_now";
    inside_own_network(test_name!(name), || {
        let hosts = Hosts::new(&[0, 0]);
        let mut n0 = Wild::start(&hosts, 0, "n0", 0, None);
        let mut n1 = Wild::start(&hosts, 1, "n1", 0, Some("10.77.0.1:27587"));
        let mut both = [&mut n0, &mut n1];
        wait_for("they are up", &mut both, &[("n0", "10.77.0.1", 0), ("n1", "10.77.0.2", 0)]);
        hosts.readdress(1, ip("10.77.0.99"));
        wait_for("n1 moved", &mut both, &[("n0", "10.77.0.1", 0), ("n1", "10.77.0.99", 0)]);
    });
}

/// Nobody is linked with it who could show it another one.
#[test]
fn a_node_whose_peers_are_gone_tells_clients_the_address_that_its_host_has_now() {
    let name = "a_node_whose_peers_are_gone_tells_clients_the_address_that_its_host_has_now";
    inside_own_network(test_name!(name), || {
        let hosts = Hosts::new(&[0, 0]);
        let mut n0 = Wild::start(&hosts, 0, "n0", 0, None);
        let mut n1 = Wild::start(&hosts, 1, "n1", 0, Some("10.77.0.1:27587"));
        let mut both = [&mut n0, &mut n1];
        wait_for("they are up", &mut both, &[("n0", "10.77.0.1", 0), ("n1", "10.77.0.2", 0)]);
        n1.node.signal("TERM");
        assert!(n1.node.wait().success());
        hosts.readdress(0, ip("10.78.0.1"));
        let prefix = hosts.prefix(0);
        wait_until("n0 tells its new address", || {
            let mut command = Command::new(&prefix[0]);
            command.args(&prefix[1..]).arg(processes::PROGRAM);
            let done = command.args(["members", "--connect", "127.0.0.1"]).output().unwrap();
            let shown = String::from_utf8(done.stdout).unwrap();
            let row = shown.lines().find(|line| line.starts_with("n0"))?;
            ["10.78.0.1:27586", "10.78.0.1:27587"].iter().all(|at| row.contains(at)).then_some(())
        });
    });
}

#[test]
fn a_peer_whose_link_stands_hears_of_an_address_that_is_gone() {
    let name = "a_peer_whose_link_stands_hears_of_an_address_that_is_gone";
    inside_own_network(test_name!(name), || {
        let hosts = Hosts::new(&[0, 0, 0]);
        for host in 0..3 {
            hosts.add_address(host, ip(&format!("10.79.0.{}", host + 1)));
        }
        let mut n0 = Wild::start(&hosts, 0, "n0", 0, None);
        let mut n1 = Wild::start(&hosts, 1, "n1", 0, Some("10.77.0.1:27587"));
        // Another of n1's addresses, which would do as well: the first that worked stays.
        let mut n2 = Wild::start(&hosts, 2, "n2", 0, Some("10.79.0.2:27587"));
        let others = [("n0", "10.77.0.1", 0), ("n1", "10.77.0.2", 0)];
        wait_for("they are up", &mut [&mut n0, &mut n1, &mut n2], &others);
        // What goes by way of the other address goes on. (n1 has no way to n0's address any more.)
        hosts.remove_address(1, ip("10.77.0.2"));
        wait_for("n1 moved", &mut [&mut n1, &mut n2], &[("n1", "10.79.0.2", 0)]);
    });
}

#[test]
fn a_node_warns_of_a_peer_that_it_can_call_by_the_other_family_only() {
    let name = "a_node_warns_of_a_peer_that_it_can_call_by_the_other_family_only";
    inside_own_network(test_name!(name), || {
        let hosts = Hosts::new(&[0, 0]);
        for host in 0..2 {
            hosts.add_address(host, ip(&format!("fd77::{}", host + 1)));
        }
        let (client, gossip) = (client_addr(0).to_string(), "[fd77::1]:27587");
        let arguments = ["run", "--insecure", "--client", &client, "--gossip", gossip];
        let _n0 = NodeProcess::start_by(&hosts.prefix(0), "n0", &arguments);
        let n1 = Wild::start(&hosts, 1, "n1", 0, Some(gossip));
        let warns = |line: &String| {
            ["WARN", gossip, "--gossip [::]:27587"].iter().all(|w| line.contains(w))
        };
        wait_until("it warns", || n1.node.log().iter().any(warns).then_some(()));
    });
}

#[test]
fn nodes_that_met_at_a_link_local_address_tell_another_one_of_the_same_interface() {
    let name = "nodes_that_met_at_a_link_local_address_tell_another_one_of_the_same_interface";
    inside_own_network(test_name!(name), || {
        let hosts = Hosts::new(&[0, 0]);
        for host in 0..2 {
            hosts.add_address(host, ip(&format!("fd77::{}", host + 1)));
        }
        let seed = format!("[{}%eth0]:27587", link_local(&hosts, 0));
        link_local(&hosts, 1);
        let mut n0 = Wild::start_v6(&hosts, 0, "n0", None);
        let mut n1 = Wild::start_v6(&hosts, 1, "n1", Some(&seed));
        let all = [("n0", "[fd77::1]", 0), ("n1", "[fd77::2]", 0)];
        wait_for("they are up there", &mut [&mut n0, &mut n1], &all);
        for (node, other) in [(&n0, "n1"), (&n1, "n0")] {
            let log = node.node.log();
            assert!(!log.iter().any(|line| line.contains("link-local")), "{other}: {log:#?}");
        }
    });
}

#[test]
fn nodes_that_have_link_local_addresses_only_say_at_once_what_to_do() {
    let name = "nodes_that_have_link_local_addresses_only_say_at_once_what_to_do";
    inside_own_network(test_name!(name), || {
        let hosts = Hosts::new(&[0, 0, 0]);
        let [ll0, ll1, ll2] = [0, 1, 2].map(|host| {
            hosts.remove_address(host, gossip_addr(host).ip());
            link_local(&hosts, host)
        });
        let seed = |ip: &str| format!("[{ip}%eth0]:27587");
        let mut n0 = Wild::start_v6(&hosts, 0, "n0", None);
        let mut n1 = Wild::start_v6(&hosts, 1, "n1", Some(&seed(&ll0)));
        let bound = ["[::]:27586", &seed(&ll2)];
        let n2 = Wild::start_at(&hosts, 2, "n2", bound, Some(&seed(&ll1)));
        let give = "give each host another address, like a unique local one (fd00::/8)";
        for (node, own) in [(&n0, &ll0), (&n1, &ll1), (&n2, &ll2)] {
            let own = format!("others are told that this node is at [{own}]:27587, a link-local");
            let warns = |line: &String| ["WARN", &own, give].iter().all(|w| line.contains(*w));
            wait_until(&own, || node.node.log().iter().any(warns).then_some(()));
        }
        // n0 was not given n2's address with a zone.
        for (node, peer) in [(&n0, "n1"), (&n1, "n0"), (&n2, "n1"), (&n0, "n2")] {
            let what = format!("the warning of {peer}");
            wait_until(&what, || node.has_warned(peer, give).then_some(()));
        }
        for host in 0..2 {
            hosts.add_address(host, ip(&format!("fd77::{}", host + 1)));
        }
        let better = [("n0", "[fd77::1]", 0), ("n1", "[fd77::2]", 0)];
        wait_for("they take what they are given", &mut [&mut n0, &mut n1], &better);
    });
}
