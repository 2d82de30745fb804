//! The commands of the scripts. Keys are `k1`, `k2` …; a `*` stands behind the one that a node seals with.
//!
//! | command | what it does |
//! |---|---|
//! | `nodes a b …` | makes nodes of one network that have k1, and are members of it |
//! | `stranger z KEY [NETWORK]` | a node that is no member, with another key, or of another network |
//! | `dial a b [plain|junk|replay]` | a calls b: the handshake, byte for byte; in plaintext; with what is none; with the first message of the last handshake again |
//! | `mesh` | every member that is there calls every other that it has no link to |
//! | `cut a b`, `split a b / c d` | a link is gone; all links between sides are |
//! | `crash a`, `restart a` | gone without a word; back, with the keys of its file |
//! | `add a KEY`, `use a KEY [force]`, `remove a KEY [force]` | what an admin orders at a, for all nodes |
//! | `by-hand a add|use|remove KEY` | a's key file is changed, and read by a alone |
//! | `forget a NAME` | NAME does not come back, as a is told |
//! | `plan a` | what `key rotate` would do next at a |
//! | `run` | all that nodes have to say about keys arrives |
//! | `show a …` | the keys of nodes |
//! | `send a b TEXT`, `replay a b` | a datagram, with all that comes of it; the last one that a has sent to b, again |

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use distkv_core::membership::NetworkName;
use distkv_core::protocol::frame::split_frame;
use distkv_core::protocol::peer::KEYS_FRAME;
use distkv_model::ids::NodeName;
use distkv_secure::datagram::{DatagramDoor, Opened, Outgoing};
use distkv_secure::hand_over::{HandOver, Report};
use distkv_secure::key::KeyId;
use distkv_secure::key_ring::{
    Applied, KeyRing, RingError, RingSummary, blocks_removal, blocks_use,
};
use distkv_secure::link::{Acceptor, Dialler, Ephemeral, Link, Suites};
use distkv_secure::reports::{Reports, Told};
use distkv_secure::rotation::{Next, Plan};

use super::show::{clear, key, keys_of, name_of, names_of, readable, shown};

struct Node {
    ring: KeyRing,
    reports: Reports,
    door: DatagramDoor,
    life: u64,
    is_up: bool,
    is_member: bool,
    /// What each peer was told over its link.
    told: BTreeMap<String, Told>,
}

/// The nodes of one script, and the links between them: by the one that called and the one that was called.
#[derive(Default)]
pub(crate) struct Network {
    nodes: BTreeMap<String, Node>,
    links: BTreeMap<(String, String), (Link, Link)>,
    /// The first message of the last handshake.
    first: Vec<u8>,
    /// The last datagram of each pair.
    datagrams: BTreeMap<(String, String), Vec<u8>>,
    now: u64,
    random: u8,
    printed: Vec<String>,
}

/// A node's address is its name's first letter.
fn addr(name: &str) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, name.as_bytes()[0]], 1))
}

fn report(name: &str, node: &Node, at: u64) -> Report {
    let name = NodeName::new(name).unwrap();
    Report { name, at, ring: node.ring.summary(), trouble: None, is_gone: false }
}

/// Plaintext, as membership makes it.
fn plain(network: &str, text: &str) -> Vec<u8> {
    [b"dkvS\x01\x00\x01", &[network.len() as u8][..], network.as_bytes(), text.as_bytes()].concat()
}

impl Network {
    /// Carries out one command; gives what it prints.
    pub(crate) fn run(&mut self, command: &str, file: &str) -> Vec<String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["nodes", names @ ..] => {
                names.iter().for_each(|name| self.make(name, "k1", "plant", true));
            }
            ["stranger", name, key] => self.make(name, key, "plant", false),
            ["stranger", name, key, network] => self.make(name, key, network, false),
            ["dial", a, b, how @ ..] => self.dial(a, b, how.first().copied()),
            ["mesh"] => self.mesh(),
            ["cut", a, b] => self.cut(a, b),
            ["split", rest @ ..] => self.split(rest),
            ["crash", at] => self.crash(at),
            ["restart", at] => self.restart(at),
            ["add", at, name] => self.order(at, name, "added", true),
            ["use", at, name, rest @ ..] => self.order(at, name, "used", rest == ["force"]),
            ["remove", at, name, rest @ ..] => self.order(at, name, "removed", rest == ["force"]),
            ["by-hand", at, what, name] => self.by_hand(at, what, name),
            ["forget", at, name] => self.forget(at, name),
            ["plan", at] => self.plan(at),
            ["run"] => self.hand_over(),
            ["show", names @ ..] => names.iter().for_each(|name| self.show(name)),
            ["send", a, b, text] => self.send(a, b, text),
            ["replay", a, b] => {
                let bytes = self.datagrams[&((*a).into(), (*b).into())].clone();
                self.carry(a, Outgoing { to: addr(b), bytes });
            }
            _ => panic!("{file}: unknown command {command:?}"),
        }
        std::mem::take(&mut self.printed)
    }

    fn print(&mut self, line: String) {
        self.printed.push(line);
    }

    fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.get_mut(name).unwrap()
    }

    fn make(&mut self, name: &str, first: &str, network: &str, is_member: bool) {
        let ring = KeyRing::new(NetworkName::new(network).unwrap(), key(first));
        let door = DatagramDoor::new(&ring, epochs(name, 1));
        let reports = Reports::new(NodeName::new(name).unwrap());
        let (told, is_up, life) = (BTreeMap::new(), true, 1);
        let node = Node { ring, reports, door, life, is_up, is_member, told };
        self.nodes.insert(name.into(), node);
    }

    // Links.

    fn ephemeral(&mut self) -> Ephemeral {
        self.random += 1;
        Ephemeral::new([self.random; 32])
    }

    fn dial(&mut self, a: &str, b: &str, how: Option<&str>) {
        let suites = Suites::new(true);
        let (ring_a, ring_b) = (self.nodes[a].ring.clone(), self.nodes[b].ring.clone());
        let mut first = Vec::new();
        let ephemeral = self.ephemeral();
        let mut dialler =
            Dialler::new(&ring_a, suites, suites.preferred(), ephemeral, &mut first).unwrap();
        match how {
            // As a greeting begins: a length, and its kind.
            Some("plain") => first = vec![0, 0, 0, 1, 0x44, 0x90],
            Some("junk") => first = b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            Some("replay") => first.clone_from(&self.first),
            None => self.first.clone_from(&first),
            Some(other) => panic!("{other}?"),
        }
        self.print(format!("{a} -> {b}: {}", clear(&first)));
        let mut answer = Vec::new();
        let mut acceptor = Acceptor::new(suites, self.ephemeral());
        let accepted = acceptor.take(&ring_b, &first, &mut answer);
        if !answer.is_empty() {
            self.print(format!("{b} -> {a}: {}", clear(&answer)));
        }
        let accepted = match accepted {
            Ok(link) => link.unwrap(),
            Err(error) => return self.print(readable(&format!("{b}: {error}"))),
        };
        match dialler.take(&answer) {
            Ok(link) => {
                self.print(format!("{a} and {b} are linked"));
                // What was told over an earlier link is told again.
                self.node(a).told.remove(b);
                self.node(b).told.remove(a);
                self.links.insert((a.into(), b.into()), (link.unwrap(), accepted));
            }
            Err(error) => self.print(readable(&format!("{a}: {error}"))),
        }
    }

    fn mesh(&mut self) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for (at, a) in names.iter().enumerate() {
            for b in &names[at + 1..] {
                let is_there = |name: &String| self.nodes[name].is_up && self.nodes[name].is_member;
                if is_there(a) && is_there(b) && !self.peers(a).contains(b) {
                    self.dial(a, b, None);
                }
            }
        }
    }

    /// Who is linked to a node.
    fn peers(&self, at: &str) -> BTreeSet<String> {
        let other = |(a, b): &(String, String)| match (a == at, b == at) {
            (true, _) => Some(b.clone()),
            (_, true) => Some(a.clone()),
            _ => None,
        };
        self.links.keys().filter_map(other).collect()
    }

    fn cut(&mut self, a: &str, b: &str) {
        for (x, y) in [(a, b), (b, a)] {
            self.links.remove(&(x.into(), y.into()));
            self.node(x).told.remove(y);
        }
    }

    fn split(&mut self, words: &[&str]) {
        let sides: Vec<&[&str]> = words.split(|word| *word == "/").collect();
        for (at, side) in sides.iter().enumerate() {
            for other in &sides[at + 1..] {
                side.iter().for_each(|a| other.iter().for_each(|b| self.cut(a, b)));
            }
        }
    }

    fn crash(&mut self, at: &str) {
        self.peers(at).iter().for_each(|peer| self.cut(at, peer));
        self.node(at).is_up = false;
    }

    fn restart(&mut self, at: &str) {
        let name = NodeName::new(at).unwrap();
        let node = self.node(at);
        node.is_up = true;
        node.life += 1;
        node.reports = Reports::new(name);
        node.door = DatagramDoor::new(&node.ring, epochs(at, node.life));
    }

    // Keys.

    /// The members that count at a node, and what each keeps, as it has heard.
    fn members(&mut self, at: &str) -> Vec<(String, Option<RingSummary>)> {
        self.say(at);
        let reports = self.nodes[at].reports.all();
        let of = |name: &String| reports.iter().find(|report| report.name.as_str() == name);
        let members = self.nodes.iter().filter(|(_, node)| node.is_member).map(|(name, _)| name);
        members
            .filter(|name| of(name).is_none_or(|report| !report.is_gone))
            .map(|name| (name.clone(), of(name).and_then(Report::kept).cloned()))
            .collect()
    }

    fn order(&mut self, at: &str, name: &str, what: &str, force: bool) {
        let (new, id) = (key(name), key(name).id());
        if !force {
            let members = self.members(at);
            let members = || members.iter().map(|(name, ring)| (name.as_str(), ring.as_ref()));
            let blocking = match what {
                "removed" => blocks_removal(id, members()),
                _ => blocks_use(id, members()),
            };
            if !blocking.is_empty() {
                let who = blocking.join(" ");
                return self.print(format!("{at}: {name} cannot be {what} yet, because of {who}"));
            }
        }
        let ring = &mut self.node(at).ring;
        let applied = match what {
            "added" => ring.order_add(new),
            "used" => ring.order_use(id),
            _ => ring.order_remove(id),
        };
        self.applied(at, name, what, applied);
    }

    fn by_hand(&mut self, at: &str, what: &str, name: &str) {
        let (new, id) = (key(name), key(name).id());
        let ring = &mut self.node(at).ring;
        let (what, applied) = match what {
            "add" => ("added by hand", ring.add(new)),
            "use" => ("used by hand", ring.make_primary(id)),
            "remove" => ("removed by hand", ring.remove(id)),
            _ => panic!("{what}?"),
        };
        self.applied(at, name, what, applied);
    }

    fn applied(&mut self, at: &str, name: &str, what: &str, applied: Result<Applied, RingError>) {
        self.print(match applied {
            Ok(Applied::Changed) => format!("{at}: {name} is {what}"),
            Ok(Applied::Already) => format!("{at}: {name} is {what} already"),
            Err(error) => readable(&format!("{at}: {error}")),
        });
        self.after_change(at);
    }

    /// The ring may be another one: datagrams use it from now on, and links of removed keys end.
    fn after_change(&mut self, at: &str) {
        let node = self.node(at);
        node.door.set_ring(&node.ring);
        let ring = node.ring.clone();
        for peer in self.peers(at) {
            let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
            let link = [pair(at, &peer), pair(&peer, at)];
            let link = link.iter().find_map(|pair| self.links.get(pair)).unwrap();
            if ring.lookup(link.0.key).is_none() {
                let name = name_of(link.0.key);
                self.print(format!("{at} closes the link to {peer}: {name} is removed"));
                self.cut(at, &peer);
            }
        }
        self.say(at);
    }

    fn say(&mut self, at: &str) {
        self.now += 1;
        let report = report(at, &self.nodes[at], self.now);
        self.node(at).reports.say(report);
    }

    fn forget(&mut self, at: &str, name: &str) {
        self.now += 1;
        let (now, ring) = (self.now, self.nodes[at].ring.summary());
        self.node(at).reports.forget(&NodeName::new(name).unwrap(), now, ring);
    }

    fn plan(&mut self, at: &str) {
        let Plan { next, old } = Plan::of(&self.nodes[at].ring.summary());
        let next = match next {
            Next::Make => "make a key".to_owned(),
            Next::GoOn(id) => format!("go on with {}", name_of(id)),
            Next::InUse(id) => format!("{} is in use", name_of(id)),
        };
        let old = names_of(old);
        self.print(format!("{at}: {next}; old: {old}"));
    }

    fn show(&mut self, name: &str) {
        let ring = &self.nodes[name].ring;
        let removed = names_of(ring.removed().iter().copied());
        let line = format!("{name}: {}; removed: {removed}", keys_of(&ring.summary()));
        self.print(line);
    }

    /// Until nobody has anything to say.
    fn hand_over(&mut self) {
        let names: Vec<String> =
            self.nodes.iter().filter(|(_, n)| n.is_up).map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.say(name);
        }
        while names.iter().any(|name| self.tell_all(name)) {}
    }

    fn tell_all(&mut self, at: &str) -> bool {
        let peers = self.peers(at);
        peers.iter().filter(|peer| self.tell(at, peer)).count() > 0
    }

    /// What a node has not told a peer yet; whether there was anything.
    fn tell(&mut self, at: &str, peer: &str) -> bool {
        if !self.peers(at).contains(peer) {
            return false;
        }
        let node = self.node(at);
        let (message, told) = node.reports.tell(node.ring.handed(), node.told.get(peer));
        node.told.insert(peer.into(), told);
        let Some(message) = message else { return false };
        let bytes = self.through_link(at, peer, &message);
        self.print(format!("{at} -> {peer}: {}", shown(&message)));
        let frame = split_frame(&bytes, 1 << 20).unwrap().unwrap();
        assert_eq!((frame.kind, frame.length), (KEYS_FRAME, bytes.len()));
        let network = self.nodes[peer].ring.network().clone();
        let heard = HandOver::decode(frame.body, &network).unwrap();
        assert_eq!(heard, message);
        let there = self.node(peer);
        match there.ring.merge(&heard.handed) {
            Ok(_) => {}
            Err(error) => self.print(readable(&format!("{peer}: {error}"))),
        }
        let there = self.node(peer);
        heard.reports.into_iter().for_each(|report| there.reports.take(report));
        self.after_change(peer);
        true
    }

    /// A frame as a record of the link.
    fn through_link(&mut self, from: &str, to: &str, message: &HandOver) -> Vec<u8> {
        let (mut frame, mut record, mut opened) = (Vec::new(), Vec::new(), Vec::new());
        message.encode(&mut frame);
        let pair = (from.to_owned(), to.to_owned());
        if let Some((ours, theirs)) = self.links.get_mut(&pair) {
            ours.sealer.seal(&frame, &mut record).unwrap();
            theirs.opener.open(&record, &mut opened).unwrap();
        } else {
            let (theirs, ours) = self.links.get_mut(&(to.to_owned(), from.to_owned())).unwrap();
            ours.sealer.seal(&frame, &mut record).unwrap();
            theirs.opener.open(&record, &mut opened).unwrap();
        }
        assert!(!record.windows(8).any(|part| frame.windows(8).any(|plain| plain == part)));
        opened
    }

    // Datagrams.

    fn send(&mut self, a: &str, b: &str, text: &str) {
        let mut out = Vec::new();
        let network = self.nodes[a].ring.network().as_str().to_owned();
        let now = self.now;
        self.node(a).door.seal(addr(b), &plain(&network, text), now, &mut out);
        out.into_iter().for_each(|outgoing| self.carry(a, outgoing));
    }

    /// Carries a datagram to its end, and all that comes of it.
    fn carry(&mut self, from: &str, outgoing: Outgoing) {
        let Outgoing { to, bytes } = outgoing;
        let to = self.nodes.keys().find(|name| addr(name) == to).unwrap().clone();
        self.datagrams.insert((from.into(), to.clone()), bytes.clone());
        let id = KeyId(bytes[6..10].try_into().unwrap());
        self.print(format!("{from} -> {to}: {} bytes, sealed with {}", bytes.len(), name_of(id)));
        let mut out = Vec::new();
        let now = self.now;
        let opened = self.node(&to).door.open(addr(from), &bytes, now, &mut out);
        let network = self.nodes[&to].ring.network().as_str().to_owned();
        self.print(match opened {
            Opened::Datagram(content) => {
                let text = &content[plain(&network, "").len()..];
                format!("{to} takes {:?}", String::from_utf8_lossy(text))
            }
            Opened::Handled => format!("{to} learns an epoch, or tells its own"),
            Opened::Dropped(why) => format!("{to} drops it: {why:?}"),
        });
        out.into_iter().for_each(|outgoing| self.carry(&to, outgoing));
    }
}

/// Epochs of a node's life that are no other's.
fn epochs(name: &str, life: u64) -> impl FnMut() -> u64 + Send + 'static {
    let mut next = u64::from(name.as_bytes()[0]) * 1_000_000 + life * 1_000;
    move || {
        next += 1;
        next
    }
}
