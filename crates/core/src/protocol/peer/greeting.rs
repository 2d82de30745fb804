//! The first words on a link. The dialling side sends a [`Hello`]; the other answers with its
//! own [`Hello`] or with a [`Refusal`] that says what to do. Both check the other's.
//!
//! A greeting is a frame whose body is a MessagePack map with text keys, so that it can grow;
//! unknown keys are ignored. The field `auth` is reserved: with a shared cluster key it will
//! carry the first message of the key exchange.

use crate::model::ids::{Incarnation, Millis, NodeName, Tock};
use crate::model::invariant::OrBroken;
use crate::model::limits;
use crate::model::value::{
    ReadError, Reader, write_array_len, write_bool, write_map_len, write_str, write_u64,
};
use crate::protocol::frame::{Frame, write_frame};

const HELLO: u8 = 0x44;
const REFUSAL: u8 = 0x45;

/// The peer protocol's version that this software speaks.
pub const VERSION: u64 = 3;
/// The oldest version that it still understands. In version 1, lists that were too long were
/// truncated, and the receiver took a part for the whole.
pub const VERSION_OLDEST: u64 = 2;
/// The first version whose speakers can read paths with arrays as elements; an older one closes the
/// link when it gets such a path. So a node that holds one speaks no older version.
pub const VERSION_ARRAY_PATHS: u64 = 3;
/// Most bytes of an address or a text in a greeting.
const TEXT_BYTES_MAX: usize = 512;

/// The limits of the protocol, which must be the same on both sides: a limit that differs from
/// node to node is divergence.
pub const LIMITS: [u64; 5] = [
    limits::CHAIN_LEN_MAX as u64,
    limits::PATH_ELEMENTS_MAX as u64,
    limits::PATH_BYTES_MAX as u64,
    limits::VALUE_BYTES_MAX as u64,
    limits::VALUE_DEPTH_MAX as u64,
];

/// A node's identity and the versions that it speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Oldest and newest version of the peer protocol that the sender speaks.
    pub versions: (u64, u64),
    /// Bits for optional features; none are defined yet, unknown ones are ignored.
    pub features: u64,
    /// The network's name, so that two networks never mix.
    pub network: String,
    /// The sender's name.
    pub name: NodeName,
    /// Which of its lives.
    pub incarnation: Incarnation,
    /// Where peers reach the sender (`host:port`, UDP and TCP).
    pub gossip: String,
    /// Where clients reach it (`host:port`).
    pub client: String,
    /// The sender has caught up and serves clients.
    pub ready: bool,
    /// For how long it has served clients, milliseconds; 0 while it does not. Of two living nodes
    /// of one name, the one that has served longer keeps it.
    pub serving_ms: Millis,
    /// Of a sender that is not ready: whether it may begin without a node to catch up from, and if
    /// so, its tock (0 without data). None of a node that waits until it has joined. If all wait,
    /// as after a power failure, the one with the greatest tock begins: [`Self::begins_before`].
    pub may_begin: Option<Tock>,
    /// [`LIMITS`] as the sender knows them.
    pub limits: Vec<u64>,
    /// The sender's software version, for operators.
    pub software: String,
    /// Addresses of other members, so that a joiner knows more than one.
    pub peers: Vec<String>,
}

/// Why a greeting was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// A fixed word for programs.
    pub code: RefusalCode,
    /// What is wrong and what to do, for people.
    pub text: String,
    /// With [`RefusalCode::NameInUse`]: where the node is that has the name (`host:port`), so
    /// that the refused one can ask it itself.
    pub holder: Option<String>,
}

/// The fixed words of a [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCode {
    /// No common version of the protocol.
    Version,
    /// Another network.
    Network,
    /// Other limits: other software.
    Limits,
    /// A live node of that name is in the network already, as the answering node sees it. That
    /// may be out of date: the node may have just died.
    NameInUse,
    /// The answering node itself has that name, and keeps it.
    NameHeld,
    /// The dialling node reached itself.
    Myself,
    /// Another connection between the two stands already.
    Linked,
    /// The node has too many links or is going away.
    Unavailable,
    /// Something this version does not know.
    Other,
}

impl RefusalCode {
    const ALL: [(Self, &'static str); 9] = [
        (Self::Version, "version"),
        (Self::Network, "network"),
        (Self::Limits, "limits"),
        (Self::NameInUse, "name_in_use"),
        (Self::NameHeld, "name_held"),
        (Self::Myself, "myself"),
        (Self::Linked, "linked"),
        (Self::Unavailable, "unavailable"),
        (Self::Other, "other"),
    ];

    /// The word on the wire and in logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(code, _)| *code == self).map_or("other", |(_, word)| word)
    }
}

/// Either answer to a greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Greeting {
    /// The other side's own greeting.
    Hello(Box<Hello>),
    /// It does not want to talk to us.
    Refusal(Refusal),
}

/// Why bytes are no greeting: most likely the other side is no node at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// Not a frame of a greeting.
    #[error("this is not a distkv peer: its first frame is of kind {0}")]
    Kind(u8),
    /// Not the MessagePack that belongs there.
    #[error("bad greeting: {0}")]
    Read(#[from] ReadError),
    /// A name that no node can have.
    #[error("bad greeting: {0}")]
    Name(#[from] crate::model::ids::NameError),
    /// A field that must be there is not.
    #[error("a greeting lacks its field {0:?}")]
    Missing(&'static str),
    /// A text or list that is too long.
    #[error("a greeting's field is too long")]
    TooLong,
}

impl Greeting {
    /// Reads a greeting.
    ///
    /// # Errors
    /// [`GreetingError`]; the connection should be closed.
    pub fn decode(frame: &Frame<'_>) -> Result<Self, GreetingError> {
        match frame.kind {
            HELLO => decode_hello(frame.body).map(|h| Self::Hello(Box::new(h))),
            REFUSAL => decode_refusal(frame.body).map(Self::Refusal),
            kind => Err(GreetingError::Kind(kind)),
        }
    }
}

fn read_text(r: &mut Reader<'_>) -> Result<String, GreetingError> {
    let text = r.read_str()?;
    if text.len() > TEXT_BYTES_MAX { Err(GreetingError::TooLong) } else { Ok(text.to_owned()) }
}

fn decode_hello(body: &[u8]) -> Result<Hello, GreetingError> {
    let mut r = Reader::new(body);
    let (mut versions, mut network, mut name, mut incarnation) = (None, None, None, None);
    let (mut gossip, mut client, mut limits) = (None, String::new(), Vec::new());
    let (mut features, mut ready, mut software) = (0, false, String::new());
    let (mut serving_ms, mut may_begin) = (0, None);
    let mut peers = Vec::new();
    for _ in 0..r.read_map_len()? {
        match r.read_str()? {
            "versions" => {
                if r.read_array_len()? != 2 {
                    return Err(GreetingError::Missing("versions"));
                }
                versions = Some((r.read_u64()?, r.read_u64()?));
            }
            "features" => features = r.read_u64()?,
            "network" => network = Some(read_text(&mut r)?),
            "name" => name = Some(NodeName::new(r.read_str()?)?),
            "incarnation" => incarnation = Some(Incarnation(r.read_u64()?)),
            "gossip" => gossip = Some(read_text(&mut r)?),
            "client" => client = read_text(&mut r)?,
            "ready" => ready = r.read_bool()?,
            "serving_ms" => serving_ms = r.read_u64()?,
            "may_begin" => may_begin = Tock::new(r.read_u64()?),
            "software" => software = read_text(&mut r)?,
            "limits" => {
                for _ in 0..r.read_array_len()?.min(64) {
                    limits.push(r.read_u64()?);
                }
            }
            "peers" => {
                for _ in 0..r.read_array_len()?.min(PEERS_MAX) {
                    peers.push(read_text(&mut r)?);
                }
            }
            _ => r.skip()?,
        }
    }
    Ok(Hello {
        versions: versions.ok_or(GreetingError::Missing("versions"))?,
        features,
        network: network.ok_or(GreetingError::Missing("network"))?,
        name: name.ok_or(GreetingError::Missing("name"))?,
        incarnation: incarnation.ok_or(GreetingError::Missing("incarnation"))?,
        gossip: gossip.ok_or(GreetingError::Missing("gossip"))?,
        client,
        ready,
        serving_ms,
        may_begin,
        limits,
        software,
        peers,
    })
}

/// Most addresses of other members in a greeting, so that it fits its frame.
pub const PEERS_MAX: usize = 32;

impl Hello {
    /// Appends the greeting as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write_frame(HELLO, out, |out| {
            write_map_len(12 + usize::from(self.may_begin.is_some()), out);
            write_str("versions", out);
            write_array_len(2, out);
            write_u64(self.versions.0, out);
            write_u64(self.versions.1, out);
            write_str("features", out);
            write_u64(self.features, out);
            write_str("incarnation", out);
            write_u64(self.incarnation.0, out);
            for (key, text) in [
                ("network", self.network.as_str()),
                ("name", self.name.as_str()),
                ("gossip", &self.gossip),
                ("client", &self.client),
                ("software", &self.software),
            ] {
                write_str(key, out);
                write_str(text, out);
            }
            write_str("ready", out);
            write_bool(self.ready, out);
            write_str("serving_ms", out);
            write_u64(self.serving_ms, out);
            if let Some(tock) = self.may_begin {
                write_str("may_begin", out);
                write_u64(tock.get(), out);
            }
            write_str("limits", out);
            write_array_len(self.limits.len(), out);
            for limit in &self.limits {
                write_u64(*limit, out);
            }
            write_str("peers", out);
            let peers = self.peers.get(..PEERS_MAX).unwrap_or(&self.peers);
            write_array_len(peers.len(), out);
            for peer in peers {
                write_str(peer, out);
            }
        });
    }

    /// Checks the other side's greeting against our own.
    ///
    /// # Errors
    /// The [`Refusal`] to send back.
    pub fn check(&self, other: &Self) -> Result<(), Refusal> {
        let refuse = |code, text| Err(Refusal::new(code, text));
        if other.network != self.network {
            return refuse(
                RefusalCode::Network,
                format!(
                    "this is node {} of network {:?}, and you are of network {:?}; check \
                     --network and the peer's address",
                    self.name, self.network, other.network
                ),
            );
        }
        let newest = self.versions.1.min(other.versions.1);
        if newest < self.versions.0 || newest < other.versions.0 {
            return refuse(
                RefusalCode::Version,
                format!(
                    "node {} speaks peer protocol {} to {}, you speak {} to {}; upgrade the older",
                    self.name, self.versions.0, self.versions.1, other.versions.0, other.versions.1
                ),
            );
        }
        if other.limits != self.limits {
            return refuse(
                RefusalCode::Limits,
                format!(
                    "node {} was built with other limits of the protocol ({:?}, yours {:?}); all \
                     nodes of a network must have the same",
                    self.name, self.limits, other.limits
                ),
            );
        }
        if other.name == self.name {
            return if other.incarnation == self.incarnation {
                refuse(RefusalCode::Myself, format!("node {} reached itself", self.name))
            } else {
                refuse(RefusalCode::NameHeld, format!("a node {} is running here", self.name))
            };
        }
        Ok(())
    }

    /// Whether this node begins rather than that one, if neither serves clients yet and no other
    /// node does: the one with the greater tock first, then the smaller name.
    #[must_use]
    pub fn begins_before(&self, other: &Self) -> bool {
        match (self.may_begin, other.may_begin) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(own), Some(theirs)) => (theirs, &self.name) < (own, &other.name),
        }
    }

    /// Whether, of two living nodes of one name, this one keeps it: the one that has served clients
    /// for longer. Both sides of a connection come to the same result.
    #[must_use]
    pub fn keeps_name_against(&self, other: &Self) -> bool {
        let rank = |of: &Self| (of.ready, of.serving_ms, std::cmp::Reverse(of.incarnation));
        rank(self) > rank(other)
    }
}

fn decode_refusal(body: &[u8]) -> Result<Refusal, GreetingError> {
    let mut r = Reader::new(body);
    let (mut code, mut text, mut holder) = (RefusalCode::Other, String::new(), None);
    for _ in 0..r.read_map_len()? {
        match r.read_str()? {
            "code" => {
                let word = r.read_str()?;
                let known = RefusalCode::ALL.iter().find(|(_, w)| *w == word);
                code = known.map_or(RefusalCode::Other, |(code, _)| *code);
            }
            "text" => text = read_text(&mut r)?,
            "holder" => holder = Some(read_text(&mut r)?),
            _ => r.skip()?,
        }
    }
    Ok(Refusal { code, text, holder })
}

impl Refusal {
    /// One that names no holder.
    #[must_use]
    pub fn new(code: RefusalCode, text: String) -> Self {
        Self { code, text, holder: None }
    }

    /// Appends the refusal as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write_frame(REFUSAL, out, |out| {
            write_map_len(2 + usize::from(self.holder.is_some()), out);
            write_str("code", out);
            write_str(self.code.as_str(), out);
            write_str("text", out);
            let end = self.text.floor_char_boundary(TEXT_BYTES_MAX);
            let text = self.text.get(..end).or_broken("a boundary lies within its text");
            write_str(text, out);
            if let Some(holder) = &self.holder {
                write_str("holder", out);
                write_str(holder, out);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::frame::{GREETING_BYTES_MAX, split_frame};

    fn hello(name: &str, network: &str) -> Hello {
        Hello {
            versions: (VERSION_OLDEST, VERSION),
            features: 0,
            network: network.into(),
            name: NodeName::new(name).unwrap(),
            incarnation: Incarnation(9),
            gossip: "[::1]:27587".into(),
            client: "127.0.0.1:27586".into(),
            ready: true,
            serving_ms: 5,
            may_begin: None,
            limits: LIMITS.to_vec(),
            software: "0.1.0".into(),
            peers: vec!["a:1".into()],
        }
    }

    fn through(encode: impl FnOnce(&mut Vec<u8>)) -> Greeting {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        let frame = split_frame(&bytes, GREETING_BYTES_MAX).unwrap().unwrap();
        Greeting::decode(&frame).unwrap()
    }

    #[test]
    fn greetings_and_refusals_come_back_as_they_were() {
        let sent = hello("a", "net");
        assert_eq!(through(|out| sent.encode(out)), Greeting::Hello(Box::new(sent)));
        let sent = Hello { ready: false, may_begin: Tock::new(7), ..hello("a", "net") };
        assert_eq!(through(|out| sent.encode(out)), Greeting::Hello(Box::new(sent)));
        let refusal = Refusal::new(RefusalCode::Network, "other network".into());
        assert_eq!(through(|out| refusal.encode(out)), Greeting::Refusal(refusal.clone()));
        let holder = Some("a:1".into());
        let refusal = Refusal { code: RefusalCode::NameInUse, holder, ..refusal };
        assert_eq!(through(|out| refusal.encode(out)), Greeting::Refusal(refusal));
    }

    #[test]
    fn nodes_that_must_not_meet_are_refused_with_a_reason() {
        let own = hello("a", "prod");
        let code = |other: &Hello| own.check(other).unwrap_err().code;
        assert_eq!(own.check(&hello("b", "prod")), Ok(()));
        assert_eq!(code(&hello("b", "staging")), RefusalCode::Network);
        assert_eq!(code(&hello("a", "prod")), RefusalCode::Myself);
        let twin = Hello { incarnation: Incarnation(1), ..hello("a", "prod") };
        assert_eq!(code(&twin), RefusalCode::NameHeld);
        let newer = Hello { versions: (VERSION + 1, VERSION + 3), ..hello("b", "prod") };
        assert_eq!(code(&newer), RefusalCode::Version);
        let other = Hello { limits: vec![1], ..hello("b", "prod") };
        assert_eq!(code(&other), RefusalCode::Limits);
    }

    #[test]
    fn of_nodes_that_all_wait_exactly_one_begins() {
        let waiting = |name, tock: Option<u64>| Hello {
            ready: false,
            may_begin: tock.and_then(Tock::new),
            ..hello(name, "net")
        };
        // In the order in which they begin.
        let order = [("c", Some(9)), ("d", Some(9)), ("b", Some(3)), ("a", Some(0)), ("e", None)];
        let order = order.map(|(name, tock)| waiting(name, tock));
        for (at, own) in order.iter().enumerate() {
            for (other_at, other) in order.iter().enumerate() {
                assert_eq!(own.begins_before(other), at < other_at, "{own:?} {other:?}");
            }
        }
        assert!(!waiting("e", None).begins_before(&waiting("f", None)), "they wait for a third");
    }

    #[test]
    fn of_two_nodes_of_one_name_the_one_that_has_served_longer_keeps_it() {
        let node = |ready, serving_ms, incarnation| Hello {
            ready,
            serving_ms,
            incarnation: Incarnation(incarnation),
            ..hello("a", "net")
        };
        let order = [node(true, 9, 5), node(true, 2, 4), node(false, 0, 1), node(false, 0, 2)];
        for (at, own) in order.iter().enumerate() {
            for (other_at, other) in order.iter().enumerate() {
                assert_eq!(own.keeps_name_against(other), at < other_at, "{own:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_connection_of_another_protocol_is_told_apart() {
        let frame = Frame { kind: 0x20, body: b"GET / HTTP/1.1", length: 19 };
        assert_eq!(Greeting::decode(&frame), Err(GreetingError::Kind(0x20)));
    }
}
