//! How long the lists are that a node sends its peers: the ticks that it has accounted for, those
//! that it lacks, names across a purge. Each is sent in parts, or covered by a sum, or refused: a
//! list that was truncated silently would be taken for the whole (replication rules 3 to 5).
//!
//! | list | what happens to one that is too long |
//! |---|---|
//! | what an asker has, without holes (step 1) | some are left out; the answerer tells more of those |
//! | what an answerer knows (step 2) | sent in parts, each when the one before it is dealt with |
//! | what an asker lacks (step 3) | asked for in parts, each when the data of the one before it is in |
//! | names across a purge | named in parts, each when the one before it is answered |
//! | what has become of the names | refused; an asker that keeps to its own limit is never refused |
//! | a digest | names as many incarnations as fit; a sum covers the rest |
//! | the whole list that a peer wants | not sent; the peer catches up instead |
//! | V of a proposal or an announcement | names as many incarnations as fit; a sum covers the rest
//! |

use crate::model::seen_list::ListMax;
use crate::replica::across::NamesMax;

/// How long the lists in messages to peers may be. The defaults suit everybody but tests: a message
/// has a few MB at the very most, which fits its frame and the queue of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListCaps {
    /// One list of ticks: 16,384 ranges of at most 18 bytes and 24,576 incarnations of at most 76
    /// bytes are 2.2 MB. A healthy network has a few ranges per incarnation. With more ranges, a part
    /// would take longer under the guard; with fewer, more parts would each walk the answerer's tree.
    pub list: ListMax,
    /// Incarnations whose counters an ask contains.
    pub counters: usize,
    /// Names in one message: for each the whole tree is walked on both sides. Nearly always they are
    /// few ranges; if each of 100,000 is one, they are 1.8 MB.
    pub names: NamesMax,
    /// Ranges in the answer to names; at least `names.events`, as each may be a range for itself.
    pub verdict_ranges: usize,
    /// Incarnations and ranges, an item each, in one digest message. At most 18 bytes for a range
    /// and 76 for an incarnation: up to 300 KB.
    pub digest_message: usize,
    /// Items that a digest names in all its messages.
    pub digest: usize,
    /// Ranges that an answerer may send in all the parts of step 2; with more, the asker gives the
    /// catch-up up. Each takes about 32 bytes there.
    pub known_ranges: usize,
}

impl Default for ListCaps {
    fn default() -> Self {
        Self {
            list: ListMax { incarnations: 24_576, ranges: 16_384 },
            counters: 24_576,
            names: NamesMax { events: 100_000, paths: 10_000, bytes: 1 << 20 },
            verdict_ranges: 100_000,
            digest_message: 4_096,
            digest: 16_384,
            known_ranges: 16 << 20,
        }
    }
}
