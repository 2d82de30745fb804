//! How many changes were known here when something last came from each member. By the time a member is noticed to be silent,
//! changes were made that it lacks: they count among those since.

use std::collections::BTreeMap;

use super::SILENT_MEMBERS_MAX;
use crate::model::ids::{Millis, NodeName};

/// For so long after its link has ended, what a member has last said counts. A member may be here without a link: then
/// membership tells when it goes, and a link of long ago says nothing.
const COUNTS_FOR_MS: Millis = 10_000;

/// See the module.
#[derive(Default)]
pub(super) struct LastWords {
    /// At most [`SILENT_MEMBERS_MAX`].
    of: BTreeMap<NodeName, LastWord>,
}

struct LastWord {
    /// When its link was last seen to stand.
    linked_at: Millis,
    known: u64,
}

impl LastWords {
    /// A link to it stands, or ends now. So many changes were known here when something last came over it.
    pub(super) fn note(&mut self, name: NodeName, known: u64, now: Millis) {
        let word = self.of.entry(name).or_insert(LastWord { linked_at: now, known });
        word.linked_at = now;
        // Of two links, the older one may end last.
        word.known = word.known.max(known);
        while self.of.len() > SILENT_MEMBERS_MAX {
            self.of.pop_first();
        }
    }

    /// How many were known when something last came from it, if it had a link when it went silent.
    pub(super) fn of(&self, name: &NodeName, silent_since: Millis) -> Option<u64> {
        let word = self.of.get(name)?;
        let is_recent = silent_since.saturating_sub(word.linked_at) < COUNTS_FOR_MS;
        is_recent.then_some(word.known)
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::COUNTS_FOR_MS;
    use Presence::{Doubtful, Here, Silent};

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    /// How b is, how many changes are known, and how many were when something last came over its link, if it has one.
    fn look(
        watch: &mut SplitWatch,
        b: Presence,
        known: u64,
        word: Option<u64>,
        now: Millis,
    ) -> Vec<News> {
        let network = Network {
            present: BTreeMap::from([(name("b"), b)]),
            known,
            words: word.map(|word| (name("b"), word)).into_iter().collect(),
            ..Network::default()
        };
        watch.look(&network, 600_000, now)
    }

    fn changes(watch: &SplitWatch) -> u64 {
        watch.silent(20_000).unwrap().together[0].changes
    }

    #[test]
    fn what_was_changed_since_the_last_word_counts_and_not_only_since_it_was_noticed() {
        let mut watch = SplitWatch::default();
        look(&mut watch, Here, 10, Some(10), 0);
        // The cable was cut; three changes were made at once.
        look(&mut watch, Here, 13, Some(10), 500);
        look(&mut watch, Doubtful, 13, Some(10), 1_000);
        let news = look(&mut watch, Silent, 14, None, 7_000);
        let News::Silent(text) = &news[0] else { panic!("{news:?}") };
        assert!(text.ends_with("this node goes on alone, 4 changes since"), "{text}");
        assert_eq!(changes(&watch), 4);
        let news = look(&mut watch, Here, 15, Some(15), 8_000);
        let News::Back(text) = &news[0] else { panic!("{news:?}") };
        assert!(text.ends_with("; 5 changes came to be known here meanwhile"), "{text}");
        // What it has said since counts, the next time.
        look(&mut watch, Silent, 16, None, 9_000);
        assert_eq!(changes(&watch), 1);
    }

    #[test]
    fn the_last_word_of_a_link_that_ended_between_two_looks_counts() {
        let mut watch = SplitWatch::default();
        look(&mut watch, Here, 10, Some(10), 0);
        watch.note_last_word(name("b"), 12, 300);
        // An older link of the same peer.
        watch.note_last_word(name("b"), 11, 400);
        look(&mut watch, Here, 20, None, 500);
        look(&mut watch, Silent, 21, None, 4_000);
        assert_eq!(changes(&watch), 9);
    }

    #[test]
    fn a_link_of_long_ago_says_nothing_of_when_a_member_went() {
        let mut watch = SplitWatch::default();
        look(&mut watch, Here, 10, Some(10), 0);
        look(&mut watch, Here, 500, None, COUNTS_FOR_MS);
        look(&mut watch, Doubtful, 501, None, COUNTS_FOR_MS + 500);
        look(&mut watch, Silent, 503, None, COUNTS_FOR_MS + 4_000);
        assert_eq!(changes(&watch), 2);
    }

    #[test]
    fn last_words_are_kept_of_so_many_members() {
        let mut words = LastWords::default();
        for number in 0..=SILENT_MEMBERS_MAX {
            words.note(name(&format!("n{number}")), 1, 0);
        }
        assert_eq!(words.of.len(), SILENT_MEMBERS_MAX);
    }
}
