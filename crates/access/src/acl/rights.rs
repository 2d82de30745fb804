//! What one client may do with the data: a compiled table, asked by path, or step by step.

use distkv_model::path::Path;

use super::{Acl, Letters};
use crate::patterns::{States, element_slices};

/// Nil as an element: what lies below it is no data.
pub(super) const NIL: &[u8] = b"\xc0";
/// What every client may read below nil: type checks, and which nodes are to serve which shards.
const SHOWN: [&[u8]; 3] = [b"\xa4type", b"\xa5match", b"\xa6shards"];
/// The entry that every client may read if no pattern decides: the original's clients read it when they start.
pub(super) const CONFIG: [&[u8]; 2] = [b"\xa7.distkv", b"\xa6config"];

/// What one client may do with the data. Paths are whole ones, whatever root the session has; elements and
/// paths are canonical bytes.
#[derive(Debug)]
pub struct Rights(pub(super) Kind);

#[derive(Debug)]
pub(super) enum Kind {
    /// Everything, also below nil.
    Everything,
    /// All data; below nil only reading what is shown to all.
    Data,
    /// What a list says; below nil as above.
    Acl(Acl),
}

impl Rights {
    /// Everything, also below nil: an admin's.
    #[must_use]
    pub fn everything() -> Self {
        Self(Kind::Everything)
    }

    /// All data and nothing below nil: of the access list `*`.
    #[must_use]
    pub fn all_data() -> Self {
        Self(Kind::Data)
    }

    /// As of a list without patterns: only `.distkv.config` may be read.
    #[must_use]
    pub fn nothing() -> Self {
        Self::of(Acl::default())
    }

    /// What a list allows.
    #[must_use]
    pub fn of(acl: Acl) -> Self {
        Self(Kind::Acl(acl))
    }

    /// Whether every path has all letters, so that nothing needs to be asked.
    #[inline]
    #[must_use]
    pub fn is_everything(&self) -> bool {
        matches!(self.0, Kind::Everything)
    }

    /// The letters at a path.
    #[must_use]
    pub fn letters(&self, path: &[u8]) -> Letters {
        self.at(path).letters()
    }

    /// The letters of a topic (its elements one after the other): `r` to monitor, `w` to send. There is no way
    /// to check. For a client that monitors topics by wildcards, ask for the topic of each message.
    #[must_use]
    pub fn topic(&self, topic: &[u8]) -> Letters {
        self.topic_at(topic).letters()
    }

    /// At a topic, or at what several have in common (its elements one after the other).
    #[must_use]
    pub fn topic_at(&self, topic: &[u8]) -> Cursor<'_> {
        self.at(b"\xa4:msg").descend_all(topic)
    }

    /// At the root of the tree.
    #[must_use]
    pub(crate) fn root(&self) -> Cursor<'_> {
        Cursor { rights: self, place: self.first_place() }
    }

    /// At the root of the tree.
    pub(super) fn first_place(&self) -> Place {
        match &self.0 {
            Kind::Everything => Place::Everything,
            Kind::Data => Place::Data,
            Kind::Acl(acl) => Place::Acl { states: acl.patterns.start(), on_config: Some(0) },
        }
    }

    /// At a child of a place of these rights: one element, in canonical bytes.
    pub(super) fn place_below(&self, place: &Place, element: &[u8]) -> Place {
        match (place, &self.0) {
            (Place::Everything, _) => Place::Everything,
            (Place::Nil, _) if SHOWN.contains(&element) => Place::Shown,
            (Place::Nil | Place::System, _) => Place::System,
            (Place::Shown, _) => Place::Shown,
            (Place::Data | Place::Acl { .. }, _) if element == NIL => Place::Nil,
            (Place::Acl { states, on_config }, Kind::Acl(acl)) => {
                let states = acl.patterns.step(states, element);
                let on_config =
                    on_config.filter(|at| CONFIG.get(*at) == Some(&element)).map(|at| at + 1);
                Place::Acl { states, on_config }
            }
            (Place::Data | Place::Acl { .. }, _) => Place::Data,
        }
    }

    /// The letters at a place of these rights.
    pub(super) fn letters_at(&self, place: &Place) -> Letters {
        match (place, &self.0) {
            (Place::Acl { states, on_config }, Kind::Acl(acl)) => match acl.decides(states) {
                Some(flags) => flags.letters,
                None => {
                    let way = match states.is_empty() {
                        true => Letters::NONE,
                        false => Letters::PASS | Letters::NEW,
                    };
                    way | config_letters(*on_config)
                }
            },
            (Place::Everything | Place::Data | Place::Acl { .. }, _) => Letters::ALL,
            (Place::Nil, _) => Letters::PASS,
            (Place::Shown, _) => Letters::READ | Letters::PASS | Letters::ENUM,
            (Place::System, _) => Letters::NONE,
        }
    }

    /// At a path.
    #[must_use]
    pub fn at(&self, path: &[u8]) -> Cursor<'_> {
        self.root().descend_all(path)
    }

    /// At a path, if the way there may be taken: for each element that is there, its parent must have `x`;
    /// for each that would be made, `n`. `is_there` says whether there is something at, or below, the first so
    /// many elements of the path.
    ///
    /// # Errors
    /// Which letter is missing, and where.
    pub fn way(
        &self,
        path: &[u8],
        mut is_there: impl FnMut(usize) -> bool,
    ) -> Result<Cursor<'_>, Missing> {
        let mut cursor = self.root();
        for (depth, element) in element_slices(path).enumerate() {
            let letters = cursor.letters();
            if !letters.has(Letters::PASS | Letters::NEW) {
                let letter = if is_there(depth + 1) { Letters::PASS } else { Letters::NEW };
                if !letters.has(letter) {
                    return Err(Missing { depth, letter });
                }
            }
            cursor = cursor.descend(element);
        }
        Ok(cursor)
    }

    /// The letters at a path that are of use to a request: those of actions whose way there may be taken. A change makes
    /// what is not there on its way; whatever else is asked for takes the way as if all of it were there, so that what
    /// is there does not show. `is_there`: see [`Self::way`].
    #[must_use]
    pub fn reached(&self, path: &[u8], is_there: impl FnMut(usize) -> bool) -> Letters {
        let letters =
            |way: Result<Cursor<'_>, Missing>| way.map_or(Letters::NONE, |place| place.letters());
        Letters::by_way(letters(self.way(path, is_there)), letters(self.way(path, |_| true)))
    }

    /// The letters at a path, and why.
    #[must_use]
    pub fn explain(&self, path: &[u8]) -> Explained {
        self.at(path).explain()
    }
}

/// A letter that is needed on the way to a path, and that its parent does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing {
    /// How many elements lead to where it is missing.
    pub depth: usize,
    /// Which one.
    pub(crate) letter: Letters,
}

/// A place in the tree, with the letters there. Going down from it costs as much as one element, so that
/// walks do not begin at the root for each entry.
#[derive(Clone, Debug)]
pub struct Cursor<'r> {
    rights: &'r Rights,
    place: Place,
}

/// A place in the tree, of some rights.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Everything,
    Data,
    /// At nil, for those who have no rights there.
    Nil,
    /// Below nil, what is shown to all.
    Shown,
    /// Below nil, all else.
    System,
    /// Only of [`Kind::Acl`].
    Acl {
        states: States,
        /// How many elements of [`CONFIG`] were passed, if no others.
        on_config: Option<usize>,
    },
}

impl Cursor<'_> {
    /// At a child: one element, in canonical bytes.
    #[must_use]
    fn descend(&self, element: &[u8]) -> Self {
        Self { rights: self.rights, place: self.rights.place_below(&self.place, element) }
    }

    /// At what lies below: any number of elements, in canonical bytes.
    #[must_use]
    pub fn descend_all(&self, elements: &[u8]) -> Self {
        let mut cursor = self.clone();
        if !matches!(cursor.place, Place::Everything) {
            for element in element_slices(elements) {
                cursor = cursor.descend(element);
            }
        }
        cursor
    }

    /// The letters here.
    #[must_use]
    pub fn letters(&self) -> Letters {
        self.rights.letters_at(&self.place)
    }

    /// Whether nothing is allowed here and further down, whatever is there: a walk may pass over it.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        match &self.place {
            Place::Everything | Place::Data | Place::Nil | Place::Shown => false,
            Place::System => true,
            Place::Acl { states, on_config } => states.is_empty() && on_config.is_none(),
        }
    }

    /// The letters here, and why.
    #[must_use]
    pub(crate) fn explain(&self) -> Explained {
        let because = match (&self.place, &self.rights.0) {
            (Place::Everything, _) => Because::Everything,
            (Place::Nil | Place::Shown | Place::System, _) => Because::System,
            (Place::Acl { states, on_config }, Kind::Acl(acl)) => match acl.decides(states) {
                Some(flags) => Because::Pattern(flags.pattern.clone()),
                None if states.is_over() => Because::TooMany,
                None if *on_config == Some(CONFIG.len()) => Because::Config,
                None if !states.is_empty() || on_config.is_some() => Because::Way,
                None => Because::NoPattern,
            },
            (Place::Data | Place::Acl { .. }, _) => Because::AllData,
        };
        Explained { letters: self.letters(), because }
    }
}

/// What is allowed for the sake of [`CONFIG`] where no pattern decides.
fn config_letters(on_config: Option<usize>) -> Letters {
    match on_config {
        None => Letters::NONE,
        Some(passed) if passed == CONFIG.len() => Letters::READ | Letters::PASS,
        Some(_) => Letters::PASS,
    }
}

/// The letters at a path, and what decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explained {
    /// The letters.
    pub letters: Letters,
    /// Why these.
    pub because: Because,
}

/// What decides which letters hold at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Because {
    /// The client may do everything.
    Everything,
    /// The client may do everything with data.
    AllData,
    /// The path is below nil.
    System,
    /// This pattern of the list.
    Pattern(Path),
    /// The path is on the way to something.
    Way,
    /// It is the entry that every client may read.
    Config,
    /// No pattern matches.
    NoPattern,
    /// More patterns match than are followed.
    TooMany,
}
