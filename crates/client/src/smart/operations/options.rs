//! What a caller can say of a read, a write, or a tree.

use std::borrow::Cow;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::chain::Chain;
use crate::message::Fields;
use crate::model::value::Value;
use crate::retry::Idempotency;
use crate::retry::deviations::{Rule, is_broken};
use crate::rt;
use crate::smart::ReadMode;
use crate::smart::operations::write_places::Turn;

/// The id by which nodes recognise a write: two writes never have the same. Random, or made from a text that
/// names this write and no other. A node remembers the last 65,536 ids, and after a restart those of its
/// entries: a write that was overwritten or deleted before that, or is older, is made again.
///
/// ```
/// use distkv_client::{PutOptions, WriteId};
///
/// // Whoever carries out order 17 again, also after a restart: it counts once.
/// let options = PutOptions::new().write_id("order 17");
/// assert_eq!(WriteId::of_text("order 17"), "order 17".into());
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriteId(pub [u8; 16]);

impl WriteId {
    /// A new one.
    #[must_use]
    pub fn random() -> WriteId {
        let both = [rt::random_u64().to_be_bytes(), rt::random_u64().to_be_bytes()];
        let mut id = [0; 16];
        id.iter_mut().zip(both.iter().flatten()).for_each(|(to, from)| *to = *from);
        WriteId(id)
    }

    /// That of a text, the same in all languages: the first 16 bytes of its SHA-256. The text must
    /// name one write only: another value with the same id is refused (`wid_reused`).
    #[must_use]
    pub fn of_text(text: &str) -> WriteId {
        let mut id = [0; 16];
        id.iter_mut().zip(Sha256::digest(text)).for_each(|(to, from)| *to = from);
        WriteId(id)
    }
}

impl From<&str> for WriteId {
    fn from(text: &str) -> WriteId {
        WriteId::of_text(text)
    }
}

impl From<[u8; 16]> for WriteId {
    fn from(bytes: [u8; 16]) -> WriteId {
        WriteId(bytes)
    }
}

/// The options of a read. The default: the client's read mode, and its deadline.
///
/// ```
/// use std::time::Duration;
/// use distkv_client::{GetOptions, ReadMode};
///
/// let options = GetOptions::new().read_mode(ReadMode::Any).deadline(Duration::from_secs(1));
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GetOptions {
    pub(in crate::smart) read_mode: Option<ReadMode>,
    pub(in crate::smart) deadline: Option<Duration>,
}

impl GetOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> GetOptions {
        GetOptions::default()
    }

    /// Which node's answer it takes, instead of what the client's configuration says.
    #[must_use]
    pub fn read_mode(self, read_mode: ReadMode) -> GetOptions {
        GetOptions { read_mode: Some(read_mode), ..self }
    }

    /// How long all tries may take together, instead of what the client's policy says
    /// ([`RetryPolicy::total_deadline`](crate::RetryPolicy)).
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> GetOptions {
        GetOptions { deadline: Some(deadline), ..self }
    }
}

impl From<ReadMode> for GetOptions {
    fn from(read_mode: ReadMode) -> GetOptions {
        GetOptions::new().read_mode(read_mode)
    }
}

/// The options of a write. The default: no precondition, an id of its own, no waiting for copies.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    chain: ChainCondition,
    prev: Option<Value>,
    id: Id,
    copies: u64,
    idempotent: bool,
    pub(super) deadline: Option<Duration>,
}

#[derive(Debug, Clone, Default)]
enum ChainCondition {
    #[default]
    Any,
    New,
    Newest(Chain),
}

#[derive(Debug, Clone, Copy, Default)]
enum Id {
    #[default]
    Automatic,
    Given(WriteId),
    None,
}

impl PutOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> PutOptions {
        PutOptions::default()
    }

    /// Only if the entry's newest event is still this chain's, that is, if nobody has written
    /// since.
    #[must_use]
    pub fn chain(self, chain: Chain) -> PutOptions {
        PutOptions { chain: ChainCondition::Newest(chain), ..self }
    }

    /// Only if there is no value.
    #[must_use]
    pub fn must_be_new(self) -> PutOptions {
        PutOptions { chain: ChainCondition::New, ..self }
    }

    /// Only if the value is this one.
    #[must_use]
    pub fn prev(self, value: Value) -> PutOptions {
        PutOptions { prev: Some(value), ..self }
    }

    /// With this id, or that of a text: another program can make the same write again, also after a
    /// restart, and it counts once ([`Written::repeated`](super::entry::Written::repeated)), within the
    /// limits of [`WriteId`].
    #[must_use]
    pub fn write_id(self, id: impl Into<WriteId>) -> PutOptions {
        PutOptions { id: Id::Given(id.into()), ..self }
    }

    /// Without an id: a write that may have been made is not tried again, which is
    /// [`CallError::FateUnknown`](super::super::CallError::FateUnknown), unless [`PutOptions::chain`],
    /// [`PutOptions::must_be_new`] or [`PutOptions::idempotent`] keeps it from being made twice.
    #[must_use]
    pub fn without_write_id(self) -> PutOptions {
        PutOptions { id: Id::None, ..self }
    }

    /// The write succeeds only when this many other nodes have it. If they do not in time, the change is
    /// made all the same: the error is [`CallError::FateUnknown`](super::super::CallError::FateUnknown),
    /// with the fate [`Fate::Unconfirmed`](super::super::Fate::Unconfirmed). So it is with more copies than there
    /// are nodes at present: missing ones may come. Only in a network of more than 48 nodes, more copies than the node has
    /// links are refused, and nothing is changed.
    #[must_use]
    pub fn copies(self, copies: u64) -> PutOptions {
        PutOptions { copies, ..self }
    }

    /// The same value again is no change, and a success whatever the preconditions say.
    #[must_use]
    pub fn idempotent(self) -> PutOptions {
        PutOptions { idempotent: true, ..self }
    }

    /// How long all tries may take together, instead of what the client's policy says.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> PutOptions {
        PutOptions { deadline: Some(deadline), ..self }
    }

    /// The fields of one try that may take so long: the node's wait for copies ends before that. Its own answer says more
    /// than silence.
    pub(super) fn with_copies<'f>(
        &self,
        fields: &'f Fields,
        patience: impl FnOnce() -> Duration,
    ) -> Cow<'f, Fields> {
        if self.copies == 0 {
            return Cow::Borrowed(fields);
        }
        let wait = patience().mul_f64(COPIES_SHARE);
        let mut own = fields.clone();
        own.u64("copies", self.copies).f64("timeout", wait.as_secs_f64());
        Cow::Owned(own)
    }

    /// Adds the fields of one write, but for its copies.
    pub(super) fn write_into(&self, id: Option<WriteId>, to: &mut Fields) {
        match &self.chain {
            ChainCondition::Any => {}
            ChainCondition::New => drop(to.nil("chain")),
            ChainCondition::Newest(chain) => {
                let mut bytes = Vec::new();
                chain.encode(&mut bytes);
                // It may be that of a deletion: nodes of the original and older ones do not take that.
                to.raw("chain", &bytes).bool("deleted", true);
            }
        }
        if let Some(prev) = &self.prev {
            to.raw("prev", prev.as_bytes());
        }
        if let Some(WriteId(id)) = id {
            to.bin("wid", &id);
        }
        if self.idempotent {
            to.bool("idem", true);
        }
        to.u64("nchain", 1);
    }

    /// The id that all tries carry; `automatic` makes one where the caller has given none.
    pub(super) fn decide_id(&self, automatic: Option<&mut Turn<'_>>) -> Option<WriteId> {
        match self.id {
            _ if is_broken(Rule::WriteIds) => None,
            Id::Given(id) => Some(id),
            Id::Automatic => automatic.map(Turn::id),
            Id::None => None,
        }
    }

    /// Whether the node makes no change where the value is there already.
    pub(super) fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// Whether it is made only where the node has what the caller has read.
    pub(super) fn has_condition(&self) -> bool {
        !matches!(self.chain, ChainCondition::Any) || self.prev.is_some()
    }

    /// Whether only the id makes a second try count once.
    pub(in crate::smart) fn needs_id(&self) -> bool {
        matches!(self.chain, ChainCondition::Any) && !self.idempotent
    }

    /// Whether a second try counts once.
    pub(in crate::smart) fn idempotency(&self, id: Option<WriteId>) -> Idempotency {
        let has_chain = !matches!(self.chain, ChainCondition::Any);
        if id.is_some() || has_chain || self.idempotent {
            Idempotency::Guarded
        } else {
            Idempotency::Unguarded
        }
    }
}

/// The part of a try's time for which a node waits for copies.
const COPIES_SHARE: f64 = 0.75;

/// What part of a tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct TreeOptions {
    /// Levels below the path before which nothing is given.
    pub min_depth: Option<u64>,
    /// Levels below the path behind which nothing is given.
    pub max_depth: Option<u64>,
    /// Whether chains are given, for preconditions.
    pub with_chains: bool,
}

impl TreeOptions {
    /// Adds the fields of a request.
    pub(super) fn write_into(self, to: &mut Fields) {
        if let Some(depth) = self.min_depth {
            to.u64("min_depth", depth);
        }
        if let Some(depth) = self.max_depth {
            to.u64("max_depth", depth);
        }
        if self.with_chains {
            to.u64("nchain", 1).bool("with_time", true);
        }
    }
}

/// How a tree is deleted.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeleteTreeOptions {
    /// Retry also if it is unknown whether all of it was done: entries that others wrote between
    /// two tries are deleted as well.
    pub again_if_unknown: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smart::operations::write_places::WritePlaces;

    #[test]
    fn a_text_has_one_id_in_all_languages() {
        // The first half of the SHA-256 of "abc" (FIPS 180-2, B.1).
        let id = *b"\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23";
        assert_eq!(WriteId::of_text("abc"), WriteId(id));
        assert_eq!(WriteId::from("abc"), WriteId::from(id));
        assert_ne!(WriteId::of_text(""), WriteId::of_text(" "));
    }

    #[test]
    fn all_tries_of_a_write_carry_the_id_that_was_given() {
        let given = PutOptions::new().write_id("order 17");
        let places = WritePlaces::new();
        let mut turn = places.begin(1);
        assert_eq!(given.decide_id(Some(&mut turn)), Some(WriteId::of_text("order 17")));
        assert_eq!(given.decide_id(None), Some(WriteId::of_text("order 17")));
        assert_eq!(PutOptions::new().decide_id(None), None);
        assert!(PutOptions::new().decide_id(Some(&mut turn)).is_some());
        assert_eq!(given.idempotency(given.decide_id(None)), Idempotency::Guarded);
    }
}
