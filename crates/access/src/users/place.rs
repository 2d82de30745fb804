//! Which entries below nil are about users and access lists, and what each of them is.

use distkv_model::meta::REVOKED;
use distkv_model::path::{Element, Path, PathError};
use distkv_model::value::{Reader, write_map_len, write_str};

use super::record::Removal;

/// An access list that allows all data.
pub(super) const ALL_DATA: &str = "*";
/// Instead of a list's name: the user has none any more.
pub const NO_LIST: &str = "-";

/// Whether an access list can have this name: `*` and `-` mean something else where a list is given to a user, and an
/// empty one is none.
#[must_use]
pub fn is_list_name(name: &str) -> bool {
    !matches!(name, "" | ALL_DATA | NO_LIST)
}

/// What an entry is; borrowed from its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place<'p> {
    /// Whether and how clients log in.
    Login,
    /// A user's record.
    User {
        /// The method by which the user logs in.
        method: &'p str,
        /// The user's name.
        ident: &'p str,
    },
    /// The name of a user's access list.
    UserAcl {
        /// The method by which the user logs in.
        method: &'p str,
        /// The user's name.
        ident: &'p str,
    },
    /// There is no such user, or only one who was made again.
    Revoked {
        /// The method by which the user would log in.
        method: &'p str,
        /// The user's name.
        ident: &'p str,
    },
    /// One removal of a user, which nobody who made the user again has known of yet.
    Removal {
        /// The method by which the user would log in.
        method: &'p str,
        /// The user's name.
        ident: &'p str,
    },
    /// A pattern of an access list.
    Pattern {
        /// The list's name.
        name: &'p str,
        /// The pattern.
        pattern: Path,
    },
}

impl<'p> Place<'p> {
    /// What the entry at a whole path is; none: neither of these.
    #[must_use]
    pub fn of(path: &'p Path) -> Option<Self> {
        let mut elements = path.elements();
        let (Some(Element::Nil), Some(Element::Str(family))) = (elements.next(), elements.next())
        else {
            return None;
        };
        match family {
            "auth" => Self::of_auth(&elements.collect::<Vec<_>>()),
            "acl" => {
                let Some(Element::Str(name)) = elements.next() else { return None };
                let pattern = Path::from_elements(elements).ok()?;
                Some(Self::Pattern { name, pattern })
            }
            _ => None,
        }
    }

    fn of_auth(rest: &[Element<'p>]) -> Option<Self> {
        use Element::{Bin, Str};
        match *rest {
            [] => Some(Self::Login),
            [Str(REVOKED), Str(method), Str(ident)] => Some(Self::Revoked { method, ident }),
            [Str(REVOKED), Str(method), Str(ident), Bin(_)] => {
                Some(Self::Removal { method, ident })
            }
            [Str(REVOKED), ..] => None,
            [Str(method), Str("user"), Str(ident)] => Some(Self::User { method, ident }),
            [Str(method), Str("user"), Str(ident), Str("acl")] => {
                Some(Self::UserAcl { method, ident })
            }
            _ => None,
        }
    }
}

/// Where a user's record is.
///
/// # Errors
/// The names are too long for a path.
pub fn user_path(method: &str, ident: &str) -> Result<Path, PathError> {
    below_nil(&["auth", method, "user", ident])
}

/// Where the name of a user's access list is.
///
/// # Errors
/// The names are too long for a path.
pub fn user_acl_path(method: &str, ident: &str) -> Result<Path, PathError> {
    below_nil(&["auth", method, "user", ident, "acl"])
}

/// Where it is said that there is no such user.
///
/// # Errors
/// The names are too long for a path.
pub fn revoked_path(method: &str, ident: &str) -> Result<Path, PathError> {
    below_nil(&["auth", REVOKED, method, ident])
}

/// Where one removal of a user is, by an id of its own.
///
/// # Errors
/// The names are too long for a path.
pub fn removal_path(method: &str, ident: &str, removal: Removal) -> Result<Path, PathError> {
    revoked_path(method, ident)?.push(Element::Bin(&removal.0))
}

/// Where an access list's patterns begin.
///
/// # Errors
/// The name is too long for a path.
pub fn acl_path(name: &str) -> Result<Path, PathError> {
    below_nil(&["acl", name])
}

fn below_nil(elements: &[&str]) -> Result<Path, PathError> {
    let elements = elements.iter().map(|element| Element::Str(element));
    Path::from_elements(std::iter::once(Element::Nil).chain(elements))
}

/// The name of an access list in the value of [`Place::UserAcl`]; none for any other form.
pub(super) fn read_acl_name(value: &[u8]) -> Option<&str> {
    let mut reader = Reader::new(value);
    let mut name = None;
    for _ in 0..reader.read_map_len().ok()? {
        let key = reader.read_raw().ok()?;
        let value = reader.read_raw().ok()?;
        if Reader::new(key).read_str_bytes() == Ok(b"key") {
            name = Some(Reader::new(value).read_str().ok()?);
        }
    }
    name
}

/// The value of [`Place::UserAcl`], `{key: NAME}`.
#[must_use]
pub fn acl_name_value(name: &str) -> Vec<u8> {
    let mut value = Vec::new();
    write_map_len(1, &mut value);
    write_str("key", &mut value);
    write_str(name, &mut value);
    value
}
