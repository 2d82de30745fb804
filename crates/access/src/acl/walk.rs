//! Rights along a walk over paths in their order: what a path has in common with the one before is not matched
//! again.

use std::sync::Arc;

use distkv_model::path::bytes::common_prefix;

use super::rights::Place;
use super::{Letters, Rights};
use crate::patterns::element_slices;

/// See the module. The paths may come in any order; in that of trees it costs least.
#[derive(Clone, Debug)]
pub struct Walk {
    rights: Arc<Rights>,
    /// Where it is; canonical bytes.
    path: Vec<u8>,
    /// Invariant: the root's, then one for each element of `path`.
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    place: Place,
    letters: Letters,
    /// How many elements lead to the first place, down to this one, that may not be passed.
    closed_at: Option<usize>,
    /// From so many elements on, all places down to this one may be listed.
    listed_from: usize,
}

impl Step {
    fn new(rights: &Rights, place: Place, depth: usize, before: Option<&Self>) -> Self {
        let letters = rights.letters_at(&place);
        let (closed_at, listed_from) = match before {
            None => (None, 0),
            Some(before) => (before.closed_at, before.listed_from),
        };
        let closed_at = closed_at.or((!letters.has(Letters::PASS)).then_some(depth));
        let listed_from = if letters.has(Letters::ENUM) { listed_from } else { depth + 1 };
        Self { place, letters, closed_at, listed_from }
    }
}

impl Walk {
    /// A walk that begins at the root.
    #[must_use]
    pub fn new(rights: Arc<Rights>) -> Self {
        let root = Step::new(&rights, rights.first_place(), 0, None);
        Self { rights, path: Vec::new(), steps: vec![root] }
    }

    /// Whose rights.
    #[must_use]
    pub fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// Goes to a path (canonical bytes).
    pub fn go(&mut self, path: &[u8]) {
        let (bytes, elements) = common_prefix(&self.path, path);
        self.steps.truncate(elements + 1);
        let rest = path.get(bytes..).unwrap_or_default();
        for element in element_slices(rest) {
            let Some(last) = self.steps.last() else { break };
            let place = self.rights.place_below(&last.place, element);
            let next = Step::new(&self.rights, place, self.steps.len(), Some(last));
            self.steps.push(next);
        }
        self.path.truncate(bytes);
        self.path.extend_from_slice(rest);
    }

    /// Goes back to the root, and keeps no memory for the way that it went.
    pub fn rest(&mut self) {
        self.path = Vec::new();
        self.steps.truncate(1);
        self.steps.shrink_to_fit();
    }

    /// The letters where it is.
    #[must_use]
    pub fn letters(&self) -> Letters {
        self.steps.last().map_or(Letters::NONE, |here| here.letters)
    }

    /// Whether all that lead here may be passed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.parent().is_none_or(|parent| parent.closed_at.is_none())
    }

    /// Whether all that lead here, from so many elements on, may be listed.
    #[must_use]
    pub fn is_listed(&self, from: usize) -> bool {
        let depth = self.steps.len().saturating_sub(1);
        self.parent().is_none_or(|parent| depth <= from || parent.listed_from <= from)
    }

    /// Behind so many elements of the path, as few as there are, nothing can be reached, whatever is there: a place may not be passed
    /// (or, if the walk lists from so many elements on, not be listed). None if something can.
    #[must_use]
    pub fn closed_at(&self, listing_from: Option<usize>) -> Option<usize> {
        let unlisted = listing_from.and_then(|from| {
            let mut steps = self.steps.iter().enumerate().skip(from);
            steps.find(|(_, step)| !step.letters.has(Letters::ENUM)).map(|(depth, _)| depth)
        });
        let closed = self.steps.last()?.closed_at;
        closed.into_iter().chain(unlisted).min()
    }

    fn parent(&self) -> Option<&Step> {
        self.steps.get(self.steps.len().checked_sub(2)?)
    }
}
