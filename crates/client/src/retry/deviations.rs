//! Rules of `docs/client-behaviour.md` that this client can be made to break, one at a time, so that the scenarios of
//! `clients/conformance` show that they would find it; the names are those of `deviations.toml` there. Only tests and
//! examples can have one broken (feature `planted-defects`, by the variable `DISTKV_PLANTED`); in any other program
//! [`is_broken`] is false, and the compiler leaves it out.

/// A rule that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A write without a guard is not made again where it may have been made.
    Unguarded,
    /// Each write has an id.
    WriteIds,
    /// All clients rank nodes alike.
    Rank,
    /// A node that is not ready does not have the last word.
    NotReady,
    /// A write of unknown fate is asked for at the same node.
    SameNode,
    /// Own writes are read.
    OwnWrites,
    /// A watch that starts over says so.
    Restart,
    /// A write that two nodes may have made is told as such.
    Maybe,
    /// A majority is one of all nodes.
    Majority,
    /// A passing error in a batch moves it.
    Batch,
    /// A watch delivers nothing twice.
    Twice,
    /// Old servers heed no write ids.
    OldServers,
    /// A watch that its node gives up goes on.
    TooSlow,
    /// A stream that is left is stopped at its node.
    StreamStopped,
    /// What is written comes after all that the client knows.
    OwnOrder,
    /// A write says which older ones the client does not wait for any more.
    GivenUp,
    /// A try says until when it counts.
    TryTime,
    /// What has to be sent takes longer than a try.
    SlowLine,
    /// What is still arriving is waited for.
    Arriving,
    /// A write with a condition goes where what it has as its condition was read.
    Apart,
}

#[cfg(feature = "planted-defects")]
const NAMES: [(&str, Rule); 20] = [
    ("a write that may have been made is made again", Rule::Unguarded),
    ("no write has an id", Rule::WriteIds),
    ("each try has another order of nodes", Rule::Rank),
    ("a node that is not ready is believed", Rule::NotReady),
    ("unknown fate is asked elsewhere", Rule::SameNode),
    ("own writes are not looked for", Rule::OwnWrites),
    ("a watch starts over in silence", Rule::Restart),
    ("another node's write is not told as perhaps repeated", Rule::Maybe),
    ("one node is a majority", Rule::Majority),
    ("a passing error in a batch is final", Rule::Batch),
    ("what was delivered is delivered again", Rule::Twice),
    ("old servers are trusted with ids", Rule::OldServers),
    ("a watch that its node gives up has ended", Rule::TooSlow),
    ("a stream that is left goes on", Rule::StreamStopped),
    ("a write does not say what the client knows", Rule::OwnOrder),
    ("a write does not say what is given up", Rule::GivenUp),
    ("a try does not say until when it counts", Rule::TryTime),
    ("what has to be sent takes no longer", Rule::SlowLine),
    ("what is still arriving is cut off", Rule::Arriving),
    ("a write with a condition goes elsewhere than the read", Rule::Apart),
];

/// Whether this process breaks a rule.
#[cfg(feature = "planted-defects")]
pub(crate) fn is_broken(rule: Rule) -> bool {
    static BROKEN: std::sync::OnceLock<Option<Rule>> = std::sync::OnceLock::new();
    let broken = BROKEN.get_or_init(|| {
        let name = std::env::var("DISTKV_PLANTED").ok()?;
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule)
    });
    *broken == Some(rule)
}

/// Whether this process breaks a rule: never.
#[cfg(not(feature = "planted-defects"))]
pub(crate) const fn is_broken(_: Rule) -> bool {
    false
}
