//! What one client may do with the data: a compiled table, asked by path, or step by step on a walk.

use distkv_model::path::Path;
use distkv_model::path::bytes::common_prefix;

use super::{Acl, Letters};
use crate::patterns::{States, element_slices};

/// The first element of patterns that stand for topics of messages: `::msg.TOPIC` in text. There `r` allows
/// to monitor a topic and `w` to send to it.
pub const TOPICS: &str = ":msg";

/// Nil as an element: what lies below it is no data.
const NIL: &[u8] = b"\xc0";
/// The entry that every client may read if no pattern decides: the original's clients read it when they start.
const CONFIG: [&[u8]; 2] = [b"\xa7.distkv", b"\xa6config"];

/// What one client may do with the data. Paths are whole ones, whatever root the session has; elements and
/// paths are canonical bytes.
#[derive(Debug)]
pub struct Rights(Kind);

#[derive(Debug)]
enum Kind {
    /// Everything, also below nil.
    Everything,
    /// All data, nothing below nil.
    Data,
    /// What a list says, nothing below nil.
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
        self.at(b"\xa4:msg").descend_all(topic).letters()
    }

    /// At the root of the tree.
    #[must_use]
    pub fn root(&self) -> Cursor<'_> {
        let place = match &self.0 {
            Kind::Everything => Place::Everything,
            Kind::Data => Place::Data,
            Kind::Acl(acl) => {
                let on_config = Some(0);
                Place::Acl { acl, states: acl.patterns.start(), on_config }
            }
        };
        Cursor { place }
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
    pub letter: Letters,
}

/// A place in the tree, with the letters there. Going down from it costs as much as one element, so that
/// walks do not begin at the root for each entry.
#[derive(Clone, Debug)]
pub struct Cursor<'r> {
    place: Place<'r>,
}

#[derive(Clone, Debug)]
enum Place<'r> {
    Everything,
    Data,
    /// Below nil, for those who have no rights there.
    System,
    Acl {
        acl: &'r Acl,
        states: States,
        /// How many elements of [`CONFIG`] were passed, if no others.
        on_config: Option<usize>,
    },
}

impl<'r> Cursor<'r> {
    /// At a child: one element, in canonical bytes.
    #[must_use]
    pub fn descend(&self, element: &[u8]) -> Self {
        let place = match &self.place {
            Place::Everything => Place::Everything,
            Place::System => Place::System,
            _ if element == NIL => Place::System,
            Place::Data => Place::Data,
            Place::Acl { acl, states, on_config } => {
                let states = acl.patterns.step(states, element);
                let on_config =
                    on_config.filter(|at| CONFIG.get(*at) == Some(&element)).map(|at| at + 1);
                Place::Acl { acl, states, on_config }
            }
        };
        Self { place }
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
        match &self.place {
            Place::Everything | Place::Data => Letters::ALL,
            Place::System => Letters::NONE,
            Place::Acl { acl, states, on_config } => match acl.decides(states) {
                Some(flags) => flags.letters,
                None => {
                    let way = match states.is_empty() {
                        true => Letters::NONE,
                        false => Letters::PASS | Letters::NEW,
                    };
                    way | config_letters(*on_config)
                }
            },
        }
    }

    /// Whether nothing is allowed here and further down, whatever is there: a walk may pass over it.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        match &self.place {
            Place::Everything | Place::Data => false,
            Place::System => true,
            Place::Acl { states, on_config, .. } => states.is_empty() && on_config.is_none(),
        }
    }

    /// The letters here, and why.
    #[must_use]
    pub fn explain(&self) -> Explained {
        let because = match &self.place {
            Place::Everything => Because::Everything,
            Place::Data => Because::AllData,
            Place::System => Because::System,
            Place::Acl { acl, states, on_config } => match acl.decides(states) {
                Some(flags) => Because::Pattern(flags.pattern.clone()),
                None if states.is_over() => Because::TooMany,
                None if *on_config == Some(CONFIG.len()) => Because::Config,
                None if !states.is_empty() || on_config.is_some() => Because::Way,
                None => Because::NoPattern,
            },
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

/// A walk over paths in their order (as trees have them): what a path has in common with the one before is
/// not matched again.
#[derive(Clone, Debug)]
pub struct Walk<'r> {
    /// The path of the last step.
    path: Vec<u8>,
    /// Invariant: the root's cursor, then one for each element of `path`.
    cursors: Vec<Cursor<'r>>,
}

impl<'r> Walk<'r> {
    /// A walk that may begin anywhere.
    #[must_use]
    pub fn new(rights: &'r Rights) -> Self {
        Self { path: Vec::new(), cursors: vec![rights.root()] }
    }

    /// Goes to a path: the places on the way, from the root to the path itself. Never empty.
    pub fn go(&mut self, path: &[u8]) -> &[Cursor<'r>] {
        let (bytes, elements) = common_prefix(&self.path, path);
        self.cursors.truncate(elements + 1);
        for element in element_slices(path.get(bytes..).unwrap_or_default()) {
            let Some(next) = self.cursors.last().map(|last| last.descend(element)) else { break };
            self.cursors.push(next);
        }
        self.path.truncate(bytes);
        self.path.extend_from_slice(path.get(bytes..).unwrap_or_default());
        &self.cursors
    }

    /// The letters at a path, after going there.
    pub fn letters(&mut self, path: &[u8]) -> Letters {
        self.go(path).last().map_or(Letters::NONE, Cursor::letters)
    }
}
