//! The letters of an access list, as a set.

use std::fmt;
use std::ops::BitOr;

/// What is allowed at a path: some of `rwcdxena`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Letters(u8);

impl Letters {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// `r`: read the value; without it an entry is not sent at all.
    pub const READ: Self = Self(1);
    /// `w`: change a value that is there.
    pub const WRITE: Self = Self(1 << 1);
    /// `c`: set a value where there is none.
    pub const CREATE: Self = Self(1 << 2);
    /// `d`: delete the value.
    pub const DELETE: Self = Self(1 << 3);
    /// `x`: pass through, to what lies below.
    pub const PASS: Self = Self(1 << 4);
    /// `e`: list the children.
    pub const ENUM: Self = Self(1 << 5);
    /// `n`: make a child.
    pub(crate) const NEW: Self = Self(1 << 6);
    /// `a`: see these letters (`test_acl`).
    pub const SEE: Self = Self(1 << 7);
    /// Everything.
    pub(crate) const ALL: Self = Self(0xff);
    /// Those of actions that make what is not there on their way.
    const MAKING: Self = Self(Self::WRITE.0 | Self::CREATE.0 | Self::NEW.0);

    const NAMES: [(Self, char); 8] = [
        (Self::READ, 'r'),
        (Self::WRITE, 'w'),
        (Self::CREATE, 'c'),
        (Self::DELETE, 'd'),
        (Self::PASS, 'x'),
        (Self::ENUM, 'e'),
        (Self::NEW, 'n'),
        (Self::SEE, 'a'),
    ];

    /// The letters of a text; others in it are passed over.
    #[must_use]
    pub fn read(text: &str) -> Self {
        text.chars().filter_map(Self::of).fold(Self::NONE, |all, letter| all | letter)
    }

    /// What one letter stands for.
    #[must_use]
    pub fn of(letter: char) -> Option<Self> {
        Self::NAMES.into_iter().find(|(_, name)| *name == letter).map(|(set, _)| set)
    }

    /// Those that are among these and among `other`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Of `making` the letters of actions that make what is not there on their way, of `others` all others.
    pub(super) fn by_way(making: Self, others: Self) -> Self {
        Self((making.0 & Self::MAKING.0) | (others.0 & !Self::MAKING.0))
    }

    /// Whether all letters of `other` are among these.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Letters {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Letters {
    /// In the order `rwcdxena`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Self::NAMES.into_iter().filter(|(letter, _)| self.has(*letter));
        names.try_for_each(|(_, name)| fmt::Write::write_char(f, name))
    }
}

impl fmt::Debug for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Letters({self})")
    }
}
